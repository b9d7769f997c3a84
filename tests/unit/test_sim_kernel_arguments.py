"""Argument handles and launches on the simulated NPU: layout, order of the calls, attributes, what is refused."""

from __future__ import annotations

import ctypes
import struct
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import undefined
from simulated_kernels import (
    INVALID_PARAM,
    NOT_SUPPORTED,
    PARAM_INVALID,
    VECTOR,
    Handle,
    Kernels,
    code,
    config,
    u64,
)

from pyacl import AclError
from pyacl.raw import types as c
from pyacl.testing import make_kernel_object

NO_CONTEXT, WRONG_STREAM = 107002, 107003


@pytest.fixture
def calls():
    return Kernels(unregistered="skip")


@pytest.fixture
def plain(calls):
    """A vector kernel without metadata: 128 parameters, no hidden first argument."""
    return calls.function(calls.load(make_kernel_object("k", metadata=False), (2, VECTOR)), "k")


@pytest.fixture
def mixed(calls):
    return calls.kernel("m", core="mix", ratio=(1, 2), args=3)


# ---- layout --------------------------------------------------------------------------------------------------


def test_every_parameter_starts_on_a_multiple_of_8(calls, plain):
    handle = Handle(calls, plain, 256)
    for data in (b"\x11" * 8, b"\x22" * 4, b"\x33", b"\x44" * 12, b"\x55" * 2):
        handle.append(data)
    expected = (
        b"\x11" * 8 + b"\x22" * 4 + b"\xee" * 4 + b"\x33" + b"\xee" * 7 + b"\x44" * 12 + b"\xee" * 4 + b"\x55" * 2
    )
    assert handle.block.raw[: len(expected)] == expected
    assert handle.block.raw[len(expected)] == 0xEE
    handle.finalize()
    overflow = struct.unpack_from("<Q", handle.block.raw, 48)[0]
    assert overflow != 0xEEEE_EEEE_EEEE_EEEE
    assert handle.block.raw[56] == 0xEE


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_offsets_are_those_of_packing_by_8(sizes):
    calls = Kernels(unregistered="skip")
    function = calls.function(calls.load(make_kernel_object("k", metadata=False), (2, VECTOR)), "k")
    handle = Handle(calls, function, 1024)
    at = 0
    for number, size in enumerate(sizes, 1):
        handle.append(bytes([number]) * size)
        at = (at + 7) // 8 * 8
        assert handle.block.raw[at : at + size] == bytes([number]) * size
        at += size


def test_the_synchronization_slot(calls, mixed):
    handle = Handle(calls, mixed, 256)
    handle.append(b"\x77" * 8)
    assert handle.block.raw[:16] == b"\xee" * 8 + b"\x77" * 8
    handle.finalize()
    address = calls.pointer("aclrtGetHardwareSyncAddr")
    assert handle.block.raw[:8] == u64(address)
    assert Kernels(soc="Ascend950DT_950x").code("aclrtGetHardwareSyncAddr", ctypes.c_void_p()) == NOT_SUPPORTED


def test_the_slot_is_left_out_when_the_address_goes_through_a_symbol(calls):
    function = calls.kernel("m", core="mix", implicit=(2,))
    handle = Handle(calls, function, 256)
    handle.append(b"\x77" * 8)
    assert handle.block.raw[:8] == b"\x77" * 8


def test_placeholder_data_follows_the_hidden_overflow_slot(calls, plain):
    handle = Handle(calls, plain, 256)
    start = ctypes.addressof(handle.block)
    handle.append(b"\x11" * 8)
    first, second = handle.placeholder(), handle.placeholder()
    handle.append(b"\x22" * 8)
    assert handle.data(second, 4) - start == 40
    assert handle.data(first, 9) - start == 48
    assert handle.data(first, 1) - start == 64  # asked again: a new place
    handle.finalize()
    handle.launch()
    first_address, second_address = struct.unpack_from("<2Q", handle.block.raw, 8)
    assert first_address - second_address == 24
    calls.sync()


def test_a_placeholder_without_data_points_to_the_block(calls, plain):
    handle = Handle(calls, plain, 256)
    handle.placeholder()
    handle.finalize()
    handle.launch()
    assert struct.unpack_from("<Q", handle.block.raw)[0] not in (0, 0xEEEE_EEEE_EEEE_EEEE)


# ---- order of the calls --------------------------------------------------------------------------------------


