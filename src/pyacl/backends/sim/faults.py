"""Faults on request: calls that fail, kernels that break or never end, memory that runs out, devices that go away."""

from __future__ import annotations

import difflib
import math
import operator
import re
import threading
from typing import TYPE_CHECKING, Any, Callable, SupportsIndex, Union

from ..._checks import whole
from ...raw import constants
from ...raw.functions import FUNCTIONS
from ...raw.table import Function
from .bridge.dispatch import failed
from .engine import places
from .engine.failures import AclLayerError, CallFailure, RuntimeLayerError
from .engine.faults import Injected, KernelTrouble, Loss, Turns
from .engine.memory import Memory

if TYPE_CHECKING:
    from types import TracebackType

    from . import Backend

__all__ = ["Fault", "Faults", "fitting_code"]

Call = Callable[..., Any]
Code = Union[SupportsIndex, str]

SOCKET_CLOSED = 507901

# what a call of a function would fail with on hardware, by a piece of its name; the first that is found
_FITTING = {
    r"Malloc|HostRegister|ReserveMem|MemPoolCreate": 207001,
    r"CreateStream|StreamCreate": 207008,
    r"CreateEvent|EventCreate": 207007,
    r"CreateNotify|NotifyCreate": 207009,
    r"CaptureBegin|RIBuildBegin|ModelCreate": 207010,
    r"SetDevice": 507033,
    r"SynchronizeEventWithTimeout": 507047,
    r"SynchronizeWithTimeout|Synchronize\w*WithTimeout": 507046,
    r"Synchronize|StreamQuery": 507015,
    r"^acl(?!rt|mdl)": 500000,
}
DRIVER = 507899
# message codes, by the code of a failure; of the others, by its first digit
_MESSAGE_CODES = {207001: "EL0004", DRIVER: "EL9999", SOCKET_CLOSED: "EL9999", 507010: "EL9999"}
_AI_CORE = frozenset((*range(507014, 507019), *range(507034, 507037), *range(507042, 507051)))


def fitting_code(function: str) -> int:
    """A code that hardware would give for a failure of this C function."""
    for part, code in _FITTING.items():
        if re.search(part, function):
            return code
    return DRIVER


