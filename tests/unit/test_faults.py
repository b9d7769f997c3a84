"""Faults on request: which calls fail and how, kernels that break or hang, devices and memory that go; bad requests."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyacl
from pyacl import raw, sim
from pyacl.backends.sim.faults import fitting_code
from pyacl.raw import constants as c
from pyacl.raw.functions import FUNCTIONS
from pyacl.session import isolated
from pyacl.testing import faults, make_kernel_object

ADD = make_kernel_object("add_custom")
CUBE = make_kernel_object("add_custom", core="aic")


@sim.kernel
def add_custom(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]) -> None:
    z[:] = x + y


@pytest.fixture(params=["lazy", "eager", "random(5)"])
def order(request):
    return request.param


@pytest.fixture
def backend(order):
    made = sim.Backend(devices=2, order=order)
    with isolated(made):
        yield made
    gc.collect()
    assert made.report().is_empty, made.report()


@pytest.fixture
def device(backend):
    with pyacl.Device(0) as opened:
        yield opened


@pytest.fixture
def launch(device):
    """A launch of the kernel on a stream; `launch.stream`, `launch.z`."""

    class Launch:
        def __init__(self) -> None:
            self.stream = device.create_stream()
            self.x = device.full(64, 1, np.float16)
            self.z = device.zeros(64, np.float16)
            self.kernel = device.load(ADD)["add_custom"]

        def __call__(self, config: Any = None) -> None:
            self.kernel[1, self.stream, config](self.x, self.x, self.z)

        def done(self) -> bool:
            return bool((self.z.to_host() == 2).all())

    return Launch()


def codes(count: int, name: str = "aclrtGetDevice", *args: Any) -> list[int]:
    """What a number of calls return."""
    api = raw.load(pyacl.sim.in_use())
    number = ctypes.c_int32()
    return [getattr(api.unchecked, name)(*args or (number,)) for _ in range(count)]


# ---- calls ---------------------------------------------------------------------------------------------------------


class TestCalls:
    def test_the_nth_call_fails_once(self, backend, device) -> None:
        fault = backend.faults.fail("aclrtGetDevice", 507899, nth=3)
        assert codes(5) == [0, 0, 507899, 0, 0]
        assert fault.hits == [f"{__file__}:{codes.__code__.co_firstlineno + 4}"]

    def test_several_and_all(self, backend, device) -> None:
        with backend.faults.fail("aclrtGetDevice", "ACL_ERROR_RT_DRV_INTERNAL_ERROR", nth=2, times=2):
            assert codes(5) == [0, 507899, 507899, 0, 0]
        with backend.faults.fail("aclrtGetDevice", c.ACL_ERROR_RT_PARAM_INVALID, nth=4, times="all"):
            assert codes(6) == [0, 0, 0, 107000, 107000, 107000]
        assert codes(2) == [0, 0]

    def test_two_faults_of_one_function_count_for_themselves(self, backend, device) -> None:
        with backend.faults.fail("aclrtGetDevice", 507899, nth=2), backend.faults.fail("aclrtGetDevice", 107000, nth=3):
            assert codes(4) == [0, 507899, 107000, 0]

    def test_a_failing_call_does_nothing(self, backend, device) -> None:
        with backend.faults.fail("aclrtMalloc"), pytest.raises(pyacl.AclMemoryError) as caught:
            device.empty(100)
        assert (caught.value.code, caught.value.message_code) == (207001, "EL0004")
        assert caught.value.requested == 400 and caught.value.free == caught.value.total
        assert "test_faults.py" in caught.value.message and "call 1 of aclrtMalloc" in caught.value.message
        assert [live.kind for live in backend.report()] == []

    def test_last_error_as_the_library_keeps_it(self, backend, device) -> None:
        api = device._handle.api.unchecked
        for code, last in ((507899, 507899), (207001, 207001), (100000, 0), (500002, 500002), (100039, 0)):
            with backend.faults.fail("aclrtResetDevice", code):
                assert api.aclrtResetDevice(0) == code
            assert api.aclrtGetLastError(0) == last, code

    def test_functions_that_were_used_before_and_after(self, backend, device) -> None:
        api = device._handle.api
        number = ctypes.c_int32()
        api.aclrtGetDevice(number)
        with backend.faults.fail("aclrtGetDevice", times="all"):
            with pytest.raises(pyacl.AclError):
                api.aclrtGetDevice(number)
            with pytest.raises(pyacl.AclError):
                raw.aclrtGetDevice(number)
        api.aclrtGetDevice(number)

    def test_only_while_a_device_is_current(self, backend, device) -> None:
        with backend.faults.fail("aclrtGetDevice", nth=2, device=1) as fault:
            assert codes(3) == [0, 0, 0]
            with pyacl.Device(1):
                assert codes(3) == [0, 507899, 0]
        assert len(fault.hits) == 1

    def test_by_the_front_door(self, backend, device) -> None:
        """`pyacl.testing.faults` are those of the machine in use."""
        with faults.fail("aclrtGetDevice", nth=2):
            assert faults.active == backend.faults.active != ()
            assert codes(3) == [0, 507899, 0]
        assert faults.active == ()

    def test_clear(self, backend, device) -> None:
        first, second = faults.fail("aclrtGetDevice", times="all"), faults.kernel_exception()
        assert faults.active == (first, second)
        faults.clear()
        assert faults.active == () and codes(2) == [0, 0]
        first.remove()  # again is fine
        assert "aclrtGetDevice fails, number 1 and all later" in repr(first) and "hit 0 times" in repr(first)

    def test_each_machine_has_its_own(self, backend, device) -> None:
        other = sim.Backend()
        with other.faults.fail("aclrtGetDevice", times="all"):
            assert codes(2) == [0, 0]

    def test_from_several_threads(self, backend, device) -> None:
        found: list[int] = []
        with backend.faults.fail("aclrtGetDevice", nth=100, times=50):
            threads = [threading.Thread(target=lambda: found.extend(codes(100))) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert found.count(507899) == 50 and len(found) == 400


class TestProbability:
    @given(probability=st.floats(0, 1), seed=st.integers())
    @settings(max_examples=30, deadline=None)
    def test_the_same_seed_the_same_calls(self, probability, seed) -> None:
        with isolated(sim.Backend()), pyacl.Device(0):
            runs = []
            for _ in range(2):
                with faults.fail("aclrtGetDevice", 507899, probability=probability, seed=seed):
                    runs.append(codes(50))
        assert runs[0] == runs[1]
        hit = runs[0].count(507899)
        assert hit == {0: 0, 1: 50}.get(probability, hit)

    def test_about_as_many(self, backend, device) -> None:
        with faults.fail("aclrtGetDevice", probability=0.25, seed=1):
            assert 200 < codes(1000).count(507899) < 300

    def test_at_most(self, backend, device) -> None:
        with faults.fail("aclrtGetDevice", probability=0.5, times=3) as fault:
            assert codes(100).count(507899) == 3 == len(fault.hits)


def test_fitting_codes() -> None:
    expected = {
        "aclrtMalloc": 207001, "aclrtMallocHost": 207001, "aclrtMemPoolMallocAsync": 207001, "rtMalloc": 207001,
        "aclrtCreateStream": 207008, "aclrtCreateEventExWithFlag": 207007, "aclrtCreateNotify": 207009,
        "aclrtSetDevice": 507033, "aclrtSynchronizeStream": 507015, "aclrtSynchronizeStreamWithTimeout": 507046,
        "aclrtSynchronizeDeviceWithTimeout": 507046, "aclrtSynchronizeEventWithTimeout": 507047, "aclInit": 500000,
        "aclrtMemcpy": 507899, "aclrtFree": 507899, "aclrtLaunchKernelWithConfig": 507899,
    }  # fmt: skip
    assert {name: fitting_code(name) for name in expected} == expected
    known = {int(value) for name, value in vars(c).items() if name.startswith("ACL_ERROR_")}
    assert {fitting_code(name) for name, row in FUNCTIONS.items() if row.returns_status} <= known


# ---- kernels -------------------------------------------------------------------------------------------------------


class TestKernelException:
    def test_launch_succeeds_the_next_wait_fails_once(self, device, launch) -> None:
        api, address = device._handle.api.unchecked, launch.stream.address
        with faults.kernel_exception("add_custom") as fault:
            launch()
            with pytest.raises(pyacl.AclAiCoreError) as caught:
                launch.stream.synchronize()
        error = caught.value
        assert (error.code, error.kernel_name, error.device_id) == (507035, "add_custom", 0)
        assert "[vector core exception]" in error.raw_text and error.message_code == "EZ9999"
        assert len(fault.hits) == 1 and fault.hits[0].startswith(__file__)
        # the library forgets it at once, the device of pyacl does not
        assert api.aclrtSynchronizeStream(address) == 0
        with pytest.raises(pyacl.AclAiCoreError, match="broke earlier"):
            launch()
        device.clear_fault()
        assert not launch.done()
        launch()
        launch.stream.synchronize()
        assert launch.done()

    def test_recover(self, device, launch) -> None:
        with faults.kernel_exception():
            launch()
            with pytest.raises(pyacl.AclAiCoreError):
                launch.stream.synchronize()
        device.recover()
        assert device.fault is None
        x = device.full(4, 1, np.float16)
        device.load(ADD)["add_custom"][1, device.default_stream](x, x, x)
        assert x.to_host(device.default_stream).tolist() == [2] * 4

    @pytest.mark.parametrize(("soc", "binary", "code"), [
        ("Ascend910B1", ADD, 507035), ("Ascend910B1", CUBE, 507015),
        ("Ascend910B1", make_kernel_object("add_custom", core="mix"), 507015),
        ("Ascend310P3", make_kernel_object("add_custom", "Ascend310P3"), 507015),
    ])  # fmt: skip
    def test_code_of_the_core(self, soc, binary, code) -> None:
        with isolated(sim.Backend(soc=soc)), pyacl.Device(0) as device:
            x = device.zeros(4, np.float16)
            with faults.kernel_exception():
                device.load(binary)["add_custom"][1](x, x, x)
                with pytest.raises(pyacl.AclAiCoreError) as caught:
                    device.synchronize()
        assert caught.value.code == code

    @pytest.mark.parametrize("code", [507034, 507016, 507053, "ACL_ERROR_RT_TS_ERROR"])
    def test_another_code(self, device, launch, code) -> None:
        with faults.kernel_exception("add_custom", code):
            launch()
            with pytest.raises(pyacl.AclDeviceFaultError) as caught:
                device.synchronize()
        assert caught.value.code == (507001 if isinstance(code, str) else code)

    def test_which_launches(self, device, launch) -> None:
        found = []
        with faults.kernel_exception("add_custom", nth=2, times=2), faults.kernel_exception("another"):
            for _ in range(5):
                launch()
                try:
                    launch.stream.synchronize()
                    found.append(0)
                except pyacl.AclAiCoreError as error:
                    found.append(error.code)
                    device.clear_fault()
        assert found == [0, 507035, 507035, 0, 0]

    def test_a_kernel_that_nobody_registered(self) -> None:
        backend = sim.Backend(unregistered="skip")
        with isolated(backend), pyacl.Device(0) as device:
            unknown = device.load(make_kernel_object("unknown_custom"))["unknown_custom"]
            x = device.zeros(4, np.float16)
            with backend.faults.kernel_exception("unknown_custom"):
                unknown[1](x, x, x)
                with pytest.raises(pyacl.AclAiCoreError):
                    device.synchronize()

    def test_the_exception_callback_is_told(self, device, launch) -> None:
        api, told = device._handle.api, []
        callback = raw.types.aclrtExceptionInfoCallback(
            lambda info: told.append(api.aclrtGetErrorCodeFromExceptionInfo(info))
        )
        api.aclrtSetExceptionInfoCallback(callback)
        with faults.kernel_exception():
            launch()
            with pytest.raises(pyacl.AclAiCoreError):
                launch.stream.synchronize()
        api.aclrtSetExceptionInfoCallback(raw.types.aclrtExceptionInfoCallback())
        assert told == [507035]

    def test_later_work_of_the_stream_goes_on(self, device, launch) -> None:
        with faults.kernel_exception():
            launch()
            launch.x.copy_to(launch.z, launch.stream)
            with pytest.raises(pyacl.AclAiCoreError):
                launch.stream.synchronize()
        device.clear_fault()
        assert (launch.z.to_host() == 1).all()


class TestKernelHang:
    def test_a_timeout_works(self, device, launch) -> None:
        begin = time.monotonic()
        with faults.kernel_hang("add_custom"):
            launch()
            for wait in (launch.stream.synchronize, device.synchronize, launch.stream.record().synchronize):
                with pytest.raises(pyacl.AclTimeoutError):
                    wait(timeout=30)
            assert not launch.stream.done
        launch.stream.abort()
        launch()
        launch.stream.synchronize()
        assert launch.done()
        assert time.monotonic() - begin < 20, "nobody sleeps through a timeout that can only run out"

    def test_without_a_timeout_it_is_a_deadlock(self, device, launch) -> None:
        with faults.kernel_hang():
            launch()
            with pytest.raises(sim.Deadlock, match="add_custom|never ends") as caught:
                launch.stream.synchronize()
        assert str(caught.value).count("test_faults.py") >= 2  # the launch, and who asked for it

    def test_threads_of_others_do_not_delay_the_report(self, backend, device, launch) -> None:
        """A test runner's threads, which `bystanders` names, will not end a wait; of any other thread nobody knows."""
        end = threading.Event()
        thread = threading.Thread(target=end.wait)
        thread.start()
        backend.machine.scheduler.bystanders = {thread.ident}
        begin = time.monotonic()
        with faults.kernel_hang():
            launch()
            with pytest.raises(sim.Deadlock):
                launch.stream.synchronize()
        assert time.monotonic() - begin < backend.machine.scheduler.patience / 2
        end.set()
        thread.join()

    def test_closing_after_a_hang(self, backend, device, launch) -> None:
        with faults.kernel_hang():
            launch()
            with pytest.raises(sim.Deadlock):
                launch.stream.synchronize()
        device.close()
        assert backend.report().is_empty

    def test_closing_after_a_device_wait_that_timed_out(self, backend, device, launch) -> None:
        with faults.kernel_hang():
            launch()
            with pytest.raises(pyacl.AclTimeoutError):
                device.synchronize(timeout=1)
        device.close()
        assert backend.report().is_empty

    def test_recover(self, device, launch) -> None:
        with faults.kernel_hang():
            launch()
            with pytest.raises(pyacl.AclTimeoutError):
                launch.stream.synchronize(timeout=1)
        device.recover()
        assert device.full(4, 7, np.uint8).to_host().tolist() == [7] * 4

    def test_other_streams_go_on(self, device, launch) -> None:
        with faults.kernel_hang():
            launch()
            other = device.create_stream()
            launch.kernel[1, other](launch.x, launch.x, launch.z)
            other.synchronize()
            assert launch.done()
            other.wait(launch.stream.record())
            with pytest.raises(pyacl.AclTimeoutError):
                other.synchronize(timeout=1)
            with pytest.raises(pyacl.AclTimeoutError):
                launch.stream.synchronize(timeout=1)

    def test_a_limit_of_the_launch_stops_it(self, backend, device, launch) -> None:
        backend.clock.stop()
        begin = backend.clock.now()
        with faults.kernel_hang():
            launch({"timeout": 5})
            with pytest.raises(pyacl.AclAiCoreError) as caught:
                launch.stream.synchronize()
        assert caught.value.code == 507034 and "[vector core timeout]" in caught.value.raw_text
        assert 5 <= (backend.clock.now() - begin) / 1e9 < 5.1
        device.clear_fault()
        launch()
        launch.stream.synchronize()
        assert launch.done()

    def test_a_limit_of_the_process_stops_it(self, device) -> None:
        raw.aclrtSetOpExecuteTimeOut(60)
        x = device.zeros(4, np.float16)
        with faults.kernel_hang():
            device.load(CUBE)["add_custom"][1](x, x, x)
            with pytest.raises(pyacl.AclTimeoutError):
                device.synchronize(timeout=30)
            with pytest.raises(pyacl.AclAiCoreError) as caught:
                device.synchronize()
        assert caught.value.code == 507014


