"""Objects made by pyacl.testing are read back as they were asked for, by us and by pyelftools."""

from __future__ import annotations

import ctypes
from io import BytesIO
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

import pyacl.testing
from pyacl.objfile import Container, read
from pyacl.testing import KernelSpec, make_kernel_object

ARCHES = {"dav-1001": 0x86, "dav-2002": 0x8A, "dav-2201": 0x93, "dav-3510": 0x99}
RATIOS = {(1, 2): 4, (2, 1): 5, (1, 1): 4, (1, 0): 4, (0, 1): 5}


def test_the_plain_one() -> None:
    obj = read(make_kernel_object("add_custom"))
    assert obj.container is Container.DEVICE
    assert obj.flags == 0x930000
    (kernel,) = obj.kernels
    assert (kernel.name, kernel.core, kernel.arg_size, kernel.user_sizes) == ("add_custom", "AIV", 24, (24,))
    (half,) = kernel.halves
    start, size = obj.image
    code = obj.data[start + half.offset : start + half.offset + half.size]
    assert len(code) == size == 256 and len(set(code)) > 100
    assert pyacl.testing.make_kernel_object is make_kernel_object


def test_deterministic() -> None:
    assert make_kernel_object("a", core="mix") == make_kernel_object("a", core="mix")
    assert make_kernel_object("a") != make_kernel_object("b")


@pytest.mark.parametrize("arch", ["dav-2201", "dav-c220-vec", "dav-c220-cube", "Ascend910B3", "Ascend910_9391"])
def test_arch_by_generation_core_or_soc(arch: str) -> None:
    assert make_kernel_object("a", arch=arch) == make_kernel_object("a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arch": "dav-9999"}, "arch: 'dav-9999' is not one of dav-1001"),
        ({"core": "gpu"}, "core: 'gpu' is not one of aiv, aic, mix"),
        ({"core": "mix", "arch": "dav-2002"}, "core: 'mix' is not one of aicore"),
        ({"ratio": (1, 2)}, "ratio: .* is for mixed kernels"),
        ({"core": "mix", "ratio": (3, 1)}, "ratio: "),
        ({"name": ""}, "name: '' is no symbol"),
        ({"name": 5}, "name: 5 is no symbol"),
        ({"name": ["a", b"b"]}, "name: b'b' is no symbol"),
        ({"args": -1}, "args: -1 is neither a number of 8-byte arguments nor the size of each"),
        ({"args": [8, 0]}, r"args: \[8, 0\] is neither"),
        ({"args": "3"}, "args: '3' is neither"),
        ({"code_size": 6}, "code_size: 6"),
        ({"roles": ["inputs"]}, "roles: 'inputs' is not one of"),
        ({"vector": "SIMD"}, "vector: 'SIMD' is not one of"),
        ({"debug": ["print"]}, "debug: 'print' is not one of"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_kernel_object(**{"name": "k", **options})


_SIZES = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}


@given(st.lists(st.sampled_from([4, 8]), max_size=8))
def test_argument_block_is_laid_out_as_c_does(sizes: list[int]) -> None:
    """Where every argument has 4 or 8 bytes, the kernel ABI's block is the C struct, padded to 8 bytes."""
    struct = type("Block", (ctypes.Structure,), {"_fields_": [(f"f{i}", _SIZES[s]) for i, s in enumerate(sizes)]})
    kernel = read(make_kernel_object("k", args=sizes)).kernels[0]
    assert kernel.arg_size == -(-ctypes.sizeof(struct) // 8) * 8


@pytest.mark.parametrize(
    ("args", "size"),
    [(0, 0), (5, 40), ([8, 4, 4], 16), ([8, 1, 1], 16), ([8, 4, 8], 24), ([1], 8), ([8, 40], 48), ([8, 12, 4], 24)],
)
def test_argument_block_sizes(args: Any, size: int) -> None:
    assert read(make_kernel_object("k", args=args)).kernels[0].arg_size == size


names = st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,20}", fullmatch=True)


