"""Entry points: how long kernels may run, the last task of a thread, reductions, random numbers, changes of tasks."""

from __future__ import annotations

from ..engine import arithmetic, refusals
from ..engine.arithmetic import RandomTask, Value
from ..engine.chips import RANDOM, RETILE
from ..engine.failures import AclLayerError, RuntimeLayerError
from ..engine.machine import Machine
from ..engine.models import INTERNAL, STREAM_MODEL
from ..engine.optimeouts import LONGEST_MS, TICK_US, OpTimeouts, ticks_of
from ..engine.program import Programs
from . import hostmem
from .registry import answers, runtime_require

# ids of aclrtTaskUpdateInfo
UPDATE_RANDOM, UPDATE_KERNEL = 1, 2
MOST_SHAPE_INFO = 64 << 10


# ---- timeouts ------------------------------------------------------------------------------------------------


@answers("aclrtSetOpExecuteTimeOut", "rtSetOpExecuteTimeOut", "rtsSetOpExecuteTimeOut")
def set_op_execute_timeout(sim: Machine, timeout: int) -> None:
    sim.area(OpTimeouts).set(timeout * 1_000_000)


@answers("aclrtSetOpExecuteTimeOutWithMs", "rtSetOpExecuteTimeOutWithMs", "rtsSetOpExecuteTimeOutWithMs")
def set_op_execute_timeout_with_ms(sim: Machine, timeout: int) -> None:
    sim.area(OpTimeouts).set(min(timeout, LONGEST_MS) * 1000)


@answers("aclrtSetOpExecuteTimeOutV2", required="actual_timeout")
@answers("rtSetOpExecuteTimeOutV2")
def set_op_execute_timeout_v2(sim: Machine, timeout: int, actual_timeout: int) -> None:
    runtime_require(actual_timeout, "actualTimeout")
    sim.current_context()
    sim.area(OpTimeouts).set(timeout)
    hostmem.write_u64(actual_timeout, int(ticks_of(timeout) * TICK_US))


@answers("aclrtGetOpExecuteTimeout", required="timeout_ms")
@answers("rtGetOpExecuteTimeoutV2")
def get_op_execute_timeout(sim: Machine, timeout_ms: int) -> None:
    runtime_require(timeout_ms, "timeout")
    hostmem.write_u32(timeout_ms, sim.area(OpTimeouts).effective_ms())


@answers("aclrtGetOpTimeOutInterval", required="interval")
@answers("rtGetOpTimeOutInterval")
def get_op_timeout_interval(sim: Machine, interval: int) -> None:
    runtime_require(interval, "interval")
    sim.current_context()
    hostmem.write_u64(interval, int(TICK_US))


# ---- tasks ---------------------------------------------------------------------------------------------------


@answers("aclrtGetThreadLastTaskId", required="task_id")
@answers("rtsGetThreadLastTaskId")
def get_thread_last_task_id(sim: Machine, task_id: int) -> None:
    runtime_require(task_id, "taskId")
    hostmem.write_u32(task_id, sim.thread.last_task & 0xFFFF_FFFF)


@answers("aclrtTaskUpdateAsync", required="info", partly="the argument rules; no task is changed")
def task_update_async(sim: Machine, task_stream: int, task_id: int, info: int, exec_stream: int) -> None:
    call = "aclrtTaskUpdateAsync"
    kind = hostmem.read_u32(info)
    if kind == UPDATE_RANDOM:
        runtime_require(task_stream, "destStm")
        if RANDOM not in sim.area(Programs).features:
            raise refusals.unsupported("this chip has no random generator", None)
        if not hostmem.read_pointer(info + 8):
            raise refusals.null("src")
        sim.streams.get(task_stream, call)
        sim.own_stream(exec_stream, call)
    elif kind == UPDATE_KERNEL:
        runtime_require(task_stream, "desStm")
        runtime_require(exec_stream, "sinkStm")
        binary, entry, blocks = (hostmem.read_pointer(info + at) for at in (8, 16, 24))
        for pointer, name in ((entry, "tilingKeyAddr"), (blocks, "blockDimAddr"), (binary, "hdl")):
            runtime_require(pointer, name)
        if RETILE not in sim.area(Programs).features:
            raise refusals.unsupported("this chip cannot point a recorded launch to another function", None)
        if not sim.streams.get(task_stream, call).models or not sim.streams.get(exec_stream, call).models:
            text = "model update task does not support non-model scenario."
            raise RuntimeLayerError(STREAM_MODEL, "EE9999", text)
        sim.current_context()
    else:
        raise refusals.out_of_range(kind, "id", "[1, 3)")


