"""How long a kernel may run: the process-wide setting, in the ticks the hardware counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .machine import Machine

TICK_US = 2**32 / 1000  # what a kernel's time is counted in
MOST_TICKS = 254
LONGEST_MS = 1_000_000  # that the call in milliseconds takes


class OpTimeouts:
    """The timeout of kernels of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.us: int | None = None  # as it was set; None: the default

    def set(self, us: int) -> None:
        self.us = us

    def effective_ms(self) -> int:
        """What aclrtGetOpExecuteTimeout says."""
        if not self.us or self.us > TICK_US * MOST_TICKS:
            return math.ceil(TICK_US * MOST_TICKS / 1000)
        return math.ceil(TICK_US * int((self.us + TICK_US - 1) / TICK_US) / 1000)


def ticks_of(us: int) -> int:
    """Microseconds in ticks, rounded up; 0 stands for the longest time."""
    return min(math.ceil(us / TICK_US), MOST_TICKS) if us else MOST_TICKS
