"""Kernel binaries on the simulated NPU: what loads, under which names, with which types and slots."""

from __future__ import annotations

import contextlib
import ctypes
import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import undefined
from simulated_kernels import AICORE, CUBE, NOT_SUPPORTED, PARAM_INVALID, VECTOR, Handle, Kernels, code

from pyacl import AclError
from pyacl.backends.sim.engine import chips, elfload
from pyacl.backends.sim.engine.elfload import LoadFailure
from pyacl.objfile.elf import SECTION_DTYPE
from pyacl.raw import types as c
from pyacl.testing import KernelSpec, make_host_object, make_kernel_object, make_sidecar

SPLIT = chips.features("Ascend910B")
DUPLICATE, INVALID_HANDLE = 507028, 107017


@pytest.fixture
def calls():
    return Kernels()


def read(data, machine=elfload.MIX, features=SPLIT):
    return elfload.read(data, machine, features)


# ---- the reader ----------------------------------------------------------------------------------------------


def test_reads_what_the_metadata_says():
    binary = read(make_kernel_object("k", core="mix", ratio=(1, 2), args=2))
    cube, vector = binary.kernels
    assert (cube.name, vector.name) == ("k_mix_aic", "k_mix_aiv")
    assert (cube.ktype, cube.cores, cube.ratio) == (4, (1, 2), 2)
    assert (cube.offset, cube.length, vector.offset) == (0, 256, 256)
    assert binary.complete
    assert binary.text_size == 512


def test_the_last_listed_argument_is_counted_by_its_record_alone():
    # the records of the arguments are cut 4 bytes short, so the last one is not counted; one is added for the overflow
    assert read(make_kernel_object("k", args=3)).kernels[0].arguments == 3
    assert read(make_kernel_object("k", args=3, roles=())).kernels[0].arguments == 0
    assert read(make_kernel_object("k", metadata=False)).kernels[0].arguments == 128


@pytest.mark.parametrize(
    ("offset", "value", "why"),
    [
        (4, b"\1", "64-bit"),
        (58, b"\0\0", "section headers"),
        (60, b"\0\0", "section headers"),
        (40, b"\xff" * 4, "end"),
    ],
)
def test_refuses_a_broken_header(offset, value, why):
    data = bytearray(make_kernel_object("k"))
    data[offset : offset + len(value)] = value
    with pytest.raises(LoadFailure, match=why):
        read(bytes(data))


@pytest.mark.parametrize(("offset", "value"), [(0, b"none"), (16, b"\1\0"), (18, b"\x3e\0"), (48, b"\0\0\0\0")])
def test_looks_at_neither_magic_type_machine_nor_flags(offset, value):
    data = bytearray(make_kernel_object("k"))
    data[offset : offset + len(value)] = value
    assert read(bytes(data)).kernels[0].name == "k"


@settings(deadline=None)
@given(st.data())
def test_damaged_files_fail_or_load_but_never_raise_anything_else(data):
    content = bytearray(make_kernel_object(["a", KernelSpec("b", core="mix", args=(8, 4))], sync=True, sched_mode=1))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(content)))
    with contextlib.suppress(LoadFailure):
        read(bytes(content[:end]))


def test_minimum_stack_and_schedule_mode_are_checked():
    with pytest.raises(LoadFailure, match="k needs 40960 bytes of stack, 32768"):
        read(make_kernel_object("k", min_stack=40960))
    assert read(make_kernel_object("k", min_stack=40960), features=chips.features("Ascend310P")).kernels[0].name == "k"
    with pytest.raises(LoadFailure, match="schedule mode of k is 2"):
        read(make_kernel_object("k", sched_mode=2))


def test_a_file_without_functions_or_symbols():
    data = bytearray(make_kernel_object("k"))
    start, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for index in range(count):
        at = start + index * SECTION_DTYPE.itemsize
        if struct.unpack_from("<I", data, at + 4)[0] == 2:
            table = struct.unpack_from("<Q", data, at + 24)[0]
            size = struct.unpack_from("<Q", data, at + 32)[0]
            nothing = bytearray(data)
            struct.pack_into("<I", nothing, at + 4, 1)
            with pytest.raises(LoadFailure, match="no symbol table"):
                read(bytes(nothing))
            for symbol in range(table, table + size, 24):
                data[symbol + 4] = 0x11
    with pytest.raises(LoadFailure, match="no functions"):
        read(bytes(data))


