"""The fault sweep: a program is run once for every C call it makes, and that call fails."""

from __future__ import annotations

import _thread
import contextlib
import fnmatch
import gc
import io
import os
import runpy
import signal
import sys
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, SupportsIndex, Union

from pyacl import sim
from pyacl._handle import drain
from pyacl.backends.sim.bridge.dispatch import failed
from pyacl.backends.sim.engine import places
from pyacl.backends.sim.engine.kernels import EMULATIONS
from pyacl.backends.sim.faults import checked_code, failure_of, fitting_code
from pyacl.errors import AclError
from pyacl.raw.table import Function
from pyacl.session import Session, isolated

__all__ = ["Sweep", "SweepFailure", "SweptCall", "fault_sweep"]

Program = Union[Callable[[], object], str, "os.PathLike[str]"]

#: what these return is the answer, not whether they worked
_ANSWERS = frozenset(
    {"aclrtGetLastError", "aclrtPeekAtLastError", "rtGetLastError", "rtPeekAtLastError", "aclrtGetErrorVerbose"}
)


class SweptCall(NamedTuple):
    """One call of the program, and what became of the program when it failed."""

    #: which call of the program, from 1
    number: int
    #: the C function
    function: str
    #: what it returned
    code: int
    #: ``file:line`` of the call in the program
    place: str
    #: "raised": the program raised AclError; "handled": it went on, and ended well; "exited": it ended with SystemExit;
    #: "not reached": it made fewer calls this time
    outcome: str


class Sweep:
    """What `fault_sweep` found: nothing wrong. ``str()`` of it is a summary.

    Attributes
    ----------
    calls : tuple of SweptCall
        Every call that was made to fail.
    """

    def __init__(self, calls: tuple[SweptCall, ...]) -> None:
        self.calls = calls

    def __len__(self) -> int:
        return len(self.calls)

    def __str__(self) -> str:
        outcomes = Counter(call.outcome for call in self.calls)
        return f"{len(self)} calls failed, one in each run: " + ", ".join(
            f"{number} {outcome}" for outcome, number in sorted(outcomes.items())
        )

    def __repr__(self) -> str:
        return f"<Sweep: {self}>"


class SweepFailure(AssertionError):
    """A program that leaks, hangs or breaks in an unforeseen way when one of its calls fails. The text says which.

    Attributes
    ----------
    number, function, code, place
        The call, as in `SweptCall`; number 0 and no function when the program does so while no call fails.
    leaked : list
        What was left behind, as in `pyacl.sim.report`.
    """

    def __init__(self, text: str, call: Optional[SweptCall] = None, leaked: Optional[list[Any]] = None) -> None:
        super().__init__(text)
        self.number = call.number if call else 0
        self.function = call.function if call else ""
        self.code = call.code if call else 0
        self.place = call.place if call else ""
        self.leaked = leaked or []


def fault_sweep(
    program: Program,
    *,
    backend: Union[str, Callable[[], sim.Backend]] = "sim",
    functions: Union[str, tuple[str, ...]] = "*",
    code: Union[SupportsIndex, str, None] = None,
    timeout: float = 60,
) -> Sweep:
    """Run a program once for each C call it makes, and let that call fail.

    Each time the program must raise AclError, or cope and end as usual; it must leave nothing alive on the simulated
    machine, not hang, and work when it is run again on the same machine. A call that gives something back (aclrtFree,
    aclrtDestroyStream, ...) is allowed to leave that one thing.

    Parameters
    ----------
    program : callable, str or path
        What to run, called without arguments; or the path of a script. It must do the same calls each time.
    backend : str or callable
        The simulator each run starts with: a name such as ``"sim:Ascend310P3"``, or a function that makes a
        `pyacl.sim.Backend`. A program that calls `pyacl.use_backend` itself is followed.
    functions : str or tuple of str
        Which functions fail, as patterns such as ``"aclrtMem*"``.
    code : int or str, optional
        What the failing call returns; left out, a code that hardware gives for such a function.
    timeout : float
        Seconds after which a run counts as hanging. Only watched over on the main thread.

    Returns
    -------
    Sweep
        The calls that failed.

    Raises
    ------
    SweepFailure
        At the first call whose failure the program does not survive.
    """
    patterns = (functions,) if isinstance(functions, str) else tuple(functions)
    number = None if code is None else checked_code(code)
    run = _Runner(_callable(program), _maker(backend), timeout)
    with _kernels_restored(), _quick_collections():
        calls = run.all_calls()
        swept = []
        for at, (name, place) in enumerate(calls):
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                call = SweptCall(at + 1, name, fitting_code(name) if number is None else number, place, "")
                swept.append(run.with_failure(call, len(calls)))
    return Sweep(tuple(swept))


