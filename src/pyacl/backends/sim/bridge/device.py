"""Entry points: devices, what they are and can do, and which one a thread works on."""

from __future__ import annotations

import hashlib

from ..engine.device import Device
from ..engine.failures import AclLayerError, RuntimeLayerError
from ..engine.machine import Machine
from ..engine.observers import RESET_PRE, SET_POST, SET_PRE
from ..engine.refusals import out_of_range
from . import hostcall, hostmem
from .dispatch import failed
from .registry import answers, runtime_require

MAX_DEVICES = 64  # the runtime's table of devices
FEATURE_LIMIT = 20002  # first number beyond the device features


# ---- set, reset, current -------------------------------------------------------------------------------------


@answers("aclrtSetDevice", "rtSetDevice", "rtsSetDevice", "rtSetDeviceEx", "rtSetDeviceWithoutTsd")
def set_device(sim: Machine, device_id: int) -> None:
    sim.device(device_id).set()


@answers("aclrtResetDevice", "rtDeviceReset", "rtsResetDevice", "rtDeviceResetEx", "rtDeviceResetWithoutTsd")
def reset_device(sim: Machine, device_id: int) -> None:
    sim.device(device_id).reset(force=False)


@answers("aclrtResetDeviceForce", "rtDeviceResetForce", "rtsDeviceResetForce")
def reset_device_force(sim: Machine, device_id: int) -> None:
    try:
        sim.device(device_id).reset(force=True)
    except RuntimeLayerError as failure:  # this one function does not set the last error
        raise AclLayerError(failure.code, failure.message_code, failure.text) from None


@answers("aclrtGetDevice", required="device_id")
@answers("rtGetDevice", "rtsGetDevice")
def get_device(sim: Machine, device_id: int) -> None:
    runtime_require(device_id, "devId")
    context = sim.find_context()
    if context is not None and context.alive:
        hostmem.write_i32(device_id, context.device.index)
    elif sim.default_device is not None:
        hostmem.write_i32(device_id, sim.default_device)
    else:
        raise AclLayerError(107002)  # an ordinary state: neither message nor last error


@answers("aclrtGetDeviceCount", required="count")
@answers("rtGetDeviceCount", "rtsGetDeviceCount")
def get_device_count(sim: Machine, count: int) -> None:
    runtime_require(count, "cnt")
    hostmem.write_u32(count, len(sim.devices))


@answers("rtGetDeviceIDs")
def get_device_ids(sim: Machine, devices: int, length: int) -> None:
    runtime_require(devices, "devId")
    for index in range(min(length, len(sim.devices))):
        hostmem.write_u32(devices + 4 * index, index)


@answers("aclrtSynchronizeDevice", "rtDeviceSynchronize")
def synchronize_device(sim: Machine) -> None:
    sim.current_context().synchronize(None)


@answers("aclrtSynchronizeDeviceWithTimeout")
def synchronize_device_with_timeout(sim: Machine, timeout: int) -> None:
    if timeout < -1:
        raise AclLayerError(107000, "EH9999", f"the timeout of synchronize device is invalid, timeout is {timeout}")
    runtime_synchronize_device(sim, timeout)


@answers("rtDeviceSynchronizeWithTimeout", "rtsDeviceSynchronize")
def runtime_synchronize_device(sim: Machine, timeout: int) -> None:
    if timeout < -1 or timeout == 0:
        raise RuntimeLayerError(107000, "EE1006", f"timeout={timeout} is not supported")
    sim.current_context().synchronize(None if timeout == -1 else timeout)


@answers("aclrtSetTsDevice")
def set_ts_device(sim: Machine, ts_id: int) -> None:
    if ts_id not in (0, 1):
        raise AclLayerError(100000, "EH9999", f"invalid tsId, tsID is {ts_id}")


@answers("rtSetTSDevice", "rtsSetTsDevice")
def runtime_set_ts_device(sim: Machine, ts_id: int) -> None:
    """Every chip here has one task scheduler: any number is taken."""


