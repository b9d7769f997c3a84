"""Memory pools: device memory that is taken and given back in the order of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .failures import RuntimeLayerError, UndefinedBehavior
from .handles import HandleTable
from .memory import GRAIN, HUGE_PAGE, Block, Memory
from .operation import Access, Operation
from .refusals import driver, invalid, silent

if TYPE_CHECKING:
    from .device import Device
    from .machine import Machine
    from .stream import Stream

(FOLLOW_EVENTS, OPPORTUNISTIC, INTERNAL, RELEASE_THRESHOLD, RESERVED_NOW, RESERVED_HIGH, USED_NOW, USED_HIGH) = range(
    1, 9
)
_SWITCHES = (FOLLOW_EVENTS, OPPORTUNISTIC, INTERNAL)
INTERNAL_ERROR = 507000
KIND = "aclrtMemPoolMallocAsync"


class Pool:
    """One pool: what it may take at most, what it has taken from the device, what of that is in use."""

    def __init__(self, device: int, size: int) -> None:
        self.device = device
        self.size = size
        self.switches: dict[int, int] = dict.fromkeys(_SWITCHES, 1)
        self.threshold = 0
        self.reserved = self.reserved_high = 0
        self.used = self.used_high = 0
        self.free: list[tuple[int, int]] = []  # (size, address) of pieces that were taken and are not in use

    def attribute(self, which: int) -> int:
        if which in self.switches:
            return self.switches[which]
        try:
            return {
                RELEASE_THRESHOLD: self.threshold,
                RESERVED_NOW: self.reserved,
                RESERVED_HIGH: self.reserved_high,
                USED_NOW: self.used,
                USED_HIGH: self.used_high,
            }[which]
        except KeyError:
            raise driver(f"The pool attribute {which} is not known", INTERNAL_ERROR) from None

    def set_attribute(self, which: int, value: int) -> None:
        if which in self.switches:
            self.switches[which] = int(value != 0)
        elif which == RELEASE_THRESHOLD:
            if value > self.size:
                raise driver(f"The threshold {value} is above the size of the pool, {self.size}", INTERNAL_ERROR)
            self.threshold = value
        elif which in (RESERVED_HIGH, USED_HIGH):
            if value:
                raise driver("A high-water mark can only be set to 0", INTERNAL_ERROR)
            if which == RESERVED_HIGH:
                self.reserved_high = 0
            else:
                self.used_high = 0
        else:
            raise driver(f"The pool attribute {which} is not known", INTERNAL_ERROR)


class GiveBack(Operation):
    """The end of a piece of pool memory, in the order of a stream."""

    __slots__ = ("pools", "block")

    def __init__(self, pools: Pools, block: Block) -> None:
        super().__init__("aclrtMemPoolFreeAsync", Access((), ((block.base, block.size),)))
        self.pools = pools
        self.block = block

    def start(self, machine: Machine) -> bool:
        self.pools.give_back(self.block)
        return True


class Pools:
    """The pools of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.memory = machine.area(Memory)
        self.table: HandleTable[Pool] = HandleTable("memory pool")
        for device in machine.devices:
            device.when_closed.append(self.device_closed)

    def create(self, device: int, size: int) -> int:
        """A pool of at most `size` bytes; 0 stands for all that the device has."""
        capacity = self.memory.capacity
        size = capacity // HUGE_PAGE * HUGE_PAGE if not size else -(-size // HUGE_PAGE) * HUGE_PAGE
        if size > capacity:
            raise driver(f"The pool of {size} bytes exceeds the memory of the device, {capacity} bytes", 207001)
        return self.table.add(Pool(device, size))

    def find(self, handle: int) -> Pool:
        pool = self.table.find(handle)
        if pool is None:
            raise invalid("The memory pool is not known: " + self.table.why_not(handle))
        return pool

    def destroy(self, handle: int) -> None:
        pool = self.table.find(handle)
        if pool is None:
            raise driver("The memory pool is not known: " + self.table.why_not(handle), INTERNAL_ERROR)
        self.table.remove(handle)
        self._return(pool, 0)

    def set_attribute(self, handle: int, which: int, value: int) -> None:
        self.find(handle).set_attribute(which, value)

    def allocate(self, handle: int, size: int) -> int:
        """A piece of a pool: memory that was given back to it before, or more from the device."""
        pool = self.find(handle)
        if not size:
            raise silent()
        rounded = -(-size // GRAIN) * GRAIN
        reuse = next((i for i, (have, _) in enumerate(sorted(pool.free)) if have >= rounded), None)
        if reuse is not None:
            pool.free.sort()
            cost = pool.free.pop(reuse)[0]
        else:
            if pool.reserved + rounded > pool.size:
                raise driver(f"The pool has {pool.size - pool.reserved} bytes left, {size} wanted", 207001)
            cost = rounded
            self._charge(pool, cost)
        memory = self.memory
        window_block = memory.allocate(pool.device, rounded, size, kind=KIND, free_of_charge=True)
        window_block.note = (pool, cost)
        pool.used += cost
        pool.used_high = max(pool.used_high, pool.used)
        return window_block.base

    def _charge(self, pool: Pool, cost: int) -> None:
        memory, device = self.memory, pool.device
        used = memory.used.get(device, 0) + cost
        if used > memory.capacity:
            raise RuntimeLayerError(207001, "EL0004", f"Failed to allocate {cost} bytes for a memory pool")
        memory.used[device] = used
        memory.peak[device] = max(used, memory.peak.get(device, 0))
        pool.reserved += cost
        pool.reserved_high = max(pool.reserved_high, pool.reserved)

    def free_later(self, address: int, stream: Stream) -> None:
        """aclrtMemPoolFreeAsync: the memory stays until the stream has come so far."""
        block = self.memory.blocks.at(address)
        if block is None or block.kind != KIND:
            raise driver("The address belongs to no memory pool: " + self.memory.why_not(address), INTERNAL_ERROR)
        stream.submit(GiveBack(self, block))

    def give_back(self, block: Block) -> None:
        if block.gone is not None or self.memory.blocks.at(block.base) is not block:
            raise UndefinedBehavior("aclrtMemPoolFreeAsync: " + self.memory.why_not(block.base))
        pool, cost = block.note
        self.memory.drop(block)
        pool.used -= cost
        pool.free.append((cost, block.base))
        self._return(pool, max(pool.threshold, pool.used))

    def trim(self, handle: int, keep: int) -> None:
        """Return unused memory to the device until the pool holds no more than `keep` bytes."""
        self._return(self.find(handle), keep)

    def _return(self, pool: Pool, keep: int) -> None:
        while pool.free and pool.reserved > keep:
            cost, _ = pool.free.pop()
            pool.reserved -= cost
            self.memory.used[pool.device] -= cost

    def device_closed(self, device: Device) -> None:
        for handle, pool in self.table.items():
            if pool.device == device.index:
                pool.used = 0
                self.memory.used[device.index] -= pool.reserved
                self.table.remove(handle)
