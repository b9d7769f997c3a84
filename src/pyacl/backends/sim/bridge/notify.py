"""Entry points: notifies and counting notifies."""

from __future__ import annotations

from ..engine import notify as notifies
from ..engine.device import Device
from ..engine.failures import AclLayerError, RuntimeLayerError
from ..engine.machine import Machine
from ..engine.notify import Notifies, NotifyRecord, NotifyWait
from ..engine.refusals import out_of_range
from . import hostmem
from .registry import answers, runtime_require

DOWNLOAD_TO_DEVICE = 0x1
KEY_SIZE = 65


def _device(sim: Machine) -> Device:
    """The device of the thread, as rtGetDevice finds it (quietly 107002)."""
    context = sim.find_context()
    if context is not None and context.alive:
        return context.device
    if sim.default_device is not None:
        return sim.current_context().device
    raise AclLayerError(107002, "EH9999", "the thread has no device")


def _create(sim: Machine, notify: int, device: Device, flag: int) -> None:
    runtime_require(notify, "retNotify")
    if flag & DOWNLOAD_TO_DEVICE:
        raise AclLayerError(207000, "EH9999", "the driver does not support notifies for device use")
    hostmem.write_pointer(notify, sim.area(Notifies).create(device).handle)


@answers(
    "aclrtCreateNotify",
    required="notify",
    partly="flag 1 (for device use) is refused, as the recorded driver refused it",
)
@answers("rtsNotifyCreate")
def create_notify(sim: Machine, notify: int, flag: int) -> None:
    if flag not in (0, DOWNLOAD_TO_DEVICE):
        raise out_of_range(flag, "flag", "0 or 1")
    _create(sim, notify, _device(sim), flag)


@answers("rtNotifyCreate")
def runtime_create_notify(sim: Machine, device_id: int, notify: int) -> None:
    runtime_create_notify_with_flag(sim, device_id, notify, 0)


@answers("rtNotifyCreateWithFlag")
def runtime_create_notify_with_flag(sim: Machine, device_id: int, notify: int, flag: int) -> None:
    runtime_require(notify, "retNotify")
    if flag & ~0x41:
        raise out_of_range(flag, "flag", "0, 1, 64 or 65")
    sim.current_context()
    _create(sim, notify, sim.device(device_id), flag)


@answers("aclrtDestroyNotify", required="notify")
@answers("rtNotifyDestroy", "rtsNotifyDestroy")
def destroy_notify(sim: Machine, notify: int) -> None:
    runtime_require(notify, "inNotify")
    sim.current_context()
    sim.area(Notifies).destroy(notify, "aclrtDestroyNotify")


@answers("aclrtRecordNotify", required="notify")
@answers("rtNotifyRecord", "rtsNotifyRecord")
def record_notify(sim: Machine, notify: int, stream: int) -> None:
    runtime_require(notify, "inNotify")
    target = sim.own_stream(stream, "aclrtRecordNotify")
    target.submit(NotifyRecord("aclrtRecordNotify", sim.area(Notifies).get(notify, "aclrtRecordNotify")))


@answers("aclrtWaitAndResetNotify", required="notify")
@answers("rtNotifyWaitWithTimeOut", "rtsNotifyWaitAndReset")
def wait_and_reset_notify(sim: Machine, notify: int, stream: int, timeout: int) -> None:
    runtime_require(notify, "inNotify")
    target = sim.own_stream(stream, "aclrtWaitAndResetNotify")
    found = sim.area(Notifies).get(notify, "aclrtWaitAndResetNotify")
    if sim.area(Notifies).imported(notify):
        raise RuntimeLayerError(107000, "EE9999", "Notify wait failed, ipc notify can not notify wait")
    notifies.wait(target, NotifyWait("aclrtWaitAndResetNotify", found), timeout)


@answers("rtNotifyWait")
def runtime_wait_notify(sim: Machine, notify: int, stream: int) -> None:
    wait_and_reset_notify(sim, notify, stream, 0)


@answers("aclrtGetNotifyId", required="notify number")
@answers("rtGetNotifyID", "rtsNotifyGetId")
def get_notify_id(sim: Machine, notify: int, number: int) -> None:
    runtime_require(notify, "inNotify")
    runtime_require(number, "notifyID")
    sim.current_context()
    hostmem.write_u32(number, sim.area(Notifies).get(notify, "aclrtGetNotifyId").number)


