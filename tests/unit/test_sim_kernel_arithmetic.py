"""What the simulated NPU computes without kernels: reductions and random numbers."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import undefined
from simulated_kernels import INVALID_PARAM, NOT_SUPPORTED, PARAM_INVALID, Kernels

from pyacl.backends.sim.engine.arithmetic import bf16_to_float, float_to_bf16
from pyacl.raw import types as c

SUM, MAXIMUM, MINIMUM, EQUAL = 10, 11, 12, 13
FLOAT, FLOAT16, INT8, INT32, UINT8, INT16, INT64, BF16 = 0, 1, 2, 3, 4, 6, 9, 27
DROPOUT, UNIFORM, NORMAL, TRUNCATED = 0, 1, 2, 3
UNALIGNED = 107008


@pytest.fixture
def calls():
    return Kernels()


def reduce(calls, destination, source, kind, dtype):
    a, b = calls.upload(destination), calls.upload(source)
    calls.api.aclrtReduceAsync(a, b, destination.nbytes, kind, dtype, calls.s, None)
    calls.sync()
    return np.frombuffer(calls.bytes_at(a, destination.nbytes), destination.dtype)


@pytest.mark.parametrize(
    ("dtype", "kept"), [(FLOAT, "f4"), (FLOAT16, "f2"), (INT8, "i1"), (INT32, "i4"), (INT16, "i2")]
)
def test_reductions(calls, dtype, kept):
    a, b = np.array([1, -2, 100, 7], kept), np.array([3, -5, 100, -7], kept)
    with np.errstate(all="ignore"):
        assert reduce(calls, a, b, SUM, dtype).tolist() == (a + b).tolist()
    assert reduce(calls, a, b, MAXIMUM, dtype).tolist() == [3, -2, 100, 7]
    assert reduce(calls, a, b, MINIMUM, dtype).tolist() == [1, -5, 100, -7]
    assert reduce(calls, a, b, EQUAL, dtype).tolist() == [0, 0, 1, 0]


def test_bfloat16(calls):
    a, b = np.array([1.0, 256.0], np.float32), np.array([0.5, 1.0], np.float32)
    found = reduce(calls, float_to_bf16(a), float_to_bf16(b), SUM, BF16)
    assert bf16_to_float(found).tolist() == [1.5, 256.0]  # 257 is between two bfloat16 numbers: to even


@settings(deadline=None)
@given(st.floats(width=32))
def test_bfloat16_is_the_nearest(value):
    (bits,) = float_to_bf16(np.array([value], np.float32))
    back = float(bf16_to_float(np.array([bits], np.uint16))[0])
    if np.isnan(value):
        assert np.isnan(back)
    elif np.isinf(back):
        assert abs(value) > 3.38e38
    else:
        assert abs(back - value) <= max(abs(value) * 2.0**-8, 1e-40)


def test_refused_reductions(calls):
    a = calls.malloc(256)

    def call(*args):
        return calls.code("aclrtReduceAsync", *args)

    assert call(a, a, 64, SUM, UINT8, calls.s, None) == NOT_SUPPORTED
    assert call(a, a, 64, SUM, INT64, calls.s, None) == INVALID_PARAM
    assert call(a, a, 64, SUM, FLOAT, calls.s, 8) == INVALID_PARAM
    assert call(a, a, 0, SUM, FLOAT, calls.s, None) == PARAM_INVALID
    assert call(a, a, 64, 14, FLOAT, calls.s, None) == PARAM_INVALID
    assert call(a, a, (4 << 30) + 1, SUM, FLOAT, calls.s, None) == PARAM_INVALID
    assert call(a, a + 2, 64, SUM, FLOAT, calls.s, None) == UNALIGNED
    assert call(a, a + 2, 64, SUM, FLOAT16, calls.s, None) == 0
    with undefined("aclrtReduceAsync", "beyond the end of an allocation"):
        call(a, a + 128, 256, SUM, FLOAT, calls.s, None)


# ---- random numbers ------------------------------------------------------------------------------------------


def value(content, is_address=0):
    return bytes([is_address]) + content.ljust(8, b"\0") + bytes([8 if is_address else len(content)]) + b"\0" * 6


def task(calls, dtype, function, first, second=b"", number=1000, seed=42, result=0, counter=0):
    info = c.aclrtRandomNumTaskInfo()
    raw = struct.pack("<iI", dtype, function) + value(first) + value(second) + struct.pack("<3Q", 0, result, counter)
    raw += value(struct.pack("<Q", seed)) + value(struct.pack("<Q", number)) + b"\0" * 8
    assert len(raw) == ctypes.sizeof(info)
    ctypes.memmove(ctypes.addressof(info), raw, len(raw))
    return info


def f4(number):
    return struct.pack("<f", number)


def generate(calls, dtype, kept, function, first, second=b"", number=1000, **options):
    result, counter = calls.malloc(8 * number), calls.upload(np.zeros(16, np.uint8))
    info = task(calls, dtype, function, first, second, number, result=result, counter=counter, **options)
    calls.api.aclrtRandomNumAsync(info, calls.s, None)
    calls.sync()
    return np.frombuffer(calls.bytes_at(result, number * np.dtype(kept).itemsize), kept)


def test_random_numbers(calls):
    uniform = generate(calls, FLOAT, "f4", UNIFORM, f4(2), f4(4))
    assert 2 <= uniform.min() < 2.1
    assert 3.9 < uniform.max() < 4
    assert generate(calls, FLOAT, "f4", UNIFORM, f4(2), f4(4)).tolist() == uniform.tolist()
    assert generate(calls, FLOAT, "f4", UNIFORM, f4(2), f4(4), seed=43).tolist() != uniform.tolist()
    normal = generate(calls, FLOAT, "f4", NORMAL, f4(10), f4(3))
    assert abs(normal.mean() - 10) < 0.5
    assert 2.5 < normal.std() < 3.5
    truncated = generate(calls, FLOAT, "f4", TRUNCATED, f4(10), f4(3))
    assert 4 <= truncated.min() <= truncated.max() <= 16
    whole = generate(calls, INT32, "i4", UNIFORM, struct.pack("<i", -3), struct.pack("<i", 3))
    assert set(whole.tolist()) == {-3, -2, -1, 0, 1, 2}
    bits = np.unpackbits(generate(calls, FLOAT, "u1", DROPOUT, f4(0.25), number=1000)[:125])
    assert 200 < bits.sum() < 300
    short = bf16_to_float(generate(calls, BF16, "u2", UNIFORM, b"\x80\x3f", b"\x00\x40"))
    assert 1 <= short.min() < short.max() <= 2


def test_the_counter_moves_on(calls):
    result, counter = calls.malloc(16), calls.upload(np.zeros(16, np.uint8))
    found = []
    for _ in range(2):
        info = task(calls, FLOAT, UNIFORM, f4(0), f4(1), 4, result=result, counter=counter)
        calls.api.aclrtRandomNumAsync(info, calls.s, None)
        calls.sync()
        found.append(calls.bytes_at(result, 16))
    assert found[0] != found[1]
    assert int.from_bytes(calls.bytes_at(counter, 16), "little") == 2


def test_refused_random_numbers(calls):
    a = calls.malloc(64)

    def call(info, reserve=None):
        return calls.code("aclrtRandomNumAsync", info, calls.s, reserve)

    assert call(task(calls, UINT8, UNIFORM, f4(0), f4(1))) == INVALID_PARAM
    assert call(task(calls, FLOAT, UNIFORM, f4(0), f4(1), result=a)) == PARAM_INVALID
    assert call(task(calls, FLOAT, UNIFORM, f4(0), f4(1), counter=a)) == PARAM_INVALID
    assert call(task(calls, FLOAT, 4, f4(0), f4(1), result=a, counter=a)) == PARAM_INVALID
    assert call(task(calls, INT32, NORMAL, f4(0), f4(1), result=a, counter=a)) == PARAM_INVALID
    assert call(task(calls, FLOAT, UNIFORM, b"", f4(1), result=a, counter=a)) == PARAM_INVALID
    assert call(task(calls, FLOAT, UNIFORM, f4(0), b"\0" * 5, result=a, counter=a)) == PARAM_INVALID
    good = task(calls, FLOAT, UNIFORM, f4(0), f4(1), 4, result=a, counter=a)
    assert call(good, 8) == PARAM_INVALID
    # the library has put a number of its own in place of the type: 6 is another type for the next call
    assert good.dataType == 6
    assert call(good) == INVALID_PARAM
    assert (
        Kernels(soc="Ascend310P3").code("aclrtRandomNumAsync", task(calls, FLOAT, 0, b""), None, None) == NOT_SUPPORTED
    )
