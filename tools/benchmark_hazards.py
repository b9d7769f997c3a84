"""What the hazard checker costs: the same programs with and without it, and a long one from its start to its end.

    python tools/benchmark_hazards.py            # a table
    python tools/benchmark_hazards.py --json     # the same for programs

`hazards()` gives the figures to other benchmarks.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable
from typing import Any, Optional

import numpy as np

from pyacl import raw, sim
from pyacl.testing import make_kernel_object

BYTES = 1024
BATCH = 8  # operations queued between two waits
WINDOW = 20_000  # operations at the end of the long program that are compared with those of a new one


class Program:
    """A simulated machine with what the measured programs use."""

    def __init__(self, hazards: str) -> None:
        self.backend = sim.Backend(hazards=hazards)
        for function in (add_custom, add_one_by_one):
            sim.kernel(function.__name__, backend=self.backend)(function)
        self.api = api = raw.load(self.backend).unchecked
        api.aclrtSetDevice(0)
        self.streams = [raw.types.aclrtStream() for _ in range(2)]
        self.events = [raw.types.aclrtEvent() for _ in range(2)]
        for stream, event in zip(self.streams, self.events):
            api.aclrtCreateStream(stream)
            api.aclrtCreateEventExWithFlag(event, 1)
        self.buffers = [ctypes.c_void_p() for _ in range(3)]
        for buffer in self.buffers:
            api.aclrtMalloc(buffer, BYTES, 0)
            api.aclrtMemset(buffer, BYTES, 0, BYTES)
        self.pinned = ctypes.c_void_p()
        api.aclrtMallocHost(self.pinned, BYTES)
        self.host = np.zeros(BYTES, np.uint8)
        self.function, self.slow_function = self.load("add_custom"), self.load("add_one_by_one")
        self.block = (ctypes.c_uint64 * 3)(*[buffer.value or 0 for buffer in self.buffers])

    def load(self, name: str) -> Any:
        data = make_kernel_object(name)
        binary, function = raw.types.aclrtBinHandle(), raw.types.aclrtFuncHandle()
        option = raw.types.aclrtBinaryLoadOption()
        option.type, option.value.magic = 2, 0x41415246
        options = raw.types.aclrtBinaryLoadOptions(ctypes.addressof(option), 1)
        self.api.aclrtBinaryLoadFromData(data, len(data), options, binary)
        self.api.aclrtBinaryGetFunction(binary, name.encode(), function)
        return function

    def launch(self, stream: Any, function: Any = None) -> None:
        self.api.aclrtLaunchKernelWithHostArgs(function or self.function, 8, stream, None, self.block, 24, None, 0)

    # ---- what is measured; each returns how many operations it did ---------------------------------------------

    def malloc_and_free(self) -> int:
        api, pointer = self.api, ctypes.c_void_p()
        for _ in range(BATCH):
            api.aclrtMalloc(pointer, BYTES, 0)
            api.aclrtFree(pointer)
        return BATCH

    def copy(self) -> int:
        api, target, source = self.api, self.buffers[0], self.host.ctypes.data
        for _ in range(BATCH):
            api.aclrtMemcpy(target, BYTES, source, BYTES, 1)
        return BATCH

    def queued_copy(self) -> int:
        api, stream = self.api, self.streams[0]
        for _ in range(BATCH):
            api.aclrtMemcpyAsync(self.buffers[0], BYTES, self.pinned, BYTES, 1, stream)
        api.aclrtSynchronizeStream(stream)
        return BATCH

    def launches(self) -> int:
        stream = self.streams[0]
        for _ in range(BATCH):
            self.launch(stream)
        self.api.aclrtSynchronizeStream(stream)
        return BATCH

    def slow_launches(self) -> int:
        stream = self.streams[0]
        for _ in range(BATCH):
            self.launch(stream, self.slow_function)
        self.api.aclrtSynchronizeStream(stream)
        return BATCH

    def pipeline(self) -> int:
        """A copy in on one stream, a kernel and a copy out on the other, ordered by events; never waits for all."""
        api, (first, second), (ready, free) = self.api, self.streams, self.events
        x, _, z = self.buffers
        api.aclrtMemcpyAsync(x, BYTES, self.pinned, BYTES, 1, first)
        api.aclrtRecordEvent(ready, first)
        api.aclrtStreamWaitEvent(second, ready)
        self.launch(second)
        api.aclrtMemcpyAsync(self.buffers[1], BYTES, z, BYTES, 3, second)
        api.aclrtRecordEvent(free, second)
        api.aclrtSynchronizeEvent(ready)
        api.aclrtStreamWaitEvent(first, free)
        return 8


PROGRAMS: dict[str, Callable[[Program], int]] = {
    "malloc and free": Program.malloc_and_free,
    "small copy": Program.copy,
    "queued copy": Program.queued_copy,
    "launch": Program.launches,
    "launch, element by element": Program.slow_launches,
    "pipeline of two streams": Program.pipeline,
}


def add_custom(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]) -> None:
    z[:] = x + y


def add_one_by_one(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]) -> None:
    for i in range(32):
        z[i] = x[i] + y[i]


def _seconds(program: Program, work: Callable[[Program], int], operations: int) -> float:
    """Seconds of processor time an operation: other programs on the machine count little."""
    done = 0
    start = time.process_time()
    while done < operations:
        done += work(program)
    return (time.process_time() - start) / done


def compare(operations: int = 2000, rounds: int = 7) -> dict[str, dict[str, float]]:
    """Microseconds an operation without and with the checker, and their ratio, by program: the best of some rounds,
    taken in turn."""
    found = {}
    for name, work in PROGRAMS.items():
        programs = {mode: Program(mode) for mode in ("off", "raise")}
        best = dict.fromkeys(programs, float("inf"))
        for _ in range(rounds):
            for mode, program in programs.items():
                best[mode] = min(best[mode], _seconds(program, work, operations // rounds + 1))
        off, checked = (best[mode] * 1e6 for mode in ("off", "raise"))
        found[name] = {"off_us": round(off, 2), "raise_us": round(checked, 2), "ratio": round(checked / off, 2)}
    return found


def growth(operations: int = 200_000, work: Optional[Callable[[Program], int]] = None) -> dict[str, float]:
    """A long program with the checker: microseconds an operation at its end, and those of one that begins then.

    Both are measured in turn, each figure is the median of slices: what else the machine does counts for both.
    """
    work = work or Program.pipeline
    program = Program("raise")
    size = WINDOW // 20
    _seconds(program, work, operations - WINDOW)
    fresh = Program("raise")
    _seconds(fresh, work, 1000)
    slices = [(_seconds(fresh, work, size), _seconds(program, work, size)) for _ in range(20)]
    first, last = (float(np.median(part)) * 1e6 for part in zip(*slices))
    return {
        "operations": operations,
        "first_us": round(first, 2),
        "last_us": round(last, 2),
        "ratio": round(last / first, 3),
    }


def hazards(operations: int = 200_000) -> dict[str, Any]:
    """All figures."""
    return {"programs": compare(), "growth": growth(operations)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--operations", type=int, default=200_000, help="length of the long program")
    arguments = parser.parse_args()
    found = hazards(arguments.operations)
    if arguments.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'microseconds an operation':28}{'off':>8}{'raise':>8}{'ratio':>8}")
    for name, row in found["programs"].items():
        print(f"{name:28}{row['off_us']:8.1f}{row['raise_us']:8.1f}{row['ratio']:8.2f}")
    long = found["growth"]
    print(
        f"{long['operations']} operations: {long['last_us']:.1f} at the end, {long['first_us']:.1f} of a new program, "
        f"ratio {long['ratio']:.2f}"
    )


if __name__ == "__main__":
    main()
