"""Reports of what is alive: every kind of handle and memory, with the line that made it, until it is given back."""

from __future__ import annotations

import ctypes
import inspect
from typing import Any, Callable

import numpy as np
import pytest
from simulated import Calls

from pyacl import raw, sim
from pyacl.raw import constants as c
from pyacl.raw import types
from pyacl.testing import make_kernel_object

BINARY = make_kernel_object("add_custom")


def here() -> int:
    """The line of the caller."""
    return inspect.stack()[1].lineno


class Made:
    """One call that makes something: the kind in the report, its size, its line, and what gives it back."""

    def __init__(self, kind: str, line: int, undo: Callable[[], Any], nbytes: int = 0) -> None:
        self.kind = kind
        self.line = line
        self.undo = undo
        self.nbytes = nbytes


def stream(a: Calls) -> Made:
    made = types.aclrtStream()
    a.aclrtCreateStreamWithConfig(made, 0, 1)
    return Made("stream", here() - 1, lambda: a.aclrtDestroyStream(made))


def event(a: Calls) -> Made:
    made = types.aclrtEvent()
    a.aclrtCreateEventExWithFlag(made, 1)
    return Made("event", here() - 1, lambda: a.aclrtDestroyEvent(made))


def notify(a: Calls) -> Made:
    made = types.aclrtNotify()
    a.aclrtCreateNotify(made, 0)
    return Made("notify", here() - 1, lambda: a.aclrtDestroyNotify(made))


def counting_notify(a: Calls) -> Made:
    made = types.aclrtCntNotify()
    a.aclrtCntNotifyCreate(made, 0)
    return Made("counting notify", here() - 1, lambda: a.aclrtCntNotifyDestroy(made))


def context(a: Calls) -> Made:
    before, made = types.aclrtContext(), types.aclrtContext()
    a.aclrtGetCurrentContext(before)
    a.aclrtCreateContext(made, 0)
    line = here() - 1
    a.aclrtSetCurrentContext(before)
    return Made("context", line, lambda: a.aclrtDestroyContext(made))


def label(a: Calls) -> Made:
    made = types.aclrtLabel()
    a.aclrtCreateLabel(made)
    return Made("label", here() - 1, lambda: a.aclrtDestroyLabel(made))


def binary(a: Calls) -> Made:
    made, function = types.aclrtBinHandle(), types.aclrtFuncHandle()
    option = types.aclrtBinaryLoadOption(type=c.ACL_RT_BINARY_LOAD_OPT_MAGIC)
    option.value.magic = c.ACL_RT_BINARY_MAGIC_ELF_VECTOR_CORE
    options = types.aclrtBinaryLoadOptions(ctypes.addressof(option), 1)
    a.aclrtBinaryLoadFromData(BINARY, len(BINARY), options, made)
    line = here() - 1
    a.aclrtBinaryGetFunction(made, b"add_custom", function)  # goes with the binary
    return Made("kernel binary", line, lambda: a.aclrtBinaryUnLoad(made))


def model(a: Calls) -> Made:
    queue, made = types.aclrtStream(), types.aclmdlRI()
    a.aclrtCreateStream(queue)
    memory = a.malloc(64)
    a.aclmdlRICaptureBegin(queue, c.ACL_MODEL_RI_CAPTURE_MODE_RELAXED)
    line = here() - 1
    a.aclrtMemsetAsync(memory, 64, 0, 64, queue)
    a.aclmdlRICaptureEnd(queue, made)
    a.aclrtDestroyStream(queue)
    a.aclrtFree(memory)
    return Made("model", line, lambda: a.aclmdlRIDestroy(made))


def device_memory(a: Calls) -> Made:
    made = ctypes.c_void_p()
    a.aclrtMallocAlign32(made, 1000, 0)
    return Made("aclrtMallocAlign32", here() - 1, lambda: a.aclrtFree(made), 1000)


def pinned_memory(a: Calls) -> Made:
    made = ctypes.c_void_p()
    a.aclrtMallocHost(made, 2000)
    return Made("aclrtMallocHost", here() - 1, lambda: a.aclrtFreeHost(made), 2000)


def managed_memory(a: Calls) -> Made:
    made = ctypes.c_void_p()
    a.aclrtMemAllocManaged(made, 3000, 1)
    return Made("aclrtMemAllocManaged", here() - 1, lambda: a.aclrtFree(made), 3000)


def registered_memory(a: Calls, kept: list[Any] = []) -> Made:  # noqa: B006  lives as long as the test run
    array = np.zeros(8192, np.uint8)
    kept.append(array)
    address = array.ctypes.data
    a.aclrtHostRegisterV2(address, 8192, 2)
    return Made("aclrtHostRegister", here() - 1, lambda: a.aclrtHostUnregister(address), 8192)


def pinned_in_place(a: Calls, kept: list[Any] = []) -> Made:  # noqa: B006  lives as long as the test run
    array = np.zeros(4096, np.uint8)
    kept.append(array)
    address = array.ctypes.data
    a.aclrtHostRegisterV2(address, 4096, 0x10000000)
    return Made("aclrtHostRegister", here() - 1, lambda: a.aclrtHostUnregister(address), 4096)


