"""Streams: queues of operations that run one after the other."""
from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Deque, Optional

from . import places
from .operation import Operation

if TYPE_CHECKING:
    from .context import Context
    from .machine import Machine


class Stream:
    """A queue. `pending[0]` is the operation that runs or would run next."""

    def __init__(self, context: Context, flags: int = 0, priority: int = 0) -> None:
        self.machine: Machine = context.machine
        self.context = context
        self.flags = flags
        self.priority = priority
        self.place = places.caller()
        self.handle = self.machine.streams.add(self)
        self.number = context.device.take_stream_id()
        self.pending: Deque[Operation] = deque()
        self.submitted = 0                       # operations ever queued: the last one's number
        self.completed = 0
        self.running = False                     # pending[0] has been started and is not finished
        self.failure: Optional[BaseException] = None     # reported by the next wait for this stream
        self.recorder: Any = None                # while capturing: an object with add(operation); set by the model area
        self.failure_mode = 0
        self.overflow_switch = 0

    @property
    def idle(self) -> bool:
        return not self.pending

    def submit(self, operation: Operation) -> Operation:
        """Queue an operation at the end (or hand it to the model that is being captured)."""
        operation.place = places.caller()
        operation.stream = self
        if self.recorder is not None:
            self.recorder.add(operation)
            return operation
        self.submitted += 1
        operation.number = self.submitted
        self.pending.append(operation)
        self.machine.scheduler.submitted(self)
        return operation

    def __repr__(self) -> str:
        return "<stream %d of device %d>" % (self.number, self.context.device.index)
