"""What pyacl costs, as ratios taken in one run; absolute times belong to one machine and are not printed.

usage: benchmark.py [SECTION...]      import, load, simulator, copy; all of them without an argument

Every measurement alternates between the thing and its yardstick, many short slices of each, and takes the medians,
so that both see the same machine. The yardstick of a call is a plain ctypes call of an empty C function with three
arguments, which gcc compiles for the run.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

SLICES = 15


def compare(work: Callable[[], object], yardstick: Callable[[], object], count: int) -> float:
    """The median time of `work` over that of `yardstick`, slices of `count` calls in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for function in (work, yardstick):  # what happens once is not the point
        function()
    for _ in range(SLICES):
        for function, taken in zip((work, yardstick), times):
            began = time.perf_counter()
            for _ in range(count):
                function()
            taken.append(time.perf_counter() - began)
    return statistics.median(times[0]) / statistics.median(times[1])


def show(section: str, what: str, ratio: float, yardstick: str) -> None:
    print(f"{section:10} {what:44} {ratio:8.2f} x {yardstick}", flush=True)


def empty_call() -> Callable[[], object]:
    """A plain ctypes call, with declared argument types, of a C function that does nothing."""
    folder = tempfile.mkdtemp()
    source = Path(folder, "empty.c")
    source.write_text("int empty(void **out, unsigned long size, unsigned policy) { return 0; }\n")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", f"{folder}/empty.so", str(source)], check=True)
    function = ctypes.CDLL(f"{folder}/empty.so").empty
    function.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint32]
    pointer = ctypes.c_void_p()
    return lambda: function(pointer, 4096, 0)


def section_import() -> None:
    def run(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    show("import", "import pyacl", compare(run("import pyacl"), run("import numpy, ctypes"), 1), "import numpy, ctypes")


def section_load() -> None:
    # in a process of its own each time: the second load in a process is cheaper
    code = """
import time, numpy, pyacl, pyacl.raw
began = time.perf_counter(); pyacl.raw.load("sim"); print(time.perf_counter() - began)
"""
    base = "import time; began = time.perf_counter(); import numpy, ctypes; print(time.perf_counter() - began)"

    def seconds(program: str) -> float:
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        return float(done.stdout)

    loads, imports = zip(*((seconds(code), seconds(base)) for _ in range(SLICES)))
    show(
        "load",
        'raw.load("sim") in a new process',
        statistics.median(loads) / statistics.median(imports),
        "import numpy, ctypes",
    )


def simulated(order: str) -> tuple[object, ...]:
    import numpy as np

    from pyacl import sim
    from pyacl.device import Device
    from pyacl.session import use_backend
    from pyacl.testing import make_kernel_object

    def nothing(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]) -> None:
        pass

    sim.kernel("nothing")(nothing)
    use_backend(sim.Backend(order=order))
    device = Device(0)
    stream = device.create_stream()
    kernel = device.load(make_kernel_object("nothing"))["nothing"]
    return device, stream, kernel


def section_simulator() -> None:
    import numpy as np

    from pyacl.session import current_session

    floor, unit = empty_call(), "an empty ctypes call"
    device, stream, kernel = simulated("eager")
    api = current_session().api
    pointer = ctypes.c_void_p()

    def allocate() -> None:
        api.aclrtMalloc(pointer, 4096, 0)
        api.aclrtFree(pointer)

    show("simulator", "aclrtMalloc + aclrtFree, 4 KiB", compare(allocate, floor, 200), unit)
    buffer = device.empty(1024, np.float16)
    array = np.zeros(1024, np.float16)
    source, target = array.ctypes.data, buffer.address
    show(
        "simulator", "aclrtMemcpy to the device, 2 KiB",
        compare(lambda: api.aclrtMemcpy(target, 2048, source, 2048, 1), floor, 200), unit,
    )  # fmt: skip
    show("simulator", "copy_from(array), 2 KiB", compare(lambda: buffer.copy_from(array), floor, 200), unit)
    bound = kernel.bind(8, stream)

    def launch() -> None:
        bound(buffer, buffer, buffer)

    show("simulator", "bound kernel, launched and run", compare(launch, floor, 200), unit)
    show(
        "simulator", "kernel[8, stream](...), launched and run",
        compare(lambda: kernel[8, stream](buffer, buffer, buffer), floor, 200), unit,
    )  # fmt: skip
    device.close()


def section_copy() -> None:
    import numpy as np

    from pyacl.session import current_session

    device, _, _ = simulated("lazy")
    api = current_session().api
    nbytes = 256 << 20
    array, other = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    buffer = device.to_device(array)
    unit = "numpy's own copy"
    for what, work in (
        ("256 MiB to the device", lambda: api.aclrtMemcpy(buffer.address, nbytes, array.ctypes.data, nbytes, 1)),
        ("256 MiB to the host", lambda: api.aclrtMemcpy(other.ctypes.data, nbytes, buffer.address, nbytes, 2)),
    ):
        show("copy", what, compare(work, lambda: np.copyto(other, array), 1), unit)
    device.close()


SECTIONS = {"import": section_import, "load": section_load, "simulator": section_simulator, "copy": section_copy}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], metavar="SECTION", help=", ".join(SECTIONS))
    for name in parser.parse_args().sections or SECTIONS:
        SECTIONS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