# ---- loading -------------------------------------------------------------------------------------------------


def test_loads_a_file_with_metadata(calls, tmp_path):
    path = tmp_path / "k.o"
    path.write_bytes(make_kernel_object("k"))
    function = calls.function(calls.load_file(path), "k")
    assert calls.name(function) == "k"
    assert calls.type(function) == 2
    cube, vector = calls.addresses(function)
    assert cube == 0
    assert calls.bytes_at(vector, 256) == make_kernel_object("k")[read(make_kernel_object("k")).text_offset :][:256]


@pytest.mark.parametrize(
    ("magic", "kind"),
    [
        ("RT_DEV_BINARY_MAGIC_ELF", 0),
        ("RT_DEV_BINARY_MAGIC_ELF_AICUBE", 1),
        ("RT_DEV_BINARY_MAGIC_ELF_AIVEC", 2),
        ("FFTS_BINARY_MAGIC_ELF_MIX_AIC", 2),
    ],
)
def test_the_json_says_what_a_file_without_metadata_holds(calls, tmp_path, magic, kind):
    (tmp_path / "k.o").write_bytes(make_kernel_object("k", metadata=False))
    (tmp_path / "k.json").write_bytes(make_sidecar(magic))
    assert calls.type(calls.function(calls.load_file(tmp_path / "k.o"), "k")) == kind


@pytest.mark.parametrize("text", ["", "{}", "{", '{"magic": "none"}', '{"magic": NaN}', "5", "[]", "null"])
def test_a_json_that_says_nothing(calls, tmp_path, text):
    (tmp_path / "k.o").write_bytes(make_kernel_object("k", metadata=False))
    (tmp_path / "k.json").write_text(text)
    assert code(calls.load_file, tmp_path / "k.o") == PARAM_INVALID
    (tmp_path / "k.o").write_bytes(make_kernel_object("k"))
    calls.load_file(tmp_path / "k.o")


def test_json_rules_of_the_library(calls, tmp_path):
    (tmp_path / "k.o").write_bytes(make_kernel_object("k"))
    beside = tmp_path / "k.json"
    beside.write_text(json.dumps({"debugOptions": "oom,printf"}))
    assert code(calls.load_file, tmp_path / "k.o") == PARAM_INVALID
    beside.write_text(json.dumps({"debugOptions": 5}))
    with undefined("debugOptions", "5"):
        calls.load_file(tmp_path / "k.o")
    beside.write_bytes(b"\xef\xbb\xbf" + json.dumps({"intercoreSync": 1.0}).encode())
    assert calls.number("aclrtKernelArgsGetMemSize", calls.function(calls.load_file(tmp_path / "k.o"), "k"), 0)
    handle = Handle(calls, calls.function(calls.load_file(tmp_path / "k.o"), "k"), 256)
    handle.append(b"\1" * 8)
    assert handle.block.raw[:16] == b"\xee" * 8 + b"\1" * 8  # the synchronization slot comes first
    beside.write_text('{"intercoreSync": true}')
    handle = Handle(calls, calls.function(calls.load_file(tmp_path / "k.o"), "k"), 256)
    handle.append(b"\1" * 8)
    assert handle.block.raw[:8] == b"\1" * 8


@pytest.mark.parametrize("content", [b"", b"hello", b"\0" * 4096, make_host_object(make_kernel_object("k"))])
def test_files_that_are_no_kernels(calls, tmp_path, content):
    (tmp_path / "k.o").write_bytes(content)
    assert code(calls.load_file, tmp_path / "k.o") == PARAM_INVALID
    assert code(calls.load_file, tmp_path) == PARAM_INVALID
    assert code(calls.load_file, tmp_path / "missing.o") == PARAM_INVALID
    assert code(calls.load_file, "") == PARAM_INVALID


