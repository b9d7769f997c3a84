"""Models on the simulated NPU: capture, replay with real values, building, labels, switches, groups, conditions."""

from __future__ import annotations

import ctypes
import json
import threading

import numpy as np
import pytest
from simulated import undefined
from simulated_kernels import NOT_SUPPORTED, PARAM_INVALID, Kernels, code, u64

from pyacl import AclError, sim
from pyacl.backends.sim.engine.kernels import EMULATIONS
from pyacl.raw import types as c

PERSISTENT, HEAD, PLAIN = 4, 0, 0x7FFFFFFF
STREAM_MODEL, DEPENDENCY, UNJOINED, CAPTURED_MODEL, CAPTURED, EVENT_CAPTURED = (
    107005,
    107024,
    107025,
    107026,
    107027,
    107028,
)
NOT_CAPTURED, MODE_FORBIDS, IMPLICIT, CONFLICT, GROUP_STATUS, GROUP_BROKEN = (
    107029,
    107030,
    107031,
    107032,
    107033,
    107034,
)
UNMATCHED, WRONG_THREAD, NO_UPDATE, INTERNAL, TASK_TYPE, MODEL_EXECUTE, ABORTED, INVALID = (
    107036, 107038, 207019, 507000, 507009, 507011, 507023, 507903,
)  # fmt: skip


@pytest.fixture(autouse=True)
def emulations():
    """Two kernels: z += n and z *= n."""
    before = dict(EMULATIONS)
    EMULATIONS.clear()

    @sim.kernel
    def plus(z: sim.InOut[np.int32], n: np.int32):
        z += n

    @sim.kernel
    def times(z: sim.InOut[np.int32], n: np.int32):
        z *= n

    yield
    EMULATIONS.clear()
    EMULATIONS.update(before)


class Models(Kernels):
    def __init__(self, **options):
        super().__init__(**options)
        self.plus, self.times = self.kernel("plus"), self.kernel("times")
        self.z = self.upload(np.array([1, 2], np.int32))

    def launch(self, function, number, stream=None, z=None):
        block = ctypes.create_string_buffer(u64(self.z if z is None else z, number), 16)
        self.api.aclrtLaunchKernelWithHostArgs(
            function, 1, self.s if stream is None else stream, None, ctypes.addressof(block), 16, None, 0
        )

    def values(self, z=None):
        return np.frombuffer(self.bytes_at(self.z if z is None else z, 8), np.int32).tolist()

    def begin(self, stream=None, mode=0):
        self.api.aclmdlRICaptureBegin(self.s if stream is None else stream, mode)

    def end(self, stream=None):
        model = c.aclmdlRI()
        self.api.aclmdlRICaptureEnd(self.s if stream is None else stream, model)
        return model

    def run(self, model, stream=None, times=1):
        for _ in range(times):
            self.api.aclmdlRIExecuteAsync(model, self.s if stream is None else stream)
        self.api.aclrtSynchronizeStream(self.s if stream is None else stream)

    def event(self, flag=1):
        event = c.aclrtEvent()
        self.api.aclrtCreateEventExWithFlag(event, flag)
        return event

    def build(self, *streams):
        """A model with persistent streams: (model, streams); each of `streams` is how one is bound."""
        model = c.aclmdlRI()
        self.api.aclmdlRIBuildBegin(model, 0)
        bound = []
        for flag in streams:
            stream = c.aclrtStream()
            self.api.aclrtCreateStreamWithConfig(stream, 0, PERSISTENT)
            self.api.aclmdlRIBindStream(model, stream, flag)
            bound.append(stream)
        return model, bound

    def finish(self, model, stream):
        self.api.aclmdlRIEndTask(model, stream)
        self.api.aclmdlRIBuildEnd(model, None)

    def status(self, stream):
        status, model = ctypes.c_uint32(), c.aclmdlRI()
        self.api.aclmdlRICaptureGetInfo(stream, status, model)
        return status.value, bool(model.value)


