"""The metadata sections of a device binary, decoded: `.ascend.meta`, `.ascend.meta.<kernel>` and their neighbours.

Numbers and layouts are the runtime's; what it ignores (marked so) is kept because people want to see it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from pyacl.objfile.elf import Tlv, tlvs

# Types of the records in `.ascend.meta.<kernel>`.
KTYPE, SYNC, RATIO, ARGUMENTS, TIK, UB_SIZE, MIN_STACK = 1, 2, 3, 4, 6, 7, 8
WARP_STACK, DIVERGED_WARP_STACK, EARLY_START, VECTOR_TYPE = 9, 10, 11, 12
DETERMINISTIC, ENTRY, BLOCK_NUM, PARAM_SUMMARY, PARAM_INFO, SCHED_MODE = 13, 14, 15, 16, 17, 18

# Types of the records in `.ascend.meta`.
VERSION, DEBUG, DYNAMIC_PARAM, OPTIONAL_IO, IMPLICIT, SUPER_KERNEL = 0, 1, 2, 3, 4, 5

KTYPE_NAMES = {
    1: "AICORE",
    2: "AIC",
    3: "AIV",
    4: "MIX_AIC_MAIN",
    5: "MIX_AIV_MAIN",
    6: "AIC_ROLLBACK",
    7: "AIV_ROLLBACK",
}
VECTOR_TYPE_NAMES = {1: "none", 2: "SIMD", 3: "SIMT", 4: "SIMD and SIMT"}
SCHED_MODE_NAMES = {0: "normal", 1: "batch"}
DEBUG_BITS = {1: "printf", 2: "assert", 4: "timestamp", 8: "oom"}
IMPLICIT_NAMES = {
    1: "SIMD print FIFO",
    2: "FFTS address through a symbol",
    3: "system run configuration",
    4: "SIMT print FIFO",
    5: "SIMD assert",
}
ROLE_NAMES = {
    1: "general",
    2: "input",
    3: "output",
    4: "workspace",
    5: "log",
    6: "mc2ctx",
    7: "tiling",
    8: "L1",
    9: "L2",
    10: "overflow",
    11: "ffts",
    12: "shape",
}
POINTER_NAMES = {1: "pointer", 2: "pointer to pointers", 3: "pointer to pointers, with shape", 4: "shape tensor"}

#: How a group of `.ascend.meta` starts: the record (VERSION, 4 bytes, 1).
_GROUP_START = b"\x00\x00\x04\x00\x01\x00\x00\x00"
#: Sub-record of ARGUMENTS that describes one argument.
_ARGUMENT = 5
#: Flag of ENTRY that says the function has no entry number.
ENTRY_DISABLED = 0x80


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel, as TLV 4 lists them (hidden ones included)."""

    #: input, output, workspace, tiling, ffts, overflow, ...; ``unknown (n)`` for a number not in the table.
    role: str
    #: How the address is meant: pointer, pointer to pointers, ...
    pointer: str
    #: Bytes behind the pointer; -1 = depends on the shape; None = not said. Of tiling: its size plus 8.
    size: int | None
    #: The record's words, unchanged: ``pointerType << 16 | tensorType``, then sizes.
    words: tuple[int, ...]
    #: The record's type (5 in every object seen).
    type: int = _ARGUMENT

    @property
    def hidden(self) -> bool:
        """Whether the runtime supplies it and not the caller."""
        return self.role in ("ffts", "overflow")


@dataclass(frozen=True)
class KernelMeta:
    """What `.ascend.meta.<kernel>` says about one ELF symbol; None where it says nothing."""

    ktype: int | None = None
    sync: bool = False
    ratio: tuple[int, int] | None = None
    arguments: tuple[Argument, ...] | None = None
    #: ``(offset, size)`` of each parameter, in order.
    parameters: tuple[tuple[int, int], ...] | None = None
    ub_size: int | None = None
    min_stack: int | None = None
    vector_type: int | None = None
    deterministic: bool | None = None
    #: ``(flag, entry)`` of FUNCTION_ENTRY.
    entry: tuple[int, int] | None = None
    sched_mode: int | None = None
    records: tuple[Tlv, ...] = field(default=(), repr=False)

    def raw(self) -> dict[str, Any]:
        """Return every record by its number: pairs for the ratio, lists for arguments, hex for entries, else u32."""
        values: dict[str, Any] = {}
        for record in self.records:
            if record.type == RATIO:
                values[str(RATIO)] = list(_ratio(record.payload))
            elif record.type == ARGUMENTS:
                values[str(ARGUMENTS)] = [[argument.type, *argument.words] for argument in _arguments(record.payload)]
            elif record.type in (ENTRY, PARAM_SUMMARY, PARAM_INFO):
                values[str(record.type)] = record.payload.hex()
            else:
                values[str(record.type)] = _number(record.payload)
        return values


