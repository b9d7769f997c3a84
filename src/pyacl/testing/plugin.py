"""The pytest plugin: a simulated NPU for each test, looked over for leaks and hazards; or the real one.

It is active wherever pyacl is installed, so nothing of pyacl is imported before a test asks for it.
"""

from __future__ import annotations

import difflib
import gc
import os
import random
import sys
import threading
import warnings
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Optional

import pytest

if TYPE_CHECKING:
    from pyacl.backends.base import Backend
    from pyacl.backends.sim import Backend as SimBackend
    from pyacl.device import Device
    from pyacl.session import Session

BACKEND, ORDER, HAZARDS, LEAKS = "--pyacl-backend", "--pyacl-order", "--pyacl-hazards", "--pyacl-leaks"
#: what the marker can say, and where else it can be said
MARKER = ("soc", "cann", "devices", "memory", "order", "hazards", "unregistered", "leaks")
_KERNELS = "pyacl.backends.sim.engine.kernels"
_SEED = "pyacl_seed"


class Settings(NamedTuple):
    """What the options of a run say."""

    library: Optional[str]  # "library" or "library:/folder"; None: simulated
    options: dict[str, Any]  # for sim.Backend
    leaks: str


# of a run
_settings_key: pytest.StashKey[Settings] = pytest.StashKey()
_seed_key: pytest.StashKey[int] = pytest.StashKey()
_session_key: pytest.StashKey[Session] = pytest.StashKey()
_threads_key: pytest.StashKey[set[int]] = pytest.StashKey()
# of a module, and of a test
_kernels_key: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
_backend_key: pytest.StashKey[SimBackend] = pytest.StashKey()
_options_key: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
_passed_key: pytest.StashKey[bool] = pytest.StashKey()