# ---- devices -------------------------------------------------------------------------------------------------------


class TestMemory:
    def test_after_so_many_bytes(self, device) -> None:
        total = device.memory_info.total
        with faults.out_of_memory(64 << 20):
            assert device.memory_info == (64 << 20, total)
            kept = [device.allocate((4 << 20) - 64) for _ in range(16)]
            with pytest.raises(pyacl.AclMemoryError) as caught:
                device.allocate(1)
            assert (caught.value.requested, caught.value.free, caught.value.total) == (1, 0, total)
            kept.pop()
            assert device.allocate(1 << 20).nbytes == 1 << 20
        assert device.memory_info.free > 64 << 20

    def test_now_and_elsewhere(self, device) -> None:
        with faults.out_of_memory(device=1):
            device.allocate(1 << 20)
            with pyacl.Device(1) as other, pytest.raises(pyacl.AclMemoryError):
                other.allocate(1)

    def test_it_outlives_a_reset(self, backend, device) -> None:
        with faults.out_of_memory():
            device.recover()
            with pytest.raises(pyacl.AclMemoryError):
                device.allocate(1)
        assert device.memory_info.free == device.memory_info.total

    def test_pools_and_physical_memory(self, device) -> None:
        prop = raw.types.aclrtPhysicalMemProp(memAttr=c.ACL_HBM_MEM_HUGE)
        prop.location.type = c.ACL_MEM_LOCATION_TYPE_DEVICE
        with faults.out_of_memory(1 << 20), pytest.raises(pyacl.AclMemoryError):
            raw.aclrtMallocPhysical(raw.types.aclrtDrvMemHandle(), 2 << 20, prop, 0)


