"""The state of one process as the runtime library holds it, and the lock around it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, TypeVar

from .clock import Clock
from .context import Context
from .device import INFNAN, Device
from .failures import RuntimeLayerError
from .handles import HandleTable
from .observers import Observers
from .profiles import Profile
from .scheduler import Scheduler, make_scheduler
from .stream import Stream
from .threads import ThreadState

T = TypeVar("T")


class Machine:
    """Everything a simulated process knows. One for each `sim.Backend`."""

    def __init__(
        self, profile: Profile, cann: str, devices: int, memory: int | None, order: str, unregistered: str
    ) -> None:
        self.profile = profile
        self.cann = cann
        self.memory_bytes = memory if memory is not None else profile.memory_bytes
        self.unregistered = unregistered  # what a launch of a kernel without emulation does: "error" or "skip"
        self.host: Any = None  # memory of the host by address (move, fill, view): the bridge sets its hostmem here
        # asked with a context: does the capture of a model forbid synchronous copies there? Set by the model area
        self.captures_forbid: Callable[[Context], bool] | None = None
        self.hazards: Any = None  # the hazard checker, where there is one
        self.faults: Any = None  # the faults that a test has asked for, once it has (engine/faults.py)
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.thread = ThreadState()
        self.clock = Clock()
        self.contexts: HandleTable[Context] = HandleTable("context")
        self.streams: HandleTable[Stream] = HandleTable("stream")
        self.device_observers = Observers(self)
        self.stream_observers = Observers(self)
        self.abort_observers = Observers(self)
        self.saturation = INFNAN  # float overflow mode of the process
        self.default_device: int | None = None  # set by the configuration file of aclInit
        self.shared_messages: list[tuple[str, str]] | None = None  # where messages go when all threads share them
        self.devices: list[Device] = [Device(self, index) for index in range(devices)]
        self.scheduler: Scheduler = make_scheduler(self, order)
        self._areas: dict[type, Any] = {}

    def area(self, kind: type[T]) -> T:
        """The one object of this class that belongs to this machine; made with the machine as argument on first use."""
        try:
            return self._areas[kind]  # type: ignore[no-any-return]
        except KeyError:
            make: Callable[[Machine], T] = kind
            found = self._areas[kind] = make(self)
            return found

    def areas(self) -> list[Any]:
        """The areas that have been used so far."""
        return list(self._areas.values())

    def messages(self) -> list[tuple[str, str]]:
        """Where the calling thread's failures are noted for aclGetRecentErrMsg."""
        return self.thread.messages if self.shared_messages is None else self.shared_messages

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        """Give the engine lock back for the block: long work, or code of the user's program."""
        self.lock.release()
        try:
            yield
        finally:
            self.lock.acquire()

    def find_context(self) -> Context | None:
        """The calling thread's context, None if it has none. One that was made current by name may be dead."""
        thread = self.thread
        if thread.context is not None:
            return thread.context
        return thread.device.primary if thread.device is not None else None

    def open_context(self, device_id: int | None = None) -> Context | None:
        """The calling thread's context. A thread without one gets that of the default device, if one is configured;
        a function that is told the id of a device asks for this only if it is the default device's."""
        context = self.find_context()
        default = self.default_device
        if context is None and self.thread.device is None and default is not None and device_id in (None, default):
            self.devices[default].set()
            context = self.find_context()
        return context

    def current_context(self, device_id: int | None = None, *, opens: bool = True) -> Context:
        """The calling thread's context, as `open_context` or (not `opens`) `find_context` gives it; 107002 if there is
        none or it is dead."""
        context = self.open_context(device_id) if opens else self.find_context()
        if context is None or not context.alive:
            raise RuntimeLayerError(
                107002, "EE1001", "the context is a null pointer: the thread has set no device and no context"
            )
        return context

    def check_default_device(self, device_id: int) -> None:
        """For functions that are told the id of a device and need no context: they need one if there is a default
        device."""
        if self.default_device is not None:
            self.current_context(device_id)

    def device(self, index: int) -> Device:
        """The device of an id; 107001 if there is none."""
        if not 0 <= index < len(self.devices):
            raise RuntimeLayerError(
                107001,
                "EE1003",
                f"value {index} for parameter drv devId is invalid. Expected value: [0, {len(self.devices)})",
            )
        return self.devices[index]

    def open_device(self, index: int) -> Device:
        """The device of an id, which a thread or a context must use; 107001 or 507033 otherwise."""
        device = self.device(index)
        if not device.open_count:
            raise RuntimeLayerError(507033, "EE9999", f"Device {index} is not open")
        return device

    def stream(self, handle: int, call: str = "") -> Stream:
        """The stream of a handle; 0 is the default stream of the current context. It may belong to another context."""
        if handle == 0:
            return self.current_context().default_stream
        return self.streams.get(handle, call)

    def own_stream(self, handle: int, call: str = "") -> Stream:
        """The stream of a handle, which must belong to the current context (107003 otherwise); 0 is the default
        stream."""
        context = self.current_context()
        if handle == 0:
            return context.default_stream
        if self.streams.is_foreign(handle):
            raise RuntimeLayerError(107003, "EE9999", f"{call}: {self.streams.why_not(handle)}")
        stream = self.streams.get(handle, call)
        if stream.context is not context:
            raise RuntimeLayerError(107003, "EE9999", f"stream is not in current ctx, stream_id={stream.number}")
        return stream