# ---- options and markers -------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pyacl", "pyacl: tests on a simulated NPU, or on a real one")
    group.addoption(
        BACKEND,
        metavar="BACKEND",
        help="what the npu fixture uses: sim, sim:SOC, sim:SOC@CANN, library or library:FOLDER "
        "(default: the environment variable PYACL_BACKEND, or sim)",
    )
    group.addoption(
        ORDER,
        metavar="ORDER",
        help="when simulated streams work: lazy (default), eager, random, or random:SEED for the same order again",
    )
    group.addoption(
        HAZARDS,
        choices=("off", "warn", "raise"),
        help="what to do about accesses to memory that nothing orders, on simulated NPUs (default: off)",
    )
    group.addoption(
        LEAKS,
        choices=("off", "warn", "fail"),
        help="what to do about a test that leaves something alive on its NPU (default: fail)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"npu({', '.join(f'{name}=...' for name in MARKER)}): the NPU that the test gets; implies the npu fixture",
    )
    # threads of pytest and its plugins: no test need wait for what they might do
    main = threading.main_thread()
    config.stash[_threads_key] = {thread.ident or 0 for thread in threading.enumerate() if thread is not main}
    config.addinivalue_line("markers", f"hardware: needs a real NPU; skipped unless {BACKEND} is library")
    if any(config.getoption(name) is not None for name in (BACKEND, ORDER, HAZARDS)):
        settings = _settings(config)
        if settings.library is None:
            _check(settings.options)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The workers of pytest-xdist take the seed of the whole run."""
    node.workerinput[_SEED] = _seed(node.config)


def pytest_report_header(config: pytest.Config) -> Optional[str]:
    if not any(config.getoption(name) is not None for name in (BACKEND, ORDER, HAZARDS, LEAKS)):
        return None
    settings = _settings(config)
    if settings.library is not None:
        return f"pyacl: {settings.library}"
    return "pyacl: sim" + "".join(f", {name} {value}" for name, value in settings.options.items())


def _settings(config: pytest.Config) -> Settings:
    found = config.stash.get(_settings_key, None)
    if found is None:
        spec = config.getoption(BACKEND) or os.environ.get("PYACL_BACKEND") or "sim"
        kind, _, rest = spec.partition(":")
        if kind not in ("sim", "library") or spec.endswith(":"):
            raise pytest.UsageError(
                f"{BACKEND}: {spec!r} is none of sim, sim:SOC, sim:SOC@CANN, library and library:FOLDER"
            )
        options: dict[str, Any] = {}
        if kind == "sim":
            soc, _, cann = rest.partition("@")
            given = {"soc": soc, "cann": cann, "order": _order(config, config.getoption(ORDER) or "")}
            given["hazards"] = config.getoption(HAZARDS) or ""
            options = {name: value for name, value in given.items() if value}
        found = Settings(spec if kind == "library" else None, options, config.getoption(LEAKS) or "fail")
        config.stash[_settings_key] = found
    return found


def _order(config: pytest.Config, order: Any) -> Any:
    """The order as `sim.Backend` takes it: "random:7" is "random(7)", "random" has the seed of the run."""
    if order == "random":
        return f"random({_seed(config)})"
    if isinstance(order, str) and order.startswith("random:"):
        return f"random({order[len('random:') :]})"
    return order


def _seed(config: pytest.Config) -> int:
    """The seed of this run, the same in all its processes."""
    if _seed_key not in config.stash:
        of_the_run: dict[str, Any] = getattr(config, "workerinput", {})
        config.stash[_seed_key] = of_the_run.get(_SEED, random.SystemRandom().randrange(100_000))
    return config.stash[_seed_key]


def _check(options: dict[str, Any]) -> None:
    from pyacl import sim

    try:
        sim.Backend(**options)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{BACKEND}, {ORDER}: {error}") from None


def _wanted(node: pytest.Item) -> dict[str, Any]:
    """What the markers of a test ask for; the closest one counts."""
    wanted: dict[str, Any] = {}
    for marker in node.iter_markers("npu"):
        if marker.args:
            _refuse(f"takes keywords only, not {marker.args[0]!r}")
        for name, value in marker.kwargs.items():
            if name not in MARKER:
                close = difflib.get_close_matches(name, MARKER, 1)
                hint = f" (did you mean {close[0]}?)" if close else ""
                _refuse(f"knows no {name!r}{hint}. It knows {', '.join(MARKER)}.")
            wanted.setdefault(name, value)
    if wanted.get("leaks", "fail") not in ("off", "warn", "fail"):
        _refuse(f"leaks={wanted['leaks']!r} is none of 'off', 'warn' and 'fail'")
    if "order" in wanted:
        wanted["order"] = _order(node.config, wanted["order"])
    return wanted


def _refuse(text: str) -> NoReturn:
    pytest.fail(f"pytest.mark.npu {text}", pytrace=False)


# ---- around collecting and running ---------------------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, None]:
    """Kernels belong to the module that registers them: another module may have others of the same names."""
    if not isinstance(collector, pytest.Module):
        yield
        return
    before = dict(_registered())
    yield
    own = {name: kernel for name, kernel in _registered().items() if before.get(name) is not kernel}
    if own:
        collector.stash[_kernels_key] = own


def _registered() -> dict[str, Any]:
    module = sys.modules.get(_KERNELS)
    return {} if module is None else module.EMULATIONS


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test with the marker gets the fixture, before its own fixtures that may use it."""
    names: Optional[list[str]] = getattr(item, "fixturenames", None)
    if names is None or "npu" in names or item.get_closest_marker("npu") is None:
        return
    definitions = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]  # nothing public knows the scopes
    scopes = [definitions[name][-1].scope if name in definitions else "" for name in names]
    names.insert(scopes.index("function") if "function" in scopes else len(names), "npu")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    marker = item.get_closest_marker("hardware")
    if marker is not None and _settings(item.config).library is None:
        reason = marker.kwargs.get("reason") or (marker.args[0] if marker.args else "")
        pytest.skip(f"needs a real NPU{f' ({reason})' if reason else ''}: run with {BACKEND} library")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    item.stash[_passed_key] = outcome.excinfo is None
    backend = item.stash.get(_backend_key, None)
    if backend is not None:
        options = ", ".join(f"{name}={value!r}" for name, value in item.stash[_options_key].items())
        item.add_report_section("call", "pyacl", f"sim.Backend({options})")
        if backend.hazards_found:
            text = "\n".join(str(hazard) for hazard in backend.hazards_found)
            item.add_report_section("call", "pyacl hazards", text)


