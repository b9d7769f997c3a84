"""Entry points: models (capture, building, running, their tasks) and labels."""

from __future__ import annotations

import json
from typing import Any

from pyacl.raw.types import aclmdlRITaskParams

from ..engine import launch, refusals
from ..engine.chips import ABORT
from ..engine.event import EventRecord, EventReset
from ..engine.failures import AclLayerError, RuntimeLayerError
from ..engine.kernels import Kernels
from ..engine.labels import MOST_IN_A_LIST, Labels
from ..engine.launch import KernelLaunch
from ..engine.machine import Machine
from ..engine.models import (
    HEAD,
    IF,
    INTERNAL,
    PLAIN,
    STREAM_MODEL,
    SWITCH,
    WHILE,
    Mark,
    MarkWait,
    Model,
    Models,
    OutsideWait,
)
from ..engine.operation import Operation
from ..engine.program import Programs
from ..engine.stream import FAST_LAUNCH, PERSISTENT, Stream
from . import hostmem
from .hostcall import function as host_function
from .kernel import function_of
from .launch import launch_attributes
from .registry import answers, require, runtime_require

MODES = 3
CAPTURING, NOT_CAPTURING = 1, 0
# kinds of tasks, as aclmdlRITaskType has them
DEFAULT_TASK, KERNEL_TASK, RECORD_TASK, WAIT_TASK, RESET_TASK = 0, 1, 2, 3, 4


# ---- capture -------------------------------------------------------------------------------------------------


@answers("aclmdlRICaptureBegin", required="stream")
def capture_begin(sim: Machine, stream: int, mode: int) -> None:
    if not 0 <= mode < MODES:
        raise refusals.out_of_range(mode, "mode", "[0, 3)")
    sim.area(Models).begin(stream, mode, "aclmdlRICaptureBegin")


@answers("aclmdlRICaptureToModelRIBegin", required="stream model_ri")
def capture_to_model_begin(sim: Machine, stream: int, model_ri: int, mode: int) -> None:
    call = "aclmdlRICaptureToModelRIBegin"
    if not 0 <= mode < MODES:
        raise refusals.out_of_range(mode, "mode", "[0, 3)")
    model = sim.area(Models).own(model_ri, call)
    if not model.captured or model.capturing:
        raise refusals.invalid("only a captured model whose capture is over can be captured to")
    sim.area(Models).begin(stream, mode, call, model)


@answers("aclmdlRICaptureEnd", required="stream model_ri")
def capture_end(sim: Machine, stream: int, model_ri: int) -> None:
    model = sim.area(Models).end(stream, "aclmdlRICaptureEnd")
    hostmem.write_pointer(model_ri, model.handle)


@answers("aclmdlRICaptureGetInfo", required="stream")
def capture_get_info(sim: Machine, stream: int, status: int, model_ri: int) -> None:
    if not status and not model_ri:
        raise refusals.inner("status and modelRI are both null")
    recorder: Model | None = sim.streams.get(stream, "aclmdlRICaptureGetInfo").recorder
    if status:
        hostmem.write_u32(status, NOT_CAPTURING if recorder is None else CAPTURING)
    if model_ri:
        hostmem.write_pointer(model_ri, 0 if recorder is None else recorder.handle)


@answers("aclmdlRICaptureThreadExchangeMode", required="mode")
def capture_thread_exchange_mode(sim: Machine, mode: int) -> None:
    wanted = hostmem.read_u32(mode)
    if wanted >= MODES:
        raise refusals.out_of_range(wanted, "mode", "less than 3")
    sim.current_context()
    models = sim.area(Models)
    hostmem.write_u32(mode, models.exchange_mode)
    models.exchange_mode = wanted


@answers("aclmdlRICaptureTaskGrpBegin", required="stream")
def task_group_begin(sim: Machine, stream: int) -> None:
    sim.area(Models).begin_group(stream, "aclmdlRICaptureTaskGrpBegin")


@answers("aclmdlRICaptureTaskGrpEnd", required="stream handle")
def task_group_end(sim: Machine, stream: int, handle: int) -> None:
    hostmem.write_pointer(handle, sim.area(Models).end_group(stream, "aclmdlRICaptureTaskGrpEnd"))


@answers(
    "aclmdlRICaptureTaskUpdateBegin",
    required="stream handle",
    partly="launches of kernels without an emulation are refused with 207019, as the recorded driver refused them",
)
def task_update_begin(sim: Machine, stream: int, handle: int) -> None:
    sim.area(Models).begin_update(stream, handle, "aclmdlRICaptureTaskUpdateBegin")


