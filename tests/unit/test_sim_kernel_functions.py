"""Kernels as numpy functions: registering, decoding, running, faults."""

from __future__ import annotations

import ctypes
import re
import struct
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import undefined
from simulated_kernels import VECTOR, Handle, Kernels, code, u64

from pyacl import AclError, sim
from pyacl.arguments import Packer
from pyacl.backends.sim.engine.kernels import EMULATIONS, Emulation, source_names
from pyacl.backends.sim.engine.kernels import Kernels as Registered
from pyacl.backends.sim.engine.memory import Memory
from pyacl.raw import types as c
from pyacl.testing import make_kernel_object

AICORE_EXCEPTION, VECTOR_EXCEPTION, AICPU_EXCEPTION = 507015, 507035, 507018


@pytest.fixture(autouse=True)
def own_kernels():
    """Every test starts without registered kernels."""
    before = dict(EMULATIONS)
    EMULATIONS.clear()
    yield
    EMULATIONS.clear()
    EMULATIONS.update(before)


@pytest.fixture
def calls():
    return Kernels()


def array(calls, address, count, dtype):
    return np.frombuffer(calls.bytes_at(address, count * np.dtype(dtype).itemsize), dtype)


# ---- registering ---------------------------------------------------------------------------------------------


class Tiling(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_uint16), ("scale", ctypes.c_double)]


def test_names():
    @sim.kernel
    def first(n: np.uint32):
        pass

    @sim.kernel("second_7")
    def another(n: sim.Scalar[np.uint32]):
        pass

    @sim.kernel()
    def third():
        pass

    assert sorted(EMULATIONS) == ["first", "second_7", "third"]
    assert first(3) is None  # still an ordinary function


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (None, "'x' has no annotation"),
        (int, "'x' is int, which says no width"),
        (sim.In, r"is sim.In without a dtype; write sim.In\[np.float16\]"),
        ("no such name", "'no such name' cannot be evaluated"),
        (str, "kernel wrong: the parameter 'x' has no fixed size"),
        (object, "Python objects"),
        (np.ndarray, r"Python objects, .*; write what it is, such as sim.In\[np.float16\] or np.uint32"),
        (sim.In[object], "Python objects"),
        (sim.Struct[ctypes.c_char_p], "no dtype"),
        (print, "no dtype, ctypes structure or annotation"),
    ],
)
def test_refused_annotations(annotation, text):
    def wrong(x):
        pass

    if annotation is not None:
        wrong.__annotations__["x"] = annotation
    with pytest.raises(TypeError, match=text):
        sim.kernel(wrong)
    assert EMULATIONS == {}


def test_refused_parameters():
    with pytest.raises(TypeError, match="'x' has a default"):

        @sim.kernel
        def first(x: np.uint32 = 1):
            pass

    with pytest.raises(TypeError, match="'x' is variadic positional"):

        @sim.kernel
        def second(*x: np.uint32):
            pass

    with pytest.raises(TypeError, match="'x' is keyword-only"):

        @sim.kernel
        def third(*, x: np.uint32):
            pass

    with pytest.raises(TypeError, match="takes a name or decorates a function"):
        sim.kernel(5)
    with pytest.raises(TypeError, match="kernel int: <class 'int'> is no Python function"):
        sim.kernel(int)
    with pytest.raises(TypeError, match="belongs into an annotation"):
        sim.In(np.zeros(3))


def test_names_of_the_source():
    md5 = "1907f3e124c32ea4c8637789e310b4df"
    assert list(source_names(f"AddRelu_{md5}_0")) == [f"AddRelu_{md5}", "AddRelu"]
    assert list(source_names("k")) == []
    assert list(source_names("k_12")) == ["k"]
    assert list(source_names("_Z10add_customPhS_S_")) == ["add_custom"]


def test_a_kernel_nobody_registered(calls):
    function = calls.kernel("mystery_1")
    with pytest.raises(sim.UnregisteredKernel, match=r"the kernel mystery_1 (.|\n)*@sim.kernel\n    def mystery\("):
        calls.host_launch(function, u64(1, 2, 3))
    skipping = Kernels(unregistered="skip")
    skipping.host_launch(skipping.kernel("mystery"), u64(1, 2, 3))
    skipping.sync()


