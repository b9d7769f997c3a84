"""Memory: addresses, what lies behind them, how much a device has. Virtual memory is in vmm.py, pools in mempool.py.

Device memory has addresses in a window that no program maps, so the host cannot read it; its bytes live in buffers of
the host that are made when they are first touched. Addresses are not used again soon, so a pointer that was freed stays
recognisable.
"""

from __future__ import annotations

import mmap
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, Optional

import numpy as np

from . import places
from .device import DRIVER_ERROR
from .failures import RuntimeLayerError, UndefinedBehavior
from .handles import FIRST, NO_MEMORY
from .operation import Access

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .device import Device
    from .machine import Machine

    Bytes = NDArray[np.uint8]

# Assumption: the windows are ours. The first is where the driver of a 910B puts device memory.
WINDOW = 0x12C0_0000_0000  # device memory: one piece a device
WINDOW_STEP = 1 << 40
LOWEST = WINDOW - (1 << 30)  # a little below is no memory of the host either
ELSEWHERE = 0x2C00_0000_0000  # device addresses of host memory, managed, reserved and imported memory
WINDOW_END = 0x5000_0000_0000
GRAIN = 512  # every allocation starts on a multiple of this, and at least one grain is free behind it
PAGE = 4096
HUGE_PAGE = 2 << 20
GIANT_PAGE = 1 << 30
# What untouched memory holds: a NaN in every floating type, -1 in every signed integer.
PATTERN = 0xFF

# kinds of location, as aclrtMemLocationType has them
HOST, DEVICE, UNREGISTERED, MANAGED = 0, 1, 2, 3
_CHUNK = 1 << 20
_LONG = 1 << 18  # copies of so many bytes are made without the engine lock
_REMEMBER = 1024  # freed blocks of which we still know where they were freed
_QUARANTINE = 64 << 20  # bytes of freed host memory kept mapped, so that a late copy finds our memory and not another's
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def _commit(size: int) -> Bytes:
    """Bytes of the host, not touched yet. Large ones take no memory until written to."""
    if size >= GIANT_PAGE and sys.platform.startswith("linux"):
        region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            region.madvise(mmap.MADV_HUGEPAGE)
        return np.frombuffer(region, np.uint8)
    return np.empty(size, np.uint8)


class Store:
    """The bytes behind an allocation. `real` is where the host has them."""

    __slots__ = ("size", "array", "real", "fresh", "left", "shadow")

    def __init__(self, size: int, array: Optional[Bytes] = None) -> None:
        self.size = size
        self.shadow: Any = None  # what the hazard checker knows of the bytes
        self.fresh: Optional[bytearray] = None  # a byte for each chunk that still lacks the pattern
        self.left = 0
        if array is None:
            array = _commit(size)
            if size <= _CHUNK:
                array.fill(PATTERN)
            else:
                self.left = (size + _CHUNK - 1) // _CHUNK
                self.fresh = bytearray(b"\1") * self.left
        self.array: Bytes = array
        self.real: int = array.__array_interface__["data"][0]

    def prepare(self, start: int, end: int, overwritten: bool) -> None:
        """Put the pattern into the untouched chunks of [start, end), save those that will be overwritten whole."""
        fresh = self.fresh
        if fresh is None:
            return
        first, last = start // _CHUNK, (end - 1) // _CHUNK
        for chunk in range(first, last + 1):
            if not fresh[chunk]:
                continue
            fresh[chunk] = 0
            self.left -= 1
            low, high = chunk * _CHUNK, min((chunk + 1) * _CHUNK, self.size)
            if not (overwritten and start <= low and high <= end):
                self.array[low:high] = PATTERN
        if not self.left:
            self.fresh = None


