"""Entry points: events."""

from __future__ import annotations

from ..engine import event as events
from ..engine.event import DEFAULT, DEVICE_USE_ONLY, EXTERNAL, IPC, Event, Events
from ..engine.failures import AclLayerError, RuntimeLayerError
from ..engine.machine import Machine
from ..engine.refusals import out_of_range
from ..engine.stream import CPU_SCHEDULE
from . import hostmem
from .registry import answers, require, runtime_require

MAX_FLAG = 0x3F
MAX_FLAG_EX = 0x4F


def _quiet_207000(text: str) -> AclLayerError:
    """Not supported, on one of the ways on which the runtime keeps silent and the acl layer speaks."""
    return AclLayerError(207000, "EH9999", text)


def _event(sim: Machine, handle: int, call: str) -> Event:
    runtime_require(handle, "evt")
    return sim.area(Events).get(handle, call)


def _not_captured(event: Event) -> None:
    if event.captured is not None and event.captured.capturing:
        raise RuntimeLayerError(107028, "EE9999", "Not allow to query captured-event")


# ---- create and destroy --------------------------------------------------------------------------------------


@answers("aclrtCreateEvent", required="event")
@answers("rtEventCreate")
def create_event(sim: Machine, event: int) -> None:
    create_event_with_flag(sim, event, DEFAULT)


@answers(
    "aclrtCreateEventWithFlag",
    required="event",
    partly="flag 0x10 (device use only) is refused, as the recorded driver refused it",
)
@answers("rtEventCreateWithFlag")
def create_event_with_flag(sim: Machine, event: int, flag: int) -> None:
    runtime_require(event, "evt")
    if not flag & MAX_FLAG or flag > MAX_FLAG:
        raise out_of_range(flag, "flag", f"(0, {MAX_FLAG}]")
    _alone(flag, DEVICE_USE_ONLY, EXTERNAL)
    context = sim.current_context()
    if flag == DEVICE_USE_ONLY:
        raise RuntimeLayerError(207000, "EE1001", "the driver does not support events for device use only")
    hostmem.write_pointer(event, sim.area(Events).create(context, flag, new_mode=False))


@answers("aclrtCreateEventExWithFlag", required="event", partly="no events for other processes (flag 0x40)")
@answers("rtEventCreateExWithFlag")
def create_event_ex_with_flag(sim: Machine, event: int, flag: int) -> None:
    runtime_require(event, "evt")
    _alone(flag, DEVICE_USE_ONLY, EXTERNAL, IPC)
    if not flag & MAX_FLAG_EX or flag > MAX_FLAG_EX:
        raise out_of_range(flag, "flag", f"(0, {MAX_FLAG_EX}]")
    context = sim.current_context()
    if flag == IPC:
        raise AclLayerError(207000)
    hostmem.write_pointer(event, sim.area(Events).create(context, flag, new_mode=True))


def _alone(flag: int, *bits: int) -> None:
    for bit in bits:
        if flag & bit and flag & ~bit:
            raise RuntimeLayerError(
                107000,
                "EE1001",
                f"current flag = {flag}, the flag[{bit}] does not support OR operations with other flags",
            )


@answers("rtsEventCreate")
def runtime_create_event(sim: Machine, event: int, flag: int) -> None:
    if flag & ~0x3B:
        raise out_of_range(flag, "flag", "a known one")
    create_event_with_flag(sim, event, flag or DEFAULT)


@answers("rtsEventCreateEx")
def runtime_create_event_ex(sim: Machine, event: int, flag: int) -> None:
    if not flag or flag & ~0x3B:
        raise out_of_range(flag, "flag", "a known one")
    create_event_ex_with_flag(sim, event, flag)


@answers("aclrtDestroyEvent", required="event")
@answers("rtEventDestroy", "rtsEventDestroy", "rtEventDestroySync")
def destroy_event(sim: Machine, event: int) -> None:
    runtime_require(event, "evt")
    sim.area(Events).destroy(event, "aclrtDestroyEvent")


# ---- on streams ----------------------------------------------------------------------------------------------


@answers("aclrtRecordEvent", required="event")
@answers("rtEventRecord", "rtsEventRecord")
def record_event(sim: Machine, event: int, stream: int) -> None:
    found = _event(sim, event, "aclrtRecordEvent")
    context = sim.current_context()
    target = sim.stream(stream, "aclrtRecordEvent")
    if target.models and (found.new_mode or found.flags == DEFAULT):
        raise _quiet_207000("Not support current mode bind stm")
    target = sim.own_stream(stream, "aclrtRecordEvent")
    if target.recorder is not None and found.flags != EXTERNAL:
        if not found.new_mode:
            raise _quiet_207000("only events of aclrtCreateEventExWithFlag can be captured")
        if target is context.default_stream:
            raise RuntimeLayerError(107031, "EE9999", "A disallowed implicit dependency from default stream")
        if not found.can_be_waited_for:
            return
        target.recorder.record_event(found, target)
        return
    if target.flags & CPU_SCHEDULE:
        return  # nothing reaches the device on such a stream: the event stays as it was
    found.record(target, "aclrtRecordEvent")


