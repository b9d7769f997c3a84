"""The simulated NPU, as programs and tests use it."""

from __future__ import annotations

from .backends.sim import Backend
from .backends.sim.engine.failures import Deadlock, UndefinedBehavior
from .backends.sim.engine.kernels import Block, In, InOut, Out, Scalar, Struct, UnregisteredKernel, kernel

__all__ = [
    "Backend",
    "Block",
    "Deadlock",
    "In",
    "InOut",
    "Out",
    "Scalar",
    "Struct",
    "UndefinedBehavior",
    "UnregisteredKernel",
    "kernel",
]
