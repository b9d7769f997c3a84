"""ELF64 read from bytes, nothing more: header, sections, symbols, strings and TLV streams, every access bounds-checked.

What the fields mean for an Ascend kernel is said in :mod:`pyacl.objfile.kernels`. Whatever the bytes are, the only
exception that leaves this module is :class:`KernelObjectError`, and neither time nor memory grows faster than the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, Union

import numpy as np
import numpy.typing as npt

Buffer = Union[bytes, bytearray, memoryview]

ELF_MAGIC = b"\x7fELF"

# Types of files, machines, sections and symbols that a kernel object can meet (names as in <elf.h>).
ET_REL, ET_EXEC, ET_DYN = 1, 2, 3
EM_386, EM_X86_64, EM_AARCH64, EM_ASCEND = 3, 62, 183, 0x1029
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_NOTE, SHT_NOBITS = 1, 2, 3, 7, 8
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_NOTYPE, STT_OBJECT, STT_FUNC = 0, 1, 2
STV_DEFAULT, STV_HIDDEN = 0, 2

#: Names are read up to this many bytes; the runtime skips a kernel whose name is as long (see ``Symbol.name``).
NAME_LIMIT = 4096
#: A section's name may carry a kernel's name behind a prefix.
SECTION_NAME_LIMIT = NAME_LIMIT + 64

HEADER_DTYPE = np.dtype(
    [
        ("ident", "S16"),
        ("type", "<u2"),
        ("machine", "<u2"),
        ("version", "<u4"),
        ("entry", "<u8"),
        ("phoff", "<u8"),
        ("shoff", "<u8"),
        ("flags", "<u4"),
        ("ehsize", "<u2"),
        ("phentsize", "<u2"),
        ("phnum", "<u2"),
        ("shentsize", "<u2"),
        ("shnum", "<u2"),
        ("shstrndx", "<u2"),
    ]
)
SECTION_DTYPE = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("addr", "<u8"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("addralign", "<u8"),
        ("entsize", "<u8"),
    ]
)
SYMBOL_DTYPE = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("shndx", "<u2"), ("value", "<u8"), ("size", "<u8")]
)

_TLV_HEAD_LE = struct.Struct("<HH")
_TLV_HEAD_BE = struct.Struct(">HH")


class KernelObjectError(ValueError):
    """The bytes are not a kernel object that can be read; the message says where and what to do next."""


class Header(NamedTuple):
    """The ELF header's fields that matter here, named as in ``Elf64_Ehdr`` without the ``e_``."""

    type: int
    machine: int
    version: int
    entry: int
    flags: int
    phoff: int
    shoff: int
    phnum: int
    shnum: int
    shstrndx: int


class Section(NamedTuple):
    """One section header, with its name looked up. A stored section lies inside the file (checked)."""

    name: str
    type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    info: int
    addralign: int
    entsize: int
    number: int

    @property
    def stored(self) -> bool:
        """Whether it has bytes in the file. The null section (type 0) has none, whatever its fields say."""
        return self.type not in (0, SHT_NOBITS)


class Symbol(NamedTuple):
    """One symbol. ``name`` is cut at ``NAME_LIMIT`` bytes: a name that long is one the runtime skips."""

    name: str
    type: int
    bind: int
    visibility: int
    section: int
    value: int
    size: int


class Tlv(NamedTuple):
    """One type-length-value record; ``offset`` is where its head starts in the stream."""

    type: int
    payload: bytes
    offset: int


def is_elf(data: Buffer) -> bool:
    """Whether the bytes start as an ELF file does."""
    return bytes(data[:4]) == ELF_MAGIC


