"""The session: which backend, aclInit and aclFinalize, and that there is one."""

from __future__ import annotations

import gc
import importlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child import run, silent
from pyacl_api import forget, use

import pyacl
from pyacl import raw, session, sim
from pyacl._handle import drain


@pytest.fixture(autouse=True)
def fresh():
    forget()
    yield
    forget()


class TestChoice:
    def test_by_name(self) -> None:
        pyacl.use_backend("sim:Ascend910B3@8.5.0")
        with pyacl.Device(0) as device:
            assert device.name == "Ascend910B3" and device.info.cann == "8.5.0"

    def test_by_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYACL_BACKEND", "sim:Ascend310P3")
        with pyacl.Device(0) as device:
            assert device.name == "Ascend310P3"

    def test_an_environment_that_names_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYACL_BACKEND", "simulator")
        with pytest.raises(ValueError, match="PYACL_BACKEND: 'simulator' is not a backend: say 'library', "):
            pyacl.Device(0)

    def test_the_call_goes_before_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYACL_BACKEND", "sim:Ascend310P3")
        pyacl.use_backend("sim")
        with pyacl.Device(0) as device:
            assert device.name == "Ascend910B1"

    def test_the_library_is_the_default_and_nothing_stands_in_for_it(self) -> None:
        """In a process of its own, which may have CANN installed but does not find it."""
        program = """
        from child import no_cann
        no_cann()
        import pyacl
        try:
            pyacl.Device(0)
        except pyacl.LibraryNotFoundError as error:
            print(type(error).__name__)
        """
        assert silent(run(program)) == "LibraryNotFoundError\n"

    @pytest.mark.parametrize("name", ["cuda", "sim:", "library:", ""])
    def test_a_name_that_is_none(self, name: str) -> None:
        with pytest.raises(ValueError, match="is not a backend"):
            pyacl.use_backend(name)

    def test_an_object_that_is_none(self) -> None:
        with pytest.raises(TypeError, match="a backend is a name or an object"):
            pyacl.use_backend(5)

    def test_not_while_devices_are_open(self) -> None:
        pyacl.use_backend("sim")
        with pyacl.Device(0) as device:
            device.create_stream()
            stream = device.create_stream()
            with pytest.raises(RuntimeError, match=r"sim:.* is in use: 2 handles are open \(device 0\). Close"):
                pyacl.use_backend("sim:Ascend910B3")
            stream.close()
            assert device.name == "Ascend910B1"
        pyacl.use_backend("sim:Ascend910B3")
        assert pyacl.Device(0).name == "Ascend910B3"

    def test_a_backend_that_cannot_be_opened_changes_nothing(self) -> None:
        pyacl.use_backend("sim")
        with pytest.raises(ValueError):
            pyacl.use_backend("sim:Ascend999")
        assert pyacl.Device(0).name == "Ascend910B1"

    def test_pinned_arrays_do_not_hold_the_backend(self) -> None:
        """The device is closed; the memory is freed on the old backend once the array is gone."""
        machine = use("lazy")
        with pyacl.Device(0) as device:
            array = device.empty_host(10, np.int32).array
        pyacl.use_backend("sim:Ascend910B3")
        assert pyacl.Device(0).name == "Ascend910B3"
        array[:] = 4
        assert array.sum() == 40 and len(machine.alive()) == 1
        del array
        assert list(machine.alive()) == []

    def test_an_object_is_not_closed(self) -> None:
        class Backend(sim.Backend):
            closed = 0

            def close(self) -> None:
                self.closed += 1

        backend = Backend()
        pyacl.use_backend(backend)
        pyacl.Device(0).close()
        pyacl.use_backend("sim")
        assert backend.closed == 0


