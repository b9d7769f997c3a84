"""What comes before what: tracks with vector clocks, and who touched which bytes last."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .places import Place

#: cells that a history keeps before it forgets some
MOST_CELLS = 2048


class Track:
    """Something whose work is done in order: a stream, a stream within a model, or the host.

    Attributes
    ----------
    count : int
        How many pieces of work it has begun.
    clock : dict
        What the next piece of work here comes after: of each track, the number of the latest piece.
    dead : bool
        It is gone, and all that it did comes before everything that can still come.
    """

    __slots__ = ("name", "count", "clock", "seen", "due", "dead")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.clock: dict[Track, int] = {}
        self.seen: dict[Track, int] | None = None  # what the host knew at the latest submission, as joined already
        self.due: dict[Track, int] | None = None  # joined by what is submitted next
        self.dead = False

    def end(self) -> None:
        """It is gone. Others may still have it in their clocks."""
        self.dead = True
        self.clock = {}
        self.seen = self.due = None

    def __repr__(self) -> str:
        return self.name


Clock = dict[Track, int]


def join(clock: Clock, other: Clock) -> None:
    """`clock` comes after what `other` comes after, too."""
    for track, count in other.items():
        if count > clock.get(track, 0):
            clock[track] = count


ATOMIC, ARGUMENTS, FREE = "atomic", "arguments", "free"


class Touch:
    """One piece of work that touched memory: the `count`-th of its track.

    Attributes
    ----------
    serial : int
        Counts the calls of the program.
    role : str
        ATOMIC: writes a word that others wait for, which orders and is no conflict; ARGUMENTS: reads the arguments of a
        kernel; FREE: ends the memory. Else empty.
    """

    __slots__ = ("track", "count", "call", "place", "serial", "role")

    def __init__(self, track: Track, count: int, call: str, place: Place, serial: int, role: str = "") -> None:
        self.track = track
        self.count = count
        self.call = call
        self.place = place
        self.serial = serial
        self.role = role


class Conflict(NamedTuple):
    """Two accesses to the same bytes, at least one of them a write, that nothing orders."""

    other: Touch
    other_writes: bool
    low: int
    high: int


class _Cell:
    """The latest write to some bytes, and what has read them since."""

    __slots__ = ("high", "write", "reads")

    def __init__(self, high: int, write: Touch | None, reads: tuple[Touch, ...]) -> None:
        self.high = high
        self.write = write
        self.reads = reads


class History:
    """Who touched which bytes last, as far as it still matters."""

    __slots__ = ("lows", "cells")

    def __init__(self) -> None:
        self.lows: list[int] = []
        self.cells: list[_Cell] = []

    def clear(self) -> None:
        self.lows.clear()
        self.cells.clear()

    def access(self, low: int, high: int, touch: Touch, write: bool, clock: Clock) -> Conflict | None:
        """Note an access, and return an earlier one that it conflicts with."""
        lows = self.lows
        i = bisect_right(lows, low) - 1
        if i >= 0 and lows[i] == low:
            cell = self.cells[i]
            if cell.high == high:  # the same bytes as before, as in nearly every program
                return _meet(cell, low, touch, write, clock)
        elif not lows:
            lows.append(low)
            self.cells.append(_Cell(high, touch, ()) if write else _Cell(high, None, (touch,)))
            return None
        return self._access(low, high, touch, write, clock)

    def _access(self, low: int, high: int, touch: Touch, write: bool, clock: Clock) -> Conflict | None:
        self._split(low)
        self._split(high)
        lows, cells = self.lows, self.cells
        i, j = bisect_left(lows, low), bisect_left(lows, high)
        found: Conflict | None = None
        for k in range(i, j):
            met = _meet(cells[k], lows[k], touch, write, clock)
            found = found or met
        if write:
            lows[i:j] = [low]
            cells[i:j] = [_Cell(high, touch, ())]
            return found
        at = low
        k = i
        while at < high:  # the gaps become cells of their own
            if k < len(lows) and lows[k] == at:
                at = cells[k].high
            else:
                end = min(lows[k], high) if k < len(lows) else high
                lows.insert(k, at)
                cells.insert(k, _Cell(end, None, (touch,)))
                at = end
            k += 1
        return found

    def _split(self, at: int) -> None:
        lows, cells = self.lows, self.cells
        i = bisect_right(lows, at) - 1
        if i < 0 or lows[i] == at or cells[i].high <= at:
            return
        cell = cells[i]
        lows.insert(i + 1, at)
        cells.insert(i + 1, _Cell(cell.high, cell.write, cell.reads))
        cell.high = at

    def unordered(self, low: int, high: int, own: Track, clock: Clock) -> Conflict | None:
        """The latest access to [low, high), of another track, that does not come before `clock`."""
        found: Conflict | None = None
        for i in range(max(bisect_right(self.lows, low) - 1, 0), bisect_left(self.lows, high)):
            cell = self.cells[i]
            if cell.high <= low:
                continue
            for touch, writes in [(cell.write, True), *((read, False) for read in cell.reads)]:
                if touch is None or touch.track is own or _known(touch, clock):
                    continue
                if found is None or touch.serial > found.other.serial:
                    found = Conflict(touch, writes, max(low, self.lows[i]), min(high, cell.high))
        return found

    def writers(self, low: int, high: int) -> list[Touch]:
        """Who wrote to [low, high) last."""
        cells = self.cells[max(bisect_right(self.lows, low) - 1, 0) : bisect_left(self.lows, high)]
        return [cell.write for cell in cells if cell.write is not None and cell.high > low]

    def trim(self, clock: Clock) -> None:
        """Forget what comes before `clock` where there is too much; where that is not enough, the lower half."""
        if len(self.lows) <= MOST_CELLS:
            return
        kept = [
            (low, cell)
            for low, cell in zip(self.lows, self.cells)
            if not all(_known(touch, clock) for touch in (cell.write, *cell.reads) if touch is not None)
        ]
        if len(kept) > MOST_CELLS // 2:
            kept = kept[-MOST_CELLS // 2 :]
        self.lows = [low for low, _ in kept]
        self.cells = [cell for _, cell in kept]


def _known(touch: Touch, clock: Clock) -> bool:
    return clock.get(touch.track, 0) >= touch.count or touch.track.dead


def _meet(cell: _Cell, low: int, touch: Touch, write: bool, clock: Clock) -> Conflict | None:
    found: Conflict | None = None
    track, last = touch.track, cell.write
    if last is not None and last.track is not track and clock.get(last.track, 0) < last.count and not last.track.dead:
        found = Conflict(last, True, low, cell.high)
    if write:
        for read in cell.reads:
            if read.track is not track and not _known(read, clock):
                found = Conflict(read, False, low, cell.high)
        cell.write = touch
        cell.reads = ()
    elif not cell.reads:
        cell.reads = (touch,)
    else:
        # a later write that comes after this read comes after those that this read comes after
        older = tuple(read for read in cell.reads if read.track is not track and not _known(read, clock))
        cell.reads = (*older, touch)
    return found
