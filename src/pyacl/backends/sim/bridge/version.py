"""Entry points: versions of the interface and of the packages, what the software can do, lines for the log."""

from __future__ import annotations

import ctypes
import re

from ....raw import types as c
from ..engine.machine import Machine
from ..engine.refusals import silent
from . import hostmem
from .registry import answers

#: version of the ACL interface by CANN release
_INTERFACE = {
    "7.0.0": (1, 7, 0),
    "8.0.RC2": (1, 9, 0),
    "8.0.RC3": (1, 10, 0),
    "8.1.RC1": (1, 13, 0),
    "8.5.0": (1, 16, 0),
}
_LATEST = (1, 17, 0)
_INVALID_FILE = 100003
#: packages of an installation whose version is that of CANN; the driver has a version of its own
_PACKAGES = frozenset(("runtime", "compiler", "hccl", "toolkit", "opp", "opp_kernel", "opp-kernel"))
_DRIVER = 7


@answers("aclrtGetVersion", required="major minor patch", locked=False)
def get_version(sim: Machine, major: int, minor: int, patch: int) -> None:
    for pointer, number in zip((major, minor, patch), _INTERFACE.get(sim.cann, _LATEST)):
        hostmem.write_i32(pointer, number)


@answers(
    "aclsysGetCANNVersion",
    required="version",
    locked=False,
    partly="every package but the driver has the version of the simulated CANN",
)
def get_cann_version(sim: Machine, name: int, version: int) -> None:
    if name == _DRIVER:
        raise silent(_INVALID_FILE)
    if name > _DRIVER:
        raise silent()
    parts = sim.cann.split(".")
    found = hostmem.struct_at(c.aclCANNPackageVersion, version)
    ctypes.memset(version, 0, ctypes.sizeof(found))
    found.version = sim.cann.encode()
    found.majorVersion = parts[0].encode()
    found.minorVersion = parts[1].encode()
    found.releaseVersion = parts[2].encode()
    found.patchVersion = ".".join(parts[3:]).encode()


def _package(sim: Machine, address: int) -> str:
    if hostmem.read_text(address) not in _PACKAGES:
        raise silent(_INVALID_FILE)
    return sim.cann


@answers("aclsysGetVersionStr", required="version_str pkg_name", locked=False, partly="as aclsysGetCANNVersion")
def get_version_str(sim: Machine, pkg_name: int, version_str: int) -> None:
    hostmem.write_text(version_str, _package(sim, pkg_name), 128)


@answers("aclsysGetVersionNum", required="version_num pkg_name", locked=False, partly="as aclsysGetCANNVersion")
def get_version_num(sim: Machine, pkg_name: int, version_num: int) -> None:
    text = _package(sim, pkg_name)
    found = re.match(r"(\d+)\.(\d+)\.(\d+)(?:[-.]?(alpha|beta|rc)\.?(\d*))?$", text.lower())
    if found is None:
        raise silent(500000)
    major, minor, patch, stage, number = found.groups()
    value = int(major) * 10_000_000 + int(minor) * 100_000 + int(patch) * 1000
    if stage:
        value += int(number or 0) - {"alpha": 300, "beta": 200, "rc": 100}[stage]
    hostmem.write_i32(version_num, value)


# ---- attributes of the software ------------------------------------------------------------------------------

_INF_NAN, _BF16, _JIT = 0, 1, 2
_WITHOUT_BF16 = frozenset(("Ascend910", "Ascend310P", "Ascend310B"))


def _attributes(sim: Machine) -> dict[int, int]:
    modern = int(sim.profile.family not in _WITHOUT_BF16)
    return {_INF_NAN: modern, _BF16: modern, _JIT: 1}


@answers("aclGetCannAttributeList", required="cann_attr_list num")
def get_cann_attribute_list(sim: Machine, cann_attr_list: int, num: int) -> None:
    there = [number for number, available in _attributes(sim).items() if available]
    kept = sim.thread.kept["aclGetCannAttributeList"] = (ctypes.c_int32 * len(there))(*there)
    hostmem.write_pointer(cann_attr_list, ctypes.addressof(kept))
    hostmem.write_u64(num, len(there))


@answers("aclGetCannAttribute", required="value", locked=False)
def get_cann_attribute(sim: Machine, cann_attr: int, value: int) -> None:
    found = _attributes(sim).get(cann_attr)
    if found is None:
        raise silent()
    hostmem.write_i32(value, found)


# ---- the log -------------------------------------------------------------------------------------------------


@answers("aclAppLog", locked=False, partly="lines go nowhere")
def app_log(sim: Machine, *arguments: int) -> None:
    pass


@answers("acllogCheckDebugLevel", locked=False, partly="no level is switched on")
def log_check_debug_level(sim: Machine, module_id: int, log_level: int) -> int:
    return 0


@answers("acllogRecord", locked=False, partly="lines go nowhere")
def log_record(sim: Machine, *arguments: int) -> None:
    pass


@answers("acllogRegisterCallback", locked=False, partly="never called: there are no lines")
def log_register_callback(
    sim: Machine, callback: int, user_data: int, output_log_type: int, callback_handle: int
) -> int:
    if not callback or not callback_handle:
        return -1
    hostmem.write_pointer(callback_handle, callback)
    return 0


@answers("acllogUnregisterCallback", locked=False, partly="never called: there are no lines")
def log_unregister_callback(sim: Machine, callback: int) -> int:
    return 0 if callback else -1
