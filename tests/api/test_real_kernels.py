"""Real kernel objects, through the public objects on the simulator: loaded, found by name, launched, the right numbers.

What the kernels compute is played by numpy functions; what is real is the files: how they load, what they call their
kernels, how large their argument blocks are, and which hidden arguments they have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kernels
import numpy as np
import pytest
from pyacl_api import SOC, Machine, forget, use

import pyacl
from pyacl import sim

SOCS = {"910b": SOC, "910": "Ascend910A", "310p": "Ascend310P3", "950": "Ascend950PR_9589"}
CASES = [case for case in kernels.FILES if case != "ar_host_archive"]


def soc_of(case: str) -> str:
    return SOCS[case.partition("_")[0]]


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[str, Machine, pyacl.Device]]:
    """A case's name, and a device that runs it."""
    case = request.param
    forget()
    machine = use("lazy", soc=soc_of(case))
    with pyacl.Device(0) as device:
        yield case, machine, device
    assert list(machine.alive()) == []
    forget()


@pytest.mark.parametrize("opened", CASES, indirect=True)
def test_loads_and_finds_every_function(opened, real_kernels: dict[str, Path]) -> None:
    case, _, device = opened
    expected = kernels.EXPECTED[f"{case}/{kernels.FILES[case]}"]
    binary = device.load(real_kernels[case])
    assert set(binary.names) == set(expected["registered_names"])
    for name in binary:
        assert binary[name].name == name
    # the same out of memory, where there is no JSON beside it
    assert set(device.load(real_kernels[case].read_bytes()).names)


@pytest.mark.parametrize("opened", CASES, indirect=True)
def test_launches_and_computes(opened, real_kernels: dict[str, Path]) -> None:
    """Every kernel whose object says how large its arguments are, with as many pointers as that makes."""
    case, machine, device = opened
    binary = device.load(real_kernels[case])
    stream = device.create_stream()
    launched = 0
    for name in binary:
        kernel = binary[name]
        sizes = kernel.info.user_sizes
        count = (sizes[0] if sizes else 24) // 8
        computed: list[list[float]] = []
        emulate(name, count, computed, machine)
        buffers = [device.full(32, index + 1, np.float32) for index in range(count)]
        kernel[4, stream](*buffers)
        stream.synchronize()
        # the last buffer got the sum of all others: each argument arrived at its place
        assert buffers[-1].to_host().tolist() == [count * (count - 1) / 2] * 32
        assert computed
        if sizes:
            with pytest.raises(TypeError, match=f"takes .*not {count + 2}|would lie at byte"):
                kernel[4, stream](*buffers, buffers[0], buffers[0])
        launched += 1
    assert launched == len(binary)


def emulate(name: str, count: int, computed: list[list[float]], machine: Machine) -> None:
    """Register a kernel of so many pointers that writes the sum of all but the last into the last."""
    names = [f"a{index}" for index in range(count)]
    declared = ", ".join(f"{n}: sim.InOut[np.float32]" for n in names)
    total = " + ".join(f"{n}[:32]" for n in names[:-1])
    source = f"def emulation({declared}):\n    {names[-1]}[:32] = {total}\n    computed.append({names[-1]}.tolist())\n"
    scope: dict[str, object] = {"sim": sim, "np": np, "computed": computed}
    exec(source, scope)
    sim.kernel(name, backend=machine.backend)(scope["emulation"])


@pytest.mark.parametrize("opened", ["910b_aiv_nometa", "950_aiv_meta"], indirect=True)
def test_add_relu(opened, real_kernels: dict[str, Path]) -> None:
    """AddRelu of mx-driving: two inputs, an output, workspace and tiling."""
    case, machine, device = opened
    binary = device.load(real_kernels[case])
    (name,) = binary.names if len(binary) == 1 else [n for n in binary if n.endswith("_0")][:1] or [binary.names[0]]

    def add_relu(x: sim.In[np.float32], y: sim.In[np.float32], z: sim.Out[np.float32], workspace, tiling) -> None:
        n = int(tiling[0])
        z[:n] = np.maximum(x[:n] + y[:n], 0)

    add_relu.__annotations__.update(workspace=sim.InOut[np.uint8], tiling=sim.In[np.uint64])
    sim.kernel(name, backend=machine.backend)(add_relu)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(1000).astype(np.float32), rng.standard_normal(1000).astype(np.float32)
    z = np.zeros(1000, np.float32)
    workspace = device.empty(16 << 10, "uint8")
    tiling = pyacl.Placeholder(np.array([1000, 0, 0, 0, 0], np.uint64))
    binary[name][8](pyacl.In(x), pyacl.In(y), pyacl.Out(z), workspace, tiling)
    np.testing.assert_array_equal(z, np.maximum(x + y, 0))


@pytest.mark.parametrize("opened", ["910b_aiv_nometa"], indirect=True)
def test_objects_of_other_chips_are_refused(opened, real_kernels: dict[str, Path]) -> None:
    """The library loads them without a word, and they fail on the device."""
    _, machine, device = opened
    for case, path in real_kernels.items():
        if case != "ar_host_archive" and soc_of(case) != SOC:
            with pytest.raises(pyacl.KernelObjectError, match=f"cannot be loaded on {SOC}: compiled for"):
                device.load(path)
    with pytest.raises(pyacl.KernelObjectError, match="archive"):
        device.load(real_kernels["ar_host_archive"])