class TestLostDevice:
    def test_everything_that_needs_it_fails(self, backend, device, launch) -> None:
        pinned = device.empty_host(64, np.float16)
        event = launch.stream.record()
        launch.stream.synchronize()
        loss = faults.lose_device()
        failing = {
            507901: [
                launch, launch.stream.synchronize, device.synchronize, launch.stream.record, event.synchronize,
                lambda: launch.stream.done, lambda: launch.z.copy_to(pinned, launch.stream),
                lambda: launch.z.fill(0, launch.stream),
            ],
            507899: [
                lambda: device.allocate(1), launch.z.to_host, lambda: launch.z.copy_from(np.zeros(64, np.float16)),
                lambda: launch.z.fill(0), device.create_stream,
            ],
        }  # fmt: skip
        for code, calls in failing.items():
            for call in calls:
                device.clear_fault()
                with pytest.raises(pyacl.AclError) as caught:
                    call()
                assert caught.value.code == code, call
        # recover cannot help as long as it is away
        device.clear_fault()
        with pytest.raises(pyacl.AclError) as caught:
            device.recover(attempts=1)
        assert caught.value.code == 507033
        with pytest.raises(pyacl.AclError) as caught:
            pyacl.Device(0)
        assert caught.value.code == 507033
        with pyacl.Device(1) as other:
            assert other.full(4, 1).to_host().tolist() == [1] * 4
        loss.remove()
        device.recover()
        assert device.full(4, 1).to_host().tolist() == [1] * 4

    @pytest.mark.parametrize("order", ["lazy", "eager"])
    def test_freeing_what_is_there_is_no_hazard(self, order) -> None:
        backend = sim.Backend(order=order, hazards="raise")
        pyacl.use_backend(backend)
        with pyacl.Device(0) as device, device.create_stream() as stream:
            x = device.zeros(64, np.uint8)
            x.fill(1, stream)
            with faults.lose_device():
                with pytest.raises(pyacl.AclError):
                    stream.synchronize()
                x.close()  # nothing could wait for the stream any more
        assert backend.hazards_found == []

    def test_closing_gives_everything_back(self, backend, device, launch) -> None:
        launch()
        with faults.lose_device(code="ACL_ERROR_RT_LOST_HEARTBEAT"):
            with pytest.raises(pyacl.AclDeviceFaultError) as caught:
                launch.stream.synchronize()
            assert caught.value.code == 507010 and caught.value.message_code == "EL9999"
            device.close()
            assert backend.report().is_empty
            with pytest.raises(pyacl.AclError) as refused:
                pyacl.Device(0)
            assert refused.value.code == 507033
        with pyacl.Device(0) as again:
            assert again.full(4, 1).to_host().tolist() == [1] * 4

    def test_it_stays_lost_until_it_is_reset(self, device, launch) -> None:
        with faults.lose_device():
            pass
        with pytest.raises(pyacl.AclDeviceFaultError):
            launch.stream.synchronize()
        device.recover()
        device.synchronize()

    def test_after_some_work(self, device, launch) -> None:
        with faults.lose_device(after=3):
            for _ in range(3):
                launch()
            with pytest.raises(pyacl.AclDeviceFaultError) as caught:
                launch()
        assert (caught.value.code, caught.value.function) == (507901, "aclrtLaunchKernelWithConfig")

    def test_a_device_that_is_not_open(self, backend) -> None:
        with faults.lose_device(1), pytest.raises(pyacl.AclError):
            pyacl.Device(1)
        pyacl.Device(1).close()


