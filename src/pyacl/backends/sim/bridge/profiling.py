"""Entry points: profiling. The calls are checked and its objects live; nothing is recorded."""

from __future__ import annotations

import zlib
from typing import Optional

from ..engine import transfer
from ..engine.failures import AclLayerError
from ..engine.machine import Machine
from ..engine.profiling import FAILED, INVALID_MODEL, MARKS, MAX_DEVICES, Config, Profiler, Stamp, SubscribeConfig
from ..engine.refusals import inner_null, out_of_range, silent
from . import hostmem
from .registry import answers, runtime_require

_NOTE = "nothing is recorded"
_CONFIG_TYPES = 17
_LONGEST_CONFIG = 256
_LONGEST_PATH = 4096
_LONGEST_MESSAGE = 127
_OPERATOR = 80  # bytes of the description of an operator
_TRACE = 18  # bytes that aclrtProfTrace takes at most


def _refuse(text: str, message_code: str = "EK0001", code: int = 100000) -> AclLayerError:
    return AclLayerError(code, message_code, text)


# ---- objects -------------------------------------------------------------------------------------------------


@answers("aclprofCreateConfig")
def create_config(sim: Machine, device_list: int, count: int, metrics: int, events: int, switches: int) -> int:
    if count and not device_list:
        raise _refuse("deviceIdList must not be null", "EK0006")
    if events:
        raise _refuse("The value of aicoreEvents must be nullptr")
    most = min(MAX_DEVICES, len(sim.devices))
    if count > most:
        raise _refuse(f"The value {count} of deviceNums must be at most {most}")
    devices = [hostmem.read_u32(device_list + 4 * i) for i in range(count)]
    for device in devices:
        if device >= len(sim.devices):
            raise _refuse(f"The device id {device} must be in range [0, {len(sim.devices)})")
        if devices.count(device) > 1:
            raise _refuse(f"The device id {device} is there twice")
    if not count and not switches & MARKS:
        return 0
    return sim.area(Profiler).configs.add(Config(devices, metrics, switches))


@answers("aclprofDestroyConfig")
def destroy_config(sim: Machine, config: int) -> None:
    if not config:
        raise _refuse("profilerConfig must not be null", "EK0006")
    sim.area(Profiler).configs.remove(config, "aclprofDestroyConfig")


@answers("aclprofCreateSubscribeConfig")
def create_subscribe_config(sim: Machine, times: int, metrics: int, fd: int) -> int:
    return sim.area(Profiler).subscribe_configs.add(SubscribeConfig(times, metrics, fd))


@answers("aclprofDestroySubscribeConfig")
def destroy_subscribe_config(sim: Machine, config: int) -> None:
    if not config:
        raise silent()
    sim.area(Profiler).subscribe_configs.remove(config, "aclprofDestroySubscribeConfig")


@answers("aclprofCreateStepInfo")
def create_step_info(sim: Machine) -> int:
    return sim.area(Profiler).step()


@answers("aclprofDestroyStepInfo")
def destroy_step_info(sim: Machine, step: int) -> None:
    if not step:
        raise _refuse("stepInfo must not be null", "EK0003")
    sim.area(Profiler).steps.remove(step, "aclprofDestroyStepInfo")


@answers("aclprofGetStepTimestamp", partly=_NOTE)
def get_step_timestamp(sim: Machine, step: int, tag: int, stream: int) -> None:
    if not step:
        raise _refuse("stepInfo must not be null", "EK0003")
    found = sim.area(Profiler).steps.get(step, "aclprofGetStepTimestamp")
    if (tag == 0 and found.started) or (tag == 1 and found.ended):
        raise silent()
    if tag == 0:
        found.started = True
    else:
        found.ended = True
    transfer.task_without_effect(sim, stream, "aclprofGetStepTimestamp", "Profiler trace failed")


# ---- runs ----------------------------------------------------------------------------------------------------


