"""Devices: reference counts, the primary context, ids."""
from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, List, Optional

if TYPE_CHECKING:
    from .context import Context
    from .machine import Machine


class Device:
    """One NPU."""

    def __init__(self, machine: Machine, index: int) -> None:
        self.machine = machine
        self.index = index
        self.primary: Optional[Context] = None
        self.references = 0
        self._free_ids: List[int] = []
        self._next_id = 0

    def take_stream_id(self) -> int:
        if self._free_ids:
            return heapq.heappop(self._free_ids)
        self._next_id += 1
        return self._next_id - 1

    def give_stream_id(self, number: int) -> None:
        heapq.heappush(self._free_ids, number)
