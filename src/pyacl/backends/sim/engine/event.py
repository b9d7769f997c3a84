"""Events: marks on streams that other streams and the host can wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import places
from .failures import AclLayerError, RuntimeLayerError, UndefinedBehavior
from .operation import Operation
from .waiting import STREAM_ABORTED, raise_failure

if TYPE_CHECKING:
    from .context import Context
    from .machine import Machine
    from .stream import Stream

# flags; the names are the runtime's
SYNC, STREAM_MARK, DDSYNC, TIME_LINE, DEVICE_USE_ONLY, EXTERNAL, IPC = 0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40
DEFAULT = DDSYNC | TIME_LINE | STREAM_MARK  # what aclrtCreateEvent makes

EVENTS_PER_DEVICE = 65536
EVENT_TIMEOUT = 507047
TASK_TIMEOUT = 107020  # assumption: what the stream fails with when a wait on it times out


class EventRecord(Operation):
    """The mark itself."""

    __slots__ = ("event", "time")

    def __init__(self, name: str, event: Event) -> None:
        super().__init__(name)
        self.event = event
        self.time: int | None = None

    def start(self, machine: Machine) -> bool:
        self.time = machine.clock.now()
        return True


class EventReset(Operation):
    """Takes the mark back: later waits wait for the next record."""

    __slots__ = ("event",)

    def __init__(self, name: str, event: Event) -> None:
        super().__init__(name)
        self.event = event

    def start(self, machine: Machine) -> bool:
        return True


class EventWait(Operation):
    """A stream waits for a record; for one that is yet to come, `record` is filled in when it comes."""

    __slots__ = ("event", "record")

    def __init__(self, name: str, event: Event, record: EventRecord | None) -> None:
        super().__init__(name)
        self.event = event
        self.record = record

    def blocked_by(self) -> Any:
        if self.record is None:
            return self.event
        return None if self.record.done else self.record

    def start(self, machine: Machine) -> bool:
        if self in self.event.waits:
            self.event.waits.remove(self)
        return True

    def timed_out(self) -> BaseException:
        return RuntimeLayerError(
            TASK_TIMEOUT, "EE9999", f"the wait for an event timed out ({places.describe(self.place)})"
        )


class Event:
    """An event of aclrtCreateEvent, ...WithFlag (`new_mode` False) or aclrtCreateEventExWithFlag (`new_mode` True)."""

    def __init__(self, context: Context, flags: int, new_mode: bool) -> None:
        self.context = context
        self.device = context.device
        self.generation = context.device.generation
        self.flags = flags
        self.new_mode = new_mode
        self.place = places.caller()
        self.last: EventRecord | None = None  # the latest record
        self.was_reset = False  # since the latest record
        self.waits: list[EventWait] = []  # waits that have not passed
        self.captured: Any = None  # the capture that its latest record went into; set by the model area
        self.number: int | None = None  # event id; None while it has none
        self.handle = 0  # set by whoever keeps it
        if not new_mode and flags != DEFAULT and self.can_be_waited_for:
            self.number = self.events.take_number()

    @property
    def events(self) -> Events:
        return self.device.machine.area(Events)

    @property
    def can_be_waited_for(self) -> bool:
        """Without a synchronisation flag it only marks progress and time."""
        return bool(self.flags & (DDSYNC | SYNC | EXTERNAL | IPC))

    @property
    def recorded(self) -> bool:
        """The latest record has been passed."""
        return self.last is not None and self.last.done

    # ---- on streams --------------------------------------------------------------------------------------

    def record(self, stream: Stream, name: str) -> None:
        operation = EventRecord(name, self)
        self.last = operation
        self.was_reset = False
        if self.can_be_waited_for and self.number is None:
            self.number = self.events.take_number()
        for wait in self.waits:
            if wait.record is None:
                wait.record = operation
        stream.submit(operation)

    def reset(self, stream: Stream, name: str) -> None:
        self.was_reset = True
        stream.submit(EventReset(name, self))

    def wait(self, stream: Stream, name: str, timeout: float | None = None) -> None:
        """The stream waits, at most `timeout` milliseconds of device time."""
        last, waits_always = self.last, bool(self.flags & (SYNC | EXTERNAL))
        if stream.machine.hazards is not None:
            stream.machine.hazards.waits(self, stream, name)
        if self.new_mode:
            if last is None or last.stream is stream or last.done:
                return
        elif last is not None and last.done and not self.was_reset and not waits_always:
            return
        elif last is None and not waits_always:
            raise RuntimeLayerError(
                107000, "EE1001", f"The wait event cannot be submitted before the record event. flag={self.flags}"
            )
        machine = stream.machine
        record = None if self.was_reset else last
        if record is None and machine.scheduler.passes_unrecorded:
            return
        operation = EventWait(name, self, record)
        if timeout is not None:
            operation.expires = machine.clock.now() + int(timeout * 1e6)
        self.waits.append(operation)
        stream.submit(operation)

    # ---- on the host -------------------------------------------------------------------------------------

    def synchronize(self, timeout: float | None) -> None:
        """Wait on the host for the latest record; one that was never recorded is passed at once."""
        record = self.last
        if record is None:
            return
        stream = record.stream
        assert stream is not None
        if self.device.lost:
            raise self.device.gone()
        done = stream.machine.scheduler.wait(lambda: record.done or record.dropped, [stream], timeout)
        self._seen(record)
        raise_failure([stream])
        if record.dropped:
            raise RuntimeLayerError(STREAM_ABORTED, "EE9999", "the stream of the event's record was aborted")
        if not done:
            raise RuntimeLayerError(EVENT_TIMEOUT, "EE9999", f"event sync timeout after {(timeout or 0):g} ms")

    def poll(self) -> None:
        """Somebody asked for the state: the work that leads to it gets on a little."""
        self._seen(self.last)
        if self.last is not None and not self.last.done and self.last.stream is not None:
            self.last.stream.machine.scheduler.step([self.last.stream])

    def _seen(self, record: EventRecord | None) -> None:
        """The program learns whether a record has been passed."""
        hazards = self.device.machine.hazards
        if hazards is not None and record is not None and record.done:
            hazards.host_saw(record)

    def wait_pending(self) -> bool:
        """Is there a wait for it that has not passed?"""
        pending = self.can_be_waited_for and any(not wait.done and not wait.dropped for wait in self.waits)
        if not pending:
            self._seen(self.last)
        return pending

    def id(self) -> int:
        """The event id, 507000 while it has none: an event of the new kind has one only until its record and waits
        are through."""
        if self.new_mode and self.number is not None and self.recorded and not self.wait_pending():
            self.events.give_number(self.number)
            self.number = None
        if self.number is None:
            raise RuntimeLayerError(507000, "EE9999", f"eventFlag={self.flags}, event id is invalid")
        return self.number

    def time(self) -> int:
        """When the latest record was passed (ns); 507000 if there is none, 107006 if it is still to come."""
        if self.last is None:
            raise RuntimeLayerError(507000, "EE9999", "event recorder null")
        if self.last.time is None:
            raise RuntimeLayerError(107006, "EE9999", "event timestamp invalid: the record is not complete")
        self._seen(self.last)
        return self.last.time

    def __repr__(self) -> str:
        return f"<event 0x{self.handle:x} made at {places.describe(self.place)}>"


class Events:
    """All events of a machine."""

    def __init__(self, machine: Machine) -> None:
        from .handles import HandleTable

        self.machine = machine
        self.table: HandleTable[Event] = HandleTable("event")
        self._free: list[int] = []
        self._next = 0

    def create(self, context: Context, flags: int, new_mode: bool) -> int:
        event = Event(context, flags, new_mode)
        event.handle = self.table.add(event)
        return event.handle

    def get(self, handle: int, call: str) -> Event:
        """The event of a handle. One that is gone, or whose device was reset, is read by the library in freed
        memory."""
        event = self.table.get(handle, call)
        if event.generation != event.device.generation or event.device.open_count == 0:
            raise UndefinedBehavior(
                f"{call}: device {event.device.index} was reset after the event 0x{handle:x} was made "
                f"at {places.describe(event.place)}"
            )
        return event

    def destroy(self, handle: int, call: str) -> None:
        event = self.get(handle, call)
        self.table.remove(handle, call)
        if event.number is not None:
            self.give_number(event.number)

    def take_number(self) -> int:
        if self._free:
            return self._free.pop()
        self._next += 1
        return self._next - 1

    def give_number(self, number: int) -> None:
        self._free.append(number)

    def available(self) -> int:
        return EVENTS_PER_DEVICE - self._next + len(self._free)


def refuse_external(event: Event) -> None:
    """What an external event cannot be asked (207000)."""
    if event.flags == EXTERNAL:
        raise RuntimeLayerError(207000, "EE1001", "The external event does not support this")


def refuse_external_quietly(event: Event) -> None:
    if event.flags == EXTERNAL:
        raise AclLayerError(207000, "EH9999", "The external event does not support this")
