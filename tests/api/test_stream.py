"""Streams and events: order, waiting, asking, timing, host functions, what is kept alive."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from pyacl_api import ADD

import pyacl
from pyacl import sim
from pyacl import stream as stream_module
from pyacl.raw import constants


@pytest.fixture
def device(machine):
    with pyacl.Device(0) as device:
        yield device


@pytest.fixture
def sim_device(simulator):
    with pyacl.Device(0) as device:
        yield device


class TestStream:
    def test_closes(self, device) -> None:
        with device.create_stream() as stream:
            assert not stream.closed and stream.address
        stream.close()
        assert stream.closed and repr(stream) == "<Stream of device 0, closed>"
        for use in (stream.synchronize, stream.record, lambda: stream.done, lambda: stream.address, lambda: stream.id):
            with pytest.raises(pyacl.ClosedError, match="the stream of device 0 is closed"):
                use()

    def test_is_an_argument_of_raw_calls(self, device) -> None:
        stream = device.create_stream()
        pyacl.raw.aclrtSynchronizeStream(stream)
        stream.close()
        with pytest.raises(Exception, match="the stream of device 0 is closed"):
            pyacl.raw.aclrtSynchronizeStream(stream)

    def test_flags(self, machine, device) -> None:
        device.create_stream(fast_launch=True, fast_sync=True, priority=3, flags=8).close()
        if machine.stub:
            call = machine.stub.calls("aclrtCreateStreamWithConfig")[0]
            assert call.arguments[1:] == (3, 11)
        with pytest.raises(ValueError, match="priority: -1"):
            device.create_stream(priority=-1)
        with pytest.raises(TypeError, match="flags: a whole number, not str"):
            device.create_stream(flags="fast")

    def test_work_is_late(self, lazy) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            ran: list[int] = []
            stream.launch_host_func(ran.append, 1)
            assert ran == [] and not stream.done
            stream.synchronize()
            assert ran == [1] and stream.done

    @pytest.mark.parametrize("timeout", [None, 5, 5.0])
    def test_synchronize(self, device, timeout: float | None) -> None:
        stream = device.create_stream()
        device.full(4, 1, "int32", stream)
        stream.synchronize(timeout)
        assert stream.done

    def test_timeout_0_asks(self, lazy) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            stream.synchronize(0)
            stream.launch_host_func(int)
            with pytest.raises(pyacl.AclTimeoutError, match="work left") as caught:
                stream.synchronize(0)
            assert caught.value.code == constants.ACL_ERROR_RT_STREAM_SYNC_TIMEOUT
            stream.synchronize()
            stream.synchronize(0)

    def test_a_wait_in_milliseconds(self, stub) -> None:
        stream = pyacl.Device(0).create_stream()
        stream.synchronize(0.0001)
        stream.synchronize(2)
        waits = [c.arguments[1] for c in stub.stub.calls("aclrtSynchronizeStreamWithTimeout")]
        assert waits == [1, 2000]

    def test_borrowed(self, machine, device) -> None:
        owner = device.create_stream()
        stream = pyacl.Stream.borrow(owner.address, device=device, owner=owner)
        buffer = device.full(4, 1, "int32", stream)
        assert buffer.to_host(stream).tolist() == [1, 1, 1, 1]
        address = owner.address
        del owner
        gc.collect()
        assert stream.address == address, "the owner is kept"
        stream.synchronize()
        stream.close()
        with pytest.raises(ValueError, match="address: 0 is the default stream"):
            pyacl.Stream.borrow(0, device=device)
        with pytest.raises(ValueError, match="address: -0x5 is no stream"):
            pyacl.Stream.borrow(-5, device=device)
        with pytest.raises(TypeError, match="address: a whole number, not Stream"):
            pyacl.Stream.borrow(stream, device=device)

    @pytest.mark.parametrize("event", [3, None, "event"])
    def test_events_that_are_none(self, device, event: object) -> None:
        stream = device.create_stream()
        with pytest.raises(TypeError, match=r"event: an Event, not \w+; Event\.borrow\(address\)"):
            stream.wait(event)
        if event is not None:
            with pytest.raises(TypeError, match="event: an Event"):
                stream.record(event)

    def test_a_borrowed_stream_is_not_destroyed(self, stub) -> None:
        with pyacl.Device(0) as device:
            owner = device.create_stream()
            pyacl.Stream.borrow(owner.address).close()
            assert stub.stub.calls("aclrtDestroyStream") == []
            owner.synchronize()

    def test_abort(self, stub) -> None:
        pyacl.Device(0).create_stream().abort()
        assert len(stub.stub.calls("aclrtStreamAbort")) == 1

    def test_id(self, device) -> None:
        first, second = device.create_stream(), device.create_stream()
        assert isinstance(first.id, int) and first.id != second.id or not first.id


class TestEvent:
    def test_record_wait_synchronize(self, sim_device) -> None:
        first, second = sim_device.create_stream(), sim_device.create_stream()
        seen: list[str] = []
        first.launch_host_func(seen.append, "first")
        event = first.record()
        second.wait(event)
        second.launch_host_func(seen.append, "second")
        second.synchronize()
        assert seen == ["first", "second"] and event.done

    def test_record_again_stands_for_the_new_place(self, sim_device) -> None:
        stream = sim_device.create_stream()
        event = sim_device.create_event()
        assert stream.record(event) is event
        event.synchronize()
        ran: list[int] = []
        stream.launch_host_func(ran.append, 1)
        stream.record(event)
        event.synchronize()
        assert ran == [1]

    def test_not_recorded(self, machine, device) -> None:
        event, other = device.create_event(), device.create_event()
        stream = device.create_stream()
        assert event.done is False and "not recorded" in repr(event)
        for use in (event.synchronize, lambda: stream.wait(event), lambda: event - other):
            with pytest.raises(pyacl.AclEventError, match=r"the event was not recorded: call stream.record\(event\)"):
                use()

    def test_done(self, lazy) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            stream.launch_host_func(int)
            event = stream.record()
            assert not event.done
            with pytest.raises(pyacl.AclTimeoutError, match="not reached") as caught:
                event.synchronize(0)
            assert caught.value.code == constants.ACL_ERROR_RT_EVENT_SYNC_TIMEOUT
            event.synchronize(10)
            event.synchronize(0)
            assert event.done

    def test_milliseconds_between(self, lazy) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            start = stream.record()
            stream.launch_host_func(time.sleep, 0.02)
            end = stream.record()
            with pytest.raises(pyacl.AclEventError):
                end - start  # noqa: B018
            stream.synchronize()
            assert 0 <= end - start < 10_000
            assert start - end == -(end - start)
            assert start - start == 0

    def test_without_time(self, device) -> None:
        stream = device.create_stream()
        plain = stream.record(device.create_event(timing=False))
        timed = stream.record()
        stream.synchronize()
        with pytest.raises(pyacl.AclEventError, match="timing=False"):
            timed - plain  # noqa: B018
        with pytest.raises(TypeError):
            timed - 5  # noqa: B018

    def test_kind_of_event(self, stub) -> None:
        device = pyacl.Device(0)
        device.create_event(), device.create_event(timing=False)
        assert [c.arguments[1] for c in stub.stub.calls("aclrtCreateEventExWithFlag")] == [9, 1]

    def test_closes(self, device) -> None:
        with device.create_event() as event:
            stream = device.create_stream()
            stream.record(event)
            stream.synchronize()
        assert event.closed and "closed" in repr(event)
        for use in (event.synchronize, lambda: event.done, lambda: stream.record(event), lambda: stream.wait(event)):
            with pytest.raises(pyacl.ClosedError, match="the event of device 0 is closed"):
                use()

    def test_borrowed(self, stub) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            owner = stream.record()
            event = pyacl.Event.borrow(owner.address, owner=owner)
            stream.wait(event)
            event.synchronize()
            event.close()
            assert stub.stub.calls("aclrtDestroyEvent") == []
            with pytest.raises(ValueError, match="0 is no event"):
                pyacl.Event.borrow(0)
            with pytest.raises(TypeError, match="address: a whole number, not float"):
                pyacl.Event.borrow(2.5)

    def test_a_timeout_marks_the_stream(self, stub) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            event = stream.record()
            stub.stub.set_result("aclrtSynchronizeEventWithTimeout", 507047)
            with pytest.raises(pyacl.AclTimeoutError):
                event.synchronize(1)
            stream.close()
            assert len(stub.stub.calls("aclrtDestroyStreamForce")) == 1


class TestHostFunctions:
    def test_runs_in_order_with_arguments(self, sim_device) -> None:
        stream = sim_device.create_stream()
        seen: list[object] = []
        for number in range(5):
            stream.launch_host_func(lambda *args: seen.append(args), number, "x")
        stream.synchronize()
        assert seen == [(n, "x") for n in range(5)]

    @pytest.mark.parametrize("order", ["lazy", "eager"])
    def test_one_that_waits_for_its_own_stream_is_a_deadlock(self, order) -> None:
        pyacl.use_backend(sim.Backend(order=order))
        begin = time.monotonic()
        for what in ("stream", "device", "stream"):  # what is left of one does not hold up the next
            with pyacl.Device(0) as device, device.create_stream() as stream:
                stream.launch_host_func({"stream": stream, "device": device}[what].synchronize)
                with pytest.raises(sim.Deadlock, match="aclrtLaunchHostFunc .*, whose function has not returned"):
                    stream.synchronize()
            pyacl.use_backend(sim.Backend(order=order))
        assert time.monotonic() - begin < 10  # a wait that somebody may end takes that long to give up

    def test_an_exception_reaches_the_next_wait(self, sim_device) -> None:
        stream, other = sim_device.create_stream(), sim_device.create_stream()
        stream.launch_host_func(lambda: 1 / 0)
        stream.launch_host_func(lambda: {}["key"])
        other.synchronize()
        with pytest.raises(ZeroDivisionError) as caught:
            stream.synchronize()
        assert caught.traceback[-1].name == "<lambda>"
        with pytest.raises(KeyError):
            stream.synchronize()
        stream.synchronize()

    def test_an_exception_that_no_wait_has_told_of_is_raised_at_the_end(self, simulator) -> None:
        with pytest.raises(ZeroDivisionError), pyacl.Device(0) as device:
            stream = device.create_stream()
            stream.launch_host_func(lambda: 1 / 0)
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            stream.launch_host_func(lambda: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                stream.close()
            assert stream.closed

    def test_the_device_raises_it_too(self, sim_device) -> None:
        stream = sim_device.create_stream()
        stream.launch_host_func(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sim_device.synchronize()
        stream.synchronize()

    def test_the_function_is_let_go_afterwards(self, sim_device) -> None:
        class Thing:
            pass

        thing = Thing()
        alive = weakref.ref(thing)
        stream = sim_device.create_stream()
        stream.launch_host_func(lambda _thing: None, thing)
        stream.synchronize()
        del thing
        gc.collect()
        assert alive() is None and stream_module._host_functions == {}

    def test_nothing_stays_of_what_never_ran(self, stub) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            stream.launch_host_func(print)
            assert len(stream_module._host_functions) == 1
            stub.stub.fail("aclrtLaunchHostFunc", 107003)
            with pytest.raises(pyacl.AclStreamError):
                stream.launch_host_func(print)
            assert len(stream_module._host_functions) == 1
        assert stream_module._host_functions == {}

    def test_must_be_callable(self, device) -> None:
        with pytest.raises(TypeError, match="function: something to call, not int"):
            device.create_stream().launch_host_func(5)

    def test_before_cann_8_5(self) -> None:
        from pyacl_api import forget, use

        forget()
        use("lazy", cann="8.1.RC1")
        text = "aclrtLaunchHostFunc is in CANN from 8.5.0"
        with pyacl.Device(0) as device, pytest.raises(pyacl.MissingFunctionError, match=text):
            device.create_stream().launch_host_func(print)
        assert stream_module._host_functions == {}
        forget()

    def test_freeing_inside_is_put_off(self, lazy) -> None:
        """What is collected inside a host function is freed later: inside, the library forbids it."""
        device = pyacl.Device(0)
        stream = device.create_stream()
        things = [device.empty(100)]
        free = device.memory_info.free
        inside: list[int] = []

        def drop() -> None:
            things.clear()
            gc.collect()
            inside.append(sum(1 for h in lazy.backend.report() if h.nbytes >= 400))

        stream.launch_host_func(drop)
        stream.synchronize()
        assert inside == [1]
        assert device.memory_info.free > free


class TestKeptAlive:
    """What queued work needs is kept until the stream has passed it, and no longer."""

    def launch(self, device: pyacl.Device, stream: pyacl.Stream) -> weakref.ref[object]:
        x = device.full(16, 1, np.float16)
        device.load(ADD)["add_custom"][1, stream](x, x, x)
        return weakref.ref(x)

    def test_until_synchronize(self, sim_device) -> None:
        stream = sim_device.create_stream()
        alive = self.launch(sim_device, stream)
        gc.collect()
        assert alive() is not None
        stream.synchronize()
        gc.collect()
        assert alive() is None

    def test_until_the_stream_is_asked(self, sim_device) -> None:
        stream = sim_device.create_stream()
        alive = self.launch(sim_device, stream)
        deadline = time.monotonic() + 20
        if not stream.done:
            sim_device.synchronize()
        assert stream.done and time.monotonic() < deadline
        gc.collect()
        assert alive() is None

    def test_until_an_event_behind_it(self, sim_device) -> None:
        stream = sim_device.create_stream()
        first = self.launch(sim_device, stream)
        event = stream.record()
        second = self.launch(sim_device, stream)
        event.synchronize()
        gc.collect()
        assert first() is None and second() is not None
        stream.synchronize()

    def test_an_event_that_a_stream_waits_for(self, sim_device) -> None:
        first, second = sim_device.create_stream(), sim_device.create_stream()
        self.launch(sim_device, first)
        event = first.record()
        second.wait(event)
        alive = weakref.ref(event)
        del event
        gc.collect()
        assert alive() is not None
        second.synchronize()
        gc.collect()
        assert alive() is None

    def test_until_the_device_is_waited_for(self, sim_device) -> None:
        stream = sim_device.create_stream()
        alive = self.launch(sim_device, stream)
        sim_device.synchronize()
        gc.collect()
        assert alive() is None and not stream.closed

    def test_until_the_stream_is_closed(self, sim_device) -> None:
        stream = sim_device.create_stream()
        alive = self.launch(sim_device, stream)
        stream.close()
        gc.collect()
        assert alive() is None

    def test_a_program_that_never_waits_does_not_grow(self, machine, device) -> None:
        stream = device.create_stream()
        buffer, pinned = device.empty(64, "uint8"), device.empty_host(64, "uint8")
        longest = 0
        for _ in range(5000):
            buffer.copy_from(pinned, stream)
            longest = max(longest, len(stream._handle.kept))
            if machine.kind == "lazy" and longest > 1000:
                stream.synchronize()
        assert longest < 2500

    def test_asking_again_and_again_while_nothing_passes(self, stub) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            stub.stub.set_output("aclrtQueryEventStatus", "status", np.uint32(0).tobytes())
            stub.stub.set_result("aclrtQueryEventStatus", 0)
            buffer, pinned = device.empty(64, "uint8"), device.empty_host(64, "uint8")
            for _ in range(4000):
                buffer.copy_from(pinned, stream)
            assert len(stream._handle.kept) == 4000, "not one may go before the stream has passed it"
            assert len(stub.stub.calls("aclrtQueryEventStatus")) == 2, "asked now and then, not each time"
            stream.synchronize()
            assert len(stream._handle.kept) == 0

    def test_work_of_other_threads_is_not_let_go(self, sim_device) -> None:
        """While one thread waits, another one queues: what it queued stays until the next wait."""
        stream = sim_device.create_stream()
        buffer, pinned = sim_device.empty(64, "uint8"), sim_device.empty_host(64, "uint8")
        stop = threading.Event()
        failures: list[str] = []

        def queue() -> None:
            while not stop.is_set():
                buffer.copy_from(pinned, stream)

        thread = threading.Thread(target=queue)
        thread.start()
        for _ in range(50):
            stream.synchronize()
        stop.set()
        thread.join()
        handle = stream._handle
        assert handle.position == handle._dropped + len(handle.kept)
        stream.synchronize()
        assert len(handle.kept) == 0 and failures == []


def test_dropping_a_stream_with_work_does_it(sim_device) -> None:
    stream = sim_device.create_stream()
    buffer = sim_device.full(4, 5, "int32", stream)
    ran: list[int] = []
    stream.launch_host_func(ran.append, 1)
    del stream
    gc.collect()
    assert ran == [1] and buffer.to_host().tolist() == [5] * 4
