"""Entry points of libruntime for kernels, models and labels.

Most of them stand behind the acl function of the same meaning, so its Python function answers them too, after null
checks of their own. Those with `stubFunc` are the older way to launch: compilers register a binary, and for each
kernel in it the address of a host function that stands for it.
"""

from __future__ import annotations

from typing import Any, Callable

from pyacl.raw.runtime_types import rtArgsEx_t, rtDevBinary_t, rtReduceInfo_t, rtTaskCfgInfo_t

from ..engine import arithmetic, launch, refusals
from ..engine.arguments import Addresses
from ..engine.chips import C2C, GRAPH
from ..engine.failures import AclLayerError
from ..engine.launch import Attributes
from ..engine.machine import Machine
from ..engine.models import Model, Models
from ..engine.optimeouts import OpTimeouts
from ..engine.program import Function, Program, Programs
from ..engine.stubs import LOOKUP, MAGICS, NO_KEY, Stubs
from . import execution, hostmem, kernel, model
from . import launch as launches
from .registry import answers, runtime_require

_NOTE = "checks as those of the acl function of the same meaning"
QUIETLY_NOT_SUPPORTED = 0x0711000D  # the library's own number, which it forgets to translate
SYNC_BYTES = 0x1000
MOST_BLOCKS = 0xFFFF
SCHEME_MODES = 2
#: rtDataType_t -> aclDataType, of what can be reduced
_TYPES = {
    0: arithmetic.FLOAT, 1: arithmetic.FLOAT16, 2: arithmetic.INT16, 3: arithmetic.INT4, 4: arithmetic.INT8,
    5: arithmetic.INT32, 6: arithmetic.BF16, 7: arithmetic.INT4, 8: arithmetic.UINT8, 9: arithmetic.UINT16,
    10: arithmetic.UINT32,
}  # fmt: skip


def _same(function: Callable[..., None], **pointers: int) -> Callable[..., None]:
    """The function, after a check that the arguments at these positions (by C name) are no null pointers."""

    def call(sim: Machine, *arguments: Any) -> None:
        for name, position in pointers.items():
            runtime_require(arguments[position], name)
        function(sim, *arguments)

    return call


# ---- binaries, functions, argument handles -------------------------------------------------------------------


answers("rtsBinaryLoadFromFile")(_same(kernel.binary_load_from_file, binPath=0, handle=2))
answers("rtsBinaryLoadFromData")(_same(kernel.binary_load_from_data, data=0, handle=3))
answers("rtsBinaryUnload")(_same(kernel.binary_unload, binHandle=0))
answers("rtsFuncGetByName")(_same(kernel.binary_get_function, binHandle=0, kernelName=1, funcHandle=2))
answers("rtsFuncGetByEntry")(_same(kernel.binary_get_function_by_entry, binHandle=0, funcHandle=2))
answers("rtsFuncGetAddr")(_same(kernel.get_function_addr, funcHandle=0, aicAddr=1, aivAddr=2))
answers("rtsFuncGetName")(_same(kernel.get_function_name, funcHandle=0, name=2))
answers("rtFunctionGetAttribute", partly=_NOTE)(_same(kernel.get_function_attribute, funcHandle=0, attrValue=2))
answers("rtsRegisterCpuFunc")(_same(kernel.register_cpu_func, binHandle=0, funcName=1, kernelName=2, funcHandle=3))
answers("rtsGetHardwareSyncAddr")(kernel.get_hardware_sync_addr)
answers("rtBinarySetExceptionCallback")(_same(kernel.binary_set_exception_callback, binHandle=0, callback=1))
answers("rtGetFuncHandleFromExceptionInfo")(_same(kernel.get_func_handle_from_exception_info, info=0, func=1))
answers("rtsKernelArgsInit")(_same(kernel.kernel_args_init, funcHandle=0, argsHandle=1))
answers("rtsKernelArgsInitByUserMem", partly=_NOTE)(
    _same(kernel.kernel_args_init_by_user_mem, funcHandle=0, argsHandle=1, userHostMem=2)
)
answers("rtsKernelArgsGetMemSize")(_same(kernel.kernel_args_get_mem_size, funcHandle=0, actualArgsSize=2))
answers("rtsKernelArgsGetHandleMemSize")(_same(kernel.kernel_args_get_handle_mem_size, funcHandle=0, memSize=1))
answers("rtsKernelArgsAppend", partly=_NOTE)(_same(kernel.kernel_args_append, argsHandle=0, para=1, paraHandle=3))
answers("rtsKernelArgsAppendPlaceHolder")(_same(kernel.kernel_args_append_placeholder, argsHandle=0, paraHandle=1))
answers("rtsKernelArgsGetPlaceHolderBuffer", partly=_NOTE)(
    _same(kernel.kernel_args_get_placeholder_buffer, argsHandle=0, paraHandle=1, bufferAddr=3)
)
answers("rtsKernelArgsParaUpdate", partly=_NOTE)(
    _same(kernel.kernel_args_para_update, argsHandle=0, paraHandle=1, para=2)
)
answers("rtsKernelArgsFinalize")(_same(kernel.kernel_args_finalize, argsHandle=0))
answers("rtsLaunchKernelWithConfig", partly=_NOTE)(
    _same(launches.launch_kernel_with_config, funcHandle=0, argsHandle=4)
)
answers("rtsLaunchKernelWithHostArgs")(_same(launches.launch_kernel_with_host_args, funcHandle=0, hostArgs=4))