# ---- what a device is ----------------------------------------------------------------------------------------


@answers("aclrtGetRunMode", required="mode")
@answers("rtGetRunMode", "rtsGetRunMode")
def get_run_mode(sim: Machine, mode: int) -> None:
    runtime_require(mode, "runMode")
    hostmem.write_u32(mode, 1)  # the program runs on the host


@answers("aclrtGetSocName")
def get_soc_name(sim: Machine) -> int:
    return sim.area(hostmem.Texts).keep("soc", sim.profile.soc)


@answers("rtGetSocVersion", "rtsGetSocVersion")
def get_soc_version(sim: Machine, text: int, size: int) -> None:
    runtime_require(text, "ver")
    if size <= len(sim.profile.soc):
        raise RuntimeLayerError(107000, "EE1001", f"maxLen={size} is too short for the name of the SoC")
    hostmem.write_text(text, sim.profile.soc, size)


@answers("aclrtQueryDeviceStatus", required="status")
@answers("rtDeviceStatusQuery", "rtsDeviceStatusQuery")
def query_device_status(sim: Machine, device_id: int, status: int) -> None:
    runtime_require(status, "deviceStatus")
    sim.device(device_id)
    hostmem.write_u32(status, 0)


@answers("rtGetDeviceStatus")
def get_device_status(sim: Machine, device_id: int, status: int) -> None:
    if device_id < 0:
        raise RuntimeLayerError(107001, "EE1003", f"devId={device_id} must be greater than or equal to 0")
    runtime_require(status, "status")
    sim.device(device_id)
    hostmem.write_u32(status, 0)


def attribute(device: Device, number: int) -> int:
    """A device attribute by its number; 107000 for one that this chip or release does not tell."""
    profile = device.machine.profile
    simple = {
        1: profile.ai_cpus,
        101: profile.cube_cores,
        201: profile.vector_cores,
        202: 0,
        203: 0,
        204: 0,
        301: device.machine.memory_bytes,
        401: 0,
        402: device.index,
        403: 0,
        404: 0,
        405: 0,
        406: 0,
        407: 0,
        501: 0,
    }
    if profile.family == "Ascend950":  # the chips that have threads within a block
        simple.update({202: 32, 203: 2048, 204: profile.facts["ub_bytes"]})
    if number not in simple:
        raise RuntimeLayerError(107000, "EE1001", f"Invalid attr={number}")
    return int(simple[number])


@answers(
    "aclrtGetDeviceInfo",
    required="value",
    partly="the attributes that the library reads from the files of an installed CANN (102, 302) answer 107000, "
    "as recorded without such files"
    "without such files",
)
@answers("rtsDeviceGetInfo")
def get_device_info(sim: Machine, device_id: int, number: int, value: int) -> None:
    runtime_require(value, "val")
    if device_id >= len(sim.devices):
        raise RuntimeLayerError(
            107000,
            "EE1001",
            f"invalid drv devId, current drv devId={device_id}, valid device range is [0, {len(sim.devices)})",
        )
    hostmem.write_i64(value, attribute(sim.devices[device_id], number))


_MODEL_UPDATE, _SCHEDULE = 1, 10001  # features for which the thread's context, or the device, is asked


@answers("aclrtGetDeviceCapability", required="value")
@answers("rtsDeviceGetCapability")
def get_device_capability(sim: Machine, device_id: int, feature: int, value: int) -> None:
    if not 0 <= feature < FEATURE_LIMIT:
        raise RuntimeLayerError(107000, "EE1001", f"invalid devFeatureType={feature}")
    if feature not in (_MODEL_UPDATE, 21, _SCHEDULE, 20001):
        raise AclLayerError(
            107000, "EE1003", f"value {feature} for parameter devFeatureType is invalid"
        )  # no last error
    runtime_require(value, "val")
    sim.device(device_id)
    if feature == _MODEL_UPDATE:
        sim.current_context(device_id)
    elif feature == _SCHEDULE:
        sim.open_device(device_id)
    software = sim.profile.family == "Ascend910"  # elsewhere tasks of AI CPUs are scheduled by hardware
    hostmem.write_i32(value, {_MODEL_UPDATE: 0, 21: 1, _SCHEDULE: 1 if software else 2, 20001: 16}[feature])


