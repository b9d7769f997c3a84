"""The end of the process: silent and successful with everything open, in the right order, whoever else is there."""

from __future__ import annotations

import pytest
from child import run, silent

EVERYTHING = """
import sys
import numpy as np
import pyacl
from pyacl import sim
from pyacl.testing import make_kernel_object

@sim.kernel
def add_custom(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]):
    z[:] = x + y

pyacl.use_backend(sys.argv[1])
device = pyacl.Device(0)
other = pyacl.Device(0)
stream = device.create_stream()
event = stream.record()
binary = device.load(make_kernel_object("add_custom"))
add = binary["add_custom"]
bound = add[8, stream]
x = device.to_device(np.arange(16384, dtype=np.float16), stream)
z = device.empty_like(x)
pinned = device.empty_host(16384, np.float16)
array = pinned.array[5:10]
view = z[5:10]
bound(x, x, z)                       # queued, and nobody waits
z.copy_to(pinned, stream)
stream.launch_host_func(lambda: None)
add[1](x, x, z)                      # on the default stream
cycle = [device, stream, add]
cycle.append(cycle)
"""


@pytest.fixture(params=["sim", "library"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "sim":
        return "sim"
    from stub import libraries

    return f"library:{libraries().folder}"


def test_with_everything_open(backend: str) -> None:
    assert silent(run(EVERYTHING + "print('end')", backend, PYACL_STUB_WORKING="1")) == "end\n"


def test_in_a_function(backend: str) -> None:
    lines = "\n".join("    " + line for line in EVERYTHING.splitlines())
    program = f"def main():\n{lines}\nmain()\nprint('end')"
    assert silent(run(program, backend, PYACL_STUB_WORKING="1")) == "end\n"


def test_with_an_exception(backend: str) -> None:
    ended = run(EVERYTHING + "raise KeyError('mine')", backend, PYACL_STUB_WORKING="1")
    assert ended.code == 1
    assert ended.err.startswith("Traceback") and ended.err.endswith("KeyError: 'mine'\n") and "pyacl" not in ended.err


def test_with_sys_exit(backend: str) -> None:
    ended = run(EVERYTHING + "sys.exit(7)", backend, PYACL_STUB_WORKING="1")
    assert (ended.code, ended.out, ended.err) == (7, "", "")


def test_inside_of_with(backend: str) -> None:
    program = EVERYTHING + "\nwith pyacl.Device(0) as d, d.create_stream() as s:\n    sys.exit(0)"
    assert silent(run(program, backend, PYACL_STUB_WORKING="1")) == ""


def test_with_a_daemon_thread_at_work(backend: str) -> None:
    program = (
        EVERYTHING
        + """
import threading, time
def work():
    while True:
        try:
            stream.record(event)
            stream.synchronize()
        except pyacl.ClosedError:
            return
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""
    )
    assert silent(run(program, backend, PYACL_STUB_WORKING="1")) == ""


ORDER = """
import atexit, sys

@atexit.register
def report():
    # registered first, so it runs last
    words = ("Destroy", "UnLoad", "Free", "Reset", "aclFinalize")
    print(" ".join(c.function for c in libraries().calls() if c.function.startswith("acl") and
                   any(word in c.function for word in words)))
    print(libraries().live())

if "early finalizer" in sys.argv:
    # somebody else's first finalizer comes before everything of pyacl
    import weakref
    class Thing: pass
    thing = Thing()
    weakref.finalize(thing, print, "other finalizer")
from stub import libraries
libraries()
"""


@pytest.mark.parametrize("option", ["", "early finalizer"])
def test_handles_go_before_finalize(option: str) -> None:
    from stub import libraries

    program = ORDER + EVERYTHING.replace("array = pinned.array[5:10]", "")
    out = silent(run(program, f"library:{libraries().folder}", option, PYACL_STUB_WORKING="1"))
    *before, last, alive = out.splitlines()
    # the other Device of the same number has nothing on it; what may still be at work goes first
    assert last.split() == [
        *("aclrtResetDevice", "aclrtDestroyStream", "aclrtDestroyEvent", "aclrtBinaryUnLoad"),
        *("aclrtFreeHost", "aclrtFree", "aclrtFree", "aclrtResetDevice", "aclFinalize"),
    ]
    assert alive == "[]" and before == (["other finalizer"] if option else [])


def test_what_somebody_else_initialised_stays(backend: str) -> None:
    program = """
    import atexit, sys
    import pyacl
    from pyacl import raw

    pyacl.use_backend(sys.argv[1])

    @atexit.register
    def somebody_else():
        print("mine", api.unchecked.aclFinalize())

    api = raw.load(pyacl.session.current_session().api.backend)
    api.aclInit(None)
    device = pyacl.Device(0)
    stream = device.create_stream()
    """
    assert silent(run(program, backend, PYACL_STUB_WORKING="1")) == "mine 0\n"


def test_pinned_memory_may_be_read_until_the_end(backend: str) -> None:
    program = """
    import atexit, sys
    atexit.register(lambda: print(int(array.sum())))
    import pyacl
    pyacl.use_backend(sys.argv[1])
    device = pyacl.Device(0)
    array = device.empty_host(1000, "int32").array
    array[:] = 3
    device.close()
    """
    assert silent(run(program, backend, PYACL_STUB_WORKING="1")) == "3000\n"


def test_using_a_device_from_atexit() -> None:
    program = """
    import atexit
    import pyacl

    @atexit.register
    def early():
        try:
            print(device.full(3, 7, "int8").to_host().tolist())
        except pyacl.ClosedError as error:
            print("closed")

    pyacl.use_backend("sim")
    device = pyacl.Device(0)

    @atexit.register
    def late():
        print(device.full(3, 7, "int8").to_host().tolist())
    """
    assert silent(run(program)) == "[7, 7, 7]\nclosed\n"
