"""Importing pyacl opens nothing, needs nothing, and costs next to nothing."""

from __future__ import annotations

from child import run, silent


def test_opens_no_library_and_imports_nothing_foreign() -> None:
    program = """
    import sys
    before = set(sys.modules)
    import pyacl
    files = {n: getattr(sys.modules[n], "__file__", None) or "" for n in set(sys.modules) - before}
    foreign = {n.partition(".")[0] for n, file in files.items() if "site-packages" in file}
    print(sorted(foreign - {"pyacl", "numpy"}))
    import os, pathlib
    maps = pathlib.Path("/proc/self/maps").read_text() if os.path.exists("/proc/self/maps") else ""
    print([name for name in ("ascendcl", "acl_rt", "libruntime", "ascend_hal") if name in maps])
    """
    assert silent(run(program)) == "[]\n[]\n"


def test_every_public_name_is_there_and_loads_no_library() -> None:
    program = """
    import pyacl
    for name in pyacl.__all__:
        getattr(pyacl, name)
    print(set(pyacl.__all__) <= set(dir(pyacl)))
    from pyacl import session
    print(session._current)
    try:
        pyacl.nothing
    except AttributeError as error:
        print(error)
    """
    assert silent(run(program)) == "True\nNone\nmodule 'pyacl' has no attribute 'nothing'\n"


def test_costs_at_most_one_and_a_half_times_numpy() -> None:
    """The cheaper of several turns of each, taken in turns, so that the load of the machine hits both."""
    program = """
    import subprocess, sys, time
    def cost(what):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", what], check=True)
        return time.perf_counter() - start
    pairs = [(cost("import numpy, ctypes"), cost("import pyacl")) for _ in range(7)]
    print(min(p for _, p in pairs) / min(n for n, _ in pairs))
    """
    assert float(silent(run(program))) < 1.5


def test_a_program_on_the_simulator_needs_no_other_package() -> None:
    program = """
    import sys
    import numpy as np
    import pyacl
    pyacl.use_backend("sim")
    with pyacl.Device(0) as device:
        device.to_device(np.zeros(3)).to_host()
    print([n for n in ("rich", "ml_dtypes", "pytest", "hypothesis", "elftools", "torch") if n in sys.modules])
    """
    assert silent(run(program)) == "[]\n"


def test_loading_the_simulator_takes_less_than_60_milliseconds() -> None:
    """Processor time, the best of several processes: the rest belongs to the machine."""
    program = """
    import time
    from pyacl import raw
    began = time.process_time()
    raw.load("sim")
    print(time.process_time() - began)
    """
    assert min(float(silent(run(program))) for _ in range(5)) < 0.060
