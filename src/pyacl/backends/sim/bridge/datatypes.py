"""Entry points: data types, half precision, data buffers, allocators that streams are told of."""

from __future__ import annotations

from typing import Optional

from ..engine.failures import UndefinedBehavior
from ..engine.half import float_to_half, half_to_float
from ..engine.handles import HandleTable
from ..engine.machine import Machine
from ..engine.refusals import inner, silent
from . import hostmem
from .registry import answers, null_pointer

#: bytes by aclDataType; all other numbers have the size of a 64-bit number
_SIZES = {
    -1: 0,
    0: 4,
    1: 2,
    2: 1,
    3: 4,
    4: 1,
    6: 2,
    7: 2,
    8: 4,
    12: 1,
    13: 0,
    17: 16,
    27: 2,
    29: 1,
    30: 1,
    33: 4,
    34: 1,
    35: 1,
    36: 1,
    37: 1,
    42: 1,
}


@answers("aclDataTypeSize", locked=False)
def data_type_size(sim: Machine, data_type: int) -> int:
    return _SIZES.get(data_type, 8)


@answers("aclFloat16ToFloat", locked=False)
def float16_to_float(sim: Machine, value: int) -> float:
    return half_to_float(value)


@answers("aclFloatToFloat16", locked=False)
def float_to_float16(sim: Machine, value: float) -> int:
    return float_to_half(value)


# ---- data buffers --------------------------------------------------------------------------------------------


class DataBuffers:
    """Data buffers: [address, bytes]."""

    def __init__(self, machine: Machine) -> None:
        self.table: HandleTable[list[int]] = HandleTable("data buffer")

    def live(self, handle: int, call: str) -> Optional[list[int]]:
        """The buffer; None for memory that no call of ours made, which the library takes for one nevertheless."""
        found = self.table.find(handle)
        if found is None and self.table.was_destroyed(handle):
            raise UndefinedBehavior(f"{call}: {self.table.why_not(handle)}")
        return found


@answers("aclCreateDataBuffer")
def create_data_buffer(sim: Machine, data: int, size: int) -> int:
    return sim.area(DataBuffers).table.add([data, size])


@answers("aclDestroyDataBuffer")
def destroy_data_buffer(sim: Machine, data_buffer: int) -> None:
    if not data_buffer:
        raise silent()
    sim.area(DataBuffers).table.remove(data_buffer, "aclDestroyDataBuffer")


@answers("aclUpdateDataBuffer", required="data_buffer")
def update_data_buffer(sim: Machine, data_buffer: int, data: int, size: int) -> None:
    found = sim.area(DataBuffers).live(data_buffer, "aclUpdateDataBuffer")
    if found is not None:
        found[:] = data, size
    else:
        hostmem.write_pointer(data_buffer, data)
        hostmem.write_u64(data_buffer + 8, size)


def _data_buffer(sim: Machine, handle: int, call: str) -> tuple[int, int]:
    if not handle:
        return 0, 0
    found = sim.area(DataBuffers).live(handle, call)
    if found is not None:
        return found[0], found[1]
    return hostmem.read_pointer(handle), hostmem.read_u64(handle + 8)


@answers("aclGetDataBufferAddr")
def get_data_buffer_addr(sim: Machine, data_buffer: int) -> int:
    return _data_buffer(sim, data_buffer, "aclGetDataBufferAddr")[0]


@answers("aclGetDataBufferSize")
def get_data_buffer_size(sim: Machine, data_buffer: int) -> int:
    return _data_buffer(sim, data_buffer, "aclGetDataBufferSize")[1] & 0xFFFFFFFF


@answers("aclGetDataBufferSizeV2")
def get_data_buffer_size_v2(sim: Machine, data_buffer: int) -> int:
    return _data_buffer(sim, data_buffer, "aclGetDataBufferSizeV2")[1]


# ---- allocators ----------------------------------------------------------------------------------------------

_OBJECT, _ALLOC, _FREE, _ADVISE, _ADDRESS = range(5)


class Allocators:
    """Descriptions of allocators, and which stream has which."""

    def __init__(self, machine: Machine) -> None:
        # object and functions: None as long as nothing was set, where the library has whatever the memory held
        self.descriptions: HandleTable[list[Optional[int]]] = HandleTable("allocator description")
        self.by_stream: dict[int, tuple[int, list[Optional[int]]]] = {}