@answers("rtsBinaryGetDevAddress")
def binary_get_dev_address(sim: Machine, bin_handle: int, bin_addr: int, bin_size: int) -> None:
    runtime_require(bin_handle, "binHandle")
    runtime_require(bin_addr, "bin")
    runtime_require(bin_size, "binSize")
    program = sim.area(Programs).programs.get(bin_handle, "rtsBinaryGetDevAddress")
    device = sim.current_context().device
    program.bring_to(device)
    block = None if program.cpu else program.image(device, make=False)
    hostmem.write_pointer(bin_addr, 0 if block is None else block.base)
    hostmem.write_u32(bin_size, program.size & 0xFFFF_FFFF)


@answers("rtsLaunchKernelWithDevArgs")
def launch_kernel_with_dev_args(
    sim: Machine, func_handle: int, num_blocks: int, stream: int, cfg: int, args: int, args_size: int, reserve: int
) -> None:
    runtime_require(func_handle, "funcHandle")
    if reserve:
        raise refusals.out_of_range(reserve, "reserve", "nullptr")
    runtime_require(args, "args")
    launches.launch_kernel_v2(sim, func_handle, num_blocks, args, args_size, cfg, stream)


@answers("rtGetC2cCtrlAddr", "rtsGetInterCoreSyncAddr", partly="the address and the length are made up")
def get_c2c_control_address(sim: Machine, addr: int, length: int) -> None:
    if C2C not in sim.area(Programs).features:
        raise AclLayerError(QUIETLY_NOT_SUPPORTED)
    runtime_require(addr, "addr")
    runtime_require(length, "len")
    hostmem.write_u64(addr, sim.area(Addresses).sync(sim.current_context().device.index))
    hostmem.write_u32(length, SYNC_BYTES)


# ---- kernels by host functions -------------------------------------------------------------------------------


def _binary(sim: Machine, address: int) -> Program:
    given = hostmem.read_struct(rtDevBinary_t, address)
    runtime_require(given.data or 0, "data")
    return sim.area(Stubs).register_binary(hostmem.read_bytes(given.data, given.length), given.magic)


@answers("rtDevBinaryRegister", partly="binaries of AI Core kernels in ELF")
def dev_binary_register(sim: Machine, binary: int, handle: int) -> None:
    runtime_require(binary, "bin")
    runtime_require(handle, "prog")
    hostmem.write_pointer(handle, _binary(sim, binary).handle)


@answers("rtRegisterAllKernel")
def register_all_kernel(sim: Machine, binary: int, handle: int) -> None:
    runtime_require(binary, "bin")
    runtime_require(handle, "prog")
    magic = hostmem.read_struct(rtDevBinary_t, binary).magic
    if magic not in MAGICS:
        raise refusals.invalid(f"Invalid magic, magic=0x{magic:x}")
    program = _binary(sim, binary)
    wrong = [function.name for function in program.functions.values() if function.key is None]
    if wrong:
        sim.area(Programs).unload(program)
        raise refusals.invalid(f"current kernels not suit tilingkey rule: {wrong[0]} does not end with _ and a number")
    hostmem.write_pointer(handle, program.handle)


