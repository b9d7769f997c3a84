"""When operations run. Three orders (lazy, eager, random), waiting with timeouts, and the detection of waits that can
never end.

There is no device thread: operations run in the host thread that makes them run, by waiting (lazy), by submitting
(eager) or by either (random).
All functions here are called with the engine lock held.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, ClassVar

from . import places
from .failures import CallFailure, Deadlock
from .findings import HazardError
from .operation import Operation

if TYPE_CHECKING:
    from .machine import Machine
    from .stream import Stream

Goal = Callable[[], bool]
PROMPT = 0.5  # seconds that work which runs on another thread may take to be finished at once, in the eager order


class Scheduler:
    """The lazy order: nothing runs before something waits for it, and then only what that wait needs."""

    #: threads of the simulator, of all machines: they act only when given something to do
    library_threads: ClassVar[set[int]] = set()

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        # the streams that may have pending operations, in the order of their first submission
        self.active: dict[Stream, None] = {}
        self.busy = 0  # operations being executed without the lock, by whatever thread
        self.doing: dict[int, int] = {}  # how many of them by which thread
        self.steps = 0  # operations finished so far
        self.patience = 10.0  # seconds: how long other host threads that are not waiting may take to end a wait
        self.waiting: dict[int, Goal] = {}  # host threads inside `wait`, and what each waits for
        self.passes_unrecorded = False  # a wait for an event that nobody has recorded yet does not wait
        self.bystanders: set[int] = set()  # threads that have nothing to do with the program, such as a test runner's

    # ---- what an order decides ---------------------------------------------------------------------------

    def submitted(self, stream: Stream) -> None:
        """An operation was queued on `stream`."""
        self.active[stream] = None
        if len(stream.pending) > stream.machine.profile.stream_depth and self._ready(stream):
            self.run(stream)  # the queue of a real stream is as deep as this: the device must have begun

    def finished(self) -> None:
        """An operation has finished."""

    def choose(self, roots: Iterable[Stream]) -> Stream | None:
        """A stream whose next operation is to run now, for a wait for `roots`; None if there is none."""
        seen: set[Stream] = set()
        todo = list(roots)
        while todo:
            stream = todo.pop()
            if stream in seen or not stream.pending or stream.running:
                continue
            seen.add(stream)
            blocker = stream.pending[0].blocked_by()
            if blocker is None or self._expired(stream.pending[0]):
                return stream
            todo.extend(self.streams_that_end(blocker))
        return None

    # ---- running -----------------------------------------------------------------------------------------

    def _ready(self, stream: Stream) -> bool:
        return (
            bool(stream.pending)
            and not stream.running
            and (stream.pending[0].blocked_by() is None or self._expired(stream.pending[0]))
        )

    def _expired(self, operation: Operation) -> bool:
        return operation.expires is not None and self.machine.clock.now() >= operation.expires

    def ready(self) -> list[Stream]:
        """Every stream whose next operation may start now."""
        return [stream for stream in self.active if self._ready(stream)]

    def streams_that_end(self, blocker: Any) -> list[Stream]:
        """The streams with a pending operation that would end this reason to wait."""
        if isinstance(blocker, Operation):
            return [blocker.stream] if blocker.stream is not None else []
        # a wait for a value in memory: any operation that writes there may end it
        ended_by = getattr(blocker, "ended_by", None)
        if ended_by is not None:
            return [stream for stream in self.active if any(ended_by(op) for op in stream.pending)]
        return [stream for stream in self.active if any(op.signals() is blocker for op in stream.pending)]

    def run(self, stream: Stream) -> None:
        """Start the next operation of a stream (and finish it, unless it finishes elsewhere)."""
        operation = stream.pending[0]
        stream.running = True
        finished = True
        interrupt: BaseException | None = None
        hazards = self.machine.hazards
        try:
            if operation.expires is not None and operation.blocked_by() is not None:
                raise operation.timed_out()
            if hazards is not None:
                hazards.starting(operation)
            finished = operation.start(self.machine) if operation.locked else self.execute(operation)
            if hazards is not None:
                hazards.ran(operation)
        except HazardError as found:  # belongs to the call that makes the work run, whatever stream that is about
            interrupt = found
        except Exception as failure:  # kept for the wait that finds it
            interrupt = hazards.failed(operation, failure) if hazards is not None else None
            if interrupt is None:
                operation.failure = failure
        except BaseException as failure:  # KeyboardInterrupt and the like belong to the program, now
            interrupt = failure
        if isinstance(interrupt, HazardError) and threading.get_ident() in self.library_threads:
            operation.failure, interrupt = interrupt, None  # no call of the program: a wait finds it
        if finished:
            self.finish(operation)
        if interrupt is not None:
            raise interrupt

    def execute(self, operation: Operation) -> bool:
        """Start an operation without the lock."""
        self.busy += 1
        me = threading.get_ident()
        self.doing[me] = self.doing.get(me, 0) + 1
        try:
            with self.machine.unlocked():
                return operation.start(self.machine)
        finally:
            self.busy -= 1
            self.doing[me] -= 1
            if not self.doing[me]:
                del self.doing[me]

    def finish(self, operation: Operation) -> None:
        """The running operation of a stream is over."""
        stream = operation.stream
        assert stream is not None
        if stream.pending and stream.pending[0] is operation:
            stream.pending.popleft()
            stream.running = False
            stream.completed = operation.number
            if not stream.pending:
                self.active.pop(stream, None)
        operation.done = True
        if operation.trace is not None and self.machine.hazards is not None:
            self.machine.hazards.finished(operation)
        if operation.failure is not None:
            self._failed(stream, operation.failure)
        self.notify()
        self.finished()

    def _failed(self, stream: Stream, failure: BaseException) -> None:
        if stream.failure is None:
            stream.failure = failure
        if stream.failure_mode and isinstance(failure, CallFailure):
            stream.context.failure = failure  # stop on failure: the context takes no more work
            for other in stream.context.live_streams():
                other.drop()

    def notify(self) -> None:
        """Something that a wait may depend on has changed."""
        self.steps += 1
        if self.waiting:
            self.machine.changed.notify_all()

    def step(self, roots: Iterable[Stream]) -> None:
        """Somebody asked how far these streams are: let one operation run, so that a program that polls gets on."""
        stream = self.choose(roots)
        if stream is not None:
            self.run(stream)

    # ---- waiting -----------------------------------------------------------------------------------------

    def wait(self, goal: Goal, roots: Iterable[Stream], timeout: float | None = None) -> bool:
        """Run what is needed until goal() holds.

        Parameters
        ----------
        goal : asked with the lock held
        roots : the streams whose work leads to it
        timeout : milliseconds; None waits for ever

        Returns
        -------
        False when the time ran out. Deadlock is raised when there is no timeout and nothing can ever end the wait.
        """
        if goal():
            return True
        roots = list(roots)
        end = None if timeout is None else time.monotonic() + timeout / 1000
        begin = self.machine.clock.now()
        steps, since = self.steps, time.monotonic()
        while not goal():
            stream = self.choose(roots)
            if stream is not None:
                self.run(stream)
                if timeout is not None and self.machine.clock.now() - begin > timeout * 1e6 and not goal():
                    return False
                continue
            if self.steps != steps:
                steps, since = self.steps, time.monotonic()
            now = time.monotonic()
            others = self._others_may_act(goal)
            if not others and self._skip_to_expiry(None if end is None else (end - now) * 1000):
                continue
            if end is not None and (now >= end or not others):
                if not self.machine.clock.stopped and now < end:
                    self.machine.clock.advance((end - now) * 1000)
                return False
            if end is None and not (others and (self._others_work() or now - since < self.patience)):
                raise Deadlock(self.explain(roots))
            self._sleep(goal, 0.05 if end is None else min(0.05, end - now))
        return True

    def _skip_to_expiry(self, limit: float | None) -> bool:
        """Nothing happens before a waiting operation times out: move the clock there, unless that is later than
        `limit` milliseconds from now."""
        waits = [stream.pending[0].expires for stream in self.active if stream.pending and not stream.running]
        times = [time for time in waits if time is not None]
        if not times:
            return False
        step = max(0.0, (min(times) - self.machine.clock.now()) / 1e6)
        if limit is not None and step > limit:
            return False
        self.machine.clock.advance(step + 1e-6)
        return True

    def _sleep(self, goal: Goal, seconds: float) -> None:
        me = threading.get_ident()
        outer = self.waiting.get(me)
        self.waiting[me] = goal
        try:
            self.machine.changed.wait(seconds)
        finally:
            if outer is None:
                del self.waiting[me]
            else:
                self.waiting[me] = outer

    def _others_may_act(self, goal: Goal) -> bool:
        """May another thread of this process still change something?"""
        if self._others_work():
            return True
        me = threading.get_ident()
        for ident, other in list(self.waiting.items()):
            if ident != me and other():
                return True  # its wait is over, it has only not woken up yet
        for thread in threading.enumerate():
            it = thread.ident
            if not (it == me or it in self.waiting or it in self.library_threads or it in self.bystanders):
                return True
        return False

    def _others_work(self) -> bool:
        """Is an operation being executed that does not wait itself, as a function does that waits for its stream?"""
        me = threading.get_ident()
        stuck = 0
        for ident, count in self.doing.items():
            waits_for = self.waiting.get(ident)
            if ident == me or (waits_for is not None and not waits_for()):
                stuck += count
        return self.busy > stuck

    def explain(self, roots: Iterable[Stream]) -> str:
        """Who waits for whom, as text."""
        lines: list[str] = []
        seen: list[Stream] = []
        todo = list(roots)
        while todo:
            stream = todo.pop(0)
            if not stream.pending:
                continue
            if stream in seen:
                lines.append(f"... and so back to {stream!r}: a cycle")
                continue
            seen.append(stream)
            head = stream.pending[0]
            blocker = head.blocked_by()
            if blocker is None:
                lines.append(f"{stream!r} is in {head.name} ({places.describe(head.place)}), {head.unfinished()}")
                continue
            lines.append(f"{stream!r} waits in {head.name} ({places.describe(head.place)}) for {blocker!r}")
            others = self.streams_that_end(blocker)
            for other in others:
                for operation in other.pending:
                    if operation is blocker or operation.signals() is blocker:
                        lines.append(
                            f"  which {operation.name} ({places.describe(operation.place)}) on {other!r} would end"
                        )
            if not others:
                lines.append("  which nothing that was submitted will ever end")
            todo.extend(others)
        return "deadlock: this wait can never end\n" + "\n".join(lines)


def _goes_on() -> bool:
    """The goal of a thread that does not wait for anybody, and will do more by itself."""
    return True


class EagerScheduler(Scheduler):
    """Everything runs as soon as it can.

    A wait for an event that nobody has recorded does not wait: so the library was recorded to answer, over a driver
    that finishes every task at once. In the other orders it waits for the next record, as the hardware does.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.passes_unrecorded = True

    def submitted(self, stream: Stream) -> None:
        self.active[stream] = None
        if self._ready(stream):
            self.run(stream)
        if threading.get_ident() not in self.library_threads:
            # what the library's own thread does is over before the program can look, unless it takes long
            end = time.monotonic() + PROMPT
            while stream.running and stream.pending[0].elsewhere and time.monotonic() < end:
                self._sleep(_goes_on, end - time.monotonic())

    def finished(self) -> None:
        for stream in list(self.active):
            while self._ready(stream):
                self.run(stream)

    def choose(self, roots: Iterable[Stream]) -> Stream | None:
        for stream in self.active:
            if self._ready(stream):
                return stream
        return None


class RandomScheduler(Scheduler):
    """Any order that the dependencies allow, decided by a seed: the same calls give the same order."""

    def __init__(self, machine: Machine, seed: int) -> None:
        super().__init__(machine)
        self.random = random.Random(seed)
        self.running_some = False

    def submitted(self, stream: Stream) -> None:
        self.active[stream] = None
        if self.running_some:
            return
        self.running_some = True
        try:
            while self.random.random() < 0.5:
                ready = self.ready()
                if not ready:
                    break
                self.run(self.random.choice(ready))
        finally:
            self.running_some = False

    def choose(self, roots: Iterable[Stream]) -> Stream | None:
        ready = self.ready()
        return self.random.choice(ready) if ready else None


def make_scheduler(machine: Machine, order: str) -> Scheduler:
    """The scheduler for `lazy`, `eager` or `random(seed)`."""
    if order == "lazy":
        return Scheduler(machine)
    if order == "eager":
        return EagerScheduler(machine)
    match = re.match(r"^random\((\d+)\)$", str(order))
    if match:
        return RandomScheduler(machine, int(match.group(1)))
    raise ValueError(
        f"order={order!r} is not known; use 'lazy', 'eager' or 'random(seed)' with a whole number, as in 'random(7)'"
    )
