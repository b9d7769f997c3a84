"""The simulated NPU, as programs and tests use it."""
from __future__ import annotations

from .backends.sim import Backend
from .backends.sim.engine.failures import Deadlock, UndefinedBehavior

__all__ = ["Backend", "Deadlock", "UndefinedBehavior"]
