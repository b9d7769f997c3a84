"""One piece of work on a stream: what it is called, what it reads and writes, what it waits for, what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from .places import Place

if TYPE_CHECKING:
    from .machine import Machine
    from .stream import Stream

Range = tuple[int, int]  # address, number of bytes


class Access(NamedTuple):
    """The bytes an operation reads and writes: ranges of device or host addresses."""

    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()


NO_ACCESS = Access()


class Operation:
    """Base of everything that is queued on a stream.

    Attributes
    ----------
    name : the C function that queued it
    access : what it reads and writes
    place : (file, line) of the call; set by `Stream.submit`
    stream : where it was queued; set by `Stream.submit`
    done : True when finished
    dropped : True when it never ran (its stream was aborted or ended by force)
    expires : clock time (ns) from which on it no longer waits for its blocker but fails; None: it waits for ever
    failure : exception its work raised, if any
    locked : whether `start` runs under the engine lock (short book-keeping) or without it (copies, emulations)
    trace : what the hazard checker knows of it; None without one
    elsewhere : whether a thread of the library finishes it, soon after `start`
    """

    elsewhere = False

    __slots__ = (
        *("name", "access", "place", "stream", "done", "dropped", "failure", "number", "locked", "expires"),
        "trace",
    )

    def __init__(self, name: str, access: Access = NO_ACCESS, locked: bool = True) -> None:
        self.name = name
        self.access = access
        self.place: Place = None
        self.stream: Stream | None = None
        self.done = False
        self.dropped = False
        self.failure: BaseException | None = None
        self.number = 0
        self.locked = locked
        self.expires: int | None = None
        self.trace: Any = None

    def blocked_by(self) -> Any:
        """None if it may start; else what must happen first: another Operation, or an object that operations
        signal (a Notify)."""
        return None

    def signals(self) -> Any:
        """The object that this operation signals when it is done (the counterpart of `blocked_by`), or None."""
        return None

    def start(self, machine: Machine) -> bool:
        """Do the work. True: finished; False: somebody calls `machine.scheduler.finish(self)` later."""
        raise NotImplementedError

    def unfinished(self) -> str:
        """Why it does not end although it has begun, for the report of a deadlock."""
        return "which does not end"

    def timed_out(self) -> BaseException:
        """What it fails with when it `expires`."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self.name} #{self.number}{' done' if self.done else ''}>"


class Work(Operation):
    """An operation that calls a function."""

    __slots__ = ("function",)

    def __init__(
        self, name: str, function: Callable[[], Any], access: Access = NO_ACCESS, locked: bool = False
    ) -> None:
        super().__init__(name, access, locked)
        self.function = function

    def start(self, machine: Machine) -> bool:
        self.function()
        return True