@answers("aclprofInit", partly=_NOTE)
def init(sim: Machine, path: int, length: int) -> None:
    if not path or len(hostmem.read_text(path).encode("utf-8", "surrogateescape")) != length:
        raise _refuse("profilerResultPath is null or its length is not the length given")
    if not 0 < length <= _LONGEST_PATH:
        raise _refuse(f"The length of profilerResultPath must be in [1, {_LONGEST_PATH}]")
    sim.area(Profiler).init()


@answers("aclprofFinalize")
def finalize(sim: Machine) -> None:
    sim.area(Profiler).finalize()


def _switches(sim: Machine, config: int, call: str) -> Optional[int]:
    return sim.area(Profiler).configs.get(config, call).switches if config else None


@answers("aclprofStart", partly=_NOTE)
def start(sim: Machine, config: int) -> None:
    switches = _switches(sim, config, "aclprofStart")
    sim.area(Profiler).start(Config([], 0, 0).switches if switches is None else switches)


@answers("aclprofStop", partly=_NOTE)
def stop(sim: Machine, config: int) -> None:
    switches = _switches(sim, config, "aclprofStop")
    running = sim.area(Profiler).switches
    if switches is None and running is None:
        return
    sim.area(Profiler).stop(running if switches is None else switches)  # type: ignore[arg-type]


@answers("aclprofSetConfig", partly="the values of the settings are not looked at: " + _NOTE)
def set_config(sim: Machine, kind: int, value: int, length: int) -> None:
    if not 0 < kind < _CONFIG_TYPES or length > _LONGEST_CONFIG:
        raise silent()
    if not value or len(hostmem.read_text(value).encode("utf-8", "surrogateescape")) != length:
        raise silent()


@answers("aclprofModelSubscribe", "aclprofModelUnSubscribe", partly="no model is ever loaded")
def subscribe(sim: Machine, model: int, *config: int) -> None:
    raise _refuse(f"The model {model} does not exist", code=INVALID_MODEL)


# ---- descriptions of operators that a subscription delivers: none ever does ---------------------------------


@answers("aclprofGetOpDescSize")
def get_op_desc_size(sim: Machine, size: int) -> None:
    if not size:
        raise silent()
    hostmem.write_u64(size, _OPERATOR)


@answers("aclprofGetOpNum")
def get_op_num(sim: Machine, info: int, length: int, count: int) -> None:
    if not info or not count or length:
        raise silent()
    hostmem.write_u32(count, 0)


@answers("aclprofGetOpTypeLen", "aclprofGetOpNameLen")
def get_op_length(sim: Machine, info: int, length: int, index: int, wanted: int) -> None:
    raise silent()


@answers("aclprofGetOpType", "aclprofGetOpName")
def get_op_text(sim: Machine, info: int, length: int, index: int, text: int, size: int) -> None:
    raise silent()


@answers("aclprofGetModelId")
def get_model_id(sim: Machine, info: int, length: int, index: int) -> int:
    return 100000


@answers("aclprofGetOpStart", "aclprofGetOpEnd", "aclprofGetOpDuration", "aclprofGetOpFlag")
def get_op_number(sim: Machine, info: int, length: int, index: int) -> int:
    return 0


@answers("aclprofGetOpAttriValue")
def get_op_attribute(sim: Machine, info: int, length: int, index: int, attribute: int) -> int:
    return 0


# ---- marks ---------------------------------------------------------------------------------------------------


def _stamp(sim: Machine, stamp: int, call: str, marks: bool = True) -> Stamp:
    profiler = sim.area(Profiler)
    if marks:
        profiler.require_marks()
    if not stamp:
        raise _refuse(f"{call}: stamp must not be null", "EK0006", FAILED)
    return profiler.stamps.get(stamp, call)


@answers("aclprofCreateStamp", partly=_NOTE)
def create_stamp(sim: Machine) -> int:
    profiler = sim.area(Profiler)
    profiler.require_marks()
    return profiler.stamps.add(Stamp())


