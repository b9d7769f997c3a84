"""Entry points: kernel binaries, the functions in them, argument handles."""

from __future__ import annotations

from ..engine import arguments, refusals
from ..engine.arguments import Addresses, Arguments, Handles
from ..engine.chips import SYNC_ADDRESS
from ..engine.failures import AclLayerError, RuntimeLayerError, UndefinedBehavior
from ..engine.machine import Machine
from ..engine.program import MAGIC_AICORE, MAGIC_CUBE, MAGIC_VECTOR, Function, Program, Programs
from . import hostcall, hostmem
from .errors import (
    EXCEPTION_ARGUMENTS,
    EXCEPTION_BINARY,
    EXCEPTION_KIND,
    EXCEPTION_NAME,
    EXCEPTION_OF_AICORE,
    EXCEPTION_SIZE,
    described,
)
from .registry import answers, require, runtime_require

# types of load options
LAZY_LOAD, MAGIC, CPU_KERNEL_MODE = 1, 2, 3
# function attributes
KERNEL_TYPE, KERNEL_RATIO, KERNEL_SCHED_MODE = 1, 2, 3
_OPTION_BYTES = 20
# what the exception functions answer to a null pointer of theirs
INVALID_EXCEPTION_INFO = -1


def newer_than_9_0(sim: Machine) -> bool:
    return sim.cann.startswith(("9.1", "9.2"))


# ---- binaries ------------------------------------------------------------------------------------------------


class _Options:
    """What the options of a load say."""

    def __init__(self, options: int, from_file: bool) -> None:
        self.lazy = False
        self.magic = 0
        self.cpu_mode: int | None = None
        if not options:
            return
        array, count = hostmem.read_pointer(options), hostmem.read_u64(options + 8)
        if not array:
            raise refusals.invalid("optionalCfg is not null, but options is nullptr")
        for index in range(count):
            at = array + index * _OPTION_BYTES
            self._read(hostmem.read_u32(at), hostmem.read_u32(at + 4), hostmem.read_i32(at + 4), from_file)

    def _read(self, kind: int, value: int, signed: int, from_file: bool) -> None:
        if kind == LAZY_LOAD:
            if value > 1:
                raise refusals.invalid(f"LAZY_LOAD value is illegal, val={value}, should be [0, 1]")
            self.lazy = bool(value)
        elif kind == MAGIC:
            if from_file:
                raise refusals.invalid("the option MAGIC is not supported when loading from a file")
            if value not in (MAGIC_AICORE, MAGIC_CUBE, MAGIC_VECTOR):
                raise refusals.invalid(f"MAGIC value 0x{value:x} is illegal")
            self.magic = value
        elif kind == CPU_KERNEL_MODE:
            if signed not in ((0, 1) if from_file else (2,)):
                raise refusals.invalid(
                    f"CPU_KERNEL_MODE value {signed} is illegal, should be " + ("[0, 1]" if from_file else "2")
                )
            self.cpu_mode = signed
        else:
            raise refusals.invalid(f"load option type[{kind}] is illegal, should be [1, 4)")


@answers("aclrtBinaryLoadFromFile", required="bin_path bin_handle")
def binary_load_from_file(sim: Machine, bin_path: int, options: int, bin_handle: int) -> None:
    given = _Options(options, from_file=True)
    hostmem.write_pointer(bin_handle, 0)
    path, programs = hostmem.read_text(bin_path), sim.area(Programs)
    if given.cpu_mode is not None:
        program = programs.load_cpu(path, given.cpu_mode)
    else:
        program = programs.load_file(path, given.lazy)
    hostmem.write_pointer(bin_handle, program.handle)


@answers("aclrtBinaryLoadFromData", required="data bin_handle")
def binary_load_from_data(sim: Machine, data: int, length: int, options: int, bin_handle: int) -> None:
    if not length:
        raise refusals.out_of_range(0, "length", "not equal to 0")
    given = _Options(options, from_file=False)
    hostmem.write_pointer(bin_handle, 0)
    content, programs = hostmem.read_bytes(data, length), sim.area(Programs)
    if given.cpu_mode is not None:
        program = programs.load_cpu_data(content)
    else:
        program = programs.load_data(content, given.magic, given.lazy)
    hostmem.write_pointer(bin_handle, program.handle)


@answers("aclrtCreateBinary")
def create_binary(sim: Machine, data: int, data_len: int) -> int:
    require(data, "data")
    return sim.area(Programs).descriptions.add((data, data_len))


