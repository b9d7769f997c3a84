"""The base classes of the generated types: handles, addresses of undeclared structures, callbacks."""

from __future__ import annotations

import ctypes
from typing import Any


class Handle(ctypes.c_void_p):
    """A C handle. Its class tells handles of different kinds apart: a stream is refused where an event is due."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'NULL' if not self.value else hex(self.value)})"


class Opaque(Handle):
    """The address of a structure that only the library knows: stands for ``T *`` where C writes ``T *``."""


class Callback(ctypes._CFuncPtr):  # type: ignore[name-defined,misc]
    """A function pointer that C calls. As an argument, None is NULL and an int is an address.

    Whoever passes one keeps it alive until C no longer calls it: the machine code of a collected callback is freed.
    """

    _restype_ = None
    _argtypes_ = ()
    _flags_ = ctypes.CFUNCTYPE(None)._flags_

    @classmethod
    def from_param(cls, value: Any) -> Any:
        if value is None:
            return cls()
        if isinstance(value, int):
            return cls(value)
        if not isinstance(value, cls):
            name = cls.__name__
            raise TypeError(
                f"expected {name}, an address or None, not {type(value).__name__}: wrap it, {name}(function)"
            )
        return value


def callback(name: str, restype: Any, *argtypes: Any) -> Any:
    """A `Callback` class of this signature; ctypes wants the three attributes in each class's own body."""
    body = {"_restype_": restype, "_argtypes_": argtypes, "_flags_": Callback._flags_, "__module__": "pyacl.raw.types"}
    return type(name, (Callback,), body)
