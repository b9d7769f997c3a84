"""What the inspector says about objects made for the purpose: containers, kernels, verdicts, bad input."""

from __future__ import annotations

import io
import json
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyacl import objfile
from pyacl.objfile import Container, KernelObjectError, mangled, read
from pyacl.objfile.elf import Elf, tlvs
from pyacl.objfile.kernels import registered_name, tiling_key
from pyacl.objfile.metadata import KernelMeta, binary_meta, kernel_meta
from pyacl.objfile.sidecar import parse_sidecar
from pyacl.testing import KernelSpec, make_archive, make_host_object, make_kernel_object, make_sidecar

GROUP_34 = bytes.fromhex("0000040001000000 01000800 0000000000000000 02000200 0000 03000400 01000100".replace(" ", ""))
GROUP_36 = bytes.fromhex(
    "0000040001000000 01000800 0010000003000000 02000400 00000000 03000400 01000100".replace(" ", "")
)


# -- sources -------------------------------------------------------------------------------------------------------


def test_reads_paths_bytes_and_files(tmp_path: Path) -> None:
    data = make_kernel_object("add_custom")
    path = tmp_path / "add.o"
    path.write_bytes(data)
    for source in (str(path), path, data, bytearray(data), memoryview(data), io.BytesIO(data)):
        obj = read(source)
        assert obj.kernel("add_custom").arg_size == 24
        assert obj.path == (str(path) if isinstance(source, (str, Path)) else None)
    with path.open("rb") as file:
        assert read(file).sha256 == obj.sha256
    with path.open() as text, pytest.raises(TypeError, match="binary mode"):
        read(text)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing.o")


def test_sidecar_is_found_where_the_runtime_looks(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "a.b.o").write_bytes(make_kernel_object("k", metadata=False))
    assert read(real / "a.b.o").sidecar is None
    (real / "a.b.json").write_bytes(make_sidecar(intercoreSync=1))
    obj = read(real / "a.b.o")
    assert obj.sidecar is not None and obj.sidecar.magic == "VECTOR" and obj.sidecar.inter_core_sync
    assert obj.sidecar.path == str(real / "a.b.json")
    assert obj.verdict().from_file
    # FFTS address in front, because the JSON asks for synchronization
    assert obj.kernels[0].ffts and obj.kernels[0].user_sizes == (16, 8)
    if sys.platform != "win32":
        (tmp_path / "link.o").symlink_to(real / "a.b.o")
        assert read(tmp_path / "link.o").sidecar == obj.sidecar
    assert read(real / "a.b.o", sidecar=None).sidecar is None
    assert read((real / "a.b.o").read_bytes(), sidecar=real / "a.b.json").sidecar == obj.sidecar
    given_mapping = read((real / "a.b.o").read_bytes(), sidecar={"magic": "RT_DEV_BINARY_MAGIC_ELF"})
    assert given_mapping.verdict().from_file


# -- containers ----------------------------------------------------------------------------------------------------


def test_containers() -> None:
    device = make_kernel_object("add")
    unlinked = make_kernel_object("add", relocatable=True)
    assert read(device).container is Container.DEVICE
    assert read(unlinked).container is Container.RELOCATABLE
    assert read(make_host_object(unlinked)).container is Container.HOST_OBJECT
    assert read(make_host_object(device, ".aicore_binary")).container is Container.FAT
    assert read(make_host_object(device, ".ascend.kernel.ascend910b1.k")).container is Container.LEGACY_HOST
    assert read(make_host_object(device, ".data")).container is Container.FAT
    assert read(make_host_object(b"")).container is Container.HOST
    assert read(make_archive({"a.o": device})).container is Container.ARCHIVE


def test_device_parts_are_extracted() -> None:
    linked = make_kernel_object("add")
    for section in (".aicore_binary", ".ascend.kernel.ascend910b1.k", ".rodata"):
        packed = make_host_object(b"\x01\0\0\0" * 5 + linked + b"tail", section)
        obj = read(packed)
        assert [part.origin for part in obj.parts] == [f"section {section}"]
        assert obj.extract() == linked
        assert read(obj.extract()).kernel("add").name == "add"
        verdict = obj.verdict()
        assert not verdict.loadable and "extract" in verdict.advice[0]
    archive = read(make_archive({"a_rather_long_name_of_a_member.o": make_host_object(linked), "b": b"text"}))
    assert archive.extract() == linked
    assert [part.origin for part in archive.parts] == ["member a_rather_long_name_of_a_member.o"]
    assert read(linked).extract() == linked
    unlinked = make_kernel_object("add", relocatable=True)
    assert read(make_host_object(unlinked)).extract() == unlinked
    # the linked one is preferred
    both = make_archive({"a.o": make_host_object(unlinked), "b.o": make_host_object(linked)})
    assert read(both).extract() == linked