@answers("aclrtDestroyBinary", required="binary")
def destroy_binary(sim: Machine, binary: int) -> None:
    sim.area(Programs).descriptions.remove(binary, "aclrtDestroyBinary")


@answers("aclrtBinaryLoad", required="binary bin_handle")
def binary_load(sim: Machine, binary: int, bin_handle: int) -> None:
    programs = sim.area(Programs)
    data, length = programs.descriptions.get(binary, "aclrtBinaryLoad")
    if sim.profile.family == "Ascend310B":
        raise AclLayerError(207000, "EH9999", "this chip loads binaries from files and data only")
    if not length:
        raise refusals.out_of_range(0, "length", "not equal to 0")
    device = sim.current_context().device
    program = programs.load_old(hostmem.read_bytes(data, length), device)
    hostmem.write_pointer(bin_handle, program.handle)


@answers("aclrtBinaryUnLoad", required="bin_handle")
def binary_unload(sim: Machine, bin_handle: int) -> None:
    programs = sim.area(Programs)
    program = programs.programs.get(bin_handle, "aclrtBinaryUnLoad")
    if program.old:
        sim.current_context()
    programs.unload(program)


def _program(sim: Machine, handle: int, call: str) -> Program:
    return sim.area(Programs).programs.get(handle, call)


@answers("aclrtBinaryGetFunction", required="bin_handle kernel_name func_handle")
def binary_get_function(sim: Machine, bin_handle: int, kernel_name: int, func_handle: int) -> None:
    program = _program(sim, bin_handle, "aclrtBinaryGetFunction")
    hostmem.write_pointer(func_handle, 0)
    function = sim.area(Programs).function_by_name(program, hostmem.read_text(kernel_name))
    hostmem.write_pointer(func_handle, function.handle)


@answers("aclrtBinaryGetFunctionByEntry", required="bin_handle func_handle")
def binary_get_function_by_entry(sim: Machine, bin_handle: int, func_entry: int, func_handle: int) -> None:
    program = _program(sim, bin_handle, "aclrtBinaryGetFunctionByEntry")
    if program.cpu:
        raise RuntimeLayerError(107000, "EE1006", "a binary of AI CPU kernels has no function entries")
    hostmem.write_pointer(func_handle, 0)
    function = sim.area(Programs).function_by_key(program, func_entry)
    hostmem.write_pointer(func_handle, function.handle)


@answers("aclrtBinaryGetDevAddress")
def binary_get_dev_address(sim: Machine, bin_handle: int, bin_addr: int, bin_size: int) -> None:
    if not bin_handle:
        raise refusals.inner_null("binHandle")
    if not bin_addr:
        raise refusals.invalid("bin is a null pointer")
    program = _program(sim, bin_handle, "aclrtBinaryGetDevAddress")
    device = sim.current_context(opens=False).device
    program.bring_to(device)
    block = None if program.cpu else program.image(device, make=False)
    hostmem.write_pointer(bin_addr, 0 if block is None else block.base)
    if not bin_size:
        raise UndefinedBehavior("aclrtBinaryGetDevAddress: the library writes the size through a null pointer")
    hostmem.write_u64(bin_size, program.size)


@answers("aclrtRegisterCpuFunc", required="handle func_name kernel_name func_handle")
def register_cpu_func(sim: Machine, handle: int, func_name: int, kernel_name: int, func_handle: int) -> None:
    program = _program(sim, handle, "aclrtRegisterCpuFunc")
    hostmem.write_pointer(func_handle, 0)
    if not program.cpu:
        raise refusals.out_of_range(0, "kernelRegType", "1")
    name = hostmem.read_text(kernel_name)
    if name not in program.functions:
        sim.current_context()
    function = program.add_cpu(name, hostmem.read_text(func_name), program.library)
    program.bring_to(sim.current_context(opens=False).device)
    hostmem.write_pointer(func_handle, function.handle)


@answers("aclrtBinarySetExceptionCallback")
def binary_set_exception_callback(sim: Machine, bin_handle: int, callback: int, user_data: int) -> None:
    if not bin_handle or not callback:
        raise refusals.inner("binHandle or callback is null")
    program = _program(sim, bin_handle, "aclrtBinarySetExceptionCallback")
    function = hostcall.function(callback, "void", "p", "p")
    program.callback = lambda told: function(described(told), user_data or None)


