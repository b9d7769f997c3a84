"""Entry points of libruntime for memory and copies: what stands behind the acl functions, with its own null checks.

Most of them do what the acl function of the same meaning does, so its Python function answers them too.
"""

from __future__ import annotations

from typing import Any, Callable

from ..engine import transfer
from ..engine.machine import Machine
from ..engine.memory import MANAGED, Memory
from ..engine.refusals import driver, out_of_range
from . import config, hostmem, memory, vmm
from . import transfer as copies
from .registry import answers, runtime_require

_KINDS = 8
# kinds of rtMemcpyKind_t by their meaning in the copies of the engine
_MEANING = {
    5: transfer.DEVICE_TO_DEVICE,
    6: transfer.HOST_TO_BUF_TO_DEVICE,
    7: transfer.DEVICE_TO_HOST,
    8: transfer.DEFAULT,
}
_NOTE = "checks as those of the acl function of the same meaning"


def _same(function: Callable[..., None], **pointers: int) -> Callable[..., None]:
    """The function, after a check that the arguments at these positions (by C name) are no null pointers."""

    def call(sim: Machine, *arguments: Any) -> None:
        for name, position in pointers.items():
            runtime_require(arguments[position], name)
        function(sim, *arguments)

    return call


answers("rtFree", "rtsFree")(_same(memory.free, devPtr=0))
answers("rtFreeWithDevSync")(_same(memory.free_with_dev_sync, devPtr=0))
answers("rtFreeHost", "rtsFreeHost")(_same(memory.free_host, hostPtr=0))
answers("rtFreeHostWithDevSync")(_same(memory.free_host_with_dev_sync, hostPtr=0))
answers("rtMemset", "rtsMemset")(_same(copies.memset, devPtr=0))
answers("rtMemsetAsync", "rtsMemsetAsync")(_same(copies.memset_async, ptr=0))
answers("rtMemGetInfoEx", "rtsMemGetInfo", partly=_NOTE)(_same(memory.get_mem_info, freeSize=1, totalSize=2))
answers("rtsHostRegister", partly=_NOTE)(_same(memory.host_register, ptr=0, devPtr=3))
answers("rtHostRegisterV2", partly=_NOTE)(_same(memory.host_register_v2, ptr=0))
answers("rtsHostUnregister")(_same(memory.host_unregister, ptr=0))
answers("rtHostGetDevicePointer", partly=_NOTE)(_same(memory.host_get_device_pointer, pHost=0, pDevice=1))
answers("rtReserveMemAddress", partly=_NOTE)(_same(vmm.reserve_mem_address, devPtr=0))
answers("rtReleaseMemAddress")(_same(vmm.release_mem_address, devPtr=0))
answers("rtMapMem", "rtsMemMap", partly=_NOTE)(_same(vmm.map_mem, devPtr=0, handle=3))
answers("rtUnmapMem", "rtsMemUnmap")(_same(vmm.unmap_mem, devPtr=0))
answers("rtFreePhysical")(_same(vmm.free_physical, handle=0))
answers("rtMemRetainAllocationHandle")(_same(vmm.mem_retain_allocation_handle, virPtr=0, handle=1))
answers("rtMemExportToShareableHandle", "rtsMemExportToShareableHandle", partly=_NOTE)(
    _same(vmm.mem_export_to_shareable_handle, handle=0, shareableHandle=3)
)
answers("rtMemImportFromShareableHandle", "rtsMemImportFromShareableHandle", partly=_NOTE)(
    _same(vmm.mem_import_from_shareable_handle, handle=2)
)
answers("rtsIpcMemGetExportKey", partly=_NOTE)(_same(vmm.ipc_mem_get_export_key, ptr=0, key=2))
answers("rtsIpcMemImportByKey", partly=_NOTE)(_same(vmm.ipc_mem_import_by_key, ptr=0, key=1))
answers("rtsIpcMemClose", partly=_NOTE)(_same(vmm.ipc_mem_close, key=0))
answers("rtsValueWrite", partly=_NOTE)(_same(copies.value_write, devAddr=0))
answers("rtsValueWait", partly=_NOTE)(_same(copies.value_wait, devAddr=0))
answers("rtsGetDeviceResLimit", partly=_NOTE)(_same(config.get_device_res_limit, value=2))
answers("rtsSetDeviceResLimit", partly=_NOTE)(config.set_device_res_limit)
answers("rtsResetDeviceResLimit", partly=_NOTE)(config.reset_device_res_limit)
answers("rtsGetStreamResLimit", partly=_NOTE)(_same(config.get_stream_res_limit, value=2))
answers("rtsSetStreamResLimit", partly=_NOTE)(config.set_stream_res_limit)
answers("rtsResetStreamResLimit", partly=_NOTE)(config.reset_stream_res_limit)


