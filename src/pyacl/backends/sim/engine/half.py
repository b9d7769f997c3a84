"""Half precision as the acl layer converts it: rounds to even, knows neither infinities nor NaN."""

from __future__ import annotations

import struct

_LARGEST = 0x7BFF


def half_to_float(bits: int) -> float:
    """The value of a half. The largest exponent is one like any other: 0x7c00 is 65536."""
    exponent, mantissa = bits >> 10 & 0x1F, bits & 0x3FF
    if exponent:
        mantissa |= 0x400
    value = mantissa * 2.0 ** (max(exponent, 1) - 25)
    return -value if bits & 0x8000 else value


def float_to_half(value: float) -> int:
    """The nearest half; what is too large becomes the largest finite one, infinities and NaN too."""
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    sign, exponent, mantissa = bits >> 16 & 0x8000, bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent > 0x8F:
        return sign | _LARGEST
    if exponent > 0x70:
        whole, rest = mantissa >> 13, mantissa & 0x1FFF
        half = exponent - 0x70 << 10 | whole
        if rest > 0x1000 or (rest == 0x1000 and whole & 1):
            half += 1
        return sign | min(half, _LARGEST)
    if exponent < 0x66:
        return sign
    # a denormal half: the unit is 2 ** -24
    shift = 0x7E - exponent
    mantissa |= 0x800000
    whole, rest, middle = mantissa >> shift, mantissa & (1 << shift) - 1, 1 << shift - 1
    if rest > middle or (rest == middle and whole & 1):
        whole += 1
    return sign | whole