@answers("aclrtBinaryGetGlobal", required="bin_handle name")
def binary_get_global(sim: Machine, bin_handle: int, name: int, dptr: int, size: int) -> None:
    program = _program(sim, bin_handle, "aclrtBinaryGetGlobal")
    device = sim.current_context().device
    wanted = hostmem.read_text(name)
    found = None if program.binary is None else program.binary.globals.get(wanted)
    if found is None:
        raise refusals.invalid(f"{program.source} has no global variable {wanted}")
    program.bring_to(device)
    block = program.image(device)
    assert block is not None
    if dptr:
        hostmem.write_pointer(dptr, block.base + found[0])
    if size:
        hostmem.write_u64(size, found[1])


# ---- functions -----------------------------------------------------------------------------------------------


def function_of(sim: Machine, handle: int, call: str) -> Function:
    return sim.area(Programs).functions.get(handle, call)


@answers("aclrtGetFunctionAddr", required="func_handle aic_addr aiv_addr")
def get_function_addr(sim: Machine, func_handle: int, aic_addr: int, aiv_addr: int) -> None:
    function = function_of(sim, func_handle, "aclrtGetFunctionAddr")
    if function.cpu:
        raise RuntimeLayerError(107000, "EE1006", "an AI CPU kernel has no address")
    try:
        cube, vector = sim.area(Programs).addresses(function)
    except RuntimeLayerError:
        hostmem.write_pointer(aic_addr, 0)
        hostmem.write_pointer(aiv_addr, 0)
        raise
    hostmem.write_pointer(aic_addr, cube)
    hostmem.write_pointer(aiv_addr, vector)


@answers("aclrtGetFunctionName", required="name")
def get_function_name(sim: Machine, func_handle: int, max_len: int, name: int) -> None:
    runtime_require(func_handle, "kernel")
    text = function_of(sim, func_handle, "aclrtGetFunctionName").name
    needed = len(text.encode("utf-8", "surrogateescape")) + 1
    if max_len < needed:
        raise refusals.invalid(f"the maxLen {max_len} is smaller than func name length {needed}")
    if max_len > refusals.MOST_BYTES:
        raise RuntimeLayerError(507000, "EE9999", f"copy of the function's name failed: {max_len} is no length")
    hostmem.write_text(name, text, max_len)


@answers("aclrtGetFunctionAttribute", required="func_handle attr_value")
def get_function_attribute(sim: Machine, func_handle: int, attr_type: int, attr_value: int) -> None:
    function = function_of(sim, func_handle, "aclrtGetFunctionAttribute")
    last = KERNEL_SCHED_MODE if newer_than_9_0(sim) else KERNEL_TYPE
    if not KERNEL_TYPE <= attr_type <= last:
        raise refusals.out_of_range(attr_type, "attrType", f"[{KERNEL_TYPE}, {last + 1})")
    if attr_type == KERNEL_RATIO:
        value: int | None = function.cores[0] << 16 | function.cores[1]
    elif attr_type == KERNEL_SCHED_MODE:
        value = function.sched_mode
    else:
        value = function.type
    if value is None:
        raise refusals.invalid(f"the type of the kernel {function.name} is not known")
    hostmem.write_i64(attr_value, value)


@answers("aclrtFunctionGetBinary", required="func_handle bin_handle")
def function_get_binary(sim: Machine, func_handle: int, bin_handle: int) -> None:
    function = function_of(sim, func_handle, "aclrtFunctionGetBinary")
    hostmem.write_pointer(bin_handle, function.program.handle)


@answers("aclrtGetFunctionSize", required="func_handle aic_size aiv_size")
def get_function_size(sim: Machine, func_handle: int, aic_size: int, aiv_size: int) -> None:
    function = function_of(sim, func_handle, "aclrtGetFunctionSize")
    if function.cpu:
        raise RuntimeLayerError(107000, "EE1006", "an AI CPU kernel has no size")
    cube, vector = function.length, function.length2
    if not function.offset2 and function.vector_only:
        cube, vector = 0, function.length
    hostmem.write_u64(aic_size, cube)
    hostmem.write_u64(aiv_size, vector)


def _parameters(function: Function) -> tuple[tuple[int, int], ...]:
    if function.parameters is None:
        raise refusals.invalid(f"the binary says nothing of the parameters of {function.name}")
    return function.parameters


