"""From a row of the API table to ctypes: what a C type's text is as an argument, and a function's prototype."""

from __future__ import annotations

import ctypes
from typing import Any

from pyacl.raw.functions import SCALARS
from pyacl.raw.table import Function, Param

_BASE: dict[str, Any] = {
    "void": None,
    "char": ctypes.c_char,
    "bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    "uintptr_t": ctypes.c_size_t,
    # on both hardware platforms a va_list parameter is the address of one
    "va_list": ctypes.c_void_p,
    **{f"{sign}int{bits}_t": getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_ABI: dict[str, Any] = {
    "i8": ctypes.c_int8, "u8": ctypes.c_uint8, "i16": ctypes.c_int16, "u16": ctypes.c_uint16,
    "i32": ctypes.c_int32, "u32": ctypes.c_uint32, "i64": ctypes.c_int64, "u64": ctypes.c_uint64,
    "f32": ctypes.c_float, "f64": ctypes.c_double, "char": ctypes.c_char, "bool": ctypes.c_bool,
}  # fmt: skip
_cache: dict[tuple[str, bool], Any] = {}


class Characters(ctypes.POINTER(ctypes.c_char)):  # type: ignore[misc]  # made at run time
    """``char *`` that C writes to. ctypes takes bytes for it, which nothing may change, so they are refused here."""

    _type_ = ctypes.c_char

    @classmethod
    def from_param(cls, value: Any) -> Any:
        if isinstance(value, bytes):
            raise TypeError("bytes cannot be written to")
        return ctypes.POINTER(ctypes.c_char).from_param(value)


def _named(base: str) -> Any:
    """The ctypes class of a type name without ``const`` and stars."""
    if base in _BASE:
        return _BASE[base]
    if base in SCALARS:  # enums and typedefs of integers: their width, so that any int passes
        return _ABI[SCALARS[base]]
    from pyacl.raw import types

    if hasattr(types, base):
        return getattr(types, base)
    from pyacl.raw import runtime_types  # 267 structures that a program without rt* calls never needs

    return getattr(runtime_types, base)


def ctype(text: str, writable: bool = True) -> Any:
    """The ctypes type of a parameter or result that is declared as ``text``.

    ``void *`` is `c_void_p` and ``T *`` is ``POINTER(T)``, so that an instance of ``T`` can be passed where C takes
    its address. ``const char *`` is `c_char_p`; a ``char *`` that C writes to is `Characters` (``writable=False`` says
    that C only reads it).
    """
    key = (text, writable)
    found = _cache.get(key)
    if found is None and text != "void":
        found = _cache[key] = _ctype(text, writable)
    return found


def _ctype(text: str, writable: bool) -> Any:
    from pyacl.raw import types

    words = text.replace("[]", "*").replace("*", " * ").split()
    stars = words.count("*")
    constant = words[0] == "const"
    base = " ".join(w for w in words if w not in ("const", "*", "struct", "enum"))
    if base in ("char", "char_t") and stars:
        stars -= 1
        result: Any = Characters if writable and not constant and not stars else ctypes.c_char_p
    elif base == "void" and stars:
        stars -= 1
        result = ctypes.c_void_p
    else:
        result = _named(base)
        if isinstance(result, type) and issubclass(result, types.Opaque):
            stars -= 1  # the handle class stands for the pointer to the undeclared struct
    for _ in range(stars):
        result = ctypes.POINTER(result)
    return result


def parameter_type(function: Function, param: Param) -> Any:
    """The ctypes type of one parameter."""
    if "(" in param.type:  # a function pointer written in place
        return ctype(f"{function.name}_{param.name}")
    return ctype(param.type, writable=param.direction != "in")


class _Text(ctypes.c_char_p):
    """``const char *`` of a variadic function: takes a `c_void_p` too, as C does.

    Whoever passes further arguments has to wrap all of them in ctypes types, and an address is a `c_void_p` then.
    """

    @classmethod
    def from_param(cls, value: Any) -> Any:
        return value if isinstance(value, ctypes.c_void_p) else ctypes.c_char_p.from_param(value)


def prototype(function: Function) -> Any:
    """The function pointer class of a row, with typed parameters: what a caller uses."""
    arguments = [parameter_type(function, p) for p in function.params]
    if function.variadic:
        arguments = [_Text if argument is ctypes.c_char_p else argument for argument in arguments]
    return ctypes.CFUNCTYPE(ctype(function.returns), *arguments)


def thunk_prototype(function: Function) -> Any:
    """The same function for a Python function that stands behind an address: every pointer arrives as an int."""
    arguments = [_plain(parameter_type(function, p)) for p in function.params]
    return ctypes.CFUNCTYPE(_plain(ctype(function.returns)), *arguments)


def is_address(kind: Any) -> bool:
    """Whether values of this ctypes type are one machine address."""
    return isinstance(kind, type) and (
        issubclass(kind, (ctypes.c_void_p, ctypes.c_char_p, ctypes._Pointer)) or hasattr(kind, "argtypes")
    )


def _plain(kind: Any) -> Any:
    return ctypes.c_size_t if is_address(kind) else kind
