"""Entry points: virtual memory, physical memory by handle, sharing of both kinds."""

from __future__ import annotations

from ....raw import types as c
from ..engine.failures import AclLayerError, RuntimeLayerError
from ..engine.machine import Machine
from ..engine.memory import GIANT_PAGE, HUGE_PAGE
from ..engine.refusals import (
    NOT_SUPPORTED,
    bad_device,
    bad_value,
    driver,
    inner_null,
    out_of_range,
    silent,
    unsupported,
)
from ..engine.vmm import KEY_LENGTH, VirtualMemory, pages_of
from . import hostmem
from .registry import answers, null_pointer, runtime_require

_HOST, _DEVICE, _UNREGISTERED, _MANAGED, _HOST_NUMA = range(5)
_DDR_ONLY = frozenset((2, 3, 6, 7))  # attributes that memory of a device cannot have
_ATTRIBUTES = frozenset(range(2, 18)) - {8, 9, 11}  # attributes that the acl layer knows for physical memory
_DEFAULT, _FABRIC = 1, 2  # aclrtMemSharedHandleType
_IPC_CHIPS = frozenset(("Ascend910B", "Ascend910_93", "Ascend950", "Ascend350", "Ascend910", "Ascend310P"))


# ---- address ranges ------------------------------------------------------------------------------------------


@answers("aclrtReserveMemAddress", required="vir_ptr")
def reserve_mem_address(sim: Machine, vir_ptr: int, size: int, alignment: int, expect_ptr: int, flags: int) -> None:
    if not size or flags not in (0, 1):
        raise silent()
    hostmem.write_pointer(vir_ptr, sim.area(VirtualMemory).reserve(size))


@answers("aclrtReserveMemAddressNoUCMemory", required="vir_ptr")
def reserve_mem_address_no_uc(
    sim: Machine, vir_ptr: int, size: int, alignment: int, expect_ptr: int, flags: int
) -> None:
    if not size:
        raise bad_value(size, "size", "reserve size must be greater than zero")
    if flags not in (0, 1):
        raise bad_value(flags, "flags", "flags of page type must be 0 or 1")
    hostmem.write_pointer(vir_ptr, sim.area(VirtualMemory).reserve(size))


@answers("aclrtReleaseMemAddress", required="vir_ptr")
def release_mem_address(sim: Machine, vir_ptr: int) -> None:
    sim.area(VirtualMemory).release(vir_ptr)


# ---- physical memory -----------------------------------------------------------------------------------------


def _location(sim: Machine, kind: int, number: int) -> None:
    if kind == _DEVICE and number >= len(sim.devices):
        raise bad_device(number, len(sim.devices))


@answers("aclrtMallocPhysical", required="handle prop")
def malloc_physical(sim: Machine, handle: int, size: int, prop: int, flags: int) -> None:
    if not size or flags:
        raise silent()
    wanted = hostmem.read_struct(c.aclrtPhysicalMemProp, prop)
    kind, number = wanted.location.type, wanted.location.id
    if wanted.handleType or wanted.allocationType or kind == _UNREGISTERED:
        raise silent()
    if (kind == _DEVICE and wanted.memAttr in _DDR_ONLY) or wanted.memAttr not in _ATTRIBUTES:
        raise silent()
    _location(sim, kind, number)
    if kind not in (_HOST, _DEVICE, _HOST_NUMA):
        raise driver(f"halMemCreate failed: the location type {kind} is not known")
    if kind == _HOST_NUMA:
        sim.current_context()
    made = sim.area(VirtualMemory).allocate(
        size, (kind, number), wanted.memAttr, wanted.reserve, pages_of(wanted.memAttr)
    )
    hostmem.write_pointer(handle, made)


@answers("aclrtFreePhysical", required="handle")
def free_physical(sim: Machine, handle: int) -> None:
    sim.area(VirtualMemory).free(handle)


