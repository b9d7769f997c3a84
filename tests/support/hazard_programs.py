"""Small programs in raw calls, each with one mistake, or mended; the two lines that a report must name are marked.

A line that ends in ``# first`` or ``# then`` is one of the two. `lines` finds them.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from simulated import D2D, D2H, H2D
from simulated_kernels import Kernels

from pyacl import sim
from pyacl.raw import types as c

N = 64
BYTES = 4 * N
SYNC = 1


def u64(*values: Any) -> bytes:
    return np.array([getattr(value, "value", value) for value in values], np.uint64).tobytes()


class Machine(Kernels):
    """A checked machine with two streams, three buffers and a few kernels."""

    def __init__(self, order: str = "lazy", mode: str = "raise", **options: Any) -> None:
        super().__init__(order=order, hazards=mode, cann="9.1.0", **options)
        self.t = self.stream()
        for function in (double, fill, total, double_block):
            sim.kernel(function.__name__, backend=self.backend)(function)
        self.double, self.fill, self.total = (self.kernel(name) for name in ("double", "fill", "total"))
        self.x, self.y = self.upload(np.arange(N, dtype=np.int32)), self.upload(np.zeros(N, np.int32))
        self.z = self.malloc(BYTES)
        self.host = np.zeros(N, np.int32)
        self.at = self.host.ctypes.data
        self.pinned = self.pointer("aclrtMallocHost", BYTES)
        ctypes.memset(self.pinned, 1, BYTES)

    def launch(self, function: Any, stream: Any, *values: Any) -> None:
        """A launch; for a marked line call `api.aclrtLaunchKernelWithHostArgs` there instead."""
        self.api.aclrtLaunchKernelWithHostArgs(function, 1, stream, None, *self.args(*values))

    def args(self, *values: Any) -> tuple[Any, int, None, int]:
        """The last four arguments of a launch with arguments in host memory."""
        block = u64(*values)
        buffer = ctypes.create_string_buffer(block, len(block))
        self.kept.append(buffer)
        return ctypes.addressof(buffer), len(block), None, 0

    def event(self) -> Any:
        made = c.aclrtEvent()
        self.api.aclrtCreateEventExWithFlag(made, SYNC)
        return made

    def notify(self) -> Any:
        made = c.aclrtNotify()
        self.api.aclrtCreateNotify(made, 0)
        return made

    def finish(self) -> None:
        """Wait for everything, and give the streams back."""
        self.api.aclrtSynchronizeDevice()
        self.api.aclrtDestroyStream(self.s)
        self.api.aclrtDestroyStream(self.t)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def double(x: sim.In[np.int32], z: sim.Out[np.int32], n: np.uint32) -> None:
    z[:n] = x[:n] * 2


def fill(z: sim.Out[np.int32], n: np.uint32, value: np.int32) -> None:
    z[:n] = value


def total(x: sim.In[np.int32], z: sim.Out[np.int32]) -> None:
    z[0] = x[:N].max()


def double_block(x: sim.In[np.int32], z: sim.Out[np.int32], n: np.uint32, block: sim.Block) -> None:
    part = slice(block.index * n // block.count, (block.index + 1) * n // block.count)
    z[part] = x[part] * 2


# ---- programs --------------------------------------------------------------------------------------------------------


def result_copied_back(m: Machine, mended: bool) -> None:
    m.api.aclrtLaunchKernelWithHostArgs(m.double, 1, m.s, None, *m.args(m.x, m.z, N))  # first
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    m.api.aclrtMemcpy(m.at, BYTES, m.z, BYTES, D2H)  # then


def copied_result_copied_back(m: Machine, mended: bool) -> None:
    m.api.aclrtMemcpyAsync(m.y, BYTES, m.x, BYTES, D2D, m.s)  # first
    event = m.event()
    m.api.aclrtRecordEvent(event, m.s)
    if mended:
        m.api.aclrtSynchronizeEvent(event)
    m.api.aclrtMemcpy(m.at, BYTES, m.y, BYTES, D2H)  # then


def result_copied_back_too_early(m: Machine, mended: bool) -> None:
    """An event does not cover what is behind it."""
    event = m.event()
    if not mended:
        m.api.aclrtRecordEvent(event, m.s)
    m.api.aclrtLaunchKernelWithHostArgs(m.double, 1, m.s, None, *m.args(m.x, m.z, N))  # first
    if mended:
        m.api.aclrtRecordEvent(event, m.s)
    m.api.aclrtSynchronizeEvent(event)
    m.api.aclrtMemcpy(m.at, BYTES, m.z, BYTES, D2H)  # then


def input_overwritten(m: Machine, mended: bool) -> None:
    m.api.aclrtLaunchKernelWithHostArgs(m.double, 1, m.s, None, *m.args(m.x, m.z, N))  # first
    if mended:
        m.api.aclrtSynchronizeDevice()
    m.api.aclrtMemset(m.x, BYTES, 0, BYTES)  # then


def model_not_waited_for(m: Machine, mended: bool) -> None:
    m.api.aclmdlRICaptureBegin(m.s, 0)
    m.api.aclrtLaunchKernelWithHostArgs(m.double, 1, m.s, None, *m.args(m.x, m.z, N))  # first
    model = c.aclmdlRI()
    m.api.aclmdlRICaptureEnd(m.s, model)
    m.api.aclmdlRIExecuteAsync(model, m.s)
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    m.api.aclrtMemcpy(m.at, BYTES, m.z, BYTES, D2H)  # then


def pinned_read_back_early(m: Machine, mended: bool) -> None:
    m.api.aclrtMemcpyAsync(m.pinned, BYTES, m.x, BYTES, D2H, m.s)  # first
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    m.api.aclrtMemcpy(m.y, BYTES, m.pinned, BYTES, H2D)  # then


def pinned_source_changed(m: Machine, mended: bool) -> None:
    m.api.aclrtMemcpyAsync(m.y, BYTES, m.pinned, BYTES, H2D, m.s)  # first
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    ctypes.memset(m.pinned, 2, BYTES)
    m.api.aclrtSynchronizeStream(m.s)  # then


def pinned_source_changed_a_little(m: Machine, mended: bool) -> None:
    large = m.pointer("aclrtMallocHost", 1 << 20)
    target = m.malloc(1 << 20)
    m.api.aclrtMemcpyAsync(target, 1 << 20, large, 1 << 20, H2D, m.s)  # first
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    ctypes.memset(large + 777_777, 2, 1)
    m.api.aclrtSynchronizeDevice()  # then


def pinned_source_of_a_model_changed(m: Machine, mended: bool) -> None:
    m.api.aclmdlRICaptureBegin(m.s, 0)
    m.api.aclrtMemcpyAsync(m.y, BYTES, m.pinned, BYTES, H2D, m.s)  # first
    model = c.aclmdlRI()
    m.api.aclmdlRICaptureEnd(m.s, model)
    ctypes.memset(m.pinned, 2, BYTES)
    m.api.aclmdlRIExecuteAsync(model, m.s)
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    ctypes.memset(m.pinned, 3, BYTES)
    m.api.aclrtSynchronizeStream(m.s)  # then


def pinned_target_changed(m: Machine, mended: bool) -> None:
    m.api.aclrtMemcpyAsync(m.pinned, BYTES, m.x, BYTES, D2H, m.s)  # first
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    ctypes.memset(m.pinned, 2, BYTES)
    m.api.aclrtSynchronizeStream(m.s)  # then


def pinned_freed(m: Machine, mended: bool) -> None:
    m.api.aclrtMemcpyAsync(m.y, BYTES, m.pinned, BYTES, H2D, m.s)  # first
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    m.api.aclrtFreeHost(m.pinned)  # then


def registered_memory_changed(m: Machine, mended: bool) -> None:
    m.memory = np.zeros(2 * 4096, np.uint8)
    start = -(-m.memory.ctypes.data // 4096) * 4096
    m.api.aclrtHostRegisterV2(start, 4096, 0x10000000)
    m.api.aclrtMemcpyAsync(m.y, BYTES, start, BYTES, H2D, m.s)  # first
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    ctypes.memset(start, 2, BYTES)
    m.api.aclrtSynchronizeStream(m.s)  # then
    m.api.aclrtHostUnregister(start)


def freed_under_a_kernel(m: Machine, mended: bool) -> None:
    m.api.aclrtLaunchKernelWithHostArgs(m.double, 1, m.s, None, *m.args(m.x, m.z, N))  # first
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    m.api.aclrtFree(m.z)  # then


def freed_under_a_copy(m: Machine, mended: bool) -> None:
    m.api.aclrtMemcpyAsync(m.y, BYTES, m.x, BYTES, D2D, m.s)  # first
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    m.api.aclrtFree(m.x)  # then


def unmapped_under_a_kernel(m: Machine, mended: bool) -> None:
    size = 2 << 20
    address, handle, described = ctypes.c_void_p(), c.aclrtDrvMemHandle(), c.aclrtPhysicalMemProp()
    described.memAttr, described.location.type = 4, 1
    m.api.aclrtReserveMemAddress(address, size, 0, None, 0)
    m.api.aclrtMallocPhysical(handle, size, described, 0)
    m.api.aclrtMapMem(address, size, 0, handle, 0)
    m.api.aclrtLaunchKernelWithHostArgs(m.double, 1, m.s, None, *m.args(m.x, address, N))  # first
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    m.api.aclrtUnmapMem(address)  # then


def pool_memory_given_back(m: Machine, mended: bool) -> None:
    pool, properties = c.aclrtMemPool(), c.aclrtMemPoolProps()
    properties.location.type, properties.maxSize = 1, 32 << 20
    m.api.aclrtMemPoolCreate(pool, properties)
    piece = m.pointer("aclrtMemPoolMallocAsync", BYTES, pool, m.s)
    m.api.aclrtMemcpyAsync(piece, BYTES, m.x, BYTES, D2D, m.s)
    event = m.event()
    m.api.aclrtRecordEvent(event, m.s)
    m.api.aclrtStreamWaitEvent(m.t, event)
    m.api.aclrtMemcpyAsync(m.y, BYTES, piece, BYTES, D2D, m.t)  # first
    if mended:
        m.api.aclrtRecordEvent(event, m.t)
        m.api.aclrtStreamWaitEvent(m.s, event)
    m.api.aclrtMemPoolFreeAsync(piece, m.s)  # then


def two_streams_write(m: Machine, mended: bool) -> None:
    m.api.aclrtLaunchKernelWithHostArgs(m.fill, 1, m.s, None, *m.args(m.z, N | 1 << 32))  # first
    if mended:
        event = m.event()
        m.api.aclrtRecordEvent(event, m.s)
        m.api.aclrtStreamWaitEvent(m.t, event)
    m.api.aclrtLaunchKernelWithHostArgs(m.fill, 1, m.t, None, *m.args(m.z, N | 2 << 32))  # then


def two_streams_read_and_write(m: Machine, mended: bool) -> None:
    m.api.aclrtLaunchKernelWithHostArgs(m.double, 1, m.s, None, *m.args(m.x, m.y, N))  # first
    if mended:
        notify = m.notify()
        m.api.aclrtRecordNotify(notify, m.s)
        m.api.aclrtWaitAndResetNotify(notify, m.t, 0)
    m.api.aclrtLaunchKernelWithHostArgs(m.total, 1, m.t, None, *m.args(m.y, m.z))  # then


def two_streams_copy(m: Machine, mended: bool) -> None:
    m.api.aclrtMemcpyAsync(m.y, BYTES, m.x, BYTES, D2D, m.s)  # first
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    m.api.aclrtMemsetAsync(m.y + 4, BYTES, 0, 4, m.t)  # then


def two_streams_and_one_is_gone(m: Machine, mended: bool) -> None:
    """Its work comes before all that is submitted later, not before what waits in other streams."""
    other = m.stream()
    m.api.aclrtLaunchKernelWithHostArgs(m.double, 1, m.s, None, *m.args(m.x, m.y, N))  # first
    if mended:
        event = m.event()
        m.api.aclrtRecordEvent(event, m.s)
        m.api.aclrtStreamWaitEvent(other, event)
    m.api.aclrtLaunchKernelWithHostArgs(m.total, 1, other, None, *m.args(m.y, m.z))  # then
    m.api.aclrtDestroyStream(other)


def two_streams_of_a_model(m: Machine, mended: bool) -> None:
    join, again, back = m.event(), m.event(), m.event()
    m.api.aclmdlRICaptureBegin(m.s, 0)
    m.api.aclrtRecordEvent(join, m.s)
    m.api.aclrtStreamWaitEvent(m.t, join)
    m.api.aclrtLaunchKernelWithHostArgs(m.double, 1, m.s, None, *m.args(m.x, m.y, N))  # first
    if mended:
        m.api.aclrtRecordEvent(again, m.s)
        m.api.aclrtStreamWaitEvent(m.t, again)
    m.api.aclrtLaunchKernelWithHostArgs(m.total, 1, m.t, None, *m.args(m.y, m.z))  # then
    m.api.aclrtRecordEvent(back, m.t)
    m.api.aclrtStreamWaitEvent(m.s, back)
    model = c.aclmdlRI()
    m.api.aclmdlRICaptureEnd(m.s, model)
    m.api.aclmdlRIExecuteAsync(model, m.s)


def waited_before_recorded(m: Machine, mended: bool) -> None:
    event = c.aclrtEvent()
    m.api.aclrtCreateEventExWithFlag(event, SYNC)  # first
    if mended:
        m.api.aclrtRecordEvent(event, m.s)
    m.api.aclrtStreamWaitEvent(m.t, event)  # then
    if not mended:
        m.api.aclrtRecordEvent(event, m.s)


def waited_before_recorded_old_kind(m: Machine, mended: bool) -> None:
    event = c.aclrtEvent()
    m.api.aclrtCreateEventWithFlag(event, SYNC)  # first
    if mended:
        m.api.aclrtRecordEvent(event, m.s)
    m.api.aclrtStreamWaitEvent(m.t, event)  # then
    if not mended:
        m.api.aclrtRecordEvent(event, m.s)


def arguments_on_the_device_rewritten(m: Machine, mended: bool) -> None:
    block = m.upload(np.array([m.x, m.z, N], np.uint64))
    m.api.aclrtLaunchKernel(m.double, 1, block, 24, m.s)  # first
    if mended:
        m.api.aclrtSynchronizeStream(m.s)
    other = np.array([m.x, m.y, N], np.uint64)
    m.api.aclrtMemcpy(block, 24, other.ctypes.data, 24, H2D)  # then


def arguments_on_the_device_rewritten_by_a_stream(m: Machine, mended: bool) -> None:
    block, other = m.upload(np.array([m.x, m.z, N], np.uint64)), m.upload(np.array([m.x, m.y, N], np.uint64))
    m.api.aclrtLaunchKernelV2(m.double, 1, block, 24, None, m.s)  # first
    stream = m.s if mended else m.t
    m.api.aclrtMemcpyAsync(block, 24, other, 24, D2D, stream)  # then


def arguments_of_the_thread_prepared_twice(m: Machine, mended: bool) -> None:
    one, two, parameter = c.aclrtArgsHandle(), c.aclrtArgsHandle(), c.aclrtParamHandle()
    values = u64(m.x, m.z, N)
    m.api.aclrtKernelArgsInit(m.double, one)  # first
    for i in range(3):
        m.api.aclrtKernelArgsAppend(one, values[8 * i :], 8, parameter)
    m.api.aclrtKernelArgsFinalize(one)
    if mended:
        m.api.aclrtLaunchKernelWithConfig(m.double, 1, m.s, None, one, None)
    m.api.aclrtKernelArgsInit(m.total, two)  # then
    for i in range(2):
        m.api.aclrtKernelArgsAppend(two, u64(m.x, m.y)[8 * i :], 8, parameter)
    m.api.aclrtKernelArgsFinalize(two)
    if not mended:
        m.api.aclrtLaunchKernelWithConfig(m.double, 1, m.s, None, one, None)
    m.api.aclrtLaunchKernelWithConfig(m.total, 1, m.s, None, two, None)


def arguments_in_the_same_memory(m: Machine, mended: bool) -> None:
    heads = [ctypes.create_string_buffer(8192) for _ in range(2)]
    blocks = [ctypes.create_string_buffer(8192) for _ in range(2)]
    m.kept += [heads, blocks]
    one, two = (c.aclrtArgsHandle(ctypes.addressof(head)) for head in heads)
    parameter = c.aclrtParamHandle()
    m.api.aclrtKernelArgsInitByUserMem(m.double, one, blocks[0], 8192)  # first
    for i in range(3):
        m.api.aclrtKernelArgsAppend(one, u64(m.x, m.z, N)[8 * i :], 8, parameter)
    m.api.aclrtKernelArgsFinalize(one)
    m.api.aclrtKernelArgsInitByUserMem(m.double, two, blocks[1 if mended else 0], 8192)  # then
    for i in range(3):
        m.api.aclrtKernelArgsAppend(two, u64(m.x, m.y, N)[8 * i :], 8, parameter)
    m.api.aclrtKernelArgsFinalize(two)
    m.api.aclrtLaunchKernelWithConfig(m.double, 1, m.s, None, one, None)
    m.api.aclrtLaunchKernelWithConfig(m.double, 1, m.s, None, two, None)


def never_written(m: Machine, mended: bool) -> None:
    x = ctypes.c_void_p()
    m.api.aclrtMalloc(x, BYTES, 0)  # first
    if mended:
        m.api.aclrtMemset(x, BYTES, 0, BYTES)
    m.api.aclrtLaunchKernelWithHostArgs(m.double, 1, m.s, None, *m.args(x, m.z, N))  # then


def half_written(m: Machine, mended: bool) -> None:
    x = ctypes.c_void_p()
    m.api.aclrtMalloc(x, BYTES, 0)  # first
    m.api.aclrtMemcpyAsync(x, BYTES, m.x, BYTES if mended else BYTES // 2, D2D, m.s)
    m.api.aclrtLaunchKernelWithHostArgs(m.total, 1, m.s, None, *m.args(x, m.z))  # then


def copied_and_never_written(m: Machine, mended: bool) -> None:
    """A copy of bytes that nobody has written is one more piece of memory that nobody has written."""
    x, copy = m.malloc(BYTES), ctypes.c_void_p()
    m.api.aclrtMalloc(copy, BYTES, 0)  # first
    if mended:
        m.api.aclrtMemset(x, BYTES, 0, BYTES)
    m.api.aclrtMemcpy(copy, BYTES, x, BYTES, D2D)
    m.api.aclrtLaunchKernelWithHostArgs(m.total, 1, m.s, None, *m.args(copy, m.z))  # then


def beyond_the_end(m: Machine, mended: bool) -> None:
    z = ctypes.c_void_p()
    m.api.aclrtMalloc(z, BYTES, 0)  # first
    m.api.aclrtLaunchKernelWithHostArgs(m.fill, 1, m.s, None, *m.args(z, (N if mended else N + 1) | 1 << 32))  # then


#: kind of the hazard -> programs that have it
PROGRAMS: dict[str, list[Callable[[Machine, bool], None]]] = {
    "not-waited-for": [
        result_copied_back,
        copied_result_copied_back,
        result_copied_back_too_early,
        input_overwritten,
        model_not_waited_for,
        pinned_read_back_early,
    ],
    "pinned-changed": [
        pinned_source_changed,
        pinned_source_changed_a_little,
        pinned_source_of_a_model_changed,
        pinned_target_changed,
        registered_memory_changed,
    ],
    "freed-in-use": [
        pinned_freed,
        freed_under_a_kernel,
        freed_under_a_copy,
        unmapped_under_a_kernel,
        pool_memory_given_back,
    ],
    "unordered": [
        two_streams_write,
        two_streams_read_and_write,
        two_streams_copy,
        two_streams_and_one_is_gone,
        two_streams_of_a_model,
    ],
    "waited-before-record": [waited_before_recorded, waited_before_recorded_old_kind],
    "arguments-rewritten": [
        arguments_on_the_device_rewritten,
        arguments_on_the_device_rewritten_by_a_stream,
        arguments_of_the_thread_prepared_twice,
        arguments_in_the_same_memory,
    ],
    "uninitialized-read": [never_written, half_written, copied_and_never_written],
    "out-of-bounds": [beyond_the_end],
}
ALL = [(kind, program) for kind, programs in PROGRAMS.items() for program in programs]


def lines(program: Callable[..., Any]) -> dict[str, tuple[str, int]]:
    """The marked lines of a program, as (file, line)."""
    source, start = inspect.getsourcelines(program)
    file = inspect.getsourcefile(program) or ""
    return {
        mark: (file, start + offset)
        for offset, text in enumerate(source)
        for mark in ("first", "then")
        if text.rstrip().endswith(f"# {mark}")
    }


# ---- programs that are right -----------------------------------------------------------------------------------------


def two_halves_of_a_buffer(m: Machine) -> None:
    """Kernels get a pointer and a length: where they could go is not where they go."""
    half = N // 2
    m.launch(m.double, m.s, m.x, m.z, half)
    m.launch(m.double, m.t, m.x + 4 * half, m.z + 4 * half, half)
    m.api.aclrtMemcpyAsync(m.pinned, 4 * half, m.z, 4 * half, D2H, m.s)
    m.api.aclrtSynchronizeStream(m.s)
    m.api.aclrtMemset(m.z, 4 * half, 0, 4 * half)  # the other half is still in use
    m.api.aclrtSynchronizeStream(m.t)


def columns_of_a_matrix(m: Machine) -> None:
    width = 4 * 8
    for part, stream in enumerate((m.s, m.t)):
        m.api.aclrtMemcpy2dAsync(m.z + part * width, 2 * width, m.x + part * width, 2 * width, width, 4, D2D, stream)
    m.api.aclrtSynchronizeDevice()


def asked_until_done(m: Machine) -> None:
    event, status = m.event(), ctypes.c_uint32()
    m.launch(m.double, m.s, m.x, m.z, N)
    m.api.aclrtRecordEvent(event, m.s)
    while True:
        m.api.aclrtQueryEventStatus(event, status)
        if status.value == 1:
            break
    m.api.aclrtMemcpy(m.at, BYTES, m.z, BYTES, D2H)
    m.launch(m.double, m.s, m.x, m.z, N)
    while True:
        m.api.aclrtStreamQuery(m.s, status)
        if status.value == 0:
            break
    m.api.aclrtFree(m.z)


def told_by_a_host_function(m: Machine) -> None:
    done = threading.Event()
    tell = c.aclrtHostFunc(lambda _: done.set())
    m.kept.append(tell)
    m.launch(m.double, m.s, m.x, m.z, N)
    m.api.aclrtLaunchHostFunc(m.s, tell, None)
    m.launch(m.double, m.s, m.x, m.y, N)
    query = ctypes.c_uint32()
    while not done.is_set():
        m.api.aclrtStreamQuery(m.s, query)
    m.api.aclrtMemcpy(m.at, BYTES, m.z, BYTES, D2H)
    assert m.host.tolist() == [2 * i for i in range(N)]


def work_of_a_callback(m: Machine) -> None:
    """A callback runs in the order of its stream: what it does itself comes before what follows there."""
    back = c.aclrtCallback(lambda _: m.api.aclrtMemset(m.z, BYTES, 0, BYTES))
    m.kept.append(back)
    m.api.aclrtSubscribeReport(threading.get_ident(), m.s)
    m.launch(m.double, m.s, m.x, m.z, N)
    m.api.aclrtLaunchCallback(back, None, 1, m.s)
    m.api.aclrtMemcpyAsync(m.pinned, BYTES, m.z, BYTES, D2H, m.s)
    m.api.aclrtProcessReport(1000)
    m.api.aclrtSynchronizeStream(m.s)
    m.api.aclrtUnSubscribeReport(threading.get_ident(), m.s)
    assert ctypes.string_at(m.pinned, BYTES) == bytes(BYTES)


def waited_for_by_another_thread(m: Machine) -> None:
    m.launch(m.double, m.s, m.x, m.z, N)
    context = c.aclrtContext()
    m.api.aclrtGetCurrentContext(context)

    def wait() -> None:
        m.api.aclrtSetCurrentContext(context)
        m.api.aclrtSynchronizeStream(m.s)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    m.api.aclrtMemcpy(m.at, BYTES, m.z, BYTES, D2H)


def ordered_by_a_word(m: Machine) -> None:
    word = m.upload(np.zeros(1, np.uint64))
    m.launch(m.double, m.s, m.x, m.z, N)
    m.api.aclrtValueWrite(word, 1, 0, m.s)
    m.api.aclrtValueWait(word, 1, 1, m.t)
    m.launch(m.total, m.t, m.z, m.y)
    m.api.aclrtSynchronizeStream(m.t)
    m.api.aclrtMemcpy(m.at, 8, word, 8, D2H)


def ordered_by_an_event_that_is_past(m: Machine) -> None:
    """The record is through when the other stream waits for it: the wait is no work of its own, and orders all the
    same."""
    event, status = m.event(), ctypes.c_uint32()
    m.launch(m.double, m.s, m.x, m.z, N)
    m.api.aclrtRecordEvent(event, m.s)
    m.launch(m.fill, m.s, m.y, N | 1 << 32)
    for _ in range(5):
        m.api.aclrtStreamQuery(m.s, status)
    m.api.aclrtStreamWaitEvent(m.t, event)
    m.launch(m.total, m.t, m.z, m.z)


def waited_for_through_another_stream(m: Machine) -> None:
    """Who waits for a stream waits for what it waits for, be that past or not."""
    event = m.event()
    m.launch(m.double, m.s, m.x, m.z, N)
    m.api.aclrtRecordEvent(event, m.s)
    m.api.aclrtStreamWaitEvent(m.t, event)
    m.api.aclrtSynchronizeStream(m.t)
    m.api.aclrtMemcpy(m.at, BYTES, m.z, BYTES, D2H)
    m.api.aclrtFree(m.z)


def one_event_again_and_again(m: Machine) -> None:
    event, back = m.event(), m.event()
    for round_ in range(4):
        if round_:
            m.api.aclrtStreamWaitEvent(m.s, back)
        m.launch(m.fill, m.s, m.z, N | round_ << 32)
        m.api.aclrtRecordEvent(event, m.s)
        m.api.aclrtStreamWaitEvent(m.t, event)
        m.launch(m.total, m.t, m.z, m.y)
        m.api.aclrtRecordEvent(back, m.t)


def pinned_memory_in_turns(m: Machine) -> None:
    buffers = [(m.pointer("aclrtMallocHost", BYTES), m.event()) for _ in range(2)]
    for round_ in range(6):
        pinned, passed = buffers[round_ % 2]
        if round_ > 1:
            m.api.aclrtSynchronizeEvent(passed)
        ctypes.memset(pinned, round_, BYTES)
        m.api.aclrtMemcpyAsync(m.y, BYTES, pinned, BYTES, H2D, m.s)
        m.api.aclrtRecordEvent(passed, m.s)


def pinned_memory_there_and_back(m: Machine) -> None:
    """The second copy finds what the first has brought, not what was there when it was queued."""
    m.api.aclrtMemcpyAsync(m.pinned, BYTES, m.x, BYTES, D2H, m.s)
    m.api.aclrtMemcpyAsync(m.y, BYTES, m.pinned, BYTES, H2D, m.s)
    m.api.aclrtMemcpyAsync(m.pinned, BYTES, m.y, BYTES, D2H, m.s)
    m.api.aclrtSynchronizeStream(m.s)
    ctypes.memset(m.pinned, 0, BYTES)


def pageable_memory(m: Machine) -> None:
    """Copies of ordinary memory are over when they return."""
    for value in range(3):
        m.host[:] = value
        m.api.aclrtMemcpyAsync(m.y, BYTES, m.at, BYTES, H2D, m.s)
        m.launch(m.double, m.s, m.y, m.z, N)
        m.api.aclrtMemcpyAsync(m.at, BYTES, m.z, BYTES, D2H, m.s)
        assert m.host.tolist() == [2 * value] * N


def taken_along(m: Machine) -> None:
    """Copies of kind 5 take their bytes along, launches their arguments."""
    for value in range(3):
        ctypes.memset(m.pinned, value, BYTES)
        m.api.aclrtMemcpyAsync(m.y, BYTES, m.pinned, BYTES, 5, m.s)
        block = ctypes.create_string_buffer(u64(m.y, m.z, N), 24)
        m.api.aclrtLaunchKernelWithHostArgs(m.double, 1, m.s, None, ctypes.addressof(block), 24, None, 0)
        ctypes.memset(block, 0, 24)


def a_handle_launched_often(m: Machine) -> None:
    handle, parameter = c.aclrtArgsHandle(), c.aclrtParamHandle()
    m.api.aclrtKernelArgsInit(m.double, handle)
    for value in (m.x, m.z):
        m.api.aclrtKernelArgsAppend(handle, u64(value), 8, parameter)
    m.api.aclrtKernelArgsAppend(handle, u64(N), 8, parameter)
    for count in (N, N // 2, 1):
        m.api.aclrtKernelArgsParaUpdate(handle, parameter, u64(count), 8)
        m.api.aclrtKernelArgsFinalize(handle)
        m.api.aclrtLaunchKernelWithConfig(m.double, 1, m.s, None, handle, None)
        m.api.aclrtLaunchKernelWithConfig(m.double, 1, m.s, None, handle, None)


def freed_after_other_waits(m: Machine) -> None:
    event, start, milliseconds = m.event(), c.aclrtEvent(), ctypes.c_float()
    buffers = [m.upload(np.zeros(N, np.int32)) for _ in range(4)]
    m.launch(m.double, m.s, buffers[0], buffers[1], N)
    m.api.aclrtFreeWithDevSync(buffers[0])
    m.api.aclrtFree(buffers[1])
    m.api.aclrtCreateEventExWithFlag(start, 8)
    m.api.aclrtRecordEvent(start, m.s)
    m.launch(m.fill, m.s, buffers[2], N)
    m.api.aclrtRecordEvent(event, m.s)
    m.api.aclrtSynchronizeEvent(event)
    m.api.aclrtEventElapsedTime(milliseconds, start, event)
    m.api.aclrtFree(buffers[2])
    other = m.stream()
    m.launch(m.fill, other, buffers[3], N)
    m.api.aclrtDestroyStream(other)
    m.api.aclrtFree(buffers[3])


def a_model_run_often(m: Machine) -> None:
    there, back = m.event(), m.event()
    m.api.aclmdlRICaptureBegin(m.s, 0)
    m.launch(m.double, m.s, m.x, m.y, N)
    m.api.aclrtRecordEvent(there, m.s)
    m.api.aclrtStreamWaitEvent(m.t, there)
    m.launch(m.total, m.t, m.y, m.z)
    m.api.aclrtRecordEvent(back, m.t)
    m.api.aclrtStreamWaitEvent(m.s, back)
    model = c.aclmdlRI()
    m.api.aclmdlRICaptureEnd(m.s, model)
    for value in range(3):
        m.api.aclrtMemset(m.x, BYTES, value, BYTES)
        m.api.aclmdlRIExecuteAsync(model, m.s)
        m.api.aclmdlRIExecuteAsync(model, m.s)
        m.launch(m.total, m.s, m.y, m.z)
        m.api.aclrtSynchronizeStream(m.s)
        m.api.aclrtMemcpy(m.at, 4, m.z, 4, D2H)
    m.api.aclmdlRIDestroy(model)


def waited_for_by_destroying_a_model(m: Machine) -> None:
    m.api.aclmdlRICaptureBegin(m.s, 0)
    m.launch(m.double, m.s, m.x, m.y, N)
    model = c.aclmdlRI()
    m.api.aclmdlRICaptureEnd(m.s, model)
    m.launch(m.fill, m.s, m.z, N)
    m.api.aclmdlRIExecuteAsync(model, m.s)
    m.api.aclmdlRIDestroy(model)
    m.api.aclrtMemcpy(m.at, BYTES, m.y, BYTES, D2H)
    m.api.aclrtMemcpy(m.at, BYTES, m.z, BYTES, D2H)


def parts_that_are_written(m: Machine) -> None:
    x = m.malloc(BYTES)
    m.api.aclrtMemset(x, BYTES, 0, BYTES // 2)
    m.launch(m.double, m.s, x, m.z, N // 2)
    m.api.aclrtMemcpyAsync(m.y, BYTES, x, BYTES, D2D, m.s)
    m.launch(m.double, m.s, m.y, m.z, N // 2)


def written_in_hidden_ways(m: Machine) -> None:
    """Not every way to write is seen; then the bytes tell."""

    def hidden(z: sim.Out[np.int32]) -> None:
        np.asarray(z)[1:] = 7
        z[0] = 7

    sim.kernel("hidden", backend=m.backend)(hidden)
    m.launch(m.kernel("hidden"), m.s, m.z)
    m.launch(m.total, m.s, m.z, m.y)


def unknown_kernels(m: Machine) -> None:
    """A kernel that is skipped may have written to what it got."""
    m.backend.machine.unregistered = "skip"
    block = m.upload(np.array([m.z, 0, 0], np.uint64))
    m.api.aclrtLaunchKernel(m.kernel("unknown"), 1, block, 24, m.s)
    m.launch(m.double, m.s, m.z, m.y, N)


def one_block_after_the_other(m: Machine) -> None:
    m.api.aclrtLaunchKernelWithHostArgs(m.kernel("double_block"), 8, m.s, None, *m.args(m.x, m.z, N))
    m.launch(m.total, m.s, m.z, m.y)


def memory_under_two_addresses(m: Machine) -> None:
    """Registered memory of the program: what streams do there under the device's address counts for both."""
    memory = np.zeros(3 * 4096, np.uint8)
    start = -(-memory.ctypes.data // 4096) * 4096
    m.kept.append(memory)
    device = ctypes.c_void_p()
    m.api.aclrtHostRegister(start, 4096, 0, device)
    m.launch(m.double, m.s, m.x, device.value, N)
    m.api.aclrtSynchronizeStream(m.s)
    m.api.aclrtMemcpy(m.y, BYTES, start, BYTES, H2D)
    m.launch(m.double, m.s, m.y, device.value, N)
    m.api.aclrtSynchronizeStream(m.s)
    m.api.aclrtHostUnregister(start)


CLEAN = [
    two_halves_of_a_buffer,
    columns_of_a_matrix,
    asked_until_done,
    told_by_a_host_function,
    work_of_a_callback,
    waited_for_by_another_thread,
    ordered_by_a_word,
    ordered_by_an_event_that_is_past,
    waited_for_through_another_stream,
    one_event_again_and_again,
    pinned_memory_in_turns,
    pinned_memory_there_and_back,
    pageable_memory,
    taken_along,
    a_handle_launched_often,
    freed_after_other_waits,
    a_model_run_often,
    waited_for_by_destroying_a_model,
    parts_that_are_written,
    written_in_hidden_ways,
    unknown_kernels,
    one_block_after_the_other,
    memory_under_two_addresses,
]