def test_extract_chooses_by_soc_or_says_what_there_is() -> None:
    a2, a5 = make_kernel_object("add"), make_kernel_object("add", arch="dav-3510")
    obj = read(make_host_object(a2 + bytes(3) + a5 + a2, ".data"))
    assert len(obj.parts) == 3
    assert obj.extract("Ascend910B1") == a2
    assert obj.extract("Ascend950DT_9581") == a5
    with pytest.raises(KernelObjectError, match=r"2 device binaries.*dav-c220-vec.*dav-c310-vec"):
        obj.extract()
    with pytest.raises(KernelObjectError, match="no device binary for Ascend310P3"):
        obj.extract("Ascend310P3")
    with pytest.raises(KernelObjectError, match="host file without kernels"):
        read(make_host_object(b"")).extract()


def test_damaged_parts_are_noted_and_passed_over() -> None:
    good = make_kernel_object("add")
    damaged = bytearray(good)
    # the argument size's symbol points outside its section
    elf = Elf(good)
    symtab = elf.section(".symtab")
    assert symtab is not None
    struct.pack_into("<Q", damaged, symtab.offset + 2 * 24 + 8, 1 << 40)
    obj = read(make_host_object(bytes(damaged) + good, ".data"))
    assert [part.kernels[0].name for part in obj.parts] == ["add"]
    assert len(obj.notes) == 1 and "argument size" in obj.notes[0]
    # an ELF header without anything behind it
    assert read(make_host_object(good[:64], ".data")).container is Container.HOST


def test_archives_that_are_damaged() -> None:
    archive = make_archive({"a.o": make_kernel_object("add")})
    with pytest.raises(KernelObjectError, match="truncated"):
        read(archive[:-10])
    with pytest.raises(KernelObjectError, match="no member header at byte 8"):
        read(archive[:40])
    with pytest.raises(KernelObjectError, match="has no size"):
        read(archive[:8] + b"x" * 58 + b"`\n")
    assert read(archive[:8]).parts == ()


def test_bsd_archive_names() -> None:
    device = make_kernel_object("add")
    name = b"a_long_name.o\0\0\0"
    head = b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (b"#1/16", 0, 0, 0, 0o644, len(name) + len(device))
    obj = read(b"!<arch>\n" + head + name + device)
    assert [part.origin for part in obj.parts] == ["member a_long_name.o"]
    assert obj.extract() == device


def test_ai_cpu_library() -> None:
    library = bytearray(make_host_object(b"", machine=183))
    library[16] = 3  # ET_DYN
    declared = {"AddCpu": {"opInfo": {"functionName": "RunCpuKernel", "kernelSo": "libadd.so"}}, "other": {"x": 1}}
    obj = read(bytes(library), sidecar=declared)
    assert obj.container is Container.AICPU
    assert [(kernel.name, kernel.core, kernel.user_sizes) for kernel in obj.kernels] == [("AddCpu", "AICPU", ())]
    assert obj.sidecar is not None and obj.sidecar.cpu_kernels[0].function == "RunCpuKernel"
    verdict = obj.verdict()
    assert verdict.from_file and verdict.cpu_kernel_mode == 1
    assert verdict.summary == "loads from file with CPU_KERNEL_MODE 1"
    assert read(bytes(library)).container is Container.HOST
    assert "cpu_mode=2" in read(bytes(library)).verdict().advice[0]