# ---- time ----------------------------------------------------------------------------------------------------------


class TestSlow:
    def test_an_asynchronous_copy(self, backend, device) -> None:
        backend.clock.stop()
        stream = device.create_stream()
        x, pinned = device.full(64, 3, np.float32), device.empty_host(64, np.float32)
        pinned.array[:] = 0
        with faults.slow("aclrtMemcpyAsync", 250):
            begin = stream.record()
            x.copy_to(pinned, stream)
            end = stream.record()
            with pytest.raises(pyacl.AclTimeoutError):
                stream.synchronize(timeout=0.1)
            assert pinned.array.tolist() == [0] * 64
            stream.synchronize()  # the clock was stopped, so all the time is still to pass
        assert pinned.array.tolist() == [3] * 64
        assert end - begin == pytest.approx(250, abs=1)
        begin = stream.record()
        x.copy_to(pinned, stream)
        end = stream.record()
        stream.synchronize()
        assert end - begin == 0

    def test_a_kernel(self, backend, device, launch) -> None:
        backend.clock.stop()
        with faults.slow("aclrtLaunchKernelWithConfig", 1000):
            launch()
            with pytest.raises(pyacl.AclTimeoutError):
                launch.stream.synchronize(timeout=0.5)
            launch.stream.synchronize()
        assert launch.done()

    @pytest.mark.parametrize("name", ["aclrtMemcpy", "aclrtMemcpyAsync"])
    def test_a_call_that_waits(self, backend, device, name) -> None:
        """A copy from ordinary memory is made before the call returns, asynchronous or not."""
        backend.clock.stop()
        begin, source, x = backend.clock.now(), np.ones(16, np.float32), device.empty(16)
        stream = device.create_stream()
        with faults.slow(name, 40.5):
            if name == "aclrtMemcpy":
                x.copy_from(source)
            else:
                raw.aclrtMemcpyAsync(x, 64, source.ctypes.data, 64, c.ACL_MEMCPY_HOST_TO_DEVICE, stream)
        assert backend.clock.now() - begin == 40_500_000
        assert x.to_host().tolist() == [1] * 16

    def test_a_model_is_not_slowed_down(self, device, launch) -> None:
        with faults.slow("aclrtLaunchKernelWithConfig", 1000):
            raw.aclmdlRICaptureBegin(launch.stream, c.ACL_MODEL_RI_CAPTURE_MODE_RELAXED)
            launch()
            model = raw.types.aclmdlRI()
            raw.aclmdlRICaptureEnd(launch.stream, model)
            raw.aclmdlRIExecuteAsync(model, launch.stream)
            launch.stream.synchronize()
        raw.aclmdlRIDestroy(model)
        assert launch.done()


