"""A device binary as the runtime library reads it: lenient where the library is lenient, strict where it is strict.

The inspector (pyacl.objfile) refuses damaged files and explains them. This reader must answer as the library does,
which looks at neither the first bytes nor the machine, checks few bounds, and skips what it does not understand.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ....objfile.elf import SHT_NOTE, SHT_PROGBITS, SHT_SYMTAB, STB_GLOBAL, STT_FUNC, STV_HIDDEN, tlvs
from ....objfile.metadata import (
    ARGUMENTS,
    ENTRY,
    ENTRY_DISABLED,
    IMPLICIT,
    KTYPE,
    MIN_STACK,
    PARAM_INFO,
    PARAM_SUMMARY,
    RATIO,
    SCHED_MODE,
    SYNC,
    UB_SIZE,
    VECTOR_TYPE,
)
from . import chips

# machine types: MIX says that each function has its own type, from metadata
AI_CORE, AI_CPU, AI_VECTOR, CVMIX, MIX = 0, 1, 2, 3, 255
# KTYPE
AICORE, AIC, AIV, MIX_AIC_MAIN, MIX_AIV_MAIN, AIC_ROLLBACK, AIV_ROLLBACK = 1, 2, 3, 4, 5, 6, 7
KTYPE_END = 8
SCHED_MODE_END = 2
NAME_LIMIT = 4096
MAX_ARGUMENTS = 128
DEFAULT_STACK = 32 << 10
FFTS_THROUGH_SYMBOL = 2  # a value of IMPLICIT
_META = ".ascend.meta"
_PREFIX = ".ascend.meta."
_SYMBOL_BYTES = 24
_SECTION_BYTES = 64
_ALLOC = 2


# kernels, and variables as (offset, size) by name
_Symbols = tuple[list["RawKernel"], dict[str, tuple[int, int]]]


class LoadFailure(Exception):
    """The library does not load this; the text says why."""

    message_code = "EE1001"


class NoKernels(LoadFailure):
    """The kernels and their metadata are at fault: the library is left with a null list of kernels."""

    message_code = "EE1004"


class RawKernel:
    """One function symbol, with what its metadata section says about it."""

    def __init__(self, name: str, offset: int, length: int) -> None:
        self.name = name
        self.offset = offset
        self.length = length
        self.arguments = MAX_ARGUMENTS  # how many arguments a handle has room for
        self.ktype = 0
        self.sync = 0
        self.ratio = 0  # as the device gets it: how many of the other cores a main core has
        self.cores = (0, 0)  # the ratio as the file has it: cube to vector
        self.sched_mode = 0
        self.entry: int | None = None  # number of the function
        self.named_only = False  # has no number
        self.ub_size = 0
        self.parameters: tuple[tuple[int, int], ...] | None = None


class Binary(NamedTuple):
    """What is left of a file after reading."""

    kernels: list[RawKernel]
    complete: bool  # every kernel has metadata, as many sections as kernels
    degenerate: bool
    implicit: AbstractSet[int]
    text_offset: int
    text_size: int
    machine: int  # e_machine
    globals: dict[str, tuple[int, int]]


class _Meta:
    """One section `.ascend.meta.<name>`."""

    def __init__(self) -> None:
        self.ktype = 0
        self.sync = 0
        self.cores = (0, 0)
        self.arguments = 0
        self.vector_type = 0
        self.ub_size = 0
        self.min_stack = 0
        self.sched_mode = 0
        self.entry: tuple[int, int] | None = None
        self.count: int | None = None
        self.parameters: dict[int, tuple[int, int]] = {}


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    offset: int
    size: int
    link: int
    entsize: int


class _Reader:
    """Numbers out of the bytes; what lies behind the end reads as 0."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.big_endian = False

    def number(self, offset: int, size: int) -> int:
        bytes_ = self.data[offset : offset + size]
        if self.big_endian:
            return int.from_bytes(bytes_.ljust(size, b"\0"), "big")
        return int.from_bytes(bytes_, "little")

    def text(self, table: _Section, offset: int, limit: int = NAME_LIMIT) -> str:
        start = table.offset + offset
        end = min(table.offset + table.size, start + limit)
        stop = self.data.find(b"\0", start, end)
        return self.data[start : end if stop < 0 else stop].decode("utf-8", "surrogateescape")

    def inside(self, section: _Section) -> bool:
        return section.offset + section.size <= len(self.data)


