"""Entry points: managed memory, which host and devices reach at one address. Nothing moves, so advice is only kept."""

from __future__ import annotations

from typing import Any, Optional

from ..engine import transfer
from ..engine.failures import RuntimeLayerError
from ..engine.machine import Machine
from ..engine.memory import MANAGED, Block, Memory
from ..engine.refusals import driver, out_of_range
from . import hostmem
from .registry import answers, require

_READ_MOSTLY, _NOT_READ_MOSTLY, _PREFER, _NOT_PREFER, _ACCESSED_BY, _NOT_ACCESSED_BY = range(6)
_ON_DEVICE = 1
_HOST_ID = -1  # of a location that is no device, in answers
_NOWHERE = (0, -2)
_NOTE = "assumption: error codes as in the neighbouring functions; nothing moves"


class Advice:
    """What the program said of one allocation. Locations are (type, id)."""

    def __init__(self) -> None:
        self.read_mostly = False
        self.preferred = self.prefetched = _NOWHERE
        self.accessed_by: set[int] = set()

    def value(self, attribute: int) -> Optional[int]:
        places = {2: self.preferred, 4: self.preferred, 5: self.preferred}
        places.update({6: self.prefetched, 7: self.prefetched, 8: self.prefetched})
        if attribute == 1:
            return int(self.read_mostly)
        if attribute not in places:
            return None
        kind, device = places[attribute]
        return kind if attribute in (4, 7) else device


def _managed(sim: Machine, ptr: int, size: int) -> Block:
    if not size:
        raise out_of_range(size, "size", "greater than 0")
    memory = sim.area(Memory)
    block: Optional[Block] = memory.find(ptr)
    if block is None or block.location != MANAGED or ptr + size > block.end:
        raise driver(f"There is no managed memory of {size} bytes at 0x{ptr:x}")
    return block


def _advice(block: Block) -> Advice:
    if block.note is None:
        block.note = Advice()
    found: Advice = block.note
    return found


def _location(sim: Machine, kind: int, device: int) -> tuple[int, int]:
    if not 0 < kind <= 4:
        raise out_of_range(kind, "location.type", "[1, 4]")
    if kind != _ON_DEVICE:
        return kind, _HOST_ID
    sim.device(device)
    return kind, device


@answers("aclrtMemManagedAdvise", required="ptr", partly=_NOTE)
def advise(sim: Machine, ptr: int, size: int, advice: int, location: Any) -> None:
    found = _advice(_managed(sim, ptr, size))
    if not 0 <= advice <= _NOT_ACCESSED_BY:
        raise out_of_range(advice, "advise", "[0, 5]")
    if advice in (_READ_MOSTLY, _NOT_READ_MOSTLY):
        found.read_mostly = advice == _READ_MOSTLY
    elif advice == _NOT_PREFER:
        found.preferred = _NOWHERE
    else:
        where = _location(sim, location.type, location.id)
        if advice == _PREFER:
            found.preferred = where
        elif advice == _ACCESSED_BY:
            found.accessed_by.add(where[1])
        else:
            found.accessed_by.discard(where[1])


def _write_attribute(block: Block, attribute: int, data: int, size: int) -> None:
    found = _advice(block)
    if attribute == 3:
        ids = (sorted(found.accessed_by) + [_NOWHERE[1]] * (size // 4))[: size // 4]
        for i, device in enumerate(ids):
            hostmem.write_i32(data + 4 * i, device)
        return
    value = found.value(attribute)
    if value is None:
        raise out_of_range(attribute, "attribute", "[1, 8]")
    if size != 4:
        raise RuntimeLayerError(107000, "EE1003", f"The data of attribute {attribute} has 4 bytes, {size} are given")
    hostmem.write_i32(data, value)


@answers("aclrtMemManagedGetAttr", required="ptr data", partly=_NOTE)
def get_attr(sim: Machine, attribute: int, ptr: int, size: int, data: int, data_size: int) -> None:
    _write_attribute(_managed(sim, ptr, size), attribute, data, data_size)


@answers("aclrtMemManagedGetAttrs", required="attributes ptr data data_sizes", partly=_NOTE)
def get_attrs(sim: Machine, attributes: int, count: int, ptr: int, size: int, data: int, data_sizes: int) -> None:
    block = _managed(sim, ptr, size)
    for i in range(count):
        target = hostmem.read_pointer(data + 8 * i)
        require(target, "data")
        _write_attribute(block, hostmem.read_u32(attributes + 4 * i), target, hostmem.read_u64(data_sizes + 8 * i))


@answers("aclrtMemManagedPrefetchAsync", required="ptr", partly=_NOTE)
def prefetch_async(sim: Machine, ptr: int, size: int, location: Any, flags: int, stream: int) -> None:
    if flags:
        raise out_of_range(flags, "flags", "0")
    block = _managed(sim, ptr, size)
    where = _location(sim, location.type, location.id)
    transfer.task_without_effect(sim, stream, "aclrtMemManagedPrefetchAsync", "Prefetch failed")
    _advice(block).prefetched = where


@answers("aclrtMemManagedPrefetchBatchAsync", required="ptrs sizes prefetch_locs prefetch_loc_idxs", partly=_NOTE)
def prefetch_batch_async(
    sim: Machine,
    ptrs: int,
    sizes: int,
    count: int,
    prefetch_locs: int,
    prefetch_loc_idxs: int,
    num_prefetch_locs: int,
    flags: int,
    stream: int,
) -> None:
    if flags:
        raise out_of_range(flags, "flags", "0")
    if not count:
        raise out_of_range(count, "count", "greater than 0")
    starts = [hostmem.read_u64(prefetch_loc_idxs + 8 * i) for i in range(num_prefetch_locs)]
    transfer.check_batch(count, starts, num_prefetch_locs)
    blocks = [_managed(sim, hostmem.read_pointer(ptrs + 8 * i), hostmem.read_u64(sizes + 8 * i)) for i in range(count)]
    where = [
        _location(sim, hostmem.read_u32(prefetch_locs + 8 * i), hostmem.read_i32(prefetch_locs + 8 * i + 4))
        for i in range(num_prefetch_locs)
    ]
    transfer.task_without_effect(sim, stream, "aclrtMemManagedPrefetchBatchAsync", "Prefetch failed")
    for i, block in enumerate(blocks):
        _advice(block).prefetched = where[max(k for k, start in enumerate(starts) if start <= i)]