@answers("aclrtAllocatorCreateDesc")
def allocator_create_desc(sim: Machine) -> int:
    return sim.area(Allocators).descriptions.add([None] * 5)


@answers("aclrtAllocatorDestroyDesc", required="allocator_desc")
def allocator_destroy_desc(sim: Machine, allocator_desc: int) -> None:
    sim.area(Allocators).descriptions.remove(allocator_desc, "aclrtAllocatorDestroyDesc")


def _set(sim: Machine, handle: int, which: int, value: int, call: str) -> None:
    sim.area(Allocators).descriptions.get(handle, call)[which] = value


@answers("aclrtAllocatorSetObjToDesc", required="allocator_desc allocator")
def allocator_set_obj(sim: Machine, allocator_desc: int, allocator: int) -> None:
    _set(sim, allocator_desc, _OBJECT, allocator, "aclrtAllocatorSetObjToDesc")


@answers("aclrtAllocatorSetAllocFuncToDesc", required="allocator_desc func")
def allocator_set_alloc(sim: Machine, allocator_desc: int, func: int) -> None:
    _set(sim, allocator_desc, _ALLOC, func, "aclrtAllocatorSetAllocFuncToDesc")


@answers("aclrtAllocatorSetFreeFuncToDesc", required="allocator_desc func")
def allocator_set_free(sim: Machine, allocator_desc: int, func: int) -> None:
    _set(sim, allocator_desc, _FREE, func, "aclrtAllocatorSetFreeFuncToDesc")


@answers("aclrtAllocatorSetAllocAdviseFuncToDesc", required="allocator_desc func")
def allocator_set_advise(sim: Machine, allocator_desc: int, func: int) -> None:
    _set(sim, allocator_desc, _ADVISE, func, "aclrtAllocatorSetAllocAdviseFuncToDesc")


@answers("aclrtAllocatorSetGetAddrFromBlockFuncToDesc", required="allocator_desc func")
def allocator_set_address(sim: Machine, allocator_desc: int, func: int) -> None:
    _set(sim, allocator_desc, _ADDRESS, func, "aclrtAllocatorSetGetAddrFromBlockFuncToDesc")


@answers(
    "aclrtAllocatorRegister",
    required="stream allocator_desc",
    partly="the allocator is kept; the runtime itself never allocates through it",
)
def allocator_register(sim: Machine, stream: int, allocator_desc: int) -> None:
    area = sim.area(Allocators)
    found = area.descriptions.get(allocator_desc, "aclrtAllocatorRegister")
    # Assumption: what was never set counts as missing; the library reads memory that was not initialised.
    for which, function in (
        (_OBJECT, "aclrtAllocatorSetObjToDesc"),
        (_ALLOC, "aclrtAllocatorSetAllocFuncToDesc"),
        (_FREE, "aclrtAllocatorSetFreeFuncToDesc"),
        (_ADDRESS, "aclrtAllocatorSetGetAddrFromBlockFuncToDesc"),
    ):
        if found[which] is None:
            raise inner(f"Should call {function} first")
    area.by_stream[stream] = (allocator_desc, list(found))


@answers("aclrtAllocatorGetByStream")
def allocator_get_by_stream(
    sim: Machine,
    stream: int,
    allocator_desc: int,
    allocator: int,
    alloc_func: int,
    free_func: int,
    alloc_advise_func: int,
    get_addr_func: int,
) -> None:
    if not allocator_desc:
        raise null_pointer("allocatorDesc")
    entry = sim.area(Allocators).by_stream.get(stream)
    if entry is None:
        raise silent()
    hostmem.write_pointer(allocator_desc, entry[0])
    for pointer, value in zip((allocator, alloc_func, free_func, alloc_advise_func, get_addr_func), entry[1]):
        if pointer:
            hostmem.write_pointer(pointer, value or 0)


@answers("aclrtAllocatorUnregister", required="stream")
def allocator_unregister(sim: Machine, stream: int) -> None:
    sim.area(Allocators).by_stream.pop(stream, None)
