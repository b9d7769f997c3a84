"""``pyacl demo``: a kernel program from beginning to end, each step shown, the result checked."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, Optional

from pyacl.cli import in_words
from pyacl.cli.emulation import EmulationError, find_emulation, register_emulation

BLOCKS = 8
ELEMENTS = 8 * 2048
KERNEL = "add_custom"


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of ``pyacl``."""
    parser = subparsers.add_parser(
        "demo",
        help="run a kernel program from beginning to end",
        description="Add two vectors on the NPU and check the result. Where there is no NPU the demo says so and runs "
        "on the simulator.",
        epilog="exit codes: 0 the result is right, 1 it is not or a step failed, 2 wrong arguments",
    )
    parser.add_argument(
        "--backend", help="library, library:/folder, sim, sim:SOC (default: PYACL_BACKEND, else the NPU)"
    )
    parser.add_argument("--device", type=int, default=0, metavar="ID", help="device number (default: 0)")
    parser.add_argument(
        "--kernel", metavar="FILE.o", help=f"a kernel object with {KERNEL}(x, y, z) for 16384 half numbers"
    )
    parser.add_argument(
        "--emulate", metavar="MODULE:FUNCTION", help="what stands for the kernel on the simulator instead of x + y"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    try:
        backend, remark = _choose(args.backend)
    except ValueError as error:
        print(f"pyacl demo: {error}", file=sys.stderr)
        return 2
    if remark:
        print(remark)
    simulated = backend.startswith("sim")
    if simulated:
        try:
            _register(args.emulate)
        except EmulationError as error:
            print(f"pyacl demo: {error}", file=sys.stderr)
            return 2
    elif args.emulate:
        print("pyacl demo: --emulate is for the simulator: add --backend sim", file=sys.stderr)
        return 2
    return _demo(args, simulated)


def _demo(args: argparse.Namespace, simulated: bool) -> int:
    import numpy as np

    from pyacl.compiler import CompileError, CompilerNotFoundError
    from pyacl.device import Device
    from pyacl.kernel import KernelNotFoundError
    from pyacl.objfile import KernelObjectError

    began = time.perf_counter()
    x = np.arange(ELEMENTS, dtype=np.float32).astype(np.float16) / np.float16(64)
    y = np.full(ELEMENTS, 2, dtype=np.float16)
    with Device(args.device) as device, device.create_stream() as stream:
        info, free = device.info, device.memory_info.free
        _step("device", f"{info.id}: {info.name}, CANN {info.cann or 'unknown'}, {free / 2**30:.1f} GiB free")
        try:
            source, origin = _object(args.kernel, info.name, simulated)
            add = device.load(source)[KERNEL]
        except (CompileError, KernelNotFoundError, KernelObjectError, OSError) as error:
            print(f"pyacl demo: {in_words(error)}", file=sys.stderr)
            if isinstance(error, CompilerNotFoundError):
                print(f"Or give an object that has {KERNEL}, --kernel FILE.o, or take --backend sim.", file=sys.stderr)
            return 1
        _step("load", f"{KERNEL}, {origin}")
        x_device, y_device = device.to_device(x, stream), device.to_device(y, stream)
        z_device = device.empty_like(x_device)
        _step("copy", f"x and y to the device: 2 arrays of {ELEMENTS} {x.dtype}, {x.nbytes + y.nbytes} bytes")
        before, after = device.create_event(), device.create_event()
        stream.record(before)
        add[BLOCKS, stream](x_device, y_device, z_device)
        stream.record(after)
        _step("launch", f"{KERNEL}[{BLOCKS}, stream](x, y, z)")
        z = z_device.to_host(stream)
        _step("copy", f"z to the host: {z.nbytes} bytes")
        kernel_time = after - before
    taken = time.perf_counter() - began
    wrong = np.flatnonzero(z != x + y)
    if wrong.size:
        at = int(wrong[0])
        _step(
            "check",
            f"WRONG: {wrong.size} of {ELEMENTS} values differ, the first is z[{at}] = {z[at]}, not {x[at] + y[at]}",
        )
        return 1
    _step("check", f"z == x + y: all {ELEMENTS} values are right")
    _step("time", f"{kernel_time:.3f} ms for the kernel, {taken * 1000:.1f} ms for the program")
    return 0


def _step(name: str, text: str) -> None:
    print(f"{name:8}{text}", flush=True)


def _choose(wanted: Optional[str]) -> tuple[str, str]:
    """Select the backend; returns its name, and the line to print where it is not what was asked for."""
    from pyacl.device import device_count
    from pyacl.errors import AclError, LibraryNotFoundError
    from pyacl.session import BACKEND_VARIABLE, current_session, use_backend

    chosen = wanted or os.environ.get(BACKEND_VARIABLE)
    remark = ""
    if chosen:
        use_backend(chosen)
    else:
        try:
            use_backend("library")
            if not device_count():
                remark = "CANN is installed, but it sees no device"
        except AclError as error:
            found = "no CANN was found" if isinstance(error, LibraryNotFoundError) else f"CANN fails with {error.code}"
            remark = f"{found} (pyacl doctor says more)"
        if remark:
            use_backend("sim")
            remark = f"No NPU: {remark}. This runs on the simulator."
    return current_session().api.backend.name, remark


def _object(path: Optional[str], soc: str, simulated: bool) -> tuple[Any, str]:
    """The kernel object to load, and where it comes from."""
    if path:
        return path, path
    if simulated:
        from pyacl.objfile.arch import npu_arch_of
        from pyacl.testing import make_kernel_object

        return make_kernel_object(
            KERNEL, arch=npu_arch_of(soc) or "dav-2201", args=3
        ), "an object made for the simulator"
    from pyacl.compiler import compile

    made = compile(Path(__file__).with_name("add_custom.cpp"), soc=soc)
    return made.path, f"compiled by bisheng: {made.path}"


def _register(emulation: Optional[str]) -> None:
    """Register what stands for the kernel on the simulator."""
    import numpy as np

    from pyacl import sim

    if emulation:
        register_emulation(KERNEL, find_emulation(emulation), emulation)
        return

    def add(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]) -> None:
        z[:] = x + y

    sim.kernel(KERNEL)(add)