@pytest.fixture(params=["lazy", "eager", "random(3)"])
def calls(request):
    return Models(order=request.param)


# ---- capture and replay --------------------------------------------------------------------------------------


def test_what_is_captured_runs_only_with_the_model(calls):
    calls.begin()
    calls.launch(calls.plus, 1)
    calls.launch(calls.times, 10)
    model = calls.end()
    calls.sync()
    assert calls.values() == [1, 2]
    calls.run(model)
    assert calls.values() == [20, 30]
    calls.run(model, times=2)
    assert calls.values() == [2110, 3110]
    calls.api.aclmdlRIDestroy(model)
    with undefined("model", "was destroyed"):
        calls.run(model)


def test_copies_and_memsets_are_captured(calls):
    out = calls.malloc(8)
    host = np.array([5, 6], np.int32)
    pinned = calls.pointer("aclrtMallocHost", 8)
    ctypes.memmove(pinned, host.ctypes.data, 8)
    calls.begin()
    calls.api.aclrtMemcpyAsync(calls.z, 8, pinned, 8, 1, calls.s)
    calls.launch(calls.plus, 1)
    calls.api.aclrtMemcpyAsync(out, 8, calls.z, 8, 3, calls.s)
    calls.api.aclrtMemsetAsync(calls.z, 8, 0, 8, calls.s)
    model = calls.end()
    assert calls.values() == [1, 2]
    calls.run(model)
    assert (calls.values(out), calls.values()) == ([6, 7], [0, 0])


def test_a_second_stream_joins_and_comes_back(calls):
    other, there, back = calls.stream(), calls.event(), calls.event()
    w = calls.upload(np.array([0, 0], np.int32))
    calls.begin()
    calls.launch(calls.plus, 1)
    calls.api.aclrtRecordEvent(there, calls.s)
    calls.api.aclrtStreamWaitEvent(other, there)
    assert calls.status(other) == (1, True)
    calls.api.aclrtMemcpyAsync(w, 8, calls.z, 8, 3, other)
    calls.launch(calls.times, 3, stream=other, z=w)
    calls.api.aclrtRecordEvent(back, other)
    calls.api.aclrtStreamWaitEvent(calls.s, back)
    calls.api.aclrtMemcpyAsync(calls.z, 8, w, 8, 3, calls.s)
    model = calls.end()
    assert calls.status(other) == (0, False)
    calls.run(model)
    assert calls.values() == [6, 9]
    calls.run(model)
    assert calls.values() == [21, 30]
    calls.launch(calls.plus, 1, stream=other)  # works as before
    calls.api.aclrtSynchronizeStream(other)
    assert calls.values() == [22, 31]


def test_placeholders_stay_with_the_model(calls):
    @sim.kernel
    def scale(z: sim.InOut[np.int32], n: sim.In[np.int32]):
        z *= n[0]

    function = calls.kernel("scale")
    calls.begin()
    calls.host_launch(function, u64(calls.z, 0) + b"\3\0\0\0", placeholders=[(8, 16)])
    model = calls.end()
    calls.run(model, times=3)
    assert calls.values() == [27, 54]


def test_failures_inside_a_model(calls):
    calls.begin()
    calls.launch(calls.plus, 1)
    calls.launch(calls.plus, 1, z=0x4000)
    calls.launch(calls.plus, 1)
    model = calls.end()
    with pytest.raises(AclError, match=r"fault kernel_name=plus"):
        calls.run(model)
    assert calls.values() == [2, 3]  # the rest did not run
    calls.sync()


def test_an_outside_event_holds_a_model_back():
    calls = Models(order="lazy")
    outside = c.aclrtEvent()
    calls.api.aclrtCreateEventWithFlag(outside, 0x20)
    other = calls.stream()
    calls.begin()
    calls.launch(calls.plus, 1)
    calls.api.aclrtStreamWaitEvent(calls.s, outside)
    calls.launch(calls.times, 10)
    model = calls.end()
    calls.api.aclmdlRIExecuteAsync(model, calls.s)
    calls.launch(calls.plus, 100, stream=other)
    calls.api.aclrtRecordEvent(outside, other)
    calls.sync()
    assert calls.values() == [1020, 1030]