@answers("aclmdlRICaptureTaskUpdateEnd", required="stream")
def task_update_end(sim: Machine, stream: int) -> None:
    sim.area(Models).end_update(stream, "aclmdlRICaptureTaskUpdateEnd")


# ---- building ------------------------------------------------------------------------------------------------


@answers("aclmdlRIBuildBegin", required="model_ri")
def build_begin(sim: Machine, model_ri: int, flag: int) -> None:
    if flag:
        raise AclLayerError(107000, "EE1003", f"The value {flag} of the parameter flag is invalid. Expected value: 0")
    hostmem.write_pointer(model_ri, sim.area(Models).create(captured=False).handle)


def _stream_or_default(sim: Machine, handle: int, call: str) -> Stream:
    """The stream of a handle; for 0 the default stream, and without a context nothing that could be bound: 107000."""
    if handle:
        return sim.streams.get(handle, call)
    context = sim.find_context()
    if context is None:
        raise refusals.null("curStm")
    return context.default_stream


@answers("aclmdlRIBindStream", required="model_ri")
def bind_stream(sim: Machine, model_ri: int, stream: int, flag: int) -> None:
    call = "aclmdlRIBindStream"
    if flag not in (HEAD, PLAIN):
        text = f"The value {flag} of the parameter flag is invalid. Expected value: {HEAD} or {PLAIN}"
        raise AclLayerError(107000, "EE1003", text)
    found = sim.streams.get(stream, call) if stream else None
    if found is not None and not found.flags & PERSISTENT:
        raise refusals.invalid("Non-persistent stream cannot be bound to a model.")
    if found is not None and found.models:
        raise RuntimeLayerError(STREAM_MODEL, "EE1007", f"stream {found.number} is bound to more than one mdlRI")
    models = sim.area(Models)
    if found is None:
        found = _stream_or_default(sim, stream, call)
    models.building(model_ri, call)
    if found.recorder is not None:
        raise RuntimeLayerError(107027, "EE9999", f"stream is in capture mode, stream_id={found.number}.")
    if found.failure_mode or found.flags & FAST_LAUNCH or not stream:
        raise refusals.unsupported("fast launch stream does not support bind model.")
    models.own(model_ri, call).bind(found, head=flag == HEAD)


@answers("aclmdlRIUnbindStream", required="model_ri")
def unbind_stream(sim: Machine, model_ri: int, stream: int) -> None:
    call = "aclmdlRIUnbindStream"
    models = sim.area(Models)
    found = _stream_or_default(sim, stream, call)
    models.building(model_ri, call)
    if found.recorder is not None:
        raise RuntimeLayerError(107027, "EE9999", f"stream is in capture mode, stream_id={found.number}.")
    model = models.own(model_ri, call)
    if model not in found.models:
        raise RuntimeLayerError(STREAM_MODEL, "EE9999", f"stream {found.number} is not bound to model {model.number}")
    model.unbind(found)


@answers("aclmdlRIEndTask", required="model_ri")
def end_task(sim: Machine, model_ri: int, stream: int) -> None:
    call = "aclmdlRIEndTask"
    models = sim.area(Models)
    found = _stream_or_default(sim, stream, call)
    models.building(model_ri, call)
    if found.recorder is not None:
        raise RuntimeLayerError(107027, "EE9999", f"stream is in capture mode, stream_id={found.number}.")
    found = sim.own_stream(stream, call)
    models.own(model_ri, call).end_task(found)


@answers("aclmdlRIBuildEnd", required="model_ri")
def build_end(sim: Machine, model_ri: int, reserve: int) -> None:
    if reserve:
        raise AclLayerError(100000, "EH0002", "Argument [reserve] must be null")
    models = sim.area(Models)
    models.building(model_ri, "aclmdlRIBuildEnd")
    models.own(model_ri, "aclmdlRIBuildEnd").load()


# ---- running and ending --------------------------------------------------------------------------------------


@answers("aclmdlRIExecuteAsync", required="model_ri")
def execute_async(sim: Machine, model_ri: int, stream: int) -> None:
    sim.area(Models).execute_async(model_ri, stream, "aclmdlRIExecuteAsync")


@answers("aclmdlRIExecute", required="model_ri")
def execute(sim: Machine, model_ri: int, timeout: int) -> None:
    sim.area(Models).execute(model_ri, timeout, "aclmdlRIExecute")


@answers("aclmdlRIAbort")
def abort(sim: Machine, model_ri: int) -> None:
    runtime_require(model_ri, "mdl")
    if ABORT not in sim.area(Programs).features:
        raise refusals.unsupported("this chip cannot abort a model", "EE9999")
    sim.area(Models).abort(model_ri, "aclmdlRIAbort")