def test_a_refused_file_says_why(calls, tmp_path):
    path = tmp_path / "plain.o"
    path.write_bytes(make_kernel_object("k", metadata=False))
    with pytest.raises(AclError, match=r"plain.o was not loaded: it lacks metadata, and there is no json") as caught:
        calls.load_file(path)
    assert caught.value.code == PARAM_INVALID


def test_options(calls):
    data = make_kernel_object("k", metadata=False)
    assert code(calls.load, data) == PARAM_INVALID
    assert calls.type(calls.function(calls.load(data, (2, AICORE)), "k")) == 0
    assert calls.type(calls.function(calls.load(data, (2, VECTOR)), "k")) == 2
    assert calls.type(calls.function(calls.load(data, (2, CUBE), (1, 0)), "k")) == 1
    for bad in ((2, 5), (1, 2), (3, 0), (3, 1), (0, 0), (4, 0)):
        assert code(calls.load, data, (2, VECTOR), bad) == PARAM_INVALID
    assert code(calls.load_file, "/dev/null", (2, VECTOR)) == PARAM_INVALID


def test_metadata_goes_before_the_magic(calls):
    assert calls.type(calls.function(calls.load(make_kernel_object("k", core="aic"), (2, VECTOR)), "k")) == 1


def test_data_with_metadata_that_lacks_the_type(calls):
    assert code(calls.load, make_kernel_object("k", ktype=False)) == PARAM_INVALID
    assert calls.type(calls.function(calls.load(make_kernel_object("k", ktype=False), (2, CUBE)), "k")) == 1


def test_types_that_a_chip_refuses():
    data = make_kernel_object("k", arch="dav-2002", ktype=1)
    assert code(Kernels().load, data) == PARAM_INVALID
    assert Kernels(soc="Ascend310P3").load(data).value
    assert code(Kernels(soc="Ascend310P3").load, make_kernel_object("k")) == PARAM_INVALID


@pytest.mark.parametrize(
    "soc", ["Ascend910B3", "Ascend910_9362", "Ascend950DT_950x", "Ascend310P3", "Ascend910A", "Ascend310B1"]
)
def test_every_chip_takes_a_file_by_its_magic(soc):
    calls = Kernels(soc=soc)
    function = calls.function(calls.load(make_kernel_object("k", metadata=False), (2, AICORE)), "k")
    assert calls.name(function) == "k"


def test_old_style(calls):
    data = make_kernel_object("k")
    buffer = ctypes.create_string_buffer(data, len(data))
    made = calls.api.aclrtCreateBinary(ctypes.addressof(buffer), len(data))
    binary = c.aclrtBinHandle()
    calls.api.aclrtBinaryLoad(made, binary)
    calls.api.aclrtDestroyBinary(made)
    assert calls.type(calls.function(binary, "k")) == 2
    calls.api.aclrtBinaryUnLoad(binary)
    plain = make_kernel_object("k", metadata=False)
    buffer = ctypes.create_string_buffer(plain, len(plain))
    made = calls.api.aclrtCreateBinary(ctypes.addressof(buffer), len(plain))
    assert calls.code("aclrtBinaryLoad", made, binary) == PARAM_INVALID
    other = Kernels(soc="Ascend310B1")
    made = other.api.aclrtCreateBinary(ctypes.addressof(buffer), len(plain))
    assert other.code("aclrtBinaryLoad", made, binary) == NOT_SUPPORTED


# ---- names, entries, halves ----------------------------------------------------------------------------------


def test_names_lose_their_half(calls):
    binary = calls.load(make_kernel_object("k", core="mix", tiling_key=7))
    function = calls.function(binary, "k_7")
    assert calls.type(function) == 3
    assert code(calls.function, binary, "k_7_mix_aic") == PARAM_INVALID
    assert code(calls.function, binary, "k") == PARAM_INVALID
    assert calls.by_entry(binary, 7).value == function.value
    cube, vector = calls.addresses(function)
    assert vector - cube == 256


def test_a_missing_function_lists_those_there_are(calls):
    binary = calls.load(make_kernel_object(["beta", "alpha"]))
    with pytest.raises(AclError, match="has no function gamma; it has: alpha, beta"):
        calls.function(binary, "gamma")
    with pytest.raises(AclError, match="has no function entry 9; it has: none"):
        calls.by_entry(binary, 9)