class _Saboteur:
    """Stands before the machines of one run, counts the calls, and lets one of them fail."""

    def __init__(self, call: Optional[SweptCall], watchdog: _Watchdog) -> None:
        self.call = call
        self.calls: list[tuple[str, str]] = []
        self.hit = False
        self.arguments: tuple[Any, ...] = ()
        self.backends: list[sim.Backend] = []
        self._watchdog = watchdog
        self._lock = threading.Lock()

    def watch(self, session: Session) -> None:
        """A session was opened."""
        backend = session.api.backend
        if not isinstance(backend, sim.Backend):
            raise TypeError(f"the program uses {backend.name}; only simulated machines can be swept")
        if backend not in self.backends:
            self.backends.append(backend)
            backend.intercept(lambda row, call: self._wrap(backend, row, call))
        self._watchdog.is_known_to(backend)

    def _wrap(self, backend: sim.Backend, row: Function, call: Callable[..., Any]) -> Callable[..., Any]:
        if not row.returns_status or row.name in _ANSWERS:
            return call

        def counted(*arguments: Any) -> Any:
            with self._lock:
                self.calls.append((row.name, places.describe(places.caller())))
                sabotaged = self.call is not None and not self.hit and len(self.calls) == self.call.number
                self.hit |= sabotaged
            if not sabotaged:
                return call(*arguments)
            assert self.call is not None
            self.arguments = arguments
            failure = failure_of(self.call.code)("the fault sweep let it fail")
            return failed(backend.machine, row.name, failure, True)

        return counted

    def alive(self) -> list[Any]:
        """What is left on the machines, but for what a failed call should have given back."""
        left = self._left()
        if left:  # perhaps in a cycle, or found by the collector inside of the simulator, where nothing is freed
            gc.collect()
            drain()
            left = self._left()
        return [live for live in left if live.handle not in self.arguments]

    def _left(self) -> list[Any]:
        return [live for backend in self.backends for live in backend.report()]


class _Runner:
    """Runs the program, and says what became of it."""

    def __init__(self, program: Callable[[], object], make: Callable[[], sim.Backend], timeout: float) -> None:
        self.program = program
        self.make = make
        self.timeout = timeout
        here = {threading.current_thread().ident, threading.main_thread().ident}
        self.strangers = {t.ident for t in threading.enumerate() if t.ident is not None and t.ident not in here}

    def all_calls(self) -> list[tuple[str, str]]:
        """(function, place) of every call the program makes while nothing fails."""
        with _Watchdog(self.timeout, self.strangers) as watchdog:
            saboteur = _Saboteur(None, watchdog)
            with self._closing("The program", None), isolated(self.make(), watch=saboteur.watch):
                self._attempt("The program", None, watchdog, sound=True)
                self._nothing_left("The program", saboteur, None)
        if not saboteur.calls:
            raise SweepFailure("The program makes no C call.")
        return saboteur.calls

    def with_failure(self, call: SweptCall, count: int) -> SweptCall:
        """Run it with one failing call, then once more."""
        who = (
            f"Call {call.number} of {count}, {call.function} at {call.place}, fails with {AclError(call.code).name} "
            f"({call.code}). The program"
        )
        again = f"{who} ends as it should, but run again on the same machine it"
        with _Watchdog(self.timeout, self.strangers) as watchdog:
            saboteur = _Saboteur(call, watchdog)
            backend = self.make()
            with self._closing(who, call), isolated(backend, watch=saboteur.watch):
                outcome = self._attempt(who, call, watchdog)
                self._nothing_left(who, saboteur, call)
                hit = saboteur.hit
                if hit:
                    self._once_more(again, saboteur, call, watchdog)
            if saboteur.hit and not hit:  # when the session was closed
                outcome = "raised"
                with self._closing(again, call), isolated(backend, watch=saboteur.watch):
                    self._once_more(again, saboteur, call, watchdog)
        return call._replace(outcome=outcome if saboteur.hit else "not reached")

    def _once_more(self, again: str, saboteur: _Saboteur, call: SweptCall, watchdog: _Watchdog) -> None:
        self._attempt(again, call, watchdog, sound=True)
        self._nothing_left(again, saboteur, call)

    def _attempt(self, who: str, call: Optional[SweptCall], watchdog: _Watchdog, sound: bool = False) -> str:
        """Run the program; how it ended."""
        errors: list[str] = []
        with _quiet_finalizers(errors):
            try:
                self.program()
                outcome = "handled"
            except SystemExit as exit:
                outcome = "exited"
                if sound and exit.code:
                    raise SweepFailure(f"{who} exits with {exit.code!r}.", call) from exit
            except KeyboardInterrupt as error:
                if not watchdog.barked:
                    raise
                raise SweepFailure(f"{who} hangs: it did not end within {self.timeout:g} seconds.", call) from error
            except sim.Deadlock as error:
                raise SweepFailure(f"{who} hangs: {error}", call) from error
            except Exception as error:
                if sound or not _is_foreseen(error):
                    what = f"{type(error).__name__}: {error}".rstrip()
                    raise SweepFailure(f"{who} raises {what}" + ("" if sound else _NOT_ACL), call) from error
                outcome = "raised"
        if errors:
            raise SweepFailure(f"{who} raises where nobody can catch it:\n{errors[0]}", call)
        return outcome

    def _nothing_left(self, who: str, saboteur: _Saboteur, call: Optional[SweptCall]) -> None:
        errors: list[str] = []
        with _quiet_finalizers(errors):
            left = saboteur.alive()
        if errors:
            raise SweepFailure(f"{who} raises where nobody can catch it:\n{errors[0]}", call)
        if left:
            raise SweepFailure(f"{who} leaves behind:\n" + "\n".join(f"  {live}" for live in left), call, left)

    @contextlib.contextmanager
    def _closing(self, who: str, call: Optional[SweptCall]) -> Iterator[None]:
        """Around a session: closing it may fail as the program may."""
        with _quiet_finalizers([]):
            try:
                yield
            except SweepFailure:
                raise
            except Exception as error:
                if call is None or not _is_foreseen(error):
                    what = f"{type(error).__name__}: {error}".rstrip()
                    raise SweepFailure(f"{who} ends, and closing the session raises {what}", call) from error


