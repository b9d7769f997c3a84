"""The simulated NPU as a backend: `Backend` answers address(name) for every function that the chosen CANN version has.

engine/   the NPU itself, in plain Python
bridge/   C entry points on top of it
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable

from ...raw.functions import FUNCTIONS
from ...raw.table import Function
from ..thunks import Thunk
from .bridge import hostmem
from .bridge.dispatch import make_callable
from .engine import profiles
from .engine.clock import Clock
from .engine.machine import Machine
from .engine.report import Report, report

if TYPE_CHECKING:
    from .engine.findings import Hazard
    from .engine.hazards import Hazards
    from .faults import Faults

    Interceptor = Callable[[Function, Callable[..., Any]], Callable[..., Any]]

__all__ = ["Backend"]


class Backend:
    """A simulated machine with Ascend devices. Each object is a process of its own: its state starts fresh.

    Parameters
    ----------
    soc : str
        Name of the SoC, as aclrtGetSocName gives it.
    cann : str
        CANN version whose functions are there.
    devices : int
        Number of devices.
    memory : int, optional
        Device memory of each device in bytes; None for what the SoC has.
    order : str
        When work on streams runs: "lazy" (when something waits for it), "eager" (at once) or "random(7)" (in any order
        that events and notifies allow, decided by the seed 7).
    hazards : {"off", "warn", "raise"}
        What to do about accesses that nothing orders and the like: nothing, a `pyacl.sim.HazardWarning`, or a
        `pyacl.sim.HazardError` at the call that completes the hazard. May be changed later.
    unregistered : {"error", "skip"}
        What a launch of a kernel without an emulation does.
    """

    def __init__(
        self,
        *,
        soc: str = "Ascend910B1",
        cann: str = "9.0.0",
        devices: int = 1,
        memory: int | None = None,
        order: str = "lazy",
        hazards: str = "off",
        unregistered: str = "error",
    ) -> None:
        profile = profiles.load(soc)
        profiles.check_version(cann)
        if not isinstance(devices, int) or isinstance(devices, bool) or devices < 1:
            raise ValueError(f"devices={devices!r}: give a whole number of at least 1")
        if memory is not None and (not isinstance(memory, int) or memory < 1):
            raise ValueError(f"memory={memory!r}: give the bytes of device memory as a positive whole number, or None")
        if unregistered not in ("error", "skip"):
            raise ValueError(f"unregistered={unregistered!r}: use 'error' or 'skip'")
        self.name = f"sim:{soc}@{cann}"
        self.version: str | None = cann
        self.machine = Machine(profile, cann, devices, memory, order, unregistered)
        self.machine.host = hostmem
        #: what the hazard checker has found, oldest first: a list of `pyacl.sim.Hazard`; a test may clear it
        self.hazards_found: list[Hazard] = []
        self._checker: Hazards | None = None
        self.hazards = hazards
        self._thunks: dict[str, Thunk] = {}
        self._interceptors: list[Interceptor] = []
        self._making = threading.RLock()

    def address(self, name: str) -> int | None:
        """The address of a C function, made when it is first asked for; None if the chosen CANN version lacks it."""
        thunk = self._thunks.get(name)
        if thunk is None:
            row: Any = FUNCTIONS.get(name)
            if row is None or not row.in_version(self.version):
                return None
            row = row.form(self.version)
            with self._making:
                thunk = self._thunks.get(name)
                if thunk is None:
                    # a finalizer that asks in between must get the same address, which is C's for good
                    thunk = self._thunks.setdefault(name, Thunk(row, self._answer(row)))
        return thunk.address

    @property
    def hazards(self) -> str:
        """"off", "warn" or "raise". Set to another value, it counts for what happens from then on."""
        return "off" if self.machine.hazards is None else str(self.machine.hazards.mode)

    @hazards.setter
    def hazards(self, mode: str) -> None:
        if mode not in ("off", "warn", "raise"):
            raise ValueError(f"hazards={mode!r}: use 'off', 'warn' or 'raise'")
        with self.machine.lock:
            if mode == "off":
                if self.machine.hazards is not None:
                    self.machine.hazards.detach()
                return
            if self._checker is None:
                from .engine.hazards import Hazards

                self._checker = Hazards(self.machine, self.hazards_found)
            self._checker.mode = mode
            if self.machine.hazards is None:
                self._checker.attach()

    def _answer(self, row: Function) -> Callable[..., Any]:
        """What answers the calls of a C function."""
        call = make_callable(self.machine, row.name, row.group, row.returns_status)
        for interceptor in self._interceptors:
            call = interceptor(row, call)
        return call

    def intercept(self, *interceptors: Interceptor) -> None:
        """Put functions between the program and the machine: ``interceptor(row, call)`` gives what is called instead.

        Called without one, all of them are asked again.
        """
        with self._making:
            self._interceptors.extend(interceptors)
            for name, thunk in self._thunks.items():
                thunk.replace(self._answer(FUNCTIONS[name].form(self.version)))

    @property
    def faults(self) -> Faults:
        """Faults on request: ``backend.faults.fail("aclrtMalloc", nth=3)``."""
        from .faults import Faults

        return Faults(lambda: self)

    @property
    def clock(self) -> Clock:
        """Device time; a test may stop and advance it."""
        return self.machine.clock

    def report(self) -> Report:
        """What is alive on the machine, with the line of the program that made each (a list; `str` of it is a text)."""
        return report(self.machine)

    def close(self) -> None:
        """Nothing to give back: the addresses stay valid as long as the object lives."""