def test_a_backend_can_have_its_own(calls):
    seen = []

    @sim.kernel
    def k(n: np.uint64):
        seen.append(("all", n))

    @sim.kernel("k", backend=calls.backend)
    def other(n: np.uint64):
        seen.append(("own", n))

    for machine in (calls, Kernels()):
        machine.host_launch(machine.kernel("k"), u64(5))
        machine.sync()
    assert seen == [("own", 5), ("all", 5)]


# ---- decoding ------------------------------------------------------------------------------------------------


def test_arguments_lie_at_their_natural_alignment(calls):
    seen = []

    @sim.kernel
    def k(a: np.uint8, b: np.uint8, c: np.uint64, d: np.float16, e: sim.Struct[Tiling], f: np.float64):
        seen.append((a, b, c, d, e.rows, e.scale, f))

    block = struct.pack("<B3xB3xQe6xH6xdd", 1, 2, 3, 1.5, 7, 0.25, -2.0)
    calls.host_launch(calls.kernel("k", args=6), block)
    calls.sync()
    assert seen == [(1, 2, 3, 1.5, 7, 0.25, -2.0)]
    assert [type(value).__name__ for value in seen[0][:4]] == ["uint8", "uint8", "uint64", "float16"]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["u1", "u2", "i4", "u8", "f4", "f8"]), min_size=1, max_size=8), st.data())
def test_decoding_is_the_inverse_of_packing(types, data):
    values = [np.dtype(t).type(data.draw(st.integers(0, 100))) for t in types]
    packed = Packer("k").pack(values).block
    names = [f"p{index}" for index in range(len(types))]
    space = {name: np.dtype(t).type for name, t in zip(names, types)}
    exec(
        f"def k({', '.join(f'{n}: {n}_type' for n in names)}): pass", {f"{n}_type": t for n, t in space.items()}, space
    )
    emulation = Emulation("k", space["k"], {})
    assert emulation.decode(packed, None) == values
    assert emulation.size <= len(packed) < emulation.size + 8


def test_a_structure_as_a_dtype(calls):
    tiling = np.dtype([("rows", "u2"), ("scale", "f8")], align=True)
    seen = []

    @sim.kernel
    def k(t: sim.Struct[tiling], n: np.uint32):
        seen.append((t["rows"], t["scale"], n))

    calls.host_launch(calls.kernel("k"), struct.pack("<H6xdI4x", 3, 1.25, 9))
    calls.sync()
    assert seen == [(3, 1.25, 9)]


def test_too_few_arguments(calls):
    @sim.kernel
    def k(a: np.uint64, b: np.uint32):
        pass

    function = calls.kernel("k")
    calls.host_launch(function, u64(1) + b"\0" * 4)
    with undefined("aclrtLaunchKernelWithHostArgs", "k reads 12 bytes of arguments", "gives 8"):
        calls.host_launch(function, u64(1))


def test_the_hidden_last_argument_does_not_count_as_given(calls):
    @sim.kernel
    def k(x: sim.In[np.uint8], y: sim.In[np.uint8], n: np.uint32):
        pass

    def launch(data):
        handle = Handle(calls, calls.kernel("k"))
        handle.append(data)
        handle.finalize()
        handle.launch()

    launch(u64(1, 2) + b"\0" * 4)
    with undefined("k reads 20 bytes of arguments but the launch gives 16", "test_sim_kernel_functions", "(x, y, n)"):
        launch(u64(1, 2))
    calls.sync()


def test_a_pointer_reaches_to_the_end_of_what_the_host_asked_for(calls):
    sizes = []

    @sim.kernel
    def k(x: sim.In[np.float32], y: sim.In[np.uint8]):
        sizes.append((x.size, y.size, x.address, type(y[:])))

    memory = calls.malloc(100)
    calls.host_launch(calls.kernel("k"), u64(memory, memory + 40))
    calls.sync()
    assert sizes == [(25, 60, memory, np.ndarray)]


