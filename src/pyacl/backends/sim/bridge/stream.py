"""Entry points: streams."""

from __future__ import annotations

import ctypes

from ..engine import observers
from ..engine.device import DRIVER_ERROR
from ..engine.failures import AclLayerError, RuntimeLayerError, UndefinedBehavior
from ..engine.machine import Machine
from ..engine.models import Activate, Switch
from ..engine.refusals import out_of_range
from ..engine.stream import CPU_SCHEDULE, DEVICE_USE_ONLY, LEAST_PRIORITY, NOT_SYNCHRONIZED, PERSISTENT, Stream
from ..engine.waiting import finish_work, raise_unseen
from . import hostcall, hostmem
from .registry import answers, runtime_require

KNOWN_FLAGS = 0x3F
# the runtime's own flags, as its rt* functions take them, and the acl flags they are reported as
RUNTIME_FLAGS = {0x200: 0x1, 0x400: 0x2, 0x1: 0x4, 0x4: 0x8, 0x8: 0x10, 0x800: 0x20}

RUNTIME_ATTRIBUTE_SIZE = 20  # rtStreamCreateAttr_t

FAILURE_MODE, OVERFLOW_CHECK, CUSTOM_TAG, CACHE_OP_INFO = 1, 2, 3, 4


# ---- create and destroy --------------------------------------------------------------------------------------


def create(sim: Machine, out: int, priority: int, flags: int) -> None:
    if flags & DEVICE_USE_ONLY and flags & ~DEVICE_USE_ONLY:
        raise RuntimeLayerError(107000, "EE1001", f"Invalid flags:{flags} does not support OR with other flags")
    context = sim.current_context()
    if context.device.lost:
        raise context.device.gone(DRIVER_ERROR)
    if flags & DEVICE_USE_ONLY:
        raise AclLayerError(207000, "EH9999", "the driver does not support streams for device use only")
    if context.device.free_streams() == 0:
        raise RuntimeLayerError(
            207008, "EE9999", f"no stream resource: all {sim.profile.streams} streams of the device are in use"
        )
    stream = Stream(context, flags, min(max(priority, 0), LEAST_PRIORITY))
    stream.failure_mode = context.device.failure_mode
    context.streams.add(stream)
    hostmem.write_pointer(out, stream.handle)
    sim.stream_observers.notify(stream.handle, observers.CREATED)


@answers("aclrtCreateStream", required="stream")
def create_stream(sim: Machine, stream: int) -> None:
    create(sim, stream, 0, 0)


@answers(
    "aclrtCreateStreamWithConfig",
    required="stream",
    partly="flag 0x20 (device use only) is refused, as the recorded driver refused it",
)
def create_stream_with_config(sim: Machine, stream: int, priority: int, flag: int) -> None:
    create(sim, stream, ctypes.c_int32(priority).value, flag & KNOWN_FLAGS)


@answers("rtStreamCreate")
def runtime_create_stream(sim: Machine, stream: int, priority: int) -> None:
    runtime_require(stream, "stm")
    create(sim, stream, priority, 0)


@answers("rtStreamCreateWithFlags", "rtStreamCreateWithFlagsExternal")
def runtime_create_stream_with_flags(sim: Machine, stream: int, priority: int, flags: int) -> None:
    runtime_require(stream, "stm")
    create(sim, stream, priority, sum(acl for bit, acl in RUNTIME_FLAGS.items() if flags & bit))


@answers("rtsStreamCreate")
def rts_create_stream(sim: Machine, stream: int, config: int) -> None:
    runtime_require(stream, "stm")
    priority = flags = 0
    attributes, count = (hostmem.read_pointer(config), hostmem.read_u64(config + 8)) if config else (0, 0)
    for index in range(count):
        at = attributes + RUNTIME_ATTRIBUTE_SIZE * index
        number, value = hostmem.read_u32(at), hostmem.read_u32(at + 4)
        if number == 1:
            flags = value
        elif number == 2:
            priority = value
        else:
            raise out_of_range(number, f"config->attrs[{index}].id", "[1, 3)")
    runtime_create_stream_with_flags(sim, stream, priority, flags)


@answers("aclrtDestroyStream", required="stream")
@answers("rtStreamDestroy")
def destroy_stream(sim: Machine, stream: int) -> None:
    _destroy(sim, stream, force=False)


@answers("aclrtDestroyStreamForce", required="stream")
@answers("rtStreamDestroyForce")
def destroy_stream_force(sim: Machine, stream: int) -> None:
    _destroy(sim, stream, force=True)


