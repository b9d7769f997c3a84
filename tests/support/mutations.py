"""Damage done to kernel objects at random, but from a seed: what the fuzz test and tools/fuzz_objfile.py share."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

#: Values that lie at the edges of what lengths, offsets and counts can be.
EDGES = (
    0, 1, 2, 3, 4, 7, 8, 15, 16, 23, 24, 25, 63, 64, 65, 127, 128, 255, 256, 4095, 4096, 32767, 32768, 65535, 65536,
    2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip


def mutate(rng: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return a damaged copy: one to six changes, most of them in the tables, where they hurt."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        if not out:
            break
        rng.choice(_CHANGES)(rng, out, others)
    return bytes(out)


def _byte(rng: random.Random, out: bytearray, others: Sequence[bytes]) -> None:
    out[_place(rng, out)] = rng.randrange(256)


def _bit(rng: random.Random, out: bytearray, others: Sequence[bytes]) -> None:
    out[_place(rng, out)] ^= 1 << rng.randrange(8)


def _number(rng: random.Random, out: bytearray, others: Sequence[bytes]) -> None:
    """Overwrite an aligned number by an edge, by the file's size, or by a little more or less than it is."""
    width = rng.choice((1, 2, 4, 8))
    at = _place(rng, out) // width * width
    if at + width > len(out):
        return
    old = int.from_bytes(out[at : at + width], "little")
    new = rng.choice((rng.choice(EDGES), len(out), old + rng.randint(-9, 9), rng.getrandbits(64), len(out) - at))
    out[at : at + width] = (new % (1 << 8 * width)).to_bytes(width, "little")


def _cut(rng: random.Random, out: bytearray, others: Sequence[bytes]) -> None:
    del out[rng.randrange(len(out)) :]


def _remove(rng: random.Random, out: bytearray, others: Sequence[bytes]) -> None:
    start = _place(rng, out)
    del out[start : start + rng.choice((1, 2, 4, 8, 24, 64))]


def _insert(rng: random.Random, out: bytearray, others: Sequence[bytes]) -> None:
    start = _place(rng, out)
    out[start:start] = bytes(rng.getrandbits(8) for _ in range(rng.choice((1, 2, 4, 8, 24, 64))))


def _copy(rng: random.Random, out: bytearray, others: Sequence[bytes]) -> None:
    """Copy a piece over another place, from here or from another file."""
    source = rng.choice(others) if others and rng.random() < 0.5 else bytes(out)
    size = rng.choice((2, 4, 8, 24, 64, 256))
    start = rng.randrange(max(1, len(source) - size))
    piece = source[start : start + size]
    at = _place(rng, out)
    out[at : at + len(piece)] = piece


def _swap_headers(rng: random.Random, out: bytearray, others: Sequence[bytes]) -> None:
    table = _section_table(out)
    if table is None:
        return
    start, count = table
    one, two = (start + 64 * rng.randrange(count) for _ in range(2))
    out[one : one + 64], out[two : two + 64] = out[two : two + 64], out[one : one + 64]


_CHANGES = (_byte, _bit, _number, _number, _number, _number, _cut, _remove, _insert, _copy, _copy, _swap_headers)


def _place(rng: random.Random, out: bytearray) -> int:
    """Choose a byte: in the ELF header, the section headers, a small section, or anywhere."""
    kind = rng.random()
    table = _section_table(out)
    if kind < 0.2 or table is None:
        return rng.randrange(min(64, len(out)))
    start, count = table
    header = start + 64 * rng.randrange(count)
    if kind < 0.5:
        return header + rng.randrange(64)
    if kind < 0.9:
        offset, size = struct.unpack_from("<QQ", out, header + 24)
        if 0 < size < 8192 and offset + size <= len(out):
            return int(offset) + rng.randrange(int(size))
    return rng.randrange(len(out))


def _section_table(out: bytearray) -> tuple[int, int] | None:
    if len(out) < 64 or out[:4] != b"\x7fELF":
        return None
    (start,) = struct.unpack_from("<Q", out, 40)
    (count,) = struct.unpack_from("<H", out, 60)
    return (start, count) if count and start + 64 * count <= len(out) else None
