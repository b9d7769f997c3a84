"""The simulated NPU: order of work, waits and deadlocks, callbacks, threads, misuse, versions."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time

import pytest

from pyacl import raw, sim
from pyacl.backends.sim.bridge import load_areas
from pyacl.backends.sim.bridge.registry import ANSWERS
from pyacl.backends.sim.engine.failures import RuntimeLayerError
from pyacl.backends.sim.engine.operation import Work
from pyacl.backends.thunks import SENTINEL, take_pending
from pyacl.errors import AclError
from pyacl.raw import types
from pyacl.raw.functions import FUNCTIONS
from pyacl.raw.types import aclrtEvent, aclrtNotify, aclrtStream


class Simulation:
    """A machine with a device set, and short ways to make things on it."""

    def __init__(self, **options):
        self.backend = sim.Backend(**options)
        self.api = raw.load(self.backend)
        self.machine = self.backend.machine
        self.log = []
        self.api.aclrtSetDevice(0)

    def make(self, kind, function, *arguments):
        handle = kind()
        getattr(self.api, function)(ctypes.byref(handle), *arguments)
        return handle

    def stream(self):
        return self.make(aclrtStream, "aclrtCreateStream")

    def event(self, flag=None):
        if flag is None:
            return self.make(aclrtEvent, "aclrtCreateEvent")
        return self.make(aclrtEvent, "aclrtCreateEventExWithFlag", flag)

    def notify(self):
        return self.make(aclrtNotify, "aclrtCreateNotify", 0)

    def work(self, stream, name, function=None):
        """Queue something that leaves its name in the log."""

        def run():
            self.log.append(name)
            if function is not None:
                function()

        with self.machine.lock:
            self.machine.stream(stream.value or 0).submit(Work(name, run))

    def code(self, name, *arguments):
        return getattr(self.api.unchecked, name)(*arguments)


@pytest.fixture
def lazy():
    return Simulation()


# ---- what is asked for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"soc": "Ascend910B9"}, "Ascend910B1"),
        ({"soc": "nothing"}, "Ascend310P3"),
        ({"soc": "910b4"}, "choose one of: Ascend910B4, Ascend910B4-1"),
        ({"cann": "6.0"}, "8.1.RC1"),
        ({"order": "eagerly"}, "'lazy', 'eager' or 'random(seed)'"),
        ({"order": "random(x)"}, "random(7)"),
        ({"devices": 0}, "devices"),
        ({"devices": True}, "devices=True"),
        ({"memory": -1}, "memory"),
        ({"hazards": "yes"}, "'raise'"),
        ({"unregistered": "ignore"}, "'skip'"),
    ],
)
def test_bad_options_are_refused_at_once_and_name_the_choices(options, named):
    with pytest.raises(ValueError, match=None) as error:
        sim.Backend(**options)
    assert named in str(error.value)


def test_a_soc_is_a_name():
    with pytest.raises(TypeError, match="soc: the name of a SoC such as 'Ascend910B1', not NoneType"):
        sim.Backend(soc=None)


@pytest.mark.parametrize("soc", ["Ascend310P3", "Ascend910A", "Ascend910B1", "Ascend910B4", "Ascend910_9391"])
def test_a_profile_decides_name_and_cores(soc):
    machine = Simulation(soc=soc)
    profile = machine.machine.profile
    value = ctypes.c_int64()
    machine.api.aclrtGetDeviceInfo(0, 101, ctypes.byref(value))
    assert machine.api.aclrtGetSocName() == soc.encode()
    assert value.value == profile.cube_cores > 0


def test_exceptions_are_called_what_a_program_imports():
    for name in ("Deadlock", "HazardError", "HazardWarning", "UndefinedBehavior", "UnregisteredKernel"):
        assert getattr(sim, name).__module__ == "pyacl.sim"


def test_a_version_lacks_what_it_lacks():
    old, new = sim.Backend(cann="8.1.RC1"), sim.Backend(cann="9.1.0")
    assert old.address("aclrtCreateNotify") is None
    assert old.address("aclrtMalloc")
    assert new.address("aclrtCreateNotify")
    assert new.address("no such function") is None
    for name in ("aclrtMalloc", "aclrtSynchronizeStreamWithTimeout", "aclrtDeviceGetUuid", "rtSetDevice"):
        assert (old.address(name) is not None) == FUNCTIONS[name].in_version("8.1.RC1")


def test_every_answer_takes_the_parameters_of_its_function():
    load_areas()
    for name, answer in ANSWERS.items():
        row = FUNCTIONS[name]
        code = answer.function.__code__
        if code.co_flags & 0x04 or row.variadic:  # *arguments
            continue
        wanted = {len(row.params)} | {len(form.params) for form in row.forms}
        defaults = len(answer.function.__defaults__ or ())
        takes = range(code.co_argcount - 1 - defaults, code.co_argcount)
        assert wanted <= set(takes), name


def test_a_function_that_nobody_answers_is_not_supported(lazy):
    load_areas()
    name = next(
        n for n, row in FUNCTIONS.items() if n not in ANSWERS and row.in_version("9.0.0") and row.returns_status
    )
    row = FUNCTIONS[name]
    assert (
        lazy.code(name, *[0 if "*" not in p.type and p.type.startswith(("u", "i", "s")) else None for p in row.params])
        == 207000
    )


# ---- order ---------------------------------------------------------------------------------------------------


def test_lazy_work_happens_when_something_waits(lazy):
    first, second = lazy.stream(), lazy.stream()
    lazy.work(first, "a")
    lazy.work(second, "b")
    assert lazy.log == []
    lazy.api.aclrtSynchronizeStream(second)
    assert lazy.log == ["b"]
    lazy.api.aclrtSynchronizeDevice()
    assert lazy.log == ["b", "a"]


def test_eager_work_happens_at_once():
    eager = Simulation(order="eager")
    eager.work(eager.stream(), "a")
    assert eager.log == ["a"]


def test_polling_gets_on(lazy):
    stream, status = (
        lazy.stream(),
        types.aclrtStreamStatus() if hasattr(types, "aclrtStreamStatus") else ctypes.c_uint32(),
    )
    lazy.work(stream, "a")
    lazy.work(stream, "b")
    seen = []
    for _ in range(3):
        lazy.api.aclrtStreamQuery(stream, ctypes.byref(status))
        seen.append((status.value, list(lazy.log)))
    assert seen == [(1, ["a"]), (1, ["a", "b"]), (0, ["a", "b"])]


@pytest.mark.parametrize("flag", [None, 1, 8 | 1])
def test_an_event_orders_two_streams(lazy, flag):
    first, second, event = lazy.stream(), lazy.stream(), lazy.event(flag)
    lazy.work(first, "before")
    lazy.api.aclrtRecordEvent(event, first)
    lazy.work(first, "after")
    lazy.api.aclrtStreamWaitEvent(second, event)
    lazy.work(second, "waited")
    lazy.api.aclrtSynchronizeStream(second)
    assert lazy.log == ["before", "waited"]


def test_a_wait_is_for_the_record_that_was_there(lazy):
    first, second, event = lazy.stream(), lazy.stream(), lazy.event(1)
    lazy.work(first, "a")
    lazy.api.aclrtRecordEvent(event, first)
    lazy.api.aclrtStreamWaitEvent(second, event)
    lazy.work(first, "b")
    lazy.api.aclrtRecordEvent(event, first)
    lazy.api.aclrtSynchronizeStream(second)
    assert lazy.log == ["a"]
    lazy.api.aclrtSynchronizeEvent(event)
    assert lazy.log == ["a", "b"]


def test_a_full_queue_makes_the_device_begin(lazy):
    stream = lazy.stream()
    depth = lazy.machine.profile.stream_depth
    for number in range(depth + 5):
        lazy.work(stream, number)
    assert lazy.log == [0, 1, 2, 3, 4]


def interleaving(seed):
    machine = Simulation(order=f"random({seed})")
    one, two = machine.stream(), machine.stream()
    for name in ("a", "b"):
        machine.work(one, name)
    for name in ("x", "y"):
        machine.work(two, name)
    machine.api.aclrtSynchronizeDevice()
    return "".join(machine.log)


def test_random_reaches_every_order_that_streams_allow_and_no_other():
    assert {interleaving(seed) for seed in range(300)} == {"abxy", "axby", "axyb", "xaby", "xayb", "xyab"}


def test_random_is_reproducible():
    assert [interleaving(seed) for seed in range(20)] == [interleaving(seed) for seed in range(20)]


@pytest.mark.parametrize("seed", range(50))
def test_random_keeps_to_events(seed):
    machine = Simulation(order=f"random({seed})")
    one, two, event = machine.stream(), machine.stream(), machine.event(1)
    machine.work(two, "free")
    machine.work(one, "first")
    machine.api.aclrtRecordEvent(event, one)
    machine.api.aclrtStreamWaitEvent(two, event)
    machine.work(two, "second")
    machine.api.aclrtSynchronizeDevice()
    assert machine.log.index("first") < machine.log.index("second")


# ---- waits that cannot end -----------------------------------------------------------------------------------


def test_a_cycle_of_notifies_is_a_deadlock_that_names_both_waits(lazy):
    one, two, a, b = lazy.stream(), lazy.stream(), lazy.notify(), lazy.notify()
    lazy.api.aclrtWaitAndResetNotify(a, one, 0)
    lazy.api.aclrtRecordNotify(b, one)
    lazy.api.aclrtWaitAndResetNotify(b, two, 0)
    lazy.api.aclrtRecordNotify(a, two)
    with pytest.raises(sim.Deadlock) as error:
        lazy.api.aclrtSynchronizeStream(one)
    text = str(error.value)
    assert "a cycle" in text
    assert text.count("aclrtWaitAndResetNotify") == 2
    assert text.count("test_sim_core.py:") >= 4


@pytest.mark.parametrize("order", ["lazy", "eager", "random(3)"])
def test_a_notify_that_nobody_records_is_a_deadlock(order):
    machine = Simulation(order=order)
    stream = machine.stream()
    machine.api.aclrtWaitAndResetNotify(machine.notify(), stream, 0)
    with pytest.raises(sim.Deadlock, match="nothing that was submitted"):
        machine.api.aclrtSynchronizeStream(stream)


def test_a_wait_with_a_timeout_ends_without_the_time_passing(lazy):
    stream = lazy.stream()
    lazy.api.aclrtWaitAndResetNotify(lazy.notify(), stream, 0)
    before, device_before = time.monotonic(), lazy.backend.clock.now()
    assert lazy.code("aclrtSynchronizeStreamWithTimeout", stream, 60_000) == 507046
    assert lazy.code("aclrtSynchronizeDeviceWithTimeout", 60_000) == 507046
    assert time.monotonic() - before < 10
    assert lazy.backend.clock.now() - device_before >= 120e9


def test_an_event_wait_times_out_on_the_host(lazy):
    stream, event = lazy.stream(), lazy.event()
    lazy.api.aclrtWaitAndResetNotify(lazy.notify(), stream, 0)
    lazy.api.aclrtRecordEvent(event, stream)
    assert lazy.code("aclrtSynchronizeEventWithTimeout", event, 500) == 507047


def test_a_wait_on_the_device_times_out_and_the_stream_goes_on(lazy):
    stream = lazy.stream()
    lazy.api.aclrtWaitAndResetNotify(lazy.notify(), stream, 3)
    lazy.work(stream, "after")
    with pytest.raises(AclError) as error:
        lazy.api.aclrtSynchronizeStream(stream)
    assert error.value.code == 107020
    assert lazy.log == ["after"]
    lazy.api.aclrtSynchronizeStream(stream)


def test_another_thread_may_end_a_wait(lazy):
    stream, other, notify = lazy.stream(), lazy.stream(), lazy.notify()
    lazy.api.aclrtWaitAndResetNotify(notify, stream, 0)
    lazy.work(stream, "passed")

    def record():
        time.sleep(0.05)
        lazy.api.aclrtSetDevice(0)
        lazy.api.aclrtRecordNotify(notify, other)
        lazy.api.aclrtSynchronizeStream(other)

    thread = threading.Thread(target=record)
    thread.start()
    lazy.api.aclrtSynchronizeStream(stream)
    thread.join()
    assert lazy.log == ["passed"]


def test_two_threads_that_wait_for_each_other_are_a_deadlock(lazy):
    streams, notifies = [lazy.stream(), lazy.stream()], [lazy.notify(), lazy.notify()]
    lazy.machine.scheduler.patience = 0.2
    caught = []

    def run(mine, other):
        lazy.api.aclrtSetDevice(0)
        lazy.api.aclrtWaitAndResetNotify(notifies[mine], streams[mine], 0)
        try:
            lazy.api.aclrtSynchronizeStream(streams[mine])
        except sim.Deadlock as error:
            caught.append(str(error))

    threads = [threading.Thread(target=run, args=pair) for pair in ((0, 1), (1, 0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(caught) == 2


# ---- failures of work ----------------------------------------------------------------------------------------


def fail(code):
    def run():
        raise RuntimeLayerError(code, "EZ9999", "the kernel failed")

    return run


def test_a_failure_is_found_by_the_next_wait_once(lazy):
    stream = lazy.stream()
    lazy.work(stream, "bad", fail(507035))
    lazy.work(stream, "next")
    with pytest.raises(AclError) as error:
        lazy.api.aclrtSynchronizeStream(stream)
    assert error.value.code == 507035
    assert "the kernel failed" in str(error.value)
    lazy.api.aclrtSynchronizeStream(stream)
    assert lazy.log == ["bad", "next"]


def test_stop_on_failure_stops_the_streams_of_the_context(lazy):
    stream, other = lazy.stream(), lazy.stream()
    lazy.api.aclrtSetStreamFailureMode(stream, 1)
    lazy.work(other, "never")
    lazy.work(stream, "bad", fail(507035))
    lazy.work(stream, "neither")
    assert lazy.code("aclrtSynchronizeStream", stream) == 507035
    assert lazy.code("aclrtSynchronizeStream", other) == 507035
    assert lazy.code("aclrtRecordEvent", lazy.event(), other) == 507035
    assert lazy.log == ["bad"]


def test_an_exception_of_the_program_reaches_the_wait_with_its_traceback(lazy):
    stream = lazy.stream()

    def wrong():
        raise KeyError("in the emulation")

    lazy.work(stream, "bad", wrong)
    with pytest.raises(KeyError, match="in the emulation") as error:
        lazy.api.aclrtSynchronizeStream(stream)
    assert error.traceback[-1].name == "wrong"


def test_abort_drops_the_work_and_the_stream_lives(lazy):
    stream, event = lazy.stream(), lazy.event()
    lazy.work(stream, "dropped")
    lazy.api.aclrtRecordEvent(event, stream)
    lazy.api.aclrtStreamAbort(stream)
    assert lazy.code("aclrtSynchronizeEvent", event) == 107023
    lazy.work(stream, "later")
    lazy.api.aclrtSynchronizeStream(stream)
    assert lazy.log == ["later"]


# ---- times ---------------------------------------------------------------------------------------------------


def test_times_come_from_the_clock(lazy):
    stream, start, end = lazy.stream(), lazy.event(9), lazy.event(9)
    clock = lazy.backend.clock
    clock.stop()
    lazy.api.aclrtRecordEvent(start, stream)
    lazy.work(stream, "kernel", lambda: clock.advance(12.5))
    lazy.api.aclrtRecordEvent(end, stream)
    ms = ctypes.c_float()
    assert lazy.code("aclrtEventElapsedTime", ctypes.byref(ms), start, end) == 107006
    lazy.api.aclrtSynchronizeStream(stream)
    lazy.api.aclrtEventElapsedTime(ctypes.byref(ms), start, end)
    assert ms.value == 12.5
    lazy.api.aclrtEventElapsedTime(ctypes.byref(ms), end, start)
    assert ms.value == -12.5
    with pytest.raises(ValueError, match="never runs backwards"):
        clock.advance(-1)


# ---- functions of the program --------------------------------------------------------------------------------

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def test_host_functions_run_in_order_on_a_thread_of_the_library(lazy):
    stream = lazy.stream()
    seen = []

    @HOST_FUNCTION
    def function(argument):
        seen.append((argument, threading.get_ident()))
        lazy.log.append("host")

    lazy.work(stream, "a")
    lazy.api.aclrtLaunchHostFunc(stream, ctypes.cast(function, types.aclrtHostFunc), 7)
    lazy.work(stream, "b")
    assert seen == []
    lazy.api.aclrtSynchronizeStream(stream)
    assert lazy.log == ["a", "host", "b"]
    assert seen[0][0] == 7
    assert seen[0][1] != threading.get_ident()


def test_host_functions_run_where_no_more_threads_are_made(lazy, monkeypatch):
    """At the end of the interpreter, from Python 3.12 on."""

    def refuse(_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    stream = lazy.stream()
    function = types.aclrtHostFunc(lambda _: lazy.log.append("host"))
    lazy.api.aclrtLaunchHostFunc(stream, function, None)
    lazy.work(stream, "after it")
    lazy.api.aclrtSynchronizeStream(stream)
    assert lazy.log == ["host", "after it"]


def test_a_host_function_may_call_the_library(lazy):
    stream = lazy.stream()
    found = ctypes.c_uint32()

    @HOST_FUNCTION
    def function(_):
        lazy.api.aclrtGetDeviceCount(ctypes.byref(found))

    lazy.api.aclrtLaunchHostFunc(stream, ctypes.cast(function, types.aclrtHostFunc), None)
    lazy.api.aclrtSynchronizeStream(stream)
    assert found.value == 1


def test_in_the_eager_order_a_host_function_is_over_when_its_call_returns():
    eager = Simulation(order="eager")
    stream, status = eager.stream(), ctypes.c_uint32(1)
    function = types.aclrtHostFunc(lambda _: time.sleep(0.002))
    for _ in range(20):
        eager.api.aclrtLaunchHostFunc(stream, function, None)
        eager.api.aclrtStreamQuery(stream, ctypes.byref(status))
        assert status.value == 0


def test_in_the_eager_order_a_host_function_that_waits_for_the_program_does_not_hold_it_up():
    eager = Simulation(order="eager")
    stream, status, gate = eager.stream(), ctypes.c_uint32(0), threading.Event()
    function = types.aclrtHostFunc(lambda _: gate.wait())
    eager.api.aclrtLaunchHostFunc(stream, function, None)
    eager.work(stream, "after it")
    eager.api.aclrtStreamQuery(stream, ctypes.byref(status))
    assert (status.value, eager.log) == (1, [])
    gate.set()
    eager.api.aclrtSynchronizeStream(stream)
    assert eager.log == ["after it"]


def test_in_the_eager_order_nothing_waits_for_a_callback_that_this_thread_is_to_process(monkeypatch):
    eager = Simulation(order="eager")
    stream, seen = eager.stream(), []
    monkeypatch.setattr(eager.machine.scheduler, "_sleep", lambda *_: pytest.fail("waited"))
    eager.api.aclrtSubscribeReport(threading.get_ident(), stream)
    function = types.aclrtCallback(lambda _: seen.append("callback"))
    eager.api.aclrtLaunchCallback(function, None, 1, stream)
    assert seen == []
    eager.api.aclrtProcessReport(-1)
    assert seen == ["callback"]


def test_callbacks_run_on_the_thread_that_processes_reports(lazy):
    stream = lazy.stream()
    seen, ready, stop = [], threading.Event(), []

    @HOST_FUNCTION
    def function(argument):
        seen.append((argument, threading.get_ident()))

    def process():
        lazy.api.aclrtSetDevice(0)
        stop.append(threading.get_ident())
        ready.set()
        while len(seen) < 3:
            lazy.code("aclrtProcessReport", 200)

    thread = threading.Thread(target=process)
    thread.start()
    ready.wait()
    lazy.api.aclrtSubscribeReport(thread.ident, stream)
    for number, block in ((1, 1), (2, 0), (3, 1)):
        lazy.api.aclrtLaunchCallback(ctypes.cast(function, types.aclrtCallback), number, block, stream)
    lazy.api.aclrtSynchronizeStream(stream)
    thread.join(20)
    assert [argument for argument, _ in seen] == [1, 2, 3]
    assert {ident for _, ident in seen} == {thread.ident}
    lazy.api.aclrtUnSubscribeReport(thread.ident, stream)


def test_a_callback_that_nobody_processes_is_a_deadlock(lazy):
    stream = lazy.stream()
    function = HOST_FUNCTION(lambda _: None)
    lazy.api.aclrtSubscribeReport(12345, stream)
    lazy.api.aclrtLaunchCallback(ctypes.cast(function, types.aclrtCallback), None, 1, stream)
    with pytest.raises(sim.Deadlock, match="aclrtProcessReport"):
        lazy.api.aclrtSynchronizeStream(stream)


# ---- misuse --------------------------------------------------------------------------------------------------


def test_destroying_an_event_twice_is_undefined(lazy):
    event = lazy.event()
    lazy.api.aclrtDestroyEvent(event)
    with pytest.raises(
        sim.UndefinedBehavior, match=r"aclrtDestroyEvent: the event 0x\w+ was destroyed at .*test_sim_core"
    ):
        lazy.api.aclrtDestroyEvent(event)
    assert lazy.code("aclrtDestroyEvent", event) == SENTINEL
    assert isinstance(take_pending(), sim.UndefinedBehavior)


def test_handles_of_one_kind_are_not_good_for_another(lazy):
    stream = lazy.stream()
    with pytest.raises(sim.UndefinedBehavior, match="is not a event|is not an event|not a"):
        lazy.api.aclrtSynchronizeEvent(aclrtEvent(stream.value))


def test_an_event_does_not_outlive_its_device(lazy):
    event = lazy.event()
    lazy.api.aclrtResetDevice(0)
    with pytest.raises(sim.UndefinedBehavior, match="device 0 was reset"):
        lazy.api.aclrtDestroyEvent(event)
    lazy.api.aclrtSetDevice(0)
    with pytest.raises(sim.UndefinedBehavior, match="device 0 was reset"):
        lazy.api.aclrtSynchronizeEvent(event)


def test_the_default_stream_is_not_for_destroying(lazy):
    stream = lazy.make(aclrtStream, "aclrtCtxGetCurrentDefaultStream")
    with pytest.raises(sim.UndefinedBehavior, match="default stream"):
        lazy.api.aclrtDestroyStream(stream)


def test_a_made_up_stream_is_undefined(lazy):
    with pytest.raises(sim.UndefinedBehavior, match="0x1234 is not a stream"):
        lazy.api.aclrtSynchronizeStream(aclrtStream(0x1234))


# ---- leaks ---------------------------------------------------------------------------------------------------


def test_report_names_the_line_that_made_each(lazy):
    assert sim.report(lazy.backend) == []
    stream = lazy.stream()
    pointer = ctypes.c_void_p()
    lazy.api.aclrtMalloc(ctypes.byref(pointer), 1000, 0)
    report = sim.report(lazy.backend)
    assert [live.kind for live in report] == ["stream", "aclrtMalloc"]
    assert report.nbytes >= 1000
    assert "test_sim_core.py:" in str(report)
    lazy.api.aclrtFree(pointer)
    lazy.api.aclrtDestroyStream(stream)
    assert str(sim.report(lazy.backend)) == "nothing is alive"
    with pytest.raises(TypeError, match="backend: a sim.Backend, or nothing for the one in use, not str"):
        sim.report("sim")


# ---- threads -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["lazy", "eager", "random(1)"])
def test_eight_threads_at_once(order):
    machine = Simulation(order=order, devices=2)
    failures = []

    def run(index):
        try:
            api = machine.api
            api.aclrtSetDevice(index % 2)
            for _ in range(25):
                stream, event = aclrtStream(), aclrtEvent()
                api.aclrtCreateStream(ctypes.byref(stream))
                api.aclrtCreateEvent(ctypes.byref(event))
                pointer = ctypes.c_void_p()
                api.aclrtMalloc(ctypes.byref(pointer), 256, 0)
                data = ctypes.create_string_buffer(bytes([index]) * 256, 256)
                back = ctypes.create_string_buffer(256)
                api.aclrtMemcpy(pointer, 256, data, 256, 1)
                api.aclrtMemsetAsync(pointer, 256, index + 100, 128, stream)
                api.aclrtRecordEvent(event, stream)
                api.aclrtSynchronizeEvent(event)
                api.aclrtMemcpy(back, 256, pointer, 256, 2)
                assert back.raw == bytes([index + 100]) * 128 + bytes([index]) * 128
                api.aclrtFree(pointer)
                api.aclrtDestroyEvent(event)
                api.aclrtDestroyStream(stream)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert machine.backend.report() == []


# ---- the configuration file ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", 0),
        (b"{}", 0),
        (b"[]", 0),
        (b"{}\0 and what follows a zero byte", 0),
        (b"{", 100006),
        (b"NaN", 100006),
        (b"{" * 11 + b"}" * 11, 100006),
        (b'{"err_msg_mode": "1"}', 0),
        (b'{"err_msg_mode": "2"}', 100000),
        (b'{"defaultDevice": {"default_device": "0"}}', 0),
        (b'{"defaultDevice": {"default_device": "00"}}', 500001),
        (b'{"defaultDevice": {"default_device": "5"}}', 107001),
        (b'{"StackSize": {"aicore_stack_size": "much"}}', 500001),
        (b'{"acl_graph": {"event_mode": "1"}}', 0),
        (b'{"acl_graph": {"event_mode": "2"}}', 100000),
    ],
)
def test_a_configuration_file_is_read_part_by_part(tmp_path, content, code):
    path = tmp_path / "acl.json"
    path.write_bytes(content)
    assert raw.load(sim.Backend()).unchecked.aclInit(str(path).encode()) == code


def test_what_is_no_configuration_file(tmp_path):
    api = raw.load(sim.Backend()).unchecked
    assert api.aclInit(str(tmp_path).encode()) == 100003
    assert api.aclInit(str(tmp_path / "missing").encode()) == 100003
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (10 << 20) + b"{}")
    assert api.aclInit(str(large).encode()) == 100003


def test_every_aclinit_of_a_process_has_the_same_configuration(tmp_path):
    api = raw.load(sim.Backend()).unchecked
    path = tmp_path / "acl.json"
    path.write_text("{}")
    assert [api.aclInit(None), api.aclInit(str(path).encode()), api.aclFinalize()] == [0, 100002, 0]
    assert api.aclInit(str(path).encode()) == 100000
    assert api.aclInit(None) == 0


# ---- how it opens --------------------------------------------------------------------------------------------


def test_the_simulator_opens_without_numpy_and_in_little_time():
    program = (
        "import sys, time; from pyacl import raw; begin = time.perf_counter(); raw.load('sim'); "
        "print(time.perf_counter() - begin, 'numpy' in sys.modules)"
    )
    taken, numpy = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()
    assert numpy == "False"
    assert float(taken) < 5  # about 0.04; it is the import of everything that would take long
