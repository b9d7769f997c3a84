"""Faults of the simulated machine that the program uses, for tests that do not hold it in their hands."""

from __future__ import annotations

from pyacl import sim
from pyacl.backends.sim.faults import Faults

__all__ = ["faults"]

#: of the simulator that is in use at the time of the call
faults = Faults(sim.in_use)