def test_one_handle_for_each_thread(calls, plain, mixed):
    first = Handle(calls, plain)
    first.append(b"\1" * 8)
    second = Handle(calls, mixed)
    assert first.handle.value == second.handle.value
    other = []
    worker = threading.Thread(target=lambda: other.append(Handle(calls, plain).handle.value))
    worker.start()
    worker.join()
    assert other[0] != first.handle.value


def test_what_may_follow_what(calls, plain):
    handle = Handle(calls, plain)
    p = handle.append(b"\1" * 8)
    ph = handle.placeholder()
    assert code(handle.launch) == PARAM_INVALID
    assert code(handle.data, p, 8) == PARAM_INVALID
    handle.data(ph, 8)
    assert code(handle.append, b"\2") == NOT_SUPPORTED
    assert code(handle.placeholder) == NOT_SUPPORTED
    handle.finalize()
    assert code(handle.append, b"\2") == NOT_SUPPORTED
    assert code(handle.data, ph, 8) == NOT_SUPPORTED
    handle.launch()
    handle.update(p, b"\3" * 8)
    assert code(handle.launch) == PARAM_INVALID
    handle.finalize()
    handle.finalize()
    handle.launch()
    assert code(handle.update, p, b"\3" * 4) == PARAM_INVALID
    assert code(handle.update, ph, b"\3" * 8) == PARAM_INVALID
    calls.sync()


def test_limits(calls, plain):
    handle = Handle(calls, plain)
    for _ in range(128):
        handle.append(b"\0" * 8)
    with pytest.raises(AclError, match="current real user para num is 128,max user para num is 128"):
        handle.append(b"\0")
    handle = Handle(calls, plain)
    handle.append(b"\0" * 60000)
    assert code(handle.append, b"\0" * 5537) == PARAM_INVALID
    handle.append(b"\0" * 5536)
    assert code(handle.finalize) == PARAM_INVALID  # no room for the overflow address
    small = Handle(calls, plain, 8)
    small.append(b"\0" * 8)
    assert code(small.append, b"\0") == PARAM_INVALID


def test_room_for_parameters_in_memory_of_the_program(calls):
    function = calls.kernel("k", args=3)
    handle = Handle(calls, function, 256)
    for _ in range(3):
        handle.append(b"\0" * 8)
    assert code(handle.append, b"\0" * 8) == PARAM_INVALID
    assert calls.number("aclrtKernelArgsGetMemSize", function, 24) == 24 + 64 + 8 * 3
    assert calls.number("aclrtKernelArgsGetHandleMemSize", function) == 80 + 32 * 3


def test_finalize_needs_a_context(calls, plain):
    codes = []

    def work():
        handle = Handle(calls, plain)
        handle.append(b"\1" * 8)
        codes.append(code(handle.finalize))

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert codes == [NO_CONTEXT]


def test_unknown_handles(calls, plain):
    with undefined("aclrtKernelArgsFinalize", "0x1234 is not an argument handle"):
        calls.api.aclrtKernelArgsFinalize(c.aclrtArgsHandle(0x1234))
    handle = Handle(calls, plain)
    with undefined("is not a parameter of the argument handle"):
        handle.update(c.aclrtParamHandle(0x1234), b"\0" * 8)


# ---- launches ------------------------------------------------------------------------------------------------


def test_blocks(calls, plain):
    handle = Handle(calls, plain)
    handle.finalize()
    assert code(handle.launch, 0) == INVALID_PARAM
    assert code(calls.host_launch, plain, b"\0" * 8, 0) == PARAM_INVALID
    for blocks in (1, 49, 65536, 2**32 - 1):
        handle.launch(blocks)
        calls.host_launch(plain, b"\0" * 8, blocks)
    calls.sync()


