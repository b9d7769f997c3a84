"""Copies, memsets and values on streams of the simulated NPU: what happens, in which order, what is refused."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import D2D, D2H, DEFAULT, H2D, H2H, Calls, undefined

from pyacl import sim
from pyacl.raw import types as c


@pytest.fixture
def calls():
    """Work on streams waits until something waits for it."""
    return Calls(order="lazy")


INNER = 6  # kind of copies whose addresses the device looks up


def host(nbytes, value=0):
    return np.full(nbytes, value, np.uint8)


def pinned(calls, nbytes, value):
    address = calls.pointer("aclrtMallocHost", nbytes)
    ctypes.memset(address, value, nbytes)
    return address


# ---- at once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [H2H, H2D, D2H, D2D, DEFAULT])
def test_direction_follows_from_the_addresses(calls, kind):
    source, target = np.arange(64, dtype=np.uint8), host(64)
    device = calls.malloc(64)
    calls.aclrtMemcpy(device, 64, source.ctypes.data, 64, kind)
    calls.aclrtMemcpy(target.ctypes.data, 64, device, 64, kind)
    assert (target == source).all()


@pytest.mark.parametrize(
    "dest_max, count, kind, code",
    [
        (0, 0, H2D, 107000),
        (64, 0, H2D, 107000),
        (16, 17, H2D, 107000),
        (64, 64, 6, 100000),
        (64, 64, -1, 100000),
    ],
)
def test_refused_copies_leave_the_target(calls, dest_max, count, kind, code):
    device = calls.upload(host(64, 5))
    assert calls.code("aclrtMemcpy", device, dest_max, host(64, 6).ctypes.data, count, kind) == code
    assert calls.bytes_at(device, 64) == b"\5" * 64


def test_copies_to_the_same_place_need_no_context(calls):
    calls.aclrtResetDevice(0)
    same = host(8)
    assert calls.code("aclrtMemcpy", same.ctypes.data, 8, same.ctypes.data, 8, H2H) == 0
    assert calls.code("aclrtMemcpy", same.ctypes.data, 8, host(8).ctypes.data, 8, H2H) == 107002


@given(offset=st.integers(0, 60), reach=st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_overlapping_copies_behave_like_memmove(offset, reach):
    calls = Calls(devices=1)
    data = np.arange(200, dtype=np.uint8)
    device = calls.upload(data)
    calls.aclrtMemcpy(device + offset, 100, device + 20, reach, D2D)
    data[offset : offset + reach] = data[20 : 20 + reach].copy()
    assert calls.bytes_at(device, 200) == data.tobytes()


@pytest.mark.parametrize("width, height, spitch, dpitch", [(3, 4, 3, 3), (5, 3, 8, 16), (1, 7, 9, 2), (16, 1, 16, 32)])
def test_2d_copies_move_rows(calls, width, height, spitch, dpitch):
    source = np.arange(spitch * height, dtype=np.uint8)
    device = calls.upload(host(dpitch * height, 200))
    calls.aclrtMemcpy2d(device, dpitch, source.ctypes.data, spitch, width, height, H2D)
    wanted = host(dpitch * height, 200).reshape(height, dpitch)
    wanted[:, :width] = source.reshape(height, spitch)[:, :width]
    assert calls.bytes_at(device, dpitch * height) == wanted.tobytes()
    back = host(spitch * height, 1)
    stream = calls.stream()
    calls.aclrtMemcpy2dAsync(back.ctypes.data, spitch, device, dpitch, width, height, D2H, stream)
    calls.aclrtSynchronizeStream(stream)
    assert (back.reshape(height, spitch)[:, :width] == wanted[:, :width]).all()
    assert (back.reshape(height, spitch)[:, width:] == 1).all()


def test_2d_copies_refuse_narrow_pitches(calls):
    device, source = calls.malloc(64), host(64)
    assert calls.code("aclrtMemcpy2d", device, 3, source.ctypes.data, 8, 4, 2, H2D) == 100000
    assert calls.code("aclrtMemcpy2d", device, 8, source.ctypes.data, 3, 4, 2, H2D) == 100000
    assert calls.code("aclrtMemcpy2d", device, 8, source.ctypes.data, 8, 0, 2, H2D) == 100000
    assert calls.code("aclrtMemcpy2d", device, 8, source.ctypes.data, 8, 4, 2, 7) == 100000


def test_long_copies(calls):
    data = np.arange(5 << 20, dtype=np.int64)
    device = calls.upload(data)
    calls.aclrtMemcpy(device + 8, data.nbytes - 8, device, data.nbytes - 8, D2D)
    assert calls.bytes_at(device + data.nbytes - 8, 8) == data[-2:-1].tobytes()
    assert calls.bytes_at(device, 24) == np.array([0, 0, 1], np.int64).tobytes()


# ---- on streams ----------------------------------------------------------------------------------------------


def test_pinned_copies_are_queued_and_pageable_ones_are_not(calls):
    stream = calls.stream()
    device = calls.upload(host(8, 1))
    locked, pageable = pinned(calls, 8, 2), host(8, 3)
    calls.aclrtMemcpyAsync(device, 8, locked, 8, H2D, stream)
    assert calls.bytes_at(device, 8) == b"\1" * 8  # not run yet
    ctypes.memset(locked, 4, 8)  # so that it sees what is there when it runs
    calls.aclrtMemcpyAsync(device + 4, 4, pageable.ctypes.data, 4, H2D, stream)
    assert calls.bytes_at(device, 8) == b"\4" * 4 + b"\3" * 4  # what was queued before ran first
    pageable[:] = 9
    calls.aclrtSynchronizeStream(stream)
    assert calls.bytes_at(device, 8) == b"\4" * 4 + b"\3" * 4


def test_host_to_buffer_copies_take_the_bytes_at_the_call(calls):
    stream = calls.stream()
    device, locked = calls.upload(host(8, 1)), pinned(calls, 8, 2)
    calls.aclrtMemcpyAsync(device, 8, locked, 8, 5, stream)
    ctypes.memset(locked, 4, 8)
    calls.aclrtSynchronizeStream(stream)
    assert calls.bytes_at(device, 8) == b"\2" * 8


def test_device_copies_and_memsets_keep_their_order(calls):
    stream = calls.stream()
    first, second = calls.upload(host(16, 1)), calls.upload(host(16, 2))
    calls.aclrtMemsetAsync(first, 16, 7, 16, stream)
    calls.aclrtMemcpyAsync(second, 16, first, 8, D2D, stream)
    calls.aclrtMemsetAsync(first, 16, 8, 4, stream)
    assert calls.bytes_at(first, 16) == b"\1" * 16
    calls.aclrtSynchronizeStream(stream)
    assert calls.bytes_at(first, 16) == b"\x08" * 4 + b"\7" * 12
    assert calls.bytes_at(second, 16) == b"\7" * 8 + b"\2" * 8


def test_memory_freed_before_a_queued_copy_runs_is_undefined(calls):
    stream = calls.stream()
    first, second = calls.upload(host(16, 1)), calls.upload(host(16, 2))
    calls.aclrtMemcpyAsync(second, 16, first, 16, D2D, stream)
    calls.aclrtFree(first)
    with undefined("aclrtMemcpyAsync", f"0x{first:x} was freed", "test_sim_transfer.py"):
        calls.aclrtSynchronizeStream(stream)


def test_host_to_host_on_a_stream_is_not_supported(calls):
    stream, data = calls.stream(), host(8)
    assert calls.code("aclrtMemcpyAsync", data.ctypes.data, 8, host(8).ctypes.data, 8, H2H, stream) == 207000
    assert calls.aclrtPeekAtLastError(0) == 0


def test_words(calls):
    calls = Calls(cann="9.1.0", order="lazy")
    device, stream = calls.upload(host(32, 1)), calls.stream()
    calls.aclrtMemsetD32(device, 32, 0x01020304, 3)
    assert calls.bytes_at(device, 16) == np.array([0x01020304] * 3 + [0x01010101], np.uint32).tobytes()
    calls.aclrtMemsetD32Async(device + 16, 16, 0xA0B0C0D0, 2, stream)
    calls.aclrtSynchronizeStream(stream)
    assert calls.bytes_at(device + 16, 16) == np.array([0xA0B0C0D0] * 2 + [0x01010101] * 2, np.uint32).tobytes()
    assert calls.code("aclrtMemsetD32", device + 2, 16, 1, 1) == 100000
    assert calls.code("aclrtMemsetD32", device, 16, 1, 5) == 107000


# ---- values --------------------------------------------------------------------------------------------------

GREATER_EQUAL, EQUAL, AND, NOR = range(4)


@pytest.mark.parametrize(
    "how, wanted, before, after",
    [
        (EQUAL, 5, 4, 5),
        (GREATER_EQUAL, 5, 4, 6),
        (AND, 0b100, 0b011, 0b110),
        (NOR, 0xF0F, (1 << 64) - 1, 0xFF),
    ],
)
def test_a_stream_waits_for_a_value(how, wanted, before, after):
    calls = Calls(order="lazy")
    device, result = calls.upload(np.array([before], np.uint64)), calls.upload(host(8, 1))
    waiting, writing = calls.stream(), calls.stream()
    calls.aclrtValueWait(device, wanted, how, waiting)
    calls.aclrtMemsetAsync(result, 8, 2, 8, waiting)
    with pytest.raises(sim.Deadlock, match="value"):
        calls.aclrtSynchronizeStream(waiting)
    calls.aclrtValueWrite(device, after, 0, writing)
    calls.aclrtSynchronizeStream(waiting)
    assert calls.bytes_at(device, 8) == np.array([after], np.uint64).tobytes()
    assert calls.bytes_at(result, 8) == b"\2" * 8


# ---- batches, descriptors, offsets ---------------------------------------------------------------------------


def batch(calls, name, copies, stream=None, starts=(0,), attributes=None):
    """Call a batch copy of (dst, dest_max, src, size); the code and the index that it reports."""
    n = len(copies)
    dsts, maxima, srcs, sizes = zip(*copies)
    if attributes is None:
        attributes = [((1, 0), (0, 0))]
    described = (c.aclrtMemcpyBatchAttr * len(attributes))()
    for i, (target, source) in enumerate(attributes):
        described[i].dstLoc.type, described[i].dstLoc.id = target
        described[i].srcLoc.type, described[i].srcLoc.id = source
    failed = ctypes.c_size_t(123)
    arguments = [
        (ctypes.c_void_p * n)(*dsts),
        (ctypes.c_size_t * n)(*maxima),
        (ctypes.c_void_p * n)(*srcs),
        (ctypes.c_size_t * n)(*sizes),
        n,
        described,
        (ctypes.c_size_t * len(starts))(*starts),
        len(attributes),
        failed,
    ]
    if stream is not None:
        arguments.append(stream)
    return calls.code(name, *arguments), failed.value


@pytest.mark.parametrize("asynchronous", [False, True])
def test_batches(calls, asynchronous):
    sources = [host(8, value) for value in (1, 2, 3)]
    targets = [calls.upload(host(8)) for _ in sources]
    back = pinned(calls, 8, 0)
    stream = calls.stream() if asynchronous else None
    name = "aclrtMemcpyBatchAsync" if asynchronous else "aclrtMemcpyBatch"
    locked = [pinned(calls, 8, int(source[0])) for source in sources]
    copies = [(target, 8, source, 8 - i) for i, (target, source) in enumerate(zip(targets, locked))]
    copies.append((back, 8, targets[0], 4))
    code, failed = batch(calls, name, copies, stream, starts=(0, 3), attributes=[((1, 0), (0, 0)), ((0, 0), (1, 0))])
    assert (code, failed) == (0, (1 << 64) - 1)
    if asynchronous:
        assert calls.bytes_at(targets[0], 8) == b"\0" * 8
        calls.aclrtSynchronizeStream(stream)
    for i, target in enumerate(targets):
        assert calls.bytes_at(target, 8) == bytes([i + 1] * (8 - i) + [0] * i)
    assert ctypes.string_at(back, 8) == b"\1" * 4 + b"\0" * 4


def test_batches_check_where_the_memory_is(calls):
    target, source = calls.upload(host(8)), host(8, 1)
    good = (target, 8, source.ctypes.data, 8)
    code, failed = batch(calls, "aclrtMemcpyBatch", [good, (source.ctypes.data, 8, target, 8)])
    assert (code, failed) == (107000, 1)
    assert batch(calls, "aclrtMemcpyBatch", [good], starts=(1,))[0] == 107000
    assert batch(calls, "aclrtMemcpyBatch", [(target, 4, source.ctypes.data, 8)]) == (100000, 123)
    code, failed = batch(calls, "aclrtMemcpyBatch", [good], attributes=[((1, 1), (0, 0))])
    assert (code, failed) == (107000, 0)


def test_descriptor_copies_read_their_addresses_when_they_run(calls):
    stream = calls.stream()
    first, second = calls.upload(host(16, 1)), calls.upload(host(16, 2))
    size = calls.number("aclrtGetMemcpyDescSize", INNER, kind=ctypes.c_size_t)
    descriptor = calls.malloc(size)
    calls.aclrtSetMemcpyDesc(descriptor, INNER, first, second, 8, None)
    calls.aclrtMemcpyAsyncWithDesc(descriptor, INNER, stream)
    calls.aclrtMemset(first, 16, 5, 16)
    calls.aclrtSynchronizeStream(stream)
    assert calls.bytes_at(second, 16) == b"\5" * 8 + b"\2" * 8


def test_offset_copies_follow_pointers_in_device_memory(calls):
    stream = calls.stream()
    source, target = calls.upload(np.arange(64, dtype=np.uint8)), calls.upload(host(64, 100))
    pointers = calls.upload(np.array([source, target], np.uint64))
    where = ctypes.POINTER(ctypes.c_void_p)
    to, out_of = (ctypes.cast(address, where) for address in (pointers + 8, pointers))
    calls.aclrtMemcpyAsyncWithOffset(to, 64, 16, out_of, 4, 32, INNER, stream)
    calls.aclrtSynchronizeStream(stream)
    wanted = host(64, 100)
    wanted[16:20] = [32, 33, 34, 35]
    assert calls.bytes_at(target, 64) == wanted.tobytes()


# ---- chips ---------------------------------------------------------------------------------------------------


def test_chips_without_value_tasks_and_batches():
    calls = Calls(soc="Ascend310P3")
    device, stream = calls.malloc(64), calls.stream()
    assert calls.code("aclrtValueWrite", device, 1, 0, stream) == 207000
    assert batch(calls, "aclrtMemcpyBatch", [(device, 8, host(8).ctypes.data, 8)])[0] == 207000
    assert calls.code("aclrtCmoAsync", device, 64, 0, stream) == 207000
