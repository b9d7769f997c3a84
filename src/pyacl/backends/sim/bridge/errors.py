"""Entry points: recent messages, last errors, what is known of exceptions on a device."""

from __future__ import annotations

import ctypes
import os
import struct
import time

from ..engine.exceptions import KernelException, Listeners
from ..engine.failures import AclLayerError, RuntimeLayerError
from ..engine.machine import Machine
from . import hostcall, hostmem
from .registry import answers, runtime_require

THREAD_LEVEL, CONTEXT_LEVEL = 0, 1
NO_EXCEPTION_INFO = 0xFFFFFFFF
MAX_REPAIRS = 20

# headlines, as the library's table of messages has them
TITLES = {
    "EE1001": "Invalid_Argument",
    "EE1002": "Execution_Error_Stream_Synchronize_Timeout",
    "EE1003": "Invalid_Argument",
    "EE1004": "Invalid_Argument_Null_Pointer",
    "EE1005": "Not_Supported",
    "EE1006": "Not_Supported",
    "EE1011": "Invalid_Argument",
    "EH0001": "Invalid_Argument",
    "EH0002": "Invalid_Argument_Null_Pointer",
    "EH0003": "File_Operation_Error_Invalid_Path",
    "EH0004": "File_Operation_Error",
    "EH0006": "Not_Supported",
}


def compose(messages: list[tuple[str, str]]) -> str:
    """One text for the failures noted so far: the first one that is not an inner error is the headline, the others
    are its trace."""
    if not messages:
        return ""
    head = next((index for index, (code, _) in enumerate(messages) if not code.endswith("9999")), 0)
    code, text = messages[head]
    stamp = f"[PID: {os.getpid()}] {time.strftime('%Y-%m-%d-%H:%M:%S')}"
    if code.endswith("9999"):
        lines = [f"{code}: Inner Error!", f"{code}{stamp} ({code}):  {text}"]
    else:
        lines = ["{} {}({}): {}".format(stamp, TITLES.get(code, "Error"), code, text)]
    rest = [other for index, (_, other) in enumerate(messages) if index != head]
    if rest:
        lines.append("        TraceBack (most recent call last):")
        lines.extend("        " + other for other in rest)
    return "\n".join(lines) + "\n"


@answers("aclGetRecentErrMsg")
def get_recent_message(sim: Machine) -> int:
    thread = sim.thread
    messages = sim.messages()
    try:
        sim.current_context()  # the device is asked first, and that opens the default device or fails without a context
    except RuntimeLayerError:
        messages.append(("EE1001", "rtGetDevMsg execution failed, the context is a null pointer."))
        thread.last_error = 107002
    else:
        thread.recent = ""  # the device's answer takes the place of what was handed out before
    text = compose(messages)
    messages.clear()
    thread.recent = text + ("\n" + thread.recent if thread.recent else "") if text else thread.recent
    return hostmem.keep_text(thread.kept, "recent message", thread.recent or None)


def _check_level(level: int) -> None:
    if level != THREAD_LEVEL:
        raise AclLayerError(100000)


@answers("aclrtGetLastError")
def get_last_error(sim: Machine, level: int) -> int:
    _check_level(level)
    return runtime_get_last_error(sim, level)


@answers("aclrtPeekAtLastError")
def peek_at_last_error(sim: Machine, level: int) -> int:
    _check_level(level)
    return sim.thread.last_error


@answers("rtGetLastError")
def runtime_get_last_error(sim: Machine, level: int) -> int:
    code = runtime_peek_at_last_error(sim, level)
    if level == THREAD_LEVEL:
        sim.thread.last_error = 0
    else:
        sim.current_context().last_error = 0
    return code


@answers("rtPeekAtLastError")
def runtime_peek_at_last_error(sim: Machine, level: int) -> int:
    if level not in (THREAD_LEVEL, CONTEXT_LEVEL):
        raise AclLayerError(107000)
    if level == THREAD_LEVEL:
        return sim.thread.last_error
    return sim.current_context().last_error


# ---- exceptions on a device ----------------------------------------------------------------------------------


# where an exception information has what: the structure rtExceptionInfo of the library's own header
EXCEPTION_KIND, EXCEPTION_SIZE, EXCEPTION_ARGUMENTS = 24, 32, 40
EXCEPTION_BINARY_SIZE, EXCEPTION_BINARY, EXCEPTION_NAME_SIZE, EXCEPTION_NAME = 64, 72, 80, 88
EXCEPTION_INFO_BYTES = 2048
EXCEPTION_OF_AICORE = 2


