"""Entry points: system parameters, limits on cores, groups of cores."""

from __future__ import annotations

from typing import Optional

from ..engine.device import Device
from ..engine.failures import AclLayerError, RuntimeLayerError
from ..engine.machine import Machine
from ..engine.refusals import bad_device, inner, invalid, out_of_range, silent, unsupported
from ..engine.stream import Stream
from . import hostmem
from .registry import answers, null_pointer, runtime_require

_KNOWN_OPTIONS = 4  # numbers that the acl layer lets through
_OPTIONS = 3  # numbers that the runtime layer knows
_VALUES = 2
_NOT_SET = 107021
_CUBE, _VECTOR = 0, 1


class Settings:
    """System parameters of the process, and the limits that were set."""

    def __init__(self, machine: Machine) -> None:
        self.parameters: dict[int, int] = {}
        self.devices: dict[tuple[Device, int], int] = {}
        self.streams: dict[tuple[Stream, int], int] = {}


# ---- system parameters ---------------------------------------------------------------------------------------


def _known_option(opt: int) -> None:
    if not 0 <= opt < _KNOWN_OPTIONS:
        raise AclLayerError(
            100000,
            "EH0001",
            f"The value {opt} of the argument [aclSysParamOpt] is invalid: should be 0 or 1 or 2 or 3",
        )


def _check_option(opt: int, message: bool) -> None:
    if opt >= _OPTIONS:
        if message:
            raise out_of_range(opt, "configOpt", f"[0, {_OPTIONS})")
        raise invalid(f"Invalid system configOpt, current configOpt={opt}, valid range is [0, {_OPTIONS})")


def _check_value(value: int, message: bool) -> None:
    if not 0 <= value < _VALUES:
        if message:
            raise out_of_range(value, "configVal", f"[0, {_VALUES})")
        raise invalid(f"Invalid configVal, current configVal={value}, valid range is [0, {_VALUES})")


@answers("aclrtSetSysParamOpt")
def set_sys_param_opt(sim: Machine, opt: int, value: int) -> None:
    _known_option(opt)
    runtime_set_sys_param_opt(sim, opt, value)


@answers("rtSetSysParamOpt")
def runtime_set_sys_param_opt(sim: Machine, opt: int, value: int) -> None:
    _check_option(opt, False)
    _check_value(value, False)
    sim.area(Settings).parameters[opt] = value


@answers("aclrtGetSysParamOpt", required="value")
def get_sys_param_opt(sim: Machine, opt: int, value: int) -> None:
    _known_option(opt)
    runtime_get_sys_param_opt(sim, opt, value)


@answers("rtGetSysParamOpt")
def runtime_get_sys_param_opt(sim: Machine, opt: int, value: int) -> None:
    _check_option(opt, False)
    if not value:
        raise invalid("Check param failed, configVal can not be null")
    hostmem.write_i64(value, sim.area(Settings).parameters.get(opt, 0))


@answers("aclrtCtxSetSysParamOpt")
def ctx_set_sys_param_opt(sim: Machine, opt: int, value: int) -> None:
    _known_option(opt)
    runtime_ctx_set_sys_param_opt(sim, opt, value)


@answers("rtCtxSetSysParamOpt")
def runtime_ctx_set_sys_param_opt(sim: Machine, opt: int, value: int) -> None:
    _check_option(opt, True)
    _check_value(value, True)
    sim.current_context().parameters[opt] = value
    sim.area(Settings).parameters[opt] = value


@answers("aclrtCtxGetSysParamOpt", required="value")
def ctx_get_sys_param_opt(sim: Machine, opt: int, value: int) -> None:
    _known_option(opt)
    runtime_ctx_get_sys_param_opt(sim, opt, value)


@answers("rtCtxGetSysParamOpt")
def runtime_ctx_get_sys_param_opt(sim: Machine, opt: int, value: int) -> None:
    _check_option(opt, True)
    runtime_require(value, "configVal")
    found = sim.current_context().parameters.get(opt)
    if found is None:
        raise silent(_NOT_SET)
    hostmem.write_i64(value, found)


# ---- limits on cores -----------------------------------------------------------------------------------------


def _not_negative(sim: Machine, number: int) -> None:
    if number < 0:
        raise bad_device(number, len(sim.devices))


def _resource(kind: int) -> None:
    if kind > _VECTOR:
        raise out_of_range(kind, "type", f"[0, {_VECTOR + 1})")


def _cores(sim: Machine, kind: int) -> int:
    return sim.profile.cube_cores if kind == _CUBE else sim.profile.vector_cores


def _limit_of(sim: Machine, device: Device, kind: int) -> int:
    return sim.area(Settings).devices.get((device, kind), _cores(sim, kind))


def _check_limit(sim: Machine, kind: int, value: int) -> None:
    if value > _cores(sim, kind):
        raise invalid(f"The value {value} exceeds the total number of cores, {_cores(sim, kind)}")


