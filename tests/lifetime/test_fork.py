"""Forks: the child frees nothing and says so, the parent goes on, and a child can begin anew on a simulator."""

from __future__ import annotations

import os

import pytest
from child import run, silent

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

OPEN = """
import gc, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: a fork while the simulator's thread runs
import numpy as np
import pyacl

pyacl.use_backend(sys.argv[1])
device = pyacl.Device(0)
stream = device.create_stream()
event = stream.record()
buffer = device.to_device(np.arange(10, dtype=np.int32), stream)
pinned = device.empty_host(10, np.int32)
array = pinned.array
array[:] = 5

def check():
    stream.synchronize()
    assert buffer.copy_from(array, stream).to_host(stream).tolist() == [5] * 10
    assert event.done

def in_child(work):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        work()
        sys.stdout.flush()
        sys.exit(0)          # as a program does: finalizers run
    assert os.waitpid(pid, 0)[1] == 0
"""


@pytest.fixture(params=["sim", "library"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "sim":
        return "sim"
    from stub import libraries

    return f"library:{libraries().folder}"


def test_the_child_frees_nothing(backend: str) -> None:
    program = (
        OPEN
        + """
calls = pyacl.session.current_session().api

def child():
    global stream, event, buffer, pinned, array, device
    device.close()
    stream.close()
    del stream, event, buffer, pinned, array, device
    gc.collect()

in_child(lambda: None)
in_child(child)
check()
device.close()
print("parent done")
"""
    )
    assert silent(run(program, backend, PYACL_STUB_WORKING="1")) == "parent done\n"


def test_no_c_call_is_made_in_the_child() -> None:
    from stub import libraries

    program = (
        OPEN
        + """
from stub import libraries
import atexit

def child():
    before = libraries().count()
    # atexit runs this after the finalizers
    print(before - libraries().count(), end=" ")
    atexit.register(lambda: print(libraries().count() - before))
    global stream, buffer
    stream.close()
    del stream, buffer
    for use in (check, device.synchronize, lambda: device.empty(3), lambda: pyacl.Device(0)):
        try:
            use()
        except (pyacl.ForkedError, NameError):
            pass

in_child(child)
check()
"""
    )
    # the stub's log is a copy in the child: what it counts there, the child called
    assert silent(run(program, f"library:{libraries().folder}", PYACL_STUB_WORKING="1")) == "0 0\n"


def test_use_in_the_child_says_what_to_do(backend: str) -> None:
    program = (
        OPEN
        + """
def child():
    for use in (stream.synchronize, stream.record, lambda: event.done, buffer.to_host, device.synchronize,
                lambda: device.memory_info, lambda: buffer[2:4], lambda: pinned.array, lambda: pyacl.Device(0)):
        try:
            use()
            print("nothing was said")
        except pyacl.ForkedError as error:
            text = str(error)
            assert f"process {os.getppid()}" in text and '"spawn"' in text, text
            assert isinstance(error, pyacl.ClosedError)
    print("all said")

in_child(child)
check()
"""
    )
    assert silent(run(program, backend, PYACL_STUB_WORKING="1")) == "all said\n"


def test_a_child_may_begin_anew_on_a_simulator(backend: str) -> None:
    program = (
        OPEN
        + """
def child():
    pyacl.use_backend("sim:Ascend910B3")
    with pyacl.Device(0) as new:
        print(new.name, new.full(2, 7, "int8").to_host().tolist())

in_child(child)
check()
"""
    )
    assert silent(run(program, backend, PYACL_STUB_WORKING="1")) == "Ascend910B3 [7, 7]\n"


def test_but_not_on_the_library() -> None:
    from stub import libraries

    program = (
        OPEN
        + """
def child():
    try:
        pyacl.use_backend(sys.argv[1])
    except pyacl.ForkedError as error:
        print(error)

in_child(child)
"""
    )
    out = silent(run(program, f"library:{libraries().folder}", PYACL_STUB_WORKING="1"))
    assert "CANN was initialised in the process that this one was forked from" in out


def test_before_a_device_is_open_nothing_is_lost(backend: str) -> None:
    program = """
    import os, sys
    import pyacl
    pyacl.use_backend(sys.argv[1])
    print(pyacl.device_count() > 0, flush=True)
    pid = os.fork()
    if pid == 0:
        with pyacl.Device(0) as device:
            print(device.full(2, 7, "int8").to_host().tolist())
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    with pyacl.Device(0) as device:
        print(device.full(2, 8, "int8").to_host().tolist())
    """
    assert silent(run(program, backend, PYACL_STUB_WORKING="1")) == "True\n[7, 7]\n[8, 8]\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(method: str, tmp_path) -> None:
    module = tmp_path / "worker_module.py"
    module.write_text(
        "import pyacl\n"
        "def work(number):\n"
        "    pyacl.use_backend('sim')\n"
        "    with pyacl.Device(0) as device:\n"
        "        return device.full(2, number, 'int32').to_host().tolist()\n"
    )
    program = """
    import multiprocessing, sys, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    sys.path.insert(0, sys.argv[2])
    import pyacl
    import worker_module
    if __name__ == "__main__":
        pyacl.use_backend("sim")
        device = pyacl.Device(0)
        buffer = device.full(3, 1, "int32")
        with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
            print(pool.map(worker_module.work, [5, 6, 7]))
            pool.close()
            pool.join()
        print(buffer.to_host().tolist())
    """
    assert silent(run(program, method, str(tmp_path))) == "[[5, 5], [6, 6], [7, 7]]\n[1, 1, 1]\n"