@answers("rtDevBinaryUnRegister")
def dev_binary_unregister(sim: Machine, handle: int) -> None:
    runtime_require(handle, "prog")
    program = sim.area(Programs).programs.get(handle, "rtDevBinaryUnRegister")
    sim.area(Stubs).forget(program)
    sim.area(Programs).unload(program)


@answers("rtFunctionRegister", partly="modes that trace the program counter are not known")
def function_register(
    sim: Machine, bin_handle: int, stub_func: int, stub_name: int, kernel_info_ext: int, func_mode: int
) -> None:
    runtime_require(bin_handle, "prog")
    runtime_require(stub_func, "stubFunc")
    runtime_require(stub_name, "stubName")
    program = sim.area(Programs).programs.get(bin_handle, "rtFunctionRegister")
    name = hostmem.read_text(kernel_info_ext) if kernel_info_ext else ""
    sim.area(Stubs).register(program, stub_func, hostmem.read_text(stub_name), name)


@answers("rtGetFunctionByName")
def get_function_by_name(sim: Machine, stub_name: int, stub_func: int) -> None:
    runtime_require(stub_func, "stubFunc")
    runtime_require(stub_name, "stubName")
    name = hostmem.read_text(stub_name)
    found = sim.area(Stubs).by_name(name)
    hostmem.write_pointer(stub_func, found or 0)
    if found is None:
        raise refusals.driver(f"Get stub function failed, name={name}.", LOOKUP)


@answers("rtQueryFunctionRegistered")
def query_function_registered(sim: Machine, stub_name: int) -> None:
    runtime_require(stub_name, "stubName")
    if sim.area(Stubs).by_name(hostmem.read_text(stub_name)) is None:
        raise AclLayerError(LOOKUP)


@answers("rtGetBinaryDeviceBaseAddr")
def get_binary_device_base_addr(sim: Machine, handle: int, device_base: int) -> None:
    runtime_require(handle, "prog")
    runtime_require(device_base, "deviceBase")
    program = sim.area(Programs).programs.get(handle, "rtGetBinaryDeviceBaseAddr")
    block = program.image(sim.current_context().device)
    assert block is not None
    hostmem.write_pointer(device_base, block.base)


class _Block:
    """The arguments of a launch as rtArgsEx_t has them, checked."""

    def __init__(self, address: int) -> None:
        runtime_require(address, "argsInfo")
        given = hostmem.read_struct(rtArgsEx_t, address)
        runtime_require(given.args or 0, "argsInfo->args")
        launch.check_block_size(given.argsSize)
        self.address, self.size, self.on_device = given.args, given.argsSize, bool(given.isNoNeedH2DCopy)
        self.placeholders: list[tuple[int, int]] = []
        if self.on_device:
            return
        if given.hasTiling:
            self.placeholders.append((given.tilingAddrOffset, given.tilingDataOffset))
        if given.hostInputInfoNum:
            pairs = given.hostInputInfoPtr or 0
            runtime_require(pairs, "argsInfo->hostInputInfoPtr")
            for pair in range(pairs, pairs + 8 * given.hostInputInfoNum, 8):
                self.placeholders.append((hostmem.read_u32(pair), hostmem.read_u32(pair + 4)))
        if any(offset >= self.size for pair in self.placeholders for offset in pair):
            raise refusals.invalid(f"Offsets of placeholders should be less than argsSize, which is {self.size}.")


def _attributes(address: int) -> Attributes:
    if not address:
        return launch.DEFAULTS
    given = hostmem.read_struct(rtTaskCfgInfo_t, address)
    if given.schemMode >= SCHEME_MODES:
        raise refusals.out_of_range(given.schemMode, "cfgInfo->schemMode", f"[0, {SCHEME_MODES})")
    return launch.DEFAULTS._replace(
        scheme=given.schemMode, offset=given.blockDimOffset, ubuf=given.localMemorySize, dump=bool(given.dumpflag)
    )