def test_an_outside_event_recorded_by_a_model():
    calls = Models(order="lazy")
    outside = c.aclrtEvent()
    calls.api.aclrtCreateEventWithFlag(outside, 0x20)
    other = calls.stream()
    calls.begin()
    calls.launch(calls.plus, 1)
    calls.api.aclrtRecordEvent(outside, calls.s)
    model = calls.end()
    calls.api.aclrtStreamWaitEvent(other, outside)
    calls.launch(calls.times, 10, stream=other)
    calls.api.aclmdlRIExecuteAsync(model, calls.s)
    calls.api.aclrtSynchronizeStream(other)
    assert calls.values() == [20, 30]


def test_a_model_that_waits_for_ever():
    calls = Models(order="lazy")
    outside = c.aclrtEvent()
    calls.api.aclrtCreateEventWithFlag(outside, 0x20)
    calls.begin()
    calls.api.aclrtStreamWaitEvent(calls.s, outside)
    model = calls.end()
    with pytest.raises(sim.Deadlock, match="aclmdlRIExecuteAsync"):
        calls.run(model)


# ---- what a capture refuses ----------------------------------------------------------------------------------


def test_calls_on_a_captured_stream(calls):
    calls.begin()
    assert code(calls.begin) == CAPTURED
    assert code(calls.sync) == CAPTURED
    assert calls.code("aclrtStreamQuery", calls.s, ctypes.c_uint32()) == CAPTURED
    assert calls.code("aclrtSynchronizeDevice") == CAPTURED
    assert calls.code("aclrtDestroyStream", calls.s) == CAPTURED
    model = calls.end()
    assert code(calls.end) == NOT_CAPTURED
    assert calls.code("aclmdlRIExecute", model, 1000) == PARAM_INVALID
    assert code(calls.begin, c.aclrtStream(None)) == 100000
    assert code(calls.begin, mode=3) == PARAM_INVALID


def test_a_model_that_is_being_captured(calls):
    calls.begin()
    status, model = ctypes.c_uint32(), c.aclmdlRI()
    calls.api.aclmdlRICaptureGetInfo(calls.s, status, model)
    other = calls.stream()
    assert calls.code("aclmdlRIExecuteAsync", model, other) == CAPTURED_MODEL
    assert calls.code("aclmdlRIExecuteAsync", model, calls.s) == CAPTURED
    assert calls.code("aclmdlRIDestroy", model) == CAPTURED_MODEL
    assert calls.end().value == model.value


@pytest.mark.parametrize(
    ("mode", "exchanged", "here", "there"),
    [
        (0, 0, MODE_FORBIDS, MODE_FORBIDS),
        (0, 1, MODE_FORBIDS, 0),
        (0, 2, 0, 0),
        (1, 0, MODE_FORBIDS, 0),
        (1, 1, MODE_FORBIDS, 0),
        (1, 2, 0, 0),
        (2, 0, 0, 0),
        (2, 1, 0, 0),
    ],
)
def test_modes(calls, mode, exchanged, here, there):
    """Synchronous copies while a stream is captured: of the capturing thread, and of another one."""
    host = np.zeros(2, np.int32)

    def copy():
        if exchanged:
            wanted = ctypes.c_uint32(exchanged)
            calls.api.aclmdlRICaptureThreadExchangeMode(wanted)
        return calls.code("aclrtMemcpy", calls.z, 8, host.ctypes.data, 8, 1)

    calls.begin(mode=mode)
    found = [copy()]

    def work():
        calls.api.aclrtSetDevice(0)
        found.append(copy())

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert found == [here, there]
    calls.end()
    assert copy() == 0