@answers("aclprofDestroyStamp")
def destroy_stamp(sim: Machine, stamp: int) -> None:
    if stamp:
        sim.area(Profiler).stamps.remove(stamp, "aclprofDestroyStamp")


@answers("aclprofSetStampTraceMessage")
def set_stamp_trace_message(sim: Machine, stamp: int, message: int, length: int) -> None:
    found = _stamp(sim, stamp, "aclprofSetStampTraceMessage", marks=False)
    if length > _LONGEST_MESSAGE:
        raise _refuse(f"The message must have less than {_LONGEST_MESSAGE + 1} bytes", "EK0006", FAILED)
    if not message:
        raise silent(FAILED)
    found.message = hostmem.read_bytes(message, length)


@answers("aclprofMark", partly=_NOTE)
def mark(sim: Machine, stamp: int) -> None:
    _stamp(sim, stamp, "aclprofMark")


@answers("aclprofMarkEx", partly=_NOTE)
def mark_ex(sim: Machine, message: int, length: int, stream: int) -> None:
    sim.area(Profiler).require_marks()
    if not message or not stream or len(hostmem.read_text(message).encode("utf-8", "surrogateescape")) != length:
        raise _refuse("Invalid input param for markEx", code=FAILED)
    if not 0 < length <= _LONGEST_MESSAGE:
        raise silent(FAILED)
    transfer.task_without_effect(sim, stream, "aclprofMarkEx", "Profiler trace failed")


@answers("aclprofPush", partly=_NOTE)
def push(sim: Machine, stamp: int) -> None:
    sim.area(Profiler).stack.append(_stamp(sim, stamp, "aclprofPush"))


@answers("aclprofPop", partly=_NOTE)
def pop(sim: Machine) -> None:
    profiler = sim.area(Profiler)
    profiler.require_marks()
    if not profiler.stack:
        raise silent(FAILED)
    profiler.stack.pop()


@answers("aclprofRangeStart", partly=_NOTE)
def range_start(sim: Machine, stamp: int, range_id: int) -> None:
    found = _stamp(sim, stamp, "aclprofRangeStart")
    hostmem.write_u32(range_id, sim.area(Profiler).start_range(found))


@answers("aclprofRangeStop", partly=_NOTE)
def range_stop(sim: Machine, range_id: int) -> None:
    profiler = sim.area(Profiler)
    profiler.require_marks()
    if profiler.ranges.pop(range_id, None) is None:
        raise _refuse(f"The range {range_id} was not started", code=FAILED)


@answers("aclprofRangePushEx", partly=_NOTE)
def range_push_ex(sim: Machine, attributes: int) -> None:
    profiler = sim.area(Profiler)
    profiler.require_marks()
    if not attributes:
        raise silent(FAILED)
    profiler.stack.append(Stamp())


@answers("aclprofRangePop", partly=_NOTE)
def range_pop(sim: Machine) -> None:
    pop(sim)


@answers("aclprofStr2Id")
def str2id(sim: Machine, message: int) -> int:
    return zlib.crc32(hostmem.read_text(message).encode("utf-8", "surrogateescape"))


@answers("aclrtProfTrace", partly=_NOTE)
def prof_trace(sim: Machine, userdata: int, length: int, stream: int) -> None:
    if not userdata:
        raise inner_null("userdata")
    runtime_prof_trace(sim, userdata, length, stream)


@answers("rtsProfTrace", partly=_NOTE)
def runtime_prof_trace(sim: Machine, userdata: int, length: int, stream: int) -> None:
    runtime_require(userdata, "userdata")
    if not 0 < length <= _TRACE:
        raise out_of_range(length, "length", f"(0, {_TRACE}]")
    transfer.task_without_effect(sim, stream, "aclrtProfTrace", "Profiler trace failed")