@answers("rtsStreamDestroy")
def runtime_destroy_stream(sim: Machine, stream: int, flags: int) -> None:
    if flags & ~1:
        raise AclLayerError(107000, "EE1006", f"flags={flags} is not supported")
    _destroy(sim, stream, force=bool(flags & 1))


def _destroy(sim: Machine, handle: int, force: bool) -> None:
    runtime_require(handle, "stm")
    stream = sim.streams.find(handle)
    if stream is not None and stream.recorder is not None:
        raise RuntimeLayerError(107027, "EE9999", f"stream is in capture mode, stream_id={stream.number}")
    context = sim.current_context()
    if stream is None:
        if sim.streams.was_destroyed(handle):
            raise UndefinedBehavior(f"aclrtDestroyStream: {sim.streams.why_not(handle)}")
        # memory that is no stream has no context in it; the library was recorded with zeroed memory
        raise RuntimeLayerError(107003, "EE9999", "Stream destroy failed, stream is not in current ctx")
    if stream.context is not context:
        raise RuntimeLayerError(
            107003, "EE9999", f"Stream destroy failed, stream is not in current ctx, stream_id={stream.number}"
        )
    if stream is context.default_stream:
        raise UndefinedBehavior(
            "aclrtDestroyStream: the default stream of a context must not be destroyed; the library answers 0 and the "
            "process dies at its end"
        )
    if stream.models:
        raise RuntimeLayerError(
            107005, "EE9999", f"Tear down stream failed, stream is bound, stream_id={stream.number}"
        )
    if not force:
        finish_work(sim, [stream])
    stream.announce_end()
    stream.end()
    if not force:
        raise_unseen([stream])


# ---- wait and ask --------------------------------------------------------------------------------------------


@answers("aclrtSynchronizeStream", "rtStreamSynchronize")
def synchronize_stream(sim: Machine, stream: int) -> None:
    runtime_synchronize_stream(sim, stream, -1)


@answers("aclrtSynchronizeStreamWithTimeout")
def synchronize_stream_with_timeout(sim: Machine, stream: int, timeout: int) -> None:
    if timeout < -1:
        raise AclLayerError(107000, "EH9999", "the timeout of synchronize stream is invalid")
    runtime_synchronize_stream(sim, stream, timeout)


@answers("rtStreamSynchronizeWithTimeout", "rtsStreamSynchronize")
def runtime_synchronize_stream(sim: Machine, stream: int, timeout: int) -> None:
    if timeout < -1 or timeout == 0:
        raise RuntimeLayerError(107000, "EE1006", f"timeout={timeout}ms is not supported")
    found = sim.streams.find(stream) if stream else None
    if found is not None and found.flags & NOT_SYNCHRONIZED:
        raise RuntimeLayerError(507000, "EE1001", f"The stm parameter cannot be the stream whose flag is {found.flags}")
    if found is not None and found.recorder is not None:
        raise RuntimeLayerError(107027, "EE9999", f"Not allow to synchronize captured-stream, stream_id={found.number}")
    sim.current_context()
    found = sim.stream(stream, "aclrtSynchronizeStream")
    if found.context.failure is not None:
        raise found.context.failure
    found.synchronize(None if timeout == -1 else timeout)


@answers("aclrtStreamQuery", required="status")
def stream_query(sim: Machine, stream: int, status: int) -> None:
    hostmem.write_u32(status, 1 if runtime_stream_query(sim, stream) else 0)


@answers("rtStreamQuery", "rtsStreamQuery")
def runtime_stream_query(sim: Machine, stream: int) -> int:
    found = sim.streams.find(stream) if stream else None
    if found is not None and found.recorder is not None:
        raise RuntimeLayerError(107027, "EE9999", "Not allow to query captured-stream")
    sim.current_context()
    found = sim.stream(stream, "aclrtStreamQuery")
    if found.context.device.lost:
        raise found.context.device.gone()
    if found.context.failure is not None:
        raise found.context.failure
    if found.models:
        raise RuntimeLayerError(
            207000, "EE1001", f"Sink stream does not support stream query, stream_id={found.number}"
        )
    if found.flags & CPU_SCHEDULE:  # it has no queue on the device: the driver says so, and it is never complete
        sim.messages().append(("EL9999", "[drv api] halSqCqQuery failed: the stream has no queue on the device"))
        return 507004
    idle = found.idle
    if not idle:
        sim.scheduler.step([found])
    elif sim.hazards is not None:
        sim.hazards.host_waited(found)
    return 0 if idle else 507004