def test_ai_cpu_json(tmp_path: Path) -> None:
    declared = {"AddCpu": {"opInfo": {"functionName": "RunCpuKernel", "kernelSo": "libadd.so"}}}
    path = tmp_path / "libadd.json"
    path.write_text(json.dumps(declared))
    for mode in (0, 1):  # without the library beside it, and with it
        obj = read(path)
        assert (obj.container, obj.machine, [kernel.name for kernel in obj.kernels]) == (Container.AICPU, 0, ["AddCpu"])
        assert (obj.verdict().from_file, obj.verdict().from_data, obj.verdict().cpu_kernel_mode) == (True, False, mode)
        (tmp_path / "libadd.so").write_bytes(b"anything")
    assert read(json.dumps(declared).encode()).cpu_kernel_mode == 0
    with pytest.raises(KernelObjectError, match="this is JSON"):
        read(b'{"magic": "RT_DEV_BINARY_MAGIC_ELF"}')


# -- kernels -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("symbol", "name", "words"),
    [
        ("add_custom", "add_custom", None),
        ("_Z10add_customPhS_S_j", "add_custom", "ptr ptr ptr u32"),
        ("_Z10add_customPU3AS1hS0_S0_j", "add_custom", "ptr ptr ptr u32"),
        ("_Z1kPU3AS1VKfPU3AS1fS2_S2_", "k", "ptr ptr ptr ptr"),
        ("_Z1kv", "k", ""),
        ("_Z1kachstijlmxyfdb", "k", "i8 i8 u8 i16 u16 i32 u32 i64 u64 i64 u64 f32 f64 bool"),
        ("_Z1kDhDF16_DF16bu6__bf16S_", "k", "f16 f16 bf16 bf16 bf16"),
        ("_Z1kP6TilingS_S0_", "k", None),  # S_ is the structure
        ("_Z1kP6TilingS0_", "k", "ptr ptr"),
        ("_Z1k6Tiling", "k", None),
        ("_Z3addIfEvPT_S1_", "add", None),
        ("_ZN2ns1kEPf", "_ZN2ns1kEPf", None),
        ("_Z1kS_", "k", None),
        ("_Z1kP", "k", None),
        ("_Z1kU3AS1", "k", None),
        ("_Z1k99999", "k", None),
        ("_Z1k" + "P" * 4000 + "f", "k", None),
        ("_Z99999999999999999999k", "_Z99999999999999999999k", None),
    ],
)
def test_what_a_cpp_name_says(symbol: str, name: str, words: str | None) -> None:
    found, codes = mangled.split(symbol)
    parsed = None if codes is None else mangled.parameter_words(codes)
    assert (found, parsed) == (name, None if words is None else words.split())


@given(st.text("PKVUSruDF16_b0123456789ahjlm", max_size=40))
def test_any_codes_are_read_or_given_up(codes: str) -> None:
    words = mangled.parameter_words(codes)
    assert words is None or all(isinstance(word, str) for word in words)


def test_places_of_parameters() -> None:
    obj = read(make_kernel_object("k", args=[8, 4, 2, 8], param_info=True))
    assert obj.kernels[0].parameters == ((0, 8), (8, 4), (12, 2), (16, 8))
    assert obj.to_dict()["kernels"][0]["parameters"] == [[0, 8], [8, 4], [12, 2], [16, 8]]
    assert read(make_kernel_object("k", args=2)).kernels[0].parameters is None
    summary = struct.pack("<HHIQ", 16, 12, 2, 16)
    first, second = (struct.pack("<HHIIII20x", 17, 36, index, index, 8 * index, 8) for index in (0, 1))
    assert kernel_meta(summary + second + first).parameters == ((0, 8), (8, 8))
    for damaged in (summary, summary + first, first + second, summary + first + first, summary + second + first[:12]):
        assert kernel_meta(damaged).parameters is None


def test_kernel_lookup_names_what_there_is() -> None:
    obj = read(make_kernel_object(["add_custom", KernelSpec("matmul", core="mix"), "_Z5scalePhS_j"]))
    assert [kernel.name for kernel in obj.kernels] == ["add_custom", "matmul", "_Z5scalePhS_j"]
    assert obj.kernel("matmul_mix_aiv") is obj.kernel("matmul")
    assert obj.kernel("scale") is obj.kernel("_Z5scalePhS_j")
    assert obj.kernel("_Z5scalePhS_j").demangled == "scale(unsigned char*, unsigned char*, unsigned int)"
    device = read(make_kernel_object("_Z10add_customPU3AS1hPU3AS1Kfj"))  # as bisheng names pointers into device memory
    assert (
        device.kernel("add_custom").demangled == "add_custom(unsigned char __gm__*, float __gm__ const*, unsigned int)"
    )
    with pytest.raises(KeyError, match=r"no kernel 'add_costum'.*did you mean add_custom\?"):
        obj.kernel("add_costum")
    with pytest.raises(KeyError, match="there is add_custom, matmul"):
        obj.kernel("softmax")