class Elf:
    """A little-endian 64-bit ELF file in memory.

    Parameters
    ----------
    data : bytes-like
        The whole file.

    Raises
    ------
    KernelObjectError
        Not such a file, or one whose tables reach beyond its end.
    """

    header: Header
    sections: tuple[Section, ...]

    def __init__(self, data: Buffer) -> None:
        self.data = data if isinstance(data, bytes) else bytes(data)
        self.header = self._read_header()
        self.sections = self._read_sections()
        self._by_name = {section.name: section for section in reversed(self.sections)}

    def section(self, name: str) -> Section | None:
        """Return the first section of that name, or None."""
        return self._by_name.get(name)

    def content(self, section: Section) -> bytes:
        """Return the section's bytes in the file; b"" where it has none."""
        if not section.stored:
            return b""
        return self.data[section.offset : section.offset + section.size]

    def string(self, table: Section, offset: int, limit: int = NAME_LIMIT) -> str:
        """Return the string at `offset` of a string table, cut at `limit` bytes.

        A last string without its NUL ends with the table, as it does for the runtime.
        """
        if offset >= table.size:
            raise KernelObjectError(f"a name lies at {offset} of {_shown(table.name)}, which has {table.size} bytes")
        start = table.offset + offset
        end = min(start + limit, table.offset + table.size)
        nul = self.data.find(b"\0", start, end)
        return self.data[start : end if nul < 0 else nul].decode("utf-8", "backslashreplace")

    def symbol_table(self) -> tuple[npt.NDArray[np.void], Section] | None:
        """Return the first usable symbol table as ``SYMBOL_DTYPE`` records, and the string table that names them.

        The runtime reads the first SHT_SYMTAB with a non-zero entry size too. None when there is no such table.
        """
        for section in self.sections:
            if section.type != SHT_SYMTAB or section.entsize == 0 or section.size == 0:
                continue
            if section.entsize != SYMBOL_DTYPE.itemsize:
                raise KernelObjectError(
                    f"{_shown(section.name)} has entries of {section.entsize} bytes; ELF64 symbols have 24"
                )
            if section.link >= len(self.sections):
                raise KernelObjectError(f"{_shown(section.name)} names section {section.link}, which does not exist")
            count = section.size // SYMBOL_DTYPE.itemsize
            table = np.frombuffer(self.data, dtype=SYMBOL_DTYPE, count=count, offset=section.offset)
            return table, self.sections[section.link]
        return None

    def symbols(self, *types: int) -> list[Symbol]:
        """Return the symbols in file order, of the given ``STT_`` types only when any are given. [] without a table."""
        found = self.symbol_table()
        if found is None:
            return []
        table, strings = found
        if types:
            table = table[np.isin(table["info"] & 0xF, types)]
        if not strings.stored:
            raise KernelObjectError(f"{_shown(strings.name)} should hold the symbols' names, but holds no bytes")
        rows = table.tolist()
        names = self._names(strings, [row[0] for row in rows], NAME_LIMIT)
        return [
            Symbol(name, info & 0xF, info >> 4, other & 3, shndx, value, size)
            for name, (_, info, other, shndx, value, size) in zip(names, rows)
        ]

    def _read_header(self) -> Header:
        data = self.data
        if not is_elf(data):
            raise KernelObjectError("not an ELF file: it does not start with 7f 45 4c 46")
        if len(data) < HEADER_DTYPE.itemsize:
            raise KernelObjectError(f"truncated: {len(data)} bytes, an ELF header alone has {HEADER_DTYPE.itemsize}")
        if data[4] != 2:
            raise KernelObjectError("a 32-bit ELF file; kernel objects are ELF64")
        if data[5] not in (0, 1):
            raise KernelObjectError("a big-endian ELF file; kernel objects are little-endian")
        fields = np.frombuffer(data, dtype=HEADER_DTYPE, count=1)[0].item()
        _, type_, machine, version, entry, phoff, shoff, flags, _, _, phnum, shentsize, shnum, shstrndx = fields
        if shnum and shentsize != SECTION_DTYPE.itemsize:
            raise KernelObjectError(f"section headers of {shentsize} bytes; ELF64 has {SECTION_DTYPE.itemsize}")
        if shnum and shoff + shnum * shentsize > len(data):
            raise KernelObjectError(
                f"truncated: the section headers end at byte {shoff + shnum * shentsize}, the file at {len(data)}"
            )
        return Header(type_, machine, version, entry, flags, phoff, shoff, phnum, shnum, shstrndx)

    def _read_sections(self) -> tuple[Section, ...]:
        header, end = self.header, len(self.data)
        if header.shnum == 0:
            return ()
        table = np.frombuffer(self.data, dtype=SECTION_DTYPE, count=header.shnum, offset=header.shoff).tolist()
        unnamed = [Section._make(("", *row[1:], number)) for number, row in enumerate(table)]
        for section in unnamed:
            if section.stored and section.offset + section.size > end:
                raise KernelObjectError(
                    f"truncated: section {section.number} ends at byte {section.offset + section.size}, "
                    f"the file at {end}"
                )
        if header.shstrndx == 0:
            return tuple(unnamed)
        if header.shstrndx >= header.shnum or not unnamed[header.shstrndx].stored:
            raise KernelObjectError(f"the section names should be in section {header.shstrndx}, which holds none")
        names = self._names(unnamed[header.shstrndx], [row[0] for row in table], SECTION_NAME_LIMIT)
        return tuple(section._replace(name=name) for section, name in zip(unnamed, names))

    def _names(self, table: Section, offsets: list[int], limit: int) -> list[str]:
        """Return the names at `offsets`; offset 0 is no name.

        Names may share bytes (linkers merge tails), but not without end: a crafted table of overlapping names would
        otherwise cost 4 KiB for each 24-byte symbol.
        """
        left = 2 * len(self.data) + (1 << 16)
        names = []
        for offset in offsets:
            name = self.string(table, offset, limit) if offset else ""
            left -= len(name)
            if left < 0:
                raise KernelObjectError("the names of this file overlap beyond reason; it is damaged or crafted")
            names.append(name)
        return names


def tlvs(stream: Buffer, *, start: int = 0, big_endian: bool = False, unit: int = 1) -> Iterator[Tlv]:
    """Walk a stream of ``u16 type, u16 length`` records as the runtime does.

    Padding reads as type 0 with length 0 and is skipped; a record that overruns the stream ends the walk.

    Parameters
    ----------
    stream : bytes-like
        The records, back to back.
    start : int
        Where in the stream to begin.
    big_endian : bool
        Byte order of the heads: the arguments inside TLV 4 are big-endian, everything else is little-endian.
    unit : int
        Bytes a length counts (8 for the arguments inside TLV 4).
    """
    head = _TLV_HEAD_BE if big_endian else _TLV_HEAD_LE
    data = bytes(stream)
    offset, end = start, len(data)
    # A head that ends with the stream is not a record for the runtime (it asks for more than 4 bytes left).
    while end - offset > head.size:
        type_, length = head.unpack_from(data, offset)
        body = offset + head.size
        length *= unit
        if body + length > end:
            return
        if type_ or length:
            yield Tlv(type_, data[body : body + length], offset)
        offset = body + length


def _shown(name: str) -> str:
    """Return a section's name as it can be printed in a message."""
    return repr(name if len(name) <= 80 else name[:77] + "...")