@answers("aclrtStreamGetId", required="number")
@answers("rtGetStreamId", "rtsStreamGetId")
def stream_get_id(sim: Machine, stream: int, number: int) -> None:
    runtime_require(number, "streamId")
    hostmem.write_i32(number, sim.stream(stream, "aclrtStreamGetId").number)


@answers("aclrtStreamGetPriority", required="priority")
@answers("rtStreamGetPriority")
def stream_get_priority(sim: Machine, stream: int, priority: int) -> None:
    runtime_require(priority, "priority")
    sim.current_context()
    hostmem.write_u32(priority, sim.stream(stream, "aclrtStreamGetPriority").priority)


@answers("aclrtStreamGetFlags", required="flags")
def stream_get_flags(sim: Machine, stream: int, flags: int) -> None:
    sim.current_context()
    hostmem.write_u32(flags, sim.stream(stream, "aclrtStreamGetFlags").flags)


@answers("rtStreamGetFlags")
def runtime_stream_get_flags(sim: Machine, stream: int, flags: int) -> None:
    runtime_require(flags, "flags")
    sim.current_context()
    acl = sim.stream(stream, "rtStreamGetFlags").flags
    hostmem.write_u32(flags, sum(bit for bit, flag in RUNTIME_FLAGS.items() if acl & flag))


@answers("aclrtGetStreamAvailableNum", required="count")
@answers("rtsStreamGetAvailableNum")
def get_stream_available_num(sim: Machine, count: int) -> None:
    runtime_require(count, "streamCount")
    hostmem.write_u32(count, sim.current_context().device.free_streams())


@answers("rtGetAvailStreamNum")
def get_avail_stream_num(sim: Machine, kind: int, count: int) -> None:
    if kind not in (0, 1):
        raise out_of_range(kind, "streamType", "[0, 1]")
    get_stream_available_num(sim, count)


@answers("rtGetMaxStreamAndTask")
def get_max_stream_and_task(sim: Machine, kind: int, streams: int, tasks: int) -> None:
    if kind not in (0, 1):
        raise out_of_range(kind, "streamType", "[0, 1]")
    runtime_require(streams, "maxStrCount")
    runtime_require(tasks, "maxTaskCount")
    hostmem.write_u32(streams, sim.profile.streams)
    hostmem.write_u32(tasks, sim.profile.stream_depth)


@answers("rtGetTaskIdAndStreamID")
def get_task_and_stream_id(sim: Machine, task: int, stream: int) -> None:
    runtime_require(task, "taskId")
    runtime_require(stream, "streamId")
    hostmem.write_u32(task, sim.thread.last_task)
    hostmem.write_u32(stream, sim.thread.last_stream)


# ---- attributes ----------------------------------------------------------------------------------------------


def _current_stream(sim: Machine, handle: int, call: str) -> Stream:
    """The stream that the older attribute functions work on: without a context the null stream is a null pointer."""
    if handle == 0:
        context = sim.find_context()
        if context is None or not context.alive:
            raise RuntimeLayerError(107000, "EE1004", "curStm is a null pointer")
        return context.default_stream
    return sim.streams.get(handle, call)


@answers("aclrtSetStreamFailureMode", "rtStreamSetMode")
def set_stream_failure_mode(sim: Machine, stream: int, mode: int) -> None:
    try:
        _set_failure_mode(sim, stream, mode)
    except RuntimeLayerError as failure:
        if failure.code == 207000:
            raise AclLayerError(207000, "EH9999", failure.text) from None
        raise


def _set_failure_mode(sim: Machine, handle: int, mode: int) -> None:
    stream = _current_stream(sim, handle, "aclrtSetStreamFailureMode")
    context = sim.current_context()
    if stream.models:
        raise RuntimeLayerError(207000, "EE1001", "stream binded with model, does not support set failure mode")
    wanted = mode & 1
    if stream.failure_mode == wanted:
        return
    if stream.failure_mode:
        raise RuntimeLayerError(
            207000, "EE1001", f"the current mode is Stop, does not support change stream_id={stream.number}"
        )
    if stream.context is not context:
        raise RuntimeLayerError(
            107003, "EE9999", f"Set stream failure mode failed, stream is not in current ctx stream_id={stream.number}"
        )
    stream.failure_mode = wanted


@answers("rtStreamGetMode")
def stream_get_mode(sim: Machine, stream: int, mode: int) -> None:
    found = _current_stream(sim, stream, "rtStreamGetMode")
    runtime_require(mode, "stmMode")
    hostmem.write_u64(mode, found.failure_mode)