def test_demangle_leaves_alone_what_is_no_cpp_name() -> None:
    assert objfile.demangle("add_custom") == "add_custom"
    assert objfile.demangle("_Z") == "_Z"
    assert objfile.demangle("_Znonsense") == "_Znonsense"
    assert objfile.demangle("_Z" + "P" * 5000 + "i") == "_Z" + "P" * 5000 + "i"


@pytest.mark.parametrize(
    ("symbol", "ktype", "name"),
    [
        ("add_0", 3, "add_0"),
        ("add_0", None, "add_0"),
        ("add_0_mix_aic", 4, "add_0"),
        ("add_0_mix_aiv", 4, "add_0"),
        ("add_0_mix_aiv", 5, "add_0"),
        ("add_0_mix_aiv", None, "add_0"),
        ("add_0_mix_aiv", 3, "add_0_mix_aiv"),
        ("add_0_mix_aic", 6, "add_0"),
        ("add_0_mix_aiv", 6, "add_0_mix_aiv"),
        ("add_mix_aic_7", None, "add_7"),
        ("a_mix_aic_mix_aic", None, "a_mix_aic"),
        ("a_mix_aic_mix_aiv", None, "a"),
        ("a_mix_aic_mix_aiv", 4, "a_mix_aiv"),
    ],
)
def test_registered_name(symbol: str, ktype: int | None, name: str) -> None:
    assert registered_name(symbol, ktype) == name


@pytest.mark.parametrize(
    ("name", "entry", "key"),
    [
        ("add_0", None, 0),
        ("add_0012", None, 12),
        ("add_18446744073709551615", None, 2**64 - 1),
        ("add_18446744073709551616", None, None),
        ("add_" + "9" * 10_000, None, None),
        ("add_custom", None, None),
        ("add_", None, None),
        ("17", None, 17),
        ("add_٣", None, None),
        ("add_5", (0, 9), 9),
        ("add_5", (0x80, 0), None),
        ("add_5", (7, 9), 5),
    ],
)
def test_tiling_key(name: str, entry: tuple[int, int] | None, key: int | None) -> None:
    assert tiling_key(name, KernelMeta(entry=entry)) == key


def test_device_utilities_are_no_kernels() -> None:
    """Without `<name>__` a global function is a utility, but the runtime counts it."""
    data = bytearray(make_kernel_object(["add", "util"]))
    elf = Elf(bytes(data))
    symtab = elf.section(".symtab")
    assert symtab is not None
    # symbols: null, add, util, add__, util__: let util__ become an untyped one
    data[symtab.offset + 4 * 24 + 4] = 2 << 4
    obj = read(bytes(data))
    assert [entry.symbol for entry in obj.entries] == ["add"]
    assert obj.code.functions == ("add", "util")


def test_hidden_and_weak_and_long_named_functions_are_no_kernels() -> None:
    names = ["keep", "hidden", "weak", "n" * 4096, "n" * 4095]
    data = bytearray(make_kernel_object(names, arch="dav-2002"))
    symtab = Elf(bytes(data)).section(".symtab")
    assert symtab is not None
    data[symtab.offset + 2 * 24 + 5] = 2  # STV_HIDDEN
    data[symtab.offset + 3 * 24 + 4] = 2 << 4 | 2  # STB_WEAK
    assert [entry.symbol for entry in read(bytes(data)).entries] == ["keep", "n" * 4095]


def test_ffts_slot() -> None:
    mix = read(make_kernel_object("k", core="mix", args=3)).kernels[0]
    assert (mix.arg_size, mix.ffts, mix.user_sizes) == (32, True, (24,))
    by_symbol = read(make_kernel_object("k", core="mix", args=3, implicit=(2,))).kernels[0]
    assert (by_symbol.arg_size, by_symbol.ffts, by_symbol.user_sizes) == (24, False, (24,))
    sync = read(make_kernel_object("k", sync=True)).kernels[0]
    assert sync.ffts and sync.sync
    a5 = read(make_kernel_object("k", core="mix", arch="dav-3510", args=3)).kernels[0]
    assert (a5.arg_size, a5.ffts, a5.user_sizes) == (24, False, (24,))


