"""What a kernel's own file says about it, and what becomes of that: ways to load it, signatures, sizes, places."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from pyacl_api import ADD, Machine, forget, use

import pyacl
from pyacl import sim
from pyacl.testing import make_host_object, make_kernel_object


@pytest.fixture
def device(machine: Machine):
    with pyacl.Device(0) as device:
        yield device


# -- loading -----------------------------------------------------------------------------------------------------------


def options_of(machine: Machine, device: pyacl.Device, monkeypatch: pytest.MonkeyPatch, *args: object, **named: object):
    """Which function loads, and the options it gets: pairs of type and value."""
    seen = []
    core = device._handle
    real = core.call

    def call(name: str, *arguments):
        if name.startswith("aclrtBinaryLoad"):
            options = next((a for a in arguments if hasattr(a, "numOpt")), None)
            entries = [] if options is None else [(o.type, o.value.rsv[0]) for o in options._keep]
            seen.append((name, entries))
        return real(name, *arguments)

    monkeypatch.setattr(type(core), "call", lambda self, *a: call(*a))
    device.load(*args, **named)
    return seen


@pytest.mark.parametrize("lazy", [False, True])
def test_lazy_loads(device, machine, tmp_path: Path, monkeypatch, lazy: bool) -> None:
    path = tmp_path / "add.o"
    path.write_bytes(ADD)
    own = [(1, 1)] if lazy else []
    assert options_of(machine, device, monkeypatch, path, lazy=lazy) == [("aclrtBinaryLoadFromFile", own)]
    assert options_of(machine, device, monkeypatch, ADD, lazy=lazy) == [("aclrtBinaryLoadFromData", own)]
    plain = make_kernel_object("add_custom", metadata=False)
    expected = [("aclrtBinaryLoadFromData", [*own, (2, 0x41415246)])]
    assert options_of(machine, device, monkeypatch, plain, lazy=lazy) == expected


def test_a_lazy_binary_computes(simulator) -> None:
    with pyacl.Device(0) as device:
        x, z = device.full(8, 1, np.float16), device.zeros(8, np.float16)
        device.load(ADD, lazy=True)["add_custom"][1](x, x, z)
        assert z.to_host(device.default_stream).tolist() == [2] * 8


LIBRARY = bytearray(make_host_object(b"", machine=183))
LIBRARY[16] = 3  # ET_DYN
DECLARED = json.dumps({"AddCpu": {"opInfo": {"functionName": "RunCpuKernel", "kernelSo": "libadd.so"}}})


@sim.kernel
def AddCpu(x: sim.In[np.float32], z: sim.Out[np.float32], n: np.int32) -> None:  # noqa: N802
    z[:n] = x[:n] + 1


@pytest.mark.parametrize(
    ("given", "beside", "mode", "expected"),
    [
        (".so", True, None, 1),
        (".json", True, None, 1),
        (".json", False, None, 0),
        (".json", True, 0, 0),
        (".so", True, 1, 1),
        (".so", None, 2, 2),
    ],
)
def test_ai_cpu_kernels(simulator, tmp_path: Path, monkeypatch, given, beside, mode, expected) -> None:
    """`beside`: whether the library lies beside its JSON; None for a library without one."""
    if beside is not None:
        (tmp_path / "libadd.json").write_text(DECLARED)
    if beside is not False:
        (tmp_path / "libadd.so").write_bytes(LIBRARY)
    path = tmp_path / f"libadd{given}"
    with pyacl.Device(0) as device:
        (seen,) = options_of(simulator, device, monkeypatch, path, cpu_mode=mode)
        assert seen == (f"aclrtBinaryLoadFrom{'Data' if mode == 2 else 'File'}", [(3, expected)])
        binary = device.load(path, cpu_mode=mode)
        if mode == 2:
            assert binary.names == () and "AddCpu" not in binary
            registered = binary.register("AddCpu", "RunCpuKernel", "ptr ptr i32")
            assert registered.name == "AddCpu"
        assert binary.names == ("AddCpu",) and len(binary) == 1
        x, z = device.full(4, 1, np.float32), device.zeros(4, np.float32)
        binary["AddCpu"][1](x, z, np.int32(3))
        assert z.to_host(device.default_stream).tolist() == [2, 2, 2, 0]


def test_ai_cpu_libraries_that_cannot_be_loaded_so(simulator, tmp_path: Path) -> None:
    path = tmp_path / "libadd.so"
    path.write_bytes(LIBRARY)
    with pyacl.Device(0) as device:
        with pytest.raises(pyacl.KernelObjectError, match=r"put libadd.json .* beside it, or load it with cpu_mode=2"):
            device.load(path)
        for mode in (0, 1):
            with pytest.raises(pyacl.KernelObjectError, match=rf"cpu_mode={mode} takes the path of a JSON"):
                device.load(path, cpu_mode=mode)
        with pytest.raises(pyacl.KernelObjectError, match=r"a device ELF, and cpu_mode=2 takes a library"):
            device.load(ADD, cpu_mode=2)
        with pytest.raises(ValueError, match="cpu_mode: 3 is none of 0"):
            device.load(path, cpu_mode=3)
        with pytest.raises(pyacl.AclError) as caught:
            device.load(ADD).register("AddCpu", "RunCpuKernel")
        assert caught.value.code == 107000


# -- signatures that the metadata gives --------------------------------------------------------------------------------

ROLES = make_kernel_object("rolled", roles=["input", "input", "output", "workspace", "tiling"], args=5)


def test_roles_make_a_signature(device) -> None:
    kernel = device.load(ROLES)["rolled"]
    assert repr(kernel) == "<Kernel rolled(ptr ptr ptr ptr ptr) of device 0>"
    x = device.empty(8, np.float16)
    with pytest.raises(TypeError, match=r"rolled takes 5 arguments \(input input output workspace tiling\), not 4"):
        kernel[1](x, x, x, x)
    with pytest.raises(TypeError, match=r"argument 3 of 5 \(output: ptr\): a pointer is due, not float16"):
        kernel[1](x, x, np.float16(1), x, x)
    with pytest.raises(TypeError, match=r"argument 4 of 5 \(workspace: ptr\): a number \(0\) is no pointer"):
        kernel[1](x, x, x, 0, x)


def test_an_optional_input_may_be_none(simulator) -> None:
    seen = []

    def rolled(x, bias, z, workspace, tiling) -> None:
        seen.append((bias.address, tiling[0]))
        z[:] = x

    rolled.__annotations__.update(
        x=sim.In[np.float16], bias=sim.In[np.float16], z=sim.Out[np.float16], workspace=sim.InOut[np.uint8],
        tiling=sim.In[np.int32],
    )  # fmt: skip
    sim.kernel("rolled", backend=simulator.backend)(rolled)
    with pyacl.Device(0) as device:
        x, z = device.full(8, 3, np.float16), device.empty(8, np.float16)
        device.load(ROLES)["rolled"][1](x, None, z, None, pyacl.Placeholder(np.int32(7)))
        assert z.to_host(device.default_stream).tolist() == [3] * 8
    assert seen == [(0, 7)]


@pytest.mark.parametrize(
    "data",
    [
        make_kernel_object("k", args=2),  # roles that say nothing
        make_kernel_object("k", args=2, roles=["input", "general"]),
        make_kernel_object("k", args=[8, 4, 4], roles=["input", "output", "tiling"]),
        make_kernel_object("k", args=2, roles=[]),
    ],
)
def test_what_makes_no_signature(device, data: bytes) -> None:
    assert repr(device.load(data)["k"]) == "<Kernel k of device 0>"


@pytest.mark.parametrize(
    ("name", "core", "args", "shown"),
    [
        ("_Z6scaledPU3AS1fS0_jf", "aiv", [8, 8, 4, 4], "ptr ptr u32 f32"),
        ("_Z6scaledPfS_jf", "mix", [8, 8, 4, 4], "ptr ptr u32 f32"),
        ("_Z6scaledmPfS_jf", "mix", [8, 8, 4, 4], "ptr ptr u32 f32"),  # CCE: the FFTS address is declared
        ("_Z6scaledPfS_j", "aiv", [8, 8, 4, 4, 8], None),  # not what the object records
        ("_Z6scaled6Tiling", "aiv", [8, 8], None),
    ],
)
def test_cpp_names_make_a_signature(device, name: str, core: str, args: list[int], shown: str | None) -> None:
    kernel = device.load(make_kernel_object(name, core=core, args=args, roles=[]))["scaled"]
    assert repr(kernel) == f"<Kernel {name}{'' if shown is None else f'({shown})'} of device 0>"


def test_a_cpp_kernel_takes_plain_numbers(simulator) -> None:
    name = "_Z6scaledPU3AS1fS0_jf"

    def scaled(x: sim.In[np.float32], z: sim.Out[np.float32], n: np.uint32, factor: np.float32) -> None:
        z[:n] = x[:n] * factor

    sim.kernel(name, backend=simulator.backend)(scaled)
    with pyacl.Device(0) as device:
        kernel = device.load(make_kernel_object(name, args=[8, 8, 4, 4], roles=[]))["scaled"]
        x, z = device.full(4, 3, np.float32), device.zeros(4, np.float32)
        kernel[1](x, z, 3, 0.5)
        assert z.to_host(device.default_stream).tolist() == [1.5, 1.5, 1.5, 0]
        with pytest.raises(TypeError, match=r"argument 3 of 4 \(u32\): a Python int or a uint32 is due, not float32"):
            kernel[1](x, z, np.float32(3), 0.5)


def test_a_declared_signature_goes_over_the_roles(device) -> None:
    kernel = device.load(ROLES).kernel("rolled", "ptr ptr ptr u64 bytes8")
    assert repr(kernel) == "<Kernel rolled(ptr ptr ptr u64 bytes8) of device 0>"


# -- the size of the argument block ------------------------------------------------------------------------------------

OPERATOR = "AddRelu_1907f3e124c32ea4c8637789e310b4df"


def test_operator_kernels_take_exactly_their_size(device) -> None:
    """They never declare the overflow status, so that 8 bytes less are a missing argument."""
    kernel = device.load(make_kernel_object(OPERATOR, tiling_key=0, args=3, roles=[]))[f"{OPERATOR}_0"]
    assert kernel.info.overflow is False and kernel.info.user_sizes == (24,)
    x = device.empty(8, np.float16)
    with pytest.raises(TypeError, match="takes 24 bytes of arguments; these 2 make 16: something is missing after"):
        kernel[1](x, x)


def test_what_may_be_a_missing_argument_is_said(simulator) -> None:
    """The kernel may declare the overflow status (then all is well), or its last argument is missing."""

    def wrapped(x: sim.In[np.float16], z: sim.Out[np.float16]) -> None:
        z[:] = x

    sim.kernel("wrapped", backend=simulator.backend)(wrapped)
    with pyacl.Device(0) as device:
        binary = device.load(make_kernel_object("wrapped", args=3, roles=[]))
        kernel = binary["wrapped"]
        assert kernel.info.overflow is None and kernel.info.user_sizes == (24, 16)
        x, z = device.full(8, 3, np.float16), device.zeros(8, np.float16)
        with pytest.warns(RuntimeWarning, match=r"wrapped reads 24 bytes of arguments and was given 16\.") as caught:
            kernel[1](x, z)
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kernel[1](x, z)  # said once
            binary.kernel("wrapped", "ptr ptr")[1](x, z)  # declared: the caller knows
        assert z.to_host(device.default_stream).tolist() == [3] * 8
        with pytest.raises(TypeError, match="takes 24 bytes of arguments; these 1 make 8"):
            kernel[1](x)


# -- the places of the parameters --------------------------------------------------------------------------------------


@sim.kernel
def placed(x: sim.In[np.float32], n: np.int32, m: np.int32, z: sim.Out[np.float32]) -> None:
    z[:] = x + n + m


def placed_object(core: str) -> bytes:
    return make_kernel_object("placed", core=core, args=[8, 4, 4, 8], roles=[], param_info=True)


@pytest.fixture(params=["9.0.0", "9.1.0"])
def release(request):
    """A CANN that cannot be asked for the places, and one that can (aclrtFunctionGetParamInfo)."""
    forget()
    machine = use("lazy", cann=request.param)
    yield request.param
    assert list(machine.alive()) == []
    forget()


@pytest.mark.parametrize("core", ["aiv", "mix"])
def test_each_argument_is_compared_with_its_place(release: str, core: str) -> None:
    with pyacl.Device(0) as device:
        assert device._handle.api.has("aclrtFunctionGetParamInfo") == (release == "9.1.0")
        binary = device.load(placed_object(core))
        kernel = binary["placed"]
        hidden = 8 if core == "mix" else 0
        own = ((hidden, 8), (hidden + 8, 4), (hidden + 12, 4), (hidden + 16, 8))
        assert kernel.info.parameters == (((0, 8), *own) if hidden else own)
        x, z = device.full(4, 1, np.float32), device.zeros(4, np.float32)
        kernel[1](x, np.int32(2), np.int32(3), z)
        assert z.to_host(device.default_stream).tolist() == [6] * 4
        with pytest.raises(TypeError, match=r"placed takes 4 arguments \(bytes: 8, 4, 4, 8\), not 5"):
            kernel[1](x, np.int32(1), np.int16(1), np.int16(1), z)
        # as many bytes and as many arguments
        with pytest.raises(
            TypeError, match="argument 1 of 4: int32 has 4 bytes and would lie at byte 0; the kernel reads 8 bytes at"
        ):
            kernel[1](np.int32(1), np.int32(1), x, z)
        with pytest.raises(TypeError, match=r"argument 2 of 4: int16 has 2 bytes and would lie at byte 8;"):
            kernel[1](x, np.int16(1), np.int32(1), z)
        with pytest.raises(TypeError, match=r"argument 2 \(u64\): u64 has 8 bytes .* reads 4 bytes at byte 8"):
            binary.kernel("placed", "ptr u64 i32 ptr")


def test_the_library_is_asked_where_it_can_be(release: str, monkeypatch) -> None:
    with pyacl.Device(0) as device:
        asked = []
        api = device._handle.api
        if release == "9.1.0":
            real = api.aclrtFunctionGetParamInfo
            monkeypatch.setattr(api, "aclrtFunctionGetParamInfo", lambda *a: asked.append(a[1]) or real(*a))
        device.load(placed_object("aiv"))["placed"]
        assert asked == ([0, 1, 2, 3] if release == "9.1.0" else [])
        asked.clear()
        device.load(ADD)["add_custom"]  # says nothing, so that the library would refuse
        assert asked == []
