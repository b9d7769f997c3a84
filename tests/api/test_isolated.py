"""A session of its own for a block: what `pyacl.session.isolated` opens, follows, closes and leaves alone."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import pyacl
from pyacl import session, sim
from pyacl.session import current_session, isolated


def test_the_former_session_goes_on() -> None:
    with isolated(sim.Backend(soc="Ascend310P3")) as outer, pyacl.Device(0) as device:
        x = device.full(4, 7, np.uint8)
        with isolated("sim:Ascend910B4") as inner:
            assert current_session() is inner and pyacl.Device(0).name == "Ascend910B4"
        assert current_session() is outer and x.to_host().tolist() == [7] * 4
        with pytest.raises(ValueError, match="not a backend"), isolated("simulator"):
            pass
        assert current_session() is outer


def test_what_is_open_at_the_end_is_closed() -> None:
    backend = sim.Backend()
    with isolated(backend) as inner:
        stream = pyacl.Device(0).create_stream()
        assert inner.open_things == ["device 0", "stream of device 0"] and inner.open_handles == 2
    assert stream.closed and stream.device.closed and backend.report().is_empty
    assert inner.open_things == []


def test_every_session_of_the_block_is_seen() -> None:
    seen: list[session.Session] = []
    with isolated(sim.Backend(), watch=seen.append) as inner:
        pyacl.use_backend("sim:Ascend910B3")
        device = pyacl.Device(0)
        chosen = current_session()
    assert seen == [inner, chosen] and device.closed
    with isolated(sim.Backend()):
        assert len(seen) == 2


def test_a_borrowed_handle_belongs_to_a_device_of_the_current_session() -> None:
    with isolated(sim.Backend(devices=2)), pyacl.Device(1) as outside, isolated(sim.Backend()):
        with pytest.raises(ValueError, match="say which device it belongs to; open are none"):
            pyacl.DeviceBuffer.borrow(0x1000, 16)
        with pyacl.Device(0) as inside:
            assert pyacl.DeviceBuffer.borrow(inside.empty(4).address, 16).device is inside
        assert not outside.closed


def test_what_the_block_raises_is_not_hidden_by_what_closing_raises() -> None:
    backend = sim.Backend()
    warns = pytest.warns(ResourceWarning, match="closing .* failed too")
    with pytest.raises(KeyError, match="mine") as caught:
        if sys.version_info >= (3, 11):
            fail_while_closing(backend)
        else:
            with warns:
                fail_while_closing(backend)
    if sys.version_info >= (3, 11):
        assert "aclFinalize failed with 500000" in caught.value.__notes__[0]


def fail_while_closing(backend: sim.Backend) -> None:
    with isolated(backend):
        pyacl.Device(0).close()
        backend.faults.fail("aclFinalize")
        raise KeyError("mine")


def test_abandoned_work_is_not_waited_for() -> None:
    backend = sim.Backend()
    with isolated(backend) as inner, pyacl.Device(0) as device:
        with device.create_stream() as stream, device.create_stream() as other:
            notify = pyacl.raw.types.aclrtNotify()
            pyacl.raw.aclrtCreateNotify(notify, 0)
            pyacl.raw.aclrtWaitAndResetNotify(notify, stream, 0)
            other.wait(stream.record())
            inner.abandon()
        pyacl.raw.aclrtDestroyNotify(notify)
    assert backend.report().is_empty
    session.Session(sim.Backend()).abandon()  # nothing is open