def test_overflow_slot() -> None:
    declared = read(make_kernel_object("k", args=4, roles=["input", "output", "tiling", "overflow"])).kernels[0]
    assert declared.overflow is True and declared.user_sizes == (24,)
    assert declared.user_arguments is not None and len(declared.user_arguments) == 3
    unsaid = read(make_kernel_object("k", args=4, roles=[])).kernels[0]
    assert unsaid.overflow is None and unsaid.user_sizes == (32, 24)
    nothing = read(make_kernel_object("k", args=0, roles=[])).kernels[0]
    assert nothing.user_sizes == (0,)


def test_stack_records() -> None:
    assert read(make_kernel_object("k")).stack_size == 32768
    assert read(make_kernel_object("k", stack=16384)).stack_size == 16384
    assert read(make_kernel_object("k", stack=5)).stack_size is None
    assert read(make_kernel_object("k", stack=None)).stack_records == ()


# -- metadata ------------------------------------------------------------------------------------------------------


def test_groups_of_the_older_compiler_are_found() -> None:
    one, two = binary_meta(GROUP_34), binary_meta(GROUP_34 + b"\0\0" + GROUP_34)
    assert [len(group) for group in one.groups] == [4]
    assert [len(group) for group in two.groups] == [4, 4]
    assert two.groups[0] == one.groups[0]
    newer = binary_meta(GROUP_36 + GROUP_36)
    assert [[record.type for record in group] for group in newer.groups] == [[0, 1, 2, 3]] * 2
    assert newer.debug_options == ("printf", "assert") and newer.debug_buffer == 4096


def test_implicit_facilities_hidden_from_the_runtime() -> None:
    """The runtime's walk loses its way behind a 34-byte group; ours does not, and knows what the runtime sees."""
    ffts = struct.pack("<HHI", 4, 4, 2)
    meta = binary_meta(GROUP_34 + b"\0\0" + GROUP_34 + ffts)
    assert meta.implicit == {2}
    assert 2 not in meta.implicit_seen
    assert binary_meta(GROUP_36 + GROUP_36 + ffts).implicit_seen == {2}


def test_implicit_facilities_have_names() -> None:
    named = read(make_kernel_object("k", implicit=(1, 4, 99))).to_dict()["implicit"]
    assert named == ["SIMD print FIFO", "SIMT print FIFO", "99"]


def test_debug_payload_that_looks_like_a_group() -> None:
    """A buffer of 256 KiB with option 1 has the bytes of a group's start."""
    looks_alike = struct.pack("<HHI", 0, 4, 1) + struct.pack("<HHII", 1, 8, 0x40000, 1)
    meta = binary_meta(looks_alike)
    assert [len(group) for group in meta.groups] == [2]
    assert meta.debug_buffer == 0x40000


@given(st.binary(max_size=300))
def test_tlvs_stay_inside(stream: bytes) -> None:
    position = 0
    for record in tlvs(stream):
        assert record.offset >= position
        position = record.offset + 4 + len(record.payload)
        assert position <= len(stream)
        assert stream[record.offset + 4 : position] == record.payload


@given(st.lists(st.tuples(st.integers(1, 65535), st.binary(max_size=40)), max_size=10))
def test_tlvs_round_trip(records: list[tuple[int, bytes]]) -> None:
    records = [*records, (1, b"end")]  # a head with nothing behind it would not be a record for the runtime
    stream = b"".join(struct.pack("<HH", type_, len(payload)) + payload for type_, payload in records)
    assert [(record.type, record.payload) for record in tlvs(stream)] == records
    assert [(record.type, record.payload) for record in tlvs(b"head" + stream, start=4)] == records


# -- sidecars ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b'{"magic": NaN}', "NaN is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON" if hasattr(sys, "set_int_max_str_digits") else None),
        (b"[1]", "a JSON list, not an object"),
        (b'"x"', "a JSON str, not an object"),
    ],
    ids=["empty", "cut", "not UTF-8", "NaN", "deep", "many digits", "list", "text"],
)
def test_broken_sidecars_are_kept_as_an_error(text: bytes, error: str | None) -> None:
    sidecar = parse_sidecar(text)
    if error is None:
        assert sidecar.error is None
    else:
        assert sidecar.error is not None and error in sidecar.error
        assert sidecar.magic is None and sidecar.cpu_kernels == ()
        reasons = read(make_kernel_object("k", metadata=False), sidecar=text).verdict().reasons
        assert "unusable" in reasons[0]
    # metadata in the object makes the JSON unnecessary
    assert read(make_kernel_object("k"), sidecar=text).verdict().from_file


