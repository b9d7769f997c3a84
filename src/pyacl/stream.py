"""Streams and events: queues of work on a device, the marks in them, and what must live until they have passed."""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from collections import deque
from typing import Any, Callable, Optional

from pyacl._handle import CALLBACK_CODES, Closeable, Handle
from pyacl.backends.thunks import raise_pending
from pyacl.device import (
    EVENT,
    STREAM,
    Device,
    DeviceHandle,
    broken_off,
    checked_address,
    milliseconds,
    open_device,
    same_device,
)
from pyacl.errors import AclError, AclEventError, AclTimeoutError
from pyacl.raw import constants, types

__all__ = ["Event", "Stream"]

#: as many launches and copies may keep objects alive before the stream is asked how far it is
_KEEP = 1024


class StreamHandle(Handle):
    """The stream below a `Stream`: what it must keep alive, and what its host functions raised.

    It refers to buffers (which refer to devices), never to its own `Stream`.
    """

    __slots__ = (
        "device",
        "host_errors",
        "hung",
        "kept",
        "limit",
        "tokens",
        "_dropped",
        "_lock",
        "_mark",
        "_mark_at",
        "_owned",
    )

    def __init__(
        self, device: DeviceHandle, value: types.aclrtStream, owned: bool, kept: Optional[deque[Any]] = None
    ) -> None:
        self.device = device
        #: whether it was last seen working without an end
        self.hung = False
        #: what queued work still needs, oldest first; appending is all that a launch does
        self.kept: deque[Any] = deque() if kept is None else kept
        #: length of `kept` from which on it pays to ask the stream
        self.limit = _KEEP
        self.host_errors: deque[BaseException] = deque()
        #: host functions that have not run yet
        self.tokens: set[int] = set()
        self._dropped = 0
        self._lock = threading.Lock()
        self._mark: Optional[types.aclrtEvent] = None
        self._mark_at = 0
        self._owned = owned
        super().__init__(f"stream of device {device.id}", value, None, device, STREAM)

    def _free(self, value: Any) -> None:
        device = self.device
        api = device.api
        kept = self._still_kept()
        failure: Optional[BaseException] = None
        try:
            with device.current(must=False):
                self._drop_mark()
                if kept and not self.hung and device.fault is None:
                    # destroying waits as well, but does not tell what became of the work; and what was queued on a
                    # stream that is not ours needs what may be freed next
                    try:
                        api.aclrtSynchronizeStream(value)
                    except BaseException as error:
                        failure = error
                        self.hung = not isinstance(error, Exception)
                        if isinstance(error, AclError):
                            device.note(error)
                if self._owned and (self.hung or device.fault is not None):
                    # the gentle way waits for what never ends
                    api.aclrtDestroyStreamForce(value)
                elif self._owned:
                    api.aclrtDestroyStream(value)
            raise_pending()
            if failure is not None:
                raise failure
            if self.host_errors:
                raise self.host_errors[0]
        finally:
            if self.hung:
                device.hung = True
            del failure  # its traceback refers to this frame
            kept.clear()
            self.kept = deque()
            self.host_errors.clear()  # their frames hold what the host functions had
            for token in tuple(self.tokens):
                _host_functions.pop(token, None)

    def _still_kept(self) -> deque[Any]:
        try:
            self.kept.__len__()
            return self.kept
        except ReferenceError:
            return deque([None])  # the device is being collected, and what it kept with it: nobody knows any more

    # -- what queued work needs -----------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """How many things were ever kept: the place of the work queued now."""
        with self._lock:
            return self._dropped + len(self.kept)

    def keep(self, *things: object) -> None:
        """Keep things alive until the stream has passed the work queued now."""
        self.kept.append(things)
        if len(self.kept) >= self.limit:
            self.prune()

    def passed(self, position: int) -> None:
        """The stream has passed this place: what was kept up to it may go."""
        gone = []
        with self._lock:
            while self._dropped < position and self.kept:
                gone.append(self.kept.popleft())
                self._dropped += 1
            self.limit = max(_KEEP, 2 * len(self.kept))
        # freed outside of the lock: what goes may free memory, which may run anything
        del gone

    def prune(self) -> None:
        """Ask the stream how far it is, with an event of its own: a program that never waits must not grow."""
        device = self.device
        bare = device.api.unchecked
        stream = self.get()
        with device.current():
            if self._mark is not None:
                status = ctypes.c_uint32()
                code = bare.aclrtQueryEventStatus(self._mark, status)
                if not code and status.value != constants.ACL_EVENT_RECORDED_STATUS_COMPLETE:
                    self.limit = len(self.kept) + _KEEP
                    return
                if not code:
                    self.passed(self._mark_at)
            mark_at = self.position
            try:
                if self._mark is None:
                    self._mark = new_event(device, constants.ACL_EVENT_CAPTURE_STREAM_PROGRESS)
                device.api.aclrtRecordEvent(self._mark, stream)
                self._mark_at = mark_at
            except AclError:
                self._drop_mark()  # an Ex event that was never recorded says "complete"
        self.limit = len(self.kept) + _KEEP

    def _drop_mark(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            self.device.api.unchecked.aclrtDestroyEvent(mark)

    def raise_host_error(self) -> None:
        """Raise what a host function raised, the first one."""
        if self.host_errors:
            raise self.host_errors.popleft()


class Stream(Closeable):
    """A queue of work on a device: launches, copies, events. Work in one stream runs in order.

    Made by `Device.create_stream`. Work is only queued when a call returns: `synchronize` waits for it.
    """

    _handle: StreamHandle

    def __init__(self, device: Device, handle: StreamHandle, owner: object = None) -> None:
        #: the device it is on
        self.device = device
        self._handle = handle
        self._owner = owner
        bare = device._handle.api.unchecked
        self._record = bare.aclrtRecordEvent
        self._wait = bare.aclrtStreamWaitEvent

    @classmethod
    def _create(cls, device: Device, priority: int, flags: int) -> Stream:
        value = types.aclrtStream()
        if priority or flags:
            device._handle.call("aclrtCreateStreamWithConfig", value, priority, flags)
        else:
            device._handle.call("aclrtCreateStream", value)
        stream = cls(device, StreamHandle(device._handle, value, owned=True))
        stream._handle.own(stream)
        return stream

    @classmethod
    def borrow(cls, address: int, *, device: Optional[Device] = None, owner: object = None) -> Stream:
        """A stream that somebody else made and will destroy.

        Parameters
        ----------
        address : int
            The aclrtStream, such as ``torch_npu.npu.current_stream().npu_stream``. Of a stream that is not in the
            device's default context, or no longer exists, the library may crash.
        device : Device, optional
            The device it is on; may be left out while only one is open.
        owner
            Kept alive as long as this object.
        """
        device = open_device(device)
        device._handle.get()
        if not address:
            raise ValueError(
                "address: 0 is the default stream of whatever context is current; use device.default_stream"
            )
        value = types.aclrtStream(checked_address(address, "stream"))
        stream = cls(device, StreamHandle(device._handle, value, owned=False), owner)
        stream._handle.own(stream)
        return stream

    def __repr__(self) -> str:
        if self.closed:
            return f"<Stream of device {self.device.id}, closed>"
        return f"<Stream {self._handle._value[0].value or 0:#x} of device {self.device.id}>"

    @property
    def _as_parameter_(self) -> types.aclrtStream:
        handle: types.aclrtStream = self._handle.get()
        return handle

    @property
    def address(self) -> int:
        """The aclrtStream as a number, for other libraries."""
        return self._handle.get().value or 0

    @property
    def id(self) -> int:
        """Number of the stream on the device, as messages of the library name it. aclrtStreamGetId."""
        number = ctypes.c_int32()
        self.device._handle.call("aclrtStreamGetId", self._handle.get(), number)
        return number.value

    def close(self) -> None:
        """Wait for the work in the stream, then destroy it. Idempotent. A borrowed stream is not destroyed.

        After a wait that timed out, and after a fault, it does not wait: the work is dropped.

        Raises
        ------
        AclDeviceFaultError
            When a kernel broke and no wait has told of it.
        BaseException
            What a host function of this stream raised (`launch_host_func`).

        Notes
        -----
        aclrtSynchronizeStream, aclrtDestroyStream, aclrtDestroyStreamForce.
        """
        self._handle.close()

    @property
    def done(self) -> bool:
        """Whether all work queued so far is done. aclrtStreamQuery."""
        status = ctypes.c_uint32()
        handle = self._handle
        position = handle.position
        self.device._handle.direct("aclrtStreamQuery", handle.get(), status)
        if status.value != constants.ACL_STREAM_STATUS_COMPLETE:
            return False
        handle.passed(position)
        return True

    def synchronize(self, timeout: Optional[float] = None) -> None:
        """Wait for all work in the stream.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits without an end, 0 asks without waiting.

        Raises
        ------
        AclTimeoutError
            When the work is not done in time. It goes on; waiting again is allowed.
        AclDeviceFaultError
            When a kernel broke; from then on everything on the device is refused, see `Device.fault`.
        BaseException
            What a host function of this stream raised (`launch_host_func`).

        Notes
        -----
        aclrtSynchronizeStream, aclrtSynchronizeStreamWithTimeout, aclrtStreamQuery.
        """
        handle, device = self._handle, self.device._handle
        position = handle.position
        limit = None if timeout is None else milliseconds(timeout)
        if limit == 0:
            if not self.done:
                raise AclTimeoutError(
                    constants.ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "aclrtStreamQuery", "the stream has work left"
                )
        else:
            try:
                if limit is None:
                    device.direct("aclrtSynchronizeStream", handle.get())
                else:
                    device.direct("aclrtSynchronizeStreamWithTimeout", handle.get(), limit)
            except BaseException as error:
                handle.hung |= broken_off(error)
                raise
        handle.hung = False
        handle.passed(position)
        handle.raise_host_error()

    def record(self, event: Optional[Event] = None) -> Event:
        """Put an event behind the work queued so far.

        Parameters
        ----------
        event : Event, optional
            Recorded again, it stands for the new place. Without one, a new event is made.

        Returns
        -------
        Event
            The event.

        Notes
        -----
        aclrtRecordEvent.
        """
        if event is None:
            event = self.device.create_event()
        else:
            same_device("event", self.device, event, Event)
        handle = self._handle
        event_ptr, stream_ptr = event._handle.get(), handle.get()
        # before the call: what another thread queues meanwhile may lie behind the event
        position = handle.position
        code = self._record(event_ptr, stream_ptr)
        if code:
            self.device._handle.again(code, "aclrtRecordEvent", self._record, event_ptr, stream_ptr)
        event._recorded = (handle, position)
        return event

    def wait(self, event: Event) -> None:
        """Let work queued from now on start only after an event, usually one of another stream.

        Parameters
        ----------
        event : Event
            Must have been recorded; the library refuses to wait for what was not.

        Notes
        -----
        aclrtStreamWaitEvent.
        """
        same_device("event", self.device, event, Event)
        event._must_be_recorded()
        event_ptr, stream_ptr = event._handle.get(), self._handle.get()
        code = self._wait(stream_ptr, event_ptr)
        if code:
            self.device._handle.again(code, "aclrtStreamWaitEvent", self._wait, stream_ptr, event_ptr)
        # the event must not be destroyed while the stream waits for it
        self._handle.keep(event)

    def launch_host_func(self, function: Callable[..., object], *args: Any) -> None:
        """Queue a Python function: it runs on a thread of the library once the work before it is done.

        The work behind it in the stream waits for it. Within it nothing of the device may be made, freed, launched or
        waited for; the library would hang. What it raises is raised by the next `synchronize` of the stream, or when
        that is closed.

        Parameters
        ----------
        function
            What to call.
        *args
            Its arguments.

        Notes
        -----
        aclrtLaunchHostFunc (CANN 8.5).
        """
        if not callable(function):
            raise TypeError(f"function: something to call, not {type(function).__name__}")
        handle = self._handle
        stream = handle.get()
        token = next(_tokens)
        _host_functions[token] = (function, args, handle)
        handle.tokens.add(token)
        try:
            self.device._handle.call("aclrtLaunchHostFunc", stream, _host_function, token)
        except BaseException:
            handle.tokens.discard(token)
            _host_functions.pop(token, None)
            raise

    def abort(self) -> None:
        """Drop the work that is queued and stop what runs. aclrtStreamAbort (CANN 8.1)."""
        self.device._handle.call("aclrtStreamAbort", self._handle.get())


def default_stream(device: Device) -> StreamHandle:
    """The handle of a device's default stream."""
    core = device._handle
    value = types.aclrtStream()
    known = core.api.has("aclrtCtxGetCurrentDefaultStream")
    core.call("aclrtCtxGetCurrentDefaultStream" if known else "aclrtCreateStream", value)
    # This handle lives as long as the device's, and buffers refer to the device: if it held what is kept, a device
    # that nobody else refers to would never be collected.
    kept: deque[Any] = deque()
    device._kept = kept
    return StreamHandle(core, value, not known, weakref.proxy(kept))


# One C function for all host functions, alive as long as the process: C gets its address and a number.
_tokens = itertools.count(1)
_host_functions: dict[int, tuple[Callable[..., object], tuple[Any, ...], StreamHandle]] = {}


def _run_host_function(token: int) -> None:
    function, args, stream = _host_functions.pop(token, (None, (), None))
    if function is None or stream is None:
        return
    stream.tokens.discard(token)
    try:
        function(*args)
    except BaseException as error:  # C knows no exceptions; the next wait raises it
        stream.host_errors.append(error)


CALLBACK_CODES.add(_run_host_function.__code__)
_host_function = types.aclrtHostFunc(_run_host_function)


class Event(Closeable):
    """A mark in a stream: it can be waited for, asked, and, subtracted from another one, gives the time between them.

    Made by `Device.create_event` or `Stream.record`.
    """

    def __init__(self, device: Device, handle: Handle, timing: bool, owner: object = None) -> None:
        #: the device it is on
        self.device = device
        #: whether it notes the time
        self.timing = timing
        self._handle = handle
        self._owner = owner
        #: the stream and how far it was, at the last record
        self._recorded: Optional[tuple[Optional[StreamHandle], int]] = None
        handle.own(self)

    @classmethod
    def _create(cls, device: Device, timing: bool) -> Event:
        core = device._handle
        core.get()
        flags = constants.ACL_EVENT_SYNC | (constants.ACL_EVENT_TIME_LINE if timing else 0)
        with core.current():
            value = new_event(core, flags)
        handle = Handle(f"event of device {device.id}", value, core.release("aclrtDestroyEvent"), core, EVENT)
        return cls(device, handle, timing)

    @classmethod
    def borrow(
        cls, address: int, *, device: Optional[Device] = None, owner: object = None, timing: bool = True
    ) -> Event:
        """An event that somebody else made, recorded and will destroy; see `Stream.borrow`."""
        device = open_device(device)
        device._handle.get()
        value = types.aclrtEvent(checked_address(address, "event"))
        event = cls(device, Handle(f"event of device {device.id}", value, None, device._handle, EVENT), timing, owner)
        event._recorded = (None, 0)
        return event

    def __repr__(self) -> str:
        state = "closed" if self.closed else "recorded" if self._recorded else "not recorded"
        return f"<Event of device {self.device.id}, {state}>"

    @property
    def _as_parameter_(self) -> types.aclrtEvent:
        handle: types.aclrtEvent = self._handle.get()
        return handle

    @property
    def address(self) -> int:
        """The aclrtEvent as a number, for other libraries."""
        return self._handle.get().value or 0

    def close(self) -> None:
        """Destroy it. Idempotent; does not wait. aclrtDestroyEvent."""
        self._handle.close()

    @property
    def done(self) -> bool:
        """Whether the stream has passed it; False for an event that was not recorded. aclrtQueryEventStatus."""
        ptr = self._handle.get()
        if self._recorded is None:
            return False
        recorded = self._recorded
        status = ctypes.c_uint32()
        self.device._handle.direct("aclrtQueryEventStatus", ptr, status)
        if status.value != constants.ACL_EVENT_RECORDED_STATUS_COMPLETE:
            return False
        self._passed(recorded)
        return True

    def synchronize(self, timeout: Optional[float] = None) -> None:
        """Wait until the stream has passed the event.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits without an end, 0 asks without waiting.

        Raises
        ------
        AclTimeoutError
            When the stream does not get there in time.
        AclEventError
            When the event was not recorded.

        Notes
        -----
        aclrtSynchronizeEvent, aclrtSynchronizeEventWithTimeout, aclrtQueryEventStatus.
        """
        ptr = self._handle.get()
        recorded = self._must_be_recorded()
        core = self.device._handle
        limit = None if timeout is None else milliseconds(timeout)
        if limit == 0:
            if not self.done:
                raise AclTimeoutError(
                    constants.ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "aclrtQueryEventStatus", "the event is not reached"
                )
        else:
            try:
                if limit is None:
                    core.direct("aclrtSynchronizeEvent", ptr)
                else:
                    core.direct("aclrtSynchronizeEventWithTimeout", ptr, limit)
            except BaseException as error:
                if recorded[0] is not None:
                    recorded[0].hung |= broken_off(error)
                raise
        self._passed(recorded)

    def __sub__(self, earlier: Event) -> float:
        """Milliseconds from another event to this one; both must be done. aclrtEventElapsedTime."""
        if not isinstance(earlier, Event):
            return NotImplemented
        same_device("event", self.device, earlier, Event)
        for event in (self, earlier):
            event._must_be_recorded()
            if not event.timing:
                raise AclEventError(None, "aclrtEventElapsedTime", "the event was made with timing=False")
        elapsed = ctypes.c_float()
        self.device._handle.call("aclrtEventElapsedTime", elapsed, earlier._handle.get(), self._handle.get())
        return elapsed.value

    def _must_be_recorded(self) -> tuple[Optional[StreamHandle], int]:
        self._handle.get()
        if self._recorded is None:
            raise AclEventError(None, "aclrtRecordEvent", "the event was not recorded: call stream.record(event) first")
        return self._recorded

    def _passed(self, recorded: tuple[Optional[StreamHandle], int]) -> None:
        stream, position = recorded
        if stream is not None:
            stream.passed(position)


def new_event(device: DeviceHandle, flags: int) -> types.aclrtEvent:
    """An event in the current context. The Ex kind can be recorded again and again."""
    value = types.aclrtEvent()
    if device.api.has("aclrtCreateEventExWithFlag"):
        device.api.aclrtCreateEventExWithFlag(value, flags)
    else:
        device.api.aclrtCreateEventWithFlag(value, flags)
    return value