@answers("aclrtCacheLastTaskOpInfo", required="info_ptr", partly="the information is not kept")
def cache_last_task_op_info(sim: Machine, info_ptr: int, info_size: int) -> None:
    if not info_size:
        raise refusals.bad_value(0, "infoSize", "must be greater than zero")
    if info_size > MOST_SHAPE_INFO:
        raise refusals.out_of_range(info_size, "infoSize", f"(0, {MOST_SHAPE_INFO}]")
    context = sim.current_context()
    stream = next((s for s in context.live_streams() if s.number == sim.thread.last_stream), None)
    if stream is None or stream.recorder is None:
        raise RuntimeLayerError(INTERNAL, "EE9999", "the thread's last task is not part of a capture")
    if not stream.cache_op_info:
        raise RuntimeLayerError(INTERNAL, "EE9999", "Cache op info switch is off")


# ---- arithmetic of the device --------------------------------------------------------------------------------


@answers("aclrtReduceAsync", required="dst src", partly="EQUAL gives 1 where the values are equal, else 0")
def reduce_async(sim: Machine, dst: int, src: int, count: int, kind: int, type: int, stream: int, reserve: int) -> None:
    if reserve:
        raise AclLayerError(100000, "EH0002", "Argument [reserve] must be null")
    if type not in arithmetic.REDUCIBLE:
        raise refusals.silent()  # the report of a type that cannot be reduced lacks parts, and is not kept
    if not count:
        raise refusals.out_of_range(0, "cnt", "not equal to 0")
    if not arithmetic.SUM <= kind <= arithmetic.EQUAL:
        raise refusals.out_of_range(kind, "kind", "[10, 14)")
    if kind == arithmetic.SUM and count > arithmetic.MOST_BYTES:
        raise refusals.invalid(f"the range of parameter cnt should be (0, {arithmetic.MOST_BYTES}]: {count}")
    arithmetic.reduce(sim, dst, src, count, kind, type, sim.own_stream(stream, "aclrtReduceAsync"))


def _value(address: int) -> Value:
    raw = hostmem.read_bytes(address, 10)
    return Value(raw[0], raw[1:9], raw[9])


@answers("aclrtRandomNumAsync", required="task_info", partly="the numbers are not those of the hardware")
def random_num_async(sim: Machine, task_info: int, stream: int, reserve: int) -> None:
    dtype = hostmem.read_i32(task_info)
    if dtype not in arithmetic.RANDOM_TYPES:
        raise refusals.silent()
    # the library writes its own number into the program's structure: a second call with it means another type
    hostmem.write_i32(task_info, arithmetic.RANDOM_TYPES[dtype][0])
    _random(sim, dtype, task_info, stream, reserve)


@answers("rtsLaunchRandomNumTask", partly="the numbers are not those of the hardware")
def launch_random_num_task(sim: Machine, task_info: int, stream: int, reserve: int) -> None:
    runtime_require(task_info, "taskInfo")
    number = hostmem.read_u32(task_info)
    dtype = next((key for key, (own, _) in arithmetic.RANDOM_TYPES.items() if own == number), None)
    if dtype is None:
        raise refusals.out_of_range(number, "dataType", f"[0, {len(arithmetic.RANDOM_TYPES)})")
    _random(sim, dtype, task_info, stream, reserve)


def _random(sim: Machine, dtype: int, task_info: int, stream: int, reserve: int) -> None:
    if RANDOM not in sim.area(Programs).features:
        raise AclLayerError(207000)
    if reserve:
        raise refusals.out_of_range(reserve, "reserve", "nullptr")
    target = sim.own_stream(stream, "aclrtRandomNumAsync")
    task = RandomTask(
        dtype, hostmem.read_u32(task_info + 4), _value(task_info + 8), _value(task_info + 24),
        hostmem.read_pointer(task_info + 48), hostmem.read_pointer(task_info + 56), _value(task_info + 64),
        _value(task_info + 80),
    )  # fmt: skip
    arithmetic.check_random(task)
    arithmetic.random(sim, task, target)