@dataclass(frozen=True)
class BinaryMeta:
    """What `.ascend.meta` says about the whole binary; the linker leaves one group of records per linked object."""

    groups: tuple[tuple[Tlv, ...], ...] = ()
    #: Implicit facilities that any group asks for (keys of ``IMPLICIT_NAMES``).
    implicit: frozenset[int] = frozenset()
    #: Those the runtime sees: it does not find the second group of an older compiler's file.
    implicit_seen: frozenset[int] = frozenset()
    #: printf, assert, timestamp, oom.
    debug_options: tuple[str, ...] = ()
    #: Bytes of the debug buffer.
    debug_buffer: int = 0


def kernel_meta(section: bytes) -> KernelMeta:
    """Decode one `.ascend.meta.<kernel>` section. Of a repeated record the last counts, as for the runtime."""
    records = tuple(tlvs(section))
    found = {record.type: record.payload for record in records}

    def number(type_: int) -> int | None:
        return _number(found[type_]) if type_ in found else None

    deterministic = number(DETERMINISTIC)
    entry = found.get(ENTRY)
    return KernelMeta(
        ktype=number(KTYPE) or None,
        sync=number(SYNC) == 1,
        ratio=_ratio(found[RATIO]) if RATIO in found else None,
        arguments=_arguments(found[ARGUMENTS]) if ARGUMENTS in found else None,
        parameters=_parameters(records),
        ub_size=number(UB_SIZE),
        min_stack=number(MIN_STACK),
        vector_type=number(VECTOR_TYPE),
        deterministic=None if deterministic is None else bool(deterministic),
        entry=None if entry is None else _entry(entry),
        sched_mode=number(SCHED_MODE),
        records=records,
    )


def binary_meta(section: bytes) -> BinaryMeta:
    """Decode `.ascend.meta`, finding every group also where an older compiler wrote 34 bytes and 2 of padding."""
    groups = _groups(section)
    implicit = {_number(record.payload) for group in groups for record in group if record.type == IMPLICIT}
    seen = {_number(record.payload) for record in tlvs(section) if record.type == IMPLICIT}
    buffer = bits = 0
    for group in groups:
        for record in group:
            if record.type == DEBUG and len(record.payload) >= 8:
                size, options = struct.unpack_from("<II", record.payload)
                buffer, bits = max(buffer, size), bits | options
    return BinaryMeta(
        groups=groups,
        implicit=frozenset(implicit),
        implicit_seen=frozenset(seen),
        debug_options=tuple(name for bit, name in DEBUG_BITS.items() if bits & bit),
        debug_buffer=buffer,
    )


def _groups(section: bytes) -> tuple[tuple[Tlv, ...], ...]:
    groups: list[tuple[Tlv, ...]] = []
    start = 0
    while start < len(section):
        group: list[Tlv] = []
        next_start = len(section)
        for record in tlvs(section, start=start):
            group.append(record)
            aligned = (record.offset + 4 + len(record.payload) + 3) & ~3
            if section.startswith(_GROUP_START, aligned):
                next_start = aligned
                break
        if group:
            groups.append(tuple(group))
        start = next_start
    return tuple(groups)


def _number(payload: bytes) -> int:
    return int.from_bytes(payload[:4], "little")


def _ratio(payload: bytes) -> tuple[int, int]:
    return int.from_bytes(payload[:2], "little"), int.from_bytes(payload[2:4], "little")


def _entry(payload: bytes) -> tuple[int, int]:
    return int.from_bytes(payload[:1], "little"), int.from_bytes(payload[4:12], "little")


def _parameters(records: tuple[Tlv, ...]) -> tuple[tuple[int, int], ...] | None:
    """Where the parameters lie, by one PARAM_INFO for each: u32 index, ordinal, offset, size, and more.

    None without them, or when they are not as many as PARAM_SUMMARY counts, or not numbered from 0 on.
    """
    count = next((_number(record.payload) for record in records if record.type == PARAM_SUMMARY), None)
    found = {}
    for record in records:
        if record.type == PARAM_INFO and len(record.payload) >= 16:
            index, _, offset, size = struct.unpack_from("<4I", record.payload)
            found[index] = offset, size
    if count is None or count != len(found) or any(index not in found for index in range(count)):
        return None
    return tuple(found[index] for index in range(count))


def _arguments(payload: bytes) -> tuple[Argument, ...]:
    """Decode TLV 4, whose records are big-endian and count their length in words of 8 bytes."""
    arguments = []
    for record in tlvs(payload, big_endian=True, unit=8):
        words = struct.unpack(f">{len(record.payload) // 8}q", record.payload)
        first = words[0] if words else 0
        role, pointer = first & 0xFFFF, (first >> 16) & 0xFFFF
        arguments.append(
            Argument(
                role=ROLE_NAMES.get(role, f"unknown ({role})"),
                pointer=POINTER_NAMES.get(pointer, f"unknown ({pointer})"),
                size=words[1] if len(words) > 1 else None,
                words=words,
                type=record.type,
            )
        )
    return tuple(arguments)