@answers("aclGetDeviceCapability", required="value")
def acl_get_device_capability(sim: Machine, device_id: int, info: int, value: int) -> None:
    profile = sim.profile
    answers_by_info = {0: profile.cube_cores, 1: profile.vector_cores, 2: profile.facts.get("l2_bytes", 0)}
    if device_id >= len(sim.devices) or info not in answers_by_info:
        raise AclLayerError(100000)
    hostmem.write_i64(value, answers_by_info[info])


@answers("rtGetAiCoreCount")
def get_ai_core_count(sim: Machine, count: int) -> None:
    runtime_require(count, "aiCoreCnt")
    hostmem.write_u32(count, sim.profile.cube_cores)


@answers("rtGetAiCpuCount")
def get_ai_cpu_count(sim: Machine, count: int) -> None:
    runtime_require(count, "aiCpuCnt")
    hostmem.write_u32(count, sim.profile.ai_cpus)


@answers("rtGetDeviceInfo", partly="the numbers of cores")
def runtime_get_device_info(sim: Machine, device_id: int, module: int, info: int, value: int) -> None:
    runtime_require(value, "val")
    if device_id >= len(sim.devices):
        raise RuntimeLayerError(107000, "EE1001", f"invalid drv devId, current drv devId={device_id}")
    known = {(1, 3): 1, (4, 3): 101, (4, 19): 101, (7, 3): 201}  # module and kind of information: device attribute
    if (module, info) not in known:
        raise RuntimeLayerError(207000, "EE1001", f"moduleType={module}, infoType={info} is not simulated")
    hostmem.write_i64(value, attribute(sim.devices[device_id], known[module, info]))


@answers("rtGetAllUtilizations", "rtsGetDeviceUtilizations")
def get_all_utilizations(sim: Machine, device_id: int, kind: int, rate: int) -> None:
    if not 0 <= kind < 3:
        raise out_of_range(kind, "kind", "[0, 3)")
    runtime_require(rate, "util")
    sim.device(device_id)
    hostmem.write_u8(rate, 0)


@answers("rtGetIsHeterogenous")
def get_is_heterogenous(sim: Machine, flag: int) -> None:
    runtime_require(flag, "heterogenous")
    hostmem.write_i32(flag, 0)


@answers("rtSetDefaultDeviceId", "rtsSetDefaultDeviceId")
def set_default_device(sim: Machine, device_id: int) -> None:
    sim.default_device = None if device_id == -1 else sim.device(device_id).index


@answers("aclrtDeviceGetUuid", required="uuid")
@answers("rtGetDeviceUuid")
def get_device_uuid(sim: Machine, device_id: int, uuid: int) -> None:
    _not_negative(device_id, "devId", 107001)
    runtime_require(uuid, "uuid")
    sim.device(device_id)
    hostmem.write_bytes(uuid, hashlib.md5(b"pyacl simulated device %d" % device_id).digest())


@answers("aclrtDeviceGetStreamPriorityRange", "rtDeviceGetStreamPriorityRange", "rtsDeviceGetStreamPriorityRange")
def get_stream_priority_range(sim: Machine, least: int, greatest: int) -> None:
    if least:
        hostmem.write_i32(least, 7)
    if greatest:
        hostmem.write_i32(greatest, 0)


@answers("aclrtGetDeviceUtilizationRate", required="info")
def get_device_utilization_rate(sim: Machine, device_id: int, info: int) -> None:
    if hostmem.read_pointer(info + 16):
        raise AclLayerError(100000)  # the extension is reserved
    rate = 0 if 0 <= device_id < len(sim.devices) else -1
    try:
        sim.check_default_device(device_id)
    except RuntimeLayerError as failure:
        failed(sim, "aclrtGetDeviceUtilizationRate", failure, True)
        rate = -1
    for offset in (0, 4, 8):
        hostmem.write_i32(info + offset, rate)
    hostmem.write_i32(info + 12, -1)  # memory: not told


