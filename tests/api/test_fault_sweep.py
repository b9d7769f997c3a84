"""The fault sweep: every sample, the README and a program of everything survive a failure of each of their calls; and
the sweep finds what does not."""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import sys
import weakref

import numpy as np
import pages
import pytest
from pyacl_api import work_of_every_kind

import pyacl
from pyacl import raw, session, sim
from pyacl.backends import sim as backends_sim
from pyacl.backends.sim.engine.kernels import EMULATIONS
from pyacl.testing import Sweep, SweepFailure, fault_sweep, faults, make_kernel_object

SAMPLES = pages.ROOT / "samples"
README = pages.ROOT / "README.md"
ADD = make_kernel_object("add_custom")
#: a broken device, a driver error, a timeout, no context, a lost device
CODES = [507015, 507899, 507046, 107002, 507901]


@sim.kernel
def add_custom(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]) -> None:
    z[:] = x + y


@pytest.fixture(autouse=True)
def nothing_is_changed():
    """Kernels, session, arguments, choice of the environment are as they were."""
    before = _state()
    yield
    assert _state() == before


def _state() -> list[object]:
    return [dict(EMULATIONS), session._current, list(sys.argv), os.environ.get("PYACL_BACKEND"), list(sys.path)]


# ---- what survives -------------------------------------------------------------------------------------------------


def test_calls_are_where_the_program_makes_them() -> None:
    """Not in contextlib or weakref, through which pyacl makes some of them."""

    def program() -> None:
        def inner() -> None:
            device.zeros(4)
            device.create_event()  # both are collected here

        device = pyacl.Device(0)
        with device.create_stream() as stream:
            inner()
            stream.synchronize()
        device.close()

    start = program.__code__.co_firstlineno
    swept = fault_sweep(program)
    here = {f"{__file__}:{line}" for line in range(start, start + 11)}
    elsewhere = [call for call in swept.calls if call.place not in here]
    assert [call.function for call in elsewhere] == ["aclFinalize"]  # the sweep does that
    assert {"aclrtGetCurrentContext", "aclrtFree", "aclrtDestroyEvent"} <= {call.function for call in swept.calls}


@pytest.mark.parametrize("name", sorted(path.parent.name for path in SAMPLES.glob("*/main.py")))
def test_samples(name, monkeypatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)  # what Device.recover does before it tries again
    swept = fault_sweep(SAMPLES / name / "main.py")
    assert len(swept) > 40 and {call.outcome for call in swept.calls} <= {"raised", "handled"}
    assert {"aclInit", "aclrtSetDevice", "aclrtResetDevice", "aclFinalize"} <= {call.function for call in swept.calls}
    # of the calls that do the work none may fail unnoticed: only questions about the context are asked on the way, and
    # what is freed by a finalizer has nobody to tell
    if name not in ("errors", "callback"):  # which catch errors and print them
        quiet = {call.function for call in swept.calls if call.outcome == "handled"}
        assert quiet <= {"aclrtGetCurrentContext", "aclrtSetCurrentContext", "aclrtFree", "aclrtBinaryUnLoad"}


@pytest.mark.parametrize(
    "block", [b for b in pages.blocks(README) if b.language == "python" and "with pyacl.Device" in b.text],
    ids=lambda block: f"line {block.line}",
)  # fmt: skip
def test_readme(block, tmp_path, monkeypatch) -> None:
    pages.prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    code = compile("\n" * (block.line - 1) + block.text, str(README), "exec", dont_inherit=True)
    swept = fault_sweep(lambda: exec(code, {"__name__": "__main__"}))
    assert len(swept) > 25


def everything() -> None:
    with pyacl.Device(0) as device, pyacl.Device(1) as peer:
        peer.enable_peer_access(device)
        work = work_of_every_kind(device)
        stream = work.stream
        device.synchronize(10)
        peer.empty_like(work.x).copy_from(work.x)
        assert work.done - work.event >= 0 and device.memory_info.free and device.info and stream.done and stream.id
        stream.abort()
        device.synchronize()


def without_with() -> None:
    """Nothing is closed: the objects are dropped, with work on the default stream that nobody has waited for."""
    device = pyacl.Device(0)
    stream = device.default_stream
    x = device.full(100_000, 2.5, np.float32, stream)
    event = stream.record(device.create_event())
    buffers = [device.to_device(np.arange(100_000, dtype=np.float32), stream) for _ in range(3)]
    for buffer in buffers:
        buffer.copy_from(x, stream)
    device.allocate_host(100).close()
    assert event.device is device