@answers("aclrtFunctionGetParamCount", required="func param_count")
def function_get_param_count(sim: Machine, func: int, param_count: int) -> None:
    hostmem.write_u64(param_count, len(_parameters(function_of(sim, func, "aclrtFunctionGetParamCount"))))


@answers("aclrtFunctionGetParamInfo", required="func")
def function_get_param_info(sim: Machine, func: int, param_index: int, param_offset: int, param_size: int) -> None:
    found = _parameters(function_of(sim, func, "aclrtFunctionGetParamInfo"))
    if param_index >= len(found):
        raise refusals.out_of_range(param_index, "paramIndex", f"[0, {len(found)})")
    offset, size = found[param_index]
    if param_offset:
        hostmem.write_u64(param_offset, offset)
    if param_size:
        hostmem.write_u64(param_size, size)


@answers(
    "aclrtFunctionGetAvailDynUbufPerBlock",
    required="func dynamic_ubuf_size",
    partly="assumes that the whole unified buffer minus what the compiler took is free",
)
def function_get_avail_dyn_ubuf(sim: Machine, func: int, flags: int, dynamic_ubuf_size: int) -> None:
    function = function_of(sim, func, "aclrtFunctionGetAvailDynUbufPerBlock")
    if flags:
        raise refusals.out_of_range(flags, "flags", "0")
    room = int(sim.profile.facts.get("ub_bytes", 0))
    hostmem.write_u64(dynamic_ubuf_size, max(room - function.ub_size, 0))


@answers(
    "aclrtGetFuncBySymbol",
    required="symbol func_handle",
    partly="symbols come with host code that a compiler linked with its kernels; there is none here",
)
def get_func_by_symbol(sim: Machine, symbol: int, func_handle: int) -> None:
    hostmem.write_pointer(func_handle, 0)
    raise refusals.invalid(f"no kernel is registered for the symbol 0x{symbol:x}")


@answers("aclrtGetHardwareSyncAddr")
def get_hardware_sync_addr(sim: Machine, addr: int) -> None:
    runtime_require(addr, "addr")
    if SYNC_ADDRESS not in sim.area(Programs).features:
        raise refusals.unsupported("this chip has no hardware synchronization address")
    hostmem.write_pointer(addr, sim.area(Addresses).sync(sim.current_context().device.index))


# ---- argument handles ----------------------------------------------------------------------------------------


def _present(**pointers: int) -> None:
    """Null pointers that the acl layer reports as an inner error."""
    for name, value in pointers.items():
        if not value:
            raise refusals.inner_null(name)


def _positive(value: int, name: str) -> None:
    if not value:
        raise refusals.bad_value(value, name, "must be greater than zero")


def _handle(sim: Machine, handle: int, call: str, message_code: str = "EE1004") -> Arguments:
    return sim.area(Handles).get(handle, call, message_code)


@answers("aclrtKernelArgsInit")
def kernel_args_init(sim: Machine, func_handle: int, args_handle: int) -> None:
    _present(funcHandle=func_handle, argsHandle=args_handle)
    function = function_of(sim, func_handle, "aclrtKernelArgsInit")
    hostmem.write_pointer(args_handle, sim.area(Handles).of_thread(function).address)


@answers("aclrtKernelArgsInitByUserMem")
def kernel_args_init_by_user_mem(sim: Machine, func_handle: int, args_handle: int, user_mem: int, size: int) -> None:
    _present(funcHandle=func_handle, argsHandle=args_handle, userHostMem=user_mem)
    _positive(size, "actualArgsSize")
    function = function_of(sim, func_handle, "aclrtKernelArgsInitByUserMem")
    sim.area(Handles).in_memory(function, args_handle, user_mem, size)


@answers("aclrtKernelArgsGetMemSize")
def kernel_args_get_mem_size(sim: Machine, func_handle: int, user_args_size: int, actual_args_size: int) -> None:
    _present(funcHandle=func_handle, actualArgsSize=actual_args_size)
    function = function_of(sim, func_handle, "aclrtKernelArgsGetMemSize")
    hostmem.write_u64(actual_args_size, arguments.memory_size(function, user_args_size) & 0xFFFF_FFFF_FFFF_FFFF)


@answers("aclrtKernelArgsGetHandleMemSize")
def kernel_args_get_handle_mem_size(sim: Machine, func_handle: int, mem_size: int) -> None:
    _present(funcHandle=func_handle, memSize=mem_size)
    function = function_of(sim, func_handle, "aclrtKernelArgsGetHandleMemSize")
    hostmem.write_u64(mem_size, arguments.handle_size(function))