@answers("aclmdlRIDestroy", required="model_ri")
def destroy(sim: Machine, model_ri: int) -> None:
    model = sim.area(Models).check_destroy(model_ri, "aclmdlRIDestroy")
    callbacks = list(model.callbacks.items())
    model.die()
    with sim.unlocked():
        for address, argument in callbacks:
            host_function(address, "void", "p")(argument)


@answers("aclmdlRIDestroyRegisterCallback")
def destroy_register_callback(sim: Machine, model_ri: int, func: int, user_data: int) -> None:
    runtime_require(model_ri, "mdl")
    runtime_require(func, "fn")
    model = sim.area(Models).get(model_ri, "aclmdlRIDestroyRegisterCallback")
    if func in model.callbacks:
        raise refusals.invalid("the callback is already registered")
    model.callbacks[func] = user_data


@answers("aclmdlRIDestroyUnregisterCallback")
def destroy_unregister_callback(sim: Machine, model_ri: int, func: int) -> None:
    runtime_require(model_ri, "mdl")
    runtime_require(func, "fn")
    model = sim.area(Models).get(model_ri, "aclmdlRIDestroyUnregisterCallback")
    if func not in model.callbacks:
        raise refusals.invalid("the callback is not registered")
    del model.callbacks[func]


@answers("aclmdlRISetName", required="model_ri name")
def set_name(sim: Machine, model_ri: int, name: int) -> None:
    sim.area(Models).own(model_ri, "aclmdlRISetName").name = hostmem.read_text(name)


@answers("aclmdlRIGetName", required="model_ri name")
def get_name(sim: Machine, model_ri: int, max_len: int, name: int) -> None:
    if not max_len:
        raise refusals.out_of_range(0, "maxLen", "not equal to 0")
    text = sim.area(Models).own(model_ri, "aclmdlRIGetName").name
    if max_len > refusals.MOST_BYTES:
        raise RuntimeLayerError(INTERNAL, "EE9999", f"copy of the model's name failed: {max_len} is no length")
    if len(text.encode("utf-8", "surrogateescape")) + 1 > max_len:
        hostmem.write_u8(name, 0)
        raise RuntimeLayerError(INTERNAL, "EE9999", f"copy of the model's name failed: there is room for {max_len}")
    hostmem.write_text(name, text, max_len)


@answers("aclmdlRIGetId", required="model_ri model_ri_id")
def get_id(sim: Machine, model_ri: int, model_ri_id: int) -> None:
    hostmem.write_u32(model_ri_id, sim.area(Models).get(model_ri, "aclmdlRIGetId").number)


@answers("aclmdlRIDebugPrint", required="model_ri", partly="prints nothing; aclmdlRIDebugJsonPrint writes a file")
def debug_print(sim: Machine, model_ri: int) -> None:
    sim.area(Models).own(model_ri, "aclmdlRIDebugPrint")