def recovering() -> None:
    with pyacl.Device(0) as device, faults.kernel_exception():
        x = device.zeros(64, np.float16)
        try:
            device.load(ADD)["add_custom"][1](x, x, x)
            device.synchronize()
        except pyacl.AclDeviceFaultError:
            device.recover(attempts=1)
        with device.create_stream() as stream:
            assert device.full(4, 1, np.uint8, stream).to_host(stream).tolist() == [1] * 4


@pytest.mark.parametrize(("program", "order", "code"), [
    (everything, "lazy", 507015), (everything, "random(3)", None),
    *((without_with, "lazy", code) for code in (None, *CODES)), (without_with, "eager", None),
    *((recovering, "lazy", code) for code in (None, *CODES)),
])  # fmt: skip
def test_programs(program, order, code) -> None:
    swept = fault_sweep(program, backend=lambda: sim.Backend(devices=2, order=order), code=code)
    assert len(swept) >= 25 and all(code in (None, call.code) for call in swept.calls)
    assert {call.outcome for call in swept.calls} == {"raised", "handled"}


def test_dropping_a_device_with_work_on_its_default_stream() -> None:
    """Buffers that queued work needs refer to the device: the two are collected together, in the right order."""
    backend = sim.Backend()
    with session.isolated(backend):
        without_with()
        gc.collect()
        assert backend.report().is_empty, backend.report()


# ---- what it says --------------------------------------------------------------------------------------------------


def copies() -> None:
    with pyacl.Device(0) as device:
        device.full(4, 1, np.uint8).to_host()


def test_the_result() -> None:
    swept = fault_sweep(copies)
    assert isinstance(swept, Sweep)
    assert [call.function for call in swept.calls] == [
        *("aclInit", "aclrtGetDeviceCount", "aclrtSetDevice", "aclrtGetCurrentContext", "aclrtGetCurrentContext"),
        *("aclrtMalloc", "aclrtGetCurrentContext", "aclrtMemset", "aclrtGetCurrentContext", "aclrtMemcpy"),
        *("aclrtGetCurrentContext", "aclrtFree", "aclrtResetDevice", "aclFinalize"),
    ]
    line = copies.__code__.co_firstlineno + 2
    malloc = swept.calls[5]
    assert malloc == (6, "aclrtMalloc", 207001, f"{__file__}:{line}", "raised")
    assert str(swept) == "14 calls failed, one in each run: 5 handled, 9 raised"


def test_some_functions_and_another_code() -> None:
    swept = fault_sweep(copies, functions=("aclrtMem*", "aclrtMalloc"), code="ACL_ERROR_RT_SYS_DMA")
    assert [(call.function, call.code) for call in swept.calls] == [
        ("aclrtMalloc", 507013), ("aclrtMemset", 507013), ("aclrtMemcpy", 507013),
    ]  # fmt: skip


def test_scripts(tmp_path, monkeypatch, capsys) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, helper, pyacl\n"
        "assert __name__ == '__main__' and sys.argv == [__file__] and os.environ['PYACL_BACKEND'] == 'sim'\n"
        "print('said', helper.N)\n"
        "with pyacl.Device(0) as device: device.zeros(helper.N)\n"
    )
    (tmp_path / "helper.py").write_text("N = 4\n")
    with monkeypatch.context() as patch:
        patch.setenv("PYACL_BACKEND", "library")
        assert len(fault_sweep(str(script))) == 12
        assert os.environ["PYACL_BACKEND"] == "library"
    assert capsys.readouterr().out == ""
    del sys.modules["helper"]


def test_a_program_that_chooses_its_backend() -> None:
    def chooses() -> None:
        pyacl.use_backend("sim:Ascend310P3")
        with pyacl.Device(0) as device:
            assert device.name == "Ascend310P3"

    assert {call.function for call in fault_sweep(chooses).calls} >= {"aclInit", "aclrtSetDevice", "aclFinalize"}


def test_a_backend_by_name() -> None:
    names = []
    with_name = fault_sweep(lambda: names.append(pyacl.Device(0).name), backend="sim:Ascend910_9391@8.5.0")
    assert set(names) == {"Ascend910_9391"} and len(with_name) > 5