def test_ending_in_another_thread(calls):
    for mode, expected in ((0, WRONG_THREAD), (1, WRONG_THREAD), (2, 0)):
        stream, found = calls.stream(), []
        calls.begin(stream, mode)

        def work(stream=stream, found=found):
            calls.api.aclrtSetDevice(0)
            found.append(code(calls.end, stream))

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        assert found == [expected]
        assert calls.status(stream) == (0, False)


def test_streams_that_do_not_come_back(calls):
    other, there, back = calls.stream(), calls.event(), calls.event()

    def join():
        calls.begin()
        calls.api.aclrtRecordEvent(there, calls.s)
        calls.api.aclrtStreamWaitEvent(other, there)

    join()
    assert code(calls.end, other) == UNMATCHED
    assert code(calls.end) == UNJOINED
    join()
    calls.launch(calls.plus, 1, stream=other)
    assert code(calls.end) == UNJOINED
    join()
    calls.api.aclrtRecordEvent(back, other)
    assert code(calls.end) == UNJOINED
    join()
    calls.api.aclrtRecordEvent(back, other)
    calls.api.aclrtStreamWaitEvent(calls.s, back)
    calls.launch(calls.plus, 1, stream=other)
    assert code(calls.end) == UNJOINED
    join()
    calls.api.aclrtRecordEvent(back, other)
    calls.api.aclrtStreamWaitEvent(calls.s, back)
    calls.run(calls.end())


def test_events_of_a_capture(calls):
    event, plain, outside = calls.event(), c.aclrtEvent(), calls.event()
    calls.api.aclrtCreateEvent(plain)
    calls.api.aclrtRecordEvent(outside, calls.s)
    calls.begin()
    assert calls.code("aclrtRecordEvent", plain, calls.s) == NOT_SUPPORTED
    assert calls.code("aclrtStreamWaitEvent", calls.s, plain) == NOT_SUPPORTED
    assert calls.code("aclrtStreamWaitEvent", calls.s, outside) == DEPENDENCY
    calls.api.aclrtRecordEvent(event, calls.s)
    assert calls.code("aclrtQueryEventStatus", event, ctypes.c_uint32()) == EVENT_CAPTURED
    assert calls.code("aclrtSynchronizeEvent", event) == EVENT_CAPTURED
    assert calls.code("aclrtStreamWaitEvent", None, event) == IMPLICIT
    calls.end()
    assert calls.number("aclrtQueryEventStatus", event, kind=ctypes.c_uint32) == 1


def test_two_captures_do_not_mix(calls):
    other, event = calls.stream(), calls.event()
    calls.begin()
    calls.begin(other)
    calls.api.aclrtRecordEvent(event, calls.s)
    assert calls.code("aclrtStreamWaitEvent", other, event) == CONFLICT
    assert calls.status(calls.s) == (1, True)
    assert code(calls.end) == INVALID
    assert code(calls.end, other) == INVALID
    calls.begin()
    calls.end()


# ---- task groups ---------------------------------------------------------------------------------------------


def group(calls, *numbers):
    calls.begin(mode=2)
    calls.api.aclmdlRICaptureTaskGrpBegin(calls.s)
    for number in numbers:
        calls.launch(calls.plus, number)
    handle = c.aclrtTaskGrp()
    calls.api.aclmdlRICaptureTaskGrpEnd(calls.s, handle)
    return calls.end(), handle


def test_an_updated_launch_replaces_the_recorded_one(calls):
    model, handle = group(calls, 1, 10)
    calls.run(model)
    assert calls.values() == [12, 13]
    calls.api.aclmdlRICaptureTaskUpdateBegin(calls.s, handle)
    calls.launch(calls.times, 2)
    calls.launch(calls.plus, 100)
    calls.api.aclmdlRICaptureTaskUpdateEnd(calls.s)
    assert calls.values() == [12, 13]
    calls.run(model)
    assert calls.values() == [124, 126]
    calls.launch(calls.plus, 1)
    calls.sync()
    assert calls.values() == [125, 127]