# ---- allocations ---------------------------------------------------------------------------------------------


def _size(size: int) -> int:
    if not size:
        raise out_of_range(size, "size", "not equal to 0")
    return size


@answers("rtMalloc", "rtMallocCached", partly="all types of memory are the one memory of the device")
def malloc(sim: Machine, dev_ptr: int, size: int, kind: int, module: int) -> None:
    runtime_require(dev_ptr, "devPtr")
    device = sim.current_context().device.index
    hostmem.write_pointer(dev_ptr, sim.area(Memory).allocate(device, _size(size), size, kind="rtMalloc").base)


@answers("rtsMalloc", partly=_NOTE)
def malloc_with_policy(sim: Machine, dev_ptr: int, size: int, policy: int, advise: int, cfg: int) -> None:
    runtime_require(dev_ptr, "devPtr")
    memory.malloc_with_cfg(sim, dev_ptr, _size(size), policy, cfg)


@answers("rtMallocHost")
def malloc_host(sim: Machine, host_ptr: int, size: int, module: int) -> None:
    runtime_require(host_ptr, "hostPtr")
    memory.malloc_host(sim, host_ptr, _size(size))


@answers("rtsMallocHost", partly=_NOTE)
def malloc_host_with_cfg(sim: Machine, host_ptr: int, size: int, cfg: int) -> None:
    runtime_require(host_ptr, "hostPtr")
    memory.malloc_host_with_cfg(sim, host_ptr, _size(size), cfg)


@answers("rtMemAllocManaged", partly="pages never move")
def mem_alloc_managed(sim: Machine, ptr: int, size: int, flag: int, module: int) -> None:
    runtime_require(ptr, "ptr")
    device = sim.current_context().device.index
    found = sim.area(Memory).allocate_pinned(device, _size(size), size, "aclrtMemAllocManaged", MANAGED)
    hostmem.write_pointer(ptr, found.base)


@answers("rtMemFreeManaged")
def mem_free_managed(sim: Machine, ptr: int) -> None:
    runtime_require(ptr, "ptr")
    found = sim.area(Memory).find(ptr)
    if found is None or found.location != MANAGED:
        raise driver(f"0x{ptr:x} is not managed memory")
    sim.area(Memory).free(ptr)


@answers("rtMemGetInfo")
def mem_get_info(sim: Machine, free: int, total: int) -> None:
    runtime_require(free, "freeSize")
    runtime_require(total, "totalSize")
    memory.get_mem_info(sim, 1, free, total)


# ---- copies --------------------------------------------------------------------------------------------------


def _kind(kind: int) -> int:
    if not 0 <= kind <= _KINDS:
        raise out_of_range(kind, "kind", f"[0, {_KINDS}]")
    return _MEANING.get(kind, kind)


def _ends(dst: int, src: int) -> None:
    runtime_require(dst, "dst")
    runtime_require(src, "src")


@answers("rtMemcpy", "rtMemcpyEx", partly=_NOTE)
def memcpy(sim: Machine, dst: int, dest_max: int, src: int, count: int, kind: int) -> None:
    _ends(dst, src)
    _kind(kind)
    transfer.memcpy(sim, dst, dest_max, src, count, "rtMemcpy")


@answers("rtMemcpyAsync", "rtMemcpyAsyncWithoutCheckKind", partly=_NOTE)
def memcpy_async(sim: Machine, dst: int, dest_max: int, src: int, count: int, kind: int, stream: int) -> None:
    _ends(dst, src)
    transfer.memcpy_async(sim, dst, dest_max, src, count, _kind(kind), stream, "rtMemcpyAsync")


@answers("rtMemcpy2d", partly=_NOTE)
def memcpy2d(sim: Machine, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int) -> None:
    _ends(dst, src)
    transfer.memcpy2d(sim, dst, dpitch, src, spitch, width, height, _kind(kind))


@answers("rtMemcpy2dAsync", partly=_NOTE)
def memcpy2d_async(
    sim: Machine, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: int
) -> None:
    _ends(dst, src)
    transfer.memcpy2d_async(sim, dst, dpitch, src, spitch, width, height, _kind(kind), stream)
