"""Sets of bytes, kept as ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Ranges:
    """A set of numbers, kept as half-open ranges: `edges` is start, end, start, end, ... in rising order."""

    __slots__ = ("edges",)

    def __init__(self, edges: list[int] | None = None) -> None:
        self.edges: list[int] = [] if edges is None else edges

    def add(self, low: int, high: int) -> None:
        edges = self.edges
        if len(edges) == 2 and edges[0] <= low and high <= edges[1]:
            return
        # an odd place lies inside of a range, an even one in a gap
        i, j = bisect_left(edges, low), bisect_right(edges, high)
        edges[i:j] = ([] if i % 2 else [low]) + ([] if j % 2 else [high])

    def remove(self, low: int, high: int) -> None:
        edges = self.edges
        i, j = bisect_left(edges, low), bisect_right(edges, high)
        edges[i:j] = ([low] if i % 2 else []) + ([high] if j % 2 else [])

    def covers(self, low: int, high: int) -> bool:
        """Are all numbers of [low, high) in the set?"""
        edges = self.edges
        i = bisect_right(edges, low)
        return i % 2 == 1 and edges[i] >= high

    def within(self, low: int, high: int) -> list[tuple[int, int]]:
        """The ranges of the set inside of [low, high)."""
        edges = self.edges
        found = []
        for i in range(max(bisect_right(edges, low) - 1, 0) // 2 * 2, len(edges), 2):
            start, end = edges[i], edges[i + 1]
            if start >= high:
                break
            if end > low:
                found.append((max(start, low), min(end, high)))
        return found

    def missing(self, low: int, high: int) -> list[tuple[int, int]]:
        """What of [low, high) is not in the set."""
        found = []
        at = low
        for start, end in self.within(low, high):
            if start > at:
                found.append((at, start))
            at = end
        if at < high:
            found.append((at, high))
        return found

    def copy(self) -> Ranges:
        return Ranges(list(self.edges))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self.edges[::2], self.edges[1::2]))

    def __len__(self) -> int:
        return len(self.edges) // 2

    def __repr__(self) -> str:
        return f"Ranges({[f'{low}:{high}' for low, high in self]})"