@answers("rtNotifyReset")
def reset_notify(sim: Machine, notify: int) -> None:
    runtime_require(notify, "inNotify")
    sim.current_context()
    sim.area(Notifies).get(notify, "aclrtNotifyBatchReset").value = 0


@answers("aclrtNotifyBatchReset", required="array")
@answers("rtsNotifyBatchReset")
def batch_reset_notifies(sim: Machine, array: int, count: int) -> None:
    count &= 0xFFFFFFFF
    if count == 0:
        raise out_of_range(0, "num", "(0, 4294967295]")
    for index in range(count):
        reset_notify(sim, hostmem.read_pointer(array + 8 * index))


# ---- other processes -----------------------------------------------------------------------------------------


@answers("aclrtNotifyGetExportKey", required="notify key", partly="keys are known within the process only")
@answers("rtsNotifyGetExportKey")
def get_export_key(sim: Machine, notify: int, key: int, length: int, flags: int) -> None:
    runtime_require(notify, "inNotify")
    runtime_require(key, "name")
    if length & 0xFFFFFFFF == 0:
        raise out_of_range(0, "len", "not equal to 0")
    if flags not in (0, 2):
        raise out_of_range(flags, "flag", "0 or 2")
    found = sim.area(Notifies).get(notify, "aclrtNotifyGetExportKey")
    found.key = found.key or f"pyacl_notify_{notify:016x}"
    hostmem.write_text(key, found.key, min(length, KEY_SIZE))


@answers("aclrtNotifyImportByKey", required="notify key", partly="finds notifies of the same process only")
@answers("rtsNotifyImportByKey", "rtIpcOpenNotifyWithFlag")
def import_by_key(sim: Machine, notify: int, key: int, flags: int) -> None:
    runtime_require(notify, "retNotify")
    runtime_require(key, "name")
    if flags & 0xFFFFFFFF > 3:
        raise out_of_range(flags, "flag", "[0, 3]")
    sim.current_context()
    table = sim.area(Notifies)
    found = table.by_key(hostmem.read_text(key))
    if found is None:
        raise RuntimeLayerError(507899, "EE9999", "no notify was exported under this key")
    hostmem.write_pointer(notify, table.share(found))


@answers("rtIpcSetNotifyName")
def ipc_set_notify_name(sim: Machine, notify: int, key: int, length: int) -> None:
    get_export_key(sim, notify, key, length, 0)


@answers("rtIpcOpenNotify")
def ipc_open_notify(sim: Machine, notify: int, key: int) -> None:
    import_by_key(sim, notify, key, 0)


@answers("aclrtNotifySetImportPid", required="notify pids")
@answers("rtsNotifySetImportPid")
def set_import_pid(sim: Machine, notify: int, pids: int, count: int) -> None:
    sim.area(Notifies).get(notify, "aclrtNotifySetImportPid")
    runtime_require(pids, "pid")
    if count <= 0 or count > 0x7FFFFFFF:
        raise out_of_range(count, "num", "(0, 2147483647]")
    sim.current_context()


@answers("aclrtNotifySetImportPidInterServer", "rtNotifySetImportPidInterServer")
def set_import_pid_inter_server(sim: Machine, notify: int, pids: int, count: int) -> None:
    runtime_require(notify, "notify")
    runtime_require(pids, "serverPids")
    if count == 0:
        raise out_of_range(0, "num", "not equal to 0")
    for index in range(count):
        at = pids + 24 * index  # aclrtServerPid: sdid, pid, num
        if not hostmem.read_pointer(at + 8):
            raise RuntimeLayerError(107000, "EE1004", f"serverPids[{index}].pid is a null pointer")
        if hostmem.read_u64(at + 16) != 1:
            raise RuntimeLayerError(107000, "EE1003", f"serverPids[{index}].num must be 1")


# ---- counting notifies ---------------------------------------------------------------------------------------


def _supported(sim: Machine) -> None:
    if sim.profile.family not in ("Ascend950", "Ascend350"):
        raise RuntimeLayerError(207000, "EE1001", "the chip has no counting notifies")


