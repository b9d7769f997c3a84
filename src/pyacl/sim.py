"""The simulated NPU, as programs and tests use it."""

from __future__ import annotations

from .backends.sim import Backend
from .backends.sim.engine.failures import Deadlock, UndefinedBehavior
from .backends.sim.engine.findings import Hazard, HazardError, HazardWarning
from .backends.sim.engine.kernels import Block, In, InOut, Out, Scalar, Struct, UnregisteredKernel, kernel
from .backends.sim.engine.report import Report

__all__ = [
    "Backend",
    "Block",
    "Deadlock",
    "Hazard",
    "HazardError",
    "HazardWarning",
    "In",
    "InOut",
    "Out",
    "Report",
    "Scalar",
    "Struct",
    "UndefinedBehavior",
    "UnregisteredKernel",
    "kernel",
    "report",
]

# the last line of a traceback names what a program can import
for _class in (Deadlock, HazardError, HazardWarning, UndefinedBehavior, UnregisteredKernel):
    _class.__module__ = __name__


def report(backend: Backend | None = None) -> Report:
    """What is alive on a simulated machine, and which line of the program made each.

    Parameters
    ----------
    backend : Backend, optional
        The machine; left out, the one that the program uses (`pyacl.use_backend`).

    Raises
    ------
    TypeError
        If the backend is not a simulator.
    """
    if backend is not None and not isinstance(backend, Backend):
        raise TypeError(f"backend: a sim.Backend, or nothing for the one in use, not {type(backend).__name__}")
    return (in_use() if backend is None else backend).report()


def in_use() -> Backend:
    """The simulated machine that the program uses (`pyacl.use_backend`).

    Raises
    ------
    TypeError
        If the program's backend is not a simulator.
    """
    from .session import current_session

    found = current_session().api.backend
    if not isinstance(found, Backend):
        raise TypeError(
            f"the backend in use is {found.name}, not a simulator: choose one with pyacl.use_backend, or pass a "
            f"sim.Backend"
        )
    return found