def _not_captured(sim: Machine, handle: int) -> None:
    stream = sim.streams.find(handle) if handle else None
    if stream is not None and stream.recorder is not None:
        raise RuntimeLayerError(107027, "EE9999", f"stream is in capture mode, stream_id={stream.number}")


@answers("aclrtSetStreamOverflowSwitch")
def set_stream_overflow_switch(sim: Machine, stream: int, flag: int) -> None:
    if flag not in (0, 1):
        raise AclLayerError(100000)
    runtime_set_stream_overflow_switch(sim, stream, flag)


@answers("rtSetStreamOverflowSwitch")
def runtime_set_stream_overflow_switch(sim: Machine, stream: int, flag: int) -> None:
    if flag > 1:
        raise out_of_range(flag, "flags", "[0, 2)")
    _not_captured(sim, stream)
    sim.current_context()
    if sim.saturation != 0:
        raise RuntimeLayerError(
            207000, "EE1001", f"overflow switch only support saturation mode(0), current mode is {sim.saturation}"
        )
    sim.own_stream(stream, "aclrtSetStreamOverflowSwitch").overflow_switch = flag


@answers("aclrtGetStreamOverflowSwitch", required="flag")
@answers("rtGetStreamOverflowSwitch")
def get_stream_overflow_switch(sim: Machine, stream: int, flag: int) -> None:
    runtime_require(flag, "flags")
    hostmem.write_u32(flag, sim.own_stream(stream, "aclrtGetStreamOverflowSwitch").overflow_switch)


@answers("rtSetStreamTag")
def set_stream_tag(sim: Machine, stream: int, tag: int) -> None:
    _not_captured(sim, stream)
    sim.own_stream(stream, "aclrtSetStreamAttribute").tag = tag


@answers("rtGetStreamTag")
def get_stream_tag(sim: Machine, stream: int, tag: int) -> None:
    runtime_require(tag, "geOpTag")
    hostmem.write_u32(tag, sim.own_stream(stream, "rtGetStreamTag").tag)


@answers("aclrtSetStreamAttribute", required="value")
@answers("rtsStreamSetAttribute")
def set_stream_attribute(sim: Machine, stream: int, attribute: int, value: int) -> None:
    if attribute == FAILURE_MODE:
        _set_failure_mode(sim, stream, hostmem.read_u64(value))
    elif attribute == OVERFLOW_CHECK:
        runtime_set_stream_overflow_switch(sim, stream, hostmem.read_u32(value))
    elif attribute == CUSTOM_TAG:
        set_stream_tag(sim, stream, hostmem.read_u32(value))
    elif attribute == CACHE_OP_INFO:
        if not stream:
            _current_stream(sim, stream, "aclrtSetStreamAttribute")
        switch = hostmem.read_u32(value)
        if switch > 1:
            raise RuntimeLayerError(107000, "EE1001", f"cacheOpInfoSwitch={switch} is invalid")
        found = _current_stream(sim, stream, "aclrtSetStreamAttribute")
        found.cache_op_info = switch
    else:
        raise out_of_range(attribute, "stmAttrId", "[1, 5)")


@answers("aclrtGetStreamAttribute", required="value")
@answers("rtsStreamGetAttribute")
def get_stream_attribute(sim: Machine, stream: int, attribute: int, value: int) -> None:
    if attribute == FAILURE_MODE:
        stream_get_mode(sim, stream, value)
    elif attribute == OVERFLOW_CHECK:
        get_stream_overflow_switch(sim, stream, value)
    elif attribute == CUSTOM_TAG:
        get_stream_tag(sim, stream, value)
    elif attribute == CACHE_OP_INFO:
        found = _current_stream(sim, stream, "aclrtGetStreamAttribute")
        hostmem.write_u32(value, found.cache_op_info if found.recorder is not None else 0)
    else:
        raise out_of_range(attribute, "stmAttrId", "[1, 5)")


# ---- stop, activate, switch ----------------------------------------------------------------------------------


@answers("aclrtStreamAbort", "rtStreamAbort", "rtsStreamAbort")
def stream_abort(sim: Machine, stream: int) -> None:
    found = _current_stream(sim, stream, "aclrtStreamAbort")
    context = sim.current_context()
    if found.context is not context:
        raise RuntimeLayerError(
            107003, "EE9999", f"StreamAbort failed, stream is not in current ctx, stream_id={found.number}"
        )
    if found.models:
        raise RuntimeLayerError(507000, "EE9999", "model stream abort is not supported")
    found.abort()


