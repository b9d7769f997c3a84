"""A simulated machine at the level of C calls, for tests of what those calls do to memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from pyacl import AclError, raw, sim

H2H, H2D, D2H, D2D, DEFAULT = range(5)


class Calls:
    """The checked functions of one simulated machine, with device 0 set, and short ways to use them.

    Any function of the API is an attribute: `calls.aclrtMalloc(...)` raises `pyacl.AclError` for a code other than 0.
    """

    def __init__(self, **options: Any) -> None:
        options.setdefault("devices", 2)
        self.backend = sim.Backend(**options)
        self.api = raw.load(self.backend)
        self.api.aclrtSetDevice(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.api, name)

    def code(self, name: str, *args: Any) -> int:
        """The error code of a call."""
        try:
            getattr(self.api, name)(*args)
        except AclError as error:
            return error.code
        return 0

    def pointer(self, name: str, *args: Any) -> int:
        """What a call writes through its first argument, a `void **`."""
        found = ctypes.c_void_p()
        getattr(self.api, name)(found, *args)
        return found.value or 0

    def number(self, name: str, *args: Any, kind: type = ctypes.c_uint64) -> int:
        """What a call writes through its last argument."""
        found = kind()
        getattr(self.api, name)(*args, found)
        return found.value

    def malloc(self, nbytes: int, policy: int = 0) -> int:
        return self.pointer("aclrtMalloc", nbytes, policy)

    def upload(self, array: np.ndarray) -> int:
        """New device memory with the contents of an array."""
        address = self.malloc(array.nbytes)
        self.api.aclrtMemcpy(address, array.nbytes, array.ctypes.data, array.nbytes, H2D)
        return address

    def bytes_at(self, address: int, nbytes: int) -> bytes:
        """What is in device memory."""
        found = np.zeros(nbytes, np.uint8)
        self.api.aclrtMemcpy(found.ctypes.data, nbytes, address, nbytes, D2H)
        return found.tobytes()

    def free_bytes(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.api.aclrtGetMemInfo(1, free, total)
        return free.value

    def stream(self) -> Any:
        made = raw.types.aclrtStream()
        self.api.aclrtCreateStream(made)
        return made


def undefined(*parts: str) -> Any:
    """A block that must raise UndefinedBehavior with all of these parts in its text."""
    import re

    return pytest.raises(sim.UndefinedBehavior, match="".join(f"(?=.*{re.escape(part)})" for part in parts))