def reserved_addresses(a: Calls) -> Made:
    made = ctypes.c_void_p()
    a.aclrtReserveMemAddress(made, 4 << 20, 0, None, 1)
    return Made("aclrtReserveMemAddress", here() - 1, lambda: a.aclrtReleaseMemAddress(made), 4 << 20)


def physical_memory(a: Calls) -> Made:
    made, wanted = types.aclrtDrvMemHandle(), types.aclrtPhysicalMemProp(memAttr=c.ACL_HBM_MEM_HUGE)
    wanted.location.type = c.ACL_MEM_LOCATION_TYPE_DEVICE
    a.aclrtMallocPhysical(made, 3 << 20, wanted, 0)
    return Made("handle of physical memory", here() - 1, lambda: a.aclrtFreePhysical(made), 4 << 20)


def pool(a: Calls) -> Made:
    made, wanted = types.aclrtMemPool(), types.aclrtMemPoolProps()
    wanted.location.type = c.ACL_MEM_LOCATION_TYPE_DEVICE
    wanted.maxSize = 4 << 20
    a.aclrtMemPoolCreate(made, wanted)
    return Made("memory pool", here() - 1, lambda: a.aclrtMemPoolDestroy(made))


def data_buffer(a: Calls) -> Made:
    made = a.aclCreateDataBuffer(None, 0)
    return Made("data buffer", here() - 1, lambda: a.aclDestroyDataBuffer(made))


def profiling_configuration(a: Calls) -> Made:
    made = a.aclprofCreateConfig((ctypes.c_uint32 * 1)(0), 1, 0, None, 1)
    return Made("profiling configuration", here() - 1, lambda: a.aclprofDestroyConfig(made))


MAKERS = [
    *(stream, event, notify, context, label, binary, model, device_memory, pinned_memory),
    *(managed_memory, registered_memory, pinned_in_place, reserved_addresses, physical_memory, data_buffer),
    *(profiling_configuration, pool),
]


def calls(**options: Any) -> Calls:
    return Calls(cann="9.1.0", **options)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_every_kind_with_its_line(make) -> None:
    a = calls()
    assert a.backend.report() == [] and a.backend.report().is_empty and str(a.backend.report()) == "nothing is alive"
    made = make(a)
    (live,) = a.backend.report()
    assert (live.kind, live.nbytes, live.place) == (made.kind, made.nbytes, (__file__, made.line))
    size = f" of {made.nbytes} bytes" if made.nbytes else ""
    assert str(live) == f"{made.kind}{size} (0x{live.handle:x}), made at {__file__}:{made.line}"
    made.undo()
    assert a.backend.report().is_empty


def test_counting_notifies() -> None:
    a = calls(soc="Ascend950PR_9599")
    made = counting_notify(a)
    (live,) = a.backend.report()
    assert (live.kind, live.place) == ("counting notify", (__file__, made.line))
    made.undo()
    assert a.backend.report().is_empty


def test_all_at_once() -> None:
    a = calls()
    made = [make(a) for make in MAKERS]
    report = a.backend.report()
    assert len(report) == len(made) and not report.is_empty
    assert report.kinds == {m.kind: sum(other.kind == m.kind for other in made) for m in made}
    # addresses and registered memory are no memory of their own
    addresses = ("aclrtReserveMemAddress", "aclrtHostRegister")
    assert report.nbytes == sum(m.nbytes for m in made if m.kind not in addresses)
    lines = str(report).splitlines()
    assert lines[0] == f"{len(made)} alive, {report.nbytes} bytes:"
    assert sorted(lines[1:]) == sorted(f"  {live}" for live in report)
    for each in reversed(made):
        each.undo()
    assert a.backend.report() == []


def test_a_mapping_is_listed_and_counted_once() -> None:
    a = calls()
    addresses, memory = reserved_addresses(a), physical_memory(a)
    by_kind = {live.kind: live for live in a.backend.report()}
    address, handle = by_kind["aclrtReserveMemAddress"].handle, by_kind["handle of physical memory"].handle
    a.aclrtMapMem(address, 4 << 20, 0, handle, 0)
    report = a.backend.report()
    assert report.kinds == {"handle of physical memory": 1, "aclrtReserveMemAddress": 1, "aclrtMapMem": 1}
    assert report.nbytes == 4 << 20
    a.aclrtUnmapMem(address)
    addresses.undo()
    memory.undo()
    assert a.backend.report() == []


def test_what_a_device_takes_with_it() -> None:
    """A reset gives back streams and memory of the device; events and host memory stay the program's."""
    a = calls()
    for make in (stream, device_memory, event, pinned_memory):
        make(a)
    a.aclrtResetDeviceForce(0)
    assert a.backend.report().kinds == {"event": 1, "aclrtMallocHost": 1}


def test_the_machine_in_use() -> None:
    from pyacl.session import isolated

    backend = sim.Backend()
    with isolated(backend):
        raw.aclrtSetDevice(0)
        event_ = types.aclrtEvent()
        raw.aclrtCreateEvent(event_)
        assert sim.report().kinds == {"event": 1} == sim.report(backend).kinds
        assert sim.report(sim.Backend()).is_empty
        raw.aclrtDestroyEvent(event_)