@pytest.mark.parametrize("hazards", ["off", "raise"])
@pytest.mark.parametrize("size", [1, 3])  # an empty buffer of the objects is a byte
def test_a_buffer_without_elements(calls, hazards, size):
    @sim.kernel
    def double(x: sim.In[np.int32], z: sim.Out[np.int32], n: np.uint32):
        z[:n] = x[:n] * 2
        if n == 0:
            z[:] = x + x

    calls.backend.hazards = hazards
    function, memory = calls.kernel("double"), calls.malloc(size)
    calls.host_launch(function, u64(memory, memory, 0))
    calls.sync()
    calls.host_launch(function, u64(memory, memory, 1))
    with pytest.raises(AclError, match=r"double\(x\)\[:1\] is beyond its 0 elements of int32"):
        calls.sync()


def test_the_hidden_slot_is_skipped_on_every_route(calls):
    seen = []

    @sim.kernel
    def k(n: np.uint64):
        seen.append(int(n))

    function = calls.kernel("k", core="mix")
    handle = Handle(calls, function)
    handle.append(u64(1))
    handle.finalize()
    handle.launch()
    calls.host_launch(function, u64(calls.pointer("aclrtGetHardwareSyncAddr"), 2))
    calls.api.aclrtLaunchKernel(function, 1, calls.upload(np.array([0, 3], np.uint64)), 16, calls.s)
    calls.sync()
    assert seen == [1, 2, 3]
    with undefined("k reads 16 bytes of arguments, 8 of them for the hidden first one, but the launch gives 8"):
        calls.host_launch(function, u64(1))


def test_a_block_on_the_device_is_read_when_the_kernel_runs():
    calls = Kernels(order="lazy")
    seen = []

    @sim.kernel
    def k(n: np.uint64):
        seen.append(int(n))

    block = calls.upload(np.array([1], np.uint64))
    calls.api.aclrtLaunchKernel(calls.kernel("k"), 1, block, 8, calls.s)
    two = np.array([2], np.uint64)
    calls.api.aclrtMemcpy(block, 8, two.ctypes.data, 8, 1)
    calls.sync()
    assert seen == [2]


def test_a_block_on_the_host_is_copied_at_the_launch():
    calls = Kernels(order="lazy")
    seen = []

    @sim.kernel
    def k(n: np.uint64):
        seen.append(int(n))

    handle = Handle(calls, calls.kernel("k"))
    p = handle.append(u64(1))
    handle.finalize()
    handle.launch()
    handle.update(p, u64(2))
    handle.finalize()
    handle.launch()
    calls.sync()
    assert seen == [1, 2]


def test_placeholders_point_to_their_data(calls):
    seen = []

    @sim.kernel
    def k(x: sim.In[np.uint8], length: sim.In[np.int32], number: sim.In[np.int32]):
        seen.append((x.tolist(), length.tolist(), number.tolist()))

    function = calls.kernel("k")
    handle = Handle(calls, function)
    handle.append(u64(calls.upload(np.arange(4, dtype=np.uint8))))
    first, second = handle.placeholder(), handle.placeholder()
    for parameter, values in ((first, [16384]), (second, [8, 9])):
        data = np.array(values, np.int32)
        ctypes.memmove(handle.data(parameter, data.nbytes), data.ctypes.data, data.nbytes)
    handle.finalize()
    handle.launch()
    calls.sync()
    assert seen == [([0, 1, 2, 3], [16384], [8, 9])]
    block = u64(calls.upload(np.arange(2, dtype=np.uint8)), 0, 0) + struct.pack("<4i", 1, 2, 3, 4)
    calls.host_launch(function, block, placeholders=[(8, 24), (16, 32)])
    calls.sync()
    assert seen[1] == ([0, 1], [1, 2], [3, 4])


# ---- running -------------------------------------------------------------------------------------------------


def test_add(calls):
    @sim.kernel
    def add_custom(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]):
        z[:] = x + y

    n = 16384
    x, y = (np.random.default_rng(seed).normal(size=n).astype(np.float16) for seed in (1, 2))
    out = calls.malloc(2 * n)
    handle = Handle(calls, calls.kernel("add_custom"))
    for address in (calls.upload(x), calls.upload(y), out):
        handle.append(u64(address))
    handle.finalize()
    handle.launch(8)
    calls.sync()
    np.testing.assert_array_equal(array(calls, out, n, np.float16), x + y)