def test_sidecar_values_of_odd_types() -> None:
    odd = {"magic": 5, "intercoreSync": True, "debugOptions": 7, "coreType": [], "taskRation": "1:x", "opParaSize": "8"}
    sidecar = parse_sidecar(json.dumps(odd))
    assert sidecar.error is None
    assert (sidecar.magic, sidecar.inter_core_sync, sidecar.debug_options) == (None, False, None)
    assert (sidecar.core_type, sidecar.ratio, sidecar.tiling_size) == (None, None, None)
    assert parse_sidecar('{"taskRation": "1:2", "intercoreSync": 1.0, "opParaSize": 40}').ratio == (1, 2)
    assert "debugOptions" in read(make_kernel_object("k"), sidecar=odd).verdict().reasons[0]


# -- verdicts ------------------------------------------------------------------------------------------------------


def test_loads_from_file_with_metadata() -> None:
    for arch, core in [
        ("dav-2201", "aiv"),
        ("dav-2201", "aic"),
        ("dav-2201", "mix"),
        ("dav-3510", "aiv"),
        ("dav-3510", "aic"),
        ("dav-3510", "mix"),
        ("dav-2002", "aicore"),
        ("dav-1001", "aicore"),
    ]:
        verdict = read(make_kernel_object("k", arch=arch, core=core)).verdict()
        assert (verdict.from_file, verdict.from_data, verdict.magic, verdict.reasons) == (True, True, None, ())
        assert verdict.summary == "loads from file"


@pytest.mark.parametrize(
    ("options", "magic"),
    [
        ({}, "VECTOR"),
        ({"core": "aic"}, "AICORE"),
        ({"core": "mix"}, "AICORE"),
        ({"core": "mix", "ratio": (0, 1)}, "AICORE"),
        ({"arch": "dav-3510"}, "VECTOR"),
        ({"arch": "dav-2002"}, "AICORE"),
    ],
)
def test_without_metadata(options: dict[str, object], magic: str) -> None:
    data = make_kernel_object("k", metadata=False, **options)  # type: ignore[arg-type]
    verdict = read(data).verdict()
    assert (verdict.from_file, verdict.from_data, verdict.magic) == (False, True, magic)
    assert verdict.magic_value == {"VECTOR": 0x41415246, "AICORE": 0x43554245}[magic]
    assert verdict.reasons == ("no kernel metadata, and no JSON beside it",)
    assert "RT_DEV_BINARY_MAGIC_ELF" in verdict.advice[0]
    assert f"with MAGIC {magic}" in verdict.advice[1]
    advised = json.loads(verdict.advice[0].split(" with ")[1])
    assert read(data, sidecar=advised).verdict().from_file
    assert "no valid magic" in read(data, sidecar={"magic": "x"}).verdict().reasons[0]


def test_the_jsons_magic_decides() -> None:
    verdict = read(
        make_kernel_object("k", metadata=False), sidecar={"magic": "RT_DEV_BINARY_MAGIC_ELF_AICUBE"}
    ).verdict()
    assert verdict.from_file and verdict.magic == "CUBE" and verdict.magic_value == 0x41494343


def test_metadata_without_type() -> None:
    verdict = read(make_kernel_object("k", arch="dav-3510", ktype=False)).verdict()
    assert (verdict.from_file, verdict.from_data, verdict.magic) == (False, True, "VECTOR")
    assert "KTYPE" in verdict.reasons[0]
    # a JSON does not help, and says nothing wrong either
    with_json = read(make_kernel_object("k", arch="dav-3510", ktype=False), sidecar=make_sidecar()).verdict()
    assert with_json.reasons == verdict.reasons


def test_metadata_without_type_beside_metadata_with_it() -> None:
    """On 910B the last metadata section decides whether the types of all count; then a missing one is an error."""
    typed, untyped = KernelSpec("t"), KernelSpec("u", ktype=False)
    first = read(make_kernel_object([typed, untyped])).verdict()
    assert (first.from_file, first.from_data, first.magic) == (False, True, "VECTOR")
    last = read(make_kernel_object([untyped, typed])).verdict()
    assert not last.loadable and "some have none" in last.reasons[0]


