"""Virtual memory: reserved addresses, physical memory by handle, mappings, sharing by handle and by key."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple, Optional

from . import places
from .failures import RuntimeLayerError
from .handles import HandleTable
from .memory import DEVICE, GIANT_PAGE, HOST, HUGE_PAGE, MAPPING, PAGE, Block, BlockTable, Memory, Store
from .refusals import driver

if TYPE_CHECKING:
    from .device import Device
    from .machine import Machine

NONE, READ, READ_WRITE = 0, 1, 3  # aclrtMemAccessFlags
_SHAREABLE = itertools.count(0x5A00_0000_0001)
_KEYS = itertools.count(1)
KEY_LENGTH = 65  # bytes of a key with its final zero


class Physical:
    """Physical memory that has no address yet."""

    def __init__(
        self, size: int, location: tuple[int, int], attribute: int, reserve: int, page: int, cost: int
    ) -> None:
        self.size = size
        self.location = location  # (type, id) as the program gave it
        self.attribute = attribute  # aclrtMemAttr, as it is reported back
        self.reserve = reserve
        self.page = page
        self.cost = cost  # what it takes of its device
        self.users = 1  # the handle itself, imports and retained handles
        self.mapped = 0
        self.shareable: Optional[int] = None
        self._store: Optional[Store] = None

    def store(self) -> Store:
        if self._store is None:
            self._store = Store(self.size)
        return self._store


class Exported(NamedTuple):
    """Device memory that has a key."""

    block: Block
    offset: int
    size: int


class VirtualMemory:
    """Reservations, physical memory and mappings of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.memory = machine.area(Memory)
        self.reserved = BlockTable()
        self.physical: HandleTable[Physical] = HandleTable("handle of physical memory")
        self.shareable: dict[int, Physical] = {}
        self.access: dict[tuple[int, int, int], int] = {}  # (start of a mapping, location type, id) -> flags
        self.keys: dict[str, Exported] = {}
        self.imported: dict[int, str] = {}  # address -> key
        for device in machine.devices:
            device.when_closed.append(self.device_closed)

    # ---- address ranges ----------------------------------------------------------------------------------

    def reserve(self, size: int) -> int:
        """A range of addresses, in whole huge pages."""
        size = -(-size // HUGE_PAGE) * HUGE_PAGE
        base = self.memory.elsewhere.take(size, HUGE_PAGE)
        # the window does not know of reservations: keep a whole page between this one and what comes next
        block = Block(base, size, size, DEVICE, 0, HUGE_PAGE, 0, "aclrtReserveMemAddress")
        block.place = places.caller()
        self.reserved.add(block)
        return base

    def release(self, address: int) -> None:
        block = self.reserved.at(address)
        if block is None:
            raise driver(f"halMemAddressFree failed: 0x{address:x} is not the start of a reserved range")
        if self._mappings(block):
            raise driver(f"halMemAddressFree failed: memory is still mapped in the range at 0x{address:x}")
        self.reserved.remove(address)

    def _mappings(self, block: Block) -> list[Block]:
        return [
            mapping
            for mapping in self.memory.blocks
            if mapping.kind == MAPPING and block.base <= mapping.base < block.end
        ]

    # ---- physical memory ---------------------------------------------------------------------------------

    def allocate(self, size: int, location: tuple[int, int], attribute: int, reserve: int, page: int) -> int:
        """Physical memory; the handle. 207001 if the device has not enough."""
        cost = -(-size // page) * page if location[0] == DEVICE else 0
        memory, device = self.memory, location[1]
        if location[0] == DEVICE:
            used = memory.used.get(device, 0) + cost
            if used > memory.capacity:
                raise RuntimeLayerError(
                    207001, "EL0004", f"Failed to allocate {size} bytes of physical memory on device {device}"
                )
            memory.used[device] = used
            memory.peak[device] = max(used, memory.peak.get(device, 0))
        return self.physical.add(Physical(-(-size // page) * page, location, attribute, reserve, page, cost))

    def find(self, handle: int) -> Physical:
        found = self.physical.find(handle)
        if found is None:
            raise driver("The driver does not know the memory handle: " + self.physical.why_not(handle))
        return found

    def free(self, handle: int) -> None:
        """Give a handle back; the memory goes with its last handle and its last mapping."""
        found = self.find(handle)
        self.physical.remove(handle)
        found.users -= 1
        self._maybe_gone(found)

    def _maybe_gone(self, found: Physical) -> None:
        if found.users == 0 and found.mapped == 0 and found.cost:
            self.memory.used[found.location[1]] -= found.cost
            found.cost = 0
            if found.shareable is not None:
                self.shareable.pop(found.shareable, None)

    # ---- mappings ----------------------------------------------------------------------------------------

    def map(self, address: int, size: int, offset: int, found: Physical) -> None:
        room = self.reserved.around(address)
        if room is None or address + size > room.end:
            raise driver(f"halMemMap failed: 0x{address:x} is not in a reserved range of {size} bytes")
        if offset:
            raise driver("halMemMap failed: the offset must be 0")
        if size > found.size:
            raise driver(f"halMemMap failed: the memory has {found.size} bytes, {size} wanted")
        if address % PAGE or size % PAGE:
            raise driver("halMemMap failed: address and size must be whole pages")
        for other in self._mappings(room):
            if other.base < address + size and address < other.end:
                raise driver(f"halMemMap failed: memory is mapped at 0x{other.base:x} already")
        location, device = found.location
        block = Block(
            address,
            size,
            size,
            DEVICE if location == DEVICE else HOST,
            device if location == DEVICE else 0,
            found.page,
            0,
            MAPPING,
        )
        block.store = found.store()
        block.note = found
        found.mapped += 1
        self.memory.add(block)
        self.access[address, location, device] = READ_WRITE

    def unmap(self, address: int) -> None:
        block = self.memory.blocks.at(address)
        if block is None or block.kind != MAPPING:
            raise driver(f"halMemUnmap failed: nothing is mapped at 0x{address:x}")
        if self.memory.on_freeing is not None:
            self.memory.on_freeing(block, "aclrtUnmapMem")
        self.memory.drop(block)
        for key in [key for key in self.access if key[0] == address]:
            del self.access[key]
        found: Physical = block.note
        found.mapped -= 1
        self._maybe_gone(found)

    def mapping(self, address: int) -> Block:
        block = self.memory.blocks.around(address)
        if block is None or block.kind != MAPPING:
            raise driver(f"Nothing is mapped at 0x{address:x}")
        return block

    def set_access(self, address: int, size: int, wanted: list[tuple[int, int, int]]) -> None:
        """`wanted`: (flags, location type, id)."""
        block = self.mapping(address)
        if address + size > block.end:
            raise driver(f"halMemSetAccess failed: {size} bytes at 0x{address:x} are more than is mapped")
        for flags, location, device in wanted:
            if flags not in (NONE, READ, READ_WRITE):
                raise driver(f"halMemSetAccess failed: the flags {flags} are not known")
            self.access[block.base, location, device] = flags

    def forbid(self, address: int) -> None:
        """Nobody may access the mapping that starts here until access is set."""
        for key in self.access:
            if key[0] == address:
                self.access[key] = NONE

    def get_access(self, address: int, location: int, device: int) -> int:
        return self.access.get((self.mapping(address).base, location, device), NONE)

    def retain(self, address: int) -> int:
        """Another handle of the memory that is mapped here."""
        found: Physical = self.mapping(address).note
        found.users += 1
        return self.physical.add(found)

    # ---- sharing -----------------------------------------------------------------------------------------

    def export(self, handle: int) -> int:
        """The number under which other processes find the memory."""
        found = self.find(handle)
        if found.shareable is None:
            found.shareable = next(_SHAREABLE)
            self.shareable[found.shareable] = found
        return found.shareable

    def import_(self, number: int) -> int:
        found = self.find_shareable(number)
        found.users += 1
        return self.physical.add(found)

    def find_shareable(self, number: int) -> Physical:
        found = self.shareable.get(number)
        if found is None:
            raise driver(f"The driver does not know the shareable handle 0x{number:x}")
        return found

    # ---- keys of device memory ---------------------------------------------------------------------------

    def export_key(self, address: int, size: int) -> str:
        block = self.memory.find(address)
        if block is None or block.location != DEVICE or address + size > block.end:
            raise driver(f"halShmemCreateHandle failed: no device memory of {size} bytes at 0x{address:x}")
        key = f"sim{next(_KEYS):061}"
        self.keys[key] = Exported(block, address - block.base, size)
        return key

    def key(self, key: str) -> Exported:
        found = self.keys.get(key)
        if found is None or found.block.gone is not None:
            raise driver(f"The driver does not know the key {key!r}")
        return found

    def import_key(self, key: str, device: int) -> int:
        """An address of its own for memory that has a key."""
        found = self.key(key)
        base = self.memory.elsewhere.take(found.size, HUGE_PAGE)
        block = Block(base, found.size, found.size, DEVICE, device, found.block.page, 0, "aclrtIpcMemImportByKey")
        block.store = found.block.contents()
        block.offset = found.block.offset + found.offset
        self.memory.add(block)
        self.imported[base] = key
        return base

    def close_key(self, key: str) -> None:
        """Undo one import of the key; without imports the key itself ends."""
        for address, name in self.imported.items():
            if name == key:
                del self.imported[address]
                block = self.memory.blocks.at(address)
                if block is not None:
                    self.memory.drop(block)
                return
        if self.keys.pop(key, None) is None:
            raise driver(f"The driver does not know the key {key!r}")

    def device_closed(self, device: Device) -> None:
        """The memory of a device ends with it: its mappings and imports are gone already, as all blocks are."""
        for handle, found in self.physical.items():
            if found.location == (DEVICE, device.index):
                self.physical.remove(handle)
                self.memory.used[device.index] -= found.cost
                found.cost = 0
                self.shareable.pop(found.shareable or 0, None)
        gone = [address for address in self.imported if self.memory.blocks.at(address) is None]
        for address in gone:
            del self.imported[address]
        self.access = {key: flags for key, flags in self.access.items() if self.memory.blocks.at(key[0]) is not None}


def pages_of(attribute: int) -> int:
    """Bytes of a page by aclrtMemAttr."""
    if attribute in (10, 11, 14, 17):
        return GIANT_PAGE
    return PAGE if attribute in (3, 5, 7, 9, 12, 15) else HUGE_PAGE