class Fault:
    """One fault that was asked for. It ends with `remove`, at the end of a ``with`` block, or with `Faults.clear`.

    Attributes
    ----------
    what : str
        The fault in words.
    hits : list of str
        Where it has struck so far: ``file:line`` of each call.
    """

    def __init__(self, what: str, hits: list[places.Place], end: Callable[[Fault], None]) -> None:
        self.what = what
        self._hits = hits
        self._end = end
        self._place = places.caller()

    @property
    def hits(self) -> list[str]:
        return [places.describe(place) for place in self._hits]

    def remove(self) -> None:
        """End it. Idempotent."""
        self._end(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<fault: {self.what}, asked for at {places.describe(self._place)}, hit {len(self._hits)} times>"


class _FailingCall(Fault):
    """The calls of one C function that fail."""

    def __init__(
        self, function: str, failure: Callable[[str], CallFailure], turns: Turns, device: int | None, end: Any
    ) -> None:
        super().__init__(f"{function} fails, {turns}", [], end)
        self.function = function
        self.failure = failure
        self.turns = turns
        self.device = device

    def strike(self, machine: Any) -> CallFailure | None:
        """One more call: the failure it ends with, if it is hit."""
        if self.device is not None:
            context = machine.find_context()
            if context is None or context.device.index != self.device:
                return None
        if not self.turns.due():
            return None
        self._hits.append(places.caller())
        asked = places.describe(self._place)
        return self.failure(f"this is call {self.turns.seen} of {self.function} since a test asked for it at {asked}")


class _State:
    """The faults of one machine."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.lock = threading.Lock()
        self.active: dict[Fault, Callable[[], None]] = {}  # and what ends each
        self.calls: dict[str, list[_FailingCall]] = {}
        self.slow: dict[str, float] = {}
        self.wrapped = False


class Faults:
    """The faults of a simulated machine: ``backend.faults``, or `pyacl.testing.faults` for the one the program uses.

    Each method asks for one fault and returns it; ``with faults.fail(...):`` limits it to a block. A fault that cannot
    be is refused at once, with ValueError or TypeError.
    """

    def __init__(self, find: Callable[[], Backend]) -> None:
        self._find = find

    # -- calls -----------------------------------------------------------------------------------------------------

    def fail(
        self,
        function: str,
        code: Code | None = None,
        *,
        nth: int | None = None,
        times: int | str | None = None,
        probability: float | None = None,
        seed: int = 0,
        device: int | None = None,
    ) -> Fault:
        """Let calls of a C function fail: they do nothing and return a code.

        Parameters
        ----------
        function : str
            Name of the C function, such as ``"aclrtMalloc"``.
        code : int or str, optional
            What it returns, such as 207001 or ``"ACL_ERROR_RT_MEMORY_ALLOCATION"``. Left out, one that hardware gives
            for such a function.
        nth : int, optional
            The first call that fails, counted from now: 1 is the next one.
        times : int or "all", optional
            How many calls fail: 1 from the nth on, all with a probability, unless it says otherwise.
        probability : float, optional
            Each call fails with this probability, 0 to 1, instead of the nth.
        seed : int
            Decides which ones: the same seed, the same calls.
        device : int, optional
            Only calls while this device is the thread's are counted, and fail.

        Raises
        ------
        ValueError
            For a function that does not exist, that the backend's CANN version lacks or that returns no error code; for
            a code that no CANN version has; for numbers out of range.
        """
        backend = self._find()
        row = _checked_function(function, backend)
        number = fitting_code(function) if code is None else checked_code(code)
        turns = _turns(nth, times, probability, seed)
        if device is not None:
            device = _checked_device(device, backend)
        state = _state(backend)

        def end(fault: Fault) -> None:
            _remove(state, fault)

        fault = _FailingCall(row.name, failure_of(number), turns, device, end)

        def forget() -> None:
            state.calls[row.name].remove(fault)
            _changed(backend, state)

        with state.lock:
            state.calls.setdefault(row.name, []).append(fault)
            state.active[fault] = forget
            _changed(backend, state)
        return fault

    def slow(self, function: str, milliseconds: float) -> Fault:
        """Let calls of a C function, or the work they queue, take at least this long, in device time.

        Nothing sleeps: the device's clock moves. A wait with a shorter timeout times out; waiting again goes on.

        Parameters
        ----------
        function : str
            Name of the C function, such as ``"aclrtMemcpyAsync"``.
        milliseconds : float
            Added to each of its calls.
        """
        backend = self._find()
        row = _checked_function(function, backend)
        if row.library == "runtime":
            raise ValueError(f"function: {function} belongs to libruntime; slow down its acl counterpart")
        if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)):
            raise TypeError(f"milliseconds: a number, not {type(milliseconds).__name__}")
        if not 0 < milliseconds < math.inf:
            raise ValueError(f"milliseconds: {milliseconds!r} is no time of more than 0")
        state = _state(backend)
        if row.name in state.slow:
            raise ValueError(f"function: {function} is slow already; remove that fault first")
        machine, injected = backend.machine, _injected(backend)

        def forget() -> None:
            del state.slow[row.name]
            with machine.lock:
                del injected.delays[row.name]
            _changed(backend, state)

        fault = self._add(backend, f"{row.name} takes {milliseconds:g} ms more", [], forget)
        with state.lock:
            state.slow[row.name] = milliseconds
            with machine.lock:
                injected.delays[row.name] = (int(milliseconds * 1e6), fault._place)
            _changed(backend, state)
        return fault

    # -- kernels ---------------------------------------------------------------------------------------------------

    def kernel_exception(
        self,
        kernel: str | None = None,
        code: Code | None = None,
        *,
        nth: int | None = None,
        times: int | str | None = None,
        probability: float | None = None,
        seed: int = 0,
    ) -> Fault:
        """Let launches of a kernel break: the launch succeeds, the next wait for its stream fails, once.

        That is what the library shows: the failure is reported by one wait and then forgotten. The objects of pyacl
        remember it, see `pyacl.Device.fault`. The kernel's function is not run.

        Parameters
        ----------
        kernel : str, optional
            Name of the kernel; left out, any.
        code : int or str, optional
            What the wait fails with; left out, the exception of the kernel's core: 507035 on vector cores, 507015 on
            others, 507018 on the AI CPU.
        nth, times, probability, seed
            Which launches, as for `fail`.
        """
        return self._kernel(kernel, False, code, nth, times, probability, seed)

    def kernel_hang(
        self,
        kernel: str | None = None,
        *,
        nth: int | None = None,
        times: int | str | None = None,
        probability: float | None = None,
        seed: int = 0,
    ) -> Fault:
        """Let launches of a kernel never end.

        A wait with a timeout times out, aborting the stream or resetting the device ends it. A kernel with a time limit
        of its own (`pyacl.LaunchConfig`, aclrtSetOpExecuteTimeOut) is stopped then, and the wait fails with the code of
        that: 507034 on vector cores, 507014 on others. A wait without any limit raises `pyacl.sim.Deadlock`.

        Parameters
        ----------
        kernel : str, optional
            Name of the kernel; left out, any.
        nth, times, probability, seed
            Which launches, as for `fail`.
        """
        return self._kernel(kernel, True, None, nth, times, probability, seed)

    def _kernel(
        self,
        kernel: str | None,
        hangs: bool,
        code: Code | None,
        nth: int | None,
        times: int | str | None,
        probability: float | None,
        seed: int,
    ) -> Fault:
        backend = self._find()
        if kernel is not None and (not isinstance(kernel, str) or not kernel):
            raise TypeError(f"kernel: the name of a kernel, or None for any, not {kernel!r}")
        number = None if code is None else checked_code(code)
        turns = _turns(nth, times, probability, seed)
        injected = _injected(backend)
        trouble = KernelTrouble(backend.machine, kernel, hangs, number, turns, places.caller())

        def forget() -> None:
            with backend.machine.lock:
                injected.kernels.remove(trouble)

        what = f"{'kernels' if kernel is None else kernel} {'never end' if hangs else 'break'}, launch {turns}"
        fault = self._add(backend, what, trouble.hits, forget)
        with backend.machine.lock:
            injected.kernels.append(trouble)
        return fault

    # -- devices ---------------------------------------------------------------------------------------------------

    def out_of_memory(self, after: int = 0, *, device: int = 0) -> Fault:
        """Let a device run out of memory: somebody else takes all of it but this many bytes.

        Parameters
        ----------
        after : int
            Bytes that can still be allocated, in whole pages: of 2 MiB for allocations of more than a MiB, else of
            4 KiB. aclrtGetMemInfo says as much.
        device : int
            Number of the device.

        Raises
        ------
        ValueError
            When the device has less than that free.
        """
        backend = self._find()
        number = _checked_device(device, backend)
        after = _whole("after", after, 0)
        memory = backend.machine.area(Memory)
        with backend.machine.lock:
            free = memory.free_bytes(number)
            if after > free:
                raise ValueError(f"after: {after} bytes, but device {number} has only {free} bytes free")
            memory.used[number] = memory.used.get(number, 0) + free - after

        def forget() -> None:
            with backend.machine.lock:
                memory.used[number] -= free - after

        return self._add(backend, f"device {number} has {after} bytes of memory left", [], forget)

    def lose_device(self, device: int = 0, code: Code = SOCKET_CLOSED, *, after: int = 0) -> Fault:
        """Let a device disappear: its work never ends, and whatever needs the hardware fails.

        Work queued on it and waits for it fail with `code`, memory and copies with 507899, opening it with 507033. What
        was made on it can still be given back. Once the fault has ended, resetting the device (`pyacl.Device.recover`,
        or closing everything on it) brings it back.

        Parameters
        ----------
        device : int
            Number of the device.
        code : int or str
            507901 (the connection is closed) or another one, such as 507010 (the heartbeat is lost).
        after : int
            How many more operations (launches, copies, events on streams) it takes before it goes; 0: it is gone now.
        """
        backend = self._find()
        machine = backend.machine
        number = _checked_device(device, backend)
        loss = Loss(machine.devices[number], checked_code(code), _whole("after", after, 0))
        injected = _injected(backend)

        def forget() -> None:
            with machine.lock:
                injected.losses.remove(loss)
                loss.device.away = False
                if not loss.device.open_count:
                    loss.device.lost = 0

        fault = self._add(backend, f"device {number} disappears", [], forget)
        with machine.lock:
            injected.losses.append(loss)
            if loss.left == 0:
                loss.device.lose(loss.code)
        return fault

    # -- all of them -----------------------------------------------------------------------------------------------

    @property
    def active(self) -> tuple[Fault, ...]:
        """The faults that have not ended, oldest first."""
        return tuple(_state(self._find()).active)

    def clear(self) -> None:
        """End all of them."""
        for fault in self.active:
            fault.remove()

    def _add(self, backend: Backend, what: str, hits: list[places.Place], forget: Callable[[], None]) -> Fault:
        state = _state(backend)
        fault = Fault(what, hits, lambda fault: _remove(state, fault))
        state.active[fault] = forget
        return fault


def _state(backend: Backend) -> _State:
    with backend.machine.lock:
        return backend.machine.area(_State)


def _injected(backend: Backend) -> Injected:
    with backend.machine.lock:
        found = backend.machine.faults = backend.machine.area(Injected)
        return found


def _remove(state: _State, fault: Fault) -> None:
    with state.lock:
        forget = state.active.pop(fault, None)
        if forget is not None:
            forget()


def _changed(backend: Backend, state: _State) -> None:
    """Other functions fail, or are slow, than before: put what sees to that before them."""
    if not state.wrapped:
        state.wrapped = True
        _injected(backend)
        backend.intercept(lambda row, call: _wrap(backend, state, row, call))
    else:
        backend.intercept()


def _wrap(backend: Backend, state: _State, row: Function, call: Call) -> Call:
    machine, name = backend.machine, row.name
    delay = state.slow.get(name)
    if delay is not None:
        call = _delayed(machine, call, delay)
    faults = state.calls.get(name)
    if not faults:
        return call
    chosen = tuple(faults)

    def struck(*arguments: Any) -> Any:
        with state.lock:
            failures = [failure for failure in (fault.strike(machine) for fault in chosen) if failure is not None]
        if failures:
            return failed(machine, name, failures[0], row.returns_status)
        return call(*arguments)

    return struck


def _delayed(machine: Any, call: Call, milliseconds: float) -> Call:
    def slow(*arguments: Any) -> Any:
        before = machine.faults.pauses
        result = call(*arguments)
        if machine.faults.pauses == before:  # it has queued nothing that will take its time
            machine.clock.advance(milliseconds)
        return result

    return slow


def failure_of(code: int) -> Callable[[str], CallFailure]:
    def make(text: str) -> CallFailure:
        if code < 107000 or code // 1000 in (145, 148):
            return AclLayerError(code, "EH9999", text)
        message = _MESSAGE_CODES.get(code, "EZ9999" if code in _AI_CORE else "EE1001" if code < 200000 else "EE9999")
        return RuntimeLayerError(code, message, text)

    return make


# -- what can be asked for ---------------------------------------------------------------------------------------------


def _checked_function(name: str, backend: Backend) -> Function:
    if not isinstance(name, str):
        raise TypeError(f"function: the name of a C function, not {type(name).__name__}")
    row = FUNCTIONS.get(name)
    if row is None:
        close = difflib.get_close_matches(name, FUNCTIONS, 3, 0.5)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ValueError(f"function: the Runtime API has no C function {name!r}{hint}")
    if not row.in_version(backend.version or ""):
        until = f" to {row.until}" if row.until else " on"
        raise ValueError(f"function: {name} is in CANN from {row.since}{until}; {backend.name} does not have it")
    row = row.form(backend.version)
    if not row.returns_status:
        raise ValueError(f"function: {name} returns {row.returns}, not an error code, so it cannot fail")
    return row


def checked_code(code: Code) -> int:
    names = {name: int(value) for name, value in vars(constants).items() if name.startswith("ACL_ERROR_") and value}
    if isinstance(code, str):
        if code in names:
            return names[code]
        close = difflib.get_close_matches(code.upper(), names, 3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ValueError(f"code: no CANN version has an error code {code!r}{hint}")
    if isinstance(code, bool):
        raise TypeError("code: the number or the name of an error code, not a bool")
    try:
        number = operator.index(code)
    except TypeError:
        raise TypeError(f"code: the number or the name of an error code, not {type(code).__name__}") from None
    if number == 0:
        raise ValueError("code: 0 is success")
    if number not in names.values():
        close = difflib.get_close_matches(str(number), map(str, names.values()), 3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ValueError(f"code: no CANN version has an error code {number}{hint}")
    return number


def _checked_device(number: Any, backend: Backend) -> int:
    number = _whole("device", number, 0)
    count = len(backend.machine.devices)
    if number >= count:
        raise ValueError(f"device: {number}, but {backend.name} has {count}, counted from 0")
    return int(number)


def _turns(nth: int | None, times: int | str | None, probability: float | None, seed: int) -> Turns:
    if probability is not None:
        if nth is not None:
            raise ValueError("nth and probability: give one of the two")
        if isinstance(probability, bool) or not isinstance(probability, (int, float)):
            raise TypeError(f"probability: a number from 0 to 1, not {type(probability).__name__}")
        if not 0 <= probability <= 1:
            raise ValueError(f"probability: {probability!r} is not in 0 to 1")
    first = 1 if nth is None else _whole("nth", nth, 1)
    if times is None:
        limit = 1 if probability is None else None
    elif isinstance(times, str):
        if times != "all":
            raise ValueError(f"times: a whole number or 'all', not {times!r}")
        limit = None
    else:
        limit = _whole("times", times, 1)
    return Turns(first, limit, probability, _whole("seed", seed, None))


def _whole(name: str, value: Any, least: int | None) -> int:
    number = whole(name, value)
    if least is not None and number < least:
        raise ValueError(f"{name}: {number} is less than {least}")
    return number