def test_mixed_kernel_without_type_falls_apart_on_950() -> None:
    a5 = read(make_kernel_object("k", core="mix", arch="dav-3510", ktype=False))
    assert [kernel.name for kernel in a5.kernels] == ["k_mix_aic", "k_mix_aiv"]
    assert a5.verdict().magic == "AICORE" and "every half" in a5.verdict().cautions[0]
    vector_only = read(make_kernel_object("k", core="mix", ratio=(0, 1), arch="dav-3510", ktype=False))
    assert vector_only.verdict().magic == "VECTOR"
    # 910B ignores such sections and merges by name
    a2 = read(make_kernel_object("k", core="mix", ktype=False))
    assert [kernel.name for kernel in a2.kernels] == ["k"]
    assert a2.verdict().magic == "AICORE" and not a2.verdict().cautions


def test_metadata_for_some_kernels_only() -> None:
    data = make_kernel_object(["a", "b"]).replace(b".ascend.meta.b", b".escend.meta.b")
    obj = read(data)
    assert not obj.meta_complete
    verdict = obj.verdict()
    assert (verdict.from_file, verdict.magic) == (False, "VECTOR")
    assert "metadata for only some" in verdict.reasons[0]
    assert read(data, sidecar=make_sidecar()).verdict().from_file


def test_metadata_under_another_name() -> None:
    verdict = read(make_kernel_object(["a", "b"]).replace(b".ascend.meta.b", b".ascend.meta.x")).verdict()
    assert not verdict.loadable
    assert verdict.reasons == ("b: no metadata under its name",)


@pytest.mark.parametrize(
    ("options", "reason", "advice"),
    [
        ({"ktype": 9}, "kernel type 9", "compile it again"),
        ({"ktype": 1}, "AICORE is for Ascend 910", "--npu-arch"),
        ({"sched_mode": 2}, "scheduling mode 2", "compile it again"),
        ({"min_stack": 40_000}, "needs 40000 bytes of stack", '{"StackSize": {"aicore_stack_size": 49152}}'),
        ({"ktype": 4}, "no ratio with kernel type MIX_AIC_MAIN", "ratio"),
        ({"core": "mix", "ktype": 5}, "1:2 with kernel type MIX_AIV_MAIN", "ratio"),
        ({"ktype": 7}, "AIV_ROLLBACK kernels end in _mix_aiv", "-D<name>"),
        ({"arch": "dav-2002", "ktype": 3}, "Ascend 910 and 310P take AICORE", "compile it"),
    ],
)
def test_what_no_load_gets_around(options: dict[str, object], reason: str, advice: str) -> None:
    verdict = read(make_kernel_object("k", **options)).verdict()  # type: ignore[arg-type]
    assert not verdict.loadable and verdict.summary == "cannot be loaded"
    assert reason in verdict.reasons[0] and advice in verdict.advice[0]


def test_no_more_than_ten_reasons() -> None:
    verdict = read(make_kernel_object([f"k{number}" for number in range(100)], ktype=9)).verdict()
    assert len(verdict.reasons) == 11 and verdict.reasons[-1] == "and 90 more like these"
    assert len(verdict.advice) == 1


def test_two_kernels_under_one_name() -> None:
    data = make_kernel_object(["k", KernelSpec("k", core="mix")])
    assert "3 functions register as k" in read(data).verdict().reasons[0]


def test_printf_build() -> None:
    verdict = read(make_kernel_object("k", debug=["printf"]), sidecar={"debugOptions": "assert,printf"}).verdict()
    assert (verdict.from_file, verdict.from_data, verdict.magic) == (False, True, None)
    assert "printf" in verdict.reasons[0] and "from data" in verdict.advice[1]
    assert read(make_kernel_object("k"), sidecar={"debugOptions": "assert"}).verdict().from_file


def test_no_functions() -> None:
    verdict = read(make_kernel_object([])).verdict()
    assert not verdict.loadable and "exports no function" in verdict.reasons[0]


