"""A failure at any point of the add program: it is raised, nothing is left behind, and the program can start again."""

from __future__ import annotations

import gc
from typing import Callable

import numpy as np
import pytest
from failing import RELEASES, FailingBackend
from pyacl_api import ADD, add_custom, forget, work_of_every_kind  # noqa: F401  add_custom is the kernel's emulation

import pyacl
from pyacl import sim


def add_program() -> None:
    with pyacl.Device(0) as device, device.create_stream() as stream:
        add = device.load(ADD)["add_custom"]
        x = device.to_device(np.arange(1024, dtype=np.float16), stream)
        y = device.to_device(np.ones(1024, dtype=np.float16), stream)
        z = device.empty_like(x)
        add[8, stream](x, y, z)
        result = z.to_host(stream)
    assert (result == np.arange(1024, dtype=np.float16) + np.float16(1)).all()


def everything_program() -> None:
    with pyacl.Device(0) as device:
        work = work_of_every_kind(device)
        assert work.done - work.done == 0 and device.memory_info.free and device.info
        device.synchronize()


PROGRAMS = [add_program, everything_program]


@pytest.fixture(autouse=True)
def fresh():
    forget()
    yield
    forget()


def calls_of(program: Callable[[], None], order: str) -> list[str]:
    backend = FailingBackend(sim.Backend(order=order))
    pyacl.use_backend(backend)
    program()
    forget()
    assert list(backend.inner.report()) == []
    return backend.calls


# a failure in a finalizer has nobody to be raised to
@pytest.mark.filterwarnings("ignore:freeing the:ResourceWarning")
# the long program in one order: the fault sweep's own tests have one like it in others
@pytest.mark.parametrize(
    ("program", "order"), [(add_program, "lazy"), (add_program, "eager"), (everything_program, "lazy")]
)
def test_every_call_fails_once(program: Callable[[], None], order: str) -> None:
    calls = calls_of(program, order)
    assert len(calls) > 20
    silent = []
    for at, name in enumerate(calls):
        backend = FailingBackend(sim.Backend(order=order), at)
        pyacl.use_backend(backend)
        try:
            program()
            silent.append(name)
        except pyacl.AclError as error:
            assert error.code in (507899, None), (at, name, error)
        backend.at = None
        left = list(backend.inner.report())
        if not any(word in name for word in RELEASES):
            assert left == [], (at, name, str(backend.inner.report()))
            program()  # and it can start again
            assert list(backend.inner.report()) == [], (at, name)
        forget()
    # these are asked on the way and may fail without harm
    harmless = {"aclGetRecentErrMsg", "aclrtGetLastError", "aclrtGetSocName", "aclFinalize", "aclrtGetDeviceInfo"}
    harmless |= {"aclrtGetUserDevIdByLogicDevId", "aclrtGetPhyDevIdByLogicDevId", "aclrtGetCurrentContext", "aclrtFree"}
    harmless |= {"aclrtDestroyEvent"}
    assert set(silent) <= harmless, set(silent) - harmless


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_exception_out_of_every_call(program: Callable[[], None]) -> None:
    """As Ctrl-C does it: what is raised inside a call of the fake reaches the program, and nothing is left."""
    calls = calls_of(program, "eager")
    asked = ("aclGet", "aclrtGetSocName", "aclrtGetLastError")
    for at, (name, following) in enumerate(zip(calls, [*calls[1:], ""])):
        # while something is freed, perhaps by a finalizer, there is nobody to raise to
        if any(word in name + following for word in RELEASES) or name.startswith(asked):
            continue
        backend = FailingBackend(sim.Backend(order="eager"), at, error=KeyboardInterrupt)
        pyacl.use_backend(backend)
        with pytest.raises(KeyboardInterrupt):
            program()
        backend.at = None
        gc.collect()  # the traceback holds arrays on pinned memory
        assert list(backend.inner.report()) == [], (at, name, str(backend.inner.report()))
        forget()
