"""Helpers for tests of programs that use pyacl; importing it needs no pytest."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyacl.backends.sim.faults import Fault as Fault
    from pyacl.backends.sim.faults import Faults as Faults
    from pyacl.testing.objects import KernelSpec as KernelSpec
    from pyacl.testing.objects import make_archive as make_archive
    from pyacl.testing.objects import make_host_object as make_host_object
    from pyacl.testing.objects import make_kernel_object as make_kernel_object
    from pyacl.testing.objects import make_sidecar as make_sidecar
    from pyacl.testing.simulated import faults as faults
    from pyacl.testing.sweep import Sweep as Sweep
    from pyacl.testing.sweep import SweepFailure as SweepFailure
    from pyacl.testing.sweep import SweptCall as SweptCall
    from pyacl.testing.sweep import fault_sweep as fault_sweep

#: where the public names live; the pytest plugin is loaded in every test run, so nothing is imported before it is used
_HOMES = {
    "pyacl.testing.objects": (
        *("KernelSpec", "make_archive", "make_host_object", "make_kernel_object", "make_sidecar"),
    ),
    "pyacl.testing.simulated": ("faults",),
    "pyacl.testing.sweep": ("Sweep", "SweepFailure", "SweptCall", "fault_sweep"),
    "pyacl.backends.sim.faults": ("Fault", "Faults"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = list(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'pyacl.testing' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
