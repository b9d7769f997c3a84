"""The state of one process as the runtime library holds it, and the lock around it."""
from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Type, TypeVar

from .clock import Clock
from .context import Context
from .device import Device
from .failures import RuntimeLayerError
from .handles import HandleTable
from .profiles import Profile
from .scheduler import Scheduler, make_scheduler
from .stream import Stream
from .threads import ThreadState

T = TypeVar("T")


class Machine:
    """Everything a simulated process knows. One for each `sim.Backend`."""

    def __init__(self, profile: Profile, cann: str, devices: int, memory: Optional[int], order: str, unregistered: str) -> None:
        self.profile = profile
        self.cann = cann
        self.memory_bytes = memory if memory is not None else profile.memory_bytes
        self.unregistered = unregistered         # what a launch of a kernel without emulation does: "error" or "skip"
        self.host: Any = None                    # memory of the host by address (move, fill, view): the bridge sets its hostmem here
        self.when_closed: List[Callable[[int], None]] = []       # called with the number of a device that its last reset closes
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.thread = ThreadState()
        self.clock = Clock()
        self.contexts: HandleTable[Context] = HandleTable("context")
        self.streams: HandleTable[Stream] = HandleTable("stream")
        self.devices: List[Device] = [Device(self, index) for index in range(devices)]
        self.scheduler: Scheduler = make_scheduler(self, order)
        self._areas: Dict[type, Any] = {}

    def area(self, kind: Type[T]) -> T:
        """The one object of this class that belongs to this machine; made with the machine as argument on first use."""
        try:
            return self._areas[kind]  # type: ignore[no-any-return]
        except KeyError:
            make: Callable[[Machine], T] = kind
            found = self._areas[kind] = make(self)
            return found

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        """Give the engine lock back for the block: long work, or code of the user's program."""
        self.lock.release()
        try:
            yield
        finally:
            self.lock.acquire()

    def current_context(self) -> Context:
        """The calling thread's context; 107002 if it has none or it is gone."""
        context = self.thread.context
        if context is None or not context.alive:
            raise RuntimeLayerError(107002, "EE1001", "The context is a null pointer: the thread has no device or context")
        return context

    def stream(self, handle: int, call: str = "") -> Stream:
        """The stream of a handle; 0 is the default stream of the current context."""
        if handle == 0:
            return self.current_context().default_stream
        return self.streams.get(handle, call)
