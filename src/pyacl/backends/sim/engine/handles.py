"""Handles: opaque numbers for objects. Never null, never given twice, and a destroyed one is known as such."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from . import places
from .failures import UndefinedBehavior

T = TypeVar("T")

NO_MEMORY = 0x10000  # no system has memory at lower addresses, nor at those of the handles
REMEMBERED = 100_000  # destroyed handles of a kind whose place is kept

# One sequence for all kinds, so that a handle of one kind is never valid as another. The numbers look like addresses,
# but lie above what any 64-bit system gives a program: reading through one fails, as it should.
FIRST = 0x00AC_1000_0000_0040
_numbers = itertools.count(FIRST, 0x40)


class HandleTable(Generic[T]):
    """The live objects of one kind by handle, and where destroyed ones were destroyed."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._live: dict[int, T] = {}
        self._places: dict[int, places.Place] = {}  # where the live ones were made
        self._dead: dict[int, places.Place] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._live.values()))

    def add(self, thing: T) -> int:
        """A new handle for `thing`."""
        handle = next(_numbers)
        self._live[handle] = thing
        self._places[handle] = getattr(thing, "place", None) or places.caller()
        return handle

    def reserve(self) -> int:
        """A handle of something that the library keeps to itself: good for nothing but to tell it from others."""
        return next(_numbers)

    def place(self, handle: int) -> places.Place:
        """Where a live handle was made."""
        return self._places.get(handle)

    def find(self, handle: int) -> T | None:
        """The object, or None if the handle is not (or no longer) one of this table."""
        return self._live.get(handle)

    def get(self, handle: int, call: str = "") -> T:
        """The object; a handle that the real library would follow into freed or foreign memory is UndefinedBehavior."""
        thing = self._live.get(handle)
        if thing is None:
            raise UndefinedBehavior(f"{call + ': ' if call else ''}{self.why_not(handle)}")
        return thing

    def remove(self, handle: int, call: str = "") -> T:
        """Take the object out; afterwards its handle counts as destroyed here."""
        thing = self.get(handle, call)
        del self._live[handle], self._places[handle]
        self._dead[handle] = places.caller()
        if len(self._dead) > REMEMBERED:
            del self._dead[next(iter(self._dead))]
        return thing

    def was_destroyed(self, handle: int) -> bool:
        return handle in self._dead

    def is_foreign(self, handle: int) -> bool:
        """Is it no handle of any kind, but an address? The library was recorded with zeroed memory there: in it, an
        object belongs to no context."""
        return NO_MEMORY <= handle < FIRST

    def why_not(self, handle: int) -> str:
        """What is wrong with a handle that is not live."""
        if handle in self._dead:
            return f"the {self.kind} 0x{handle:x} was destroyed at {places.describe(self._dead[handle])}"
        return f"0x{handle:x} is not a {self.kind}"

    def items(self) -> Any:
        return list(self._live.items())
