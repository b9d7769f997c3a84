"""What kind of file it is, and the device binaries inside those that hold some: archives, host objects, libraries."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np

from pyacl.objfile.elf import (
    ELF_MAGIC,
    EM_AARCH64,
    EM_ASCEND,
    ET_DYN,
    ET_EXEC,
    ET_REL,
    HEADER_DTYPE,
    SECTION_DTYPE,
    SHT_NOBITS,
    Elf,
    KernelObjectError,
)

AR_MAGIC = b"!<arch>\n"
_AR_HEADER = 60
_AR_END = b"`\n"

#: First bytes of a device ELF up to its version; e_machine follows at byte 18.
_DEVICE_IDENT = ELF_MAGIC + b"\x02\x01\x01"
#: More embedded binaries than any library has; a file with more was made to waste time.
PART_LIMIT = 10_000
#: ELF headers in a host file that turn out to be something else, before the search is given up.
_FALSE_START_LIMIT = 64


class Container(str, Enum):
    """The kinds of files that kernels come in."""

    DEVICE = "device ELF"
    RELOCATABLE = "relocatable device object"
    HOST_OBJECT = "host object with a device part"
    FAT = "fat binary"
    LEGACY_HOST = "host library with packed kernels"
    ARCHIVE = "ar archive"
    AICPU = "AI CPU library"
    HOST = "host file without kernels"

    def __str__(self) -> str:
        return self.value


class Piece(NamedTuple):
    """A file inside the file: where from (for people), where, and its bytes."""

    origin: str
    offset: int
    data: bytes


def classify(elf: Elf, has_cpu_kernels: bool, has_pieces: bool) -> Container:
    """Say what kind of file an ELF file is."""
    machine, type_ = elf.header.machine, elf.header.type
    if machine == EM_ASCEND:
        if type_ == ET_EXEC:
            return Container.DEVICE
        if type_ == ET_REL:
            return Container.RELOCATABLE
        raise KernelObjectError(f"a device ELF of type {type_}; the runtime loads linked ones (type {ET_EXEC})")
    if has_cpu_kernels and machine == EM_AARCH64 and type_ == ET_DYN:
        return Container.AICPU
    names = {section.name for section in elf.sections}
    if ".aicore_binary" in names:
        return Container.FAT
    if "__aicore_rel_binary" in names:
        return Container.HOST_OBJECT
    if any(name.startswith(".ascend.kernel.") for name in names):
        return Container.LEGACY_HOST
    return Container.FAT if has_pieces else Container.HOST


def archive_members(data: bytes) -> Iterator[Piece]:
    """Yield the members of an ar archive, without its symbol and name tables."""
    offset, names = len(AR_MAGIC), b""
    while offset < len(data):
        header = data[offset : offset + _AR_HEADER]
        if len(header) < _AR_HEADER or header[58:60] != _AR_END:
            raise KernelObjectError(f"damaged ar archive: no member header at byte {offset}")
        raw_name, digits = header[:16].rstrip(), header[48:58].strip()
        if not digits.isdigit():
            raise KernelObjectError(f"damaged ar archive: the member at byte {offset} has no size")
        start = offset + _AR_HEADER
        size = int(digits)
        if start + size > len(data):
            raise KernelObjectError(f"truncated: a member ends at byte {start + size}, the archive at {len(data)}")
        # Members start on even bytes.
        offset = start + size + (size & 1)
        if raw_name == b"//":
            names = data[start : start + size]
        elif raw_name not in (b"/", b"/SYM64/", b"__.SYMDEF"):
            skip = 0
            if raw_name.startswith(b"#1/") and raw_name[3:].isdigit():  # BSD: the name stands before the content
                skip = min(int(raw_name[3:]), size)
                name = data[start : start + skip].rstrip(b"\0")
            elif raw_name[1:].isdigit():  # GNU: the name stands in the table of names
                at = int(raw_name[1:])
                name = names[at : at + 4096].split(b"/\n", 1)[0]
            else:
                name = raw_name.rstrip(b"/")
            shown = name.decode("utf-8", "backslashreplace")
            yield Piece(f"member {shown}", start + skip, data[start + skip : start + size])


def embedded(elf: Elf) -> Iterator[Piece]:
    """Yield the device binaries inside a host file, wherever they lie; they never overlap."""
    data = elf.data
    placed = sorted(
        (section.offset, section.offset + section.size, section.name)
        for section in elf.sections
        if section.stored and section.size
    )
    starts = [offset for offset, _, _ in placed]
    machine = EM_ASCEND.to_bytes(2, "little")
    at, found, false_starts = data.find(_DEVICE_IDENT, 1), 0, 0
    while at >= 0 and false_starts < _FALSE_START_LIMIT:
        end = at + 1
        if data[at + 18 : at + 20] == machine:
            extent = elf_extent(data, at)
            if extent is None:
                false_starts += 1
            else:
                found += 1
                if found > PART_LIMIT:
                    raise KernelObjectError(f"more than {PART_LIMIT} device binaries inside one file")
                index = bisect_right(starts, at) - 1
                inside = index >= 0 and at < placed[index][1]
                origin = f"section {placed[index][2]}" if inside else f"byte {at}"
                end = at + extent
                yield Piece(origin, at, data[at:end])
        at = data.find(_DEVICE_IDENT, end)


def elf_extent(data: bytes, start: int) -> int | None:
    """Return how many bytes the ELF file that starts at `start` has, by its tables; None when they make no sense."""
    room = len(data) - start
    if room < HEADER_DTYPE.itemsize:
        return None
    header = np.frombuffer(data, dtype=HEADER_DTYPE, count=1, offset=start)[0]
    shoff, shnum, shentsize = int(header["shoff"]), int(header["shnum"]), int(header["shentsize"])
    end = shoff + shnum * SECTION_DTYPE.itemsize
    if shnum == 0 or shentsize != SECTION_DTYPE.itemsize or end > room:
        return None
    table = np.frombuffer(data, dtype=SECTION_DTYPE, count=shnum, offset=start + shoff)
    stored = table[(table["type"] != SHT_NOBITS) & (table["type"] != 0)]
    if stored.size:
        offsets, sizes = stored["offset"], stored["size"]
        if bool(np.any(offsets > room)) or bool(np.any(sizes > room)):
            return None
        end = max(end, int(np.max(offsets + sizes)))
    return end if end <= room else None