def _run(
    sim: Machine, call: str, find: Callable[[], Function], blocks: int, block: _Block, stream: int, cfg: Attributes
) -> None:
    context = sim.current_context()
    if sim.stream(stream, call).context is not context:
        raise refusals.wrong_context("Kernel launch failed")
    function = find()
    function.program.bring_to(context.device)
    if block.on_device:
        launch.with_device_block(sim, call, function, blocks, stream, cfg, block.address, block.size)
    else:
        data = hostmem.view(block.address, block.size)
        launch.with_checked_block(sim, call, function, blocks, stream, cfg, data, block.placeholders)


def _by_stub(sim: Machine, call: str, stub: int, blocks: int, args: int, stream: int, cfg: int) -> None:
    _check_stub(stub, blocks)
    block, attributes = _Block(args), _attributes(cfg)
    _run(sim, call, lambda: sim.area(Stubs).find(stub), blocks, block, stream, attributes)


def _check_stub(stub: int, blocks: int) -> None:
    runtime_require(stub, "stubFunc")
    if not 0 < blocks <= MOST_BLOCKS:
        expected = "not equal to 0" if not blocks else f"less than or equal to {MOST_BLOCKS}"
        raise refusals.out_of_range(blocks, "coreDim", expected)


@answers("rtKernelLaunch", partly="the shared memory descriptor says nothing")
def kernel_launch(
    sim: Machine, stub_func: int, num_blocks: int, args: int, args_size: int, sm_desc: int, stream: int
) -> None:
    call = "rtKernelLaunch"
    found = sim.stream(stream, call)
    _check_stub(stub_func, num_blocks)
    given = rtArgsEx_t(args=args or None, argsSize=args_size, isNoNeedH2DCopy=int(bool(found.models)))
    kept, address = hostmem.keep_bytes(bytes(given))
    block = _Block(address)
    del kept
    _run(sim, call, lambda: sim.area(Stubs).find(stub_func), num_blocks, block, stream, launch.DEFAULTS)


@answers("rtKernelLaunchWithFlag", partly="the flags and the shared memory descriptor say nothing")
def kernel_launch_with_flag(
    sim: Machine, stub_func: int, num_blocks: int, args_info: int, sm_desc: int, stream: int, flags: int
) -> None:
    _by_stub(sim, "rtKernelLaunchWithFlag", stub_func, num_blocks, args_info, stream, 0)


@answers("rtKernelLaunchWithFlagV2", partly="the flags and the shared memory descriptor say nothing")
def kernel_launch_with_flag_v2(
    sim: Machine, stub_func: int, num_blocks: int, args_info: int, sm_desc: int, stream: int, flags: int, cfg_info: int
) -> None:
    _by_stub(sim, "rtKernelLaunchWithFlagV2", stub_func, num_blocks, args_info, stream, cfg_info)


def _by_key(sim: Machine, call: str, handle: int, key: int, blocks: int, args: int, stream: int, cfg: int) -> None:
    launch.check_blocks(blocks)
    block, attributes = _Block(args), _attributes(cfg)

    def find() -> Function:
        if not handle:
            return sim.area(Stubs).find(0)
        program = sim.area(Programs).programs.get(handle, call)
        if key == NO_KEY:
            raise refusals.unsupported(f"{call}: launches of a binary without a tiling key")
        return sim.area(Stubs).by_key(program, key)

    _run(sim, call, find, blocks, block, stream, attributes)


@answers("rtKernelLaunchWithHandle", partly="the shared memory descriptor says nothing")
def kernel_launch_with_handle(
    sim: Machine, hdl: int, tiling_key: int, num_blocks: int, args_info: int, sm_desc: int, stream: int, info: int
) -> None:
    _by_key(sim, "rtKernelLaunchWithHandle", hdl, tiling_key, num_blocks, args_info, stream, 0)


@answers("rtKernelLaunchWithHandleV2", partly="the shared memory descriptor says nothing")
def kernel_launch_with_handle_v2(
    sim: Machine, hdl: int, tiling_key: int, num_blocks: int, args_info: int, sm_desc: int, stream: int, cfg_info: int
) -> None:
    _by_key(sim, "rtKernelLaunchWithHandleV2", hdl, tiling_key, num_blocks, args_info, stream, cfg_info)


# ---- models --------------------------------------------------------------------------------------------------