@answers("aclmdlRIDebugJsonPrint", required="model_ri path", partly="the fields of a task are the simulator's own")
def debug_json_print(sim: Machine, model_ri: int, path: int, flags: int) -> None:
    model = sim.area(Models).own(model_ri, "aclmdlRIDebugJsonPrint")
    where = hostmem.read_text(path)
    rows = [{"name": task.name, "ph": "X", "pid": model.number, "tid": _lane_number(task), "ts": index, "dur": 1,
             "args": _described(task)} for index, task in enumerate(model.tasks())]  # fmt: skip
    try:
        with open(where, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    except OSError as error:
        raise refusals.invalid(f"the file {where!r} cannot be written: {error}") from None


def _lane_number(task: Operation) -> int:
    return -1 if task.stream is None else task.stream.number


def _described(task: Operation) -> dict[str, object]:
    if isinstance(task, KernelLaunch):
        return {"kernel": task.function.name, "numBlocks": task.blocks}
    return {}


# ---- streams and tasks of a model (since 9.1) ----------------------------------------------------------------


def _write_handles(handles: list[int], array: int, count: int) -> None:
    """Handles into an array, or how many there are when there is no array."""
    if array:
        room = hostmem.read_u32(count)
        if room < len(handles):
            raise refusals.invalid(f"there are {len(handles)}, but room for {room}")
        for index, handle in enumerate(handles):
            hostmem.write_pointer(array + 8 * index, handle)
    hostmem.write_u32(count, len(handles))


@answers("aclmdlRIGetStreams", required="model_ri num_streams")
def get_streams(sim: Machine, model_ri: int, streams: int, num_streams: int) -> None:
    model = sim.area(Models).get(model_ri, "aclmdlRIGetStreams")
    _write_handles([lane.handle for lane in model.lanes.values()], streams, num_streams)


@answers("aclmdlRIGetTasksByStream", required="stream num_tasks")
def get_tasks_by_stream(sim: Machine, stream: int, tasks: int, num_tasks: int) -> None:
    models = sim.area(Models)
    lane = models.lanes.find(stream)
    if lane is None:
        found = sim.streams.get(stream, "aclmdlRIGetTasksByStream")
        if not found.models:
            raise RuntimeLayerError(STREAM_MODEL, "EE9999", f"stream is not bound to a model, id={found.number}")
        lane = found.models[0].lanes[found]
    assert lane is not None
    _write_handles([models.task_handle(lane.model, task) for task in lane.tasks], tasks, num_tasks)


def _task(sim: Machine, handle: int, call: str) -> tuple[Model, Operation]:
    return sim.area(Models).task_table.get(handle, call)


def _task_kind(task: Operation) -> int:
    if isinstance(task, KernelLaunch):
        return KERNEL_TASK
    if isinstance(task, (Mark, EventRecord)):
        return RECORD_TASK
    if isinstance(task, (MarkWait, OutsideWait)):
        return WAIT_TASK
    return RESET_TASK if isinstance(task, EventReset) else DEFAULT_TASK


@answers("aclmdlRITaskGetType", required="task type", partly="value writes and waits count as of another kind")
def task_get_type(sim: Machine, task: int, type: int) -> None:
    hostmem.write_u32(type, _task_kind(_task(sim, task, "aclmdlRITaskGetType")[1]))


@answers("aclmdlRITaskGetSeqId", required="task id")
def task_get_seq_id(sim: Machine, task: int, id: int) -> None:
    hostmem.write_u32(id, _task(sim, task, "aclmdlRITaskGetSeqId")[1].number)


# ---- tasks that are changed, conditions (since 9.1) ----------------------------------------------------------


@answers("aclmdlRITaskGetParams", required="task params", partly="parameters of kernels; of other tasks the type alone")
def task_get_params(sim: Machine, task: int, params: int) -> None:
    model, found = _task(sim, task, "aclmdlRITaskGetParams")
    out = hostmem.struct_at(aclmdlRITaskParams, params)
    out.type = _task_kind(found)
    group = next((g for g in model.groups if found in g.tasks), None)
    out.taskGrp.value = None if group is None else group.handle
    if isinstance(found, KernelLaunch):
        kernel = out.kernelTaskParams
        kernel.funcHandle, kernel.numBlocks = found.function.handle, found.blocks
        kernel.isHostArgs = int(found.data is not None)
        if found.data is None:
            kernel.args, kernel.argsSize = found.source
        else:
            sim.thread.kept["task arguments"], kernel.args = hostmem.keep_bytes(found.data)
            kernel.argsSize = len(found.data)


@answers("aclmdlRITaskSetParams", required="task params", partly="parameters of kernels")
def task_set_params(sim: Machine, task: int, params: int) -> None:
    call = "aclmdlRITaskSetParams"
    model, found = _task(sim, task, call)
    given = hostmem.read_struct(aclmdlRITaskParams, params)
    if given.type != _task_kind(found):
        raise refusals.invalid(f"the task is of type {_task_kind(found)}, the parameters of type {given.type}")
    if not isinstance(found, KernelLaunch):
        raise refusals.unsupported(f"{call}: parameters of type {given.type}")
    kernel, launched = given.kernelTaskParams, found
    function = function_of(sim, kernel.funcHandle.value or 0, call)
    attributes = launch.read_attributes(sim, function, launch_attributes(kernel.cfg or 0))
    emulation = sim.area(Kernels).required(function)
    address, size, blocks = kernel.args or 0, kernel.argsSize, kernel.numBlocks
    require(address, "args")
    data = hostmem.read_bytes(address, size) if kernel.isHostArgs else None

    def change() -> None:
        launched.function, launched.emulation, launched.attributes = function, emulation, attributes
        launched.blocks, launched.data, launched.source = blocks, data, (address, size)
        launched.locked = emulation is None

    model.changes.append(change)


@answers("aclmdlRITaskDisable", required="task")
def task_disable(sim: Machine, task: int) -> None:
    model, found = _task(sim, task, "aclmdlRITaskDisable")
    model.changes.append(lambda: model.disabled.add(id(found)))


@answers("aclmdlRIUpdate", required="model_ri")
def update(sim: Machine, model_ri: int) -> None:
    model = sim.area(Models).own(model_ri, "aclmdlRIUpdate")
    if model.capturing:
        raise RuntimeLayerError(107026, "EE9999", f"model is capturing, can't update, model_id={model.number}!")
    model.update()


@answers("aclmdlRIKernelTaskGetAttribute", required="task attr_value")
def kernel_task_get_attribute(sim: Machine, task: int, attr_id: int, attr_value: int) -> None:
    _, found = _task(sim, task, "aclmdlRIKernelTaskGetAttribute")
    if not isinstance(found, KernelLaunch):
        raise refusals.invalid("the task is not the launch of a kernel")
    hostmem.write_bytes(attr_value, launch.attribute_bytes(found.attributes, attr_id))


@answers("aclmdlRICondHandleCreate", required="model_ri handle")
def condition_handle_create(sim: Machine, model_ri: int, default_value: int, flag: int, handle: int) -> None:
    models = sim.area(Models)
    model = models.own(model_ri, "aclmdlRICondHandleCreate")
    if flag not in (0, 1):
        raise refusals.out_of_range(flag, "flag", "[0, 1]")
    hostmem.write_pointer(handle, models.add_condition(model, default_value, bool(flag)).handle)


@answers("aclmdlRICondHandleGetCondPtr", required="handle ptr")
def condition_handle_get_pointer(sim: Machine, handle: int, ptr: int) -> None:
    condition = sim.area(Models).conditions.get(handle, "aclmdlRICondHandleGetCondPtr")
    hostmem.write_pointer(ptr, condition.block.base)


@answers("aclmdlRIAddCondTask", required="stream", partly="assumes that it makes the models of the branches")
def add_condition_task(sim: Machine, params: Any, stream: int, flags: int) -> None:
    call = "aclmdlRIAddCondTask"
    models = sim.area(Models)
    condition = models.conditions.get(params.handle.value or 0, call)
    if not IF <= params.type <= SWITCH:
        raise refusals.out_of_range(params.type, "type", "[0, 2]")
    if not 0 < params.size <= {WHILE: 1, IF: 2}.get(params.type, params.size):
        raise refusals.out_of_range(params.size, "size", "1 for a loop, 1 or 2 for an if")
    require(params.modelRIArray or 0, "modelRIArray")
    target = sim.own_stream(stream, call)
    if target.recorder is None:
        raise RuntimeLayerError(107029, "EE9999", "the stream is not captured.")
    bodies = models.add_branch(condition, params.type, params.size, target)
    for index, body in enumerate(bodies):
        hostmem.write_pointer(params.modelRIArray + 8 * index, body.handle)


# ---- labels --------------------------------------------------------------------------------------------------


@answers("aclrtCreateLabel", required="label")
def create_label(sim: Machine, label: int) -> None:
    hostmem.write_pointer(label, sim.area(Labels).create())


@answers("aclrtDestroyLabel", required="label")
def destroy_label(sim: Machine, label: int) -> None:
    sim.area(Labels).destroy(label, "aclrtDestroyLabel")


@answers("aclrtSetLabel", required="label stream")
def set_label(sim: Machine, label: int, stream: int) -> None:
    sim.area(Labels).set(label, stream, "aclrtSetLabel")


@answers("aclrtCreateLabelList", required="labels label_list")
def create_label_list(sim: Machine, labels: int, num: int, label_list: int) -> None:
    if not 0 < num <= MOST_IN_A_LIST:
        raise refusals.out_of_range(num, "num", f"(0, {MOST_IN_A_LIST}]")
    handles = [hostmem.read_pointer(labels + 8 * index) for index in range(num)]
    hostmem.write_pointer(label_list, sim.area(Labels).create_list(handles, "aclrtCreateLabelList"))


@answers("aclrtDestroyLabelList", required="label_list")
def destroy_label_list(sim: Machine, label_list: int) -> None:
    sim.area(Labels).destroy_list(label_list, "aclrtDestroyLabelList")


@answers("aclrtSwitchLabelByIndex", required="ptr label_list stream")
def switch_label_by_index(sim: Machine, ptr: int, max_value: int, label_list: int, stream: int) -> None:
    sim.area(Labels).switch(ptr, max_value, label_list, stream, "aclrtSwitchLabelByIndex")


# ---- chips ---------------------------------------------------------------------------------------------------


@answers("aclrtCheckArchCompatibility", partly="knows no chip, as the recorded library without its platform files")
def check_arch_compatibility(sim: Machine, soc_version: int, can_compatible: int) -> None:
    runtime_require(soc_version, "socVersion")
    runtime_require(can_compatible, "canCompatible")
    name = hostmem.read_text(soc_version)
    raise refusals.invalid(f"the chip {name!r} is not known to the library")
