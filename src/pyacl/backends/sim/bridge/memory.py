"""Entry points: memory of the device and of the host, and what an address is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Optional

from ....raw import types as c
from ..engine.failures import RuntimeLayerError
from ..engine.machine import Machine
from ..engine.memory import DEVICE, GIANT_PAGE, HUGE_PAGE, MANAGED, PAGE, Block, Memory
from ..engine.refusals import (
    bad_device,
    bad_value,
    driver,
    inner,
    inner_null,
    invalid,
    out_of_range,
    silent,
    unsupported,
)
from . import hostmem
from .registry import answers, null_pointer, runtime_require

_ALIGN = 32
_HUGE_FIRST, _HUGE_ONLY, _NORMAL_ONLY, _HUGE_FIRST_P2P, _HUGE_ONLY_P2P, _NORMAL_ONLY_P2P, _GIANT, _GIANT_P2P = range(8)
#: pages by policy; every other number means the default
_PAGES = {
    _HUGE_ONLY: HUGE_PAGE,
    _NORMAL_ONLY: PAGE,
    _HUGE_ONLY_P2P: HUGE_PAGE,
    _NORMAL_ONLY_P2P: PAGE,
    _GIANT: GIANT_PAGE,
    _GIANT_P2P: GIANT_PAGE,
}
_ATTR_RSV, _ATTR_MODULE, _ATTR_DEVICE, _ATTR_VA_FLAG = range(4)


def _positive(size: int) -> None:
    if not size:
        raise bad_value(size, "size", "size must be greater than zero")


def _round(size: int) -> int:
    return (size + _ALIGN - 1) // _ALIGN * _ALIGN


def _padded(size: int, policy: int, padding: bool) -> int:
    """The size the acl layer asks for: a multiple of 32, and 32 more for the functions that leave room for padding."""
    if size + 2 * _ALIGN >= 1 << 64:
        raise inner(f"size too large: {size}")
    if padding and policy not in (_GIANT, _GIANT_P2P):
        size += _ALIGN
    return _round(size)


def _current_device(sim: Machine) -> int:
    """The device of the calling thread, for functions that do not report the lack of one a second time."""
    try:
        return sim.current_context().device.index
    except RuntimeLayerError as error:
        raise RuntimeLayerError(error.code, "EE9999", error.text, explained=False) from None


def _allocate(sim: Machine, size: int, requested: int, policy: int, kind: str) -> Block:
    device = _current_device(sim)
    return sim.area(Memory).allocate(device, size, requested, _PAGES.get(policy, 0), kind)


@answers("aclrtMalloc", required="dev_ptr")
def malloc(sim: Machine, dev_ptr: int, size: int, policy: int) -> None:
    _positive(size)
    hostmem.write_pointer(dev_ptr, _allocate(sim, _padded(size, policy, True), size, policy, "aclrtMalloc").base)


@answers("aclrtMallocAlign32", required="dev_ptr")
def malloc_align32(sim: Machine, dev_ptr: int, size: int, policy: int) -> None:
    _positive(size)
    hostmem.write_pointer(
        dev_ptr, _allocate(sim, _padded(size, policy, False), size, policy, "aclrtMallocAlign32").base
    )


@answers("aclrtMallocCached", required="dev_ptr")
def malloc_cached(sim: Machine, dev_ptr: int, size: int, policy: int) -> None:
    if not size:
        raise inner("malloc size must be greater than zero")
    hostmem.write_pointer(dev_ptr, _allocate(sim, _padded(size, policy, True), size, policy, "aclrtMallocCached").base)


def _attributes(config: int) -> Iterator[tuple[int, int]]:
    """(attribute, value as 64 bits) of an aclrtMallocConfig; read one by one, as the library does."""
    found = hostmem.read_struct(c.aclrtMallocConfig, config)
    for index in range(found.numAttrs):
        at = (found.attrs or 0) + 12 * index
        yield hostmem.read_u32(at), hostmem.read_u32(at + 4) | hostmem.read_u32(at + 8) << 32


def _has_no_list(config: int) -> bool:
    return not hostmem.read_pointer(config)


def _malloc_with_config(sim: Machine, dev_ptr: int, size: int, policy: int, config: int, kind: str) -> None:
    if config and _has_no_list(config) and hostmem.read_u64(config + 8):
        raise null_pointer("cfg")
    _positive(size)
    if config and _has_no_list(config):
        raise RuntimeLayerError(107000, "EE1004", "The argument cfg->attrs is a null pointer")
    device = sim.current_context().device.index
    for attribute, value in _attributes(config) if config else ():
        if attribute == _ATTR_DEVICE:
            wanted = value & 0xFFFFFFFF
            if wanted != device:
                raise RuntimeLayerError(107000, "EH9999", f"invalid drv devId={wanted}, should be {device}")
        elif attribute not in (_ATTR_RSV, _ATTR_MODULE):
            text = f"Parse rtMallocConfig failed: invalid attribute {attribute}"
            raise RuntimeLayerError(107000, "EE9999", text, explained=False)
    block = sim.area(Memory).allocate(device, _round(size), size, _PAGES.get(policy & 0xFF, 0), kind)
    hostmem.write_pointer(dev_ptr, block.base)


@answers("aclrtMallocWithCfg", required="dev_ptr")
def malloc_with_cfg(sim: Machine, dev_ptr: int, size: int, policy: int, cfg: int) -> None:
    _malloc_with_config(sim, dev_ptr, size, policy, cfg, "aclrtMallocWithCfg")


@answers("aclrtMallocForTaskScheduler", required="dev_ptr")
def malloc_for_task_scheduler(sim: Machine, dev_ptr: int, size: int, policy: int, cfg: int) -> None:
    _malloc_with_config(sim, dev_ptr, size, policy, cfg, "aclrtMallocForTaskScheduler")


@answers("aclrtFree", required="dev_ptr")
def free(sim: Machine, dev_ptr: int) -> None:
    sim.area(Memory).free(dev_ptr)


@answers("aclrtFreeWithDevSync", required="dev_ptr")
def free_with_dev_sync(sim: Machine, dev_ptr: int) -> None:
    _synchronize_device(sim)
    sim.area(Memory).free(dev_ptr)


@answers("aclrtMallocHost", required="host_ptr")
def malloc_host(sim: Machine, host_ptr: int, size: int) -> None:
    if not size:
        raise inner("malloc size must be greater than zero")
    _host_memory(sim, host_ptr, size, "aclrtMallocHost")


@answers("aclrtMallocHostWithCfg", required="ptr")
def malloc_host_with_cfg(sim: Machine, ptr: int, size: int, cfg: int) -> None:
    _positive(size)
    shared = 0
    if cfg:
        if _has_no_list(cfg):
            raise RuntimeLayerError(107000, "EE1004", "The argument cfg->attrs is a null pointer")
        for attribute, value in _attributes(cfg):
            if attribute == _ATTR_VA_FLAG:
                shared = value & 0xFFFFFFFF
            elif attribute != _ATTR_MODULE:
                raise out_of_range(attribute, "attr->attr", str(_ATTR_MODULE))
    sim.current_context()
    if shared == 1:
        text = "The driver does not support unified virtual addresses"
        raise RuntimeLayerError(207000, "EE9999", text, explained=False)
    _host_memory(sim, ptr, size, "aclrtMallocHostWithCfg")


def _host_memory(sim: Machine, ptr: int, size: int, kind: str) -> None:
    device = sim.current_context().device.index
    hostmem.write_pointer(ptr, sim.area(Memory).allocate_pinned(device, _round(size), size, kind).base)


@answers("aclrtFreeHost", required="host_ptr")
def free_host(sim: Machine, host_ptr: int) -> None:
    sim.open_context()
    sim.area(Memory).free_pinned(host_ptr)


@answers("aclrtFreeHostWithDevSync", required="host_ptr")
def free_host_with_dev_sync(sim: Machine, host_ptr: int) -> None:
    _synchronize_device(sim)
    sim.area(Memory).free_pinned(host_ptr)


def _synchronize_device(sim: Machine) -> None:
    sim.current_context().synchronize(None)


# ---- managed memory ------------------------------------------------------------------------------------------

_ATTACH_GLOBAL = 1


@answers(
    "aclrtMemAllocManaged",
    required="ptr",
    partly="pages never move: the memory is the host's, and devices reach it there",
)
def mem_alloc_managed(sim: Machine, ptr: int, size: int, flag: int) -> None:
    if flag != _ATTACH_GLOBAL:
        raise inner("flag must be ACL_RT_MEM_ATTACH_GLOBAL")
    if not size:
        raise out_of_range(size, "size", "not equal to 0")
    device = _current_device(sim)
    rounded = (size + HUGE_PAGE - 1) // HUGE_PAGE * HUGE_PAGE
    hostmem.write_pointer(
        ptr, sim.area(Memory).allocate_pinned(device, rounded, size, "aclrtMemAllocManaged", MANAGED).base
    )


# ---- registered host memory ----------------------------------------------------------------------------------

_IOMEMORY, _READONLY = 4, 8
_REG_MAPPED, _REG_PINNED = 2, 0x10000000
_NO_REGISTRATION = frozenset(("Ascend310P", "Ascend310B"))


def _map_for_device(sim: Machine, ptr: int, size: int) -> int:
    """The device address of registered memory; memory registered twice keeps its address."""
    device = sim.current_context().device.index
    if sim.profile.family in _NO_REGISTRATION:
        raise unsupported("This chip does not support the registration of host memory")
    memory = sim.area(Memory)
    known = memory.registered.pointers.get(ptr)
    if known is not None:
        return known
    address = memory.map_host(ptr, size, device)
    memory.registered.map(ptr, size, address)
    return address


@answers("aclrtHostRegister", required="ptr dev_ptr")
def host_register(sim: Machine, ptr: int, size: int, kind: int, dev_ptr: int) -> None:
    _positive(size)
    if kind & ~(_IOMEMORY | _READONLY):
        raise unsupported(f"The register type {kind} is not supported")
    hostmem.write_pointer(dev_ptr, _map_for_device(sim, ptr, size))


@answers("aclrtHostRegisterV2", required="ptr")
def host_register_v2(sim: Machine, ptr: int, size: int, flag: int) -> None:
    _positive(size)
    if not flag & (_REG_MAPPED | _REG_PINNED) or flag & ~(_REG_MAPPED | _REG_PINNED):
        raise invalid(f"Invalid flag:{flag:#x}, valid flags are {_REG_MAPPED:#x}, {_REG_PINNED:#x} or both")
    memory = sim.area(Memory)
    if memory.registered.overlaps(ptr, size):
        raise driver("The memory range has already been registered", 507910)
    sim.current_context()
    if flag & _REG_MAPPED:
        _map_for_device(sim, ptr, size)
    if flag & _REG_PINNED:
        memory.registered.pin(ptr, size)


@answers("aclrtHostUnregister", required="ptr")
def host_unregister(sim: Machine, ptr: int) -> None:
    sim.current_context()
    memory = sim.area(Memory)
    if not memory.unregister(ptr):
        raise driver("The memory is not registered", 507911)


@answers("aclrtHostGetDevicePointer", required="p_host p_device")
def host_get_device_pointer(sim: Machine, p_host: int, p_device: int, flag: int) -> None:
    if flag:
        raise bad_value(flag, "flag", "flag must be zero")
    hostmem.write_pointer(p_device, sim.area(Memory).registered.pointers.get(p_host, 0))


@answers("aclrtHostMemMapCapabilities", required="capabilities")
def host_mem_map_capabilities(sim: Machine, device_id: int, hac_type: int, capabilities: int) -> None:
    if device_id >= len(sim.devices):
        raise bad_device(device_id, len(sim.devices))
    if 10 <= hac_type < 1 << 31:
        raise invalid(f"Invalid hacType={hac_type}, valid range is [0, 10)")
    sim.current_context()
    # Assumption: memory that can be registered can be reached by every engine of the chip.
    hostmem.write_u32(capabilities, 0 if sim.profile.family in _NO_REGISTRATION else 1)


# ---- caches --------------------------------------------------------------------------------------------------


@answers("aclrtMemFlush", required="dev_ptr")
def mem_flush(sim: Machine, dev_ptr: int, size: int) -> None:
    if not size:
        raise inner("flush cache size must be greater than zero")
    sim.current_context()


@answers("aclrtMemInvalidate", required="dev_ptr")
def mem_invalidate(sim: Machine, dev_ptr: int, size: int) -> None:
    if not size:
        raise inner("invalidate cache size must be greater than zero")
    sim.current_context()


# ---- what there is -------------------------------------------------------------------------------------------

_DDR, _HBM, _DDR_HUGE, _DDR_NORMAL, _HBM_HUGE, _HBM_NORMAL = range(6)
_DDR_P2P_HUGE, _DDR_P2P_NORMAL, _HBM_P2P_HUGE, _HBM_P2P_NORMAL, _HBM_HUGE1G, _HBM_P2P_HUGE1G, _LAST_INFO = range(6, 13)
_KNOWN_INFO = 17  # the runtime knows more kinds than the acl layer has names for
_P2P = frozenset((_DDR_P2P_HUGE, _DDR_P2P_NORMAL, _HBM_P2P_HUGE, _HBM_P2P_NORMAL))
#: chips whose memory is DDR: what they are asked about HBM they answer for DDR
_DDR_CHIPS = frozenset(("Ascend310P", "Ascend310B"))


@answers(
    "aclrtGetMemInfo",
    required="free total",
    partly="normal and huge pages are not told apart: both report the whole memory",
)
def get_mem_info(sim: Machine, attr: int, free: int, total: int) -> None:
    if attr > _KNOWN_INFO:
        raise RuntimeLayerError(107016, "EE9999", f"Invalid memInfoType={attr}")
    device = sim.current_context().device.index
    memory = sim.area(Memory)
    is_ddr = attr in (_DDR, _DDR_HUGE, _DDR_NORMAL, _DDR_P2P_HUGE, _DDR_P2P_NORMAL)
    if attr in _P2P or (is_ddr and sim.profile.family not in _DDR_CHIPS) or attr >= _LAST_INFO:
        there, left = 0, 0
    else:
        there, left = memory.capacity, memory.free_bytes(device)
    hostmem.write_u64(free, left)
    hostmem.write_u64(total, there)


@answers(
    "aclrtGetMemUsageInfo", required="mem_usage_info output_num", partly="all memory is counted as the application's"
)
def get_mem_usage_info(sim: Machine, device_id: int, mem_usage_info: int, input_num: int, output_num: int) -> None:
    hostmem.write_u64(output_num, 0)
    if not input_num:
        raise invalid("Check param failed, inputNum can not be 0")
    if not 0 <= device_id < len(sim.devices):
        raise bad_device(device_id, len(sim.devices))
    sim.current_context(device_id)
    memory = sim.area(Memory)
    info = hostmem.struct_at(c.aclrtMemUsageInfo, mem_usage_info)
    info.name = b"APP"
    info.curMemSize = memory.used.get(device_id, 0)
    info.memPeakSize = memory.peak.get(device_id, 0)
    hostmem.write_u64(output_num, 1)


@answers("aclrtPointerGetAttributes", required="ptr attributes")
def pointer_get_attributes(sim: Machine, ptr: int, attributes: int) -> None:
    sim.open_context()
    location, device, page = sim.area(Memory).locate(ptr)
    hostmem.write_u32(attributes, device)
    hostmem.write_u32(attributes + 4, location)
    hostmem.write_u32(attributes + 8, page)


_TYPE_DEVICE, _TYPE_DVPP, _TYPE_RESERVED = 2, 8, 32  # the public header has 16 for the last one, which is refused


@answers("aclrtCheckMemType", partly="there is no memory of the media functions")
def check_mem_type(sim: Machine, addr_list: int, size: int, mem_type: int, check_result: int, reserve: int) -> None:
    for pointer, name in ((addr_list, "addrList"), (check_result, "checkResult")):
        if not pointer:
            raise inner_null(name)
    hostmem.write_u32(check_result, 0)
    if reserve:
        raise out_of_range(reserve, "reserve", "0")
    if not size:
        raise out_of_range(size, "size", "greater than 0")
    if mem_type & ~(_TYPE_DEVICE | _TYPE_DVPP | _TYPE_RESERVED):
        raise invalid(
            f"Invalid memType {mem_type}: only DEV(0x2), DVPP(0x8), RSVD(0x20) and combinations are supported"
        )
    sim.current_context()
    memory = sim.area(Memory)
    wanted = bool(mem_type & _TYPE_DEVICE)
    fit = True
    for i in range(size):
        block = memory.find(hostmem.read_pointer(addr_list + 8 * i))
        fit = fit and wanted and block is not None and block.location == DEVICE
    hostmem.write_u32(check_result, int(fit))


@answers("aclrtMemGetAddressRange", required="ptr")
def mem_get_address_range(sim: Machine, ptr: int, pbase: int, psize: int) -> None:
    if not pbase and not psize:
        raise invalid("pbase and psize cannot be null simultaneously")
    memory = sim.area(Memory)
    block: Optional[Block] = memory.find(ptr)
    if block is None:
        raise driver("halMemGetAddressRange failed: " + memory.why_not(ptr))
    if pbase:
        hostmem.write_pointer(pbase, block.base)
    if psize:
        hostmem.write_u64(psize, block.size)


@answers("aclrtDeviceGetBareTgid", required="pid")
def device_get_bare_tgid(sim: Machine, pid: int) -> None:
    hostmem.write_i32(pid, os.getpid())


@answers("aclrtMemP2PMap", required="dev_ptr", partly="every device reaches the memory of every other one anyway")
def mem_p2p_map(sim: Machine, dev_ptr: int, size: int, dst_dev_id: int, flags: int) -> None:
    if not size or flags:
        raise silent()
    if not 0 <= dst_dev_id < len(sim.devices):
        raise bad_device(dst_dev_id, len(sim.devices))
    runtime_require(dev_ptr, "devPtr")
    sim.current_context()
    sim.area(Memory).check(dev_ptr, size, "aclrtMemP2PMap")
