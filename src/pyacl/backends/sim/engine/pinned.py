"""Pinned memory of the host that a copy needs: was it changed before the copy was waited for?

Nobody sees the program write to its own memory. So the bytes are remembered when a copy is queued, and compared when it
runs and when the host has waited for it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from . import places
from .clocks import Clock, Track
from .operation import Operation
from .shadows import Shadow

#: copies of one stream that are watched at a time
MOST_WATCHES = 256
#: bytes that are kept whole; of more memory than this, sums are
SNAPSHOT = 1 << 16
_PAGE = 4096
_END = 64  # bytes at either end that are looked at at every call


class Watch:
    """The bytes that a copy reads, as they were when it was queued; or that it writes: as they were, then as it left
    them.

    Attributes
    ----------
    seen : place
        The latest call at which the bytes looked unchanged.
    noticed : place or None
        The first call at which they did not.
    """

    __slots__ = ("operation", "shadow", "low", "high", "write", "seen", "noticed", "live", "_content", "_ends")

    def __init__(self, operation: Operation, shadow: Shadow, low: int, high: int, write: bool) -> None:
        self.operation = operation
        self.shadow = shadow
        self.low = low
        self.high = high
        self.write = write
        self.seen: places.Place = operation.place
        self.noticed: places.Place = None
        self.live = True
        self._content: tuple[bytes, ...] = ()
        self._ends = b""
        self.take()

    @property
    def address(self) -> int:
        return self.shadow.store.real + self.low

    def take(self) -> None:
        """From now on the bytes are right as they are."""
        array = self.shadow.store.array[self.low : self.high]
        self._content = _digest(array)
        self._ends = _ends(array)

    def changed(self) -> bool:
        return self._content != _digest(self.shadow.store.array[self.low : self.high])

    def look(self, place: places.Place) -> None:
        """A call of the program: a cheap look, to tell later between which calls the bytes have changed."""
        if self.noticed is None:
            if self._ends == _ends(self.shadow.store.array[self.low : self.high]):
                self.seen = place
            else:
                self.noticed = place

    def end(self) -> None:
        if self.live:
            self.live = False
            self.shadow.watches.remove(self)


class Watches:
    """All of them, by the stream of the copy."""

    def __init__(self) -> None:
        self._lines: dict[Track, deque[tuple[int, Watch]]] = {}
        self._latest: deque[Watch] = deque(maxlen=2)

    def add(self, track: Track, number: int, watch: Watch) -> None:
        watch.shadow.watches.append(watch)
        line = self._lines.setdefault(track, deque())
        line.append((number, watch))
        if len(line) > MOST_WATCHES:
            line.popleft()[1].end()
        self._latest.append(watch)

    def look(self, place: places.Place) -> None:
        """A call of the program: look at the latest copies."""
        for watch in list(self._latest):
            if watch.live:
                watch.look(place)
            else:
                self._latest.remove(watch)

    def release(self, view: Clock) -> list[Watch]:
        """The host has waited for these; returns those whose bytes were changed before."""
        changed: list[Watch] = []
        for track, line in list(self._lines.items()):
            known = view.get(track, 0)
            while line and line[0][0] <= known:
                watch = line.popleft()[1]
                if watch.live and not watch.operation.dropped and watch.changed():
                    changed.append(watch)
                watch.end()
            if not line:
                del self._lines[track]
        return changed

    def forget(self, track: Track) -> None:
        for _, watch in self._lines.pop(track, ()):
            watch.end()

    def __bool__(self) -> bool:
        return bool(self._lines)


def overwritten(shadow: Shadow, low: int, high: int, own: list[Watch] | None) -> None:
    """A call or a piece of work writes to the memory: what a copy finds there is no longer the program's."""
    for watch in list(shadow.watches):
        if watch.low < high and low < watch.high and not (own and watch in own):
            watch.end()


def _digest(array: Any) -> tuple[bytes, ...]:
    """Small memory itself; of large memory, sums over pages and over the words of the same place in all pages."""
    if len(array) <= SNAPSHOT:
        return (array.tobytes(),)
    whole = len(array) // _PAGE * _PAGE
    pages = array[:whole].view(np.uint64).reshape(-1, _PAGE // 8)
    return pages.sum(1).tobytes(), pages.sum(0).tobytes(), array[whole:].tobytes()


def _ends(array: Any) -> bytes:
    ends: bytes = array[:_END].tobytes() + array[-_END:].tobytes()
    return ends