def read(data: bytes, machine: int, features: AbstractSet[str]) -> Binary:
    """Read a binary for a program of this machine type. LoadFailure if the library gives up."""
    file = _Reader(data)
    if file.number(4, 1) != 2:
        raise LoadFailure("it is no 64-bit ELF file")
    file.big_endian = file.number(5, 1) == 2
    sections = _sections(file)
    names = _section_names(file, sections)
    metas: dict[str, _Meta] = {}
    update = degenerate = False
    implicit = set()
    text_offset = text_size = 0
    for section in sections:
        if section.flags & _ALLOC and section.size:
            text_offset = text_offset or section.offset
            text_size = section.offset + section.size - text_offset
        if section.type not in (SHT_PROGBITS, SHT_NOTE) or names is None:
            continue
        name = file.text(names, section.name, 2 * NAME_LIMIT)
        content = data[section.offset : section.offset + section.size]
        if name == "__CCE_KernelMetaData":
            degenerate = bool(int.from_bytes(data[section.offset : section.offset + 4], "little"))
        elif _PREFIX in name:
            if 0 < len(name) - len(_PREFIX) < NAME_LIMIT:
                meta = _read_meta(file, content, section.offset)
                metas[name[len(_PREFIX) :]] = meta
                update = _updates(meta, machine, features)
        elif name == _META:
            words = (record.payload[:4] for record in tlvs(content) if record.type == IMPLICIT)
            implicit |= {int.from_bytes(word, "little") for word in words}
    complete = False
    try:
        kernels, variables = _symbols(file, sections)
        if machine == MIX or update:
            complete = _apply(kernels, metas, features)
        for kernel in kernels:
            _finish(kernel, metas.get(kernel.name), features)
    except LoadFailure as why:
        raise NoKernels(str(why)) from None
    return Binary(kernels, complete, degenerate, implicit, text_offset, text_size, file.number(18, 2), variables)


def _sections(file: _Reader) -> list[_Section]:
    start, entry_size, count = file.number(40, 8), file.number(58, 2), file.number(60, 2)
    if entry_size != _SECTION_BYTES or count == 0:
        raise LoadFailure(f"it has no section headers of {_SECTION_BYTES} bytes")
    found = []
    for index in range(count):
        at = start + index * _SECTION_BYTES
        if at + _SECTION_BYTES > len(file.data):
            raise LoadFailure("the section headers reach beyond the end of the file")
        section = _Section(
            file.number(at, 4),
            file.number(at + 4, 4),
            file.number(at + 8, 8),
            file.number(at + 24, 8),
            file.number(at + 32, 8),
            file.number(at + 40, 4),
            file.number(at + 56, 8),
        )
        if section.link > count:
            raise LoadFailure(f"section {index} links to a section that does not exist")
        found.append(section)
    return found


def _section_names(file: _Reader, sections: list[_Section]) -> _Section | None:
    index = file.number(62, 2)
    if not 0 <= index < len(sections):
        return None
    names = sections[index]
    if names.size == 0:
        return None
    if not file.inside(names):
        if index == 0:
            return None
        raise LoadFailure("the names of the sections lie beyond the end of the file")
    return names


def _read_meta(file: _Reader, content: bytes, base: int) -> _Meta:
    meta = _Meta()
    for record in tlvs(content, big_endian=file.big_endian):
        at = base + record.offset + 4
        if record.type == KTYPE:
            meta.ktype = file.number(at, 4)
        elif record.type == SYNC:
            meta.sync = file.number(at, 4)
        elif record.type == RATIO:
            meta.cores = (file.number(at, 2), file.number(at + 2, 2))
        elif record.type == ARGUMENTS and record.payload:
            # one more than listed: the library keeps one for the overflow address
            listed = tlvs(record.payload[: max(0, len(record.payload) - 4)], big_endian=True, unit=8)
            meta.arguments = 1 + sum(1 for argument in listed if argument.type == 5)
        elif record.type == VECTOR_TYPE:
            meta.vector_type = file.number(at, 4)
        elif record.type == UB_SIZE:
            meta.ub_size = file.number(at, 4)
        elif record.type == MIN_STACK:
            meta.min_stack = _sized(file, at, len(record.payload))
        elif record.type == SCHED_MODE:
            meta.sched_mode = _sized(file, at, len(record.payload))
        elif record.type == ENTRY:
            meta.entry = (file.number(at, 1), int.from_bytes(file.data[at + 4 : at + 12], "little"))
        elif record.type == PARAM_SUMMARY:
            meta.count = file.number(at, 4)
        elif record.type == PARAM_INFO:
            meta.parameters[file.number(at, 4)] = (file.number(at + 8, 4), file.number(at + 12, 4))
    if meta.vector_type == 0:
        meta.ub_size = 0
    return meta


def _sized(file: _Reader, at: int, size: int) -> int:
    return file.number(at, size) & 0xFFFF_FFFF if 1 <= size <= 8 else 0


def _updates(meta: _Meta, machine: int, features: AbstractSet[str]) -> bool:
    """Does metadata count for a program that was not loaded as MIX? The last section of a file decides."""
    mixed = meta.ktype in (MIX_AIC_MAIN, MIX_AIV_MAIN) or (
        meta.ktype in (AIC, AIV, AIC_ROLLBACK, AIV_ROLLBACK) and meta.sync == 1
    )
    update = chips.KERNEL_MIX in features or mixed
    if chips.SINGLE_CORE_TYPE in features and meta.ktype == AICORE:
        update = False
    if chips.UPDATE_ALWAYS in features:
        update = True
    if meta.ktype == 0 and update:
        if chips.STACK_IN_FILE in features:
            return False
        meta.ktype = {AI_CORE: AIC, AI_VECTOR: AIV}.get(machine, 0)
        update = meta.ktype != 0
    return update


