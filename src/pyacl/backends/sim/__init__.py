"""The simulated NPU as a backend: `Backend` answers address(name) for every function that the chosen CANN version has.

engine/   the NPU itself, in plain Python
bridge/   C entry points on top of it
"""
from __future__ import annotations

import threading
from typing import Dict, Optional

from .bridge import load_areas
from .engine import profiles
from .engine.machine import Machine

__all__ = ["Backend"]


class Backend:
    """A simulated machine with Ascend devices. Each object is a process of its own: its state starts fresh.

    Parameters
    ----------
    soc : name of the SoC, as aclrtGetSocName gives it
    cann : CANN version whose functions are there
    devices : number of devices
    memory : device memory of each device in bytes; None for what the SoC has
    order : when work on streams runs: "lazy" (when something waits for it), "eager" (at once) or "random(seed)"
    hazards : "off", "warn" or "raise": look for accesses that nothing orders
    unregistered : what a launch of a kernel without an emulation does: "error" or "skip"
    """

    name = "sim"

    def __init__(self, *, soc: str = "Ascend910B1", cann: str = "9.0.0", devices: int = 1, memory: Optional[int] = None,
                 order: str = "lazy", hazards: str = "off", unregistered: str = "error") -> None:
        profile = profiles.load(soc)
        profiles.check_version(cann)
        if not isinstance(devices, int) or devices < 1:
            raise ValueError("devices=%r: give a whole number of at least 1" % (devices,))
        if memory is not None and (not isinstance(memory, int) or memory < 1):
            raise ValueError("memory=%r: give the bytes of device memory as a positive whole number, or None" % (memory,))
        if hazards not in ("off", "warn", "raise"):
            raise ValueError("hazards=%r: use 'off', 'warn' or 'raise'" % (hazards,))
        if unregistered not in ("error", "skip"):
            raise ValueError("unregistered=%r: use 'error' or 'skip'" % (unregistered,))
        load_areas()
        self.version: Optional[str] = cann
        self.machine = Machine(profile, cann, devices, memory, order, unregistered)
        self._addresses: Dict[str, Optional[int]] = {}
        self._making = threading.Lock()

    def close(self) -> None:
        """Forget everything."""
