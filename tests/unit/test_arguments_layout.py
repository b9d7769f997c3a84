"""The layout of any signature is what a C compiler gives the struct of the same members at the kernel's alignment."""

from __future__ import annotations

import ctypes
import dataclasses
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pyacl.arguments import Packer, parse_signature


class Pair(ctypes.Structure):
    _fields_ = [("a", ctypes.c_uint8), ("b", ctypes.c_uint16)]


class Mixed(ctypes.Structure):
    _fields_ = [("a", ctypes.c_uint8), ("p", Pair * 3), ("d", ctypes.c_double), ("e", ctypes.c_uint8)]


@dataclasses.dataclass
class Fields:
    """Laid out by its annotations."""

    flag: np.uint8
    mixed: Mixed
    scale: np.float16
    count: ctypes.c_int32


TRIPLE = np.dtype([("a", np.uint32), ("b", np.uint32), ("c", np.float32)], align=True)
NESTED = np.dtype([("t", TRIPLE, (2,)), ("n", np.int16), ("q", np.int64)], align=True)

C_TYPES = """
#include <stdint.h>
#include <stdio.h>
#include <stddef.h>
struct pair { uint8_t a; uint16_t b; };
struct mixed { uint8_t a; struct pair p[3]; double d; uint8_t e; };
struct triple { uint32_t a, b; float c; };
struct nested { struct triple t[2]; int16_t n; int64_t q; };
struct fields { uint8_t flag; struct mixed mixed; uint16_t scale; int32_t count; };
struct bytes6 { uint8_t a[6]; };
struct bytes12 { uint32_t a[3]; };
"""

# what pyacl is told -> the type a kernel declares
TYPES = {
    "ptr": "void *", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "u8": "uint8_t",
    "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "f16": "uint16_t", "bf16": "uint16_t", "f32": "float",
    "f64": "double", "bool": "_Bool", "bytes6@1": "struct bytes6", "bytes12@4": "struct bytes12",
}  # fmt: skip
BY_VALUE = [
    (Pair, "struct pair"), (Mixed, "struct mixed"), (TRIPLE, "struct triple"), (NESTED, "struct nested"),
    (Fields, "struct fields"),
]  # fmt: skip
CHOICES: list[tuple[object, str]] = [*TYPES.items(), *BY_VALUE]
SIGNATURES = 10_000


def signatures() -> list[list[tuple[object, str]]]:
    rng = random.Random(20240229)
    return [[rng.choice(CHOICES) for _ in range(rng.randint(1, 14))] for _ in range(SIGNATURES)]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: the C layout comes from it")
def test_every_signature_is_laid_out_as_gcc_does(tmp_path: Path) -> None:
    chosen = signatures()
    # the kernel ABI as attributes: a member is aligned to at least 4, the whole to at least 8
    lines = [C_TYPES]
    table = ["int main(void) {"]
    for number, signature in enumerate(chosen):
        members = " ".join(f"{c} m{i} __attribute__((aligned(4)));" for i, (_, c) in enumerate(signature))
        lines.append(f"struct s{number} {{ {members} }} __attribute__((aligned(8)));")
        offsets = ", ".join(f"offsetof(struct s{number}, m{i})" for i in range(len(signature)))
        lines.append(f"static const uint16_t t{number}[] = {{ {offsets}, sizeof(struct s{number}) }};")
        table.append(f'for (int i = 0; i <= {len(signature)}; i++) printf("%d ", t{number}[i]); puts("");')
    source = tmp_path / "layout.c"
    source.write_text("\n".join([*lines, *table, "return 0; }"]))
    program = tmp_path / "layout"
    subprocess.run(["gcc", "-O0", "-o", program, source], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(printed) == SIGNATURES
    for signature, line in zip(chosen, printed):
        *offsets, size = map(int, line.split())
        layout = Packer("k", [entry for entry, _ in signature]).declared_layout
        assert (list(layout.offsets), layout.size) == (offsets, size), signature


def test_random_values_lie_where_the_layout_says() -> None:
    """Each argument's own bytes lie at its offset of the layout; the rest is zero."""
    rng = random.Random(7)
    scalars = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32,
               np.float64, np.bool_]  # fmt: skip
    for _ in range(500):
        values = [rng.choice(scalars)(rng.randint(0, 100)) for _ in range(rng.randint(1, 12))]
        packed = Packer("k").pack(values)
        expected = bytearray(packed.layout.size)
        for value, offset in zip(values, packed.layout.offsets):
            expected[offset : offset + value.itemsize] = value.tobytes()
        assert packed.block == bytes(expected)
        # declared, the same values give the same block
        names = [v.dtype.name for v in values]
        assert Packer("k", names).pack(values).block == packed.block
        assert [p.size for p in parse_signature(names)] == [v.itemsize for v in values]