@answers("aclrtMemGetAllocationGranularity", required="prop granularity")
def mem_get_allocation_granularity(sim: Machine, prop: int, option: int, granularity: int) -> None:
    wanted = hostmem.read_struct(c.aclrtPhysicalMemProp, prop)
    kind = wanted.location.type
    if (kind == _DEVICE and wanted.memAttr in _DDR_ONLY) or wanted.memAttr not in _ATTRIBUTES:
        raise silent()
    _location(sim, kind, wanted.location.id)
    if option > 1:
        raise driver(f"halMemGetAllocationGranularity failed: the option {option} is not known")
    page = pages_of(wanted.memAttr)
    # Assumption: whole huge pages, also where the memory has normal ones.
    hostmem.write_u64(granularity, GIANT_PAGE if page == GIANT_PAGE else HUGE_PAGE)


@answers("aclrtMemGetAllocationPropertiesFromHandle", required="handle prop")
def mem_get_allocation_properties(sim: Machine, handle: int, prop: int) -> None:
    found = sim.area(VirtualMemory).find(handle)
    out = hostmem.struct_at(c.aclrtPhysicalMemProp, prop)
    out.handleType = 0
    out.allocationType = 0
    out.location.type, out.location.id = found.location
    out.memAttr = _reported_attribute(found.location[0], found.attribute)
    out.reserve = found.reserve


def _reported_attribute(location: int, attribute: int) -> int:
    """The attribute that the library finds for what an attribute means: several mean the same."""
    if location == _DEVICE:
        return {12: 5, 13: 4, 14: 10}.get(attribute, attribute)
    return {2: 13, 3: 12, 6: 16, 15: 7}.get(attribute, attribute)


# ---- mappings ------------------------------------------------------------------------------------------------


@answers("aclrtMapMem", required="vir_ptr handle")
def map_mem(sim: Machine, vir_ptr: int, size: int, offset: int, handle: int, flags: int) -> None:
    if not size or flags:
        raise silent()
    area = sim.area(VirtualMemory)
    area.map(vir_ptr, size, offset, area.find(handle))


@answers("aclrtMemMapNoAccess", required="vir_ptr handle", partly="assumption: errors like those of aclrtMapMem")
def mem_map_no_access(sim: Machine, vir_ptr: int, size: int, offset: int, handle: int, flags: int) -> None:
    map_mem(sim, vir_ptr, size, offset, handle, flags)
    sim.area(VirtualMemory).forbid(vir_ptr)


@answers("aclrtMemMapSelectedLink", required="vir_ptr_dst vir_ptr_src", partly="assumption: there is one link")
def mem_map_selected_link(sim: Machine, vir_ptr_dst: int, size: int, vir_ptr_src: int, link_idx: int) -> None:
    if not size:
        raise silent()
    area = sim.area(VirtualMemory)
    area.map(vir_ptr_dst, size, 0, area.mapping(vir_ptr_src).note)


@answers("aclrtMemMapSetLink", required="handle", partly="assumption: there is one link, so the choice has no effect")
def mem_map_set_link(sim: Machine, handle: int, advice_link: int) -> None:
    sim.area(VirtualMemory).find(handle)


@answers("aclrtUnmapMem", required="vir_ptr")
def unmap_mem(sim: Machine, vir_ptr: int) -> None:
    sim.area(VirtualMemory).unmap(vir_ptr)


@answers("aclrtMemSetAccess", partly="the access is kept and reported, not enforced")
def mem_set_access(sim: Machine, vir_ptr: int, size: int, desc: int, count: int) -> None:
    for pointer, name in ((vir_ptr, "virPtr"), (desc, "desc")):
        if not pointer:
            raise RuntimeLayerError(107000, "EE1001", f"Check param failed, {name} can not be null")
    wanted: list[tuple[int, int, int]] = []
    for at in range(desc, desc + 24 * count, 24):
        wanted.append((hostmem.read_u32(at), hostmem.read_u32(at + 8), hostmem.read_u32(at + 4)))
    sim.area(VirtualMemory).set_access(vir_ptr, size, wanted)