def _for_graphs(function: Callable[..., None], **pointers: int) -> Callable[..., None]:
    """The function, after a check that the chip captures streams."""
    checked = _same(function, **pointers)

    def call(sim: Machine, *arguments: Any) -> None:
        if GRAPH not in sim.area(Programs).features:
            raise refusals.unsupported("this chip cannot capture streams into models", None)
        checked(sim, *arguments)

    return call


answers("rtStreamBeginCapture")(_for_graphs(model.capture_begin, stm=0))
answers("rtStreamEndCapture")(_for_graphs(model.capture_end, stm=0, captureMdl=1))
answers("rtStreamGetCaptureInfo", partly=_NOTE)(_for_graphs(model.capture_get_info, stm=0))
answers("rtThreadExchangeCaptureMode")(_for_graphs(model.capture_thread_exchange_mode, mode=0))
answers("rtsStreamBeginTaskGrp")(_for_graphs(model.task_group_begin, stm=0))
answers("rtsStreamEndTaskGrp")(_for_graphs(model.task_group_end, stm=0, handle=1))
answers("rtsStreamBeginTaskUpdate")(_for_graphs(model.task_update_begin, stm=0, handle=1))
answers("rtsStreamEndTaskUpdate")(_for_graphs(model.task_update_end, stm=0))
answers("rtsModelCreate")(_same(model.build_begin, mdl=0))
answers("rtModelBindStream", "rtsModelBindStream", partly=_NOTE)(_same(model.bind_stream, mdl=0))
answers("rtModelUnbindStream", "rtsModelUnbindStream")(_same(model.unbind_stream, mdl=0))
answers("rtEndGraph", "rtsEndGraph")(_same(model.end_task, mdl=0))
answers("rtsModelExecute")(_same(model.execute, mdl=0))
answers("rtsModelExecuteAsync")(_same(model.execute_async, mdl=0))
answers("rtModelDestroy", "rtsModelDestroy")(_same(model.destroy, mdl=0))
answers("rtModelAbort", "rtsModelAbort")(model.abort)
answers("rtModelGetId", "rtsModelGetId")(_same(model.get_id, mdl=0, modelId=1))
answers("rtsModelSetName")(_same(model.set_name, mdl=0, mdlName=1))
answers("rtSetModelName")(_same(model.set_name, mdl=0, mdlName=1))
answers("rtsModelGetName")(_same(model.get_name, mdl=0, mdlName=2))
answers("rtModelDebugJsonPrint", partly="the fields of a task are the simulator's own")(
    _same(model.debug_json_print, mdl=0, path=1)
)
answers("rtModelDebugDotPrint", partly="prints nothing")(_same(model.debug_print, mdl=0))


@answers("rtModelCreate", partly="the flag says nothing")
def model_create(sim: Machine, mdl: int, flag: int) -> None:
    runtime_require(mdl, "mdl")
    model.build_begin(sim, mdl, 0)


@answers("rtsModelLoadComplete")
def model_load_complete_with(sim: Machine, mdl: int, reserve: int) -> None:
    runtime_require(mdl, "mdl")
    if reserve:
        raise refusals.out_of_range(reserve, "reserve", "nullptr")
    model.build_end(sim, mdl, 0)


@answers("rtModelLoadComplete")
def model_load_complete(sim: Machine, mdl: int) -> None:
    model_load_complete_with(sim, mdl, 0)


@answers("rtModelExecute", partly="the flag says nothing")
def model_execute(sim: Machine, mdl: int, stream: int, flag: int) -> None:
    runtime_require(mdl, "mdl")
    model.execute_async(sim, mdl, stream)


@answers("rtModelExecuteSync", partly="waits on a stream of its own; the flag says nothing")
def model_execute_sync(sim: Machine, mdl: int, stream: int, flag: int, timeout: int) -> None:
    if timeout < -1 or timeout == 0:
        raise refusals.invalid(f"rtModelExecuteSync does not support timeout={timeout}")
    runtime_require(mdl, "mdl")
    model.execute(sim, mdl, timeout)


@answers("rtModelGetNodes")
def model_get_nodes(sim: Machine, mdl: int, num: int) -> None:
    runtime_require(mdl, "mdl")
    runtime_require(num, "num")
    found: Model = sim.area(Models).own(mdl, "rtModelGetNodes")
    hostmem.write_u32(num, sum(1 for _ in found.tasks()))


# ---- labels --------------------------------------------------------------------------------------------------


