"""The few methods of pyACL that the pages compare with, over a simulated NPU: ints, tuples and return codes.

The signatures are those of pyACL's public source.
"""

from __future__ import annotations

import ctypes
import types

from pyacl import raw, sim
from pyacl.raw import types as t


def module() -> types.ModuleType:
    """A module that stands for ``acl``, with a simulated process of its own."""
    c = raw.load(sim.Backend()).unchecked
    acl, rt = types.ModuleType("acl"), types.ModuleType("acl.rt")

    def handle(kind, function, *args):
        """(value, ret) of a function whose out parameter comes last."""
        out = kind()
        ret = function(*args, out)
        return out.value or 0, ret

    def load_from_file(path, options):
        assert options == []
        return handle(t.aclrtBinHandle, lambda out: c.aclrtBinaryLoadFromFile(path.encode(), None, out))

    def malloc(size, policy):
        out = ctypes.c_void_p()
        ret = c.aclrtMalloc(out, size, policy)
        return out.value or 0, ret

    def launch(function, blocks, stream, config, args, reserve):
        assert config == []
        return c.aclrtLaunchKernelWithConfig(function, blocks, stream, None, args, reserve)

    acl.init = lambda: c.aclInit(None)
    acl.finalize = c.aclFinalize
    acl.get_recent_err_msg = lambda: (c.aclGetRecentErrMsg() or b"").decode()
    acl.rt = rt
    rt.set_device = c.aclrtSetDevice
    rt.reset_device = c.aclrtResetDevice
    rt.create_stream = lambda: handle(t.aclrtStream, c.aclrtCreateStream)
    rt.destroy_stream = c.aclrtDestroyStream
    rt.synchronize_stream = c.aclrtSynchronizeStream
    rt.binary_load_from_file = load_from_file
    rt.binary_unload = c.aclrtBinaryUnLoad
    rt.binary_get_function = lambda b, name: handle(t.aclrtFuncHandle, c.aclrtBinaryGetFunction, b, name.encode())
    rt.malloc = malloc
    rt.free = c.aclrtFree
    rt.memcpy = c.aclrtMemcpy
    rt.memcpy_async = c.aclrtMemcpyAsync
    rt.kernel_args_init = lambda function: handle(t.aclrtArgsHandle, c.aclrtKernelArgsInit, function)
    rt.kernel_args_append = lambda args, at, size: handle(t.aclrtParamHandle, c.aclrtKernelArgsAppend, args, at, size)
    rt.kernel_args_finalize = c.aclrtKernelArgsFinalize
    rt.launch_kernel_with_config = launch
    return acl