@answers("aclrtMemGetAccess", required="vir_ptr location flag")
def mem_get_access(sim: Machine, vir_ptr: int, location: int, flag: int) -> None:
    found = sim.area(VirtualMemory).get_access(vir_ptr, hostmem.read_u32(location + 4), hostmem.read_u32(location))
    hostmem.write_u64(flag, found)


@answers("aclrtMemRetainAllocationHandle", required="vir_ptr handle")
def mem_retain_allocation_handle(sim: Machine, vir_ptr: int, handle: int) -> None:
    hostmem.write_pointer(handle, sim.area(VirtualMemory).retain(vir_ptr))


# ---- shareable handles ---------------------------------------------------------------------------------------


@answers("aclrtMemExportToShareableHandle", partly="shared within the simulated process")
def mem_export_to_shareable_handle(
    sim: Machine, handle: int, handle_type: int, flags: int, shareable_handle: int
) -> None:
    if not handle:
        raise null_pointer("handle")
    if handle_type:
        raise silent()
    if not shareable_handle:
        raise null_pointer("shareableHandle")
    if flags > 1:
        raise out_of_range(flags, "flags", "[0, 1]")
    hostmem.write_u64(shareable_handle, sim.area(VirtualMemory).export(handle))


def _share_type(kind: int) -> None:
    if kind not in (_DEFAULT, _FABRIC):
        raise out_of_range(kind, "handleType", "1 or 2")


@answers(
    "aclrtMemExportToShareableHandleV2",
    required="handle shareable_handle",
    partly="shared within the simulated process; not between servers",
)
def mem_export_to_shareable_handle_v2(
    sim: Machine, handle: int, flags: int, share_type: int, shareable_handle: int
) -> None:
    _share_type(share_type)
    if flags > 1:
        raise out_of_range(flags, "flags", "[0, 1]")
    if share_type == _FABRIC:
        sim.current_context()
        raise AclLayerError(NOT_SUPPORTED, "EE9999", "This device does not support cross-server communication")
    hostmem.write_u64(shareable_handle, sim.area(VirtualMemory).export(handle))


@answers("aclrtMemImportFromShareableHandle", required="handle", partly="shared within the simulated process")
def mem_import_from_shareable_handle(sim: Machine, shareable_handle: int, device_id: int, handle: int) -> None:
    if not 0 <= device_id < len(sim.devices):
        raise RuntimeLayerError(107001, "EE1003", f"The value {device_id} of the parameter devId is invalid")
    sim.current_context(device_id)
    hostmem.write_pointer(handle, sim.area(VirtualMemory).import_(shareable_handle))


@answers(
    "aclrtMemImportFromShareableHandleV2",
    required="shareable_handle handle",
    partly="shared within the simulated process; not between servers",
)
def mem_import_from_shareable_handle_v2(
    sim: Machine, shareable_handle: int, share_type: int, flags: int, handle: int
) -> None:
    if flags:
        raise silent()
    sim.current_context()
    _share_type(share_type)
    if share_type == _FABRIC:
        raise AclLayerError(NOT_SUPPORTED, "EE9999", "This device does not support cross-server communication")
    hostmem.write_pointer(handle, sim.area(VirtualMemory).import_(hostmem.read_u64(shareable_handle)))


@answers("aclrtMemSetPidToShareableHandle", required="pid", partly="every process may import")
def mem_set_pid_to_shareable_handle(sim: Machine, shareable_handle: int, pid: int, pid_num: int) -> None:
    if not pid_num:
        raise silent()
    sim.area(VirtualMemory).find_shareable(shareable_handle)


@answers("aclrtMemSetPidToShareableHandleV2", required="shareable_handle pid", partly="every process may import")
def mem_set_pid_to_shareable_handle_v2(
    sim: Machine, shareable_handle: int, share_type: int, pid: int, pid_num: int
) -> None:
    if not pid_num:
        raise silent()
    _share_type(share_type)
    sim.area(VirtualMemory).find_shareable(hostmem.read_u64(shareable_handle))