# ---- ids -----------------------------------------------------------------------------------------------------


def _not_negative(device_id: int, name: str, code: int = 107000) -> None:
    if device_id < 0:
        raise RuntimeLayerError(
            code,
            "EE1003",
            f"value {device_id} for parameter {name} is invalid. Expected value: greater than or equal to 0",
        )


@answers(
    "aclrtGetLogicDevIdByUserDevId",
    "aclrtGetUserDevIdByLogicDevId",
    "aclrtGetPhyDevIdByLogicDevId",
    "aclrtGetUserDevIdByPhyDevId",
    "aclrtGetPhyDevIdByUserDevId",
    required="result",
)
@answers(
    "rtsGetLogicDevIdByUserDevId",
    "rtsGetUserDevIdByLogicDevId",
    "rtsGetPhyDevIdByLogicDevId",
)
def map_device_id(sim: Machine, device_id: int, result: int) -> None:
    """User, logic and physical ids are the same here."""
    _not_negative(device_id, "devId")
    runtime_require(result, "devId")
    sim.device(device_id)
    hostmem.write_i32(result, device_id)


@answers("aclrtGetLogicDevIdByPhyDevId", required="result")
@answers("rtsGetLogicDevIdByPhyDevId")
def logic_device_of_physical(sim: Machine, device_id: int, result: int) -> None:
    map_device_id(sim, device_id, result)
    sim.check_default_device(device_id)


@answers("rtGetLogicDevIdByUserDevId", "rtGetUserDevIdByLogicDevId", "rtGetVisibleDeviceIdByLogicDeviceId")
def runtime_map_device_id(sim: Machine, device_id: int, result: int) -> None:
    _not_negative(device_id, "devId", 107001)
    map_device_id(sim, device_id, result)


@answers("rtGetDevicePhyIdByIndex", "rtGetDeviceIndexByPhyId")
def map_unsigned_device_id(sim: Machine, device_id: int, result: int) -> None:
    runtime_require(result, "phyId")
    sim.device(device_id)
    hostmem.write_u32(result, device_id)


# ---- other devices -------------------------------------------------------------------------------------------


@answers("aclrtDeviceCanAccessPeer")
def device_can_access_peer(sim: Machine, can_access: int, device_id: int, peer: int) -> None:
    if device_id == peer:
        raise AclLayerError(100000, "EH9999", "deviceId shouldn't be equal to peeerDeviceId")
    sim.device(peer)
    runtime_device_can_access_peer(sim, can_access, device_id & 0xFFFFFFFF, peer)


@answers("rtDeviceCanAccessPeer")
def runtime_device_can_access_peer(sim: Machine, can_access: int, device_id: int, peer: int) -> None:
    _in_table(device_id, "drv devId", "EE1001")
    runtime_require(can_access, "canAccessPeer")
    _in_table(peer, "peerDevice", "EE1003")
    sim.check_default_device(device_id)
    hostmem.write_i32(can_access, int(device_id < len(sim.devices) and peer < len(sim.devices) and device_id != peer))


@answers("rtsDeviceCanAccessPeer")
def rts_device_can_access_peer(sim: Machine, device_id: int, peer: int, can_access: int) -> None:
    runtime_device_can_access_peer(sim, can_access, device_id, peer)


def _in_table(device_id: int, name: str, message: str) -> None:
    if not 0 <= device_id < MAX_DEVICES:
        raise RuntimeLayerError(
            107000, message, f"value {device_id} for parameter {name} is invalid. Expected value: [0, {MAX_DEVICES})"
        )


def _this_device(sim: Machine, peer: int) -> Device:
    """The current device, which must not be the peer."""
    context = sim.find_context()
    if context is None or not context.alive:
        if sim.default_device is None:
            raise AclLayerError(107002, "EH9999", "call rtGetDevice failed")
        device = sim.devices[sim.default_device]
    else:
        device = context.device
    if device.index == peer:
        raise AclLayerError(100000, "EH9999", f"deviceId shouldn't be equal to peeerDeviceId, deviceId = {peer}")
    return device