@answers(
    "aclrtStreamStop", "rtsStreamStop", partly="only streams for device use can be stopped, and there are none here"
)
def stream_stop(sim: Machine, stream: int) -> None:
    runtime_require(stream, "stm")
    sim.current_context()
    raise RuntimeLayerError(207000, "EE1001", "feature not support because tsch version too low")


@answers("aclrtPersistentTaskClean", "rtsPersistentTaskClean", "rtStreamTaskClean")
def persistent_task_clean(sim: Machine, stream: int) -> None:
    runtime_require(stream, "stm")
    found = sim.streams.get(stream, "aclrtPersistentTaskClean")
    if not found.flags & PERSISTENT or not found.models:
        raise RuntimeLayerError(507000, "EE9999", "Stream must binded")
    if not all(model.load_complete for model in found.models):
        raise RuntimeLayerError(507000, "EE9999", "Model not load complete")
    sim.own_stream(stream, "aclrtPersistentTaskClean")
    for model in found.models:
        model.clean_stream(found)


def _bound(stream: Stream, name: str) -> None:
    if not stream.models:
        raise RuntimeLayerError(
            107005, "EE1011", f"Value 0 for parameter {name}->modelNum is invalid: the stream is not bound to a model"
        )


@answers("aclrtActiveStream", required="active stream")
@answers("rtStreamActive", "rtsActiveStream")
def active_stream(sim: Machine, active: int, stream: int) -> None:
    call = "aclrtActiveStream"
    if not stream:
        _current_stream(sim, stream, call)
    runtime_require(active, "activeStream")
    sim.current_context()
    found, activated = sim.stream(stream, call), sim.streams.get(active, call)
    _bound(found, "stm")
    _bound(activated, "activeStream")
    sim.own_stream(stream, call).submit(Activate(activated.models[0].lanes[activated]))


@answers("aclrtSwitchStream", required="left right true_stream stream")
def switch_stream(
    sim: Machine, left: int, condition: int, right: int, kind: int, true_stream: int, false_stream: int, stream: int
) -> None:
    if false_stream:
        raise AclLayerError(100000)
    runtime_switch_stream(sim, left, condition, right, true_stream, stream, kind)


@answers("rtsSwitchStream")
def rts_switch_stream(
    sim: Machine,
    left: int,
    condition: int,
    right: int,
    kind: int,
    true_stream: int,
    false_stream: int,
    stream: int,
) -> None:
    if false_stream:
        raise out_of_range(f"0x{false_stream:x}", "falseStream", "nullptr")
    runtime_switch_stream(sim, left, condition, right, true_stream, stream, kind)


@answers("rtStreamSwitchEx")
def runtime_switch_stream(
    sim: Machine, left: int, condition: int, right: int, true_stream: int, stream: int, kind: int
) -> None:
    runtime_require(left, "ptr")
    runtime_require(right, "valuePtr")
    runtime_require(true_stream, "trueStream")
    found = _current_stream(sim, stream, "aclrtSwitchStream")
    if not 0 <= condition <= 5:
        raise out_of_range(condition, "condition", "[0, 5]")
    if not 0 <= kind <= 1:
        raise out_of_range(kind, "dataType", "[0, 1]")
    target = sim.streams.get(true_stream, "aclrtSwitchStream")
    _bound(target, "trueStream")
    _bound(found, "stm")
    lane = target.models[0].lanes[target]
    sim.own_stream(stream, "aclrtSwitchStream").submit(Switch(left, condition, right, 8 if kind else 4, lane))


# ---- callbacks -----------------------------------------------------------------------------------------------


@answers("aclrtRegStreamStateCallback", required="name")
@answers("rtsRegStreamStateCallback")
def register_stream_state_callback(sim: Machine, name: int, callback: int, argument: int) -> None:
    runtime_require(name, "regName")
    if not callback:
        sim.stream_observers.remove(hostmem.read_text(name))
        return
    function = hostcall.function(callback, "void", "p", "u32", "p")
    sim.stream_observers.register(
        hostmem.read_text(name), lambda stream, state: function(stream, state, argument or None)
    )


@answers("rtRegStreamStateCallback")
def runtime_register_stream_state_callback(sim: Machine, name: int, callback: int) -> None:
    runtime_require(name, "regName")
    if not callback:
        sim.stream_observers.remove(hostmem.read_text(name))
        return
    function = hostcall.function(callback, "void", "p", "bool")
    sim.stream_observers.register(
        hostmem.read_text(name), lambda stream, state: function(stream, state == observers.CREATED), replace=True
    )