def test_unknown_architecture() -> None:
    data = bytearray(make_kernel_object("k"))
    struct.pack_into("<I", data, 48, 0x770000)
    obj = read(bytes(data))
    assert obj.architecture is None and obj.socs == () and obj.fits("Ascend910B1") is None
    assert "no known architecture" in obj.verdict().cautions[0]
    assert obj.verdict("Ascend910B1").loadable


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"text stub", "neither an ELF file nor an ar archive: it starts with 74 65 78 74"),
        (b'{"magic": "x"}', "this is JSON"),
        (b"PK\x03\x04rest", "zip archive or wheel"),
        (b"\x7fELF", "truncated: 4 bytes"),
    ],
)
def test_files_of_another_kind(data: bytes, message: str) -> None:
    with pytest.raises(KernelObjectError, match=message):
        read(data)


def _patched(offset: int, format_: str, value: int) -> bytes:
    data = bytearray(make_kernel_object("add", data=b"x" * 16))
    struct.pack_into(format_, data, offset, value)
    return bytes(data)


def _section_offset(name: str) -> int:
    elf = Elf(make_kernel_object("add", data=b"x" * 16))
    section = elf.section(name)
    assert section is not None
    return elf.header.shoff + 64 * section.number


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_patched(4, "B", 1), "32-bit"),
        (_patched(5, "B", 2), "big-endian"),
        (_patched(16, "<H", 3), "type 3"),
        (_patched(40, "<Q", 1 << 60), "truncated: the section headers end"),
        (_patched(58, "<H", 40), "section headers of 40 bytes"),
        (_patched(60, "<H", 0), "without section headers"),
        (_patched(60, "<H", 65535), "truncated"),
        (_patched(62, "<H", 100), "should be in section 100"),
        (_patched(_section_offset(".text") + 24, "<Q", 1 << 63), "truncated: section 1"),
        (_patched(_section_offset(".text") + 32, "<Q", (1 << 64) - 1), "truncated: section 1"),
        (_patched(_section_offset(".text"), "<I", 1 << 31), "a name lies at"),
        (_patched(_section_offset(".symtab") + 56, "<Q", 16), "entries of 16 bytes"),
        (_patched(_section_offset(".symtab") + 40, "<I", 99), "names section 99"),
        (_patched(_section_offset("__CCE_KernelArgSize") + 4, "<I", 0), "the argument size of 'add'"),
        (_patched(_section_offset("__CCE_KernelArgSize") + 32, "<Q", 2), "the argument size of 'add'"),
    ],
)
def test_damaged_elf_files(data: bytes, message: str) -> None:
    with pytest.raises(KernelObjectError, match=message):
        read(data)


def test_every_truncation_is_refused() -> None:
    data = make_kernel_object("add", core="mix")
    for length in range(len(data)):
        with pytest.raises(KernelObjectError):
            read(data[:length])


def test_overlapping_names_do_not_eat_memory() -> None:
    """Symbols whose names all lie inside one long string would cost 4 KiB for 24 bytes."""
    from pyacl.testing.objects import _Section, _Symbol, _write_elf

    count = 20_000
    elf = bytearray(
        _write_elf(
            2,
            0x1029,
            0x930000,
            [_Section(".text", 1, 6, bytes(64), 16)],
            [_Symbol("n" * 5000 if number == 0 else "", 2, 1, ".text", 0, 4) for number in range(count)],
        )
    )
    symtab = Elf(bytes(elf)).section(".symtab")
    assert symtab is not None
    for number in range(1, count + 1):
        struct.pack_into("<I", elf, symtab.offset + 24 * number, 1 + number % 4000)
    with pytest.raises(KernelObjectError, match="overlap"):
        read(bytes(elf))


def test_symbols_can_be_asked_for_again_and_again() -> None:
    elf = Elf(make_kernel_object("a_kernel_with_a_name"))
    first = elf.symbols()
    assert all(elf.symbols() == first for _ in range(5000))


def test_to_dict_is_json() -> None:
    device = make_kernel_object(["a", KernelSpec("b", core="mix", roles=["input"])], arch="dav-3510")
    for data in (device, make_host_object(device), make_archive({"x.o": device})):
        written = json.loads(json.dumps(read(data).to_dict()))
        assert written["size"] == len(data)
    kernel = read(device).to_dict()["kernels"][1]
    assert kernel["name"] == "b" and kernel["ratio"] == [1, 2]
    assert kernel["arguments"] == [{"role": "input", "size": -1}]