@answers("aclrtDeviceEnablePeerAccess")
def device_enable_peer_access(sim: Machine, peer: int, flags: int) -> None:
    if flags:
        raise AclLayerError(200006, "EH9999", f"the flags must be 0, but current is {flags}")
    _this_device(sim, peer).peers.add(sim.device(peer).index)


@answers("aclrtDeviceDisablePeerAccess")
def device_disable_peer_access(sim: Machine, peer: int) -> None:
    _this_device(sim, peer).peers.discard(sim.device(peer).index)


@answers("rtEnableP2P", "rtsEnableP2P")
def enable_p2p(sim: Machine, device_id: int, peer: int, flag: int) -> None:
    _in_table(device_id, "drv devId", "EE1001")
    _in_table(peer, "phyIdSrc", "EE1003")
    sim.device(device_id).peers.add(sim.device(peer).index)


@answers("rtDisableP2P", "rtsDisableP2P")
def disable_p2p(sim: Machine, device_id: int, peer: int) -> None:
    _in_table(device_id, "drv devId", "EE1001")
    _in_table(peer, "phyIdSrc", "EE1003")
    sim.device(device_id).peers.discard(sim.device(peer).index)


@answers("aclrtDevicePeerAccessStatus", required="status")
@answers("rtGetP2PStatus", "rtsGetP2PStatus")
def device_peer_access_status(sim: Machine, device_id: int, peer: int, status: int) -> None:
    _in_table(device_id & 0xFFFFFFFF, "drv devId", "EE1001")
    _in_table(peer & 0xFFFFFFFF, "phyIdSrc", "EE1003")
    runtime_require(status, "status")
    sim.check_default_device(device_id)
    known = device_id < len(sim.devices)
    hostmem.write_u32(status, int(known and peer in sim.devices[device_id].peers))


@answers("aclrtGetDevicesTopo", required="value")
def get_devices_topo(sim: Machine, device_id: int, other: int, value: int) -> None:
    """All devices are linked directly (HCCS)."""
    hostmem.write_u64(value, 1)


@answers("rtsGetPairDevicesInfo")
def get_pair_devices_info(sim: Machine, device_id: int, other: int, kind: int, value: int) -> None:
    hostmem.write_u64(value, 1)


@answers("rtGetPairDevicesInfo")
def runtime_get_pair_devices_info(sim: Machine, device_id: int, other: int, kind: int, value: int) -> None:
    runtime_require(value, "val")
    hostmem.write_i64(value, 0)


@answers("aclrtDeviceGetPCIBusId", required="text")
def get_pci_bus_id(sim: Machine, device_id: int, text: int, size: int) -> None:
    device = sim.device(device_id)
    name = pci_bus_id(device)
    if size <= len(name):
        raise out_of_range(size, "len", f"greater than {len(name)}")
    hostmem.write_text(text, name, size)


@answers("aclrtDeviceGetByPCIBusId", required="text device_id")
def get_by_pci_bus_id(sim: Machine, text: int, device_id: int) -> None:
    wanted = hostmem.read_text(text).lower()
    for device in sim.devices:
        if pci_bus_id(device) == wanted:
            hostmem.write_i32(device_id, device.index)
            return
    raise RuntimeLayerError(107000, "EE1001", f"there is no device {wanted}")


def pci_bus_id(device: Device) -> str:
    """Domain, bus, device and function, as the tools of the driver print them."""
    return f"0000:{device.index + 1:02x}:00.0"


# ---- saturation ----------------------------------------------------------------------------------------------


@answers("aclrtGetDeviceSatMode", required="mode")
@answers("rtGetDeviceSatMode")
def get_device_sat_mode(sim: Machine, mode: int) -> None:
    runtime_require(mode, "floatOverflowMode")
    hostmem.write_u32(mode, sim.saturation)


