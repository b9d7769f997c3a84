"""Handles: opaque numbers for objects. Never null, never given twice, and a destroyed one is known as such."""
from __future__ import annotations

import itertools
from typing import Any, Dict, Generic, Iterator, Optional, TypeVar

from . import places
from .failures import UndefinedBehavior

T = TypeVar("T")

# One sequence for all kinds, so that a handle of one kind is never valid as another. It looks like a heap address of a process, and
# lies where no 64-bit system maps memory for a program, so that nobody can read through it.
_numbers = itertools.count(0xAC10_0000_0000_0040, 0x40)


class HandleTable(Generic[T]):
    """The live objects of one kind by handle, and where destroyed ones were destroyed."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._live: Dict[int, T] = {}
        self._dead: Dict[int, places.Place] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._live.values()))

    def add(self, thing: T) -> int:
        """A new handle for `thing`."""
        handle = next(_numbers)
        self._live[handle] = thing
        return handle

    def find(self, handle: int) -> Optional[T]:
        """The object, or None if the handle is not (or no longer) one of this table."""
        return self._live.get(handle)

    def get(self, handle: int, call: str = "") -> T:
        """The object; a handle that the real library would follow into freed or foreign memory is UndefinedBehavior."""
        thing = self._live.get(handle)
        if thing is None:
            raise UndefinedBehavior("%s%s" % (call + ": " if call else "", self.why_not(handle)))
        return thing

    def remove(self, handle: int, call: str = "") -> T:
        """Take the object out; afterwards its handle counts as destroyed here."""
        thing = self.get(handle, call)
        del self._live[handle]
        self._dead[handle] = places.caller()
        return thing

    def was_destroyed(self, handle: int) -> bool:
        return handle in self._dead

    def why_not(self, handle: int) -> str:
        """What is wrong with a handle that is not live."""
        if handle in self._dead:
            return "the %s 0x%x was destroyed at %s" % (self.kind, handle, places.describe(self._dead[handle]))
        return "0x%x is not a %s" % (handle, self.kind)

    def items(self) -> Any:
        return list(self._live.items())
