"""What the hazard checker knows of memory: who touched it, who will, and which bytes are initialised."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Optional

from .clocks import History
from .memory import DEVICE, FREEABLE, HOST, MAPPING, Block, Memory, Store
from .mempool import KIND as POOL
from .operation import Access, Operation, Range
from .ranges import Ranges

if TYPE_CHECKING:
    from .pinned import Watch

#: ranges of one operation that are looked at: rows of a copy, pieces of a kernel's accesses
MOST_RANGES = 1024
#: ranges of initialised bytes of an allocation, beyond which all of it counts as initialised
MOST_KNOWN = 2048
_PENDING = 1024
_LATEST = 256
_TRACKED = FREEABLE | {POOL, MAPPING}


class Shadow:
    """What is known of the bytes of one store. Several allocations may share a store.

    Attributes
    ----------
    history : History
        Who touched it, by offsets in the store; of the epoch `epoch`.
    known : Ranges or None
        What is initialised; None: everything.
    pending : dict
        Operations that will touch it, as far as one can tell before they run.
    watches : list
        Pieces of it that a copy needs unchanged; only in memory of the host.
    """

    __slots__ = ("store", "history", "epoch", "known", "pending", "watches", "of_host")

    def __init__(self, store: Store, known: Ranges | None, of_host: bool) -> None:
        self.store = store
        self.history = History()
        self.epoch = 0
        self.known = known
        self.pending: dict[Operation, None] = {}
        self.watches: list[Watch] = []
        self.of_host = of_host

    def expect(self, operation: Operation) -> None:
        """An operation will touch it."""
        pending = self.pending
        pending[operation] = None
        if len(pending) % _PENDING == 0:
            for other in [other for other in pending if other.done or other.dropped]:
                del pending[other]

    def latest(self) -> list[Operation]:
        """The latest of the pending operations. (Of those before them, conflicts show when they run.)"""
        return list(islice(reversed(self.pending), _LATEST))

    def know(self, low: int, high: int) -> None:
        """These bytes are initialised."""
        if self.known is not None:
            self.known.add(low, high)
            if len(self.known.edges) > 2 * MOST_KNOWN:
                self.known = None


# shadow, first byte and end in its store, the allocation
Spot = tuple[Shadow, int, int, Optional[Block]]
# the same, is it written, is this exactly what will happen
Span = tuple[Shadow, int, int, Optional[Block], bool, bool]


class Shadows:
    """The shadows of all memory of a machine."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._regions: dict[int, Shadow] = {}  # memory that the program registered and no device has an address of

    def of(self, block: Block) -> Shadow:
        """The shadow of an allocation."""
        store = block.store or block.contents()
        shadow: Shadow | None = store.shadow
        if shadow is None:
            # the host may have written to memory that it can reach
            fresh = block.location == DEVICE and block.kind in _TRACKED
            shadow = store.shadow = Shadow(store, Ranges() if fresh else None, block.location == HOST)
        return shadow

    def find(self, address: int, nbytes: int) -> Iterable[Spot]:
        """Where a range of addresses lies; nothing for memory of the program that no device reaches."""
        block = self.memory.find(address)
        if block is None:
            return self._registered(address, nbytes)
        store = block.store or block.contents()
        low = address - block.base + block.offset
        if address + nbytes <= block.end:
            return ((store.shadow or self.of(block), low, low + nbytes, block),)
        found: list[Spot] = []
        while block is not None and nbytes > 0:  # mappings side by side
            part = min(nbytes, block.end - address)
            low = address - block.base + block.offset
            found.append((self.of(block), low, low + part, block))
            address, nbytes = address + part, nbytes - part
            block = self.memory.find(address)
        return found

    def _registered(self, address: int, nbytes: int) -> Iterable[Spot]:
        registered = self.memory.registered
        if not registered.contains(address):
            return ()
        for table in (registered.mapped, registered.pinned):
            for start, last in table.items():
                if start <= address <= last:
                    pointer = registered.pointers.get(start)
                    block = self.memory.blocks.at(pointer) if pointer is not None else None
                    shadow = self.of(block) if block is not None else self._region(start, last + 1 - start)
                    return ((shadow, address - start, min(address + nbytes, last + 1) - start, block),)
        return ()

    def _region(self, start: int, size: int) -> Shadow:
        shadow = self._regions.get(start)
        if shadow is None or shadow.store.size != size:
            store = Store(size, self.memory.host.view(start, size))
            shadow = self._regions[start] = Shadow(store, None, True)
        return shadow

    def spans(self, access: Access) -> list[Span]:
        """Where the ranges of an access lie."""
        return [
            (*spot, write, True)
            for write, ranges in ((False, access.reads), (True, access.writes))
            for address, nbytes in ranges[:MOST_RANGES]
            for spot in self.find(address, nbytes)
        ]

    def initialize(self, access: Access, copies: bool) -> None:
        """What is written is initialised; of a copy, as far as the original is."""
        for address, nbytes in access.writes[:MOST_RANGES]:
            for shadow, low, high, _ in self.find(address, nbytes):
                if shadow.known is None:
                    continue
                shadow.know(low, high)
                if copies and len(access.reads) == len(access.writes) == 1 and shadow.known is not None:
                    for start, end in self._unknown(access.reads[0]):
                        shadow.known.remove(low + start, min(low + end, high))

    def _unknown(self, extent: Range) -> list[tuple[int, int]]:
        """What of a range of addresses is not initialised, counted from its start."""
        found: list[tuple[int, int]] = []
        begin = 0
        for shadow, low, high, _ in self.find(*extent):
            if shadow.known is not None and not shadow.known.covers(low, high):
                found.extend((begin + s - low, begin + e - low) for s, e in shadow.known.missing(low, high))
            begin += high - low
        return found
