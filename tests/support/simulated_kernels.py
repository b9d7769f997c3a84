"""Kernels on a simulated machine: load, launch, and the calls around them at the level of C."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from simulated import Calls

from pyacl import AclError
from pyacl.raw import types as c
from pyacl.testing import make_kernel_object

AICORE, VECTOR, CUBE = 0x43554245, 0x41415246, 0x41494343
INVALID_PARAM, PARAM_INVALID, NOT_SUPPORTED = 100000, 107000, 207000


class Kernels(Calls):
    """The calls of one machine, with a stream and a plain vector kernel named `k` at hand."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.s = self.stream()
        self.kept: list[Any] = []

    def options(self, *pairs: tuple[int, int]) -> Any:
        """Load options as C has them."""
        array = (c.aclrtBinaryLoadOption * max(len(pairs), 1))()
        for option, (kind, value) in zip(array, pairs):
            option.type = kind
            option.value.magic = value & 0xFFFFFFFF
        self.kept.append(array)
        return c.aclrtBinaryLoadOptions(ctypes.addressof(array), len(pairs))

    def load(self, data: bytes, *options: tuple[int, int]) -> Any:
        """aclrtBinaryLoadFromData."""
        handle = c.aclrtBinHandle()
        buffer = ctypes.create_string_buffer(data, len(data))
        chosen = self.options(*options) if options else None
        self.api.aclrtBinaryLoadFromData(ctypes.addressof(buffer), len(data), chosen, handle)
        return handle

    def load_file(self, path: Any, *options: tuple[int, int]) -> Any:
        handle = c.aclrtBinHandle()
        self.api.aclrtBinaryLoadFromFile(str(path).encode(), self.options(*options) if options else None, handle)
        return handle

    def function(self, binary: Any, name: str) -> Any:
        handle = c.aclrtFuncHandle()
        self.api.aclrtBinaryGetFunction(binary, name.encode(), handle)
        return handle

    def by_entry(self, binary: Any, entry: int) -> Any:
        handle = c.aclrtFuncHandle()
        self.api.aclrtBinaryGetFunctionByEntry(binary, entry, handle)
        return handle

    def kernel(self, name: str, *args: Any, **spec: Any) -> Any:
        """A function of that name out of a made object with metadata."""
        return self.function(self.load(make_kernel_object(name, *args, **spec)), name)

    def name(self, function: Any) -> str:
        buffer = ctypes.create_string_buffer(4096)
        self.api.aclrtGetFunctionName(function, 4096, buffer)
        return buffer.value.decode()

    def type(self, function: Any) -> int:
        return self.number("aclrtGetFunctionAttribute", function, 1, kind=ctypes.c_int64)

    def addresses(self, function: Any) -> tuple[int, int]:
        cube, vector = ctypes.c_void_p(), ctypes.c_void_p()
        self.api.aclrtGetFunctionAddr(function, cube, vector)
        return cube.value or 0, vector.value or 0

    def host_launch(
        self, function: Any, block: bytes, blocks: int = 1, placeholders: Any = (), cfg: Any = None
    ) -> bytes:
        """aclrtLaunchKernelWithHostArgs; returns the block as it is afterwards."""
        buffer = ctypes.create_string_buffer(block, len(block))
        array = (c.aclrtPlaceHolderInfo * max(len(placeholders), 1))(*placeholders)
        self.api.aclrtLaunchKernelWithHostArgs(
            function, blocks, self.s, cfg, ctypes.addressof(buffer), len(block), array, len(placeholders)
        )
        return buffer.raw

    def sync(self) -> None:
        self.api.aclrtSynchronizeStream(self.s)


class Handle:
    """An argument handle with what the tests do to it."""

    def __init__(self, calls: Kernels, function: Any, room: int | None = None) -> None:
        self.calls, self.function = calls, function
        self.room = room
        if room is None:
            self.handle = c.aclrtArgsHandle()
            calls.api.aclrtKernelArgsInit(function, self.handle)
        else:
            self.head = ctypes.create_string_buffer(8192)
            self.block = ctypes.create_string_buffer(b"\xee" * 8192, 8192)
            self.handle = c.aclrtArgsHandle(ctypes.addressof(self.head))
            calls.api.aclrtKernelArgsInitByUserMem(function, self.handle, ctypes.addressof(self.block), room)

    def append(self, data: bytes) -> Any:
        found = c.aclrtParamHandle()
        buffer = ctypes.create_string_buffer(data, len(data))
        self.calls.api.aclrtKernelArgsAppend(self.handle, ctypes.addressof(buffer), len(data), found)
        return found

    def placeholder(self) -> Any:
        found = c.aclrtParamHandle()
        self.calls.api.aclrtKernelArgsAppendPlaceHolder(self.handle, found)
        return found

    def data(self, parameter: Any, size: int) -> int:
        return self.calls.number(
            "aclrtKernelArgsGetPlaceHolderBuffer", self.handle, parameter, size, kind=ctypes.c_void_p
        )

    def update(self, parameter: Any, data: bytes) -> None:
        buffer = ctypes.create_string_buffer(data, len(data))
        self.calls.api.aclrtKernelArgsParaUpdate(self.handle, parameter, ctypes.addressof(buffer), len(data))

    def finalize(self) -> None:
        self.calls.api.aclrtKernelArgsFinalize(self.handle)

    def launch(self, blocks: int = 1, cfg: Any = None, stream: Any = None) -> None:
        self.calls.api.aclrtLaunchKernelWithConfig(
            self.function, blocks, self.calls.s if stream is None else stream, cfg, self.handle, None
        )


def code(function: Any, *args: Any, **options: Any) -> int:
    """The error code that a call of a helper ends with."""
    try:
        function(*args, **options)
    except AclError as error:
        return error.code
    return 0


def config(*pairs: tuple[int, bytes]) -> Any:
    """A launch configuration: (id, bytes of the value)."""
    array = (c.aclrtLaunchKernelAttr * max(len(pairs), 1))()
    for attribute, (number, value) in zip(array, pairs):
        attribute.id = number
        ctypes.memmove(ctypes.addressof(attribute) + 4, value, len(value))
    made = c.aclrtLaunchKernelCfg(ctypes.addressof(array), len(pairs))
    made._kept = array
    return made


def u64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)