# ---- bad requests --------------------------------------------------------------------------------------------------


BAD = [
    (lambda f: f.fail("aclrtMaloc"), ValueError, r"no C function 'aclrtMaloc'; did you mean aclrtMalloc"),
    (lambda f: f.fail("Malloc"), ValueError, r"no C function 'Malloc'; did you mean .*rtMalloc"),
    (lambda f: f.fail(3), TypeError, "function: the name of a C function, not int"),
    (lambda f: f.fail("aclGetRecentErrMsg"), ValueError, "returns const char [*], not an error code"),
    (lambda f: f.fail("aclrtMemPoolMallocAsync"), ValueError, r"in CANN from 9.1.0 on; sim:.*8.1.RC1 does not have it"),
    (lambda f: f.fail("aclrtMalloc", 0), ValueError, "code: 0 is success"),
    (lambda f: f.fail("aclrtMalloc", 207100), ValueError, r"no CANN version has an error code 207100; did you mean"),
    (lambda f: f.fail("aclrtMalloc", "ACL_ERROR_RT_MEMORY_ALOCATION"), ValueError, "did you mean ACL_ERROR_RT_MEMORY"),
    (lambda f: f.fail("aclrtMalloc", "OOM"), ValueError, "no CANN version has an error code 'OOM'"),
    (lambda f: f.fail("aclrtMalloc", True), TypeError, "not a bool"),
    (lambda f: f.fail("aclrtMalloc", 1.5), TypeError, "the number or the name of an error code, not float"),
    (lambda f: f.fail("aclrtMalloc", nth=0), ValueError, "nth: 0 is less than 1"),
    (lambda f: f.fail("aclrtMalloc", nth=1.0), TypeError, "nth: a whole number, not float"),
    (lambda f: f.fail("aclrtMalloc", nth=True), TypeError, "nth: a whole number, not a bool"),
    (lambda f: f.fail("aclrtMalloc", times=0), ValueError, "times: 0 is less than 1"),
    (lambda f: f.fail("aclrtMalloc", times="ever"), ValueError, "times: a whole number or 'all', not 'ever'"),
    (lambda f: f.fail("aclrtMalloc", probability=1.01), ValueError, "probability: 1.01 is not in 0 to 1"),
    (lambda f: f.fail("aclrtMalloc", probability=-0.1), ValueError, "is not in 0 to 1"),
    (lambda f: f.fail("aclrtMalloc", probability=float("nan")), ValueError, "is not in 0 to 1"),
    (lambda f: f.fail("aclrtMalloc", probability="high"), TypeError, "probability: a number from 0 to 1, not str"),
    (lambda f: f.fail("aclrtMalloc", probability=0.5, nth=3), ValueError, "nth and probability: give one of the two"),
    (lambda f: f.fail("aclrtMalloc", probability=0.5, seed="x"), TypeError, "seed: a whole number, not str"),
    (lambda f: f.fail("aclrtMalloc", device=1), ValueError, "device: 1, but sim:.* has 1, counted from 0"),
    (lambda f: f.kernel_exception(""), TypeError, "kernel: the name of a kernel, or None for any"),
    (lambda f: f.kernel_exception("x", 99), ValueError, "no CANN version has an error code 99"),
    (lambda f: f.kernel_hang("x", nth=-1), ValueError, "nth: -1 is less than 1"),
    (lambda f: f.out_of_memory(-1), ValueError, "after: -1 is less than 0"),
    (lambda f: f.out_of_memory(1 << 60), ValueError, "but device 0 has only 68719476736 bytes free"),
    (lambda f: f.out_of_memory(device=-1), ValueError, "device: -1 is less than 0"),
    (lambda f: f.lose_device(3), ValueError, "device: 3, but sim:.* has 1"),
    (lambda f: f.lose_device(code="X"), ValueError, "no CANN version has an error code 'X'"),
    (lambda f: f.lose_device(after="x"), TypeError, "after: a whole number, not str"),
    (lambda f: f.slow("aclrtMemcpyAsync", 0), ValueError, "milliseconds: 0 is no time of more than 0"),
    (lambda f: f.slow("aclrtMemcpyAsync", float("inf")), ValueError, "milliseconds: inf"),
    (lambda f: f.slow("aclrtMemcpyAsync", "long"), TypeError, "milliseconds: a number, not str"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "kind", "text"), BAD)
def test_bad_requests_are_refused_at_once(request_, kind, text) -> None:
    backend = sim.Backend(cann="8.1.RC1")
    with pytest.raises(kind, match=text):
        request_(backend.faults)
    assert backend.faults.active == ()


def test_slow_twice_and_in_the_wrong_library() -> None:
    backend = sim.Backend()
    with pytest.raises(ValueError, match="belongs to libruntime; slow down its acl counterpart"):
        backend.faults.slow("rtMemcpyAsync", 1)
    with backend.faults.slow("aclrtMemcpyAsync", 3), pytest.raises(ValueError, match="is slow already"):
        backend.faults.slow("aclrtMemcpyAsync", 4)
    backend.faults.slow("aclrtMemcpyAsync", 4)


def test_the_front_door_needs_a_simulator() -> None:
    class Other:
        name, version = "other", "9.0.0"

        def address(self, name: str) -> None:
            return None

        def close(self) -> None:
            """Nothing."""

    with isolated(Other()), pytest.raises(TypeError, match="the backend in use is other, not a simulator"):
        faults.fail("aclrtMalloc")
