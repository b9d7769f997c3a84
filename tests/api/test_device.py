"""Devices: opening, closing, what they are, threads, faults, several of them."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from pyacl_api import ADD, forget, use

import pyacl
from pyacl import raw, sim
from pyacl.raw import constants
from pyacl.testing import make_kernel_object


class TestOpen:
    def test_opens_and_closes(self, machine) -> None:
        device = pyacl.Device(0)
        assert device.id == 0 and not device.closed
        assert device.name.startswith("Ascend")
        device.close()
        device.close()
        assert device.closed
        with pytest.raises(pyacl.ClosedError, match="the device 0 is closed"):
            device.create_stream()

    def test_with_closes_everything_on_it(self, machine) -> None:
        with pyacl.Device(1) as device:
            stream, event, buffer = device.create_stream(), device.create_event(), device.empty(10)
            binary = device.load(ADD)
            assert machine.alive() != []
        for thing in (device, stream, event, buffer, binary):
            assert thing.closed
            assert "closed" in repr(thing)
        assert list(machine.alive()) == []

    def test_numbers_of_numpy_will_do(self, machine) -> None:
        assert pyacl.Device(np.int32(1)).id == 1

    @pytest.mark.parametrize("number", [2, 99, -1])
    def test_a_device_that_does_not_exist(self, machine, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "4,5")
        with pytest.raises(pyacl.AclInvalidDeviceError) as caught:
            pyacl.Device(number)
        assert isinstance(caught.value, ValueError)
        text = str(caught.value)
        assert f"device {number} does not exist: this process sees 2, numbers 0 to 1" in text
        assert "ASCEND_RT_VISIBLE_DEVICES" in text and "4,5" in text

    def test_without_the_variable(self, machine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
        with pytest.raises(pyacl.AclInvalidDeviceError, match="ASCEND_RT_VISIBLE_DEVICES is not set"):
            pyacl.Device(7)

    @pytest.mark.parametrize("number", ["0", 0.0, None, True])
    def test_what_is_no_number(self, machine, number: object) -> None:
        with pytest.raises(TypeError, match="id: the number of a device"):
            pyacl.Device(number)

    def test_two_objects_of_one_device(self, machine) -> None:
        first, second = pyacl.Device(0), pyacl.Device(0)
        first.close()
        buffer = second.full(4, 3, "int32")
        assert buffer.to_host().tolist() == [3, 3, 3, 3]

    def test_no_device(self, stub) -> None:
        stub.stub.set_output("aclrtGetDeviceCount", "count", np.uint32(0).tobytes())
        stub.stub.set_result("aclrtGetDeviceCount", 0)
        with pytest.raises(pyacl.AclInvalidDeviceError, match="this process sees no device"):
            pyacl.Device(0)

    def test_a_failure_on_the_way_leaves_nothing_set(self, stub) -> None:
        stub.stub.fail("aclrtGetCurrentContext", 507899)
        with pytest.raises(pyacl.AclError):
            pyacl.Device(0)
        assert [c.function for c in stub.stub.calls() if "etDevice" in c.function and "Count" not in c.function] == [
            "aclrtSetDevice",
            "aclrtResetDevice",
        ]

    def test_device_count(self, machine) -> None:
        assert pyacl.device_count() == 2

    def test_what_the_block_raised_is_not_hidden(self, stub) -> None:
        with pytest.raises(KeyError, match="mine") as caught, pyacl.Device(0) as device:
            device.create_stream()
            stub.stub.fail("aclrtDestroyStream", 507899)
            raise KeyError("mine")
        notes = getattr(caught.value, "__notes__", ["closing <Device 0> failed too"])
        assert "failed too" in notes[0]
        stub.stub.restore("aclrtDestroyStream")

    if not hasattr(BaseException, "add_note"):
        test_what_the_block_raised_is_not_hidden = pytest.mark.filterwarnings("ignore:closing:ResourceWarning")(
            test_what_the_block_raised_is_not_hidden
        )


class TestWhatItIs:
    def test_info(self, simulator) -> None:
        info = pyacl.Device(1).info
        assert (info.id, info.name, info.cann) == (1, "Ascend910B1", "9.0.0")
        assert info.user_id == 1 and info.physical_id == 1
        assert info.ai_cores == 24 and info.vector_cores == 48
        assert info.total_memory == pyacl.Device(1).memory_info.total > 2**34

    def test_info_of_an_old_library(self) -> None:
        forget()
        pyacl.use_backend(sim.Backend(cann="8.1.RC1"))
        info = pyacl.Device(0).info
        assert info.cann == "8.1.RC1" and info.name == "Ascend910B1"
        assert (info.user_id, info.physical_id, info.ai_cores, info.l2_cache) == (None, None, None, None)
        forget()

    def test_attribute(self, simulator) -> None:
        device = pyacl.Device(0)
        assert device.attribute(constants.aclrtDevAttr.ACL_DEV_ATTR_VECTOR_CORE_NUM) == 48
        with pytest.raises(pyacl.AclInvalidArgumentError):
            device.attribute(7)

    def test_memory_info(self, simulator) -> None:
        device = pyacl.Device(0)
        before = device.memory_info
        assert before.free <= before.total
        buffer = device.allocate(1 << 20)
        assert before.free - device.memory_info.free >= 1 << 20
        del buffer
        assert device.memory_info == before

    def test_memory_info_where_hbm_is_not_known(self, stub) -> None:
        """A kind of memory that a device does not have answers 0: then it is the other kind."""
        device = pyacl.Device(0)
        for parameter, value in (("free", 0), ("total", 0)):
            stub.stub.set_output("aclrtGetMemInfo", parameter, np.uint64(value).tobytes())
        stub.stub.set_result("aclrtGetMemInfo", 0)
        device.memory_info  # noqa: B018
        asked = [c.arguments[0] for c in stub.stub.calls("aclrtGetMemInfo")]
        assert asked == [constants.ACL_HBM_MEM, constants.ACL_DDR_MEM]

    def test_repr(self, simulator) -> None:
        device = pyacl.Device(0)
        assert repr(device) == "<Device 0>"
        device.name  # noqa: B018
        assert repr(device) == "<Device 0 (Ascend910B1)>"
        device.close()
        assert repr(device) == "<Device 0 (Ascend910B1), closed>"


class TestThreads:
    def test_a_new_thread_works_by_itself(self, machine) -> None:
        device = pyacl.Device(0)
        stream = device.create_stream()
        results: list[object] = []

        def work() -> None:
            try:
                buffer = device.to_device(np.arange(8, dtype=np.int32), stream)
                event = stream.record()
                stream.synchronize()
                results.append((event.done, buffer.to_host(stream).tolist()))
            except BaseException as error:  # noqa: BLE001
                results.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert results == [(True, [0, 1, 2, 3, 4, 5, 6, 7])]

    @pytest.mark.parametrize("first", ["synchronize", "record", "wait", "copy", "launch", "done", "event"])
    def test_any_call_can_be_the_first_of_a_thread(self, simulator, first: str) -> None:
        device = pyacl.Device(0)
        stream, other = device.create_stream(), device.create_stream()
        event = stream.record()
        pinned, buffer = device.empty_host(64, "uint8"), device.empty(64, "uint8")
        add = device.load(ADD)["add_custom"]
        x = device.zeros(16, np.float16)
        calls = {
            "synchronize": stream.synchronize,
            "record": stream.record,
            "wait": lambda: other.wait(event),
            "copy": lambda: buffer.copy_from(pinned, stream),
            "launch": lambda: add[1, stream](x, x, x),
            "done": lambda: stream.done,
            "event": event.synchronize,
        }
        errors: list[BaseException] = []

        def work() -> None:
            try:
                calls[first]()
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert errors == []
        stream.synchronize()

    def test_an_answered_refusal_leaves_no_text_behind(self, simulator) -> None:
        device = pyacl.Device(0)
        stream = device.create_stream()
        event = device.create_event()
        texts: list[object] = []

        def work() -> None:
            stream.record(event)  # refused: this thread has no context yet; then made again
            api = raw.load(simulator.backend)
            texts.append(api.recent_message())
            texts.append(api.unchecked.aclrtPeekAtLastError(constants.ACL_RT_THREAD_LEVEL))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert texts == ["", 0]

    def test_the_hot_path_makes_no_extra_call(self, stub) -> None:
        device = pyacl.Device(0)
        stream, event = device.create_stream(), device.create_event()
        pinned, buffer = device.empty_host(64, "uint8"), device.empty(64, "uint8")
        before = stub.stub.count()
        stream.record(event)
        stream.wait(event)
        buffer.copy_from(pinned, stream)
        stream.synchronize()
        assert stub.stub.count() - before == 4

    def test_a_refused_call_is_made_once_more(self, stub) -> None:
        """107002 and its kind have done nothing: the thread is bound, and the call made again, once."""
        device = pyacl.Device(0)
        stream, event = device.create_stream(), device.create_event()
        for code in (107002, 107003):
            stub.stub.set_result("aclrtRecordEvent", code)
            before = len(stub.stub.calls("aclrtRecordEvent"))
            bound = len(stub.stub.calls("aclrtSetCurrentContext"))
            with pytest.raises(pyacl.AclError) as caught:
                stream.record(event)
            assert caught.value.code == code
            assert len(stub.stub.calls("aclrtRecordEvent")) - before == 2
            assert len(stub.stub.calls("aclrtSetCurrentContext")) - bound == 1

    def test_other_failures_are_not_tried_again(self, stub) -> None:
        device = pyacl.Device(0)
        stream, event = device.create_stream(), device.create_event()
        stub.stub.set_result("aclrtRecordEvent", 207000)
        with pytest.raises(pyacl.AclNotSupportedError):
            stream.record(event)
        assert len(stub.stub.calls("aclrtRecordEvent")) == 1


class TestSeveralDevices:
    def test_methods_act_on_their_object(self, simulator) -> None:
        """Whatever device is current on the thread."""
        first, second = pyacl.Device(0), pyacl.Device(1)  # now the second is current
        before = (first.memory_info.free, second.memory_info.free)
        buffer = first.allocate(1 << 20)
        assert before[0] - first.memory_info.free >= 1 << 20
        assert second.memory_info.free == before[1]
        streams = [device.create_stream() for device in (first, second, first, second)]
        add = {d.id: d.load(ADD)["add_custom"] for d in (first, second)}
        ones = {d.id: d.full(64, 1, np.float16) for d in (first, second)}
        sums = []
        for stream in streams:  # every launch is on another device than the one before
            z = stream.device.empty(64, np.float16)
            add[stream.device.id][4, stream](ones[stream.device.id], ones[stream.device.id], z)
            sums.append(z)
        for stream, z in zip(streams, sums):
            assert z.to_host(stream).tolist() == [2.0] * 64
        del buffer

    def test_a_call_that_makes_something_leaves_the_thread_as_it_was(self, machine) -> None:
        first, second = pyacl.Device(0), pyacl.Device(1)
        assert second.id == 1
        api = first._handle.api
        current = raw.types.aclrtContext()
        api.aclrtGetCurrentContext(current)
        first.create_stream(), first.empty(5), first.create_event(), first.memory_info  # noqa: B018
        after = raw.types.aclrtContext()
        api.aclrtGetCurrentContext(after)
        assert after.value == current.value

    def test_things_of_two_devices_do_not_mix(self, machine) -> None:
        first, second = pyacl.Device(0), pyacl.Device(1)
        stream, buffer = first.create_stream(), first.empty(4, np.float16)
        event, foreign = second.create_event(), second.empty(4, np.float16)
        add = second.load(ADD)["add_custom"]
        for use_both in (
            lambda: stream.record(event),
            lambda: stream.wait(event),
            lambda: foreign.to_host(stream),
            lambda: foreign.copy_from(np.zeros(4, np.float16), stream),
            lambda: foreign.fill(0, stream),
            lambda: second.to_device(np.zeros(4), stream),
            lambda: add[1, stream],
        ):
            with pytest.raises(ValueError, match="belongs to device [01], not to device [01]: take one "):
                use_both()
        with pytest.raises(ValueError, match="source belongs to device 1, this buffer to device 0.*enable_peer_access"):
            buffer.copy_from(foreign)
        with pytest.raises(
            ValueError, match=r"argument 2 of 3: the buffer belongs to device 0, the kernel to device 1"
        ):
            add[1](foreign, buffer, foreign)

    def test_peer_access(self, simulator) -> None:
        first, second = pyacl.Device(0), pyacl.Device(1)
        assert first.can_access_peer(second) and first.can_access_peer(first)
        first.enable_peer_access(second)
        second.enable_peer_access(first)
        source = first.to_device(np.arange(100, dtype=np.float32))
        target = second.empty_like(source).copy_from(source)
        assert target.to_host().tolist() == list(range(100))
        stream = second.create_stream()
        target.fill(0)
        target.copy_from(source, stream)
        assert target.to_host(stream).tolist() == list(range(100))

    def test_peer_access_goes_both_ways(self, stub) -> None:
        first, second = pyacl.Device(0), pyacl.Device(1)
        stub.stub.set_output("aclrtDeviceCanAccessPeer", "canAccessPeer", np.int32(1).tobytes())
        stub.stub.set_result("aclrtDeviceCanAccessPeer", 0)
        first.enable_peer_access(second)
        second.enable_peer_access(first)
        assert [c.arguments for c in stub.stub.calls("aclrtDeviceEnablePeerAccess")] == [(1, 0), (0, 0)]

    def test_no_peer_access(self, stub) -> None:
        first, second = pyacl.Device(0), pyacl.Device(1)
        stub.stub.set_output("aclrtDeviceCanAccessPeer", "canAccessPeer", np.int32(0).tobytes())
        stub.stub.set_result("aclrtDeviceCanAccessPeer", 0)
        with pytest.raises(pyacl.AclNotSupportedError, match="devices 0 and 1 cannot reach each other"):
            first.enable_peer_access(second)


class TestSynchronize:
    def test_waits_for_every_stream(self, simulator) -> None:
        device = pyacl.Device(0)
        ran: list[int] = []
        for number in range(3):
            device.create_stream().launch_host_func(ran.append, number)
        streams_alive = device._handle.children
        device.synchronize()
        assert sorted(ran) == [0, 1, 2]
        del streams_alive

    def test_with_a_timeout(self, machine) -> None:
        device = pyacl.Device(0)
        device.synchronize(timeout=1.5)
        device.synchronize(0)
        if machine.stub:
            asked = [c.arguments[0] for c in machine.stub.calls("aclrtSynchronizeDeviceWithTimeout")]
            assert asked == [1500, 1]

    @pytest.mark.parametrize(
        ("timeout", "error"), [(-1, ValueError), (float("nan"), ValueError), ("1", None), ("x", TypeError)]
    )
    def test_bad_timeouts(self, machine, timeout: object, error: type[Exception] | None) -> None:
        device = pyacl.Device(0)
        stream = device.create_stream()
        event = stream.record()
        for thing in (device, stream, event):
            if error is None:
                thing.synchronize(timeout)
            else:
                with pytest.raises(error, match="timeout: "):
                    thing.synchronize(timeout)

    def test_an_endless_timeout_fits_the_library(self, stub) -> None:
        device = pyacl.Device(0)
        device.synchronize(float("inf"))
        assert stub.stub.calls("aclrtSynchronizeDeviceWithTimeout")[0].arguments[0] == 2_000_000_000

    def test_a_timeout_is_an_error_of_two_kinds(self, stub) -> None:
        device = pyacl.Device(0)
        stub.stub.set_result("aclrtSynchronizeDeviceWithTimeout", 507046)
        with pytest.raises(TimeoutError) as caught:
            device.synchronize(0.1)
        assert isinstance(caught.value, pyacl.AclTimeoutError) and caught.value.code == 507046

    def test_a_hang_is_remembered_by_the_last_device_of_the_number(self, stub) -> None:
        first, second = pyacl.Device(0), pyacl.Device(0)
        stub.stub.set_result("aclrtSynchronizeDeviceWithTimeout", 507046)
        with pytest.raises(pyacl.AclTimeoutError):
            first.synchronize(timeout=0.01)
        first.close()
        assert stub.stub.calls("aclrtResetDeviceForce") == []
        second.close()
        assert len(stub.stub.calls("aclrtResetDeviceForce")) == 1

    def test_after_a_hang_nothing_waits_for_it(self, stub) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            stub.stub.set_result("aclrtSynchronizeStreamWithTimeout", 507046)
            with pytest.raises(pyacl.AclTimeoutError):
                stream.synchronize(0.1)
        called = [c.function for c in stub.stub.calls()]
        assert "aclrtDestroyStreamForce" in called and "aclrtDestroyStream" not in called
        assert "aclrtResetDeviceForce" in called and "aclrtResetDevice" not in called

    def test_after_a_wait_that_came_to_its_end_all_is_as_before(self, stub) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            stub.stub.set_result("aclrtSynchronizeStreamWithTimeout", 507046)
            with pytest.raises(pyacl.AclTimeoutError):
                stream.synchronize(0.1)
            stream.synchronize()
        called = [c.function for c in stub.stub.calls()]
        assert "aclrtDestroyStream" in called and "aclrtResetDevice" in called


@sim.kernel
def fill_custom(x: sim.Out[np.int32], n: np.uint32) -> None:
    x[:n] = 1


FILL = make_kernel_object("fill_custom", args=[8, 4])


def go_beyond(device: pyacl.Device, stream: pyacl.Stream) -> None:
    """Launch a kernel that breaks."""
    x = device.zeros(4, np.int32)
    device.load(FILL)["fill_custom"][1, stream](x, np.uint32(400))


class TestFault:
    """A kernel that broke: the library says so once, pyacl remembers."""

    @pytest.fixture
    def broken(self, stub):
        device = pyacl.Device(0)
        stream = device.create_stream()
        buffer = device.empty(16, np.float16)
        add = device.load(ADD)["add_custom"][1, stream]
        add(buffer, buffer, buffer)
        stub.stub.fail("aclrtSynchronizeStream", 507035, "EZ9999: fault kernel_name=add_custom")
        with pytest.raises(pyacl.AclAiCoreError) as caught:
            stream.synchronize()
        stub.stub.restore("aclrtSynchronizeStream")
        assert caught.value.code == 507035
        return device, stream, buffer, add, caught.value

    def test_everything_on_the_device_is_refused(self, stub, broken) -> None:
        device, stream, buffer, add, first = broken
        assert repr(device.fault) == repr(first) and str(device.fault) == str(first) and "broken" in repr(device)
        assert device.fault.__traceback__ is None  # it would keep alive what the failing call reached
        before = stub.stub.count()
        for use_it in (
            stream.synchronize,
            device.synchronize,
            lambda: add(buffer, buffer, buffer),
            buffer.to_host,
            lambda: buffer.fill(0),
            lambda: device.empty(3),
            device.create_stream,
            stream.record,
            lambda: stream.done,
        ):
            with pytest.raises(pyacl.AclAiCoreError, match=r"device 0 broke earlier.*recover\(\)") as caught:
                use_it()
            assert caught.value.code == 507035 and caught.value.__cause__ is device.fault
        assert stub.stub.count() == before

    def test_other_devices_go_on(self, broken) -> None:
        pyacl.Device(1).full(3, 7, "uint8").to_host()

    def test_closing_does_not_wait(self, stub, broken) -> None:
        broken[0].close()
        called = [c.function for c in stub.stub.calls()]
        assert "aclrtDestroyStreamForce" in called and "aclrtDestroyStream" not in called
        assert "aclrtResetDeviceForce" in called

    @pytest.mark.parametrize("kind", ["stream", "default stream"])
    def test_one_that_no_wait_has_told_of_is_raised_at_the_end(self, simulator, kind: str) -> None:
        with pytest.raises(pyacl.AclAiCoreError, match="is beyond its 4 elements") as caught, pyacl.Device(0) as device:
            stream = device.create_stream() if kind == "stream" else device.default_stream
            go_beyond(device, stream)
        assert caught.value.code == 507035 and caught.value.function == "aclrtSynchronizeStream"
        assert device.closed and stream.closed

    def test_one_on_a_stream_that_was_dropped(self, lazy) -> None:
        device = pyacl.Device(0)
        with pytest.warns(ResourceWarning, match="freeing the stream of device 0: .*is beyond its 4 elements"):
            go_beyond(device, device.create_stream())
            gc.collect()
        with pytest.raises(pyacl.AclAiCoreError, match="device 0 broke earlier"):
            device.empty(4)

    def test_clear_fault(self, broken) -> None:
        device, stream, buffer, add, _ = broken
        device.clear_fault()
        add(buffer, buffer, buffer)
        stream.synchronize()
        assert device.fault is None

    def test_recover(self, stub, broken) -> None:
        device, stream, buffer, _, _ = broken
        device.recover()
        assert device.fault is None and not device.closed
        assert stream.closed and buffer.closed
        device.full(4, 7, "uint8").to_host()
        called = [c.function for c in stub.stub.calls()]
        assert called.count("aclrtResetDeviceForce") == 1

    def test_a_device_opened_twice_breaks_and_recovers_as_one(self, stub, broken) -> None:
        device, *_, first = broken
        late = pyacl.Device(0)
        with pytest.raises(pyacl.AclAiCoreError, match="device 0 broke earlier"):
            late.empty(3)
        assert str(late.fault) == str(first)
        late.clear_fault()
        assert device.fault is None
        buffer = late.empty(3)
        late.recover()
        assert buffer.closed
        for twin in (device, late):
            assert twin.full(4, 7, "uint8").to_host().tolist() == [7] * 4
        resets = len(stub.stub.calls("aclrtResetDevice"))
        late.close()
        assert device.full(4, 8, "uint8").to_host().tolist() == [8] * 4
        device.close()
        assert len(stub.stub.calls("aclrtResetDevice")) == resets + 2

    def test_only_the_last_one_resets_by_force(self, stub, broken) -> None:
        device = broken[0]
        other = pyacl.Device(0)
        device.close()
        assert stub.stub.calls("aclrtResetDeviceForce") == []
        other.close()
        assert len(stub.stub.calls("aclrtResetDeviceForce")) == 1

    def test_recover_gives_up(self, stub, broken, monkeypatch: pytest.MonkeyPatch) -> None:
        waits: list[float] = []
        monkeypatch.setattr("time.sleep", waits.append)
        stub.stub.set_result("aclrtResetDeviceForce", 507899)
        with pytest.raises(pyacl.AclError):
            broken[0].recover(attempts=3)
        assert waits == [1, 1]
        stub.stub.restore("aclrtResetDeviceForce")


def test_the_device_lives_as_long_as_what_is_on_it(machine) -> None:
    stream = pyacl.Device(0).create_stream()
    gc.collect()
    stream.synchronize()
    assert not stream.device.closed


def test_collecting_closes(machine) -> None:
    device = pyacl.Device(0)
    stream, buffer = device.create_stream(), device.empty(100)
    del device, stream, buffer
    gc.collect()
    assert list(machine.alive()) == []
    if machine.stub:
        assert len(machine.stub.calls("aclrtResetDevice")) == 1


def test_collecting_a_cycle_closes(machine) -> None:
    """The collector begins with the oldest, the device; what is on it still goes first."""

    class Program:
        pass

    program = Program()
    program.device = pyacl.Device(0)
    program.stream = program.device.create_stream()
    program.buffer = program.device.empty(100)
    program.view = program.buffer[3:5]
    program.kernel = program.device.load(ADD)["add_custom"]
    program.device.program = program.stream.program = program
    program.stream.record(program.device.create_event())
    del program
    gc.collect()
    assert list(machine.alive()) == []


def test_default_stream(machine) -> None:
    device = pyacl.Device(0)
    stream = device.default_stream
    stream.record()
    stream.synchronize()
    assert device.default_stream.address == stream.address
    stream.close()  # not ours: nothing is destroyed
    device.default_stream.synchronize()


def test_default_stream_before_cann_8_5() -> None:
    forget()
    machine = use("lazy", cann="8.1.RC1")
    with pyacl.Device(0) as device:
        x = device.full(16, 1, np.float16)
        z = device.empty_like(x)
        assert not device._handle.api.has("aclrtCtxGetCurrentDefaultStream")
        device.default_stream.record()
        device.default_stream.synchronize()
        del x, z
    assert list(machine.alive()) == []
    forget()


def test_open_device_of_borrowed_things(machine) -> None:
    first = pyacl.Device(0)
    pyacl.DeviceBuffer.borrow(first.empty(10, "uint8").address, 10)
    second = pyacl.Device(1)
    with pytest.raises(ValueError, match="device: say which device it belongs to; open are 0, 1"):
        pyacl.DeviceBuffer.borrow(0x1000, 10)
    pyacl.DeviceBuffer.borrow(0x1000, 10, device=second)