def test_errors_raised_from_acl_errors_and_exits() -> None:
    def wraps() -> None:
        try:
            copies()
        except pyacl.AclError as error:
            raise ValueError("something of my own") from error

    def exits() -> None:
        try:
            copies()
        except pyacl.AclError as error:
            sys.exit(f"failed: {error.name}")

    assert {call.outcome for call in fault_sweep(wraps).calls} == {"handled", "raised"}
    assert "exited" in {call.outcome for call in fault_sweep(exits).calls}


def test_fewer_calls_than_before() -> None:
    runs = []

    def less_each_time() -> None:
        runs.append(1)
        with pyacl.Device(0) as device:
            for _ in range(max(0, 3 - len(runs))):
                device.synchronize()

    swept = fault_sweep(less_each_time, functions="aclrtSynchronizeDevice")
    assert [call.outcome for call in swept.calls] == ["raised", "not reached"]


def test_what_the_collector_finds_inside_of_the_simulator_is_no_leak(monkeypatch) -> None:
    report = backends_sim.report

    def collecting(machine):
        gc.collect()  # as it may happen at any time
        return report(machine)

    monkeypatch.setattr(backends_sim, "report", collecting)

    def program() -> None:
        with pyacl.Device(0) as device:
            kept: list[object] = [device.empty_host(4).array]
            kept.append(kept)

    assert len(fault_sweep(program)) > 3


def test_the_session_of_the_test_goes_on() -> None:
    with session.isolated(sim.Backend()), pyacl.Device(0) as device:
        x = device.full(4, 1, np.uint8)
        fault_sweep(copies, functions="aclrtMalloc")
        assert x.to_host().tolist() == [1] * 4


# ---- what it finds -------------------------------------------------------------------------------------------------


def leaky() -> None:
    with pyacl.Device(0):
        event = raw.types.aclrtEvent()
        raw.aclrtCreateEvent(event)
        raw.aclrtSynchronizeDevice()
        raw.aclrtDestroyEvent(event)


def failure(program, **options) -> SweepFailure:
    with pytest.raises(SweepFailure) as caught:
        fault_sweep(program, **options)
    return caught.value


def test_a_leak() -> None:
    found = failure(leaky)
    line = leaky.__code__.co_firstlineno
    assert (found.function, found.code, found.place) == ("aclrtSynchronizeDevice", 507015, f"{__file__}:{line + 4}")
    assert [(live.kind, live.place) for live in found.leaked] == [("event", (__file__, line + 3))]
    text = str(found)
    assert text.startswith(f"Call {found.number} of 9, aclrtSynchronizeDevice at {__file__}:{line + 4}, fails with ")
    assert "ACL_ERROR_RT_AICORE_EXCEPTION (507015). The program leaves behind:\n  event (0x" in text
    assert text.endswith(f"made at {__file__}:{line + 3}")


def test_what_cannot_be_given_back_may_stay_and_nothing_else() -> None:
    def two_events() -> None:
        with pyacl.Device(0):
            events = [raw.types.aclrtEvent() for _ in range(2)]
            for event in events:
                raw.aclrtCreateEvent(event)
            raw.aclrtDestroyEvent(events[0])
            raw.aclrtDestroyEvent(events[1])

    found = failure(two_events, functions="aclrtDestroyEvent")
    assert [live.kind for live in found.leaked] == ["event"]
    swept = fault_sweep(lambda: _one_event(), functions="aclrtDestroyEvent")
    assert [call.outcome for call in swept.calls] == ["raised"]


def _one_event() -> None:
    with pyacl.Device(0):
        event = raw.types.aclrtEvent()
        raw.aclrtCreateEvent(event)
        raw.aclrtDestroyEvent(event)


def test_a_wait_without_an_end() -> None:
    def waits() -> None:
        with pyacl.Device(0) as device, device.create_stream() as stream:
            notify = raw.types.aclrtNotify()
            raw.aclrtCreateNotify(notify, 0)
            try:
                raw.aclrtWaitAndResetNotify(notify, stream, 0)
                raw.unchecked.aclrtRecordNotify(notify, device.default_stream)  # a failure is overlooked
                stream.synchronize()
            finally:
                raw.aclrtDestroyNotify(notify)

    api_waits = _with_unchecked(waits)
    found = failure(api_waits, functions="aclrtRecordNotify")
    assert found.function == "aclrtRecordNotify"
    assert "The program hangs: deadlock: this wait can never end" in str(found)