@answers("aclrtSetDeviceSatMode", "rtSetDeviceSatMode")
def set_device_sat_mode(sim: Machine, mode: int) -> None:
    if not 0 <= mode < 2:
        raise out_of_range(mode, "floatOverflowMode", "[0, 2)")
    context = sim.open_context()
    if context is not None and context.alive:
        context.device.saturation = mode
    sim.saturation = mode


@answers("rtGetDeviceSatModeForStream")
def get_device_sat_mode_for_stream(sim: Machine, stream: int, mode: int) -> None:
    runtime_require(mode, "floatOverflowMode")
    hostmem.write_u32(mode, sim.stream(stream, "rtGetDeviceSatModeForStream").context.device.saturation)


@answers("rtSetDeviceFailureMode")
def set_device_failure_mode(sim: Machine, mode: int) -> None:
    device = sim.current_context().device
    if device.failure_mode == mode & 1:
        return
    if device.failure_mode:
        raise AclLayerError(207000)
    device.failure_mode = mode & 1


# ---- callbacks -----------------------------------------------------------------------------------------------


@answers("aclrtRegDeviceStateCallback", required="name")
@answers("rtsRegDeviceStateCallback")
def register_device_state_callback(sim: Machine, name: int, callback: int, argument: int) -> None:
    runtime_require(name, "regName")
    if not callback:
        sim.device_observers.remove(hostmem.read_text(name))
        return
    function = hostcall.function(callback, "void", "u32", "u32", "p")
    sim.device_observers.register(
        hostmem.read_text(name), lambda device, state: function(device, state, argument or None)
    )


@answers("rtRegDeviceStateCallbackEx")
def runtime_register_device_state_callback(sim: Machine, name: int, callback: int, position: int) -> None:
    """The older kind of callback: told whether the device is open, before (0) or after (1) it happens."""
    runtime_require(name, "regName")
    if not 0 <= position <= 1:
        raise RuntimeLayerError(107000, "EE1001", "the range of parameter notifyPos should be [0, 2)")
    if not callback:
        sim.device_observers.remove(hostmem.read_text(name))
        return
    function = hostcall.function(callback, "void", "u32", "bool")
    told = {0: {SET_PRE: False, RESET_PRE: True}, 1: {SET_POST: True}}[position]

    def tell(device: int, state: int) -> None:
        if state in told:
            function(device, told[state])

    sim.device_observers.register(hostmem.read_text(name), tell, replace=True)


@answers("aclrtSetDeviceTaskAbortCallback", required="name")
@answers("rtsSetDeviceTaskAbortCallback")
def set_device_task_abort_callback(sim: Machine, name: int, callback: int, argument: int) -> None:
    runtime_require(name, "regName")
    if not callback:
        sim.abort_observers.remove(hostmem.read_text(name))
        return
    function = hostcall.function(callback, "i32", "u32", "u32", "u32", "p")
    sim.abort_observers.register(
        hostmem.read_text(name), lambda device, stage, timeout: function(device, stage, timeout, argument or None)
    )


@answers(
    "aclrtDeviceTaskAbort",
    "rtDeviceTaskAbort",
    "rtsDeviceTaskAbort",
    partly="drops the work of all streams; a real device also refuses new work until the streams are synchronised",
)
def device_task_abort(sim: Machine, device_id: int, timeout: int) -> None:
    if timeout > 36 * 60 * 1000:
        raise out_of_range(timeout, "timeout", "[0, 2160000]")
    if not 0 <= device_id < len(sim.devices):
        raise RuntimeLayerError(107001, "EE1001", f"device {device_id} does not exist")
    device = sim.devices[device_id]
    if device.open_count == 0:
        raise RuntimeLayerError(107002, "EE1001", f"device {device_id} has no context")
    sim.abort_observers.notify(device_id, 0, timeout)
    for stream in sim.streams:
        if stream.context.device is device:
            stream.drop()
    sim.abort_observers.notify(device_id, 1, timeout)