@st.composite
def specs(draw: st.DrawFn, single_core: bool, name: str) -> KernelSpec:
    core = "aicore" if single_core else draw(st.sampled_from(["aiv", "aic", "mix"]))
    return KernelSpec(
        name,
        core=core,
        ratio=draw(st.sampled_from([None, *RATIOS])) if core == "mix" else None,
        args=draw(st.one_of(st.integers(0, 20), st.lists(st.sampled_from([1, 2, 4, 8, 24]), max_size=6))),
        arg_size=draw(st.one_of(st.none(), st.integers(1, 8).map(lambda n: 8 * n))),
        roles=draw(st.sampled_from([None, ["input", "output", "tiling"], ["input", "overflow"], []])),
        tiling_key=draw(st.sampled_from([None, 0, 7, 2**64 - 1])),
        entry=draw(st.sampled_from([None, False, 12])),
        sync=draw(st.booleans()),
        min_stack=draw(st.sampled_from([None, 0, 32768])),
        ub_size=draw(st.sampled_from([None, 0, 8192])),
        vector=draw(st.sampled_from([None, "none", "simd", "simt", "both"])),
        sched_mode=draw(st.sampled_from([None, 0, 1])),
        deterministic=draw(st.sampled_from([None, False, True])),
        code_size=draw(st.sampled_from([4, 256, 1000])),
    )


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    arch = data.draw(st.sampled_from(sorted(ARCHES)))
    single_core = arch in ("dav-1001", "dav-2002")
    wanted = [
        data.draw(specs(single_core, name)) for name in data.draw(st.lists(names, min_size=1, max_size=4, unique=True))
    ]
    implicit = data.draw(st.sampled_from([(), (2,), (1, 4)]))
    built = make_kernel_object(wanted, arch=arch, implicit=implicit, data=data.draw(st.sampled_from([b"", b"x" * 7])))
    obj = read(built)

    has_cube = any(spec.core == "aic" or (spec.core == "mix" and spec.ratio != (0, 1)) for spec in wanted)
    assert obj.flags >> 16 == ARCHES[arch] + (has_cube and not single_core)
    assert obj.verdict().from_file and obj.verdict().magic is None
    assert set(implicit) == obj.binary_meta.implicit == obj.binary_meta.implicit_seen
    assert len(obj.kernels) == len(wanted)
    for spec, kernel in zip(wanted, obj.kernels):
        mixed = spec.core == "mix"
        assert kernel.name == (spec.name if spec.tiling_key is None else f"{spec.name}_{spec.tiling_key}")
        assert kernel.core == spec.core.upper()
        assert kernel.ratio == ((spec.ratio or (1, 2)) if mixed else None)
        assert kernel.sync is spec.sync
        assert kernel.ffts is (arch == "dav-2201" and (mixed or spec.sync) and 2 not in implicit)
        halves = [half for half, cores in zip(("aic", "aiv"), spec.ratio or (1, 2)) if cores] if mixed else [None]
        assert [half.half for half in kernel.halves] == halves
        for half in kernel.halves:
            assert half.size == spec.code_size
            assert half.meta is not None
            assert half.meta.ktype == (
                RATIOS[spec.ratio or (1, 2)] if mixed else {"aicore": 1, "aic": 2, "aiv": 3}[spec.core]
            )
        if single_core:
            assert kernel.arg_size is None and kernel.user_sizes == ()
        elif spec.arg_size is not None:
            assert kernel.arg_size == spec.arg_size
        elif isinstance(spec.args, int):
            assert kernel.arg_size == 8 * spec.args + 8 * kernel.ffts
        if spec.roles:
            assert kernel.arguments is not None
            roles = [argument.role for argument in kernel.arguments]
            assert roles == (["ffts"] if kernel.ffts else []) + list(spec.roles)
        elif spec.roles is not None:
            assert kernel.arguments is None
        expected_key = spec.tiling_key
        if spec.entry is False:
            expected_key = None
        elif spec.entry is not None:
            expected_key = spec.entry
        assert kernel.tiling_key == expected_key
        assert kernel.min_stack == spec.min_stack
        assert kernel.ub_size == spec.ub_size
        assert kernel.sched_mode == {None: None, 0: "normal", 1: "batch"}[spec.sched_mode]
        assert kernel.deterministic is spec.deterministic
        if spec.vector is not None:
            assert (
                kernel.vector_type
                == {"simd": "SIMD", "simt": "SIMT", "both": "SIMD and SIMT", "none": "none"}[spec.vector]
            )

    theirs = ELFFile(BytesIO(built))
    assert [section.name for section in theirs.iter_sections()][1:] == list(obj.sections)
    assert theirs["e_flags"] == obj.flags and theirs["e_machine"] == 0x1029
    # each allocated section is a segment, at its own address in the image
    for segment, section in zip(theirs.iter_segments(), (s for s in theirs.iter_sections() if s["sh_flags"] & 2)):
        assert (segment["p_offset"], segment["p_filesz"]) == (section["sh_offset"], section["sh_size"])
        assert segment["p_vaddr"] == section["sh_addr"] == section["sh_offset"] - obj.image[0]