def test_numpy_on_device_memory_gives_plain_arrays(calls):
    found = []

    @sim.kernel
    def k(x: sim.In[np.float32], z: sim.InOut[np.float32]):
        z += x
        z[2] = x.sum()
        np.multiply(z, 2, out=z)
        found.append([type(v) for v in (x + z, x[1:], x.reshape(2, 2), np.exp(x), x.sum(), np.sort(x))])

    x = np.arange(4, dtype=np.float32)
    z = calls.upload(np.ones(4, np.float32))
    calls.host_launch(calls.kernel("k"), u64(calls.upload(x), z))
    calls.sync()
    assert array(calls, z, 4, np.float32).tolist() == [2, 4, 12, 8]
    assert found[0][0] is found[0][1] is found[0][3] is np.ndarray


def test_one_call_a_block(calls):
    @sim.kernel
    def k(x: sim.In[np.int32], z: sim.Out[np.int32], block):
        part = x.size // block.count
        here = slice(block.index * part, (block.index + 1) * part)
        z[here] = x[here] * (block.index + 1)

    out = calls.malloc(16)
    calls.host_launch(calls.kernel("k"), u64(calls.upload(np.ones(4, np.int32)), out), blocks=4)
    calls.sync()
    assert array(calls, out, 4, np.int32).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"core": "mix", "ratio": (1, 2)}, [("aic", 0), ("aiv", 0), ("aiv", 1)]),
        ({"core": "mix", "ratio": (2, 1)}, [("aiv", 0), ("aic", 0), ("aic", 1)]),
        ({"core": "mix", "ratio": (0, 1)}, [("aiv", 0)]),
        ({"core": "mix", "ratio": (1, 0)}, [("aic", 0)]),
        ({"core": "aic"}, [("aic", 0)]),
        ({"core": "aiv"}, [("aiv", 0)]),
    ],
)
def test_cores_of_a_block(calls, spec, expected):
    seen = []

    @sim.kernel
    def k(block: sim.Block):
        seen.append((block.index, block.count, block.core, block.subblock))

    calls.host_launch(calls.kernel("k", **spec), u64(0), blocks=2)
    calls.sync()
    assert seen == [(index, 2, core, sub) for index in range(2) for core, sub in expected]


def test_block_may_stand_anywhere(calls):
    seen = []

    def first(block, n: np.uint64):
        seen.append((int(n), block.index))

    def middle(n: np.uint32, block: simulator.Block, m: np.uint32):  # noqa: F821  by another name
        seen.append((int(n), block.index, int(m)))

    def named(n: np.uint64, *, block: sim.Block):
        seen.append((int(n), block.index))

    for function in (first, middle, named):
        sim.kernel("k")(function)
        calls.host_launch(calls.kernel("k"), u64(7 | 9 << 32 if function is middle else 7), blocks=2)
        calls.sync()
    assert seen == [(7, 0), (7, 1), (7, 0, 9), (7, 1, 9), (7, 0), (7, 1)]


def test_blocks_beyond_16_bits_are_cut(calls):
    seen = []

    @sim.kernel
    def k(block):
        seen.append(block.count)

    function = calls.kernel("k")
    calls.host_launch(function, u64(0), blocks=65536)
    calls.host_launch(function, u64(0), blocks=65537)
    calls.sync()
    assert seen == [1]


def test_work_on_a_stream_is_in_order():
    calls = Kernels(order="lazy")

    @sim.kernel
    def double(z: sim.InOut[np.int32]):
        z *= 2

    out = calls.upload(np.arange(3, dtype=np.int32))
    function = calls.kernel("double")
    for _ in range(5):
        calls.host_launch(function, u64(out))
    assert array(calls, out, 3, np.int32).tolist() in ([0, 1, 2], [0, 32, 64])
    calls.sync()
    assert array(calls, out, 3, np.int32).tolist() == [0, 32, 64]


# ---- what goes wrong -----------------------------------------------------------------------------------------