# ---- fixtures ------------------------------------------------------------------------------------------------------


@pytest.fixture
def npu(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The NPU of a test, as a backend that is the process's for the time of the test.

    By default a fresh simulated machine, a `pyacl.sim.Backend`; its faults end with the test, and kernels that the test
    registers are forgotten. A test that passes and leaves something alive on it fails. With ``--pyacl-backend library``
    the real one.
    """
    settings, wanted = _settings(request.config), _wanted(request.node)
    leaks = wanted.pop("leaks", settings.leaks)
    if settings.library is None:
        yield from _simulated(request.node, {**settings.options, **wanted}, leaks)
    else:
        yield from _real(request.node, settings.library, wanted, leaks)


@pytest.fixture
def npu_device(request: pytest.FixtureRequest, npu: Backend) -> Iterator[Device]:
    """Device 0 of the test's NPU, open."""
    import pyacl

    with pyacl.Device(0) as device:
        yield device
        _abandon_if_failed(request.node)


def _abandon_if_failed(item: pytest.Item) -> None:
    """What a test that failed left unfinished is not waited for, and not held against it."""
    if not item.stash.get(_passed_key, False):
        from pyacl.session import current_session

        current_session().abandon()
        if _backend_key in item.stash:
            item.stash[_backend_key].hazards = "off"


def _simulated(item: pytest.Item, options: dict[str, Any], leaks: str) -> Iterator[SimBackend]:
    from pyacl import sim
    from pyacl._handle import drain
    from pyacl.session import isolated

    try:
        backend = sim.Backend(**options)
    except (TypeError, ValueError) as error:
        _refuse(str(error))
    item.stash[_backend_key], item.stash[_options_key] = backend, options
    backend.machine.scheduler.bystanders = item.config.stash[_threads_key]
    kernels = _registered()
    before = dict(kernels)
    module = item.getparent(pytest.Module)
    own: dict[str, Any] = {} if module is None else module.stash.get(_kernels_key, {})
    kernels.update(own)
    try:
        with isolated(backend):
            yield backend
            backend.faults.clear()
            _abandon_if_failed(item)
            report = backend.report()
            if report and leaks != "off" and item.stash.get(_passed_key, False):
                gc.collect()
                drain()  # what the collector found inside of the simulator, where nothing is freed
                report = backend.report()
                if report:
                    _leaked(f"the test leaves on its simulated NPU:\n{report}", leaks)
    finally:
        kernels.clear()
        kernels.update(before)


def _real(item: pytest.Item, spec: str, wanted: dict[str, Any], leaks: str) -> Iterator[Backend]:
    import pyacl
    from pyacl.session import current_session

    session = item.config.stash.get(_session_key, None)
    if session is None or session is not current_session():  # one for all tests: the library is initialised once
        pyacl.use_backend(spec)
        session = item.config.stash[_session_key] = current_session()
    needed, there = wanted.get("devices", 1), pyacl.device_count()
    if there < needed:
        pytest.skip(f"needs {needed} devices, there are {there}")
    if "soc" in wanted:
        with pyacl.Device(0) as device:
            name = device.name
        if name != wanted["soc"]:
            pytest.skip(f"needs {wanted['soc']}, this is {name}")
    before = session.open_handles
    yield session.api.backend
    if item.stash.get(_passed_key, False) and leaks != "off" and session.open_handles > before:
        gc.collect()
        left = session.open_things[before:]
        if left:
            _leaked("the test leaves open:\n" + "\n".join(f"  {thing}" for thing in left), leaks)


def _leaked(text: str, leaks: str) -> None:
    if leaks == "fail":
        pytest.fail(text, pytrace=False)
    warnings.warn(text, ResourceWarning, stacklevel=2)
