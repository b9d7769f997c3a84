"""Half precision as the library converts it: against numpy for all finite halves, and the library's own limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import Calls

from pyacl.backends.sim.engine.half import float_to_half, half_to_float


def test_every_finite_half_has_the_value_that_numpy_gives_it():
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[(bits & 0x7C00) != 0x7C00]
    assert [half_to_float(int(value)) for value in bits] == bits.view(np.float16).astype(np.float64).tolist()


def test_every_finite_half_comes_back():
    for bits in range(0x7C00):
        assert float_to_half(half_to_float(bits)) == bits
        assert float_to_half(half_to_float(bits | 0x8000)) == bits | 0x8000


@given(st.floats(width=32, min_value=-65503, max_value=65503).filter(lambda v: abs(v) >= 2**-24 or v == 0))
def test_rounding_is_that_of_numpy(value):
    assert float_to_half(value) == int(np.float32(value).astype(np.float16).view(np.uint16))


@pytest.mark.parametrize(
    "value, bits",
    [
        (65504.0, 0x7BFF),
        (65520.0, 0x7BFF),  # numpy rounds to infinity
        (1e30, 0x7BFF),
        (-1e30, 0xFBFF),
        (float("inf"), 0x7BFF),
        (float("-inf"), 0xFBFF),
        (float("nan"), 0x7BFF),
        (2.0**-25, 0),
        (2.0**-25 * 1.0001, 1),
        (-(2.0**-26), 0x8000),
        (1e-45, 0),
    ],
)
def test_what_a_half_cannot_hold(value, bits):
    assert float_to_half(value) == bits


@pytest.mark.parametrize("bits, value", [(0x7C00, 65536.0), (0xFC00, -65536.0), (0x7E00, 98304.0), (0x7FFF, 131008.0)])
def test_the_largest_exponent_is_one_like_any_other(bits, value):
    assert half_to_float(bits) == value


def test_the_functions():
    calls = Calls()
    assert calls.aclFloatToFloat16(1.5) == 0x3E00
    assert calls.aclFloat16ToFloat(0xC100) == -2.5
    assert [calls.aclDataTypeSize(kind) for kind in (-1, 0, 1, 3, 9, 16, 27)] == [0, 4, 2, 4, 8, 8, 2]
