"""Host memory by address. Everything of the simulator that reads or writes the memory of the program goes through
here."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

S = TypeVar("S", bound=ctypes.Structure)

_u8, _u16, _u32, _u64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
_i32, _i64, _f32, _f64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_double


def read_u8(address: int) -> int:
    return _u8.from_address(address).value


def read_u16(address: int) -> int:
    return _u16.from_address(address).value


def read_u32(address: int) -> int:
    return _u32.from_address(address).value


def read_u64(address: int) -> int:
    return _u64.from_address(address).value


def read_i32(address: int) -> int:
    return _i32.from_address(address).value


def write_u8(address: int, value: int) -> None:
    _u8.from_address(address).value = value


def write_u16(address: int, value: int) -> None:
    _u16.from_address(address).value = value


def write_u32(address: int, value: int) -> None:
    _u32.from_address(address).value = value


def write_u64(address: int, value: int) -> None:
    _u64.from_address(address).value = value


def write_i32(address: int, value: int) -> None:
    _i32.from_address(address).value = value


def write_i64(address: int, value: int) -> None:
    _i64.from_address(address).value = value


def write_f32(address: int, value: float) -> None:
    _f32.from_address(address).value = value


def write_f64(address: int, value: float) -> None:
    _f64.from_address(address).value = value


# pointers and handles are 8 bytes on every platform CANN runs on
read_pointer = read_u64
write_pointer = write_u64


def read_bytes(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)


def write_bytes(address: int, data: bytes) -> None:
    ctypes.memmove(address, data, len(data))


def read_text(address: int) -> str:
    """The zero-terminated text at an address."""
    return ctypes.string_at(address).decode("utf-8", "surrogateescape")


def write_text(address: int, text: str, size: int) -> None:
    """Text with its final zero into a field of `size` bytes; the rest of the field stays as it is."""
    raw = text.encode("utf-8", "surrogateescape")[: size - 1] + b"\0"
    ctypes.memmove(address, raw, len(raw))


def read_struct(kind: type[S], address: int) -> S:
    """A copy of the structure at an address."""
    return kind.from_buffer_copy(ctypes.string_at(address, ctypes.sizeof(kind)))


def struct_at(kind: type[S], address: int) -> S:
    """The structure at an address itself: writing to its fields writes to host memory."""
    return kind.from_address(address)


def view(address: int, size: int) -> NDArray[np.uint8]:
    """The host bytes as an array; valid as long as the memory is."""
    import numpy as np  # here, so that the simulator opens without numpy

    pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
    return np.ctypeslib.as_array(pointer, shape=(size,))


def copy_in(destination: NDArray[np.uint8], address: int) -> None:
    """Host bytes into a contiguous array, as many as it has."""
    ctypes.memmove(destination.ctypes.data, address, destination.nbytes)


def copy_out(address: int, source: NDArray[np.uint8]) -> None:
    """A contiguous array to host memory."""
    ctypes.memmove(address, source.ctypes.data, source.nbytes)


def fill(address: int, value: int, size: int) -> None:
    ctypes.memset(address, value, size)


#: (destination, source, size): copies between addresses; the ranges may overlap
move = ctypes.memmove


class Texts:
    """C strings that a function has returned the address of, for one machine (`sim.area(Texts)`)."""

    def __init__(self, machine: object) -> None:
        self._kept: dict[str, tuple[str, Any]] = {}

    def keep(self, key: str, text: str) -> int:
        """The address of a C string that lives until another text is kept under the same key."""
        found = self._kept.get(key)
        if found is None or found[0] != text:
            found = self._kept[key] = text, ctypes.create_string_buffer(text.encode("utf-8", "surrogateescape"))
        return ctypes.addressof(found[1])


def keep_text(kept: dict[str, Any], key: str, text: str | None) -> int:
    """The address of a C string that lives until the next one with the same key (`machine.thread.kept`); 0 for None."""
    if text is None:
        return 0
    buffer = ctypes.create_string_buffer(text.encode("utf-8", "surrogateescape"))
    kept[key] = buffer
    return ctypes.addressof(buffer)


def keep_bytes(data: bytes) -> tuple[Any, int]:
    """Bytes where C can read them: (what keeps them alive, their address; 0 if there are none)."""
    if not data:
        return None, 0
    buffer = ctypes.create_string_buffer(data, len(data))
    return buffer, ctypes.addressof(buffer)
