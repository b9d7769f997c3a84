"""Settings, versions, groups, dumps, snapshots and profiling objects of the simulated NPU."""

from __future__ import annotations

import ctypes

import pytest
from simulated import Calls, undefined

from pyacl.raw import types as c


@pytest.fixture
def calls():
    return Calls()


# ---- settings ------------------------------------------------------------------------------------------------


def test_system_parameters_are_of_the_process_or_of_the_context(calls):
    value = ctypes.c_int64(77)
    assert calls.code("aclrtCtxGetSysParamOpt", 0, value) != 0  # nothing set yet
    assert value.value == 77
    calls.aclrtGetSysParamOpt(0, value)
    assert value.value == 0
    calls.aclrtSetSysParamOpt(0, 1)
    calls.aclrtGetSysParamOpt(0, value)
    assert value.value == 1
    calls.aclrtCtxSetSysParamOpt(0, 0)
    calls.aclrtCtxGetSysParamOpt(0, value)
    assert value.value == 0
    other = c.aclrtContext()
    calls.aclrtCreateContext(other, 0)
    assert calls.code("aclrtCtxGetSysParamOpt", 0, value) != 0
    for opt, wanted in ((-1, 1), (99, 1), (0, 2), (0, -1)):
        assert calls.code("aclrtSetSysParamOpt", opt, wanted) in (100000, 107000)
    calls.aclrtGetSysParamOpt(0, value)
    assert value.value == 0  # setting it for a context sets it for the process


def test_core_limits(calls):
    value = ctypes.c_uint32()
    calls.aclrtGetDeviceResLimit(0, 0, value)
    cubes = value.value
    assert cubes == 24
    calls.aclrtGetDeviceResLimit(0, 1, value)
    assert value.value == 48
    calls.aclrtSetDeviceResLimit(0, 0, 10)
    calls.aclrtGetDeviceResLimit(0, 0, value)
    assert value.value == 10
    stream = calls.stream()
    calls.aclrtGetStreamResLimit(stream, 0, value)
    assert value.value == 10  # follows the device
    calls.aclrtSetStreamResLimit(stream, 0, 4)
    calls.aclrtGetStreamResLimit(stream, 0, value)
    assert value.value == 4
    calls.aclrtResetStreamResLimit(stream)
    calls.aclrtResetDeviceResLimit(0)
    calls.aclrtGetStreamResLimit(stream, 0, value)
    assert value.value == cubes
    assert calls.code("aclrtSetDeviceResLimit", 0, 0, cubes + 1) == 107000


def test_limits_used_by_a_thread(calls):
    value, stream = ctypes.c_uint32(), calls.stream()
    calls.aclrtSetStreamResLimit(stream, 1, 6)
    calls.aclrtUseStreamResInCurrentThread(stream)
    calls.aclrtGetResInCurrentThread(1, value)
    assert value.value == 6
    calls.aclrtUnuseStreamResInCurrentThread(stream)
    calls.aclrtGetResInCurrentThread(1, value)
    assert value.value == 48


# ---- versions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cann", ["8.5.0", "9.0.0", "9.1.0"])
def test_versions(cann):
    calls = Calls(cann=cann)
    numbers = [ctypes.c_int32(-1) for _ in range(3)]
    calls.aclrtGetVersion(*numbers)
    assert [number.value for number in numbers] == [1, {"8.5.0": 16, "9.0.0": 17, "9.1.0": 17}[cann], 0]


def test_package_versions(calls):
    found = c.aclCANNPackageVersion()
    calls.aclsysGetCANNVersion(1, found)
    assert found.version == b"9.0.0"


# ---- the rest ------------------------------------------------------------------------------------------------


def test_snapshots_follow_their_order(calls):
    assert calls.code("aclrtSnapShotProcessBackup") == 507908
    calls.aclrtSnapShotProcessLock()
    assert calls.code("aclrtSnapShotProcessLock") == 507906
    calls.aclrtSnapShotProcessBackup()
    calls.aclrtSnapShotProcessRestore()
    calls.aclrtSnapShotProcessUnlock()
    assert calls.code("aclrtSnapShotProcessUnlock") == 507907


def test_dump_needs_initialisation(calls):
    assert calls.code("aclmdlInitDump") == 100001
    calls.aclInit(None)
    assert calls.code("aclmdlFinalizeDump") == 100045
    calls.aclmdlInitDump()
    assert calls.code("aclmdlInitDump") == 100002
    calls.aclmdlFinalizeDump()


def test_profiling_objects(calls):
    assert not calls.aclprofCreateConfig(None, 0, 0, None, 1)
    devices = (ctypes.c_uint32 * 2)(0, 1)
    config = calls.aclprofCreateConfig(devices, 2, 0, None, 1)
    assert calls.code("aclprofStart", config) == 100043
    calls.aclprofInit(b"somewhere", 9)
    assert calls.code("aclprofInit", b"somewhere", 9) == 100002
    calls.aclprofStart(config)
    other = calls.aclprofCreateConfig(devices, 1, 0, None, 3)
    assert calls.code("aclprofStop", other) == 100000
    calls.aclprofStop(config)
    calls.aclprofFinalize()
    assert calls.code("aclprofFinalize") == 100043
    calls.aclprofDestroyConfig(config)
    with undefined("aclprofDestroyConfig", "was destroyed"):
        calls.aclprofDestroyConfig(config)
    devices[1] = 0
    assert not calls.api.unchecked.aclprofCreateConfig(devices, 2, 0, None, 1)
    size = ctypes.c_size_t()
    calls.aclprofGetOpDescSize(size)
    assert size.value == 80


def test_marks_need_a_profiling_that_asks_for_them(calls):
    assert calls.api.unchecked.aclprofMark(None) == -1
    config = calls.aclprofCreateConfig(None, 0, 0, None, 0x80)
    calls.aclprofInit(b"x", 1)
    calls.aclprofStart(config)
    stamp = calls.aclprofCreateStamp()
    calls.aclprofSetStampTraceMessage(stamp, b"here", 4)
    calls.aclprofMark(stamp)
    calls.aclprofPush(stamp)
    calls.aclprofPop()
    assert calls.api.unchecked.aclprofPop() == -1
    first = ctypes.c_uint32()
    calls.aclprofRangeStart(stamp, first)
    calls.aclprofRangeStop(first.value)
    assert calls.api.unchecked.aclprofRangeStop(first.value) == -1