def test_updates_that_do_not_fit(calls):
    model, handle = group(calls, 1, 10)
    begin, end = "aclmdlRICaptureTaskUpdateBegin", "aclmdlRICaptureTaskUpdateEnd"
    assert calls.code(end, calls.s) == GROUP_STATUS
    calls.code(begin, calls.s, handle)
    assert calls.code(begin, calls.s, handle) == GROUP_STATUS
    assert calls.code(begin, calls.stream(), handle) == GROUP_STATUS
    calls.launch(calls.plus, 1)
    assert calls.code("aclrtMemsetAsync", calls.z, 8, 0, 8, calls.s) == TASK_TYPE
    assert calls.code(end, calls.s) == INTERNAL  # one launch of two
    calls.code(begin, calls.s, handle)
    for _ in range(2):
        calls.launch(calls.plus, 1)
    assert code(calls.launch, calls.plus, 1) == INTERNAL
    calls.api.aclmdlRICaptureTaskUpdateEnd(calls.s)
    calls.run(model)


def test_a_group_takes_launches_of_its_stream_alone(calls):
    calls.begin(mode=2)
    calls.api.aclmdlRICaptureTaskGrpBegin(calls.s)
    assert calls.code("aclmdlRICaptureTaskGrpBegin", calls.s) == GROUP_STATUS
    assert calls.code("aclrtMemsetAsync", calls.z, 8, 0, 8, calls.s) == TASK_TYPE
    assert calls.code("aclmdlRICaptureTaskGrpEnd", calls.s, c.aclrtTaskGrp()) == TASK_TYPE
    assert code(calls.end) == INVALID
    other, event = calls.stream(), calls.event()
    calls.begin(mode=2)
    calls.api.aclrtRecordEvent(event, calls.s)
    calls.api.aclrtStreamWaitEvent(other, event)
    calls.api.aclmdlRICaptureTaskGrpBegin(calls.s)
    assert code(calls.launch, calls.plus, 1, stream=other) == GROUP_BROKEN
    assert code(calls.end) == INVALID
    calls.begin(mode=2)
    calls.api.aclmdlRICaptureTaskGrpBegin(calls.s)
    assert code(calls.end) == GROUP_STATUS
    assert calls.code("aclmdlRICaptureTaskGrpBegin", calls.s) == NOT_CAPTURED


def test_updates_without_an_emulation():
    calls = Models(unregistered="skip")
    function = calls.kernel("nobody")
    calls.begin(mode=2)
    calls.api.aclmdlRICaptureTaskGrpBegin(calls.s)
    calls.launch(function, 1)
    handle = c.aclrtTaskGrp()
    calls.api.aclmdlRICaptureTaskGrpEnd(calls.s, handle)
    calls.end()
    calls.api.aclmdlRICaptureTaskUpdateBegin(calls.s, handle)
    assert code(calls.launch, function, 1) == NO_UPDATE
    calls.api.aclmdlRICaptureTaskUpdateEnd(calls.s)


# ---- models that are built -----------------------------------------------------------------------------------


def test_a_built_model(calls):
    model, (stream,) = calls.build(HEAD)
    calls.launch(calls.plus, 1, stream=stream)
    calls.launch(calls.times, 2, stream=stream)
    assert calls.code("aclmdlRIExecuteAsync", model, calls.s) == MODEL_EXECUTE
    calls.finish(model, stream)
    assert calls.values() == [1, 2]
    calls.run(model)
    assert calls.values() == [4, 6]
    calls.api.aclmdlRIExecute(model, -1)
    assert calls.values() == [10, 14]
    assert calls.code("aclmdlRIExecuteAsync", model, stream) == PARAM_INVALID
    assert calls.code("aclmdlRIExecute", model, 0) == PARAM_INVALID
    calls.api.aclmdlRIUnbindStream(model, stream)
    assert calls.code("aclmdlRIUnbindStream", model, stream) == STREAM_MODEL
    calls.api.aclmdlRIDestroy(model)