def test_streams_of_others(calls, plain):
    context = c.aclrtContext()
    old = ctypes.c_void_p()
    calls.api.aclrtGetCurrentContext(ctypes.cast(ctypes.byref(old), ctypes.POINTER(c.aclrtContext)))
    calls.api.aclrtCreateContext(context, 0)
    other = calls.stream()
    calls.api.aclrtSetCurrentContext(c.aclrtContext(old.value))
    handle = Handle(calls, plain)
    handle.finalize()
    assert code(handle.launch, stream=other) == WRONG_STREAM
    handle.launch(stream=c.aclrtStream())
    calls.api.aclrtSynchronizeStream(None)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], 0),
        ([(1, b"\0")], 0),
        ([(1, b"\1")], 0),
        ([(1, b"\2")], PARAM_INVALID),
        ([(1, b"\2"), (1, b"\1")], 0),
        ([(2, b"\0\0\1\0"), (3, b"\1"), (4, b"\x10")], 0),
        ([(5, b"\1")], 0),
        ([(5, b"\2")], PARAM_INVALID),
        ([(6, b"\2")], PARAM_INVALID),
        ([(7, b"\1\0")], 0),
        ([(8, b"\1\0\0\0")], 0),
        ([(7, b"\1\0"), (8, b"\1")], PARAM_INVALID),
        ([(0, b"\0")], PARAM_INVALID),
        ([(9, b"\0")], PARAM_INVALID),
    ],
)
def test_attributes(calls, plain, pairs, expected):
    handle = Handle(calls, plain)
    handle.finalize()
    assert code(handle.launch, cfg=config(*pairs)) == expected
    assert code(calls.host_launch, plain, b"\0" * 8, cfg=config(*pairs)) == expected


def test_a_configuration_without_attributes(calls, plain):
    handle = Handle(calls, plain)
    handle.finalize()
    empty = c.aclrtLaunchKernelCfg(None, 1)
    with pytest.raises(AclError, match="cfg->attrs is a null pointer"):
        handle.launch(cfg=empty)


def test_mix_kernels_of_a_310p_need_two_attributes():
    calls = Kernels(soc="Ascend310P3", unregistered="skip")
    data = make_kernel_object("k", arch="dav-2201", core="mix", metadata=False)
    function = calls.function(calls.load(data, (2, VECTOR)), "k")
    assert code(calls.host_launch, function, b"\0" * 8) == PARAM_INVALID
    assert code(calls.host_launch, function, b"\0" * 8, cfg=config((3, b"\1"))) == PARAM_INVALID
    calls.host_launch(function, b"\0" * 8, cfg=config((3, b"\1"), (4, b"\0")))


def test_placeholders_of_a_host_block(calls, plain):
    block = bytes(range(64))
    after = calls.host_launch(plain, block, placeholders=[(8, 32), (16, 48)])
    first, second = struct.unpack_from("<2Q", after, 8)
    assert second - first == 16
    assert after[:8] == block[:8]
    assert after[24:] == block[24:]
    for pair in ((64, 8), (8, 64)):
        assert code(calls.host_launch, plain, block, placeholders=[pair]) == PARAM_INVALID
    cut = calls.host_launch(plain, block, placeholders=[(60, 8)])  # the address does not fit: only what does is written
    assert cut[:60] == block[:60]
    calls.sync()


def test_launches_with_parameters_one_by_one():
    calls = Kernels(cann="9.1.0", unregistered="skip")
    function = calls.kernel("k")
    array = (ctypes.c_void_p * 1)()
    assert calls.code("aclrtLaunchKernelWithArgsArray", function.value, 1, calls.s, None, array) == PARAM_INVALID


def test_the_last_task_of_a_thread(calls, plain):
    before = calls.number("aclrtGetThreadLastTaskId", kind=ctypes.c_uint32)
    calls.host_launch(plain, b"\0" * 8)
    calls.host_launch(plain, b"\0" * 8)
    assert (before, calls.number("aclrtGetThreadLastTaskId", kind=ctypes.c_uint32)) == (0xFFFFFFFF, 2)


# ---- how long kernels may run --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("aclrtSetOpExecuteTimeOut", 0, 1090922),
        ("aclrtSetOpExecuteTimeOut", 1, 4295),
        ("aclrtSetOpExecuteTimeOut", 30, 30065),
        ("aclrtSetOpExecuteTimeOut", 10000, 1090922),
        ("aclrtSetOpExecuteTimeOutWithMs", 4294, 4295),
        ("aclrtSetOpExecuteTimeOutWithMs", 4295, 8590),
        ("aclrtSetOpExecuteTimeOutWithMs", 2**32 - 1, 1000728),
    ],
)
def test_timeouts_are_rounded_up_to_ticks(calls, name, value, expected):
    getattr(calls.api, name)(value)
    assert calls.number("aclrtGetOpExecuteTimeout", kind=ctypes.c_uint32) == expected


def test_timeouts_in_microseconds(calls):
    assert calls.number("aclrtSetOpExecuteTimeOutV2", 4294967) == 4294967
    assert calls.number("aclrtSetOpExecuteTimeOutV2", 4294968) == 8589934
    assert calls.number("aclrtSetOpExecuteTimeOutV2", 0) == 1090921693
    assert calls.number("aclrtGetOpTimeOutInterval") == 4294967
