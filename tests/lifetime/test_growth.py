"""A process that opens, uses and closes devices again and again does not grow."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from pyacl_api import ADD, add_custom, forget  # noqa: F401  add_custom is the kernel's emulation

import pyacl
from pyacl import sim
from pyacl.backends.sim.engine import arguments, memory


def program() -> None:
    with pyacl.Device(0) as device, device.create_stream() as stream:
        add = device.load(ADD)["add_custom"]
        x = device.to_device(np.ones(64, np.float16), stream)
        z, pinned = device.empty_like(x), device.empty_host(64, np.float16)
        for _ in range(3):
            add[2, stream](x, x, z)
            z.copy_to(pinned, stream)
            stream.wait(stream.record())
            stream.launch_host_func(int)
        add[1, stream](pyacl.In(np.ones(64, np.float16)), x, pyacl.Placeholder(np.ones(64, np.float16)))
        with pytest.raises(TypeError, match="takes 3 arguments"):
            add[1, stream](x)
        with pytest.raises(MemoryError):
            device.empty(1 << 50)
        stream.synchronize()


@pytest.mark.parametrize("order", ["lazy", "eager"])
def test_programs_that_come_and_go_leave_nothing_behind(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # what the simulator remembers of things that are gone is bounded: here by so little that it neither hides a growth
    # nor looks like one (an argument handle keeps its binary, about twenty objects, until another takes its place)
    monkeypatch.setattr(memory, "_REMEMBER", 1)
    monkeypatch.setattr(arguments, "KEPT", 1)
    forget()
    pyacl.use_backend(sim.Backend(order=order))
    counts = []
    for _ in range(4):
        for _ in range(50):
            program()
        gc.collect()
        counts.append(len(gc.get_objects()))
    forget()
    # one object kept by each of the hundred runs would be a hundred
    assert counts[3] - counts[1] < 60, counts