def test_an_emulation_that_raises(calls):
    @sim.kernel
    def k(n: np.uint32):
        return 1 / int(n)

    calls.host_launch(calls.kernel("k"), u64(0))
    with pytest.raises(ZeroDivisionError) as caught:
        calls.sync()
    assert caught.traceback[-1].name == "k"
    calls.sync()


def test_input_is_read_only(calls):
    @sim.kernel
    def k(x: sim.In[np.int32]):
        x[0] = 1

    calls.host_launch(calls.kernel("k"), u64(calls.malloc(16)))
    with pytest.raises(ValueError, match=r"^k\(x\): sim.In is read-only; what the kernel writes is"):
        calls.sync()


@pytest.mark.parametrize("block", [False, True])
def test_a_function_that_returns_its_result(calls, block):
    if block:

        @sim.kernel
        def k(x: sim.InOut[np.int32], block):
            return x + 1

    else:

        @sim.kernel
        def k(x: sim.InOut[np.int32]):
            return x + 1

    calls.host_launch(calls.kernel("k"), u64(calls.malloc(16)))
    with pytest.raises(TypeError, match="kernel k: the function returned ndarray, and nobody gets it: .*Out and InOut"):
        calls.sync()


@pytest.mark.parametrize(
    ("touch", "beyond", "shown"),
    [
        (lambda x: x[4], 4, "[4]"),
        (lambda x: x[np.uint32(100)], 100, "[100]"),
        (lambda x: x[:5], 4, "[:5]"),
        (lambda x: x[2:6], 5, "[2:6]"),
        (lambda x: x[5::2], 4, "[5::2]"),
        (lambda x: x[(slice(9),)], 8, "[:9]"),
        (lambda x: x[[1, 5]], 4, "[[1, 5]]"),
        (lambda x: x.__setitem__(7, 1), 7, "[7]"),
        (lambda x: x.__setitem__(slice(0, 8), 1), 7, "[0:8]"),
    ],
)
@pytest.mark.parametrize(("spec", "number"), [({"core": "aiv"}, VECTOR_EXCEPTION), ({"core": "aic"}, AICORE_EXCEPTION)])
def test_access_behind_an_allocation_is_a_fault(calls, touch, beyond, shown, spec, number):
    @sim.kernel
    def k(x: sim.InOut[np.int32]):
        touch(x)

    memory = calls.malloc(16)
    calls.host_launch(calls.kernel("k", **spec), u64(memory))
    said = rf"fault address=0x{memory + 4 * beyond:x}\. k\(x\){re.escape(shown)} is beyond its 4 elements"
    with pytest.raises(AclError, match=said) as caught:
        calls.sync()
    assert caught.value.code == number
    calls.sync()  # reported once
    calls.host_launch(calls.kernel("k"), u64(calls.malloc(4000)))
    calls.sync()


@pytest.mark.parametrize("use", [lambda x: x[0], lambda x: x + 1, lambda x: len(x), lambda x: x.sum(), np.exp, sum])
def test_pointers_to_nothing(calls, use):
    @sim.kernel
    def k(x: sim.In[np.int32]):
        if x.address != 8:
            use(x)

    function = calls.kernel("k")
    freed = calls.malloc(64)
    calls.api.aclrtFree(freed)
    for address, text in ((0, "null pointer"), (freed, "was freed at"), (0x5000, "no address of an allocation")):
        calls.host_launch(function, u64(address))
        with pytest.raises(AclError, match=text) as caught:
            calls.sync()
        assert caught.value.code == VECTOR_EXCEPTION
    calls.host_launch(function, u64(8))  # not touched: nothing happens
    calls.sync()


