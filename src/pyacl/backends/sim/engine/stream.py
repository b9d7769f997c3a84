"""Streams: queues of operations that run one after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from . import observers, places
from .operation import Operation
from .waiting import wait_for_streams

if TYPE_CHECKING:
    from .context import Context
    from .machine import Machine

LEAST_PRIORITY = 7
NO_TAG = 0xFFFFFFFF

# flags of aclrtCreateStreamWithConfig
FAST_LAUNCH = 0x1
PERSISTENT = 0x4
CPU_SCHEDULE = 0x10
DEVICE_USE_ONLY = 0x20
# the host cannot wait for these, and a wait for all streams leaves them out
NOT_SYNCHRONIZED = CPU_SCHEDULE | DEVICE_USE_ONLY


class Stream:
    """A queue. `pending[0]` is the operation that runs or would run next."""

    def __init__(self, context: Context, flags: int = 0, priority: int = 0) -> None:
        self.machine: Machine = context.machine
        self.context = context
        self.flags = flags
        self.priority = priority
        self.place = places.caller()
        self.alive = True
        self.handle = self.machine.streams.add(self)
        self.number = context.device.take_stream_id()
        self.pending: deque[Operation] = deque()
        self.submitted = 0  # operations ever queued: the last one's number
        self.completed = 0  # number of the last one that is finished
        self.aborts = 0
        self.running = False  # pending[0] has been started and is not finished
        self.failure: BaseException | None = None  # found by the next wait for this stream
        self.recorder: Any = None  # while capturing: an object with add(operation); set by the model area
        self.models: Any = ()  # the models it is bound to; set by the model area
        self.divert: Any = None  # takes operations elsewhere, if its divert(stream, operation) is true; the same
        self.failure_mode = 0  # 1: stop on failure
        self.overflow_switch = 0
        self.tag = NO_TAG
        self.cache_op_info = 0
        # the thread that processes its callbacks (aclrtSubscribeReport), or the library's (aclrtLaunchHostFunc)
        self.report_thread: int | None = None
        self.track: Any = None  # what the hazard checker knows of it

    @property
    def idle(self) -> bool:
        return not self.pending

    def submit(self, operation: Operation) -> Operation:
        """Queue an operation at the end (or hand it to the model that is being captured).

        The scheduler may run operations before this returns, with the lock given back meanwhile: let it be the last
        thing an entry point does.
        """
        operation.place = places.caller()
        operation.stream = self
        if self.context.failure is not None:
            raise self.context.failure
        if self.machine.faults is not None:
            self.machine.faults.submitting(self, operation)
        if self.recorder is not None:
            self.recorder.add(operation)
            return operation
        if self.divert is not None and self.divert.divert(self, operation):
            return operation
        self.submitted += 1
        operation.number = self.submitted
        if self.machine.hazards is not None:
            self.machine.hazards.submitted(self, operation)
        self.pending.append(operation)
        thread = self.machine.thread
        thread.last_task, thread.last_stream = operation.number, self.number
        self.machine.scheduler.submitted(self)
        return operation

    def drop(self) -> None:
        """Forget the work that has not begun (abort, forced end)."""
        kept = [self.pending[0]] if self.running else []
        for operation in list(self.pending)[len(kept) :]:
            operation.dropped = True
        self.pending.clear()
        self.pending.extend(kept)
        if kept:
            kept[0].number = self.submitted  # when it is finished, so is everything that was queued
        else:
            self.completed = self.submitted
            self.machine.scheduler.active.pop(self, None)
        self.machine.scheduler.notify()

    def abort(self) -> None:
        """aclrtStreamAbort: drop the work; whoever waits for the stream learns of it."""
        self.aborts += 1
        self.drop()

    def synchronize(self, timeout: float | None) -> None:
        """Wait for everything queued so far; see `wait_for_streams`."""
        wait_for_streams(self.machine, [self], timeout)

    def announce_end(self) -> None:
        """Tell who wants to know that the stream is about to be destroyed; nobody is told of one without a queue."""
        if not self.flags & CPU_SCHEDULE:
            self.machine.stream_observers.notify(self.handle, observers.DESTROYING)

    def end(self) -> None:
        """The stream is destroyed: its handle is void, its number free."""
        self.drop()
        if self.machine.hazards is not None:
            self.machine.hazards.ended(self)
        self.alive = False
        self.context.streams.discard(self)
        self.context.device.give_stream_id(self.number)
        self.machine.streams.remove(self.handle)

    def __repr__(self) -> str:
        return f"<stream {self.number} of device {self.context.device.index}>"