answers("rtsLabelCreate")(_same(model.create_label, lbl=0))
answers("rtLabelDestroy", "rtsLabelDestroy")(_same(model.destroy_label, lbl=0))
answers("rtLabelSet", "rtsLabelSet")(_same(model.set_label, lbl=0))
answers("rtsLabelSwitchListCreate")(_same(model.create_label_list, labels=0, labelList=2))
answers("rtsLabelSwitchListDestroy")(_same(model.destroy_label_list, labelList=0))
answers("rtsLabelSwitchByIndex")(_same(model.switch_label_by_index, ptr=0, labelInfoPtr=2))


@answers("rtLabelCreateV2", partly="the label belongs to the model whose stream it is set on")
def label_create_for_model(sim: Machine, lbl: int, mdl: int) -> None:
    runtime_require(lbl, "lbl")
    model.create_label(sim, lbl)


@answers("rtLabelCreate")
def label_create(sim: Machine, lbl: int) -> None:
    raise refusals.unsupported("rtLabelCreate is no longer supported", None)


@answers("rtLabelCreateEx")
def label_create_on_stream(sim: Machine, lbl: int, stream: int) -> None:
    raise refusals.unsupported("rtLabelCreateEx is no longer supported", None)


# ---- tasks ---------------------------------------------------------------------------------------------------


answers("rtCacheLastTaskOpInfo", partly="the information is not kept")(
    _same(execution.cache_last_task_op_info, infoPtr=0)
)
answers("rtCheckArchCompatibility", partly="knows no chip, as the recorded library without its platform files")(
    model.check_arch_compatibility
)


@answers("rtsLaunchUpdateTask", partly="the argument rules; no task is changed")
def launch_update_task(sim: Machine, dest_stream: int, dest_task: int, stream: int, cfg: int) -> None:
    runtime_require(cfg, "cfg")
    execution.task_update_async(sim, dest_stream, dest_task, cfg, stream)


@answers("rtGetOpExecuteTimeOut", "rtsGetOpExecuteTimeOut", partly="in milliseconds on every chip")
def get_op_execute_timeout(sim: Machine, timeout: int) -> None:
    runtime_require(timeout, "timeout")
    hostmem.write_u32(timeout, sim.area(OpTimeouts).effective_ms())


def _reduce(sim: Machine, dst: int, src: int, count: int, kind: int, dtype: int, stream: int) -> None:
    runtime_require(dst, "dst")
    runtime_require(src, "src")
    if not count:
        raise refusals.out_of_range(0, "cnt", "not equal to 0")
    if not arithmetic.SUM <= kind <= arithmetic.EQUAL:
        raise refusals.out_of_range(kind, "kind", "[10, 14)")
    if kind == arithmetic.SUM and count > arithmetic.MOST_BYTES:
        raise refusals.invalid(f"the range of parameter cnt should be (0, {arithmetic.MOST_BYTES}]: {count}")
    if dtype not in _TYPES:
        raise refusals.out_of_range(dtype, "type", "[0, 11)")
    arithmetic.reduce(sim, dst, src, count, kind, _TYPES[dtype], sim.own_stream(stream, "rtReduceAsync"))


@answers("rtReduceAsync")
def reduce_async(
    sim: Machine, dst: int, dest_max: int, src: int, count: int, kind: int, dtype: int, stream: int
) -> None:
    _reduce(sim, dst, src, count, kind, dtype, stream)


@answers("rtReduceAsyncV2", "rtReduceAsyncWithCfg", "rtReduceAsyncWithCfgV2", partly="overflow is not reported")
def reduce_async_with(
    sim: Machine, dst: int, dest_max: int, src: int, count: int, kind: int, dtype: int, stream: int, more: int
) -> None:
    _reduce(sim, dst, src, count, kind, dtype, stream)


@answers("rtsLaunchReduceAsyncTask")
def launch_reduce_async_task(sim: Machine, reduce_info: int, stream: int, reserve: int) -> None:
    runtime_require(reduce_info, "reduceInfo")
    if reserve:
        raise refusals.out_of_range(reserve, "reserve", "nullptr")
    given = hostmem.read_struct(rtReduceInfo_t, reduce_info)
    _reduce(sim, given.dst or 0, given.src or 0, given.count, given.kind, given.type, stream)
