"""Entry points: whether floating point overflowed on a device. It never does here: the status is always zero."""

from __future__ import annotations

from ..engine.context import Context
from ..engine.failures import RuntimeLayerError
from ..engine.machine import Machine
from ..engine.memory import Memory
from ..engine.operation import Access, Work
from ..engine.refusals import out_of_range
from ..engine.stream import Stream
from . import hostmem
from .registry import answers, runtime_require

STATUS_SIZE = 64
AREA_SIZE = 512


def _not_captured(sim: Machine, handle: int) -> None:
    stream = sim.streams.find(handle) if handle else None
    if stream is not None and stream.recorder is not None:
        raise RuntimeLayerError(107027, "EE9999", f"stream is in capture mode, stream_id={stream.number}")


def _write_status(sim: Machine, call: str, stream: Stream, address: int) -> None:
    memory = sim.area(Memory)
    stream.submit(
        Work(call, lambda: memory.write(address, bytes(STATUS_SIZE), call), Access(writes=((address, STATUS_SIZE),)))
    )


def _some_stream(sim: Machine, handle: int) -> None:
    """Without a context the null stream is a null pointer."""
    context = sim.find_context()
    if not handle and (context is None or not context.alive):
        raise RuntimeLayerError(107000, "EE1004", "curStm is a null pointer")


@answers("aclrtGetOverflowStatus", required="address", partly="always zero")
@answers("rtGetDeviceSatStatus")
def get_overflow_status(sim: Machine, address: int, size: int, stream: int) -> None:
    if not address or size != STATUS_SIZE:
        raise RuntimeLayerError(107000, "EE1001", f"output size {size} is invalid, only support {STATUS_SIZE} bytes")
    _not_captured(sim, stream)
    _write_status(sim, "aclrtGetOverflowStatus", sim.own_stream(stream, "aclrtGetOverflowStatus"), address)


@answers("aclrtGetFloatOverflowStatus", partly="always zero")
@answers("rtsGetFloatOverflowStatus")
def get_float_overflow_status(sim: Machine, address: int, size: int, stream: int) -> None:
    get_overflow_status(sim, address, size, stream)


@answers(
    "aclrtResetOverflowStatus", "aclrtResetFloatOverflowStatus", "rtCleanDeviceSatStatus", "rtsResetFloatOverflowStatus"
)
def reset_overflow_status(sim: Machine, stream: int) -> None:
    _some_stream(sim, stream)
    _not_captured(sim, stream)
    sim.own_stream(stream, "aclrtResetOverflowStatus").submit(Work("aclrtResetOverflowStatus", _nothing, locked=True))


def _nothing() -> None:
    """The status is zero already."""


@answers("aclrtNpuGetFloatOverFlowStatus", partly="always zero")
@answers(
    "rtNpuGetFloatStatus",
    "rtsNpuGetFloatOverFlowStatus",
    "rtNpuGetFloatDebugStatus",
    "rtsNpuGetFloatOverFlowDebugStatus",
)
def npu_get_float_status(sim: Machine, address: int, size: int, mode: int, stream: int) -> None:
    runtime_require(address, "outputAddrPtr")
    if size != STATUS_SIZE:
        raise out_of_range(size, "outputSize", f"{STATUS_SIZE}")
    _not_captured(sim, stream)
    _write_status(
        sim, "aclrtNpuGetFloatOverFlowStatus", sim.own_stream(stream, "aclrtNpuGetFloatOverFlowStatus"), address
    )


@answers(
    "aclrtNpuClearFloatOverFlowStatus",
    "rtNpuClearFloatStatus",
    "rtsNpuClearFloatOverFlowStatus",
    "rtNpuClearFloatDebugStatus",
    "rtsNpuClearFloatOverFlowDebugStatus",
)
def npu_clear_float_status(sim: Machine, mode: int, stream: int) -> None:
    _some_stream(sim, stream)
    _not_captured(sim, stream)
    sim.own_stream(stream, "aclrtNpuClearFloatOverFlowStatus").submit(
        Work("aclrtNpuClearFloatOverFlowStatus", _nothing, locked=True)
    )


class OverflowAreas:
    """The device memory in which a context would find its overflow status."""

    def __init__(self, machine: Machine) -> None:
        self.memory = machine.area(Memory)

    def address(self, context: Context) -> int:
        if not context.overflow_address:
            block = self.memory.allocate(
                context.device.index, AREA_SIZE, AREA_SIZE, kind="overflow status of a context", free_of_charge=True
            )
            context.overflow_address = block.base
            self.memory.write(block.base, bytes(AREA_SIZE))
        return context.overflow_address


@answers("aclrtCtxGetFloatOverflowAddr", "rtCtxGetOverflowAddr", "rtsCtxGetFloatOverflowAddr")
def get_float_overflow_address(sim: Machine, address: int) -> None:
    if not address:
        raise RuntimeLayerError(107000, "EE1001", "overflowAddr can not be null")
    hostmem.write_pointer(address, sim.area(OverflowAreas).address(sim.current_context()))