def test_entries(calls):
    binary = calls.load(make_kernel_object(["a_3", "b_3", "c_18446744073709551615", "d_18446744073709551616", "5"]))
    assert calls.name(calls.by_entry(binary, 3)) == "a_3"  # the first of two with a number
    assert calls.name(calls.by_entry(binary, 2**64 - 1)) == "c_18446744073709551615"
    assert calls.name(calls.by_entry(binary, 5)) == "5"
    assert code(calls.by_entry, binary, 0) == PARAM_INVALID
    binary = calls.load(make_kernel_object("e_3", arch="dav-3510", entry=99))
    assert calls.name(calls.by_entry(binary, 99)) == "e_3"
    binary = calls.load(make_kernel_object("f_3", arch="dav-3510", entry=False))
    assert code(calls.by_entry, binary, 3) == PARAM_INVALID


def test_the_same_name_twice(calls):
    data = make_kernel_object(["k", "kk"], metadata=False).replace(b"\0kk\0", b"\0k\0\0")
    assert code(calls.load, data, (2, VECTOR)) == DUPLICATE


def test_names_without_metadata_join_their_halves(calls):
    data = make_kernel_object("k", core="mix", metadata=False)
    function = calls.function(calls.load(data, (2, AICORE)), "k")
    assert calls.type(function) == 3


def test_sizes_and_binaries_of_functions():
    calls = Kernels(cann="9.1.0")
    binary = calls.load(make_kernel_object("k", core="mix", ratio=(1, 2), code_size=128))
    function = calls.function(binary, "k")
    cube, vector = ctypes.c_size_t(), ctypes.c_size_t()
    calls.api.aclrtGetFunctionSize(function, cube, vector)
    assert (cube.value, vector.value) == (128, 128)
    found = c.aclrtBinHandle()
    calls.api.aclrtFunctionGetBinary(function, found)
    assert found.value == binary.value
    assert calls.number("aclrtGetFunctionAttribute", function, 2, kind=ctypes.c_int64) == 1 << 16 | 2
    assert calls.number("aclrtGetFunctionAttribute", function, 3, kind=ctypes.c_int64) == 0
    older = Kernels()
    assert older.code("aclrtGetFunctionAttribute", older.kernel("k"), 2, ctypes.c_int64()) == PARAM_INVALID


# ---- devices -------------------------------------------------------------------------------------------------


def test_a_function_belongs_to_the_devices_on_which_it_was_taken(calls):
    binary = calls.load(make_kernel_object("k"))
    function = calls.function(binary, "k")
    first = calls.addresses(function)[1]
    calls.api.aclrtSetDevice(1)
    assert calls.addresses(function) == (0, 0)
    calls.s = calls.stream()
    assert code(calls.host_launch, function, b"\0" * 24) == INVALID_HANDLE
    assert calls.function(binary, "k").value == function.value
    second = calls.addresses(function)[1]
    assert second not in (0, first)


def test_a_reset_takes_the_code_away():
    calls = Kernels(unregistered="skip")
    binary = calls.load(make_kernel_object("k"))
    function = calls.function(binary, "k")
    calls.host_launch(function, b"\0" * 24)
    calls.sync()
    calls.api.aclrtResetDeviceForce(0)
    calls.api.aclrtSetDevice(0)
    calls.s = calls.stream()
    assert code(calls.host_launch, function, b"\0" * 24) == INVALID_HANDLE
    calls.function(binary, "k")
    calls.host_launch(function, b"\0" * 24)


def test_lazy_loading_copies_at_the_first_use():
    calls = Kernels(unregistered="skip")
    data = make_kernel_object("k")
    binary = calls.load(data, (1, 1))
    where, size = ctypes.c_void_p(), ctypes.c_size_t()
    calls.api.aclrtBinaryGetDevAddress(binary, where, size)
    assert (where.value, size.value) == (None, len(data))
    function = calls.function(binary, "k")
    calls.api.aclrtBinaryGetDevAddress(binary, where, size)
    assert where.value is None
    calls.host_launch(function, b"\0" * 24)
    calls.api.aclrtBinaryGetDevAddress(binary, where, size)
    assert calls.addresses(function) == (0, where.value)