def _symbols(file: _Reader, sections: list[_Section]) -> _Symbols:
    for section in sections:
        if section.type != SHT_SYMTAB or section.entsize == 0 or section.size == 0 or section.entsize > section.size:
            continue
        count = section.size // section.entsize
        if count * _SYMBOL_BYTES > section.size + 1 or section.offset + count * _SYMBOL_BYTES > len(file.data):
            continue
        strings = sections[section.link] if section.link < len(sections) else None
        if strings is not None and strings.size and not file.inside(strings):
            raise LoadFailure("the names of the symbols lie beyond the end of the file")
        return _kernels(file, section.offset, count, strings if strings is not None and strings.size else None)
    raise LoadFailure("it has no symbol table")


def _kernels(file: _Reader, start: int, count: int, strings: _Section | None) -> _Symbols:
    kernels = []
    variables: dict[str, tuple[int, int]] = {}
    functions = 0
    for at in range(start, start + count * _SYMBOL_BYTES, _SYMBOL_BYTES):
        name, info, other = file.number(at, 4), file.number(at + 4, 1), file.number(at + 5, 1)
        if info & 0xF != STT_FUNC:
            if info & 0xF == 1 and strings is not None and name and name < strings.size:
                variables[file.text(strings, name)] = (file.number(at + 8, 8), file.number(at + 16, 8))
            continue
        functions += 1
        if info >> 4 != STB_GLOBAL or other & 3 == STV_HIDDEN or name == 0 or strings is None:
            continue
        if name > strings.size:
            raise LoadFailure("the name of a symbol lies beyond the string table")
        text = file.text(strings, name, NAME_LIMIT)
        if len(text.encode("utf-8", "surrogateescape")) < NAME_LIMIT:
            kernels.append(RawKernel(text, file.number(at + 8, 4), file.number(at + 16, 4)))
    if functions == 0:
        raise LoadFailure("it has no functions")
    return kernels, variables


def _apply(kernels: list[RawKernel], metas: dict[str, _Meta], features: AbstractSet[str]) -> bool:
    """Metadata into the kernels; tells whether the file counts as complete."""
    if not metas:
        return False
    for kernel in kernels:
        meta = metas.get(kernel.name)
        if meta is None:
            continue
        if not 0 < meta.ktype < KTYPE_END:
            raise LoadFailure(f"the metadata of {kernel.name} has no known KTYPE ({meta.ktype})")
        kernel.ktype = meta.ktype
        kernel.arguments = meta.arguments
        kernel.sync = meta.sync
        kernel.ratio = 2
        kernel.cores = meta.cores
        kernel.ub_size = meta.ub_size
        if meta.cores != (0, 0) or chips.TASK_RATIO in features:
            kernel.ratio = _ratio(kernel)
    return len(metas) == len(kernels)


def _ratio(kernel: RawKernel) -> int:
    if kernel.ktype in (AIC, AIV, AIC_ROLLBACK, AIV_ROLLBACK):
        return 0
    allowed = {
        (1, 2): ((MIX_AIC_MAIN,), 2),
        (2, 1): ((MIX_AIV_MAIN,), 2),
        (1, 1): ((MIX_AIC_MAIN, MIX_AIV_MAIN), 1),
        (1, 0): ((MIX_AIC_MAIN,), 0),
        (0, 1): ((MIX_AIV_MAIN,), 0),
    }
    ktypes, ratio = allowed.get(kernel.cores, ((), 0))
    if kernel.ktype not in ktypes:
        cube, vector = kernel.cores
        raise LoadFailure(f"{kernel.name} is of KTYPE {kernel.ktype}, which does not go with the ratio {cube}:{vector}")
    return ratio


def _finish(kernel: RawKernel, meta: _Meta | None, features: AbstractSet[str]) -> None:
    """What counts for every kind of program."""
    if meta is None:
        return
    if chips.STACK_CHECK in features and meta.min_stack > DEFAULT_STACK:
        raise LoadFailure(f"{kernel.name} needs {meta.min_stack} bytes of stack, {DEFAULT_STACK} are configured")
    if meta.entry is not None:
        flag, number = meta.entry
        if flag == 0:
            kernel.entry = number
        elif flag == ENTRY_DISABLED:
            kernel.named_only = True
        else:
            raise LoadFailure(f"the entry of {kernel.name} has the flag 0x{flag:x}")
    if meta.sched_mode >= SCHED_MODE_END:
        raise LoadFailure(f"the schedule mode of {kernel.name} is {meta.sched_mode}")
    kernel.sched_mode = meta.sched_mode
    if meta.count is not None or meta.parameters:
        count = meta.count if meta.count is not None else len(meta.parameters)
        kernel.parameters = tuple(meta.parameters.get(index, (0, 0)) for index in range(min(count, 1 << 12)))