@answers("aclrtRecordEventWithFlag", required="event", partly="as aclrtRecordEvent, whatever the flag")
def record_event_with_flag(sim: Machine, event: int, stream: int, flag: int) -> None:
    if flag > 1:
        raise out_of_range(flag, "flag", "0 or 1")
    record_event(sim, event, stream)


@answers("aclrtStreamWaitEvent", required="event")
@answers("rtStreamWaitEvent")
def stream_wait_event(sim: Machine, stream: int, event: int) -> None:
    seconds = sim.area(Timeouts).event_wait
    _wait_event(sim, stream, event, seconds * 1000.0 if seconds else None, "aclrtStreamWaitEvent")


@answers("aclrtStreamWaitEventWithTimeout")
def stream_wait_event_with_timeout(sim: Machine, stream: int, event: int, timeout: int) -> None:
    if timeout <= 0:
        raise AclLayerError(107000, "EH9999", "the range of timeout is invalid")
    _wait_event(sim, stream, event, timeout, "aclrtStreamWaitEventWithTimeout")


@answers("aclrtStreamWaitEventWithFlag", required="event", partly="as aclrtStreamWaitEvent, whatever the flag")
def stream_wait_event_with_flag(sim: Machine, stream: int, event: int, timeout: int, flag: int) -> None:
    if flag > 1:
        raise out_of_range(flag, "flag", "0 or 1")
    _wait_event(sim, stream, event, timeout or None, "aclrtStreamWaitEventWithFlag")


@answers("rtStreamWaitEventWithTimeout", "rtsEventWait")
def runtime_stream_wait_event_with_timeout(sim: Machine, stream: int, event: int, timeout: int) -> None:
    if timeout == 0xFFFFFFFF:
        stream_wait_event(sim, stream, event)
    else:
        _wait_event(sim, stream, event, timeout or None, "rtStreamWaitEventWithTimeout")


def _wait_event(sim: Machine, stream: int, event: int, timeout: float | None, call: str) -> None:
    found = _event(sim, event, call)
    if not found.can_be_waited_for:
        raise _quiet_207000(f"flag={found.flags} does not support, not need wait for event")
    context = sim.current_context()
    target = sim.stream(stream, call)
    if target.models and (found.new_mode or found.flags == DEFAULT):
        raise _quiet_207000("Not support current mode bind stream")
    target = sim.own_stream(stream, call)
    if found.captured is not None and found.captured.capturing:
        if target is context.default_stream:
            raise RuntimeLayerError(107031, "EE9999", "A disallowed implicit dependency from default stream")
        found.captured.wait_event(target, found)
        return
    if target.recorder is not None:
        if not found.new_mode and found.flags != EXTERNAL:
            raise _quiet_207000("only events of aclrtCreateEventExWithFlag can be captured")
        if found.new_mode and found.last is not None:
            raise RuntimeLayerError(107024, "EE9999", "The record corresponding to the event not be captured")
    found.wait(target, call, timeout)


@answers("aclrtResetEvent", required="event")
@answers("rtEventReset", "rtsEventReset")
def reset_event(sim: Machine, event: int, stream: int) -> None:
    found = _event(sim, event, "aclrtResetEvent")
    if not found.can_be_waited_for:
        raise _quiet_207000(f"flag={found.flags} does not support, not need reset for event")
    context = sim.current_context()
    target = sim.stream(stream, "aclrtResetEvent")
    if found.new_mode or (found.flags == DEFAULT and target.models):
        raise _quiet_207000("Not support current mode bind stm")
    target = sim.own_stream(stream, "aclrtResetEvent")
    if target.recorder is not None and found.flags != EXTERNAL and target is not context.default_stream:
        raise _quiet_207000("only external events can be reset while capturing")
    found.reset(target, "aclrtResetEvent")


# ---- on the host ---------------------------------------------------------------------------------------------


@answers("aclrtSynchronizeEvent", required="event")
@answers("rtEventSynchronize")
def synchronize_event(sim: Machine, event: int) -> None:
    runtime_synchronize_event(sim, event, -1)


@answers("aclrtSynchronizeEventWithTimeout")
def synchronize_event_with_timeout(sim: Machine, event: int, timeout: int) -> None:
    if timeout < -1:
        raise AclLayerError(107000, "EH9999", "the timeout of synchronize event is invalid")
    require(event, "event")
    runtime_synchronize_event(sim, event, timeout)


@answers("rtEventSynchronizeWithTimeout", "rtsEventSynchronize")
def runtime_synchronize_event(sim: Machine, event: int, timeout: int) -> None:
    if timeout < -1 or timeout == 0:
        raise RuntimeLayerError(107000, "EE1006", f"timeout={timeout} is not supported")
    found = _event(sim, event, "aclrtSynchronizeEvent")
    events.refuse_external(found)
    _not_captured(found)
    found.synchronize(None if timeout == -1 else timeout)