def test_the_end_of_a_built_model(calls):
    model, (first, second) = calls.build(HEAD, HEAD)
    assert calls.code("aclmdlRIBuildEnd", model, None) == MODEL_EXECUTE  # nowhere marked
    assert calls.code("aclmdlRIExecute", model, 1000) == MODEL_EXECUTE
    for stream in (first, second):
        calls.launch(calls.plus, 1, stream=stream)
        calls.api.aclmdlRIEndTask(model, stream)  # as often as one likes: the last one counts
    assert calls.code("aclmdlRIExecuteAsync", model, calls.s) == MODEL_EXECUTE  # not loaded
    calls.api.aclmdlRIExecute(model, 1000)  # which a run that is waited for need not be
    assert calls.values() == [3, 4]
    calls.api.aclmdlRIBuildEnd(model, None)
    calls.api.aclmdlRIEndTask(model, first)
    calls.run(model)
    assert calls.values() == [5, 6]
    calls.api.aclrtPersistentTaskClean(first)
    calls.api.aclrtPersistentTaskClean(second)
    calls.run(model)  # the mark stays, the work is gone
    assert calls.values() == [5, 6]


def test_activated_streams(calls):
    model, (head, second) = calls.build(HEAD, PLAIN)
    calls.launch(calls.plus, 1, stream=head)
    calls.api.aclrtActiveStream(second, head)
    calls.launch(calls.times, 10, stream=second)
    calls.finish(model, second)
    calls.run(model)
    assert calls.values() == [20, 30]


@pytest.mark.parametrize(
    ("left", "condition", "right", "jumps"), [(1, 0, 1, True), (1, 1, 1, False), (-1, 2, 1, False), (-1, 4, 1, True)]
)
def test_switched_streams(calls, left, condition, right, jumps):
    sides = calls.upload(np.array([left, right], np.int64))
    model, (head, second) = calls.build(HEAD, PLAIN)
    calls.api.aclrtSwitchStream(sides, condition, sides + 8, 1, second, None, head)
    calls.launch(calls.plus, 1, stream=head)
    calls.launch(calls.times, 10, stream=second)
    calls.finish(model, second)
    calls.run(model)
    assert calls.values() == ([10, 20] if jumps else [2, 3])


def test_a_loop_of_labels(calls):
    """The first label repeats what lies behind it until a kernel changes the index."""

    @sim.kernel
    def count(z: sim.In[np.int32], index: sim.Out[np.uint32]):
        index[0] = 1 if z[0] >= 5 else 0

    function = calls.kernel("count")
    index = calls.upload(np.zeros(1, np.uint32))
    model, (stream,) = calls.build(HEAD)
    labels = [c.aclrtLabel(), c.aclrtLabel()]
    for label in labels:
        calls.api.aclrtCreateLabel(label)
    array = (c.aclrtLabel * 2)(*labels)
    found = c.aclrtLabelList()
    calls.api.aclrtCreateLabelList(array, 2, found)
    calls.api.aclrtSetLabel(labels[0], stream)
    calls.launch(calls.plus, 1, stream=stream)
    calls.launch(function, index, stream=stream)
    calls.api.aclrtSwitchLabelByIndex(index, 2, found, stream)
    calls.api.aclrtSetLabel(labels[1], stream)
    calls.launch(calls.times, 100, stream=stream)
    calls.finish(model, stream)
    calls.run(model)
    assert calls.values() == [500, 600]
    calls.api.aclrtDestroyLabelList(found)
    with undefined("is not a list of labels"):
        calls.run(model)


def test_cleaning_a_bound_stream(calls):
    model, (stream,) = calls.build(HEAD)
    calls.launch(calls.plus, 1, stream=stream)
    calls.finish(model, stream)
    calls.api.aclrtPersistentTaskClean(stream)
    calls.launch(calls.times, 3, stream=stream)
    calls.finish(model, stream)
    calls.run(model)
    assert calls.values() == [3, 6]