@answers("aclrtKernelArgsAppend")
def kernel_args_append(sim: Machine, args_handle: int, param: int, param_size: int, param_handle: int) -> None:
    if not (args_handle and param and param_size and param_handle):
        _present(argsHandle=args_handle, param=param)
        _positive(param_size, "paramSize")
        _present(paramHandle=param_handle)
    handle = _handle(sim, args_handle, "aclrtKernelArgsAppend", "EE1001")  # it has room for no parameter
    offset = handle.place(param_size)
    hostmem.write_pointer(param_handle, handle.next_handle())  # before the copy, which may be refused
    handle.append(param, param_size, offset)


@answers("aclrtKernelArgsAppendPlaceHolder")
def kernel_args_append_placeholder(sim: Machine, args_handle: int, param_handle: int) -> None:
    _present(argsHandle=args_handle, paramHandle=param_handle)
    handle = _handle(sim, args_handle, "aclrtKernelArgsAppendPlaceHolder")
    hostmem.write_pointer(param_handle, handle.append_placeholder())


@answers("aclrtKernelArgsGetPlaceHolderBuffer")
def kernel_args_get_placeholder_buffer(
    sim: Machine, args_handle: int, param_handle: int, data_size: int, buffer_addr: int
) -> None:
    _present(argsHandle=args_handle, paramHandle=param_handle)
    _positive(data_size, "dataSize")
    _present(bufferAddr=buffer_addr)
    handle = _handle(sim, args_handle, "aclrtKernelArgsGetPlaceHolderBuffer")
    offset = handle.placeholder_data(handle.parameter(param_handle), data_size)
    hostmem.write_pointer(buffer_addr, handle.start + offset)


@answers("aclrtKernelArgsParaUpdate")
def kernel_args_para_update(sim: Machine, args_handle: int, param_handle: int, param: int, param_size: int) -> None:
    _present(argsHandle=args_handle, paramHandle=param_handle, param=param)
    _positive(param_size, "paramSize")
    handle = _handle(sim, args_handle, "aclrtKernelArgsParaUpdate")
    handle.update(handle.parameter(param_handle), param, param_size)


@answers("aclrtKernelArgsFinalize")
def kernel_args_finalize(sim: Machine, args_handle: int) -> None:
    _present(argsHandle=args_handle)
    _handle(sim, args_handle, "aclrtKernelArgsFinalize").finalize()


# ---- exceptions ----------------------------------------------------------------------------------------------


@answers("aclrtGetArgsFromExceptionInfo")
def get_args_from_exception_info(sim: Machine, info: int, dev_args_ptr: int, dev_args_len: int) -> None:
    if not info:
        raise refusals.inner("exception information is null", INVALID_EXCEPTION_INFO)
    if not dev_args_ptr or not dev_args_len:
        raise refusals.inner("devArgsPtr or devArgsLen is null")
    kind = hostmem.read_u32(info + EXCEPTION_KIND)
    if kind != EXCEPTION_OF_AICORE:
        raise refusals.inner(f"exception information type = {kind} is invalid", INVALID_EXCEPTION_INFO)
    hostmem.write_pointer(dev_args_ptr, hostmem.read_pointer(info + EXCEPTION_ARGUMENTS))
    hostmem.write_u32(dev_args_len, hostmem.read_u32(info + EXCEPTION_SIZE))


@answers("aclrtGetFuncHandleFromExceptionInfo")
def get_func_handle_from_exception_info(sim: Machine, info: int, func: int) -> None:
    if not info:
        raise refusals.inner("exception information is null", INVALID_EXCEPTION_INFO)
    if not func:
        raise refusals.inner("func is null")
    hostmem.write_pointer(func, 0)
    if hostmem.read_u32(info + EXCEPTION_KIND) != EXCEPTION_OF_AICORE:
        raise RuntimeLayerError(107000, "EE1001", "the exception information is not that of a kernel")
    program = _program(sim, hostmem.read_pointer(info + EXCEPTION_BINARY), "aclrtGetFuncHandleFromExceptionInfo")
    name = hostmem.read_text(hostmem.read_pointer(info + EXCEPTION_NAME))
    hostmem.write_pointer(func, sim.area(Programs).function_by_name(program, name).handle)