def described(told: KernelException) -> ctypes.Array[ctypes.c_char]:
    """An exception as the functions of the program get it: valid as long as the result lives."""
    function = told.launch.function
    name = ctypes.create_string_buffer(function.name.encode("utf-8", "surrogateescape"))
    info = ctypes.create_string_buffer(EXCEPTION_INFO_BYTES)
    struct.pack_into("<5I", info, 0, told.task, told.stream, told.thread & 0xFFFFFFFF, told.device, told.code)
    if not function.cpu:
        address, size = told.arguments
        struct.pack_into("<I", info, EXCEPTION_KIND, EXCEPTION_OF_AICORE)
        struct.pack_into("<I", info, EXCEPTION_SIZE, size)
        struct.pack_into("<Q", info, EXCEPTION_ARGUMENTS, address)
        struct.pack_into("<I", info, EXCEPTION_BINARY_SIZE, function.program.size & 0xFFFFFFFF)
        struct.pack_into("<Q", info, EXCEPTION_BINARY, function.program.handle)
        struct.pack_into("<I", info, EXCEPTION_NAME_SIZE, len(name) - 1)
        struct.pack_into("<Q", info, EXCEPTION_NAME, ctypes.addressof(name))
    info.name = name  # type: ignore[attr-defined]  # keeps it alive
    return info


def _listen(sim: Machine, name: str, callback: int) -> None:
    """The function at an address is told of exceptions from now on; 0: the one with this name no more."""
    if not callback:
        sim.area(Listeners).set(name, None)
        return
    function = hostcall.function(callback, "void", "p")
    sim.area(Listeners).set(name, lambda told: function(described(told)))


@answers("aclrtSetExceptionInfoCallback", partly="told of kernels that fail, not of other tasks")
def set_exception_info_callback(sim: Machine, callback: int) -> None:
    _listen(sim, "ASCENDCL", callback)


@answers("rtSetTaskFailCallback", partly="told of kernels that fail, not of other tasks")
def set_task_fail_callback(sim: Machine, callback: int) -> None:
    _listen(sim, "rtSetTaskFailCallback", callback)


@answers("rtRegTaskFailCallbackByModule", partly="told of kernels that fail, not of other tasks")
def register_task_fail_callback(sim: Machine, module_name: int, callback: int) -> None:
    runtime_require(module_name, "regName")
    _listen(sim, hostmem.read_text(module_name), callback)


@answers("rtsSetTaskFailCallback", partly="told of kernels that fail, not of other tasks")
def register_task_fail_callback_with(sim: Machine, name: int, callback: int, argument: int) -> None:
    runtime_require(name, "regName")
    if not callback:
        sim.area(Listeners).set(hostmem.read_text(name), None)
        return
    function = hostcall.function(callback, "void", "p", "p")
    sim.area(Listeners).set(
        hostmem.read_text(name), lambda told: function(described(told), argument or None), replace=False
    )


@answers("aclrtExceptionInfoCallbackRegister", partly="told of kernels that fail, not of other tasks")
def register_exception_callback(sim: Machine, callback: int) -> None:
    if callback:
        _listen(sim, f"ASCENDCL {callback}", callback)


@answers("aclrtExceptionInfoCallbackUnregister")
def unregister_exception_callback(sim: Machine, callback: int) -> None:
    _listen(sim, f"ASCENDCL {callback}", 0)


def _exception_field(offset: int) -> None:
    names = {
        0: "aclrtGetTaskIdFromExceptionInfo",
        4: "aclrtGetStreamIdFromExceptionInfo",
        8: "aclrtGetThreadIdFromExceptionInfo",
        12: "aclrtGetDeviceIdFromExceptionInfo",
        16: "aclrtGetErrorCodeFromExceptionInfo",
    }

    def field(sim: Machine, info: int) -> int:
        if not info:
            sim.messages().append(("EH9999", "exception information is null"))
            return NO_EXCEPTION_INFO
        return hostmem.read_u32(info + offset)

    answers(names[offset])(field)


for _offset in (0, 4, 8, 12, 16):
    _exception_field(_offset)


def _device_of_fault(sim: Machine, device_id: int) -> None:
    if not 0 <= device_id < len(sim.devices):
        raise RuntimeLayerError(
            107001, "EE1001", f"invalid devId={device_id}, valid device range is [0, {len(sim.devices)})"
        )


@answers("aclrtGetErrorVerbose", required="info", partly="not supported, as on the recorded chip")
@answers("rtsGetErrorVerbose")
def get_error_verbose(sim: Machine, device_id: int, info: int) -> None:
    raise RuntimeLayerError(207000)  # this chip does not tell


@answers("aclrtRepairError", required="info", partly="not supported, as on the recorded chip")
@answers("rtsRepairError")
def repair_error(sim: Machine, device_id: int, info: int) -> None:
    raise RuntimeLayerError(207000)


@answers("aclrtGetMemUceInfo", required="array count", partly="there are no memory errors here")
def get_mem_uce_info(sim: Machine, device_id: int, array: int, size: int, count: int) -> None:
    _device_of_fault(sim, device_id)
    sim.check_default_device(device_id)
    hostmem.write_u64(count, 0)


@answers("aclrtMemUceRepair", required="array", partly="there are no memory errors here")
def mem_uce_repair(sim: Machine, device_id: int, array: int, size: int) -> None:
    if size > MAX_REPAIRS:
        raise AclLayerError(100000)
    for index in range(size):  # aclrtMemUceInfo: address, length, reserved
        if any(hostmem.read_bytes(array + 128 * index + 16, 14)):
            raise AclLayerError(100000)
    _device_of_fault(sim, device_id)
    sim.check_default_device(device_id)