_NOT_ACL = "\nand not AclError, which is what a program expects of a call that fails."


def _is_foreseen(error: Optional[BaseException]) -> bool:
    """AclError, or an error that was raised from one."""
    while error is not None:
        if isinstance(error, AclError):
            return True
        error = error.__cause__
    return False


class _Watchdog:
    """Interrupts the main thread when a run takes too long, and tells machines which threads are not the program's."""

    def __init__(self, timeout: float, strangers: set[int]) -> None:
        self.barked = False
        self.strangers = strangers
        self._timer = threading.Timer(timeout, self._bark)
        self._timer.daemon = True
        self._handler: Any = None
        self._watching = threading.current_thread() is threading.main_thread()

    def _bark(self) -> None:
        self.barked = True
        if hasattr(signal, "pthread_kill"):
            # a signal of its own ends a wait for a lock, too
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            _thread.interrupt_main()

    def is_known_to(self, backend: sim.Backend) -> None:
        """It is no thread that could end a wait on this machine, nor are those that were there before the sweep."""
        own = set() if self._timer.ident is None else {self._timer.ident}
        backend.machine.scheduler.bystanders = self.strangers | own

    def __enter__(self) -> _Watchdog:
        if self._watching:
            self._handler = signal.signal(signal.SIGINT, signal.default_int_handler)
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._watching:
            self._timer.join()
            signal.signal(signal.SIGINT, self._handler)


@contextlib.contextmanager
def _quiet_finalizers(errors: list[str]) -> Iterator[None]:
    """A finalizer has nobody to raise to, and warns; that is all it can do. Anything else it raises is collected."""

    def unraisable(info: Any) -> None:
        errors.append("".join(traceback.format_exception(info.exc_type, info.exc_value, info.exc_traceback)))

    before, sys.unraisablehook = sys.unraisablehook, unraisable
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(freeing|closing) ", ResourceWarning)
            yield
    finally:
        sys.unraisablehook = before


@contextlib.contextmanager
def _quick_collections() -> Iterator[None]:
    """What exists already is no garbage of the runs: do not look at it in each of them."""
    gc.collect()
    # what the program has frozen must stay so; Python 3.12 freezes some hundred objects itself
    frozen = gc.get_freeze_count() > 1000
    gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()


@contextlib.contextmanager
def _kernels_restored() -> Iterator[None]:
    before = dict(EMULATIONS)
    try:
        yield
    finally:
        EMULATIONS.clear()
        EMULATIONS.update(before)


def _callable(program: Program) -> Callable[[], object]:
    if callable(program):
        return program
    if not isinstance(program, (str, os.PathLike)):
        raise TypeError(f"program: something to call, or the path of a script, not {type(program).__name__}")
    path = Path(program)
    if not path.is_file():
        raise FileNotFoundError(f"program: there is no script {path}")
    return lambda: _run_script(path)


def _run_script(path: Path) -> None:
    """Run a script as ``PYACL_BACKEND=sim python script`` does; what it prints is dropped."""
    argv, sys.argv = sys.argv, [str(path)]
    chosen = os.environ.get("PYACL_BACKEND")
    os.environ["PYACL_BACKEND"] = "sim"
    sys.path.insert(0, str(path.parent))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.path.remove(str(path.parent))
        sys.argv = argv
        if chosen is None:
            del os.environ["PYACL_BACKEND"]
        else:
            os.environ["PYACL_BACKEND"] = chosen


def _maker(backend: Union[str, Callable[[], sim.Backend]]) -> Callable[[], sim.Backend]:
    if isinstance(backend, str):
        from pyacl.backends import open_backend

        if not backend.startswith("sim"):
            raise ValueError(f"backend: {backend!r} is no simulator, and only simulated machines can be swept")
        make: Callable[[], Any] = lambda: open_backend(backend)  # noqa: E731
        make()  # an unknown name shows at once
        return make
    if not callable(backend):
        raise TypeError(
            "backend: each run needs a fresh machine, so pass a name, or a function that makes one such as "
            "lambda: sim.Backend(devices=2)"
        )
    return backend