@answers("aclrtQueryEventStatus", required="event status")
@answers("rtEventQueryStatus", "rtsEventQueryStatus")
def query_event_status(sim: Machine, event: int, status: int) -> None:
    found = _event(sim, event, "aclrtQueryEventStatus")
    runtime_require(status, "status")
    events.refuse_external(found)
    _not_captured(found)
    complete = found.new_mode if found.last is None else found.recorded
    hostmem.write_u32(status, int(complete))
    found.poll()


@answers("aclrtQueryEvent", required="event status")
def query_event(sim: Machine, event: int, status: int) -> None:
    try:
        code = runtime_query_event(sim, event)
    except AclLayerError as failure:
        raise AclLayerError(failure.code, "EH9999", failure.text) from None
    hostmem.write_u32(status, 1 if code else 0)


@answers("rtEventQuery")
def runtime_query_event(sim: Machine, event: int) -> int:
    found = _event(sim, event, "aclrtQueryEvent")
    if found.new_mode:
        raise _quiet_207000("Not support current mode")
    events.refuse_external_quietly(found)
    _not_captured(found)
    pending = found.last is not None and not found.last.done
    found.poll()
    return 507006 if pending else 0


@answers("aclrtQueryEventWaitStatus", required="event status")
@answers("rtEventQueryWaitStatus")
def query_event_wait_status(sim: Machine, event: int, status: int) -> None:
    found = _event(sim, event, "aclrtQueryEventWaitStatus")
    runtime_require(status, "status")
    if found.new_mode:
        raise _quiet_207000("Not support current mode")
    events.refuse_external_quietly(found)
    _not_captured(found)
    pending = found.wait_pending()
    hostmem.write_u32(status, int(pending))
    if pending:
        sim.scheduler.step([wait.stream for wait in found.waits if wait.stream is not None])


@answers("aclrtEventElapsedTime", required="ms start end")
@answers("rtEventElapsedTime", "rtsEventElapsedTime")
def event_elapsed_time(sim: Machine, ms: int, start: int, end: int) -> None:
    runtime_require(ms, "retTime")
    first, last = _event(sim, start, "aclrtEventElapsedTime"), _event(sim, end, "aclrtEventElapsedTime")
    _not_captured(first)
    _not_captured(last)
    events.refuse_external(first)
    events.refuse_external(last)
    if first.last is None or last.last is None:
        raise RuntimeLayerError(507000, "EE9999", "event recorder null")
    hostmem.write_f32(ms, (last.time() - first.time()) / 1e6)


@answers("aclrtEventGetTimestamp")
def event_get_timestamp(sim: Machine, event: int, timestamp: int) -> None:
    require(timestamp, "timestamp")
    require(event, "event")
    runtime_event_get_timestamp(sim, timestamp, event)


@answers("rtEventGetTimeStamp", "rtsEventGetTimeStamp")
def runtime_event_get_timestamp(sim: Machine, timestamp: int, event: int) -> None:
    runtime_require(timestamp, "retTime")
    found = _event(sim, event, "aclrtEventGetTimestamp")
    events.refuse_external(found)
    _not_captured(found)
    hostmem.write_u64(timestamp, found.time() // 1000)


@answers("aclrtGetEventId", required="event number")
@answers("rtGetEventID", "rtsEventGetId")
def get_event_id(sim: Machine, event: int, number: int) -> None:
    found = _event(sim, event, "aclrtGetEventId")
    runtime_require(number, "evtId")
    hostmem.write_u32(number, found.id())


@answers("aclrtGetEventAvailNum", required="count")
@answers("rtGetAvailEventNum", "rtsEventGetAvailNum")
def get_event_avail_num(sim: Machine, count: int) -> None:
    runtime_require(count, "eventCount")
    sim.current_context()
    hostmem.write_u32(count, sim.area(Events).available())


# ---- other processes -----------------------------------------------------------------------------------------


@answers("aclrtIpcGetEventHandle", required="event handle", partly="there are no events for other processes")
@answers("rtIpcGetEventHandle")
def ipc_get_event_handle(sim: Machine, event: int, handle: int) -> None:
    runtime_require(handle, "handle")
    found = _event(sim, event, "aclrtIpcGetEventHandle")
    raise RuntimeLayerError(
        107000, "EE1001", f"only support RT_EVENT_IPC call rtIpcGetEventHandle, current flag {found.flags}"
    )


@answers("rtIpcOpenEventHandle")
@answers("aclrtIpcOpenEventHandle", partly="there are no events of other processes")
def ipc_open_event_handle(sim: Machine, handle: object, event: int) -> None:
    require(event, "event")
    sim.current_context()
    raise RuntimeLayerError(507022, "EE9999", "no process exports an event here")


# ---- timeouts ------------------------------------------------------------------------------------------------


class Timeouts:
    """The timeouts of a process for work on devices."""

    def __init__(self, machine: Machine) -> None:
        self.event_wait = 0  # seconds; 0: none


@answers("aclrtSetOpWaitTimeout", "rtSetOpWaitTimeOut", "rtsSetOpWaitTimeOut")
def set_op_wait_timeout(sim: Machine, timeout: int) -> None:
    sim.area(Timeouts).event_wait = timeout