def _with_unchecked(program):
    """`raw.unchecked` for one program: the session's."""

    def run() -> None:
        raw.unchecked = session.current_session().api.unchecked
        try:
            program()
        finally:
            del raw.unchecked

    return run


def test_a_program_that_waits_for_itself() -> None:
    def waits() -> None:
        answers: queue.Queue[int] = queue.Queue()
        with contextlib.suppress(pyacl.AclError):
            copies()
            answers.put(1)
        answers.get()

    found = failure(waits, functions="aclrtMemcpy", timeout=1)
    assert "The program hangs: it did not end within 1 seconds" in str(found) and found.function == "aclrtMemcpy"


def test_another_exception() -> None:
    def careless() -> None:
        with pyacl.Device(0) as device:
            x = None
            with contextlib.suppress(pyacl.AclError):
                x = device.full(4, 1, np.uint8)
            x.to_host()

    found = failure(careless)
    assert (found.function, type(found.__cause__)) == ("aclrtMalloc", AttributeError)
    assert "raises AttributeError: 'NoneType' object has no attribute 'to_host'\nand not AclError" in str(found)


def test_a_failure_that_goes_unnoticed_and_spoils_the_result() -> None:
    def overlooks() -> None:
        with pyacl.Device(0) as device:
            x = device.full(4, 1, np.uint8)
            raw.unchecked.aclrtMemset(x.address, 4, 2, 4)
            assert x.to_host().tolist() == [2] * 4

    found = failure(_with_unchecked(overlooks), functions="aclrtMemset")
    assert "raises AssertionError" in str(found)


def test_a_program_that_cannot_start_again() -> None:
    used = []

    def once() -> None:
        if used:
            used.clear()
            raise RuntimeError("was not tidied up")
        used.append(1)
        copies()
        used.clear()

    found = failure(once, functions="aclrtMalloc")
    assert "ends as it should, but run again on the same machine it raises RuntimeError: was not tidied" in str(found)


def test_what_a_finalizer_raises() -> None:
    class Broken:
        def __init__(self) -> None:
            weakref.finalize(self, int, "x")

    def drops() -> None:
        try:
            copies()
        except pyacl.AclError:
            Broken()
            raise

    found = failure(drops, functions="aclrtMalloc")
    assert "raises where nobody can catch it" in str(found) and "invalid literal for int()" in str(found)


def test_programs_that_are_no_use_to_begin_with() -> None:
    def breaks() -> None:
        copies()
        raise KeyError("x")

    def leaks() -> None:
        with pyacl.Device(0):
            raw.aclrtCreateEvent(raw.types.aclrtEvent())

    def fails() -> None:
        with pyacl.Device(0) as device:
            device.allocate(1 << 50)

    def open_at_the_end() -> None:
        kept.append(pyacl.Device(0).create_stream())

    kept: list[object] = []
    for program, text in (
        (breaks, r"The program raises KeyError: 'x'"),
        (leaks, r"The program leaves behind:\n  event \(0x"),
        (fails, r"The program raises AclMemoryError: aclrtMalloc failed with 207001"),
        (open_at_the_end, r"The program leaves behind:\n  stream \(0x"),
        (lambda: None, r"The program makes no C call"),
    ):
        with pytest.raises(SweepFailure, match=text) as caught:
            fault_sweep(program)
        assert (caught.value.number, caught.value.function) == (0, "")
    kept.clear()


def test_bad_requests(tmp_path) -> None:
    for arguments, options, kind, text in (
        ((3,), {}, TypeError, "program: something to call, or the path of a script, not int"),
        ((tmp_path / "none.py",), {}, FileNotFoundError, "program: there is no script .*none.py"),
        ((copies,), {"backend": "library"}, ValueError, "'library' is no simulator"),
        ((copies,), {"backend": "sim:Ascend1"}, ValueError, "Ascend1"),
        ((copies,), {"backend": sim.Backend()}, TypeError, "each run needs a fresh machine"),
        ((copies,), {"code": 5}, ValueError, "no CANN version has an error code 5"),
    ):
        with pytest.raises(kind, match=text):
            fault_sweep(*arguments, **options)
