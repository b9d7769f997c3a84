"""Device time. Runs with the host's clock until a test drives it."""

from __future__ import annotations

import time


class Clock:
    """Nanoseconds since the (simulated) chip started.

    By default real time passes. A test that wants exact numbers calls `stop()` and then `advance(...)`. A timeout
    that can only expire (nothing else can happen) is not slept through: the clock jumps.
    """

    def __init__(self) -> None:
        self._start = time.perf_counter_ns()
        self._skipped = 0
        self._stopped: int | None = None

    def now(self) -> int:
        """Nanoseconds."""
        if self._stopped is not None:
            return self._stopped
        return time.perf_counter_ns() - self._start + self._skipped

    @property
    def stopped(self) -> bool:
        return self._stopped is not None

    def stop(self) -> None:
        """Real time no longer counts; only `advance` moves the clock."""
        self._stopped = self.now()

    def advance(self, milliseconds: float) -> None:
        """Move the clock forward."""
        if milliseconds < 0:
            raise ValueError("milliseconds must not be negative: device time never runs backwards")
        step = int(milliseconds * 1_000_000)
        if self._stopped is not None:
            self._stopped += step
        else:
            self._skipped += step
