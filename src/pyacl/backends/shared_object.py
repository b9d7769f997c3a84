"""What the file of a shared library says about itself, read without loading it."""

from __future__ import annotations

import mmap
import os
import re
import struct
from typing import NamedTuple

#: e_machine of the two kinds of host that CANN runs on, by the name `platform.machine` has for them
MACHINES = {"x86_64": 62, "AMD64": 62, "aarch64": 183, "arm64": 183}
_NAMES = {62: "x86_64", 183: "aarch64"}

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_SONAME = 1, 5, 14

# Where toolkits keep libraries that exist only to be linked against, and what such a library prints when it is called.
_STUB_PATH = re.compile(r"/devlib/|/lib(?:64)?/stub/|/stub/linux/")
_STUB_TEXT = b"stub library cannot be used for execution"


class NotLoadable(Exception):
    """The file is no shared library that this kind of host could load."""


class SharedObject(NamedTuple):
    """The parts of a shared library's dynamic section that finding its dependencies needs."""

    machine: str
    soname: str
    needed: tuple[str, ...]


def read(path: str) -> SharedObject:
    """Read the ELF headers and the dynamic section of a 64-bit little-endian library.

    Raises
    ------
    NotLoadable
        When the file is something else, or damaged.
    OSError
        When it cannot be read.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < 64:
            raise NotLoadable("not a shared library (too short)")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _parse(data)
            except (struct.error, ValueError, OverflowError) as error:
                raise NotLoadable(f"damaged ELF file ({error})") from None


def is_stub_path(path: str) -> bool:
    """Whether the file, or what it links to, lies where toolkits keep link-time stubs."""
    return any(_STUB_PATH.search(p) for p in (path, os.path.realpath(path)))


def is_stub(path: str) -> bool:
    """Whether the library is a link-time stub, by its place or by its content."""
    return is_stub_path(path) or mentions(path, _STUB_TEXT)


def mentions(path: str, text: bytes) -> bool:
    """Whether the bytes occur anywhere in the file."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(text) >= 0


def _parse(data: mmap.mmap) -> SharedObject:
    if data[:4] != b"\x7fELF":
        raise NotLoadable("not a shared library (no ELF file)")
    if data[4] != 2 or data[5] != 1:
        raise NotLoadable("not a 64-bit little-endian library")
    kind, machine = struct.unpack_from("<HH", data, 16)
    name = _NAMES.get(machine, f"machine {machine}")
    if kind != 3:
        raise NotLoadable(f"an ELF file for {name}, but no shared library")
    (first,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQ", data, first + size * i) for i in range(count)]

    def offset(address: int) -> int:
        for type_, _, start, virtual, _, length in segments:
            if type_ == _PT_LOAD and virtual <= address < virtual + length:
                return int(start + address - virtual)
        raise ValueError("an address outside the file")

    entries = []
    for type_, _, start, _, _, length in segments:
        if type_ == _PT_DYNAMIC:
            for at in range(start, start + length, 16):
                tag, value = struct.unpack_from("<QQ", data, at)
                if tag == 0:
                    break
                entries.append((tag, value))
    strings = next((offset(value) for tag, value in entries if tag == _DT_STRTAB), 0)

    def text(at: int) -> str:
        end = data.find(b"\0", strings + at)
        if end < 0:
            raise ValueError("an unterminated name")
        return data[strings + at : end].decode("utf-8", "replace")

    soname = next((text(value) for tag, value in entries if tag == _DT_SONAME), "")
    return SharedObject(name, soname, tuple(text(value) for tag, value in entries if tag == _DT_NEEDED))
