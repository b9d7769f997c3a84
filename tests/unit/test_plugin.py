"""The pytest plugin: what its fixtures, markers and options do, as runs of pytest on small test files."""

from __future__ import annotations

import importlib
import pkgutil
import re
import textwrap
from pathlib import Path

import pytest

import pyacl
from pyacl.testing.sweep import _kernels_restored

pytest_plugins = ["pytester"]

# a run in this process forgets the modules that it imported, and then there would be two of each class
for module in pkgutil.walk_packages(pyacl.__path__, "pyacl."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)

START = """\
    import numpy as np
    import pytest
    import pyacl
    from pyacl import raw, sim
    from pyacl.testing import faults, make_kernel_object

"""


@pytest.fixture(autouse=True)
def own_kernels():
    """What the test files of a run in this process register is no kernel of the tests here."""
    with _kernels_restored():
        yield


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest, warnings being errors, on a test file; the outcomes and the output."""
    for name in ("PYACL_BACKEND", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)

    def runs(text: str, *arguments: str, start: str = START, apart: bool = False, **outcomes: int):
        pytester.makepyfile(textwrap.dedent(start) + textwrap.dedent(text))
        quick = () if "-n" in arguments else ("-p", "no:xdist", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")
        runner = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
        result = runner("-W", "error", *quick, *arguments)
        if outcomes:
            result.assert_outcomes(**outcomes)
        return result

    return runs


def line_of(text: str, what: str) -> int:
    """The number of the line of a test file that holds this."""
    lines = (textwrap.dedent(START) + textwrap.dedent(text)).splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if what in line]
    return found


def test_a_run_that_does_not_use_it_pays_nothing(run) -> None:
    run(
        """
        import sys

        def test_nothing_is_imported():
            loaded = {name for name in sys.modules if name.partition(".")[0] in ("pyacl", "numpy", "ctypes")}
            assert loaded == {"pyacl", "pyacl._version", "pyacl.testing", "pyacl.testing.plugin"}
        """,
        start="", apart=True, passed=1,
    )  # fmt: skip


def test_each_test_has_a_machine_of_its_own(run) -> None:
    run(
        """
        from pyacl import session
        seen = []

        @pytest.fixture(scope="module", autouse=True)
        def outer():
            pyacl.use_backend(sim.Backend(soc="Ascend310P3"))
            with pyacl.Device(0) as device:
                yield device.full(4, 7, np.uint8)

        @pytest.mark.parametrize("turn", [1, 2])
        def test_npu(npu, turn):
            assert isinstance(npu, sim.Backend) and session.current_session().api.backend is npu
            assert npu not in seen and npu.report() == []
            seen.append(npu)
            npu.clock.stop()
            with pyacl.Device(0) as device:
                assert device.name == "Ascend910B1" and pyacl.device_count() == 1
                device.zeros(4)

        def test_device(npu_device, npu):
            assert npu_device.id == 0 and npu_device.zeros(4).to_host().tolist() == [0] * 4
            assert npu not in seen

        def test_the_former_session_goes_on(outer):
            assert outer.to_host().tolist() == [7] * 4 and outer.device.name == "Ascend310P3"

        def test_a_device_that_the_test_closes(npu_device):
            npu_device.close()

        def test_another_backend_inside(npu):
            pyacl.use_backend("sim:Ascend910B4")
            assert pyacl.Device(0).name == "Ascend910B4"

        def test_again(outer):
            assert outer.to_host().tolist() == [7] * 4
        """,
        passed=7,
    )


LEAKY = """
    def test_event(npu):
        with pyacl.Device(0):
            raw.aclrtCreateEvent(raw.types.aclrtEvent())

    def test_memory(npu):
        raw.aclrtSetDevice(0)
        raw.aclrtMalloc(raw.types.aclrtStream(), 100, 0)
        raw.aclrtMallocHost(raw.types.aclrtStream(), 200)

    kept = []

    def test_kept_object(npu):
        kept.append(pyacl.Device(0).create_stream())

    def test_dropped_objects(npu):
        device = pyacl.Device(0)
        circle = [device.zeros(4), device.create_stream(), device.empty_host(4)]
        circle.append(circle)

    def test_fails_anyway(npu_device):
        kept.append(npu_device.create_stream())
        raw.aclrtCreateEvent(raw.types.aclrtEvent())
        assert kept == 0

    @pytest.mark.npu(leaks="off")
    def test_may():
        with pyacl.Device(0):
            raw.aclrtCreateNotify(raw.types.aclrtNotify(), 0)
