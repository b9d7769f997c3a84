"""What is alive on a machine, and which line of the program made each: how a test finds leaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from . import places
from .handles import HandleTable

if TYPE_CHECKING:
    from .machine import Machine
    from .memory import BlockTable

REGISTERED = "aclrtHostRegister"
# kinds that go with something else, a binary or a model, and are not destroyed by themselves
_OWNED = {"kernel function", "stream of a model", "task group", "task", "condition handle"}
# kinds that are addresses of memory which is listed anyway, or of none
_ADDRESSES = {"aclrtMapMem", "aclrtReserveMemAddress", "aclrtIpcMemImportByKey", "aclrtHostRegister"}


class Live(NamedTuple):
    """One thing that was made and not destroyed.

    Attributes
    ----------
    kind : str
        What it is, such as "stream"; for memory the C function that made it.
    handle : int
        The handle, or the address.
    nbytes : int
        Bytes of memory, or of addresses; 0 for other things.
    place : (str, int) or None
        File and line of the program that made it.
    """

    kind: str
    handle: int
    nbytes: int
    place: places.Place

    def __str__(self) -> str:
        size = f" of {self.nbytes} bytes" if self.nbytes else ""
        return f"{self.kind}{size} (0x{self.handle:x}), made at {places.describe(self.place)}"


class Report(list[Live]):
    """Everything alive: a list, empty when the program gave everything back. `str()` lists it, a line each."""

    @property
    def is_empty(self) -> bool:
        """Nothing is alive."""
        return not self

    @property
    def kinds(self) -> dict[str, int]:
        """How many of each kind."""
        return dict(Counter(live.kind for live in self))

    @property
    def nbytes(self) -> int:
        """Bytes of memory among it."""
        return sum(live.nbytes for live in self if live.kind not in _ADDRESSES)

    def __str__(self) -> str:
        if not self:
            return "nothing is alive"
        return f"{len(self)} alive, {self.nbytes} bytes:\n" + "\n".join(f"  {live}" for live in self)


def report(machine: Machine) -> Report:
    """What is alive now. The primary contexts and the default streams are the library's own and are left out."""
    from .vmm import Physical

    with machine.lock:
        found = Report()
        for table in _tables(machine):
            for handle, thing in table.items():
                if (
                    getattr(thing, "primary", False)
                    or getattr(getattr(thing, "context", None), "default_stream", 0) is thing
                ):
                    continue
                nbytes = thing.size if isinstance(thing, Physical) else 0
                found.append(Live(table.kind, handle, nbytes, table.place(handle)))
        found.extend(_memory(machine))
        return found


def _tables(machine: Machine) -> Iterator[HandleTable[object]]:
    for owner in (machine, *machine.areas()):
        for value in vars(owner).values():
            if isinstance(value, HandleTable) and value.kind not in _OWNED:
                yield value


def _memory(machine: Machine) -> Iterator[Live]:
    from .memory import Memory
    from .vmm import VirtualMemory

    for area in machine.areas():
        if isinstance(area, VirtualMemory):
            yield from _blocks(area.reserved)
        if isinstance(area, Memory):
            yield from _blocks(area.blocks)
            yield from _blocks(area.pinned)
            known = area.registered
            for start, last in {**known.mapped, **known.pinned}.items():
                yield Live(REGISTERED, start, last + 1 - start, known.places[start])


def _blocks(table: BlockTable) -> Iterator[Live]:
    for block in table:
        # others are the library's own; registered memory is listed by the address the program knows
        if block.kind.startswith(("acl", "rt")) and block.kind != REGISTERED:
            yield Live(block.kind, block.base, block.requested, block.place)
