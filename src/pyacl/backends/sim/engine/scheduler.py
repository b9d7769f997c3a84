"""When operations run. Three orders (lazy, eager, random), waiting with timeouts, and the detection of waits that can never end.

There is no device thread: operations run in the host thread that makes them run, by waiting (lazy), by submitting (eager) or by either (random).
All functions here are called with the engine lock held.
"""
from __future__ import annotations

import random
import re
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Set

from . import places
from .failures import Deadlock
from .operation import Operation

if TYPE_CHECKING:
    from .machine import Machine
    from .stream import Stream

Goal = Callable[[], bool]


class Scheduler:
    """The lazy order: nothing runs before something waits for it, and then only what that wait needs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.active: Dict[Stream, None] = {}       # streams that may have pending operations, in order of their first submission
        self.busy = 0                              # operations being executed without the lock, by whatever thread
        self.steps = 0                             # operations finished so far
        self.patience = 10.0                       # seconds: how long other host threads that are not waiting may take to end a wait
        self.waiting: Dict[int, Goal] = {}         # host threads inside `wait`, and what each waits for
        self.library_threads: Set[int] = set()     # threads of the simulator: they act only when given something to do

    # ---- what an order decides ---------------------------------------------------------------------------

    def submitted(self, stream: Stream) -> None:
        """An operation was queued on `stream`."""
        self.active[stream] = None
        if len(stream.pending) > stream.machine.profile.stream_depth and self._ready(stream):
            self.run(stream)                       # the queue of a real stream is as deep as this: the device must have begun

    def finished(self) -> None:
        """An operation has finished."""

    def choose(self, roots: Iterable[Stream]) -> Optional[Stream]:
        """A stream whose next operation is to run now, for a wait for `roots`; None if there is none."""
        seen: Set[Stream] = set()
        todo = list(roots)
        while todo:
            stream = todo.pop()
            if stream in seen or not stream.pending or stream.running:
                continue
            seen.add(stream)
            blocker = stream.pending[0].blocked_by()
            if blocker is None:
                return stream
            todo.extend(self.streams_that_end(blocker))
        return None

    # ---- running -----------------------------------------------------------------------------------------

    @staticmethod
    def _ready(stream: Stream) -> bool:
        return bool(stream.pending) and not stream.running and stream.pending[0].blocked_by() is None

    def ready(self) -> List[Stream]:
        """Every stream whose next operation may start now."""
        return [stream for stream in self.active if self._ready(stream)]

    def streams_that_end(self, blocker: Any) -> List[Stream]:
        """The streams with a pending operation that would end this reason to wait."""
        if isinstance(blocker, Operation):
            return [blocker.stream] if blocker.stream is not None else []
        return [stream for stream in self.active if any(op.signals() is blocker for op in stream.pending)]

    def run(self, stream: Stream) -> None:
        """Start the next operation of a stream (and finish it, unless it finishes elsewhere)."""
        operation = stream.pending[0]
        stream.running = True
        finished = True
        interrupt: Optional[BaseException] = None
        try:
            if operation.locked:
                finished = operation.start(self.machine)
            else:
                self.busy += 1
                try:
                    with self.machine.unlocked():
                        finished = operation.start(self.machine)
                finally:
                    self.busy -= 1
        except Exception as failure:               # kept for the wait that finds it
            operation.failure = failure
        except BaseException as failure:           # KeyboardInterrupt and the like belong to the program, now
            interrupt = failure
        if finished:
            self.finish(operation)
        if interrupt is not None:
            raise interrupt

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
        if operation.failure is not None and stream.failure is None:
            stream.failure = operation.failure
        self.notify()
        self.finished()

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

    def wait(self, goal: Goal, roots: Iterable[Stream], timeout: Optional[float] = None) -> bool:
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
            if end is not None and (now >= end or not others):
                if not self.machine.clock.stopped and now < end:
                    self.machine.clock.advance((end - now) * 1000)
                return False
            if end is None and not (others and (self.busy or now - since < self.patience)):
                raise Deadlock(self.explain(roots))
            self._sleep(goal, 0.05 if end is None else min(0.05, end - now))
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
        if self.busy:
            return True
        me = threading.get_ident()
        for ident, other in list(self.waiting.items()):
            if ident != me and other():
                return True                        # its wait is over, it has only not woken up yet
        for thread in threading.enumerate():
            if thread.ident not in self.waiting and thread.ident not in self.library_threads and thread.ident != me:
                return True
        return False

    def explain(self, roots: Iterable[Stream]) -> str:
        """Who waits for whom, as text."""
        lines: List[str] = []
        seen: List[Stream] = []
        todo = list(roots)
        while todo:
            stream = todo.pop(0)
            if not stream.pending:
                continue
            if stream in seen:
                lines.append("... and so back to %r: a cycle" % stream)
                continue
            seen.append(stream)
            head = stream.pending[0]
            blocker = head.blocked_by()
            if blocker is None:
                lines.append("%r is in %s (%s), which does not end" % (stream, head.name, places.describe(head.place)))
                continue
            lines.append("%r waits in %s (%s) for %r" % (stream, head.name, places.describe(head.place), blocker))
            others = self.streams_that_end(blocker)
            for other in others:
                for operation in other.pending:
                    if operation is blocker or operation.signals() is blocker:
                        lines.append("  which %s (%s) on %r would end" % (operation.name, places.describe(operation.place), other))
            if not others:
                lines.append("  which nothing that was submitted will ever end")
            todo.extend(others)
        return "deadlock: this wait can never end\n" + "\n".join(lines)


class EagerScheduler(Scheduler):
    """Everything runs as soon as it can."""

    def submitted(self, stream: Stream) -> None:
        self.active[stream] = None
        if self._ready(stream):
            self.run(stream)

    def finished(self) -> None:
        for stream in list(self.active):
            while self._ready(stream):
                self.run(stream)

    def choose(self, roots: Iterable[Stream]) -> Optional[Stream]:
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

    def choose(self, roots: Iterable[Stream]) -> Optional[Stream]:
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
    raise ValueError("order=%r is not known; use 'lazy', 'eager' or 'random(seed)' with a whole number, as in 'random(7)'" % (order,))