"""


def test_leaks_fail_the_test_and_name_the_line(run) -> None:
    result = run(LEAKY, passed=5, failed=1, errors=3)
    result.stdout.re_match_lines_random([
        rf"  event \(0x\w+\), made at .*:{line_of(LEAKY, 'test_event') + 2}",
        rf"  aclrtMalloc of 100 bytes \(0x\w+\), made at .*:{line_of(LEAKY, 'aclrtMalloc(')}",
        rf"  aclrtMallocHost of 200 bytes \(0x\w+\), made at .*:{line_of(LEAKY, 'aclrtMallocHost')}",
        rf"  stream \(0x\w+\), made at .*:{line_of(LEAKY, 'pyacl.Device(0).create_stream')}",
    ])  # fmt: skip
    text = result.stdout.str()
    # at the start of a line: where CI is set, the summary of pytest repeats whole messages
    assert len(re.findall("^the test leaves on its simulated NPU", text, re.MULTILINE)) == 3
    assert "ERROR at teardown of test_fails_anyway" not in text and "test_dropped_objects" not in text


def test_leaks_warn(run) -> None:
    result = run(LEAKY, "--pyacl-leaks=warn", "-W", "default::ResourceWarning", passed=5, failed=1, warnings=3)
    result.stdout.re_match_lines([r".*ResourceWarning: the test leaves on its simulated NPU:"])


def test_leaks_off(run) -> None:
    run(LEAKY, "--pyacl-leaks=off", passed=5, failed=1)


def test_markers(run) -> None:
    run(
        """
        @pytest.fixture
        def name():
            return pyacl.Device(0).name

        @pytest.mark.npu(soc="Ascend310P3", cann="8.1.RC1", devices=3, memory=1 << 20, unregistered="skip")
        def test_the_marker_alone(name):
            assert name == "Ascend310P3" and pyacl.device_count() == 3
            device = pyacl.Device(2)
            assert device.info.cann == "8.1.RC1" and device.memory_info.total == 1 << 20
            x = device.zeros(4)
            device.load(make_kernel_object("unknown", "Ascend310P3"))["unknown"][1](x, x, x)
            device.synchronize()

        @pytest.mark.npu(devices=2, soc="Ascend910B3")
        class TestClass:
            @pytest.mark.npu(devices=4)
            def test_the_closest_counts(self, npu):
                assert pyacl.device_count() == 4 and pyacl.Device(3).name == "Ascend910B3"

            def test_from_the_class(self):
                assert pyacl.device_count() == 2

        @sim.kernel
        def fill_custom(x: sim.Out[np.int32]):
            x[:] = 1

        @pytest.mark.npu(order="eager")
        def test_order(npu_device):
            x = npu_device.zeros(4, np.int32)
            npu_device.load(make_kernel_object("fill_custom", args=1))["fill_custom"][1](x)
            assert x.to_host().tolist() == [1] * 4

        @pytest.mark.npu(hazards="raise")
        def test_hazards(npu_device):
            x = npu_device.zeros(4, np.int32)
            npu_device.load(make_kernel_object("fill_custom", args=1))["fill_custom"][1](x)
            with pytest.raises(sim.HazardError):
                x.to_host()
            npu_device.synchronize()

        orders = set()

        @pytest.mark.npu(order="random:7")
        @pytest.mark.parametrize("turn", [1, 2])
        def test_seeds(npu, turn):
            orders.add(npu.machine.scheduler.random.random())

        def test_the_same_seed():
            assert len(orders) == 1
        """,
        passed=8,
    )


def test_bad_markers(run) -> None:
    result = run(
        """
        @pytest.mark.npu(device=2)
        def test_unknown(): pass

        @pytest.mark.npu("Ascend910B1")
        def test_positional(): pass

        @pytest.mark.npu(soc="Ascend1")
        def test_soc(): pass

        @pytest.mark.npu(devices=0)
        def test_devices(): pass

        @pytest.mark.npu(leaks="maybe")
        def test_leaks(): pass
        """,
        errors=5,
    )
    result.stdout.fnmatch_lines([
        "pytest.mark.npu knows no 'device' (did you mean devices?). It knows soc, cann, *",
        "pytest.mark.npu takes keywords only, not 'Ascend910B1'",
        "pytest.mark.npu soc='Ascend1' is not a known SoC; choose one of:*",
        "pytest.mark.npu devices=0: give a whole number of at least 1",
        "pytest.mark.npu leaks='maybe' is none of 'off', 'warn' and 'fail'",
    ])  # fmt: skip


def test_options(run) -> None:
    text = """
        def test_device(npu_device):
            assert (npu_device.name, npu_device.info.cann) == ("Ascend910B4", "8.5.0")
            assert not 1

        @pytest.mark.npu(soc="Ascend310P3", order="lazy")
        def test_marker_first(npu_device):
            assert npu_device.name == "Ascend310P3"
    """
    result = run(text, "--pyacl-backend=sim:Ascend910B4@8.5.0", "--pyacl-order=random:12", passed=1, failed=1)
    result.stdout.fnmatch_lines([
        "pyacl: sim, soc Ascend910B4, cann 8.5.0, order random(12)",
        "sim.Backend(soc='Ascend910B4', cann='8.5.0', order='random(12)')",
    ])  # fmt: skip


def test_the_environment_chooses_where_no_option_does(run, monkeypatch) -> None:
    text = """
        def test_device(npu_device):
            assert npu_device.name == "Ascend910B2"
    """
    monkeypatch.setenv("PYACL_BACKEND", "sim:Ascend910B2")
    run(text, passed=1)
    run(text, "--pyacl-backend=sim", failed=1)


def test_random_order_without_a_seed(run) -> None:
    """The seed is shown where a test fails, is the same for all tests and processes of a run, and repeats it."""
    text = """
        @pytest.mark.parametrize("number", range(4))
        def test_fails(npu, number):
            assert not npu.version
    """
    result = run(text, "--pyacl-order=random", "-n", "2", failed=4)
    seeds = re.findall(r"sim\.Backend\(order='random\((\d+)\)'\)", result.stdout.str())
    assert len(seeds) == 4 and len(set(seeds)) == 1
    result = run(text, "--pyacl-order=random", failed=4)
    header, *shown = re.findall(r"order[ =]'?random\((\d+)\)", result.stdout.str())
    assert len(shown) == 4 and {header, *shown} == {header}


@pytest.mark.parametrize(("option", "text"), [
    ("--pyacl-backend=cuda", "--pyacl-backend: 'cuda' is none of sim, sim:SOC, sim:SOC@CANN, library and library:F"),
    ("--pyacl-backend=sim:", "--pyacl-backend: 'sim:' is none of"),
    ("--pyacl-backend=sim:Ascend1", "soc='Ascend1' is not a known SoC; choose one of:"),
    ("--pyacl-backend=sim:Ascend910B1@1.0", "cann='1.0' is not a known CANN version; choose one of:"),
    ("--pyacl-order=fast", "order='fast' is not known; use 'lazy', 'eager' or 'random(seed)'"),
    ("--pyacl-order=random:x", "order='random(x)' is not known"),
    ("--pyacl-hazards=maybe", "--pyacl-hazards: invalid choice: 'maybe'"),
    ("--pyacl-leaks=maybe", "--pyacl-leaks: invalid choice: 'maybe'"),
])  # fmt: skip
def test_bad_options_end_the_run_at_once(pytester, option, text) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_inprocess(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert text in result.stderr.str()


RACE = """
    @sim.kernel
    def fill_custom(x: sim.Out[np.int32]):
        x[:] = 1

    def race(device):
        x = device.zeros(4, np.int32)
        device.load(make_kernel_object("fill_custom", args=1))["fill_custom"][1](x)
        x.to_host()
        device.synchronize()

    def test_race(npu_device):
        race(npu_device)

    def test_race_and_failure(npu_device):
        race(npu_device)
        assert False