@pytest.mark.parametrize("order", ["lazy", "eager"])
@pytest.mark.parametrize("end", ["aclrtDestroyStream", "aclrtDestroyContext", "aclrtResetDevice"])
def test_an_error_that_no_wait_has_told_of_is_raised_at_the_end(order, end):
    calls = Kernels(order=order)

    def k(n: np.uint64):
        raise LookupError(f"kernel {n}")

    sim.kernel("k", backend=calls.backend)(k)
    context, stream = c.aclrtContext(), calls.s
    if end == "aclrtDestroyContext":
        calls.api.aclrtCreateContext(context, 0)
    if end != "aclrtDestroyStream":
        stream = None  # the default stream
    function = calls.kernel("k")
    for number in (1, 2):
        block = (ctypes.c_uint64 * 1)(number)
        calls.api.aclrtLaunchKernelWithHostArgs(function, 1, stream, None, block, 8, None, 0)
    what = {"aclrtDestroyStream": stream, "aclrtDestroyContext": context, "aclrtResetDevice": 0}[end]
    with pytest.raises(LookupError, match="kernel 1"):
        getattr(calls.api, end)(what)
    kinds = [live.kind for live in calls.backend.report()]
    assert ("stream" in kinds) == (end == "aclrtDestroyContext") and "context" not in kinds


def test_a_kernel_function_that_waits_for_its_own_stream(calls):
    @sim.kernel
    def k(n: np.uint64):
        calls.api.aclrtSynchronizeStream(calls.s)

    calls.host_launch(calls.kernel("k"), u64(1))
    with pytest.raises(sim.Deadlock, match="this wait can never end"):
        calls.sync()


def test_faults_of_cpu_kernels(calls):
    @sim.kernel
    def Mul(x: sim.In[np.int32]):  # noqa: N802
        x[0]

    binary = calls.load(b"\x7fELF library", (3, 2))
    function = c.aclrtFuncHandle()
    calls.api.aclrtRegisterCpuFunc(binary, b"run", b"Mul", function)
    calls.host_launch(function, u64(0))
    assert code(calls.sync) == AICPU_EXCEPTION


class Told:
    """Exception callbacks that keep what they are told."""

    def __init__(self, calls):
        self.calls = calls
        self.all, self.binary = [], []
        self.callback = c.aclrtExceptionInfoCallback(self._machine)
        self.binary_callback = c.aclrtOpExceptionCallback(self._binary)

    def _machine(self, info):
        api = self.calls.backend_api
        self.all.append([getattr(api, f"aclrtGet{what}FromExceptionInfo")(info) for what in FIELDS])

    def _binary(self, info, user_data):
        address, size, function = ctypes.c_void_p(), ctypes.c_uint32(), c.aclrtFuncHandle()
        api = self.calls.backend_api
        answers = (
            api.aclrtGetArgsFromExceptionInfo(info, address, size),
            api.aclrtGetFuncHandleFromExceptionInfo(info, function),
        )
        block = self.calls.bytes_at(address.value, size.value) if address.value else b""
        self.binary.append((user_data, answers, block, self.calls.name(function) if function.value else None))


FIELDS = ("TaskId", "StreamId", "ThreadId", "DeviceId", "ErrorCode")


@pytest.fixture
def told(calls):
    calls.backend_api = calls.api.unchecked
    return Told(calls)


def test_the_program_is_told_of_exceptions(calls, told):
    @sim.kernel
    def k(n: np.uint32, x: sim.In[np.int32]):
        if n:
            x[n]

    binary = calls.load(make_kernel_object("k"))
    function = calls.function(binary, "k")
    calls.api.aclrtSetExceptionInfoCallback(told.callback)
    calls.api.aclrtBinarySetExceptionCallback(binary, told.binary_callback, 77)
    memory = calls.malloc(64)
    blocks = len(calls.backend.machine.area(Memory).blocks)
    first, second = struct.pack("<QQ", 0, memory), struct.pack("<QQ", 99, memory)
    calls.host_launch(function, first)
    calls.host_launch(function, second)
    assert code(calls.sync) == VECTOR_EXCEPTION
    stream = calls.number("aclrtStreamGetId", calls.s, kind=ctypes.c_int32)
    assert told.all == [[2, stream, threading.get_native_id(), 0, VECTOR_EXCEPTION]]
    assert told.binary == [(77, (0, 0), second, "k")]
    assert len(calls.backend.machine.area(Memory).blocks) == blocks

    calls.api.aclrtSetExceptionInfoCallback(None)
    calls.host_launch(function, second)
    assert code(calls.sync) == VECTOR_EXCEPTION
    assert (len(told.all), len(told.binary)) == (1, 2)