def test_unloading(calls):
    binary = calls.load(make_kernel_object("k"))
    function = calls.function(binary, "k")
    calls.api.aclrtBinaryUnLoad(binary)
    with undefined("aclrtGetFunctionName", "kernel function", "was destroyed at", "test_sim_kernel_loading"):
        calls.name(function)
    with undefined("aclrtBinaryUnLoad", "kernel binary", "was destroyed"):
        calls.api.aclrtBinaryUnLoad(binary)


def test_a_launch_that_outlives_its_binary():
    calls = Kernels(unregistered="skip")
    binary = calls.load(make_kernel_object("k"))
    calls.host_launch(calls.function(binary, "k"), b"\0" * 24)
    calls.api.aclrtBinaryUnLoad(binary)
    with undefined("k runs after its binary was unloaded"):
        calls.sync()


# ---- AI CPU kernels ------------------------------------------------------------------------------------------


def test_cpu_kernels_out_of_a_json(calls, tmp_path):
    (tmp_path / "lib.json").write_text(
        json.dumps({"Add": {"opInfo": {"functionName": "add", "kernelSo": "libadd.so"}}, "None": {"other": 1}})
    )
    binary = calls.load_file(tmp_path / "lib.so", (3, 0))
    function = calls.function(binary, "Add")
    assert calls.type(function) == 100
    assert code(calls.function, binary, "None") == PARAM_INVALID
    assert calls.code("aclrtGetFunctionAddr", function, ctypes.c_void_p(), ctypes.c_void_p()) == PARAM_INVALID
    assert code(calls.by_entry, binary, 0) == PARAM_INVALID
    assert code(calls.load_file, tmp_path / "lib.so", (3, 1)) == PARAM_INVALID  # there is no library
    (tmp_path / "lib.so").write_bytes(b"\x7fELF")
    calls.load_file(tmp_path / "lib.so", (3, 1))
    assert code(calls.load_file, tmp_path / "other.so", (3, 0)) == PARAM_INVALID


def test_registering_cpu_functions(calls):
    binary = calls.load(b"\x7fELF library", (3, 2))
    first = c.aclrtFuncHandle()
    calls.api.aclrtRegisterCpuFunc(binary, b"run", b"Mul", first)
    again = c.aclrtFuncHandle()
    calls.api.aclrtRegisterCpuFunc(binary, b"other", b"Mul", again)
    assert again.value == first.value
    assert calls.name(first) == "Mul"
    # neither hidden slots nor alignment
    assert calls.number("aclrtKernelArgsGetMemSize", first, 13) == 13
    handle = Handle(calls, first, 64)
    handle.append(b"\1" * 3)
    handle.append(b"\2" * 4)
    handle.finalize()
    assert handle.block.raw[:9] == b"\1\1\1\2\2\2\2\xee\xee"
    kernel = calls.load(make_kernel_object("k"))
    assert calls.code("aclrtRegisterCpuFunc", kernel, b"run", b"Mul", again) == PARAM_INVALID
    assert again.value is None


# ---- real objects --------------------------------------------------------------------------------------------


def test_real_objects(calls, real_kernels):
    """Names, types and argument room as measured on the real library."""
    cases = {
        "910b_aiv_nometa": ("AddRelu_1907f3e124c32ea4c8637789e310b4df_0", 2, 128),
        "910b_mix_1_2_ffts": ("OffsetsRange_67fb5b7825e97597c68d8ae6a1db5fc8_0", 3, 5),
        "910b_mix_0_1": ("AsynchronousCompleteCumsum_324b5ed0a0933320b576f762c0ebee12_0", 2, 5),
        "310p_aicore": ("MaxPool2d_8204ccc9e48524fd9e8969445b1f426a_0", 0, 128),
    }
    for case, (name, kind, room) in cases.items():
        path = next(real_kernels[case].glob("*.o")) if real_kernels[case].is_dir() else real_kernels[case]
        function = calls.function(calls.load_file(path), name)
        assert calls.type(function) == kind, case
        assert calls.number("aclrtKernelArgsGetHandleMemSize", function) == 80 + 32 * room, case