@answers("aclrtGetDeviceResLimit", required="value")
def get_device_res_limit(sim: Machine, device_id: int, kind: int, value: int) -> None:
    _not_negative(sim, device_id)
    _resource(kind)
    hostmem.write_u32(value, _limit_of(sim, sim.open_device(device_id), kind))


@answers("aclrtSetDeviceResLimit")
def set_device_res_limit(sim: Machine, device_id: int, kind: int, value: int) -> None:
    _not_negative(sim, device_id)
    _resource(kind)
    device = sim.open_device(device_id)
    _check_limit(sim, kind, value)
    sim.area(Settings).devices[device, kind] = value


@answers("aclrtResetDeviceResLimit")
def reset_device_res_limit(sim: Machine, device_id: int) -> None:
    device = sim.open_device(device_id)
    for kind in (_CUBE, _VECTOR):
        sim.area(Settings).devices.pop((device, kind), None)


@answers("aclrtGetStreamResLimit", required="value")
def get_stream_res_limit(sim: Machine, stream: int, kind: int, value: int) -> None:
    _resource(kind)
    hostmem.write_u32(value, _stream_limit(sim, sim.stream(stream, "aclrtGetStreamResLimit"), kind))


def _stream_limit(sim: Machine, stream: Stream, kind: int) -> int:
    found = sim.area(Settings).streams.get((stream, kind))
    return _limit_of(sim, stream.context.device, kind) if found is None else found


@answers("aclrtSetStreamResLimit")
def set_stream_res_limit(sim: Machine, stream: int, kind: int, value: int) -> None:
    _resource(kind)
    target = sim.stream(stream, "aclrtSetStreamResLimit")
    _check_limit(sim, kind, value)
    sim.area(Settings).streams[target, kind] = value


@answers("aclrtResetStreamResLimit")
def reset_stream_res_limit(sim: Machine, stream: int) -> None:
    target = sim.stream(stream, "aclrtResetStreamResLimit")
    for kind in (_CUBE, _VECTOR):
        sim.area(Settings).streams.pop((target, kind), None)


_KEPT = "stream whose limits count in this thread"


@answers("aclrtUseStreamResInCurrentThread")
def use_stream_res(sim: Machine, stream: int) -> None:
    sim.thread.kept[_KEPT] = sim.stream(stream, "aclrtUseStreamResInCurrentThread")


@answers("aclrtUnuseStreamResInCurrentThread")
def unuse_stream_res(sim: Machine, stream: int) -> None:
    if sim.thread.kept.get(_KEPT) is sim.stream(stream, "aclrtUnuseStreamResInCurrentThread"):
        del sim.thread.kept[_KEPT]


@answers("aclrtGetResInCurrentThread", required="value")
def get_res_in_current_thread(sim: Machine, kind: int, value: int) -> None:
    _resource(kind)
    used: Optional[Stream] = sim.thread.kept.get(_KEPT)
    found = None if used is None else sim.area(Settings).streams.get((used, kind))
    if found is None:
        found = _limit_of(sim, sim.current_context().device, kind)
    hostmem.write_u32(value, found)


# ---- groups of cores -----------------------------------------------------------------------------------------

_GROUP_CHIPS = frozenset(("Ascend310P",))


def _groups(sim: Machine) -> None:
    """Only one chip has groups, and none were made there."""
    if sim.profile.family not in _GROUP_CHIPS:
        raise unsupported("Groups of cores are not supported on this chip")
    sim.current_context()


@answers("aclrtSetGroup", partly="there are no groups to choose from")
def set_group(sim: Machine, group_id: int) -> None:
    _groups(sim)
    raise RuntimeLayerError(507006, "EE9999", f"Group id {group_id} does not exist")


@answers("aclrtGetGroupCount", required="count", partly="there are no groups")
def get_group_count(sim: Machine, count: int) -> None:
    _groups(sim)
    hostmem.write_u32(count, 0)


@answers("aclrtCreateGroupInfo", partly="there are no groups")
def create_group_info(sim: Machine) -> int:
    _groups(sim)
    return 0


@answers("aclrtDestroyGroupInfo", required="group_info", partly="there are no groups")
def destroy_group_info(sim: Machine, group_info: int) -> None:
    pass


@answers("aclrtGetAllGroupInfo", required="group_info", partly="there are no groups")
def get_all_group_info(sim: Machine, group_info: int) -> None:
    _groups(sim)
    raise RuntimeLayerError(507006, "EE9999", "There are no groups")


@answers("aclrtGetGroupInfoDetail", partly="there are no groups")
def get_group_info_detail(
    sim: Machine, group_info: int, group_index: int, attr: int, attr_value: int, value_len: int, param_ret_size: int
) -> None:
    for pointer, name in ((group_info, "groupInfo"), (attr_value, "attrValue"), (param_ret_size, "paramRetSize")):
        if not pointer:
            raise null_pointer(name)
    _groups(sim)
    raise inner(f"the index value of group is invalid, groupIndex = {group_index}, not in range [0, 0)")
