"""The hazard checker: accesses to memory that nothing orders, and other mistakes that hardware hides.

It keeps vector clocks. Every stream is a track (a stream within a model too), and the host is one: its threads order
themselves by means that nobody sees from here (locks, queues, joins), so their calls count as ordered the way they
happened. Work on a stream comes after what is before it there, after what the host knew when it was submitted, and
after the records and notifies that its stream has waited for. The host knows what it has waited for. Two accesses to
the same bytes, one of them a write, are a hazard if neither comes before the other, whatever the order they ran in.

Accesses of the host are compared when they happen, those of a stream when its work runs: then a kernel shows which
bytes it really touches, where its declaration only says "to the end of the allocation" (see tracking.py). So that a
hazard shows at the call of the host that completes it, work that may be in its way is run first when hazards are
raised; with warnings the program runs as it would without the checker.

What comes before everything that can still come is forgotten at each wait that leaves nothing open, and what one store
remembers is bounded: the cost of an operation does not grow with the length of the program.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from . import findings, places
from .callbacks import HostFunction, ReportedCallback
from .clocks import ARGUMENTS, ATOMIC, FREE, MOST_CELLS, Clock, Conflict, History, Touch, Track, join
from .event import EXTERNAL, EventRecord, EventWait
from .findings import Hazard, HazardError, HazardWarning, Party
from .kernels import DeviceArray, KernelFault
from .launch import KernelLaunch
from .memory import DEVICE, FREEABLE, HOST, LOWEST, MAPPING, WINDOW_END, Block, Memory, Store
from .mempool import KIND as POOL
from .mempool import GiveBack
from .models import Branch, Jump, Lane, Mark, MarkWait, Model, ModelRun, OutsideWait
from .notify import NotifyRecord, NotifyWait
from .operation import NO_ACCESS, Access, Operation
from .ranges import Ranges
from .tracking import Used, tracked
from .transfer import Copy, CopyIndirect, Put, ValueWait

if TYPE_CHECKING:
    from .arguments import Arguments
    from .event import Event
    from .machine import Machine
    from .program import Function
    from .stream import Stream

MOST_FOUND = 1000  # hazards that are remembered
MOST_RANGES = 1024  # ranges of one operation that are looked at: rows of a copy, pieces of a kernel's accesses
MOST_GAPS = 2048  # ranges of initialised bytes of an allocation, beyond which the gaps are given up
MOST_WATCHES = 256  # copies of one stream whose pinned memory is watched at a time
SNAPSHOT = 1 << 16  # bytes of pinned memory that are kept whole; of more, sums are
_END = 64  # bytes at either end that are looked at more often
_PENDING = 1024
_TRACKED = FREEABLE | {POOL, MAPPING}


class Shadow:
    """What the checker knows of the bytes of one store.

    Attributes
    ----------
    known : Ranges or None
        What is initialised; None: everything.
    pending : dict
        Operations that will touch it, as far as one can tell before they run.
    watches : list
        Pinned memory that a copy needs.
    """

    __slots__ = ("store", "history", "epoch", "known", "pending", "watches", "pinned")

    def __init__(self, store: Optional[Store], known: Ranges | None, pinned: bool) -> None:
        self.store = store
        self.history = History()
        self.epoch = 0
        self.known = known
        self.pending: dict[Operation, None] = {}
        self.watches: list[Watch] = []
        self.pinned = pinned


# shadow, first byte and end in its store, is it written, the allocation, is this exactly what will happen
Span = tuple[Shadow, int, int, bool, Optional[Block], bool]


class Trace:
    """What the checker knows of one operation."""

    __slots__ = (
        *("serial", "view", "host", "joins", "spans", "told", "track", "number", "clock"),
        *("snapshot", "touch", "watches", "used", "wrap"),
    )

    def __init__(self, serial: int, view: Clock, host: int) -> None:
        self.serial = serial
        self.view = view  # what the host knew when it was submitted,
        self.host = host  # and how much the host itself had done
        self.joins: list[Clock] | None = None
        self.spans: list[Span] | None = None
        self.told: set[int] | None = None  # what was reported against it already
        self.track: Track | None = None
        self.number = 0
        self.clock: Clock = {}
        self.snapshot: Clock | None = None  # of the clock, for those who wait for it
        self.touch: Touch | None = None
        self.watches: list[Watch] | None = None
        self.used: dict[int, Used] | None = None
        self.wrap: Callable[[list[Any]], list[Any]] | None = None


class Watch:
    """Pinned memory as it was when a copy was queued, or as the copy left it."""

    __slots__ = ("operation", "shadow", "low", "high", "write", "content", "ends", "seen", "noticed", "live")

    def __init__(self, operation: Operation, span: Span) -> None:
        self.operation = operation
        self.shadow, self.low, self.high, self.write = span[:4]
        self.seen: places.Place = operation.place  # it was unchanged then
        self.noticed: places.Place = None  # it was changed by then
        self.live = True
        self.take()

    def bytes(self) -> Any:
        assert self.shadow.store is not None
        return self.shadow.store.array[self.low : self.high]

    def take(self) -> None:
        content = self.bytes()
        self.content = _digest(content)
        self.ends = _ends(content)

    def changed(self) -> bool:
        return self.content != _digest(self.bytes())

    def end(self) -> None:
        if self.live:
            self.live = False
            self.shadow.watches.remove(self)


def _digest(content: Any) -> tuple[bytes, ...]:
    """Small memory itself; of large memory, sums over pages and over the bytes of the same place in all pages."""
    if len(content) <= SNAPSHOT:
        return (content.tobytes(),)
    whole = len(content) // 4096 * 4096
    pages = content[:whole].view(np.uint64).reshape(-1, 512)
    return pages.sum(1).tobytes(), pages.sum(0).tobytes(), content[whole:].tobytes()


def _ends(content: Any) -> bytes:
    ends: bytes = content[:_END].tobytes() + content[-_END:].tobytes()
    return ends


def _called(operation: Operation) -> str:
    """The call that queued it, with the kernel that it launches."""
    if isinstance(operation, KernelLaunch):
        return f"{operation.function.name} ({operation.name})"
    return operation.name


class _Prepared:
    """A handle of arguments as it was initialised."""

    __slots__ = ("arguments", "place", "before", "overlapped")

    def __init__(self, arguments: Arguments, place: places.Place, before: _Prepared | None) -> None:
        self.arguments = arguments
        self.place = place
        self.before = before  # what was prepared in the same memory and not launched
        self.overlapped: _Prepared | None = None  # what was prepared over it later


class Hazards:
    """The checker of one machine. All functions are called with the engine lock held."""

    def __init__(self, machine: Machine, found: list[Hazard]) -> None:
        self.machine = machine
        self.memory = machine.area(Memory)
        self.mode = "raise"
        self.found = found
        self.host = Track("the host")
        self.view: Clock = {}  # what the host knows; replaced, never changed
        self.serial = 0
        self.epoch = 0
        self.ahead: set[Track] = set()  # tracks that have done something that the host does not know of
        self.watched: dict[Track, deque[tuple[int, Watch]]] = {}
        self.recent: deque[Watch] = deque(maxlen=2)
        self.regions: dict[int, Shadow] = {}  # host memory that the program registered
        self.running: dict[Stream, dict[Lane, Clock]] = {}  # models, by the stream they run on
        self._outer: dict[Stream, Model] = {}
        self.prepared: dict[int, _Prepared] = {}
        self._warned: dict[Any, Any] = {}
        self._expecting: dict[type, Callable[[Any, Trace], None] | None] = {
            KernelLaunch: self._expect_kernel,
            ModelRun: self._expect_model,
            ValueWait: None,
            CopyIndirect: self._expect_indirect,
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

    # ---- on and off ------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Begin to look. What happened before is not held against the program."""
        self.epoch += 1
        for block in (*self.memory.blocks, *self.memory.pinned):
            self._shadow(block).known = None
        self.memory.on_access = self.host_access
        self.memory.on_freeing = self.freeing
        self.machine.hazards = self

    def detach(self) -> None:
        self.memory.on_access = None
        self.memory.on_freeing = None
        self.machine.hazards = None

    # ---- where memory is -------------------------------------------------------------------------------------

    def _shadow(self, block: Block) -> Shadow:
        store = block.store or block.contents()
        shadow: Shadow | None = store.shadow
        if shadow is None:
            # the host may have written to memory that it can reach
            fresh = block.location == DEVICE and block.kind in _TRACKED
            shadow = store.shadow = Shadow(store, Ranges() if fresh else None, block.location == HOST)
        return shadow

    def _find(self, address: int, nbytes: int) -> Iterable[tuple[Shadow, int, int, Block | None]]:
        """The stores in which a range of addresses lies; nothing for memory of the program that no device reaches."""
        block = self.memory.find(address)
        if block is None:
            return self._registered(address, nbytes)
        store = block.store or block.contents()
        shadow = store.shadow or self._shadow(block)
        low = address - block.base + block.offset
        if address + nbytes <= block.end:
            return ((shadow, low, low + nbytes, block),)
        found: list[tuple[Shadow, int, int, Block | None]] = []
        while block is not None and nbytes > 0:  # mappings side by side
            part = min(nbytes, block.end - address)
            low = address - block.base + block.offset
            found.append((self._shadow(block), low, low + part, block))
            address, nbytes = address + part, nbytes - part
            block = self.memory.find(address)
        return found

    def _registered(self, address: int, nbytes: int) -> Iterable[tuple[Shadow, int, int, Block | None]]:
        registered = self.memory.registered
        if not registered.contains(address):
            return ()
        for table in (registered.mapped, registered.pinned):
            for start, last in table.items():
                if start <= address <= last:
                    pointer = registered.pointers.get(start)
                    block = self.memory.blocks.at(pointer) if pointer is not None else None
                    shadow = self._shadow(block) if block is not None else self.regions.get(start)
                    if shadow is None or (shadow.store is not None and shadow.store.size != last + 1 - start):
                        store = Store(last + 1 - start, self.memory.host.view(start, last + 1 - start))
                        shadow = self.regions[start] = Shadow(store, None, True)
                    return ((shadow, address - start, min(address + nbytes, last + 1) - start, block),)
        return ()

    # ---- work on streams: submitted --------------------------------------------------------------------------

    def submitted(self, stream: Stream, operation: Operation) -> None:
        """An operation was queued."""
        self.serial += 1
        trace = operation.trace = Trace(self.serial, self.view, self.host.count)
        track = stream.track
        if track is None:
            track = self._track(stream)
        if track.due:
            trace.joins, track.due = track.due, []
        if self.recent:
            self._look(operation.place)
        kind = operation.__class__
        if kind in self._expecting:
            expect = self._expecting[kind]
            if expect is not None:
                expect(operation, trace)
        elif operation.access is not NO_ACCESS:
            trace.spans = self._spans(operation.access)
            self._expect(operation, trace)

    def _track(self, stream: Stream) -> Track:
        made = stream.track = Track(f"stream {stream.number} of device {stream.context.device.index}")
        return made

    def _spans(self, access: Access) -> list[Span]:
        return [
            (*place[:3], write, place[3], True)
            for write, ranges in ((False, access.reads), (True, access.writes))
            for address, nbytes in ranges[:MOST_RANGES]
            for place in self._find(address, nbytes)
        ]

    def _expect(self, operation: Operation, trace: Trace) -> None:
        """Note where an operation will come, so that the host is told when it does not wait for it."""
        for span in trace.spans or ():
            shadow = span[0]
            pending = shadow.pending
            pending[operation] = None
            if len(pending) % _PENDING == 0:
                for other in [other for other in pending if other.done or other.dropped]:
                    del pending[other]
            if shadow.pinned and span[5] and shadow.store is not None:
                self._watch(operation, trace, span)

    def _expect_kernel(self, operation: KernelLaunch, trace: Trace) -> None:
        emulation, data, spans = operation.emulation, operation.data, []
        if emulation is None:
            return
        if data is None:
            address, size = operation.source
            for place in self._find(address, size):
                spans.append((*place[:3], False, place[3], True))
            try:  # what the block holds by now; copies to it may be queued
                data = self.memory.read(address, size)
            except RuntimeError:
                data = b""
        if operation.function.sync_slot:
            data = data[8:]
        find = self.memory.find
        for kind, address in emulation.pointers(data):
            block = find(address)
            if block is not None:
                store = block.store or block.contents()
                shadow = store.shadow or self._shadow(block)
                low = address - block.base + block.offset
                high = block.offset + min(block.requested, block.size)
                if low < high:
                    spans.append((shadow, low, high, kind != "In", block, False))
        trace.spans = spans
        self._expect(operation, trace)

    def _expect_model(self, operation: ModelRun, trace: Trace) -> None:
        spans: list[Span] = []
        for lane in operation.run.model.lanes.values():
            for task in lane.tasks:
                for span in self._spans(task.access):
                    spans.append((*span[:5], False))
        trace.spans = spans
        self._expect(operation, trace)

    def _expect_indirect(self, operation: CopyIndirect, trace: Trace) -> None:
        trace.spans = self._spans(operation.access)
        self._expect(operation, trace)

    # ---- work on streams: run --------------------------------------------------------------------------------

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
            if len(clock) > 64:
                self._bury(clock)
        if trace.host > clock.get(self.host, 0):
            clock[self.host] = trace.host
        if trace.joins is not None:
            for other in trace.joins:
                join(clock, other)
        track.count = clock[track] = operation.number
        self._start(operation, trace, track, operation.number, clock)

    def _late(self, operation: Operation) -> Trace:
        """An operation that was queued before the checker was there, or the rest of a model's run."""
        run = operation.run if isinstance(operation, ModelRun) else None
        trace = operation.trace = Trace(self.serial, self.view, self.host.count)
        if run is not None and run.trace is not None:
            trace.view, trace.host, trace.serial = run.trace.view, run.trace.host, run.trace.serial
            trace.spans, trace.told = run.trace.spans, run.trace.told
            self._expect(operation, trace)
        return trace

    def starting_in(self, lane: Lane, operation: Operation) -> None:
        """An operation of a model begins, in a run of it."""
        stream = operation.stream
        assert stream is not None
        lanes = self.running.get(stream)
        if lanes is None:
            return
        track: Track = lane.track or self._lane(lane)
        clock = self._clock_in(lanes, lane, stream)
        trace = operation.trace = Trace(self.serial, self.view, 0)
        track.count += 1
        clock[track] = track.count
        self._start(operation, trace, track, track.count, clock)

    def _lane(self, lane: Lane) -> Track:
        made = lane.track = Track(f"stream {lane.stream.number} of {lane.model!r}")
        return made

    def _clock_in(self, lanes: dict[Lane, Clock], lane: Lane, stream: Stream) -> Clock:
        clock = lanes.get(lane)
        if clock is None:
            # the model of a condition task begins behind everything that has been done so far
            clock = lanes[lane] = dict(stream.track.clock)
            if lane.model is not self._outer.get(stream):
                for other in list(lanes.values()):
                    join(clock, other)
        return clock

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
            trace.spans = self._spans(access)
        if trace.watches is not None:
            for watch in trace.watches:
                if watch.live and watch.changed():
                    self._pinned_changed(watch, places.caller())
        role = ""
        if operation.__class__ is Put and operation.name == "aclrtValueWrite":
            role = ATOMIC
        elif operation.__class__ is GiveBack:
            role = FREE
        touch = self._touch(operation, trace, role)
        for shadow, low, high, write, block, _ in trace.spans:
            conflict = self._access(shadow, low, high, touch, write, clock)
            if conflict is not None:
                self._conflict(touch, write, conflict, block, trace)
            if write and shadow.watches:
                self._overwritten(shadow, low, high, trace)
        self._initialize(access, operation.__class__ is Copy)
        self.ahead.add(track)

    def _touch(self, operation: Operation, trace: Trace, role: str = "") -> Touch:
        assert trace.track is not None
        return Touch(trace.track, trace.number, _called(operation), operation.place, trace.serial, role)

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
        if trace.spans is not None:
            for span in trace.spans:
                span[0].pending.pop(operation, None)
        if trace.watches is not None:
            for watch in trace.watches:
                if watch.live and watch.write:
                    watch.take()
        if trace.used is not None:
            self._commit(operation, trace)
        elif isinstance(operation, ModelRun):
            self._model_ran(operation, trace)

    def failed(self, operation: Operation, failure: BaseException) -> BaseException | None:
        """The function of an operation has raised; returns what is to be raised at once instead."""
        try:
            self.ran(operation)
            fault = failure.__cause__
            if isinstance(fault, KernelFault):
                self._out_of_bounds(operation, fault)
        except HazardError as error:
            error.__cause__ = failure
            return error
        return None

    # ---- work on streams: kernels ----------------------------------------------------------------------------

    def _start_kernel(self, operation: KernelLaunch, trace: Trace) -> None:
        if operation.emulation is None:
            self._unknown_kernel(operation)
            return
        if operation.data is None:
            touch = self._touch(operation, trace, ARGUMENTS)
            for shadow, low, high, block in self._find(*operation.source):
                conflict = self._access(shadow, low, high, touch, False, trace.clock)
                if conflict is not None:
                    self._conflict(touch, False, conflict, block, trace)
        trace.used = {}
        code = getattr(operation.emulation.function, "__code__", None)
        trace.wrap = lambda arguments: self._wrap(arguments, trace, code)
        assert trace.track is not None
        self.ahead.add(trace.track)

    def _unknown_kernel(self, operation: KernelLaunch) -> None:
        """A kernel that nobody registered and that is skipped: what it is given may have been written by it."""
        data = operation.data or b""
        for at in range(0, min(len(data), 1024) - 7, 8):
            address = int.from_bytes(data[at : at + 8], "little")
            block = self.memory.find(address) if LOWEST <= address < WINDOW_END else None
            if block is not None:
                shadow = self._shadow(block)
                if shadow.known is not None:
                    shadow.known.add(block.offset, block.offset + block.size)

    def _wrap(self, arguments: list[Any], trace: Trace, code: Any) -> list[Any]:
        """The arguments of a kernel function, as arrays that note what is done with them."""
        assert trace.used is not None
        found = []
        for value in arguments:
            if isinstance(value, DeviceArray) and value.block is not None and value.block.store is not None:
                store = value.block.store
                used = trace.used.get(id(store))
                if used is None:
                    with self.machine.lock:
                        known = self._shadow(value.block).known
                        if known is not None:
                            known = None if known.edges == [0, store.size] else known.copy()
                    used = trace.used[id(store)] = Used(value.block, store, known, code)
                value = tracked(value, used)
                if value.flags.writeable:
                    low = value.__array_interface__["data"][0] - store.real
                    used.writable.add(low, low + value.nbytes)
            found.append(value)
        return found

    def _commit(self, operation: Operation, trace: Trace) -> None:
        """What a kernel has touched."""
        assert trace.used is not None
        touch = self._touch(operation, trace)
        first: HazardError | None = None
        for used in trace.used.values():
            shadow: Shadow = used.store.shadow
            for write, ranges in ((False, used.reads), (True, used.writes)):
                for low, high in list(ranges)[:MOST_RANGES]:
                    conflict = self._access(shadow, low, high, touch, write, trace.clock)
                    if conflict is not None:
                        first = first or self._caught(self._conflict, touch, write, conflict, used.block, trace)
                    if write and shadow.watches:
                        self._overwritten(shadow, low, high, trace)
            if shadow.known is not None:
                # a function that writes in a way that nobody sees has written somewhere
                for low, high in used.writes or used.writable:
                    self._known(shadow, low, high)
            for low, high, line in used.missing[:1]:
                first = first or self._caught(self._uninitialized, touch, used, low, high, line)
        trace.used = trace.wrap = None
        if first is not None:
            raise first

    def _caught(self, report: Callable[..., None], *arguments: Any) -> HazardError | None:
        try:
            report(*arguments)
        except HazardError as error:
            return error
        return None

    def _uninitialized(self, touch: Touch, used: Used, low: int, high: int, line: int) -> None:
        block = used.block
        for other in used.store.shadow.pending:  # it will be written, and the kernel did not wait
            trace: Trace = other.trace
            if other.done or other.dropped or trace.serial >= touch.serial:
                continue
            for span in trace.spans or ():
                if span[0].store is used.store and span[3] and span[1] < high and low < span[2]:
                    writer = self._expected(other, trace)
                    where = self._bytes(block, max(low, span[1]), min(high, span[2]))
                    mine = self._party(touch, False)
                    self._tell(trace, touch.serial)
                    self.report(findings.UNORDERED, self._party(writer, True), mine, *where)
                    return
        file = getattr(used.code, "co_filename", "")
        detail = f"the kernel function reads it at {file}:{line}" if line else ""
        made = Party(block.kind, block.place, "makes it")
        self.report(
            findings.UNINITIALIZED_READ, made, self._party(touch, False), *self._bytes(block, low, high), detail
        )

    def _out_of_bounds(self, operation: Operation, fault: KernelFault) -> None:
        trace: Trace = operation.trace
        launch = Party(self._touch(operation, trace).call, operation.place, "goes beyond it", trace.track.name)  # type: ignore[union-attr]
        gone = self.memory.freed(fault.address)
        if gone is not None:
            end = Party("the end", gone.gone, "frees it")
            self.report(findings.FREED_IN_USE, end, launch, fault.address, 1, gone.describe())
            return
        block = self._below(operation, fault.address)
        made = Party(block.kind, block.place, "makes it") if block is not None else Party("the launch", operation.place)
        memory = block.describe() if block is not None else ""
        self.report(findings.OUT_OF_BOUNDS, made, launch, fault.address, 1, memory, fault.why)

    def _below(self, operation: Operation, address: int) -> Block | None:
        """The allocation that an address lies behind, among the arguments of a kernel."""
        access = operation.access
        starts = [start for start, _ in (*access.reads, *access.writes) if start <= address]
        return self.memory.find(max(starts)) if starts else None

    # ---- work on streams: models -----------------------------------------------------------------------------

    def _start_model(self, operation: ModelRun, trace: Trace) -> None:
        stream = operation.stream
        assert stream is not None
        if operation.run.trace is None:
            operation.run.trace = trace
            self.running[stream] = {}
            self._outer[stream] = operation.run.model
        else:
            for clock in self.running.get(stream, {}).values():
                join(clock, trace.clock)

    def _model_ran(self, operation: ModelRun, trace: Trace) -> None:
        stream = operation.stream
        assert stream is not None
        if operation.run.over:
            lanes = self.running.pop(stream, {})
            self._outer.pop(stream, None)
            for clock in lanes.values():
                join(trace.clock, clock)

    def through(self, lane: Lane, original: Operation, operation: Operation) -> None:
        """A run of a model has passed an operation."""
        stream = operation.stream
        lanes = self.running.get(stream) if stream is not None else None
        if lanes is None or stream is None:
            return
        clock = self._clock_in(lanes, lane, stream)
        if isinstance(original, MarkWait):
            mark = original.mark
            if mark.trace is not None and mark.trace.snapshot is not None:
                join(clock, mark.trace.snapshot)
        elif isinstance(original, OutsideWait):
            record = original.event.last
            if record is not None and record.trace is not None and record.trace.snapshot is not None:
                join(clock, record.trace.snapshot)
        elif isinstance(original, (Mark, EventRecord)):
            original.trace = operation.trace  # for those who wait for it within the model
        elif isinstance(original, (Jump, Branch)):
            for other in list(lanes.values()):
                join(clock, other)

    # ---- work on streams: what orders it ---------------------------------------------------------------------

    def _start_record(self, operation: Operation, trace: Trace) -> None:
        trace.snapshot = dict(trace.clock)

    def _start_wait(self, operation: EventWait, trace: Trace) -> None:
        record = operation.record
        if record is not None and record.trace is not None and record.trace.snapshot is not None:
            join(trace.clock, record.trace.snapshot)

    def _start_notify_record(self, operation: NotifyRecord, trace: Trace) -> None:
        notify = operation.notify
        clock: Clock = dict(notify.clock or {})
        join(clock, trace.clock)
        notify.clock = clock

    def _start_notify_wait(self, operation: NotifyWait, trace: Trace) -> None:
        if operation.notify.clock is not None:
            join(trace.clock, operation.notify.clock)

    def _start_value_wait(self, operation: ValueWait, trace: Trace) -> None:
        """Whoever wrote the word that is waited for comes before."""
        for shadow, low, high, _ in self._find(operation.cell.address, 8):
            if shadow.epoch == self.epoch:
                for touch in shadow.history.writers(low, high):
                    self._learn(trace.clock, touch)

    def _learn(self, clock: Clock, touch: Touch) -> None:
        join(clock, self.view if touch.track is self.host else touch.track.clock)
        clock[touch.track] = max(clock.get(touch.track, 0), touch.count)

    def _start_callback(self, operation: Operation, trace: Trace) -> None:
        """A function of the program runs: it may tell other threads that the stream is here."""
        self.host_knows(trace.clock)

    def _start_indirect(self, operation: CopyIndirect, trace: Trace) -> None:
        dst, src, nbytes = operation.read()
        access = Access((*operation.access.reads, (src, nbytes)), ((dst, nbytes),))
        touch = self._touch(operation, trace)
        for shadow, low, high, write, block, _ in self._spans(access):
            conflict = self._access(shadow, low, high, touch, write, trace.clock)
            if conflict is not None:
                self._conflict(touch, write, conflict, block, trace)
        self._initialize(Access(((src, nbytes),), ((dst, nbytes),)), True)
        self.ahead.add(touch.track)

    def waits(self, event: Event, stream: Stream, name: str) -> None:
        """A stream is about to wait for an event, perhaps without an operation of its own."""
        last = event.last
        if last is None:
            plain = not event.new_mode and not event.flags & (1 | EXTERNAL)
            if not plain and stream.recorder is None and stream.divert is None:  # the library refuses a plain one
                self.serial += 1
                self.report(
                    findings.WAITED_BEFORE_RECORD,
                    Party("the event", event.place, "is made"),
                    Party(name, places.caller(), "waits for it", self._name(stream)),
                )
        elif last.done and last.trace is not None and last.trace.snapshot is not None:
            track: Track = stream.track or self._track(stream)
            track.due.append(last.trace.snapshot)

    def _name(self, stream: Stream) -> str:
        track: Track = stream.track or self._track(stream)
        return track.name

    # ---- the host ----------------------------------------------------------------------------------------------

    def host_access(self, call: str, access: Access) -> None:
        """The host reads or writes memory itself, now."""
        place = places.caller()
        if self.recent:
            self._look(place)
        self.serial += 1
        self.host.count += 1
        touch = Touch(self.host, self.host.count, call, place, self.serial)
        for write, ranges in ((False, access.reads), (True, access.writes)):
            for address, nbytes in ranges[:MOST_RANGES]:
                for shadow, low, high, block in self._find(address, nbytes):
                    if shadow.pending:
                        self._meet_pending(shadow, low, high, touch, write, block)
                    conflict = self._access(shadow, low, high, touch, write, self.view)
                    if conflict is not None:
                        self._conflict(touch, write, conflict, block, None)
                    if write and shadow.watches:
                        self._overwritten(shadow, low, high, None)
        self._initialize(access, True)

    def _meet_pending(
        self, shadow: Shadow, low: int, high: int, touch: Touch, write: bool, block: Block | None
    ) -> None:
        """What is still to run cannot have been waited for."""
        for operation in list(shadow.pending):
            if operation.done or operation.dropped:
                shadow.pending.pop(operation, None)
                continue
            trace: Trace = operation.trace
            hits = [
                span
                for span in trace.spans or ()
                if span[0] is shadow and span[1] < high and low < span[2] and (write or span[3])
            ]
            if not hits or self._inside_callback(operation):
                continue
            exact = next((span for span in hits if span[5]), None)
            if exact is not None:
                self._tell(trace, touch.serial)
                if isinstance(operation, Put) and operation.name == "aclrtValueWrite":
                    continue  # a word that the host looks at or sets
                other = self._expected(operation, trace, ARGUMENTS if isinstance(operation, KernelLaunch) else "")
                found = Conflict(other, exact[3], max(low, exact[1]), min(high, exact[2]))
                self._conflict(touch, write, found, block, None)
            elif self.mode == "raise":
                self._run(operation)

    def _tell(self, trace: Trace, serial: int) -> None:
        """It need not be reported again when the operation runs."""
        if trace.told is None:
            trace.told = set()
        trace.told.add(serial)

    def _expected(self, operation: Operation, trace: Trace, role: str = "") -> Touch:
        """An operation that has not run, as it will touch memory."""
        stream = operation.stream
        assert stream is not None
        if isinstance(operation, GiveBack):
            role = FREE
        return Touch(stream.track or self._track(stream), 0, _called(operation), operation.place, trace.serial, role)

    def _inside_callback(self, operation: Operation) -> bool:
        """Is the calling thread perhaps the callback that this operation comes after?"""
        stream = operation.stream
        if stream is None or not stream.running or not stream.pending:
            return False
        return isinstance(stream.pending[0], (HostFunction, ReportedCallback))

    def _run(self, operation: Operation) -> None:
        """Run an operation, and what it needs, if that is possible now."""
        scheduler = self.machine.scheduler
        assert operation.stream is not None
        if threading.get_ident() in scheduler.library_threads:
            return
        while not operation.done and not operation.dropped:
            stream = scheduler.choose([operation.stream])
            if stream is None:
                return
            scheduler.run(stream)

    def freeing(self, block: Block, call: str) -> None:
        """The host is about to give memory back."""
        store = block.store
        shadow: Shadow | None = store.shadow if store is not None else None
        if shadow is None:
            return
        place = places.caller()
        low, high = block.offset, block.offset + block.size
        self.serial += 1
        self.host.count += 1
        free = Party(call, place, "frees it", self.host.name)
        for operation in list(shadow.pending):
            if operation.done or operation.dropped or self._inside_callback(operation):
                continue
            trace: Trace = operation.trace
            for span in trace.spans or ():
                if span[0] is shadow and span[1] < high and low < span[2]:
                    user = self._party(self._expected(operation, trace), span[3])
                    self.report(findings.FREED_IN_USE, user, free, *self._bytes(block, span[1], span[2]))
                    return
        if shadow.epoch == self.epoch:
            conflict = shadow.history.unordered(low, high, self.host, self.view)
            if conflict is not None:
                first = self._party(conflict.other, conflict.other_writes)
                self.report(findings.FREED_IN_USE, first, free, *self._bytes(block, conflict.low, conflict.high))
        for watch in list(shadow.watches):
            watch.end()

    # ---- what the host waits for -------------------------------------------------------------------------------

    def host_waited(self, stream: Stream, number: int | None = None) -> None:
        """The host has waited for a stream: for all that was done there, or up to an operation."""
        track: Track | None = stream.track
        if track is None:
            return
        if number is None or number > track.count:
            number = track.count
        if self.view.get(track, 0) >= number and not self.recent:
            if self.ahead:
                self._forget()
            return
        clock = dict(track.clock)
        clock[track] = number
        self.host_knows(clock)

    def host_saw(self, record: EventRecord) -> None:
        """The host knows that a stream has passed a record."""
        trace: Trace | None = record.trace
        if trace is not None and trace.snapshot is not None:
            self.host_knows(trace.snapshot)

    def host_knows(self, clock: Clock) -> None:
        """The host knows of what comes before `clock`."""
        view = dict(self.view)
        join(view, clock)
        view.pop(self.host, None)
        if len(view) > 64:
            self._bury(view)
        self.view = view
        if self.watched:
            self._release(view)
        self._forget()

    def _forget(self) -> None:
        """Forget everything, if everything that can come comes after it."""
        view = self.view
        if self.ahead:
            self.ahead = {track for track in self.ahead if track.count > view.get(track, 0) and not track.dead}
        if not self.ahead and not self.machine.scheduler.active:
            self.epoch += 1

    def _bury(self, clock: Clock) -> None:
        for track in [track for track in clock if track.dead]:
            del clock[track]

    def ended(self, stream: Stream) -> None:
        """A stream is destroyed; its work is done, or dropped."""
        track: Track | None = stream.track
        if track is not None:
            self.host_waited(stream)
            track.dead = True
            self.watched.pop(track, None)
            self.running.pop(stream, None)

    def model_ended(self, lanes: Iterable[Lane]) -> None:
        """A model is destroyed."""
        for lane in lanes:
            if lane.track is not None:
                lane.track.dead = True

    # ---- pinned memory ---------------------------------------------------------------------------------------

    def _watch(self, operation: Operation, trace: Trace, span: Span) -> None:
        watch = Watch(operation, span)
        if trace.watches is None:
            trace.watches = []
        trace.watches.append(watch)
        span[0].watches.append(watch)
        stream = operation.stream
        assert stream is not None
        line = self.watched.setdefault(stream.track, deque())
        line.append((operation.number, watch))
        if len(line) > MOST_WATCHES:
            line.popleft()[1].end()
        self.recent.append(watch)

    def _look(self, place: places.Place) -> None:
        """A call of the program: has it changed the memory of the latest copies since the call before?"""
        for watch in list(self.recent):
            if not watch.live:
                self.recent.remove(watch)
            elif watch.noticed is None:
                if watch.ends == _ends(watch.bytes()):
                    watch.seen = place
                else:
                    watch.noticed = place

    def _release(self, view: Clock) -> None:
        """What the host has waited for may change."""
        changed: list[Watch] = []
        for track, line in list(self.watched.items()):
            known = view.get(track, 0)
            while line and line[0][0] <= known:
                watch = line.popleft()[1]
                if watch.live and not watch.operation.dropped and watch.changed():
                    changed.append(watch)
                watch.end()
            if not line:
                del self.watched[track]
        for watch in changed:
            self._pinned_changed(watch, places.caller())

    def _overwritten(self, shadow: Shadow, low: int, high: int, trace: Trace | None) -> None:
        """A call or a piece of work writes to pinned memory: what a copy finds there is no longer the program's."""
        own = trace.watches if trace is not None and trace.watches is not None else ()
        for watch in list(shadow.watches):
            if watch.low < high and low < watch.high and watch not in own:
                watch.end()

    def _pinned_changed(self, watch: Watch, place: places.Place) -> None:
        operation = watch.operation
        watch.end()
        trace: Trace = operation.trace
        stream = operation.stream
        assert stream is not None
        copy = Party(operation.name, operation.place, "writes it" if watch.write else "reads it", self._name(stream))
        program = Party("the program", watch.noticed or place, "has changed it", self.host.name)
        detail = f"the change comes after {places.describe(watch.seen)} and before {places.describe(program.place)}"
        assert watch.shadow.store is not None
        address = watch.shadow.store.real + watch.low
        block = self.memory.find(address)
        self.serial = max(self.serial, trace.serial + 1)
        memory = block.describe() if block is not None else "registered memory of the program"
        self.report(findings.PINNED_CHANGED, copy, program, address, watch.high - watch.low, memory, detail)

    # ---- what is initialised -----------------------------------------------------------------------------------

    def _initialize(self, access: Access, copy: bool) -> None:
        """What is written is initialised; what is copied, as far as the original is."""
        for address, nbytes in access.writes[:MOST_RANGES]:
            for shadow, low, high, _ in self._find(address, nbytes):
                if shadow.known is None:
                    continue
                if copy and len(access.reads) == len(access.writes) == 1:
                    gaps = self._gaps(*access.reads[0])
                    if gaps:
                        shadow.known.add(low, high)
                        for start, end in gaps:
                            shadow.known.remove(low + start, min(low + end, high))
                        continue
                self._known(shadow, low, high)

    def _known(self, shadow: Shadow, low: int, high: int) -> None:
        known = shadow.known
        if known is not None:
            known.add(low, high)
            if len(known.edges) > 2 * MOST_GAPS:
                shadow.known = None

    def _gaps(self, address: int, nbytes: int) -> list[tuple[int, int]]:
        """What of a range is not initialised, counted from its start."""
        found: list[tuple[int, int]] = []
        begin = 0
        for shadow, low, high, _ in self._find(address, nbytes):
            if shadow.known is not None and not shadow.known.covers(low, high):
                found.extend((begin + s - low, begin + e - low) for s, e in shadow.known.missing(low, high))
            begin += high - low
        return found

    # ---- arguments -------------------------------------------------------------------------------------------

    def arguments_made(self, arguments: Arguments) -> None:
        """A handle of arguments was initialised, in the buffer of a thread or in memory of the program."""
        before = self.prepared.pop(arguments.address, None)
        made = _Prepared(arguments, places.caller(), before)
        if before is not None:
            before.before = None
        start, end = arguments.start, arguments.start + arguments.room
        for other in list(self.prepared.values())[-64:]:
            if other.arguments.start < end and start < other.arguments.start + other.arguments.room:
                other.overlapped = made
        self.prepared[arguments.address] = made
        if len(self.prepared) > MOST_WATCHES:
            del self.prepared[next(iter(self.prepared))]

    def arguments_launched(self, arguments: Arguments, function: Function, call: str) -> None:
        """A launch takes its arguments from a handle."""
        made = self.prepared.get(arguments.address)
        if made is None or made.arguments is not arguments:
            return
        place = places.caller()
        launch = f"{call} of {function.name} at {places.describe(place)} takes what the second has written"
        before = made.before
        if (
            before is not None
            and function.name != arguments.function.name
            and function.name == before.arguments.function.name
        ):
            self._rewritten(before, made, launch)
        elif made.overlapped is not None:
            self._rewritten(made, made.overlapped, launch)
        made.before = None

    def _rewritten(self, first: _Prepared, then: _Prepared, detail: str) -> None:
        name = "aclrtKernelArgsInit"
        parties = [
            Party(name, made.place, f"prepares {made.arguments.function.name}", self.host.name)
            for made in (first, then)
        ]
        self.report(findings.ARGUMENTS_REWRITTEN, parties[0], parties[1], detail=detail)

    # ---- reports -----------------------------------------------------------------------------------------------

    def _conflict(
        self, touch: Touch, write: bool, conflict: Conflict, block: Block | None, trace: Trace | None
    ) -> None:
        other = conflict.other
        if ATOMIC in (touch.role, other.role):
            if not write and touch.track is self.host:  # the host looks at a word that a stream sets
                self.host_knows(other.track.clock)
            return
        if trace is not None and trace.told is not None and other.serial in trace.told:
            return
        mine, its = self._party(touch, write), self._party(other, conflict.other_writes)
        roles = (touch.role, other.role)
        if FREE in roles:
            kind = findings.FREED_IN_USE
        elif ARGUMENTS in roles:
            kind = findings.ARGUMENTS_REWRITTEN
        elif self.host in (touch.track, other.track):
            kind = findings.NOT_WAITED_FOR
        else:
            kind = findings.UNORDERED
        first, second = (its, mine) if other.serial <= touch.serial else (mine, its)
        where = self._bytes(block, conflict.low, conflict.high) if block is not None else (0, 0, "")
        self.report(kind, first, second, *where)

    def _party(self, touch: Touch, write: bool) -> Party:
        does = {ARGUMENTS: "reads its arguments there", FREE: "frees it"}.get(
            touch.role, "writes it" if write else "reads it"
        )
        return Party(touch.call, touch.place, does, touch.track.name)

    def _bytes(self, block: Block, low: int, high: int) -> tuple[int, int, str]:
        return block.base + low - block.offset, high - low, block.describe()

    def report(
        self,
        kind: str,
        first: Party,
        second: Party,
        address: int = 0,
        nbytes: int = 0,
        memory: str = "",
        detail: str = "",
    ) -> None:
        """A hazard was found: remember it, and raise or warn."""
        hazard = Hazard(kind, first, second, address, nbytes, memory, detail)
        self.found.append(hazard)
        del self.found[:-MOST_FOUND]
        if self.mode == "raise":
            raise HazardError(hazard)
        place = places.caller() or second.place or ("<unknown>", 0)
        warnings.warn_explicit(HazardWarning(hazard), HazardWarning, place[0], place[1], registry=self._warned)
