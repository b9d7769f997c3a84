"""Real kernel objects give exactly what tests/data/kernel-objects-expected.json says, and what pyelftools says."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from kernels import EXPECTED, FILES

from pyacl import objfile
from pyacl.objfile import Container, KernelObject
from pyacl.objfile.elf import Elf

DEVICE_CASES = sorted(case for case in FILES if case != "ar_host_archive")


def as_expected(obj: KernelObject) -> dict[str, Any]:
    """Write an object in the form of the JSON."""
    out: dict[str, Any] = {"size": len(obj.data), "sha256": obj.sha256}
    if obj.container is Container.ARCHIVE:
        return {"container": obj.data[:8].decode(), **out}
    assert obj.architecture is not None
    out.update(
        e_type=obj.type,
        e_machine=hex(obj.machine),
        e_flags=hex(obj.flags),
        arch=obj.architecture.label,
        sections=list(obj.sections),
        kernels={},
    )
    for entry in obj.entries:
        out["kernels"][entry.symbol] = {"offset": entry.offset, "size": entry.size, "arg_size": entry.arg_size}
        if entry.meta is not None:
            out["kernels"][entry.symbol]["meta"] = entry.meta.raw()
    if obj.binary_meta.groups:
        out["binary_meta"] = [
            [[record.type, len(record.payload), record.payload.hex()] for record in group]
            for group in obj.binary_meta.groups
        ]
    if obj.stack_records:
        out["stack"] = list(obj.stack_records)
    out["comment"] = list(obj.comment)
    out["registered_names"] = {
        kernel.name: {"halves": [half.symbol for half in kernel.halves], "tiling_key": kernel.tiling_key}
        for kernel in obj.kernels
    }
    out["meta_complete"] = obj.meta_complete
    return out


@pytest.mark.parametrize("case", sorted(FILES))
def test_every_field_is_as_expected(case: str, real_kernels: dict[str, Path]) -> None:
    assert as_expected(objfile.read(real_kernels[case])) == EXPECTED[f"{case}/{FILES[case]}"]


@pytest.mark.parametrize("case", DEVICE_CASES)
def test_agrees_with_pyelftools(case: str, real_kernels: dict[str, Path]) -> None:
    data = real_kernels[case].read_bytes()
    ours, theirs = Elf(data), ELFFile(BytesIO(data))
    assert ours.header.entry == theirs["e_entry"]
    assert ours.header.shoff == theirs["e_shoff"]
    assert ours.header.phnum == theirs["e_phnum"]
    for section, other in zip(ours.sections, theirs.iter_sections()):
        assert section.name == other.name
        assert section.offset == other["sh_offset"]
        assert section.size == other["sh_size"]
        assert section.addr == other["sh_addr"]
        assert section.flags == other["sh_flags"]
        assert (section.link, section.info, section.entsize) == (
            other["sh_link"],
            other["sh_info"],
            other["sh_entsize"],
        )
        if section.type != 8:
            assert ours.content(section) == other.data()
    table = next(section for section in theirs.iter_sections() if isinstance(section, SymbolTableSection))
    assert [(symbol.name, symbol.value, symbol.size) for symbol in ours.symbols()] == [
        # A section's symbol has no name of its own; pyelftools shows it as it is too.
        (symbol.name, symbol["st_value"], symbol["st_size"])
        for symbol in table.iter_symbols()
    ]


#: case -> (core, ratio, argument block, what a caller may pass, FFTS hidden, vector type, least stack, UB)
LAUNCH = {
    "310p_aicore": ("AICORE", None, None, (), False, None, None, None),
    "910_aicore": ("AICORE", None, None, (), False, None, None, None),
    "910b_aiv_nometa": ("AIV", None, 40, (40,), False, None, None, None),
    "910b_mix_0_1": ("MIX", (0, 1), 40, (32,), True, None, None, None),
    "910b_mix_1_2_ffts": ("MIX", (1, 2), 40, (32,), True, None, None, None),
    "950_aiv_meta": ("AIV", None, 40, (40,), False, "SIMD", 1624, 8192),
    "950_debug_assert_printf": ("AIV", None, 80, (80,), False, "SIMT", 344, 8192),
    "950_mix_34byte_meta": ("MIX", (1, 2), 80, (80,), False, "SIMD and SIMT", 2816, 8192),
    "950_simt": ("AIV", None, 32, (32,), False, "SIMT", 248, 8192),
    "950_two_keys_weak": ("AIV", None, 96, (96,), False, "none", 2600, 0),
}


@pytest.mark.parametrize("case", DEVICE_CASES)
def test_what_a_launch_needs(case: str, real_kernels: dict[str, Path]) -> None:
    kernel = objfile.read(real_kernels[case]).kernels[0]
    assert LAUNCH[case] == (
        kernel.core,
        kernel.ratio,
        kernel.arg_size,
        kernel.user_sizes,
        kernel.ffts,
        kernel.vector_type,
        kernel.min_stack,
        kernel.ub_size,
    )


#: As the real library was measured to count them, in what aclrtKernelArgsGetMemSize answers.
PARAMETER_LIMITS = {
    "310p_aicore": 128,
    "910_aicore": 128,
    "910b_aiv_nometa": 128,
    "910b_mix_0_1": 5,
    "910b_mix_1_2_ffts": 5,
    "950_debug_assert_printf": 10,
    "950_mix_34byte_meta": 0,
    "950_simt": 4,
    "950_two_keys_weak": 12,
}


def test_parameter_limits(real_kernels: dict[str, Path]) -> None:
    found = {case: objfile.read(real_kernels[case]).kernels[0].parameter_limit for case in PARAMETER_LIMITS}
    assert found == PARAMETER_LIMITS


def test_argument_roles(real_kernels: dict[str, Path]) -> None:
    kernel = objfile.read(real_kernels["910b_mix_1_2_ffts"]).kernels[0]
    assert kernel.arguments is not None
    assert [(argument.role, argument.size) for argument in kernel.arguments] == [
        ("ffts", None),
        ("input", -1),
        ("output", -1),
        ("workspace", None),
        ("tiling", 40),
    ]
    assert kernel.user_arguments == kernel.arguments[1:]


def test_debug_build(real_kernels: dict[str, Path]) -> None:
    obj = objfile.read(real_kernels["950_debug_assert_printf"])
    assert obj.binary_meta.debug_options == ("printf",)
    assert obj.binary_meta.debug_buffer == 0x18C00000
    assert obj.binary_meta.implicit == obj.binary_meta.implicit_seen == {4}
    assert obj.sidecar is not None and obj.sidecar.debug_options is not None
    assert "printf" in obj.sidecar.debug_options


#: case -> (from file, MAGIC) with the JSON that the package has, and (from file, MAGIC) without any
VERDICTS = {
    "310p_aicore": ((True, "AICORE"), (False, "AICORE")),
    "910_aicore": ((True, "AICORE"), (False, "AICORE")),
    "910b_aiv_nometa": ((True, "VECTOR"), (False, "VECTOR")),
    "910b_mix_0_1": ((True, None), (True, None)),
    "910b_mix_1_2_ffts": ((True, None), (True, None)),
    "950_aiv_meta": ((False, "VECTOR"), (False, "VECTOR")),
    "950_debug_assert_printf": ((False, None), (True, None)),
    "950_mix_34byte_meta": ((True, None), (True, None)),
    "950_simt": ((True, None), (True, None)),
    "950_two_keys_weak": ((True, None), (True, None)),
}


@pytest.mark.parametrize("case", DEVICE_CASES)
def test_verdict(case: str, real_kernels: dict[str, Path]) -> None:
    path = real_kernels[case]
    found = []
    for obj in (objfile.read(path), objfile.read(path, sidecar=None)):
        verdict = obj.verdict()
        assert verdict.from_data and verdict.loadable
        assert verdict.from_file == (not verdict.reasons) == (not verdict.advice)
        found.append((verdict.from_file, verdict.magic))
    assert tuple(found) == VERDICTS[case]


@pytest.mark.parametrize("case", DEVICE_CASES)
def test_fits_its_soc_and_no_other(case: str, real_kernels: dict[str, Path]) -> None:
    obj = objfile.read(real_kernels[case])
    own = {"310p": "Ascend310P3", "910_": "Ascend910A", "910b": "Ascend910B3", "950_": "Ascend950DT_9581"}[case[:4]]
    for soc in ("Ascend310P3", "Ascend910A", "Ascend910B3", "Ascend910_9391", "Ascend950DT_9581"):
        fits = soc == own or (own, soc) == ("Ascend910B3", "Ascend910_9391")
        assert obj.fits(soc) is fits
        assert obj.verdict(soc).loadable is fits
        assert (soc in obj.socs) is fits
    refused = obj.verdict("Ascend310B4")
    assert "compiled for" in refused.reasons[0] and refused.advice == ("compile it with --npu-arch=dav-3002",)
    assert obj.fits("Ascend2030X") is None
    assert obj.verdict("Ascend2030X").loadable and "not in the table" in obj.verdict("Ascend2030X").cautions[0]


def test_archive_of_a_host_object(real_kernels: dict[str, Path]) -> None:
    obj = objfile.read(real_kernels["ar_host_archive"])
    (member,) = obj.parts
    assert member.container is Container.HOST_OBJECT
    assert member.machine_name == "x86-64"
    (device,) = obj.device_parts()
    assert device.container is Container.RELOCATABLE
    assert device.origin == "section __aicore_rel_binary"
    assert device.architecture is not None and device.architecture.core_arch == "dav-c220-vec"
    assert len(device.kernels) == 6
    assert device.kernel("ascendc_modf_f32").arg_size == 48
    assert obj.extract() == device.data
    verdict = obj.verdict()
    assert not verdict.loadable
    assert "relocatable" in verdict.reasons[0]
    assert "ld.lld" in verdict.advice[0]
