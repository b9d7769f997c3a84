"""Functions of the program by address: a callback pointer made into a Python callable."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

_KINDS: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "u32": ctypes.c_uint32,
    "i32": ctypes.c_int32,
    "u64": ctypes.c_uint64,
    "bool": ctypes.c_bool,
    "void": None,
}


def function(address: int, returns: str, *parameters: str) -> Callable[..., Any]:
    """The C function at an address. Kinds: p u32 i32 u64 bool void."""
    return ctypes.CFUNCTYPE(_KINDS[returns], *[_KINDS[kind] for kind in parameters])(address)