class Block:
    """A range of addresses that a program may use, and how it came to be."""

    __slots__ = (
        "base",
        "size",
        "end",
        "requested",
        "location",
        "device",
        "page",
        "cost",
        "kind",
        "place",
        "gone",
        "store",
        "offset",
        "note",
    )

    def __init__(
        self, base: int, size: int, requested: int, location: int, device: int, page: int, cost: int, kind: str
    ) -> None:
        self.base = base
        self.size = size  # what may be used
        self.end = base + size
        self.requested = requested  # what the program asked for
        self.location = location
        self.device = device
        self.page = page
        self.cost = cost  # what it takes of the device's memory
        self.kind = kind  # the function that made it
        self.place: places.Place = None
        self.gone: places.Place = None  # where it was freed
        self.store: Optional[Store] = None
        self.offset = 0  # where its bytes start in the store
        self.note: Any = None  # whatever the kind needs to remember

    def contents(self) -> Store:
        store = self.store
        if store is None:
            store = self.store = Store(self.size)
        return store

    def describe(self) -> str:
        return f"0x{self.base:x}, {self.requested} bytes, of {self.kind} at {places.describe(self.place)}"

    def __repr__(self) -> str:
        return f"<{self.size} bytes at 0x{self.base:x}>"


class BlockTable:
    """Blocks by address. Interior addresses are found too."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._blocks: dict[int, Block] = {}

    def __len__(self) -> int:
        return len(self._bases)

    def __iter__(self) -> Iterator[Block]:
        return iter([self._blocks[base] for base in self._bases])

    def add(self, block: Block) -> None:
        bases = self._bases
        if bases and block.base < bases[-1]:
            bases.insert(bisect_right(bases, block.base), block.base)
        else:
            bases.append(block.base)
        self._blocks[block.base] = block

    def at(self, base: int) -> Optional[Block]:
        """The block that starts here."""
        return self._blocks.get(base)

    def remove(self, base: int) -> Block:
        bases = self._bases
        if bases[-1] == base:
            bases.pop()
        else:
            del bases[bisect_right(bases, base) - 1]
        return self._blocks.pop(base)

    def around(self, address: int) -> Optional[Block]:
        """The block that contains the address."""
        block = self._blocks.get(address)
        if block is not None:
            return block
        index = bisect_right(self._bases, address) - 1
        if index < 0:
            return None
        block = self._blocks[self._bases[index]]
        return block if address < block.end else None

    def after(self, address: int) -> Optional[Block]:
        """The first block that starts above the address."""
        index = bisect_right(self._bases, address)
        return self._blocks[self._bases[index]] if index < len(self._bases) else None


class Window:
    """Hands out address ranges of one piece of the address space, rising; after the end it starts again at gaps."""

    def __init__(self, low: int, high: int, table: BlockTable) -> None:
        self.low = low
        self.high = high
        self._next = low
        self._table = table

    def take(self, size: int, align: int = GRAIN) -> int:
        base = -(-self._next // align) * align
        end = base + size
        if end > self.high:
            return self._search(size, align)
        self._next = -(-(end + 1) // GRAIN) * GRAIN  # at least a byte free behind, so that one step too far is seen
        return base

    def _search(self, size: int, align: int) -> int:
        base = self.low
        while True:
            base = -(-base // align) * align
            if base + size > self.high:
                raise RuntimeLayerError(207001, "EE9999", f"No address range of {size} bytes is free")
            inside = self._table.around(base)
            if inside is None:
                following = self._table.after(base)
                if following is None or base + size < following.base:
                    self._next = -(-(base + size + 1) // GRAIN) * GRAIN
                    return base
                inside = following
            base = inside.end + 1


class _NoHost:
    """Stands where the bridge puts its access to host memory."""

    def _refuse(self, *arguments: int) -> Any:
        raise RuntimeError("this machine was made without access to host memory")

    move = fill = view = _refuse


class Memory:
    """All memory of one machine.

    Attributes
    ----------
    host : access to memory of the host by address: `move(dst, src, n)`, `fill(address, byte, n)`, `view(address, n)`;
        the bridge sets it
    blocks : device memory and everything else in the device window
    pinned : memory of aclrtMallocHost
    used, peak : bytes taken, by device
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.capacity = machine.memory_bytes
        self.host: Any = machine.host if machine.host is not None else _NoHost()
        self.blocks = BlockTable()
        self.pinned = BlockTable()
        self.used: dict[int, int] = {}
        self.peak: dict[int, int] = {}
        self._windows: dict[int, Window] = {}
        self.elsewhere = Window(ELSEWHERE, WINDOW_END, self.blocks)
        self._freed: deque[Block] = deque(maxlen=_REMEMBER)
        self._kept: deque[Block] = deque()  # freed host memory, still mapped
        self._kept_bytes = 0
        self.registered = Registered()
        # called with (block) when set: what a hazard checker or a leak report wants to know
        self.on_allocated: Optional[Callable[[Block], None]] = None
        self.on_freed: Optional[Callable[[Block], None]] = None
        # called with (block, call) before the program gives memory back
        self.on_freeing: Optional[Callable[[Block, str], None]] = None
        # called with (call, access) for what the calling host thread itself reads and writes, at once
        self.on_access: Optional[Callable[[str, Access], None]] = None
        for device in machine.devices:
            device.when_closed.append(self.device_closed)

    # -- device memory -----------------------------------------------------------------------------------------
    def allocate(
        self,
        device: int,
        size: int,
        requested: int,
        page: int = 0,
        kind: str = "aclrtMalloc",
        location: int = DEVICE,
        free_of_charge: bool = False,
    ) -> Block:
        """Memory of a device; 207001 if it has not enough.

        page : bytes of a page; 0: huge pages above a megabyte, normal ones below, as the driver does by default
        """
        if self.machine.devices[device].lost:
            raise self.machine.devices[device].gone(DRIVER_ERROR)
        page = page or (HUGE_PAGE if size > _CHUNK else PAGE)
        cost = 0 if free_of_charge else -(-size // page) * page
        used = self.used.get(device, 0) + cost
        if used > self.capacity:
            raise RuntimeLayerError(
                207001,
                "EL0004",
                f"Failed to allocate {size} bytes: device {device} has {self.capacity - used + cost} bytes free",
            )
        window = self._windows.get(device)
        if window is None:
            low = WINDOW + device * WINDOW_STEP
            window = self._windows[device] = Window(low, low + WINDOW_STEP, self.blocks)
        block = Block(
            window.take(size, page if page > PAGE else GRAIN), size, requested, location, device, page, cost, kind
        )
        self.used[device] = used
        if used > self.peak.get(device, 0):
            self.peak[device] = used
        return self.add(block)

    def add(self, block: Block) -> Block:
        """Make a block known."""
        block.place = places.caller()
        self.blocks.add(block)
        if self.on_allocated is not None:
            self.on_allocated(block)
        return block

    def drop(self, block: Block) -> None:
        """Take a block of the device window out and give its memory back."""
        self.blocks.remove(block.base)
        self.used[block.device] = self.used.get(block.device, 0) - block.cost
        block.gone = places.caller()
        block.store = None
        self._freed.append(block)
        if self.on_freed is not None:
            self.on_freed(block)

    def free(self, address: int) -> None:
        """aclrtFree: the start of an allocation that may be freed so. Memory of aclrtMallocHost is taken too."""
        block = self.blocks.at(address)
        if block is not None and block.kind in FREEABLE:
            if self.on_freeing is not None:
                self.on_freeing(block, "aclrtFree")
            self.drop(block)
            return
        block = self.pinned.at(address)
        if block is not None:
            if self.on_freeing is not None:
                self.on_freeing(block, "aclrtFree")
            self._drop_pinned(self.pinned.remove(address))
            return
        raise RuntimeLayerError(107000, "EE9999", "halMemFree failed: " + self.why_not(address))

    def device_closed(self, device: Device) -> None:
        """A device that closes gives all its memory back."""
        for block in self.blocks:
            if block.device == device.index and block.location == DEVICE:
                self.drop(block)

    def free_bytes(self, device: int) -> int:
        return self.capacity - self.used.get(device, 0)

    # -- pinned host memory ------------------------------------------------------------------------------------
    def allocate_pinned(
        self, device: int, size: int, requested: int, kind: str = "aclrtMallocHost", location: int = HOST
    ) -> Block:
        """Memory of the host that the device reaches (page-locked, or managed); 207001 if the host has not enough."""
        try:
            array = _commit(size + PAGE)
        except (MemoryError, OverflowError, ValueError, OSError):
            raise RuntimeLayerError(207001, "EL0004", f"Failed to allocate {size} bytes of host memory") from None
        pad = -array.__array_interface__["data"][0] % PAGE
        store = Store(size, array[pad : pad + size])
        if size <= _CHUNK:
            store.array.fill(PATTERN)
        block = Block(store.real, size, requested, location, device, PAGE, 0, kind)
        block.store = store
        block.place = places.caller()
        self.pinned.add(block)
        if self.on_allocated is not None:
            self.on_allocated(block)
        return block

    def free_pinned(self, address: int) -> None:
        """aclrtFreeHost."""
        block = self.blocks.around(address) if LOWEST <= address < WINDOW_END else None
        if block is not None:
            if block.location != HOST:
                raise RuntimeLayerError(
                    107000, "EE1001", f"The address 0x{address:x} is not host memory: {block.describe()}"
                )
            raise RuntimeLayerError(107000, "EE9999", "halMemFree failed: " + self.why_not(address))
        block = self.pinned.at(address)
        if block is None:
            raise RuntimeLayerError(107000, "EE9999", "halMemFree failed: " + self.why_not(address))
        if self.on_freeing is not None:
            self.on_freeing(block, "aclrtFreeHost")
        self._drop_pinned(self.pinned.remove(address))

    def _drop_pinned(self, block: Block) -> None:
        block.gone = places.caller()
        self._kept.append(block)
        self._kept_bytes += block.size
        while self._kept_bytes > _QUARANTINE or len(self._kept) > _REMEMBER:
            self._kept_bytes -= self._kept.popleft().size
        if self.on_freed is not None:
            self.on_freed(block)

    # -- host memory that the program registered ---------------------------------------------------------------
    def map_host(self, address: int, size: int, device: int) -> int:
        """An address under which a device reaches memory of the program."""
        block = Block(self.elsewhere.take(size, PAGE), size, size, HOST, device, PAGE, 0, "aclrtHostRegister")
        block.store = Store(size, self.host.view(address, size))
        return self.add(block).base

    def unregister(self, address: int) -> bool:
        """Forget registered memory that starts here; False if there is none."""
        known = address in self.registered.mapped
        if known:
            block = self.blocks.at(self.registered.pointers[address])
            if block is not None:
                if self.on_freeing is not None:
                    self.on_freeing(block, "aclrtHostUnregister")
                self.drop(block)
            del self.registered.pointers[address], self.registered.mapped[address]
        self.registered.places.pop(address, None)
        return (self.registered.pinned.pop(address, None) is not None) or known

    # -- what an address is ------------------------------------------------------------------------------------
    def find(self, address: int) -> Optional[Block]:
        """The block that contains the address; None: memory of the program itself, or nothing."""
        if LOWEST <= address < WINDOW_END:
            return self.blocks.around(address)
        return self.pinned.around(address) if self.pinned._bases else None

    def locate(self, address: int) -> tuple[int, int, int]:
        """(location, device, bytes of a page) of an address: what aclrtPointerGetAttributes says."""
        block = self.find(address)
        if block is not None:
            return block.location, block.device if block.location in (DEVICE, MANAGED) else 0, block.page
        if LOWEST <= address < WINDOW_END:
            # Assumption: the driver does not know the address any more.
            raise RuntimeLayerError(107000, "EE9999", "drvMemGetAttribute failed: " + self.why_not(address))
        return (HOST if self.registered.contains(address) else UNREGISTERED), 0, 0

    def why_not(self, address: int) -> str:
        """What is wrong with an address that cannot be used."""
        block = self.find(address)
        if block is not None:
            if address == block.base:
                return f"0x{address:x} is {block.describe()}"
            return f"0x{address:x} lies {address - block.base} bytes inside of an allocation ({block.describe()})"
        gone = self.freed(address)
        if gone is not None:
            return f"0x{address:x} was freed at {places.describe(gone.gone)} ({gone.describe()})"
        return f"0x{address:x} is no address of an allocation"

    def freed(self, address: int) -> Optional[Block]:
        """The freed block that contained the address, if it is remembered and nothing else is there now."""
        if self.find(address) is not None:
            return None
        for table in (self._freed, self._kept):
            for gone in reversed(table):
                if gone.base <= address < gone.end:
                    return gone
        return None

    # -- bytes -------------------------------------------------------------------------------------------------
    def real(self, address: int, nbytes: int, overwritten: bool, call: str) -> int:
        """Where the host has the bytes at an address. UndefinedBehavior if they do not all belong to one allocation.

        overwritten : all of them will be written, none read
        """
        if LOWEST <= address < WINDOW_END:
            block = self.blocks.around(address)
            if block is None or address + nbytes > block.end:
                raise self._stray(address, nbytes, block, call)
            store = block.store or block.contents()
            start = address - block.base + block.offset
            if store.fresh is not None:
                store.prepare(start, start + nbytes, overwritten)
            return store.real + start
        if self.pinned._bases:
            block = self.pinned.around(address)
            if block is not None:
                if address + nbytes > block.end:
                    raise self._stray(address, nbytes, block, call)
                return address
        if self._kept:
            for gone in self._kept:
                if gone.base < address + nbytes and address < gone.end:
                    raise self._stray(address, nbytes, None, call)
        if not NO_MEMORY <= address < FIRST:
            raise UndefinedBehavior(f"{call}: there is no memory at 0x{address:x}")
        return address

    def _stray(self, address: int, nbytes: int, block: Optional[Block], call: str) -> UndefinedBehavior:
        if block is not None:
            return UndefinedBehavior(
                f"{call}: {nbytes} bytes at 0x{address:x} reach {address + nbytes - block.end} bytes beyond the end "
                f"of an allocation ({block.describe()})"
            )
        return UndefinedBehavior(f"{call}: {self.why_not(address)}")

    def pieces(self, address: int, nbytes: int, overwritten: bool, call: str) -> list[tuple[int, int]]:
        """Like `real`, as (host address, bytes) pieces: mappings of different memory may lie side by side."""
        found = []
        while nbytes > 0:
            block = self.find(address)
            part = nbytes
            if block is not None and block.kind == MAPPING:
                part = min(nbytes, block.end - address)
            found.append((self.real(address, part, overwritten, call), part))
            address += part
            nbytes -= part
        return found

    def check(self, address: int, nbytes: int, call: str) -> None:
        """UndefinedBehavior if the bytes are not all allocated: for a call that queues work on them."""
        if LOWEST <= address < WINDOW_END:
            block = self.blocks.around(address)
            if block is None or address + nbytes > block.end:
                if block is not None and block.kind == MAPPING:
                    end = address + nbytes
                    while block is not None and block.kind == MAPPING and block.end < end:
                        block = self.blocks.at(block.end)
                    if block is not None and block.kind == MAPPING:
                        return
                raise self._stray(address, nbytes, block, call)
        else:
            self.real(address, nbytes, True, call)

    def pageable(self, address: int) -> bool:
        """Ordinary memory of the program, which the device cannot reach by itself."""
        return (
            not LOWEST <= address < WINDOW_END and self.find(address) is None and not self.registered.contains(address)
        )

    def copy(self, dst: int, src: int, nbytes: int, call: str) -> None:
        """Copy bytes between any two addresses; the ranges may overlap. A long copy gives the lock back meanwhile."""
        try:
            source = self.real(src, nbytes, False, call)
            target = self.real(dst, nbytes, True, call)
        except UndefinedBehavior:
            self._copy_pieces(dst, src, nbytes, call)
            return
        if nbytes < _LONG:
            self.host.move(target, source, nbytes)
            return
        # another thread may free a block meanwhile: its bytes must stay where they are until the copy is over
        blocks = [block for block in (self.find(dst), self.find(src)) if block is not None]
        kept = [block.store for block in blocks]
        with self.machine.unlocked():
            self.host.move(target, source, nbytes)
        del kept

    def _copy_pieces(self, dst: int, src: int, nbytes: int, call: str) -> None:
        sources = self.pieces(src, nbytes, False, call)
        targets = self.pieces(dst, nbytes, True, call)
        while sources:
            (source, have), (target, room) = sources[0], targets[0]
            part = min(have, room)
            self.host.move(target, source, part)
            for pieces, start, left in ((sources, source, have), (targets, target, room)):
                if left == part:
                    pieces.pop(0)
                else:
                    pieces[0] = (start + part, left - part)

    def fill(self, address: int, byte: int, nbytes: int, call: str) -> None:
        """Set bytes at any address."""
        for target, part in self.pieces(address, nbytes, True, call):
            self.host.fill(target, byte, part)

    def read(self, address: int, nbytes: int, call: str = "") -> bytes:
        """A copy of the bytes at any address."""
        return b"".join(
            self.host.view(source, part).tobytes() for source, part in self.pieces(address, nbytes, False, call)
        )

    def write(self, address: int, data: bytes, call: str = "") -> None:
        """Put bytes at any address."""
        at = 0
        for target, part in self.pieces(address, len(data), True, call):
            self.host.view(target, part)[:] = np.frombuffer(data, np.uint8, part, at)
            at += part

    def view(self, address: int, nbytes: int, call: str = "") -> Bytes:
        """The bytes at any address as a writable array: what a kernel works on. They must lie in one allocation."""
        if LOWEST <= address < WINDOW_END:
            block = self.blocks.around(address)
            if block is not None and address + nbytes <= block.end:
                store = block.contents()
                start = address - block.base + block.offset
                if store.fresh is not None and nbytes:
                    store.prepare(start, start + nbytes, False)
                return store.array[start : start + nbytes]
            raise self._stray(address, nbytes, block, call)
        view: Bytes = self.host.view(self.real(address, nbytes, False, call), nbytes)
        return view


# what `Block.kind` can be beyond the functions of FREEABLE
MAPPING = "aclrtMapMem"
FREEABLE = frozenset(
    (
        "aclrtMalloc",
        "aclrtMallocAlign32",
        "aclrtMallocCached",
        "aclrtMallocWithCfg",
        "aclrtMallocForTaskScheduler",
        "aclrtMemAllocManaged",
        "rtMalloc",
    )
)


class Registered:
    """Memory of the program that aclrtHostRegister made known, as the runtime library keeps it."""

    def __init__(self) -> None:
        self.pinned: dict[int, int] = {}
        self.mapped: dict[int, int] = {}
        self.pointers: dict[int, int] = {}  # start -> address for the device
        self.places: dict[int, places.Place] = {}  # start -> where it was registered

    def contains(self, address: int) -> bool:
        if not self.pinned and not self.mapped:
            return False
        return any(start <= address <= last for table in (self.pinned, self.mapped) for start, last in table.items())

    def overlaps(self, start: int, size: int) -> bool:
        end = start + size - 1
        return any(low <= end and last >= start for table in (self.pinned, self.mapped) for low, last in table.items())

    def pin(self, start: int, size: int) -> None:
        self.pinned.setdefault(start, start + size - 1)
        self.places[start] = places.caller()

    def map(self, start: int, size: int, pointer: int) -> None:
        self.mapped.setdefault(start, start + size - 1)
        self.places[start] = places.caller()
        self.pointers.setdefault(start, pointer)
