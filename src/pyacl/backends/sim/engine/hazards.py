"""The hazard checker: accesses to memory that nothing orders, and other mistakes that hardware hides.

It keeps vector clocks. Every stream is a track (a stream within a model too), and the host is one: its threads order
themselves by means that nobody sees from here (locks, queues, joins), so their calls count as ordered the way they
happened. Work on a stream comes after what is before it there, after what the host knew when it was submitted, and
after the records and notifies that its stream has waited for. The host knows what it has waited for. Two accesses to
the same bytes, one of them a write, are a hazard if neither comes before the other, whatever the order they ran in.

Accesses of the host are compared when they happen, those of a stream when its work runs: then a kernel shows which
bytes it really touches, where its declaration only says "to the end of the allocation" (tracking.py). So that a hazard
shows at the call of the host that completes it, work that may be in its way is run first when hazards are raised; with
warnings the program runs as it would without the checker.

What comes before everything that can still come is forgotten at each wait that leaves nothing open, and what one store
remembers is bounded: the cost of an operation does not grow with the length of the program.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from . import findings, pinned, places
from .callbacks import HostFunction, ReportedCallback
from .clocks import ARGUMENTS, ATOMIC, FREE, MOST_CELLS, Clock, Conflict, Touch, Track, join
from .event import EXTERNAL, SYNC, EventRecord, EventWait
from .findings import Hazard, HazardError, HazardWarning, Party
from .kernels import DeviceArray, KernelFault
from .launch import KernelLaunch
from .memory import LOWEST, WINDOW_END, Block, Memory
from .mempool import GiveBack
from .models import Branch, Jump, Lane, Mark, MarkWait, Model, ModelRun, OutsideWait
from .notify import NotifyRecord, NotifyWait
from .operation import NO_ACCESS, Access, Operation
from .pinned import Watch, Watches
from .prepared import Preparations
from .shadows import MOST_RANGES, Shadow, Shadows, Span
from .tracking import Used, tracked
from .transfer import Copy, CopyIndirect, Put, ValueWait

if TYPE_CHECKING:
    from .arguments import Arguments
    from .event import Event
    from .machine import Machine
    from .program import Function
    from .stream import Stream

#: hazards that are remembered
MOST_FOUND = 1000
_MANY = 64  # tracks in a clock, from which on it pays to look for dead ones
_MOST_ENDED = 64  # tracks that are gone and remembered, because older work has not run yet
_WORDS = 1024  # bytes of arguments in which addresses are looked for


class Trace:
    """What is known of one operation.

    Attributes
    ----------
    view, host
        What the host knew when the operation was submitted, and how much the host itself had done.
    clock
        That of its track while it runs; a `snapshot` of it for those who wait for the operation.
    spans
        Where it will touch memory.
    told
        Calls that it was reported with already.
    used
        What a kernel has touched, by store; `wrap` makes its arguments take note.
    """

    __slots__ = (
        *("serial", "view", "host", "joins", "track", "number", "clock", "snapshot"),
        *("spans", "told", "watches", "used", "wrap"),
    )

    def __init__(self, serial: int, view: Clock, host: int) -> None:
        self.serial = serial
        self.view = view
        self.host = host
        self.joins: Clock | None = None
        self.track: Track | None = None
        self.number = 0
        self.clock: Clock = view
        self.snapshot: Clock | None = None
        self.spans: list[Span] | None = None
        self.told: set[int] | None = None
        self.watches: list[Watch] | None = None
        self.used: dict[int, Used] | None = None
        self.wrap: Callable[[list[Any]], list[Any]] | None = None


class _Running:
    """A run of a model, with the clocks of its streams; those of the models of condition tasks are among them."""

    __slots__ = ("model", "serial", "clocks")

    def __init__(self, model: Model, serial: int) -> None:
        self.model = model
        self.serial = serial
        self.clocks: dict[Lane, Clock] = {}


class Hazards:
    """The checker of one machine. All functions are called with the engine lock held."""

    def __init__(self, machine: Machine, found: list[Hazard]) -> None:
        self.machine = machine
        self.memory = machine.area(Memory)
        self.mode = "raise"
        self.found = found
        self.shadows = Shadows(self.memory)
        self.watches = Watches()
        self.preparations = Preparations()
        self.host = Track("the host")
        self.view: Clock = {}  # what the host knows of the streams; replaced, never changed
        self.serial = 0  # calls of the program
        self.epoch = 0  # what was touched in an earlier one comes before everything that can still come
        self._ahead: set[Track] = set()  # tracks that have touched something that the host does not know of
        self._ended: list[tuple[int, Track]] = []  # tracks that are gone, and how many calls there were by then
        self._models: dict[Stream, _Running] = {}  # by the stream they run on
        self._warned: dict[Any, Any] = {}
        self._expecting: dict[type, Callable[[Any, Trace], list[Span]]] = {
            KernelLaunch: self._spans_of_kernel,
            ModelRun: self._spans_of_model,
            ValueWait: lambda operation, trace: [],
        }
        self._starting: dict[type, Callable[[Any, Trace], None]] = {
            KernelLaunch: self._start_kernel,
            ModelRun: self._start_model,
            EventRecord: self._start_record,
            Mark: self._start_record,
            EventWait: self._start_wait,
            NotifyRecord: self._start_notify_record,
            NotifyWait: self._start_notify_wait,
            ValueWait: self._start_value_wait,
            HostFunction: self._start_callback,
            ReportedCallback: self._start_callback,
            CopyIndirect: self._start_indirect,
        }

    def attach(self) -> None:
        """Begin to look. What happened before is not held against the program."""
        self.epoch += 1
        for block in (*self.memory.blocks, *self.memory.pinned):
            self.shadows.of(block).known = None
        self.memory.on_access = self.host_access
        self.memory.on_freeing = self.freeing
        self.machine.hazards = self

    def detach(self) -> None:
        self.memory.on_access = self.memory.on_freeing = None
        self.machine.hazards = None

    # ---- work is submitted -----------------------------------------------------------------------------------

    def submitted(self, stream: Stream, operation: Operation) -> None:
        """An operation is queued on a stream."""
        self.serial += 1
        trace = operation.trace = Trace(self.serial, self.view, self.host.count)
        track: Track = stream.track or self._track(stream)
        trace.joins, track.due = track.due, None
        if self.watches:
            self.watches.look(operation.place)
        expecting = self._expecting.get(operation.__class__)
        if expecting is not None:
            trace.spans = expecting(operation, trace)
        elif operation.access is not NO_ACCESS:
            trace.spans = self.shadows.spans(operation.access)
        else:
            return
        for shadow, low, high, _, write, exact in trace.spans:
            shadow.expect(operation)
            if shadow.of_host and exact:
                watch = Watch(operation, shadow, low, high, write)
                trace.watches = trace.watches or []
                trace.watches.append(watch)
                self.watches.add(track, operation.number, watch)

    def _track(self, stream: Stream) -> Track:
        made: Track = Track(f"stream {stream.number} of device {stream.context.device.index}")
        stream.track = made
        return made

    def _spans_of_kernel(self, operation: KernelLaunch, trace: Trace) -> list[Span]:
        """Where the arguments lie, and from each pointer to the end of what it points into."""
        emulation, data = operation.emulation, operation.data
        spans: list[Span] = []
        if emulation is None:
            return spans
        if data is None:
            address, size = operation.source
            spans = [(*spot, False, True) for spot in self.shadows.find(address, size)]
            data = self._peek(address, size)  # as it is by now; copies to it may be queued
        if operation.function.sync_slot:
            data = data[8:]
        for kind, address in emulation.pointers(data):
            block = self.memory.find(address)
            if block is not None:
                shadow = self.shadows.of(block)
                low = address - block.base + block.offset
                high = block.offset + min(block.requested, block.size)
                if low < high:
                    spans.append((shadow, low, high, block, kind != "In", False))
        return spans

    def _peek(self, address: int, size: int) -> bytes:
        try:
            return self.memory.read(address, size)
        except RuntimeError:
            return b""

    def _spans_of_model(self, operation: ModelRun, trace: Trace) -> list[Span]:
        """What its operations declare; the pinned memory that its copies read is watched from now on."""
        spans: list[Span] = []
        assert operation.stream is not None
        for lane in operation.run.model.lanes.values():
            for task in lane.tasks:
                for shadow, low, high, block, write, _ in self.shadows.spans(task.access):
                    spans.append((shadow, low, high, block, write, False))
                    if shadow.of_host and not write and not isinstance(task, KernelLaunch):
                        watch = Watch(task, shadow, low, high, write)
                        watch.seen = operation.place
                        self.watches.add(operation.stream.track, operation.number, watch)
        return spans

    # ---- work runs -------------------------------------------------------------------------------------------

    def starting(self, operation: Operation) -> None:
        """An operation of a stream begins."""
        stream = operation.stream
        assert stream is not None
        track: Track = stream.track or self._track(stream)
        trace: Trace = operation.trace or self._late(operation)
        clock = track.clock
        if trace.view is not track.seen:
            join(clock, trace.view)
            track.seen = trace.view
            _bury(clock)
        if trace.host > clock.get(self.host, 0):
            clock[self.host] = trace.host
        if trace.joins is not None:
            join(clock, trace.joins)
        track.count = clock[track] = operation.number
        self._start(operation, trace, track, operation.number, clock)

    def _late(self, operation: Operation) -> Trace:
        """An operation that was queued before the checker was there."""
        trace = operation.trace = Trace(self.serial, self.view, self.host.count)
        return trace

    def _start(self, operation: Operation, trace: Trace, track: Track, number: int, clock: Clock) -> None:
        trace.track, trace.number, trace.clock = track, number, clock
        start = self._starting.get(operation.__class__)
        if start is not None:
            start(operation, trace)
            return
        access = operation.access
        if access is NO_ACCESS:
            return
        if trace.spans is None:
            trace.spans = self.shadows.spans(access)
        for watch in trace.watches or ():
            if watch.live and watch.changed():
                self._pinned_changed(watch, places.caller())
        self._touch_all(operation, trace, trace.spans)
        self.shadows.initialize(access, operation.__class__ is Copy)

    def _touch_all(self, operation: Operation, trace: Trace, spans: Iterable[Span]) -> None:
        """An operation touches exactly these bytes."""
        assert trace.track is not None
        touch = self._touch(operation, trace)
        self._ahead.add(trace.track)
        for shadow, low, high, block, write, _ in spans:
            conflict = self._access(shadow, low, high, touch, write, trace.clock)
            if conflict is not None:
                self._conflict(touch, write, conflict, block, trace)
            if write and shadow.watches:
                pinned.overwritten(shadow, low, high, trace.watches)

    def _touch(self, operation: Operation, trace: Trace, role: str = "") -> Touch:
        """An operation, as it stands in histories and reports."""
        name = operation.name
        if isinstance(operation, KernelLaunch):
            name = f"{operation.function.name} ({name})"
        elif _sets_a_word(operation):
            role = ATOMIC
        elif isinstance(operation, GiveBack):
            role = FREE
        track = trace.track
        if track is None:
            assert operation.stream is not None
            track = operation.stream.track or self._track(operation.stream)
        return Touch(track, trace.number, name, operation.place, trace.serial, role)

    def _access(self, shadow: Shadow, low: int, high: int, touch: Touch, write: bool, clock: Clock) -> Conflict | None:
        history = shadow.history
        if shadow.epoch != self.epoch:
            shadow.epoch = self.epoch
            history.clear()
        elif len(history.lows) > MOST_CELLS:
            history.trim(self.view)
        return history.access(low, high, touch, write, clock)

    def ran(self, operation: Operation) -> None:
        """The function of an operation has returned. (What ends later than that touches no memory.)"""
        trace: Trace | None = operation.trace
        if trace is None:
            return
        if trace.used is not None:
            self._commit(operation, trace)
        elif trace.watches is not None:
            for watch in trace.watches:
                if watch.live and watch.write:
                    watch.take()
        elif isinstance(operation, ModelRun):
            self._model_ran(operation, trace)

    def failed(self, operation: Operation, failure: BaseException) -> BaseException | None:
        """The function of an operation has raised; returns what is to be raised at once instead."""
        if isinstance(failure.__cause__, KernelFault):
            self._fault(operation, failure.__cause__)
        try:
            self.ran(operation)
        except HazardError as error:
            error.__cause__ = failure
            return error
        return None

    def finished(self, operation: Operation) -> None:
        """An operation of a stream is over."""
        trace: Trace = operation.trace
        for span in trace.spans or ():
            span[0].pending.pop(operation, None)
        trace.spans = None
        if isinstance(operation, (HostFunction, ReportedCallback)):
            # what the function did comes before what follows on the stream
            join(trace.clock, self.view)
            trace.clock[self.host] = self.host.count

    # ---- kernels ---------------------------------------------------------------------------------------------

    def _start_kernel(self, operation: KernelLaunch, trace: Trace) -> None:
        data, source = operation.data, operation.source
        if operation.emulation is None:
            self._unknown_kernel(self._peek(*source) if data is None else data)
            return
        if data is None:
            touch = self._touch(operation, trace, ARGUMENTS)
            for shadow, low, high, block in self.shadows.find(*source):
                conflict = self._access(shadow, low, high, touch, False, trace.clock)
                if conflict is not None:
                    self._conflict(touch, False, conflict, block, trace)
        trace.used = {}
        code = getattr(operation.emulation.function, "__code__", None)
        trace.wrap = lambda arguments: self._wrap(arguments, trace, code)
        assert trace.track is not None
        self._ahead.add(trace.track)

    def _unknown_kernel(self, data: bytes) -> None:
        """A kernel that nobody registered, and that is skipped, may have written to whatever it is given."""
        for at in range(0, min(len(data), _WORDS) - 7, 8):
            address = int.from_bytes(data[at : at + 8], "little")
            block = self.memory.find(address) if LOWEST <= address < WINDOW_END else None
            if block is not None:
                self.shadows.of(block).know(block.offset, block.offset + block.size)

    def _wrap(self, arguments: list[Any], trace: Trace, code: Any) -> list[Any]:
        """The arguments of a kernel function, as arrays that note what is done with them. Without the lock."""
        assert trace.used is not None
        found = []
        for value in arguments:
            if isinstance(value, DeviceArray) and value.block is not None:
                store = value.block.contents()
                used = trace.used.get(id(store))
                if used is None:
                    with self.machine.lock:
                        known = self.shadows.of(value.block).known
                        if known is not None:
                            known = None if known.edges == [0, store.size] else known.copy()
                    used = trace.used[id(store)] = Used(value.block, store, known, code)
                value = tracked(value, used)
            found.append(value)
        return found

    def _commit(self, operation: Operation, trace: Trace) -> None:
        """What a kernel has touched is known."""
        assert trace.used is not None
        touch = self._touch(operation, trace)
        found: list[Callable[[], None]] = []
        for used in trace.used.values():
            shadow: Shadow = used.store.shadow
            for write, ranges in ((False, used.reads), (True, used.writes)):
                for low, high in list(ranges)[:MOST_RANGES]:
                    conflict = self._access(shadow, low, high, touch, write, trace.clock)
                    if conflict is not None:
                        found.append(_later(self._conflict, touch, write, conflict, used.block, trace))
                    if write and shadow.watches:
                        pinned.overwritten(shadow, low, high, None)
            # a function that writes in a way that nobody sees has written somewhere
            for low, high in used.writes or used.writable:
                shadow.know(low, high)
            if used.missing:
                found.append(_later(self._uninitialized, touch, used))
        trace.used = trace.wrap = None
        for report in found:
            report()

    def _uninitialized(self, touch: Touch, used: Used) -> None:
        low, high, line = used.missing[0]
        reads = self._party(touch, False)
        for operation in used.store.shadow.latest():
            trace: Trace = operation.trace
            if operation.done or operation.dropped or trace.serial >= touch.serial:
                continue
            for shadow, start, end, block, write, _ in trace.spans or ():
                if shadow.store is used.store and write and start < high and low < end:
                    # it will be written, only that the kernel did not wait for it
                    _tell(trace, touch.serial)
                    writes = self._party(self._touch(operation, trace), True)
                    self._report(findings.UNORDERED, writes, reads, block, max(low, start), min(high, end))
                    return
        file = getattr(used.code, "co_filename", "")
        detail = f"the kernel function reads it at {file}:{line}" if line else ""
        self._report(findings.UNINITIALIZED_READ, _maker(used.block), reads, used.block, low, high, detail=detail)

    def _fault(self, operation: Operation, fault: KernelFault) -> None:
        """A kernel broke for its memory. The wait raises the exception of its core, as on hardware; here it is noted
        where memory was too short or freed. (A pointer that never was one is no hazard.)"""
        touch = self._touch(operation, operation.trace)
        gone = self.memory.freed(fault.address)
        if gone is not None:
            end = Party(_FREES.get(gone.kind, "aclrtFree"), gone.gone, "frees it", self.host.name)
            user = Party(touch.call, touch.place, "uses it", touch.track.name)
            self._note(self._hazard(findings.FREED_IN_USE, end, user, gone, 0, gone.size))
            return
        starts = [start for start, _ in (*operation.access.reads, *operation.access.writes) if start < fault.address]
        block = self.memory.find(max(starts)) if starts else None
        if block is not None:
            user = Party(touch.call, touch.place, "goes beyond it", touch.track.name)
            low = fault.address - block.base + block.offset
            self._note(self._hazard(findings.OUT_OF_BOUNDS, _maker(block), user, block, low, low + 1, detail=fault.why))

    # ---- models ----------------------------------------------------------------------------------------------

    def starting_in(self, lane: Lane, operation: Operation) -> None:
        """An operation of a model begins, in a run of it."""
        stream = operation.stream
        running = self._models.get(stream) if stream is not None else None
        if running is None:
            return
        track: Track | None = lane.track
        if track is None:
            track = lane.track = Track(f"stream {lane.stream.number} of {lane.model!r}")
        clock = self._clock_in(lane, stream)
        operation.trace = Trace(running.serial, self.view, 0)
        track.count += 1
        clock[track] = track.count
        self._start(operation, operation.trace, track, track.count, clock)

    def _clock_in(self, lane: Lane, stream: Any) -> Clock:
        running = self._models[stream]
        clocks = running.clocks
        if lane not in clocks:
            clocks[lane] = dict(stream.track.clock)
            if lane.model is not running.model:  # of a condition task: it begins behind what has been done so far
                _merge(clocks, (lane,))
        return clocks[lane]

    def _start_model(self, operation: ModelRun, trace: Trace) -> None:
        assert operation.stream is not None
        if operation.run.trace is None:
            operation.run.trace = trace
            self._models[operation.stream] = _Running(operation.run.model, trace.serial)

    def _model_ran(self, operation: ModelRun, trace: Trace) -> None:
        stream = operation.stream
        assert stream is not None
        rest = stream.pending[1] if len(stream.pending) > 1 else None
        if not isinstance(rest, ModelRun) or rest.run is not operation.run:
            running = self._models.pop(stream, None)
            for lane, clock in running.clocks.items() if running is not None else ():
                join(trace.clock, clock)
                if lane.track is not None:
                    join(lane.track.clock, clock)
                    _bury(lane.track.clock)
            return
        # it goes on when something outside has happened
        after = rest.trace = Trace(trace.serial, trace.view, trace.host)
        after.spans, after.told = trace.spans, trace.told
        for span in after.spans or ():
            span[0].expect(rest)

    def through(self, lane: Lane, original: Operation, operation: Operation) -> None:
        """A run of a model has passed an operation; `operation` is the copy that ran."""
        running = self._models.get(operation.stream) if operation.stream is not None else None
        if running is None:
            return
        clock = self._clock_in(lane, operation.stream)
        if isinstance(original, (Mark, EventRecord)):
            original.trace = operation.trace  # for those who wait for it within the model
        elif isinstance(original, MarkWait):
            self._after(clock, original.mark)
        elif isinstance(original, OutsideWait):
            self._after(clock, original.event.last)
        elif isinstance(original, (Jump, Branch)):
            _merge(running.clocks, lane.model.lanes.values())

    def model_ended(self, model: Model) -> None:
        """A model is destroyed. A captured one was waited for while it ran."""
        known: Clock = {}
        for lane in model.lanes.values():
            if lane.track is not None:
                join(known, lane.track.clock)
                self._ended.append((self.serial, lane.track))
        if model.captured:
            self.host_knows(known)
        else:
            self._retire()

    # ---- what orders streams ---------------------------------------------------------------------------------

    def _after(self, clock: Clock, record: Operation | None) -> None:
        """`clock` comes after the record of an event."""
        if record is not None and record.trace is not None and record.trace.snapshot is not None:
            join(clock, record.trace.snapshot)

    def _start_record(self, operation: Operation, trace: Trace) -> None:
        trace.snapshot = dict(trace.clock)

    def _start_wait(self, operation: EventWait, trace: Trace) -> None:
        self._after(trace.clock, operation.record)

    def _start_notify_record(self, operation: NotifyRecord, trace: Trace) -> None:
        clock: Clock = dict(trace.clock)
        join(clock, operation.notify.clock or {})
        _bury(clock)
        operation.notify.clock = clock

    def _start_notify_wait(self, operation: NotifyWait, trace: Trace) -> None:
        join(trace.clock, operation.notify.clock or {})

    def _start_value_wait(self, operation: ValueWait, trace: Trace) -> None:
        """Whoever wrote the word that is waited for comes before."""
        for shadow, low, high, _ in self.shadows.find(operation.cell.address, 8):
            if shadow.epoch == self.epoch:
                for touch in shadow.history.writers(low, high):
                    join(trace.clock, self.view if touch.track is self.host else touch.track.clock)
                    trace.clock[touch.track] = max(trace.clock.get(touch.track, 0), touch.count)

    def _start_callback(self, operation: Operation, trace: Trace) -> None:
        """A function of the program runs: it may tell other threads that the stream has come so far."""
        self.host_knows(trace.clock)

    def _start_indirect(self, operation: CopyIndirect, trace: Trace) -> None:
        dst, src, nbytes = operation.read()
        copy = Access(((src, nbytes),), ((dst, nbytes),))
        self._touch_all(operation, trace, self.shadows.spans(operation.access) + self.shadows.spans(copy))
        self.shadows.initialize(copy, True)

    def waits(self, event: Event, stream: Stream, name: str) -> None:
        """A stream is about to wait for an event, perhaps without an operation of its own."""
        last = event.last
        track: Track = stream.track or self._track(stream)
        if last is not None:
            if last.done and last.trace is not None and last.trace.snapshot is not None:
                track.due = dict(track.due or {})
                join(track.due, last.trace.snapshot)
            return
        refused = not event.new_mode and not event.flags & (SYNC | EXTERNAL)
        if not refused and stream.recorder is None and stream.divert is None:
            made = Party("the event", event.place, "is made", self.host.name)
            self._report(findings.WAITED_BEFORE_RECORD, made, Party(name, places.caller(), "waits for it", track.name))

    # ---- the host touches memory -----------------------------------------------------------------------------

    def host_access(self, call: str, access: Access) -> None:
        """The host reads or writes memory itself, now."""
        place = places.caller()
        if self.watches:
            self.watches.look(place)
        self.serial += 1
        self.host.count += 1
        touch = Touch(self.host, self.host.count, call, place, self.serial)
        for shadow, low, high, block, write, _ in self.shadows.spans(access):
            if shadow.pending:
                self._meet_pending(shadow, low, high, touch, write, block)
            conflict = self._access(shadow, low, high, touch, write, self.view)
            if conflict is not None:
                self._conflict(touch, write, conflict, block, None)
            if write and shadow.watches:
                pinned.overwritten(shadow, low, high, None)
        self.shadows.initialize(access, True)

    def _meet_pending(self, shadow: Shadow, low: int, high: int, touch: Touch, write: bool, block: Any) -> None:
        """What is still to run cannot have been waited for."""
        for operation in shadow.latest():
            trace: Trace = operation.trace
            hits = [
                span
                for span in trace.spans or ()
                if span[0] is shadow and span[1] < high and low < span[2] and (write or span[4])
            ]
            if not hits or operation.done or operation.dropped or self._may_be_in_callback(operation):
                continue
            exact = next((span for span in hits if span[5]), None)
            if exact is not None:
                _tell(trace, touch.serial)
                other = self._touch(operation, trace, ARGUMENTS if isinstance(operation, KernelLaunch) else "")
                found = Conflict(other, exact[4], max(low, exact[1]), min(high, exact[2]))
                self._conflict(touch, write, found, block, None)
            elif self.mode == "raise":
                self._run(operation)

    def _may_be_in_callback(self, operation: Operation) -> bool:
        """Is the calling thread perhaps in the callback that this operation comes after?"""
        stream = operation.stream
        if stream is None or not stream.running or not stream.pending:
            return False
        return isinstance(stream.pending[0], (HostFunction, ReportedCallback))

    def _run(self, operation: Operation) -> None:
        """Run an operation, and what it needs, as far as that is possible now."""
        scheduler = self.machine.scheduler
        if operation.stream is None or threading.get_ident() in scheduler.library_threads:
            return
        while not operation.done and not operation.dropped:
            stream = scheduler.choose([operation.stream])
            if stream is None:
                return
            scheduler.run(stream)

    def freeing(self, block: Block, call: str) -> None:
        """The host is about to give memory back."""
        shadow: Shadow | None = block.store.shadow if block.store is not None else None
        if shadow is None or self.machine.devices[block.device].lost:  # nobody can wait for a device that is gone
            return
        self.serial += 1
        self.host.count += 1
        free = Party(call, places.caller(), "frees it", self.host.name)
        low, high = block.offset, block.offset + block.size
        for operation in shadow.latest():
            trace: Trace = operation.trace
            if operation.done or operation.dropped or self._may_be_in_callback(operation):
                continue
            for used, start, end, _, write, _ in trace.spans or ():
                if used is shadow and start < high and low < end:
                    user = self._party(self._touch(operation, trace), write)
                    self._report(findings.FREED_IN_USE, user, free, block, start, end)
                    return
        if shadow.epoch == self.epoch:
            conflict = shadow.history.unordered(low, high, self.host, self.view)
            if conflict is not None:
                user = self._party(conflict.other, conflict.other_writes)
                self._report(findings.FREED_IN_USE, user, free, block, conflict.low, conflict.high)

    # ---- the host waits --------------------------------------------------------------------------------------

    def host_waited(self, stream: Stream, number: int | None = None) -> None:
        """The host has waited for a stream: for everything there, or up to the operation of a number."""
        track: Track | None = stream.track
        if track is None:
            return
        if number is None or number > track.count:
            number = track.count
        if self.view.get(track, 0) < number or track.due is not None:
            clock = dict(track.clock)
            clock[track] = number
            join(clock, track.due or {})
            self.host_knows(clock)
        else:
            self._forget()

    def host_saw(self, record: EventRecord) -> None:
        """The host knows that a record was passed."""
        if record.trace is not None and record.trace.snapshot is not None:
            self.host_knows(record.trace.snapshot)

    def host_knows(self, clock: Clock) -> None:
        """The host comes after `clock`."""
        view = dict(self.view)
        join(view, clock)
        view.pop(self.host, None)
        _bury(view)
        self.view = view
        changed = self.watches.release(view) if self.watches else ()
        self._forget()
        for watch in changed:
            self._pinned_changed(watch, places.caller())

    def _forget(self) -> None:
        """Forget what was touched, if everything that can come comes after it."""
        view = self.view
        self._retire()
        if self._ahead:
            self._ahead = {track for track in self._ahead if track.count > view.get(track, 0) and not track.dead}
        if not self._ahead and not self.machine.scheduler.active:
            self.epoch += 1

    def ended(self, stream: Stream) -> None:
        """A stream is destroyed; its work is done, or dropped."""
        track: Track | None = stream.track
        if track is not None:
            self.host_waited(stream)
            self._ended.append((self.serial, track))
            self._retire()
            self.watches.forget(track)
            self._models.pop(stream, None)

    def _retire(self) -> None:
        """Tracks that are gone are dead once the host knows of all that they did, and no older work is left to run:
        that would not come after it."""
        if not self._ended:
            return
        heads = (stream.pending[0].trace for stream in self.machine.scheduler.active if stream.pending)
        oldest = min((0 if trace is None else trace.serial for trace in heads), default=self.serial + 1)
        kept = []
        for serial, track in self._ended:
            if serial < oldest and self.view.get(track, 0) >= track.count:
                track.end()
            else:
                kept.append((serial, track))
        while len(kept) > _MOST_ENDED:
            kept.pop(0)[1].end()
        self._ended = kept

    # ---- other memory of the program -------------------------------------------------------------------------

    def _pinned_changed(self, watch: Watch, place: places.Place) -> None:
        watch.end()
        operation = watch.operation
        assert operation.stream is not None
        where = operation.stream.track or self._track(operation.stream)
        does = "writes it" if watch.write else "reads it"
        copy = Party(operation.name, operation.place, does, where.name)
        program = Party("the program", watch.noticed or place, "has changed it", self.host.name)
        detail = f"the change comes after {places.describe(watch.seen)} and before {places.describe(program.place)}"
        block = self.memory.find(watch.address)
        low = watch.low if block is not None else watch.address
        high = low + watch.high - watch.low
        self._report(findings.PINNED_CHANGED, copy, program, block, low, high, detail=detail)

    def arguments_made(self, arguments: Arguments) -> None:
        """A handle of arguments is initialised, in the buffer of the thread or in memory of the program."""
        self.preparations.made(arguments)

    def arguments_launched(self, arguments: Arguments, function: Function, call: str) -> None:
        """A launch takes its arguments from a handle."""
        found = self.preparations.launched(arguments, function)
        if found is not None:
            parties = [
                Party(f"aclrtKernelArgsInit of {made.name}", made.place, "prepares arguments there", self.host.name)
                for made in found
            ]
            place = places.describe(places.caller())
            detail = f"{call} of {function.name} at {place} gets what the second has written"
            self._report(findings.ARGUMENTS_REWRITTEN, parties[0], parties[1], detail=detail)

    # ---- reports ---------------------------------------------------------------------------------------------

    def _conflict(self, touch: Touch, write: bool, conflict: Conflict, block: Any, trace: Trace | None) -> None:
        """Two accesses that nothing orders; a hazard unless they are meant to meet."""
        other, roles = conflict.other, (touch.role, conflict.other.role)
        if ATOMIC in roles:
            if not write and touch.track is self.host:  # the host looks at a word that a stream sets
                self.host_knows(other.track.clock)
            return
        if trace is not None and trace.told is not None and other.serial in trace.told:
            return
        if FREE in roles:
            kind = findings.FREED_IN_USE
        elif ARGUMENTS in roles:
            kind = findings.ARGUMENTS_REWRITTEN
        elif self.host in (touch.track, other.track):
            kind = findings.NOT_WAITED_FOR
        else:
            kind = findings.UNORDERED
        mine, its = self._party(touch, write), self._party(other, conflict.other_writes)
        first, second = (its, mine) if other.serial <= touch.serial else (mine, its)
        self._report(kind, first, second, block, conflict.low, conflict.high)

    def _party(self, touch: Touch, write: bool) -> Party:
        does = "writes it" if write else "reads it"
        does = {ARGUMENTS: "reads its arguments there", FREE: "frees it"}.get(touch.role, does)
        return Party(touch.call, touch.place, does, touch.track.name)

    def _hazard(
        self,
        kind: str,
        first: Party,
        second: Party,
        block: Block | None = None,
        low: int = 0,
        high: int = 0,
        *,
        detail: str = "",
    ) -> Hazard:
        """`low` and `high` are offsets in the store of `block`, or addresses."""
        address = low if block is None else block.base - block.offset + low
        memory = "" if block is None else block.describe()
        return Hazard(kind, first, second, address, high - low, memory, detail)

    def _note(self, hazard: Hazard) -> None:
        """Remember a hazard, and warn."""
        self.found.append(hazard)
        del self.found[:-MOST_FOUND]
        if self.mode == "warn":
            file, line = places.caller() or hazard.second.place or ("<unknown>", 0)
            warnings.warn_explicit(HazardWarning(hazard), HazardWarning, file, line, registry=self._warned)

    def _report(self, *arguments: Any, detail: str = "") -> None:
        """A hazard was found; as for `_hazard`."""
        hazard = self._hazard(*arguments, detail=detail)
        self._note(hazard)
        if self.mode == "raise":
            raise HazardError(hazard)


_FREES = {"aclrtMallocHost": "aclrtFreeHost", "aclrtMemPoolMallocAsync": "aclrtMemPoolFreeAsync"}


def _maker(block: Block) -> Party:
    return Party(block.kind, block.place, "makes it")


def _sets_a_word(operation: Operation) -> bool:
    """Does it write a word that others look at until it is there?"""
    return operation.__class__ is Put and operation.name == "aclrtValueWrite"


def _tell(trace: Trace, serial: int) -> None:
    """It need not be reported again when the operation runs."""
    if trace.told is None:
        trace.told = set()
    trace.told.add(serial)


def _later(report: Callable[..., None], *arguments: Any) -> Callable[[], None]:
    return lambda: report(*arguments)


def _bury(clock: Clock) -> None:
    """Dead tracks come before everything anyway."""
    if len(clock) > _MANY:
        for track in [track for track in clock if track.dead]:
            del clock[track]


def _merge(clocks: dict[Lane, Clock], lanes: Iterable[Lane]) -> None:
    """These streams of a model go on behind what all of them have done."""
    merged: Clock = {}
    for clock in clocks.values():
        join(merged, clock)
    for lane in lanes:
        clocks[lane] = dict(merged)