@answers("aclrtCntNotifyCreate", "rtCntNotifyCreateServer")
def create_counting(sim: Machine, notify: int, flag: int) -> None:
    if flag:
        raise out_of_range(flag, "flags", "0")
    device = _device(sim)
    runtime_require(notify, "retCntNotify")
    _supported(sim)
    hostmem.write_pointer(notify, sim.area(Notifies).create(device, counting=True).handle)


@answers("rtCntNotifyCreate")
def runtime_create_counting(sim: Machine, device_id: int, notify: int) -> None:
    runtime_create_counting_with_flag(sim, device_id, notify, 0)


@answers("rtCntNotifyCreateWithFlag")
def runtime_create_counting_with_flag(sim: Machine, device_id: int, notify: int, flag: int) -> None:
    runtime_require(notify, "retCntNotify")
    if flag not in (0, 1):
        raise out_of_range(flag, "flag", "0 or 1")
    _supported(sim)
    sim.current_context()
    hostmem.write_pointer(notify, sim.area(Notifies).create(sim.device(device_id), counting=True).handle)


@answers("aclrtCntNotifyDestroy", "rtCntNotifyDestroy")
def destroy_counting(sim: Machine, notify: int) -> None:
    runtime_require(notify, "inCntNotify")
    _supported(sim)
    sim.current_context()
    sim.area(Notifies).destroy(notify, "aclrtCntNotifyDestroy", counting=True)


@answers("aclrtCntNotifyRecord", required="info")
@answers("rtsCntNotifyRecord", "rtCntNotifyRecord")
def record_counting(sim: Machine, notify: int, stream: int, info: int) -> None:
    runtime_require(notify, "inCntNotify")
    runtime_require(info, "info")
    mode, value = hostmem.read_u32(info), hostmem.read_u32(info + 4)
    if mode > notifies.CLEAR_BITS or mode == notifies.INVALID:
        raise out_of_range(mode, "info->mode", "[0, 3) & (3, 5)")
    _supported(sim)
    target = sim.own_stream(stream, "aclrtCntNotifyRecord")
    found = sim.area(Notifies).get_counting(notify, "aclrtCntNotifyRecord")
    target.submit(NotifyRecord("aclrtCntNotifyRecord", found, mode, value))


@answers("aclrtCntNotifyWaitWithTimeout", required="info")
@answers("rtsCntNotifyWaitWithTimeout", "rtCntNotifyWaitWithTimeout")
def wait_counting(sim: Machine, notify: int, stream: int, info: int) -> None:
    runtime_require(notify, "inCntNotify")
    runtime_require(info, "info")
    mode, value, timeout = hostmem.read_u32(info), hostmem.read_u32(info + 4), hostmem.read_u32(info + 8)
    if mode > notifies.BITMASK:
        raise out_of_range(mode, "info->mode", "[0, 5)")
    _supported(sim)
    target = sim.own_stream(stream, "aclrtCntNotifyWaitWithTimeout")
    found = sim.area(Notifies).get_counting(notify, "aclrtCntNotifyWaitWithTimeout")
    wait = NotifyWait("aclrtCntNotifyWaitWithTimeout", found, mode, value, bool(hostmem.read_u8(info + 12)))
    notifies.wait(target, wait, timeout)


@answers("aclrtCntNotifyReset", "rtsCntNotifyReset", "rtCntNotifyReset")
def reset_counting(sim: Machine, notify: int, stream: int) -> None:
    runtime_require(notify, "inCntNotify")
    _supported(sim)
    target = sim.own_stream(stream, "aclrtCntNotifyReset")
    found = sim.area(Notifies).get_counting(notify, "aclrtCntNotifyReset")
    target.submit(NotifyRecord("aclrtCntNotifyReset", found, notifies.STORE, 0))


@answers("aclrtCntNotifyGetId", "rtsCntNotifyGetId", "rtGetCntNotifyId")
def get_counting_id(sim: Machine, notify: int, number: int) -> None:
    runtime_require(notify, "inCntNotify")
    runtime_require(number, "notifyId")
    _supported(sim)
    hostmem.write_u32(number, sim.area(Notifies).get_counting(notify, "aclrtCntNotifyGetId").number)
