"""Entry points: aclInit, aclFinalize, and the functions registered with them."""

from __future__ import annotations

import ctypes
from typing import Callable

from ..engine import configuration
from ..engine.failures import AclLayerError, RuntimeLayerError
from ..engine.machine import Machine
from ..engine.process import Process
from ..engine.refusals import out_of_range
from . import hostcall, hostmem
from .registry import answers, runtime_require


@answers("aclInit")
def init(sim: Machine, path: int) -> None:
    process = sim.area(Process)
    if process.again():
        raise AclLayerError(100002)
    name = hostmem.read_text(path) if path else ""
    text = configuration.read(name) if name else ""
    process.init(text, configuration.steps(sim, process, text, name))


@answers("aclFinalize")
def finalize(sim: Machine) -> None:
    sim.area(Process).finalize()


@answers("aclFinalizeReference")
def finalize_reference(sim: Machine, count: int) -> None:
    process = sim.area(Process)
    try:
        process.finalize_reference()
    finally:
        if count:
            hostmem.write_u64(count, process.count)


@answers("rtEventWorkModeSet")
def set_event_work_mode(sim: Machine, mode: int) -> None:
    if mode > 1:
        raise out_of_range(mode, "mode", "[0, 1]")
    process = sim.area(Process)
    if process.event_mode is not None:
        raise RuntimeLayerError(107000, "EE1001", "repeatedly set work mode")
    process.event_mode = mode


@answers("rtEventWorkModeGet")
def get_event_work_mode(sim: Machine, mode: int) -> None:
    runtime_require(mode, "mode")
    hostmem.write_u8(mode, sim.area(Process).event_mode or 0)


@answers("rtInit")
def runtime_init(sim: Machine) -> None:
    """The runtime is there from the start."""


@answers("rtDeinit")
def runtime_deinit(sim: Machine) -> None:
    """It stays to the end."""


# ---- registered functions ------------------------------------------------------------------------------------


def _at_init(callback: int, argument: int) -> Callable[[str], int]:
    function = hostcall.function(callback, "i32", "p", "u64", "p")

    def call(text: str) -> int:
        data = text.encode("utf-8", "surrogateescape")
        buffer = ctypes.create_string_buffer(data)
        return int(function(ctypes.addressof(buffer), len(data), argument or None))

    return call


def _at_finalize(callback: int, argument: int) -> Callable[[], int]:
    function = hostcall.function(callback, "i32", "p")
    return lambda: int(function(argument or None))


@answers("aclInitCallbackRegister")
def register_at_init(sim: Machine, kind: int, callback: int, argument: int) -> None:
    process = sim.area(Process)
    call = _at_init(callback, argument)
    process.at_init.register(kind, callback, call)
    if process.count:  # initialised already: it runs at once, and its code is not looked at
        with sim.unlocked():
            call(process.configuration)


@answers("aclInitCallbackUnRegister")
def unregister_at_init(sim: Machine, kind: int, callback: int) -> None:
    sim.area(Process).at_init.remove(kind, callback)


@answers("aclFinalizeCallbackRegister")
def register_at_finalize(sim: Machine, kind: int, callback: int, argument: int) -> None:
    sim.area(Process).at_finalize.register(kind, callback, _at_finalize(callback, argument))


@answers("aclFinalizeCallbackUnRegister")
def unregister_at_finalize(sim: Machine, kind: int, callback: int) -> None:
    sim.area(Process).at_finalize.remove(kind, callback)


def is_initialized(sim: Machine) -> bool:
    """Is the process between aclInit and its end?"""
    return sim.area(Process).count > 0