def test_exceptions_with_the_arguments_on_the_device(calls, told):
    @sim.kernel
    def k(x: sim.In[np.int32]):
        x[16]

    binary = calls.load(make_kernel_object("k"))
    calls.api.aclrtBinarySetExceptionCallback(binary, told.binary_callback, None)
    calls.host_launch(calls.function(binary, "k"), u64(8, 5), placeholders=[(0, 8)])
    assert code(calls.sync) == VECTOR_EXCEPTION
    (user_data, answers, block, name), *_ = told.binary
    assert (user_data, answers, len(block), block[8:], name) == (None, (0, 0), 16, u64(5), "k")


def test_exceptions_of_cpu_kernels_say_no_arguments():
    calls = Kernels(cann="9.2.0-beta.2")
    calls.backend_api = calls.api.unchecked
    told = Told(calls)

    @sim.kernel
    def Mul(x: sim.In[np.int32]):  # noqa: N802
        x[0]

    binary = calls.load(b"\x7fELF library", (3, 2))
    function = c.aclrtFuncHandle()
    calls.api.aclrtRegisterCpuFunc(binary, b"run", b"Mul", function)
    calls.api.aclrtExceptionInfoCallbackRegister(told.callback)
    calls.api.aclrtBinarySetExceptionCallback(binary, told.binary_callback, None)
    calls.host_launch(function, u64(0))
    assert code(calls.sync) == AICPU_EXCEPTION
    assert [each[4] for each in told.all] == [AICPU_EXCEPTION]
    assert told.binary == [(None, (-1, 107000), b"", None)]
    calls.api.aclrtExceptionInfoCallbackUnregister(told.callback)
    calls.host_launch(function, u64(0))
    assert code(calls.sync) == AICPU_EXCEPTION
    assert len(told.all) == 1


def test_the_arguments_of_a_launch_are_freed(calls):
    @sim.kernel
    def k(x: sim.In[np.int32]):
        pass

    function = calls.kernel("k")
    memory = calls.backend.machine.area(Memory)
    before = len(memory.blocks)
    for _ in range(3):
        calls.host_launch(function, u64(0, 5), placeholders=[(0, 8)])
    calls.sync()
    assert len(memory.blocks) == before


def test_launches_by_parameter(calls):
    calls = Kernels(cann="9.1.0")
    seen = []

    @sim.kernel
    def k(a: np.uint32, b: np.float64):
        seen.append((a, b))

    a, b = ctypes.c_uint32(7), ctypes.c_double(0.5)
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(a), ctypes.addressof(b))
    for spec in ({}, {"core": "mix"}):
        function = calls.kernel("k", **spec)
        calls.api.aclrtLaunchKernelWithArgsArray(function.value, 1, calls.s, None, pointers)
        calls.sync()
    assert seen == [(7, 0.5), (7, 0.5)]


def test_simt_launches():
    calls = Kernels(cann="9.2.0-beta.2", soc="Ascend950DT_950x")
    seen = []

    @sim.kernel
    def k(n: np.uint32, block):
        seen.append((int(n), block.index, block.count))

    function = calls.function(calls.load(make_kernel_object("k", arch="dav-3510", metadata=False), (2, VECTOR)), "k")
    n = ctypes.c_uint32(7)
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(n))
    launch = calls.api.aclrtLaunchSIMTKernelWithArgsArray
    launch(function.value, c.dim3(2, 1, 1), c.dim3(32, 2, 1), 0, calls.s, None, pointers)
    calls.sync()
    assert seen == [(7, 0, 2), (7, 1, 2)]
    with pytest.raises(AclError, match="blockDim"):
        launch(function.value, c.dim3(2, 1, 1), c.dim3(2048, 2, 1), 0, calls.s, None, pointers)


def test_a_machine_without_kernels_of_its_own_uses_the_common_ones(calls):
    registered = calls.backend.machine.area(Registered)
    assert registered.find("k") is None
    sim.kernel("k")(lambda: None)
    assert registered.find("k") is registered.find("k_3") is EMULATIONS["k"]
