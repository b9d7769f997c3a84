"""The runtime's own functions for kernels, models and labels: launches by host functions, and the twins of acl."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest
from simulated_kernels import VECTOR, Kernels, code, u64

from pyacl import sim
from pyacl.backends.sim.engine.kernels import EMULATIONS
from pyacl.raw import runtime_types as r
from pyacl.testing import make_kernel_object

NULL, INTERNAL, LOOKUP, DUPLICATE, UNSUPPORTED = 107000, 507000, 507027, 507028, 207000


@pytest.fixture(autouse=True)
def own_kernels():
    before = dict(EMULATIONS)
    EMULATIONS.clear()

    @sim.kernel
    def add(x: sim.In[np.int32], y: sim.In[np.int32], z: sim.Out[np.int32]):
        z[:] = x + y

    yield
    EMULATIONS.clear()
    EMULATIONS.update(before)


@pytest.fixture
def calls():
    return Kernels()


STUB = ctypes.create_string_buffer(4)  # its address stands for a kernel


def binary(data, magic=VECTOR):
    """The structure, and what keeps the data alive."""
    buffer = ctypes.create_string_buffer(data, len(data))
    return r.rtDevBinary_t(magic=magic, version=0, data=ctypes.addressof(buffer), length=len(data)), buffer


def registered(calls, name="add", function="rtDevBinaryRegister", **spec):
    given, kept = binary(make_kernel_object(name, **spec))
    handle = ctypes.c_void_p()
    getattr(calls.api, function)(given, handle)
    return handle


def operands(calls):
    x, y = np.arange(8, dtype=np.int32), np.arange(8, dtype=np.int32) * 10
    return calls.upload(x), calls.upload(y), calls.malloc(32), x + y


def ints(calls, address):
    return np.frombuffer(calls.bytes_at(address, 32), np.int32)


def test_launch_by_a_host_function(calls):
    handle, stub = registered(calls), ctypes.addressof(STUB)
    assert calls.code("rtQueryFunctionRegistered", b"the stub") == LOOKUP
    calls.api.rtFunctionRegister(handle, stub, b"the stub", b"add", 0)
    assert calls.code("rtFunctionRegister", handle, stub, b"again", b"add", 0) == DUPLICATE
    assert calls.code("rtQueryFunctionRegistered", b"the stub") == 0
    assert calls.number("rtGetFunctionByName", b"the stub", kind=ctypes.c_void_p) == stub
    x, y, z, expected = operands(calls)
    block = ctypes.create_string_buffer(u64(x, y, z), 24)
    calls.api.rtKernelLaunch(stub, 1, ctypes.addressof(block), 24, None, calls.s.value)
    block[:] = b"\xff" * 24  # copied at the launch
    calls.sync()
    assert np.array_equal(ints(calls, z), expected)

    calls.api.rtDevBinaryUnRegister(handle)
    assert calls.code("rtQueryFunctionRegistered", b"the stub") == LOOKUP
    assert calls.code("rtKernelLaunch", stub, 1, ctypes.addressof(block), 24, None, calls.s.value) == INTERNAL


def test_what_registering_refuses(calls):
    handle, stub = registered(calls), ctypes.addressof(STUB)
    assert calls.code("rtFunctionRegister", None, stub, b"n", b"add", 0) == NULL
    assert calls.code("rtFunctionRegister", handle, None, b"n", b"add", 0) == NULL
    assert calls.code("rtFunctionRegister", handle, stub, None, b"add", 0) == NULL
    assert calls.code("rtFunctionRegister", handle, stub, b"n", b"sub", 0) == INTERNAL
    found = ctypes.c_void_p(1)
    assert calls.code("rtGetFunctionByName", b"n", found) == LOOKUP and not found.value
    given, kept = binary(make_kernel_object("add"), magic=5)
    assert calls.code("rtDevBinaryRegister", given, found) == NULL
    assert calls.code("rtDevBinaryRegister", None, found) == NULL
    given, kept = binary(make_kernel_object("add"))
    assert calls.code("rtRegisterAllKernel", given, found) == NULL  # no number at the end of the name


@pytest.mark.parametrize(
    ("blocks", "args", "size", "number"), [(0, 1, 24, NULL), (65536, 1, 24, NULL), (1, 0, 24, NULL), (1, 1, 0, NULL)]
)
def test_what_a_launch_by_a_host_function_refuses(calls, blocks, args, size, number):
    handle, stub = registered(calls), ctypes.addressof(STUB)
    calls.api.rtFunctionRegister(handle, stub, b"n", b"add", 0)
    block = ctypes.create_string_buffer(24)
    where = ctypes.addressof(block) if args else None
    assert calls.code("rtKernelLaunch", stub, blocks, where, size, None, calls.s.value) == number
    assert calls.code("rtKernelLaunch", None, 1, ctypes.addressof(block), 24, None, calls.s.value) == NULL


@pytest.mark.parametrize("version", ["", "V2"])
def test_launch_with_a_placeholder_and_a_tiling_key(calls, version):
    @sim.kernel
    def scaled(x: sim.In[np.int32], tiling: sim.In[np.int32], z: sim.Out[np.int32]):
        z[:] = x * tiling[0]

    handle = registered(calls, "scaled_7", function="rtRegisterAllKernel")
    x, _, z, _ = operands(calls)
    data = u64(x, 0, z) + struct.pack("<q", 3)
    buffer = ctypes.create_string_buffer(data, len(data))
    given = r.rtArgsEx_t(
        args=ctypes.addressof(buffer), argsSize=len(data), hasTiling=1, tilingAddrOffset=8, tilingDataOffset=24
    )
    launch = f"rtKernelLaunchWithHandle{version}"
    assert calls.code(launch, handle, 8, 1, given, None, calls.s.value, None) == INTERNAL
    getattr(calls.api, launch)(handle, 7, 1, given, None, calls.s.value, None)
    calls.sync()
    assert np.array_equal(ints(calls, z), np.arange(8) * 3)
    given.tilingDataOffset = len(data)
    assert calls.code(launch, handle, 7, 1, given, None, calls.s.value, None) == NULL


def test_launch_with_arguments_on_the_device_and_a_configuration(calls):
    handle, stub = registered(calls), ctypes.addressof(STUB)
    calls.api.rtFunctionRegister(handle, stub, b"n", b"add", 0)
    x, y, z, expected = operands(calls)
    block = calls.upload(np.frombuffer(u64(x, y, z), np.uint8))
    given = r.rtArgsEx_t(args=block, argsSize=24, isNoNeedH2DCopy=1)
    cfg = r.rtTaskCfgInfo_t(schemMode=1)
    calls.api.rtKernelLaunchWithFlagV2(stub, 1, given, None, calls.s.value, 0, cfg)
    calls.api.rtKernelLaunchWithFlag(stub, 1, given, None, calls.s.value, 0)
    calls.sync()
    assert np.array_equal(ints(calls, z), expected)
    cfg.schemMode = 2
    assert calls.code("rtKernelLaunchWithFlagV2", stub, 1, given, None, calls.s.value, 0, cfg) == NULL


def test_mix_kernels_skip_the_hidden_argument(calls):
    handle, stub = registered(calls, core="mix"), ctypes.addressof(STUB)
    calls.api.rtFunctionRegister(handle, stub, b"n", b"add", 0)
    address, size = ctypes.c_uint64(), ctypes.c_uint32()
    calls.api.rtGetC2cCtrlAddr(address, size)
    assert address.value and size.value
    late = Kernels(soc="Ascend950DT_950x", cann="9.2.0-beta.2")
    assert late.code("rtGetC2cCtrlAddr", address, size) == 0x0711000D  # the library's own number
    x, y, z, expected = operands(calls)
    block = ctypes.create_string_buffer(u64(address.value, x, y, z), 32)
    calls.api.rtKernelLaunch(stub, 1, ctypes.addressof(block), 32, None, calls.s.value)
    calls.sync()
    assert np.array_equal(ints(calls, z), expected)


def test_the_address_of_the_code(calls):
    handle = registered(calls)
    base = ctypes.c_void_p()
    calls.api.rtGetBinaryDeviceBaseAddr(handle, base)
    assert base.value


# ---- twins of acl functions ----------------------------------------------------------------------------------


def test_handles_by_the_names_of_the_runtime(calls):
    api, data = calls.api, make_kernel_object("add")
    buffer, loaded = ctypes.create_string_buffer(data, len(data)), r.rtBinHandle()
    api.rtsBinaryLoadFromData(ctypes.addressof(buffer), len(data), None, loaded)
    function = r.rtFuncHandle()
    api.rtsFuncGetByName(loaded, b"add", function)
    name = ctypes.create_string_buffer(8)
    api.rtsFuncGetName(function, 8, name)
    assert name.value == b"add"
    x, y, z, expected = operands(calls)
    args = r.rtArgsHandle()
    api.rtsKernelArgsInit(function, args)
    for value in (x, y, z):
        number, parameter = ctypes.c_uint64(value), r.rtParaHandle()
        api.rtsKernelArgsAppend(args, ctypes.addressof(number), 8, parameter)
    assert calls.code("rtsLaunchKernelWithConfig", function, 1, calls.s.value, None, None, None) == NULL
    api.rtsKernelArgsFinalize(args)
    api.rtsLaunchKernelWithConfig(function, 1, calls.s.value, None, args, None)
    calls.sync()
    assert np.array_equal(ints(calls, z), expected)

    where, size = ctypes.c_void_p(), ctypes.c_uint32()
    api.rtsBinaryGetDevAddress(loaded, where, size)
    assert where.value and size.value == len(data)
    block = calls.upload(np.frombuffer(u64(x, y, x), np.uint8))
    api.rtsLaunchKernelWithDevArgs(function, 1, calls.s.value, None, block, 24, None)
    calls.sync()
    assert np.array_equal(ints(calls, x), expected)
    assert calls.code("rtsLaunchKernelWithDevArgs", function, 1, calls.s.value, None, block, 24, block) == NULL
    assert calls.code("rtsLaunchKernelWithDevArgs", function, 1, calls.s.value, None, None, 24, None) == NULL
    api.rtsBinaryUnload(loaded)


def test_null_pointers_are_those_of_the_runtime(calls):
    assert calls.code("aclrtKernelArgsFinalize", None) == 100000
    assert calls.code("rtsKernelArgsFinalize", None) == NULL
    assert calls.code("rtsFuncGetByName", None, b"k", r.rtFuncHandle()) == NULL
    assert calls.code("rtBinarySetExceptionCallback", None, r.rtOpExceptionCallback(lambda *_: None), None) == NULL
    assert calls.code("rtsModelExecute", None, -1) == NULL
    assert calls.code("rtModelExecuteSync", None, None, 0, 0) == NULL
    assert calls.code("rtsLabelCreate", None) == NULL


def test_models_by_the_names_of_the_runtime(calls):
    api = calls.api
    handle, stub = registered(calls), ctypes.addressof(STUB)
    api.rtFunctionRegister(handle, stub, b"n", b"add", 0)
    x, y, z, expected = operands(calls)
    block = ctypes.create_string_buffer(u64(x, y, z), 24)
    api.rtStreamBeginCapture(calls.s.value, 0)
    api.rtKernelLaunch(stub, 1, ctypes.addressof(block), 24, None, calls.s.value)
    model = r.rtModel_t()
    api.rtStreamEndCapture(calls.s.value, model)
    nodes = ctypes.c_uint32()
    api.rtModelGetNodes(model, nodes)
    assert nodes.value == 1
    api.rtModelExecute(model, calls.s.value, 0)
    calls.sync()
    assert np.array_equal(ints(calls, z), expected)
    api.rtModelDestroy(model)


def test_chips_that_capture_nothing():
    calls = Kernels(soc="Ascend910A")
    assert calls.code("rtStreamBeginCapture", calls.s.value, 0) == UNSUPPORTED
    assert calls.code("rtLabelCreate", r.rtLabel_t()) == UNSUPPORTED


@pytest.mark.parametrize("call", ["rtReduceAsync", "rtReduceAsyncV2", "rtsLaunchReduceAsyncTask"])
def test_reductions(calls, call):
    x, y, _, expected = operands(calls)
    int32 = 5
    if call == "rtsLaunchReduceAsyncTask":
        calls.api.rtsLaunchReduceAsyncTask(
            r.rtReduceInfo_t(dst=x, src=y, count=32, kind=10, type=int32), calls.s.value, None
        )
    else:
        more = (None,) if call.endswith("V2") else ()
        getattr(calls.api, call)(x, 32, y, 32, 10, int32, calls.s.value, *more)
    calls.sync()
    assert np.array_equal(ints(calls, x), expected)
    assert calls.code("rtReduceAsync", x, 32, y, 32, 10, 11, calls.s.value) == NULL
    assert calls.code("rtReduceAsync", x, 32, y, 0, 10, int32, calls.s.value) == NULL


def test_listeners_have_names(calls):
    told = []
    first = r.rtsTaskFailCallback(lambda info, argument: told.append(("first", argument)))
    second = r.rtTaskFailCallback(
        lambda info: told.append(("second", calls.api.aclrtGetErrorCodeFromExceptionInfo(info)))
    )
    calls.api.rtsSetTaskFailCallback(b"first", first, 5)
    assert calls.code("rtsSetTaskFailCallback", b"first", first, 6) == NULL
    calls.api.rtRegTaskFailCallbackByModule(b"second", second)
    function = calls.kernel("add")
    calls.host_launch(function, u64(0, 0, 0))
    assert code(calls.sync) == 507035
    assert told == [("first", 5), ("second", 507035)]
    calls.api.rtsSetTaskFailCallback(b"first", None, 0)
    calls.host_launch(function, u64(0, 0, 0))
    assert code(calls.sync) == 507035
    assert len(told) == 3
