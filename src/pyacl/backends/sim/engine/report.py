"""What is alive on a machine, and which line of the program made each: how a test finds leaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from . import places
from .handles import HandleTable

if TYPE_CHECKING:
    from .machine import Machine

# kinds that go with something else, and are not destroyed by themselves
_OWNED = {"kernel function"}


class Live(NamedTuple):
    """One thing that was made and not destroyed. `nbytes` is 0 for what is not memory."""

    kind: str
    handle: int
    nbytes: int
    place: places.Place

    def __str__(self) -> str:
        size = f" of {self.nbytes} bytes" if self.nbytes else ""
        return f"{self.kind}{size} (0x{self.handle:x}), made at {places.describe(self.place)}"


class Report(list[Live]):
    """Everything alive; empty when the program gave everything back. `str()` lists it, a line each."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory among it."""
        return sum(live.nbytes for live in self)

    def __str__(self) -> str:
        if not self:
            return "nothing is alive"
        return f"{len(self)} alive, {self.nbytes} bytes:\n" + "\n".join(f"  {live}" for live in self)


def report(machine: Machine) -> Report:
    """What is alive now. The primary contexts and the default streams are the library's own and are left out."""
    with machine.lock:
        found = Report()
        for table in _tables(machine):
            for handle, thing in table.items():
                if (
                    getattr(thing, "primary", False)
                    or getattr(getattr(thing, "context", None), "default_stream", 0) is thing
                ):
                    continue
                found.append(Live(table.kind, handle, 0, table.place(handle)))
        found.extend(_memory(machine))
        return found


def _tables(machine: Machine) -> Iterator[HandleTable[object]]:
    for owner in (machine, *machine.areas()):
        for value in vars(owner).values():
            if isinstance(value, HandleTable) and value.kind not in _OWNED:
                yield value


def _memory(machine: Machine) -> Iterator[Live]:
    from .memory import Memory

    memory = next((area for area in machine.areas() if isinstance(area, Memory)), None)
    if memory is None:
        return
    for table in (memory.blocks, memory.pinned):
        for block in table:
            if block.kind.startswith(("acl", "rt")):  # the others are the library's own
                yield Live(block.kind, block.base, block.size, block.place)