def test_binding(calls):
    model, (stream,) = calls.build(HEAD)
    bind = "aclmdlRIBindStream"
    assert calls.code(bind, model, stream, HEAD) == STREAM_MODEL
    assert calls.code(bind, model, calls.s, HEAD) == PARAM_INVALID
    assert calls.code(bind, model, None, HEAD) == NOT_SUPPORTED
    assert calls.code(bind, model, stream, 5) == PARAM_INVALID
    assert calls.code("aclmdlRIEndTask", model, calls.s) == INTERNAL
    calls.begin()
    captured = calls.end()
    for name, *args in ((bind, stream, 0), ("aclmdlRIEndTask", stream), ("aclmdlRIBuildEnd", None)):
        assert calls.code(name, captured, *args) in (PARAM_INVALID, STREAM_MODEL)
    empty, _ = calls.build()
    assert calls.code("aclmdlRIBuildEnd", empty, None) == STREAM_MODEL
    calls.api.aclmdlRIDestroy(model)
    calls.launch(calls.plus, 1, stream=stream)  # free again
    calls.api.aclrtSynchronizeStream(stream)


def test_models_belong_to_a_context(calls):
    calls.begin()
    model = calls.end()
    context = c.aclrtContext()
    calls.api.aclrtCreateContext(context, 0)
    assert calls.code("aclmdlRIExecuteAsync", model, None) == 107004
    assert calls.code("aclmdlRIDestroy", model) == 107004


def test_destroying_a_model_that_still_runs():
    calls = Models(order="lazy")
    calls.begin()
    calls.launch(calls.plus, 1)
    captured = calls.end()
    calls.api.aclmdlRIExecuteAsync(captured, calls.s)
    calls.api.aclmdlRIDestroy(captured)  # waits
    assert calls.values() == [2, 3]
    model, (stream,) = calls.build(HEAD)
    calls.finish(model, stream)
    calls.api.aclmdlRIExecuteAsync(model, calls.s)
    calls.api.aclmdlRIDestroy(model)
    with undefined("aclmdlRIExecuteAsync", "was destroyed before it ran"):
        calls.sync()


def test_aborting_a_model():
    calls = Models(order="lazy")
    calls.begin()
    calls.launch(calls.plus, 1)
    model = calls.end()
    calls.api.aclmdlRIExecuteAsync(model, calls.s)
    calls.api.aclmdlRIAbort(model)
    assert code(calls.sync) == ABORTED
    assert calls.values() == [1, 2]
    calls.run(model)
    assert calls.values() == [2, 3]


def test_names_numbers_and_descriptions(tmp_path):
    calls = Models(cann="9.1.0")
    calls.begin()
    calls.launch(calls.plus, 1)
    model = calls.end()
    calls.api.aclmdlRISetName(model, b"first")
    name = ctypes.create_string_buffer(b"x" * 8, 8)
    calls.api.aclmdlRIGetName(model, 6, name)
    assert name.value == b"first"
    assert calls.code("aclmdlRIGetName", model, 5, name) == INTERNAL
    assert name.raw[0] == 0
    number = calls.number("aclmdlRIGetId", model, kind=ctypes.c_uint32)
    calls.api.aclmdlRIDebugJsonPrint(model, str(tmp_path / "model.json").encode(), 0)
    (task,) = json.loads((tmp_path / "model.json").read_text())
    assert (task["name"], task["pid"], task["args"]) == (
        "aclrtLaunchKernelWithHostArgs",
        number,
        {"kernel": "plus", "numBlocks": 1},
    )
    assert calls.code("aclmdlRIDebugJsonPrint", model, str(tmp_path).encode(), 0) == PARAM_INVALID
    calls.api.aclmdlRIDebugPrint(model)


# ---- tasks and conditions (since 9.1) ------------------------------------------------------------------------