def test_the_collector_inside_the_simulator_does_not_wait_for_itself(
    simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A buffer, and an array on pinned memory, collected while the simulator holds its locks."""
    backends: Any = importlib.import_module("pyacl.backends.sim")
    report: Any = importlib.import_module("pyacl.backends.sim.engine.report")

    def collect_in(module: Any, name: str) -> None:
        work = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args: (gc.collect(), work(*args))[1])

    collect_in(backends, "make_callable")
    collect_in(report, "Report")
    alive: list[list[str]] = []

    def ask() -> None:
        for question in (lambda: simulator.backend.address("aclrtGetNotifyId"), simulator.backend.report):
            box: list[object] = [device.zeros(4), device.empty_host(4).array]
            box.append(box)
            del box
            question()
            drain()
            alive.append([live.kind for live in simulator.backend.report()])

    with pyacl.Device(0) as device:
        device.zeros(4), device.empty_host(4)
        thread = threading.Thread(target=ask, daemon=True)
        gc.disable()
        try:
            thread.start()
            thread.join(30)
        finally:
            gc.enable()
        assert not thread.is_alive(), "it waits for itself"
        assert alive == [[], []]


class TestInit:
    def test_only_the_first_device_initialises(self, stub) -> None:
        assert stub.stub.calls("aclInit") == []
        pyacl.device_count()
        assert stub.stub.calls("aclInit") == []
        for _ in range(3):
            pyacl.Device(0).close()
        assert len(stub.stub.calls("aclInit")) == 1

    def test_finalized_once_and_last(self, stub) -> None:
        device = pyacl.Device(0)
        device.create_stream(), device.empty(4)
        session.current_session().close()
        called = [c.function for c in stub.stub.calls()]
        assert called.count("aclFinalize") == 1 and called[-1] == "aclFinalize"

    def test_what_somebody_else_initialised_is_not_finalized(self, stub) -> None:
        api = raw.load(f"library:{stub.stub.folder}")
        api.aclInit(None)
        device = pyacl.Device(0)
        assert session.current_session().owns_init is False
        device.full(4, 1, "int8").to_host()
        session.current_session().close()
        assert stub.stub.calls("aclFinalize") == []
        assert api.aclFinalize() == 0

    def test_the_text_of_the_answered_refusal_is_dropped(self, stub) -> None:
        stub.stub.fail("aclInit", 100002, "EE1001: initialised twice")
        with pyacl.Device(0) as device:
            stub.stub.set_result("aclrtMalloc", 207001)
            with pytest.raises(pyacl.AclMemoryError) as caught:
                device.empty(4)
        assert caught.value.message == ""

    def test_shared_on_the_simulator(self, simulator) -> None:
        api = raw.load(simulator.backend)
        api.aclInit(None)
        device = pyacl.Device(0)
        assert api.recent_message() == "", "the answered 100002 left its text behind"
        device.close()
        session.current_session().close()
        assert api.aclFinalize() == 0

    def test_a_failed_init_may_be_tried_again(self, stub) -> None:
        stub.stub.fail("aclInit", 107000, "EH0001: the driver is not ready")
        with pytest.raises(pyacl.AclError, match="driver is not ready"):
            pyacl.Device(0)
        stub.stub.restore("aclInit")
        with pyacl.Device(0):
            pass
        assert len(stub.stub.calls("aclInit")) == 2

    def test_finalized_by_the_program_itself(self, simulator) -> None:
        pyacl.Device(0).close()
        assert raw.aclFinalize() == 0
        session.current_session().close()  # 100037 is no error here

    def test_config(self, tmp_path: Path) -> None:
        path = tmp_path / "acl.json"
        path.write_text("{broken")
        pyacl.use_backend("sim", config=str(path))
        with pytest.raises(pyacl.AclError) as caught:
            pyacl.Device(0)
        assert caught.value.code == 100006
        pyacl.use_backend("sim", config=str(tmp_path / "absent.json"))
        with pytest.raises(pyacl.AclError) as caught:
            pyacl.Device(0)
        assert caught.value.code == 100003
        path.write_text("{}")
        pyacl.use_backend("sim", config=str(path))
        pyacl.Device(0).close()

    def test_threads_that_begin_at_once(self, stub) -> None:
        start = threading.Barrier(8)
        errors: list[BaseException] = []

        def work() -> None:
            try:
                start.wait()
                with pyacl.Device(0) as device:
                    assert device.full(100, 3, np.int16).to_host().tolist() == [3] * 100
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(stub.stub.calls("aclInit")) == 1
        assert len(stub.stub.calls("aclrtSetDevice")) == len(stub.stub.calls("aclrtResetDevice")) == 8


def test_raw_is_the_session() -> None:
    use("lazy")
    assert raw.aclInit(None) == 0
    assert raw.aclrtSetDevice(1) == 0
    device = raw.types.aclrtContext()
    raw.aclrtGetCurrentContext(device)
    assert device.value
    with pytest.raises(pyacl.AclInvalidDeviceError):
        raw.aclrtSetDevice(9)
    raw.aclrtResetDevice(1)
    raw.aclFinalize()


def test_repr() -> None:
    pyacl.use_backend("sim")
    assert repr(session.current_session()) == "<session on sim:Ascend910B1@9.0.0>"
