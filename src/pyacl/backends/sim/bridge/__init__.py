"""The simulated NPU in C: entry points that take what C hands over, call the engine, and write to host memory.

registry.py   `answers`, and the table of everything that is answered
dispatch.py   one entry point made into a callable: lock, failures into codes, messages and last errors
hostmem.py    the only module that touches host memory by address
hostcall.py   functions of the program by address
<area>.py     the entry points of an area: short functions; the rules are in the engine

An entry point gets the machine and the C arguments: pointers and handles as int (NULL is 0), numbers as int or float,
structures passed by value as ctypes structures. It returns None for success, an int for another code, or the value of
a function that does not return aclError::

    @answers("rtGetDeviceCount", "rtsGetDeviceCount")
    @answers("aclrtGetDeviceCount", required="count")      # a null count: 100000, EH0002, from the acl layer
    def get_device_count(sim: Machine, count: int) -> None:
        runtime_require(count, "cnt")                      # a null count: 107000, EE1004, from the runtime layer
        hostmem.write_u32(count, len(sim.devices))

The acl function is the runtime function behind a few checks, so that one Python function usually answers both. What is
left out is said with `partly="..."`, a line of the generated table of what is simulated. A new area goes into AREAS.
"""

from __future__ import annotations

import importlib

# each area, and the groups of the API table in which its functions are; a function of another group is found too, only
# later, when everything is loaded
AREAS = {
    "process": "init",
    "errors": "exception",
    "device": "device exception",
    "context": "context",
    "stream": "stream",
    "event": "event",
    "notify": "notify cnt_notify",
    "callback": "execution_control",
    "overflow": "device context",
    "kernel": "kernel",
    "launch": "kernel",
    "model": "model_ri label",
    "execution": "execution_control other",
    "memory": "memory",
    "transfer": "memory",
    "vmm": "memory",
    "mempool": "stream_ordered_memory",
    "datatypes": "datatypes other",
    "config": "config context group",
    "version": "other log",
    "snapshot": "snapshot",
    "dump": "dump",
    "queue": "queue datatypes",
    "tdt": "tdt datatypes",
    "profiling": "profiling datatypes other",
    "managed": "memory",
    "runtime_memory": "libruntime",
    "runtime_kernel": "libruntime",
}


def load_areas(group: str | None = None) -> None:
    """Import the areas with functions of a group (all for None), so that their entry points are in the table."""
    for area, groups in AREAS.items():
        if group is None or group in groups.split():
            importlib.import_module(f"{__name__}.{area}")