def tasks_of(calls, model):
    count = ctypes.c_uint32()
    calls.api.aclmdlRIGetStreams(model, None, count)
    streams = (c.aclrtStream * count.value)()
    calls.api.aclmdlRIGetStreams(model, streams, count)
    found = []
    for stream in streams:
        calls.api.aclmdlRIGetTasksByStream(stream, None, count)
        tasks = (c.aclmdlRITask * count.value)()
        calls.api.aclmdlRIGetTasksByStream(stream, tasks, count)
        found += list(tasks)
    return found


def test_tasks_are_read_changed_and_left_out():
    calls = Models(cann="9.1.0")
    calls.begin()
    calls.launch(calls.plus, 1)
    calls.launch(calls.times, 10)
    model = calls.end()
    first, second = tasks_of(calls, model)
    assert calls.number("aclmdlRITaskGetType", first, kind=ctypes.c_uint32) == 1
    assert calls.number("aclmdlRITaskGetSeqId", second, kind=ctypes.c_uint32) == 2
    params = c.aclmdlRITaskParams()
    calls.api.aclmdlRITaskGetParams(first, params)
    kernel = params.kernelTaskParams
    assert (params.type, kernel.funcHandle.value, kernel.numBlocks) == (1, calls.plus.value, 1)
    assert (kernel.isHostArgs, ctypes.string_at(kernel.args, kernel.argsSize)) == (1, u64(calls.z, 1))
    block = ctypes.create_string_buffer(u64(calls.z, 5), 16)
    kernel.args = ctypes.addressof(block)
    calls.api.aclmdlRITaskSetParams(first, params)
    calls.api.aclmdlRITaskDisable(second)
    calls.run(model)
    assert calls.values() == [20, 30]  # not yet
    calls.api.aclmdlRIUpdate(model)
    calls.run(model)
    assert calls.values() == [25, 35]


@pytest.mark.parametrize(("value", "expected"), [(0, [1, 2]), (1, [101, 102])])
def test_an_if(value, expected):
    calls = Models(cann="9.1.0")
    calls.begin()
    status, model = ctypes.c_uint32(), c.aclmdlRI()
    calls.api.aclmdlRICaptureGetInfo(calls.s, status, model)
    condition = c.aclmdlRICondHandle()
    calls.api.aclmdlRICondHandleCreate(model, value, 1, condition)
    bodies = (c.aclmdlRI * 1)()
    calls.api.aclmdlRIAddCondTask(c.aclmdlRICondTaskParams(condition, 0, 1, ctypes.addressof(bodies)), calls.s, 0)
    model = calls.end()
    calls.api.aclmdlRICaptureToModelRIBegin(calls.s, bodies[0], 0)
    calls.launch(calls.plus, 100)
    calls.end()
    calls.run(model)
    assert calls.values() == expected


def test_a_loop_that_ends_itself():
    calls = Models(cann="9.1.0")

    @sim.kernel
    def goes_on(z: sim.In[np.int32], condition: sim.Out[np.uint64]):
        condition[0] = z[0] < 10

    calls.begin()
    status, model = ctypes.c_uint32(), c.aclmdlRI()
    calls.api.aclmdlRICaptureGetInfo(calls.s, status, model)
    condition, pointer = c.aclmdlRICondHandle(), ctypes.POINTER(ctypes.c_uint64)()
    calls.api.aclmdlRICondHandleCreate(model, 1, 1, condition)
    calls.api.aclmdlRICondHandleGetCondPtr(condition, pointer)
    bodies = (c.aclmdlRI * 1)()
    calls.api.aclmdlRIAddCondTask(c.aclmdlRICondTaskParams(condition, 1, 1, ctypes.addressof(bodies)), calls.s, 0)
    calls.launch(calls.times, 100)
    model = calls.end()
    calls.api.aclmdlRICaptureToModelRIBegin(calls.s, bodies[0], 0)
    calls.launch(calls.plus, 3)
    calls.launch(calls.kernel("goes_on"), ctypes.cast(pointer, ctypes.c_void_p).value)
    calls.end()
    calls.run(model)
    assert calls.values() == [1000, 1100]
    calls.api.aclmdlRIDestroy(model)