# ---- keys ----------------------------------------------------------------------------------------------------


def _ipc(sim: Machine) -> None:
    sim.current_context()
    if sim.profile.family not in _IPC_CHIPS:
        raise silent(NOT_SUPPORTED)


@answers("aclrtIpcMemGetExportKey", partly="keys work within the simulated process")
def ipc_mem_get_export_key(sim: Machine, dev_ptr: int, size: int, key: int, length: int, flags: int) -> None:
    for pointer, name in ((dev_ptr, "devPtr"), (key, "key")):
        if not pointer:
            raise inner_null(name)
    if not size:
        raise out_of_range(size, "byteCount", "not equal to 0")
    if not length:
        raise out_of_range(length, "len", "not equal to 0")
    if flags > 1:
        raise out_of_range(flags, "flags", "[0, 1]")
    _ipc(sim)
    if length < KEY_LENGTH:
        raise driver(f"halShmemCreateHandle failed: a key needs {KEY_LENGTH} bytes")
    hostmem.write_text(key, sim.area(VirtualMemory).export_key(dev_ptr, size), KEY_LENGTH)


@answers("aclrtIpcMemImportByKey", partly="keys work within the simulated process")
def ipc_mem_import_by_key(sim: Machine, dev_ptr: int, key: int, flags: int) -> None:
    for pointer, name in ((dev_ptr, "devPtr"), (key, "key")):
        if not pointer:
            raise inner_null(name)
    if flags > 1:
        raise out_of_range(flags, "flags", "[0, 1]")
    _ipc(sim)
    device = sim.current_context().device.index
    hostmem.write_pointer(dev_ptr, sim.area(VirtualMemory).import_key(hostmem.read_text(key), device))


@answers("aclrtIpcMemClose")
def ipc_mem_close(sim: Machine, key: int) -> None:
    if not key:
        raise inner_null("key")
    if sim.profile.family not in _IPC_CHIPS:
        raise unsupported("This chip does not support sharing of memory", "EH9999")
    sim.current_context()
    sim.area(VirtualMemory).close_key(hostmem.read_text(key))


@answers("aclrtIpcMemSetImportPid", partly="every process may import")
def ipc_mem_set_import_pid(sim: Machine, key: int, pid: int, num: int) -> None:
    for pointer, name in ((key, "key"), (pid, "pid")):
        if not pointer:
            raise inner_null(name)
    number = num & 0xFFFFFFFF
    if number == 0 or number >= 1 << 31:
        raise out_of_range(number, "num", "(0, 2147483647]")
    _ipc(sim)
    sim.area(VirtualMemory).key(hostmem.read_text(key))


@answers("aclrtIpcMemSetAttr")
def ipc_mem_set_attr(sim: Machine, key: int, kind: int, attr: int) -> None:
    runtime_require(key, "name")
    if len(hostmem.read_text(key)) >= KEY_LENGTH:
        raise out_of_range(len(hostmem.read_text(key)), "nameLen", f"[0, {KEY_LENGTH})")
    if kind >= 1:
        raise out_of_range(kind, "type", "[0, 1)")
    if attr >= 4:
        raise out_of_range(attr, "attr", "[0, 4)")
    sim.current_context()
    raise unsupported("This chip does not support attributes of shared memory")


@answers("aclrtIpcMemImportPidInterServer", partly="there is one server")
def ipc_mem_import_pid_inter_server(sim: Machine, key: int, server_pids: int, num: int) -> None:
    runtime_require(key, "key")
    runtime_require(server_pids, "serverPids")
    if not num:
        raise out_of_range(num, "num", "not equal to 0")
    for i in range(num):
        runtime_require(hostmem.read_pointer(server_pids + 24 * i + 8), f"serverPids[{i}].pid")
    sim.area(VirtualMemory).key(hostmem.read_text(key))
