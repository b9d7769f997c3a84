"""Entry points: contexts. (Their system parameters are in config.)"""

from __future__ import annotations

from ..engine.context import Context
from ..engine.failures import AclLayerError, RuntimeLayerError
from ..engine.machine import Machine
from ..engine.observers import CREATED
from ..engine.refusals import out_of_range
from ..engine.waiting import raise_unseen
from . import hostmem
from .registry import answers, runtime_require


def _device_index(sim: Machine, index: int) -> int:
    if not 0 <= index < len(sim.devices):
        raise RuntimeLayerError(
            107001,
            "EE9999",
            f"Invalid drv devId, current drv devId={index}, valid drv devId range is [0, {len(sim.devices)})",
        )
    return index


@answers("aclrtCreateContext", required="context")
def create_context(sim: Machine, context: int, device_id: int) -> None:
    runtime_require(context, "inCtx")
    device = sim.devices[_device_index(sim, device_id)]
    opened = device.retain()
    made = Context(device, primary=False)
    if opened:
        device.announce_streams(sim.streams.reserve())
    sim.stream_observers.notify(made.default_stream.handle, CREATED)
    sim.thread.context, sim.thread.device = made, None
    hostmem.write_pointer(context, made.handle)


@answers("rtCtxCreateEx", "rtCtxCreate")
def runtime_create_context(sim: Machine, context: int, flags: int, device_id: int) -> None:
    create_context(sim, context, device_id)


@answers("rtsCtxCreate")
def rts_create_context(sim: Machine, context: int, flags: int, device_id: int) -> None:
    if flags > 0:
        raise out_of_range(flags, "flags", "less than or equal to 0")
    create_context(sim, context, device_id)


@answers("aclrtDestroyContext", required="context")
@answers("rtCtxDestroyEx", "rtCtxDestroy", "rtsCtxDestroy")
def destroy_context(sim: Machine, context: int) -> None:
    runtime_require(context, "inCtx")
    found = sim.contexts.find(context)
    if found is None or not found.alive:
        raise RuntimeLayerError(107002, "EE1001", f"ctx is NULL: 0x{context:x} is not a context")
    if found.primary:
        raise RuntimeLayerError(107002, "EE1001", "Can not destroy primary ctx")
    streams = found.tear_down()
    found.device.release()
    raise_unseen(streams)


@answers("aclrtSetCurrentContext", required="context")
@answers("rtCtxSetCurrent", "rtsCtxSetCurrent")
def set_current_context(sim: Machine, context: int) -> None:
    runtime_require(context, "inCtx")
    found = sim.contexts.find(context)
    if found is None or not found.alive:
        raise RuntimeLayerError(107000, "EE1001", f"ctx is NULL: 0x{context:x} is not a context")
    sim.thread.context, sim.thread.device = found, None


@answers("aclrtGetCurrentContext", required="context")
@answers("rtCtxGetCurrent", "rtsCtxGetCurrent")
def get_current_context(sim: Machine, context: int) -> None:
    runtime_require(context, "inCtx")
    found = sim.find_context()
    if found is None:
        raise AclLayerError(107002)  # an ordinary state: neither message nor last error
    hostmem.write_pointer(context, found.handle)  # even of a context that another thread has destroyed


@answers("rtCtxGetDevice")
def get_context_device(sim: Machine, device_id: int) -> None:
    runtime_require(device_id, "devId")
    hostmem.write_i32(device_id, sim.current_context().device.index)


@answers("aclrtCtxGetCurrentDefaultStream", required="stream")
@answers("rtCtxGetCurrentDefaultStream", "rtsCtxGetCurrentDefaultStream")
def get_current_default_stream(sim: Machine, stream: int) -> None:
    if not stream:
        raise RuntimeLayerError(107000, "EE9999", "stm is a null pointer")
    hostmem.write_pointer(stream, sim.current_context().default_stream.handle)


@answers("aclrtGetPrimaryCtxState", required="active")
def get_primary_context_state(sim: Machine, device_id: int, flags: int, active: int) -> None:
    if flags:
        raise AclLayerError(100000)  # reserved; the library's message for it is malformed and gets lost
    if not 0 <= device_id < len(sim.devices):
        raise RuntimeLayerError(107001, "EE9999", f"Invalid devId={device_id}, valid range is [0, {len(sim.devices)})")
    hostmem.write_i32(active, int(sim.devices[device_id].references > 0))


@answers("rtsGetPrimaryCtxState")
def runtime_get_primary_context_state(sim: Machine, device_id: int, flags: int, active: int) -> None:
    if not flags or not active:
        raise RuntimeLayerError(107000, "EE9999", "flags and active must not be null pointers")
    get_primary_context_state(sim, device_id, 0, active)
    hostmem.write_u32(flags, 0)
