"""Host libraries with kernels: what arrives in C is what the kernel's own argument block would hold."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from stub import require_gcc

import pyacl
from pyacl import objfile, sim
from pyacl.errors import AclInvalidArgumentError, AclTimeoutError, ClosedError, LibraryNotFoundError
from pyacl.kernel_library import KernelLibrary
from pyacl.testing import KernelSpec, make_kernel_object

SOURCE = Path(__file__).parent.parent / "support" / "kernel_library.c"


class Tiling(ctypes.Structure):
    _fields_ = [("length", ctypes.c_int32), ("scale", ctypes.c_double), ("flags", ctypes.c_uint8 * 3)]


class Small(ctypes.Structure):
    _fields_ = [("a", ctypes.c_float), ("b", ctypes.c_int32)]


TILING = np.dtype([("length", "i4"), ("scale", "f8"), ("flags", "u1", 3)], align=True)


class Call(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 64),
        ("blocks", ctypes.c_uint32),
        ("stream", ctypes.c_uint64),
        ("size", ctypes.c_uint32),
        ("block", ctypes.c_uint8 * 256),
    ]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    device = folder / "device.o"
    device.write_bytes(make_kernel_object([KernelSpec("add_custom", args=3), KernelSpec("tiled", arg_size=32)]))
    built = folder / "libkernels.so"
    subprocess.run(
        [require_gcc(), "-shared", "-fPIC", "-Wall", "-Werror", f'-DDEVICE_BINARY="{device}"', "-o", built, SOURCE],
        check=True,
    )
    return built


@pytest.fixture
def device():
    pyacl.use_backend(sim.Backend(devices=2))
    with pyacl.Device(0) as opened:
        yield opened
    pyacl.use_backend("sim")


@pytest.fixture
def stream(device):
    return device.create_stream()


@pytest.fixture
def library(path, device):
    found = KernelLibrary(path)
    found.last = Call.in_dll(found._library, "last_call")
    found.next_code = ctypes.c_uint32.in_dll(found._library, "next_code")
    ctypes.memset(ctypes.byref(found.last), 0, ctypes.sizeof(Call))
    found.next_code.value = 0
    return found


def block(library):
    return bytes(library.last.block[: library.last.size])


# -- what arrives ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["add_custom", "add_custom_do", "aclrtlaunch_add_custom", "_Z13add_custom_dojPvPhS0_S0_"]
)
def test_pointers(library, device, stream, name):
    x, y, z = (device.empty(16, np.float16) for _ in range(3))
    library[name][8, stream](x, y, z)
    assert library.last.name == (b"add_custom_do" if "_do" in name else b"add_custom")
    assert library.last.blocks == 8
    assert library.last.stream == stream._handle.get().value
    assert block(library) == struct.pack("<3Q", x.address, y.address, z.address)


def test_numbers_arrive_as_a_kernel_reads_them(library, device, stream):
    x = device.empty(4)
    values = (
        np.int8(-1),
        np.uint16(65535),
        np.float32(1.5),
        np.bool_(True),
        np.int64(-2),
        np.float64(0.1),
        np.uint32(7),
    )
    library["scale"][1, stream](x, *values)
    assert block(library) == pyacl.arguments.Packer("scale").pack((x, *values)).block
    library.kernel("scale", "ptr i8 u16 f32 bool i64 f64 u32")[1, stream](x, -1, 65535, 1.5, True, -2, 0.1, 7)
    assert block(library) == pyacl.arguments.Packer("scale").pack((x, *values)).block
    as_ctypes = (
        ctypes.c_int8(-1), ctypes.c_uint16(65535), ctypes.c_float(1.5), ctypes.c_bool(True), ctypes.c_int64(-2),
        ctypes.c_double(0.1), ctypes.c_uint32(7),
    )  # fmt: skip
    library["scale"][1, stream](x, *as_ctypes)
    assert block(library) == pyacl.arguments.Packer("scale").pack((x, *values)).block


@pytest.mark.parametrize("name", ["tiled", "by_value"])
@pytest.mark.parametrize("kind", ["ctypes", "numpy"])
def test_structures(library, device, stream, name, kind):
    x = device.empty(4)
    tiling = Tiling(3, 2.5, (1, 2, 3))
    given = tiling if kind == "ctypes" else np.array((3, 2.5, (1, 2, 3)), TILING)[()]
    library[name][1, stream](x, given)
    assert block(library) == struct.pack("<Q", x.address) + bytes(tiling)


def test_small_structures_go_by_value_as_c_has_it(library, device, stream):
    library["by_small_value"][1, stream](Small(1.5, -3), np.float32(2.5))
    assert block(library) == struct.pack("<fif", 1.5, -3, 2.5)
    record = np.array((1.5, -3), np.dtype([("a", "f4"), ("b", "i4")], align=True))[()]
    library["by_small_value"][1, stream](record, np.float32(2.5))
    assert block(library) == struct.pack("<fif", 1.5, -3, 2.5)


def test_bytes_are_enough_for_a_generated_entry_point(library, device, stream):
    x = device.empty(4)
    library["tiled"][1, stream](x, bytes(Tiling(3, 2.5, (1, 2, 3))))
    assert block(library) == struct.pack("<Q", x.address) + bytes(Tiling(3, 2.5, (1, 2, 3)))


def test_a_host_pointer_reaches_a_function_as_it_is(library, device, stream):
    x = device.empty(4)
    library["with_code"][1, stream](x, ctypes.byref(Tiling(77)))
    assert block(library) == struct.pack("<Qi4x", x.address, 77)
    library.kernel("with_code", "ptr ptr")[1, stream](x, ctypes.pointer(Tiling(78)))
    assert block(library) == struct.pack("<Qi4x", x.address, 78)


def test_cpp_functions_bring_their_signature(library, device, stream):
    x = device.empty(4)
    library.kernel("old_style", head="blocks l2ctrl stream")[2, stream](x, 5)
    assert library.last.stream == stream._handle.get().value
    assert block(library) == struct.pack("<QQi4x", 0, x.address, 5)
    library["_Z10overloadedjPvPhf"][1, stream](x, 0.5)
    assert library.last.name == b"overloaded float" and block(library) == struct.pack("<Qf4x", x.address, 0.5)
    with pytest.raises(TypeError, match=r"add_custom_do takes 3 arguments \(ptr ptr ptr\), not 2"):
        library["add_custom_do"][1, stream](x, x)


def test_the_arguments_live_until_the_stream_has_passed(library, device, stream):
    x = device.empty(4)
    library["add_custom_do"][1, stream](x, x, x)
    assert any(x in kept[0] for kept in stream._handle.kept)
    stream.synchronize()
    assert not stream._handle.kept


def test_the_streams_device_is_current_during_the_call(library, device):
    with pyacl.Device(1) as other:
        far = other.create_stream()
        x = other.empty(4)
        library["add_custom_do"][1, far](x, x, x)
        assert library.last.stream == far._handle.get().value


def test_host_arrays_get_buffers_and_copies(library, device, stream):
    """The library computes nothing, so what comes back is what was there."""
    x, y = np.arange(4, dtype=np.float32), np.arange(4, dtype=np.float32)
    library["add_custom_do"][1, stream](pyacl.In(x), pyacl.InOut(y), device.empty(4))
    first, second, _ = struct.unpack("<3Q", block(library))
    assert first and second and first != second
    assert y.tolist() == [0, 1, 2, 3]
    with pytest.raises(TypeError, match="takes 3 arguments"):
        library["add_custom_do"][1, stream](pyacl.In(x))


def test_buffers_of_another_device_are_refused(library, device, stream):
    with pyacl.Device(1) as other, pytest.raises(ValueError, match="argument 2 of 3 .*belongs to device 1, not to"):
        library["add_custom_do"][1, stream](device.empty(4), other.empty(4), device.empty(4))


# -- results ---------------------------------------------------------------------------------------------------------


def test_codes_become_errors(library, device, stream):
    x = device.empty(4)
    library.next_code.value = 107000
    with pytest.raises(AclInvalidArgumentError) as caught:
        library["add_custom"][8, stream](x, x, x)
    assert caught.value.code == 107000 and caught.value.function == "aclrtlaunch_add_custom"
    library.next_code.value = 507046
    with pytest.raises(AclTimeoutError):
        library.kernel("with_code", returns="code")[8, stream](x, ctypes.byref(Tiling()))
    library["with_code"][8, stream](x, ctypes.byref(Tiling()))  # not asked for its code
    assert library.kernel("add_custom", returns="nothing").launch(x, x, x, blocks=1, stream=stream) is None


def test_a_function_without_a_code_is_asked_for_the_last_error(library, device, stream, monkeypatch):
    asked = []

    def last_error(level):
        asked.append(level)
        return 107003 if len(asked) == 2 else 0

    x = device.empty(4)
    monkeypatch.setattr(device._handle.api.unchecked, "aclrtGetLastError", last_error)
    with pytest.raises(pyacl.AclError) as caught:
        library["add_custom_do"][8, stream](x, x, x)
    assert caught.value.code == 107003 and caught.value.function == "_Z13add_custom_dojPvPhS0_S0_"
    assert len(asked) == 2


# -- refusals --------------------------------------------------------------------------------------------------------


def test_missing_names_list_what_is_there(library):
    with pytest.raises(pyacl.KernelNotFoundError) as caught:
        library["add_custm"]
    message = str(caught.value)
    assert "libkernels.so has no kernel 'add_custm'; did you mean add_custom" in message
    assert "it has add_custom, scale, tiled, " in message
    assert {"add_custom", "scale", "tiled"} == set(library.names[:3])
    assert "hidden" not in library.names and "add_custom_do" in library.names
    assert "add_custom" in library and "aclrtlaunch_add_custom" in library and "nothing" not in library


def test_overloads_must_be_told_apart(library):
    with pytest.raises(KeyError, match="several functions overloaded; give the symbol of one: _Z10overloadedjPvPh"):
        library["overloaded"]


def test_functions_that_are_no_launchers(library):
    with pytest.raises(TypeError, match=r"does not start with \(uint32_t blocks, void \*stream\) but with \(f32\)"):
        library["no_launcher"]


@pytest.mark.parametrize(
    "name, signature, args, message",
    [
        ("add_custom", None, lambda x: (x, x, 5), "argument 3 of 3: a bare Python int has no width"),
        ("add_custom", None, lambda x: (x, x), "the arguments take 16 bytes, the kernel reads 24: <Layout"),
        ("add_custom", None, lambda x: (x, x, x, x), "the arguments take 32 bytes, the kernel reads 24"),
        ("add_custom", None, lambda x: (x, x, np.zeros(4)), r"a numpy array \(float64\[4\]\) is host memory"),
        ("add_custom", None, lambda x: (x, x, ctypes.byref(Tiling())), "argument 3 of 3: a host address"),
        ("add_custom", None, lambda x: (x, x, pyacl.Placeholder(np.int32(1))), "argument 3 .* has no placeholders"),
        ("by_value", None, lambda x: (x, bytes(24)), "argument 2 of 2: C passes a structure by"),
        ("scale", None, lambda x: (x, np.float16(1)), "argument 2 of 2: C has no half-precision parameters"),
        ("scale", "ptr f16", lambda x: (), r"argument 2 \(f16\): C has no half-precision parameters"),
        ("add_custom_do", None, lambda x: (x, x, 5), r"argument 3 of 3 \(ptr\): a number \(5\) is no pointer"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(library, device, stream, name, signature, args, message):
    x = device.empty(4)
    with pytest.raises(TypeError, match=message):
        library.kernel(name, signature)[1, stream](*args(x))
    assert library.last.name == b""


@pytest.mark.parametrize("blocks", [0, -1, 65536])
def test_blocks_are_checked(library, device, stream, blocks):
    x = device.empty(4)
    with pytest.raises(ValueError, match=f"blocks: {blocks} is not in 1 to 65535"):
        library["add_custom"][blocks, stream](x, x, x)


def test_where_to_launch_is_checked(library, device, stream):
    x = device.empty(4)
    with pytest.raises(TypeError, match="give the number of blocks and a stream"):
        library["add_custom"][8](x, x, x)
    with pytest.raises(TypeError, match="blocks: a whole number, not float"):
        library["add_custom"][8.0, stream](x, x, x)
    with pytest.raises(TypeError, match="stream is a Stream, such as device.default_stream, not int"):
        library["add_custom"][8, 0](x, x, x)
    stream.close()
    with pytest.raises(ClosedError):
        library["add_custom"][8, stream](x, x, x)
    with pytest.raises(ValueError, match="neither 'blocks stream' nor"):
        library.kernel("add_custom", head="stream blocks")
    with pytest.raises(ValueError, match="neither 'code' nor 'nothing'"):
        library.kernel("add_custom", returns="int")


def test_files_that_are_no_libraries(device, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no library"):
        KernelLibrary(tmp_path / "no.so")
    (tmp_path / "text.so").write_text("hello")
    with pytest.raises(objfile.KernelObjectError, match=r"text\.so is no library: not an ELF file"):
        KernelLibrary(tmp_path / "text.so")
    (tmp_path / "device.o").write_bytes(make_kernel_object("add_custom"))
    with pytest.raises(objfile.KernelObjectError, match=r"a device binary is loaded with device\.load"):
        KernelLibrary(tmp_path / "device.o")


def test_a_library_whose_needs_are_not_met(device, tmp_path):
    source = tmp_path / "needy.c"
    source.write_text("void absent(void); void launch(void) { absent(); }")
    built = tmp_path / "libneedy.so"
    subprocess.run([require_gcc(), "-shared", "-fPIC", "-Wl,-z,now", "-o", built, source], check=True)
    with pytest.raises(LibraryNotFoundError, match=r"cannot be opened: .*undefined symbol: absent.*The backend is sim"):
        KernelLibrary(built)


def test_reprs(library):
    assert repr(library).startswith(f"<KernelLibrary {library.path}: add_custom, scale, tiled")
    assert repr(library["scale"]) == f"<LibraryKernel scale of {library.path}>"