"""


def test_hazards_raise(run) -> None:
    result = run(RACE, "--pyacl-hazards=raise", failed=2)
    result.stdout.re_match_lines_random([
        r"E +pyacl\..*HazardError: the host does not wait for work on the same memory \(not-waited-for\)",
        rf"  then: .*:{line_of(RACE, 'x.to_host()')}",
    ])  # fmt: skip


def test_hazards_warn(run) -> None:
    """They are in the summary of warnings, and in the report of the test that has them."""
    result = run(RACE, "--pyacl-hazards=warn", "-W", "default::RuntimeWarning", passed=1, failed=1)
    result.stdout.re_match_lines([
        r"-+ Captured pyacl hazards call -+", r"the host does not wait .*",
        rf"  first: .*:{line_of(RACE, '[1](x)')}",
        rf"  then: .*:{line_of(RACE, 'x.to_host()')}",
        r".*warnings summary.*", r".*HazardWarning: the host does not wait .*",
    ])  # fmt: skip


def test_faults_and_kernels_end_with_the_test(run) -> None:
    run(
        """
        class machine:
            def test_faults(self, npu, npu_device):
                faults.fail("aclrtMalloc", times="all")
                faults.out_of_memory()
                with pytest.raises(pyacl.AclMemoryError):
                    npu_device.zeros(4)

        TestOnce, TestAgain = machine, type("TestAgain", (machine,), {})

        def add(x: sim.In[np.int32]): pass

        @pytest.mark.parametrize("turn", [1, 2])
        def test_kernels(npu_device, turn):
            kernel = npu_device.load(make_kernel_object("add", args=1))["add"]
            with pytest.raises(sim.UnregisteredKernel):
                kernel[1](npu_device.zeros(4))
            sim.kernel(add)
            kernel[1](npu_device.zeros(4))
            npu_device.synchronize()
        """,
        passed=4,
    )


def test_kernels_of_one_name_in_two_modules(run, pytester) -> None:
    text = """
        @sim.kernel
        def fill_custom(x: sim.Out[np.int32]):
            x[:] = {number}

        def test_fill(npu_device):
            x = npu_device.empty(4, np.int32)
            npu_device.load(make_kernel_object("fill_custom", args=1))["fill_custom"][1](x)
            assert x.to_host(npu_device.default_stream).tolist() == [{number}] * 4
    """
    for number in (1, 2):
        source = textwrap.dedent(START) + textwrap.dedent(text.format(number=number))
        pytester.makepyfile(**{f"test_{number}": source})
    run("", passed=2, start="")


def test_a_hung_test_fails_and_the_next_goes_on(run) -> None:
    result = run(
        """
        @sim.kernel
        def fill_custom(x: sim.Out[np.int32]):
            x[:] = 1

        def test_hangs(npu_device):
            faults.kernel_hang()
            x = npu_device.zeros(4, np.int32)
            with npu_device.create_stream() as stream, npu_device.create_stream() as other:
                fill = npu_device.load(make_kernel_object("fill_custom", args=1))["fill_custom"]
                fill[1, stream](x)
                other.wait(stream.record())
                x.to_host(other)

        def test_next(npu_device):
            x = npu_device.zeros(4, np.int32)
            npu_device.load(make_kernel_object("fill_custom", args=1))["fill_custom"][1](x)
            assert x.to_host(npu_device.default_stream).tolist() == [1] * 4
        """,
        passed=1, failed=1,
    )  # fmt: skip
    result.stdout.re_match_lines([r"E +pyacl\..*Deadlock: deadlock: this wait can never end"])


HARDWARE = """
    @pytest.mark.hardware
    def test_hardware(npu_device):
        assert npu_device.zeros(4).nbytes == 16

    @pytest.mark.hardware(reason="times a copy")
    def test_reason(): pass

    def test_anywhere(npu):
        with pyacl.Device(0) as device:
            device.synchronize()

    @pytest.mark.npu(devices=200)
    def test_many(npu):
        assert pyacl.device_count() == 200

    @pytest.mark.npu(soc="Ascend310P3")
    def test_soc(npu):
        assert pyacl.Device(0).name == "Ascend310P3"

    kept = []

    def test_leak(npu):
        kept.append(pyacl.Device(0).create_stream())
"""


def test_hardware_is_skipped_on_the_simulator(run) -> None:
    result = run(HARDWARE, "-rs", passed=4, skipped=2, errors=1)
    result.stdout.fnmatch_lines([
        "SKIPPED * needs a real NPU: run with --pyacl-backend library",
        "SKIPPED * needs a real NPU (times a copy): run with --pyacl-backend library",
    ])  # fmt: skip


def test_on_the_library(run) -> None:
    """A library that gcc made stands for the real one."""
    import stub

    start = START + f"    import sys\n    sys.path.append({str(Path(stub.__file__).parent)!r})\n    import stub\n"
    start += "    stub.libraries().work()\n\n"
    result = run(HARDWARE, f"--pyacl-backend=library:{stub.libraries().folder}", "-rs", start=start)
    result.assert_outcomes(passed=4, skipped=2, errors=1)
    result.stdout.fnmatch_lines([
        "pyacl: library:*", "the test leaves open:", "  device 0", "  stream of device 0",
        "SKIPPED * needs 200 devices, there are *", "SKIPPED * needs Ascend310P3, this is *",
    ])  # fmt: skip
