"""Backends for the tests of the objects: the simulator, late and at once, and a library that gcc made from the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable, NamedTuple, Optional

import numpy as np
import pytest

import pyacl
from pyacl import session, sim
from pyacl._handle import drain
from pyacl.testing import make_kernel_object

SOC = "Ascend910B1"
#: two float arguments and a result; and one with a number at the end
ADD = make_kernel_object("add_custom")
SCALE = make_kernel_object("scale_custom", args=[8, 8, 4])


class Machine:
    """One backend in use, and what is still alive on it."""

    def __init__(self, kind: str, backend: Any, alive: Callable[[], list[Any]], stub: Any = None) -> None:
        #: "lazy", "eager" or "stub"
        self.kind = kind
        self.backend = backend
        self.alive = alive
        #: the stub library, None for the simulator
        self.stub = stub

    @property
    def simulated(self) -> bool:
        """Whether kernels compute and work can be late."""
        return self.stub is None


def use(kind: str, **options: Any) -> Machine:
    """Choose a backend and say what it is."""
    if kind == "stub":
        from stub import libraries

        stub = libraries()
        stub.reset()
        stub.work()
        pyacl.use_backend(f"library:{stub.folder}")
        return Machine(kind, None, stub.live, stub)
    backend = sim.Backend(**{"soc": SOC, "devices": 2, "order": kind, **options})
    pyacl.use_backend(backend)
    return Machine(kind, backend, backend.report)


def forget() -> None:
    """Close the session of the last test, with all that it left open."""
    current: Optional[session.Session] = session._current
    if current is not None:
        current.close()
    session._current = None
    drain()  # what the collector found inside of the simulator is freed at the next chance: here


def _machine(kind: str) -> Iterator[Machine]:
    forget()
    machine = use(kind)
    yield machine
    forget()
    left = machine.alive()
    assert list(left) == [], str(left)


@pytest.fixture(params=["lazy", "eager", "stub"])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Every backend. What a test leaves open is closed with the session, and nothing may be alive afterwards."""
    yield from _machine(request.param)


@pytest.fixture(params=["lazy", "eager"])
def simulator(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """The backends on which kernels compute."""
    yield from _machine(request.param)


@pytest.fixture
def lazy() -> Iterator[Machine]:
    """The simulator that does nothing before something waits for it."""
    yield from _machine("lazy")


@pytest.fixture
def stub() -> Iterator[Machine]:
    """The library that gcc made."""
    yield from _machine("stub")


@sim.kernel
def add_custom(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]) -> None:
    z[:] = x + y


@sim.kernel
def scale_custom(x: sim.In[np.float32], z: sim.Out[np.float32], factor: sim.Scalar[np.float32]) -> None:
    z[:] = x * factor


class Work(NamedTuple):
    """What `work_of_every_kind` made on the device; nothing of it is closed before the caller drops it."""

    stream: pyacl.Stream
    x: pyacl.DeviceBuffer
    event: pyacl.Event
    done: pyacl.Event
    others: tuple[object, ...]


def work_of_every_kind(device: pyacl.Device) -> Work:
    """Two streams, copies, launches on every route, a host function, events, fills: a program for sweeps."""
    stream, other = device.create_stream(), device.create_stream(fast_launch=True)
    binary = device.load(ADD)
    pinned = device.empty_host(64, np.float16)
    pinned.array[:] = 3
    x = device.to_device(pinned, stream)
    event = stream.record()
    other.wait(event)
    z = device.zeros(64, np.float16, other)
    ran: list[int] = []
    other.launch_host_func(ran.append, 1)
    for route in ("user", "thread", "host"):
        binary.kernel("add_custom", route=route)[1, other](x, x, z)
    z.copy_to(pinned, other)
    done = other.record()
    done.synchronize(10)
    other.synchronize(10)
    assert pinned.array.tolist() == [6] * 64 and ran == [1]
    out = np.zeros(64, np.float16)
    binary["add_custom"][1](pyacl.In(out), x, pyacl.Out(out))
    z[:32].fill(1.5)
    z.reshape(8, 8).copy_2d_to(np.zeros((8, 16), np.float16)[:, :8])
    return Work(stream, x, event, done, (other, binary, pinned, z))
