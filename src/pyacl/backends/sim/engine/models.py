"""Models of the runtime: work that is recorded once and run many times. Captured, or built by binding streams.

A model has lanes, one for each stream it was recorded on; a lane is a list of operations. A run goes through the lanes
with copies of the operations, always the earliest recorded one that can start.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any, Callable

from . import chips, observers, places, refusals
from .event import EventRecord, EventReset, EventWait
from .failures import AclLayerError, CallFailure, RuntimeLayerError, UndefinedBehavior
from .handles import HandleTable
from .launch import KernelLaunch
from .memory import Block, Memory
from .operation import Operation
from .stream import NOT_SYNCHRONIZED

if TYPE_CHECKING:
    from .context import Context
    from .event import Event
    from .machine import Machine
    from .stream import Stream

# modes of a capture; the last one stands for none
GLOBAL, THREAD_LOCAL, RELAXED, NO_MODE = 0, 1, 2, 3
# states of a capture
NONE, ACTIVE, INVALIDATED, FINISHED = 0, 1, 2, 3
# how a stream is bound
HEAD, PLAIN = 0, 0x7FFF_FFFF

INTERNAL = 507000
MODEL_EXECUTE = 507011
TASK_NOT_SUPPORTED = 507009
MODEL_ABORTED = 507023
INVALIDATED_CODE = 507903
MODEL_CONTEXT, STREAM_MODEL = 107004, 107005
UNJOINED, CAPTURED_MODEL, CAPTURED_STREAM, NOT_CAPTURED = 107025, 107026, 107027, 107029
IMPLICIT, CONFLICT, GROUP_STATUS, GROUP_INTERRUPTED, UNMATCHED = 107031, 107032, 107033, 107034, 107036
# kinds of condition tasks
IF, WHILE, SWITCH = 0, 1, 2
# conditions of aclrtSwitchStream, by number
COMPARISONS = (eq, ne, gt, ge, lt, le)
RUNNING, WRONG_THREAD = 107037, 107038
UPDATE_NOT_SUPPORTED = 207019
DESTROY_PATIENCE = 10_000  # milliseconds that destroying waits for a run


def _failed(code: int, text: str) -> RuntimeLayerError:
    """Refused on one of the ways that report EE9999."""
    return RuntimeLayerError(code, "EE9999", text)


# -- what only models have -------------------------------------------------------------------------------------------


class Mark(Operation):
    """The record of an event inside a capture."""

    __slots__ = ("event", "waited", "waited_on_origin")

    def __init__(self, name: str, event: Event) -> None:
        super().__init__(name)
        self.event = event
        self.waited = False  # some stream of the capture waits for it,
        self.waited_on_origin = False  # the one where the capture began, from another stream

    def start(self, machine: Machine) -> bool:
        return True


class MarkWait(Operation):
    """The wait for such a record."""

    __slots__ = ("mark",)

    def __init__(self, name: str, mark: Operation) -> None:
        super().__init__(name)
        self.mark = mark

    def start(self, machine: Machine) -> bool:
        return True


class OutsideWait(Operation):
    """A wait for an event that is recorded outside of the model, each time the model runs."""

    __slots__ = ("event",)

    def __init__(self, name: str, event: Event) -> None:
        super().__init__(name)
        self.event = event

    def blocked_by(self) -> Any:
        event = self.event
        if event.last is None or event.was_reset:
            return event
        return None if event.last.done else event.last

    def start(self, machine: Machine) -> bool:
        return True


class EndGraph(Operation):
    """The end of a model that was built."""

    __slots__ = ()

    def start(self, machine: Machine) -> bool:
        return True


class Jump(Operation):
    """Work that decides where the run goes on: `lane_after` gives lane and position, or None to go on behind it."""

    __slots__ = ()

    def start(self, machine: Machine) -> bool:
        return True

    def target(self, machine: Machine) -> tuple[Lane, int] | None:
        raise NotImplementedError

    def starts(self, machine: Machine) -> Lane | None:
        """Another lane that begins now."""
        return None


class Activate(Jump):
    """Another stream of the model begins; this one goes on."""

    __slots__ = ("lane",)

    def __init__(self, lane: Lane) -> None:
        super().__init__("aclrtActiveStream")
        self.lane = lane

    def target(self, machine: Machine) -> tuple[Lane, int] | None:
        return None

    def starts(self, machine: Machine) -> Lane | None:
        return self.lane


class Switch(Jump):
    """Goes on in another stream of the model if a comparison holds."""

    __slots__ = ("left", "condition", "right", "bytes", "lane")

    def __init__(self, left: int, condition: int, right: int, bytes_: int, lane: Lane) -> None:
        super().__init__("aclrtSwitchStream")
        self.left, self.condition, self.right, self.bytes = left, condition, right, bytes_
        self.lane = lane

    def target(self, machine: Machine) -> tuple[Lane, int] | None:
        memory = machine.area(Memory)
        left, right = (
            int.from_bytes(memory.read(address, self.bytes, self.name), "little", signed=True)
            for address in (self.left, self.right)
        )
        return (self.lane, 0) if COMPARISONS[self.condition](left, right) else None


class Branch(Operation):
    """A condition task: other models that run, or do not, or run again, as a number on the device says."""

    __slots__ = ("condition", "kind", "bodies")

    def __init__(self, condition: Condition, kind: int, bodies: list[Model]) -> None:
        super().__init__("aclmdlRIAddCondTask")
        self.condition = condition
        self.kind = kind
        self.bodies = bodies

    def start(self, machine: Machine) -> bool:
        return True

    def body(self, machine: Machine) -> Model | None:
        """What runs now."""
        value = int.from_bytes(machine.area(Memory).read(self.condition.block.base, 8, self.name), "little")
        index = value if self.kind == SWITCH else 0 if value else 1
        if self.kind == WHILE and index:
            return None
        return self.bodies[index] if index < len(self.bodies) else None


class Condition:
    """The number on the device that a condition task looks at."""

    def __init__(self, model: Model, default: int, assigned: bool, block: Block) -> None:
        self.model = model
        self.default = default
        self.assigned = assigned  # each run of the model begins with the default value
        self.block = block
        self.handle = 0


# -- models ----------------------------------------------------------------------------------------------------------


class TaskGroup:
    """Launches that may be given new arguments later."""

    def __init__(self) -> None:
        self.handle = 0
        self.tasks: list[KernelLaunch] = []
        self.updating = False
        self.next = 0  # the launch that is updated next


class Lane:
    """What one stream contributes to a model."""

    def __init__(self, model: Model, stream: Stream, head: bool, origin: bool) -> None:
        self.model = model
        self.stream = stream
        self.head = head  # a run starts here
        self.origin = origin  # where the capture began
        self.tasks: list[Operation] = []
        self.group: TaskGroup | None = None  # the group that is being recorded
        self.handle = 0
        self.hidden = 0  # the stream the library makes for the capture, as those see it who are told of streams
        self.track: Any = None  # what the hazard checker knows of it

    def __repr__(self) -> str:
        return f"<{self.stream!r} in {self.model!r}>"


class Model:
    """One model. While it is captured it is the recorder of its streams."""

    def __init__(self, models: Models, context: Context, captured: bool) -> None:
        self.models = models
        self.machine = models.machine
        self.context = context
        self.captured = captured
        self.place = places.caller()
        self.handle = models.table.add(self)
        self.number = models.take_number()
        self.name = ""
        self.status = NONE  # of the capture
        self.lanes: dict[Stream, Lane] = {}
        self.order: dict[int, int] = {}  # id of an operation -> when it was recorded
        self.ended = False  # the end of its work was marked
        self.ends = 0  # how many marks of it are recorded
        self.complete = False
        self.callbacks: dict[int, int] = {}  # function -> its argument
        self.events: list[Event] = []  # events that were recorded in the capture
        self.marks: dict[Event, Mark] = {}
        self.groups: list[TaskGroup] = []
        self.group_error = 0
        self.runs: list[Run] = []
        self.alive = True
        self.mode = NO_MODE
        self.thread: Any = None
        self.conditions: list[Condition] = []
        self.bodies: list[Model] = []  # of its condition tasks
        self.disabled: set[int] = set()  # ids of operations that runs pass over
        self.changes: list[Callable[[], None]] = []  # to its tasks, that wait for `update`

    # ---- recording -------------------------------------------------------------------------------------------

    @property
    def capturing(self) -> bool:
        return self.status in (ACTIVE, INVALIDATED)

    def invalidate(self) -> None:
        if self.status == ACTIVE:
            self.status = INVALIDATED

    def add(self, operation: Operation) -> None:
        """Record an operation that was submitted to one of the streams."""
        stream = operation.stream
        assert stream is not None
        lane = self.lanes[stream]
        self._check_group(lane, operation)
        if isinstance(operation, EventWait):
            if operation in operation.event.waits:
                operation.event.waits.remove(operation)
            place, inside = operation.place, operation.record
            if inside is not None and id(inside) in self.order:
                replaced: Operation = MarkWait(operation.name, inside)
            else:
                replaced = OutsideWait(operation.name, operation.event)
            replaced.stream, replaced.place = stream, place
            operation = replaced
        if isinstance(operation, KernelLaunch):
            operation.kept = True
        self._append(lane, operation)

    def _append(self, lane: Lane, operation: Operation) -> None:
        self.order[id(operation)] = len(self.order)
        lane.tasks.append(operation)
        operation.number = len(lane.tasks)
        thread = self.machine.thread
        thread.last_task, thread.last_stream = operation.number, lane.stream.number

    def _check_group(self, lane: Lane, operation: Operation) -> None:
        if not self.captured:
            return
        if lane.group is not None:
            if not isinstance(operation, KernelLaunch) or operation.function.cpu:
                self._break_group(TASK_NOT_SUPPORTED)
                raise _failed(TASK_NOT_SUPPORTED, f"{operation.name} cannot be in a task group")
            lane.group.tasks.append(operation)
        elif any(other.group is not None for other in self.lanes.values()):
            self._break_group(GROUP_INTERRUPTED)
            raise _failed(GROUP_INTERRUPTED, "the task group interrupted: another stream of the capture records it")

    def _break_group(self, code: int) -> None:
        self.invalidate()
        self.group_error = code

    def record_event(self, event: Event, stream: Stream) -> None:
        """aclrtRecordEvent on a stream that is being captured."""
        lane = self.lanes[stream]
        try:
            mark = Mark("aclrtRecordEvent", event)
            mark.stream, mark.place = stream, places.caller()
            self._check_group(lane, mark)
        except CallFailure:
            self._invalidate_with(event)
            raise
        self.events.append(event)
        self.marks[event] = mark
        event.captured = self
        self._append(lane, mark)

    def wait_event(self, stream: Stream, event: Event) -> None:
        """aclrtStreamWaitEvent for an event of this capture; a stream that is in no capture joins this one."""
        try:
            self._wait_event(stream, event)
        except CallFailure:
            self._invalidate_with(event)
            if stream.recorder is not None:
                stream.recorder.invalidate()
            raise

    def _wait_event(self, stream: Stream, event: Event) -> None:
        if stream.recorder is None:
            if stream.models:
                raise _failed(STREAM_MODEL, f"stream is bound to a model, stream_id={stream.number}")
            if self.status == INVALIDATED:
                raise _failed(INTERNAL, "model capture status mismatch: the capture is invalid")
            self.join(stream, origin=False)
        elif stream.recorder is not self:
            raise _failed(CONFLICT, "Capture event and capture stream is cross-model.")
        mark = self.marks[event]
        lane = self.lanes[stream]
        wait = MarkWait("aclrtStreamWaitEvent", mark)
        wait.stream, wait.place = stream, places.caller()
        self._check_group(lane, wait)
        mark.waited = True
        if lane.origin and mark.stream is not stream:
            mark.waited_on_origin = True
        self._append(lane, wait)

    def _invalidate_with(self, event: Event) -> None:
        self.invalidate()
        if event.captured is not None:
            event.captured.invalidate()

    def join(self, stream: Stream, origin: bool) -> Lane:
        """A stream becomes part of the capture."""
        lane = self.lanes[stream] = Lane(self, stream, head=True, origin=origin)
        lane.handle = self.models.lanes.add(lane)
        stream.recorder = self
        lane.hidden = self.machine.streams.reserve()
        self.machine.stream_observers.notify(lane.hidden, observers.CREATED)
        return lane

    def leave(self) -> None:
        """The capture is over: all its streams work as before."""
        self.status = FINISHED
        for lane in self.lanes.values():
            if lane.stream.recorder is self:
                lane.stream.recorder = None
            lane.group = None
        for event in self.events:
            if event.captured is self:
                event.captured = None
        self.events.clear()

    def check_joined(self) -> None:
        """Every stream that joined must have come back to the one where the capture began."""
        if any(lane.group is not None for lane in self.lanes.values()):
            raise _failed(GROUP_STATUS, "A task group is not closed in the capture module")
        others = [lane for lane in self.lanes.values() if not lane.origin]
        back = False
        for lane in others:
            last = lane.tasks[-1] if lane.tasks else None
            if not isinstance(last, Mark) or not last.waited:
                raise _failed(UNJOINED, f"{lane.stream!r} joined the capture and was not joined back")
            back = back or last.waited_on_origin
        if others and not back:
            raise _failed(UNJOINED, "capture model contains a stream that was not joined to the original stream.")

    # ---- building --------------------------------------------------------------------------------------------

    def bind(self, stream: Stream, head: bool) -> None:
        lane = self.lanes[stream] = Lane(self, stream, head, origin=False)
        lane.handle = self.models.lanes.add(lane)
        stream.models = (self,)
        stream.divert = self

    def unbind(self, stream: Stream) -> None:
        self.models.lanes.remove(self.lanes.pop(stream).handle)
        stream.models = ()
        stream.divert = None

    def divert(self, stream: Stream, operation: Operation) -> bool:
        """What is submitted to a bound stream is recorded."""
        self.add(operation)
        return True

    def end_task(self, stream: Stream) -> None:
        """aclmdlRIEndTask: the work on this stream is the last of the model."""
        if self.ended and not self.models.end_notify:
            raise _failed(INTERNAL, "Model add end graph failed: model must have only one endgraph.")
        if self not in stream.models:
            raise _failed(INTERNAL, f"stream {stream.number} has not been add to model {self.number}")
        stream.submit(EndGraph("aclmdlRIEndTask"))
        self.ended = True
        self.ends += 1

    def load(self) -> None:
        """aclmdlRIBuildEnd: the model can be run."""
        if not self.lanes:
            raise _failed(STREAM_MODEL, "There is no stream of the model")
        if self.models.end_notify and not self.ended:
            raise _failed(MODEL_EXECUTE, "The end of the work must be marked before the model is loaded")
        self.complete = True

    def ready(self, synchronously: bool) -> bool:
        """Can it be run? A run that is waited for does not ask whether the model was loaded, on some chips."""
        if self.captured:
            return self.status == FINISHED
        return self.ended and (self.complete or (synchronously and self.models.end_notify))

    @property
    def load_complete(self) -> bool:
        return self.complete

    def clean_stream(self, stream: Stream) -> None:
        """aclrtPersistentTaskClean: the work on a bound stream is forgotten, new work may be recorded."""
        lane = self.lanes[stream]
        self.ends -= sum(isinstance(task, EndGraph) for task in lane.tasks)
        for task in lane.tasks:
            if isinstance(task, KernelLaunch):
                task.release(self.machine.area(Memory))
        lane.tasks.clear()

    # ---- tasks -----------------------------------------------------------------------------------------------

    def update(self) -> None:
        """aclmdlRIUpdate: changes of tasks count from now on."""
        for change in self.changes:
            change()
        self.changes.clear()

    def tasks(self) -> Iterator[Operation]:
        """All operations in the order in which they were recorded."""
        everything = [task for lane in self.lanes.values() for task in lane.tasks]
        return iter(sorted(everything, key=lambda task: self.order[id(task)]))

    def die(self) -> None:
        """Give everything back."""
        memory = self.machine.area(Memory)
        for lane in self.lanes.values():
            if lane.hidden:
                self.machine.stream_observers.notify(lane.hidden, observers.DESTROYING)
        for task in self.tasks():
            if isinstance(task, KernelLaunch):
                task.release(memory)
        for lane in self.lanes.values():
            if lane.stream.recorder is self:
                lane.stream.recorder = None
            if self in lane.stream.models:
                lane.stream.models = ()
                lane.stream.divert = None
            self.models.lanes.remove(lane.handle)
        if self.machine.hazards is not None:
            self.machine.hazards.model_ended(self)
        for condition in self.conditions:
            memory.drop(condition.block)
            self.models.conditions.remove(condition.handle)
        for body in self.bodies:
            body.die()
        for group in self.groups:
            self.models.groups.remove(group.handle)
        self.models.forget_tasks(self)
        self.alive = False
        self.models.table.remove(self.handle)
        self.models.give_number(self.number)

    def __repr__(self) -> str:
        return f"<model {self.number}{' ' + repr(self.name) if self.name else ''} of {places.describe(self.place)}>"


# -- running ---------------------------------------------------------------------------------------------------------


class _Cursor:
    """Where a run is in one lane."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.index = 0
        self.current: Operation | None = None  # the copy that is to start or has started
        self.started = False
        self.inner: Run | None = None  # of a condition task

    def original(self) -> Operation | None:
        return self.lane.tasks[self.index] if self.index < len(self.lane.tasks) else None


class Run:
    """One execution of a model."""

    def __init__(self, model: Model, stream: Stream) -> None:
        self.model = model
        self.stream = stream  # where it was started
        self.passed: set[int] = set()  # ids of the recorded operations that are through
        self.cursors = [_Cursor(lane) for lane in model.lanes.values() if lane.head]
        memory = model.machine.area(Memory)
        for condition in model.conditions:
            if condition.assigned:
                memory.write(condition.block.base, condition.default.to_bytes(8, "little"))
        self.ends = model.ends  # marks of the end that are not yet passed
        self.over = False
        self.aborted = False
        self.trace: Any = None  # what the hazard checker knows of it

    def blocker(self) -> Any:
        """None if something can be done; else what must happen outside first."""
        if self.over or self.aborted or not self.cursors:
            return None
        blockers = [self._blocked(cursor) for cursor in self.cursors]
        if any(blocker is None for blocker in blockers):
            return None
        outside = [blocker for blocker in blockers if blocker is not self]
        return outside[0] if outside else self

    def _blocked(self, cursor: _Cursor) -> Any:
        original = cursor.original()
        if original is None:
            return None
        if id(original) in self.model.disabled:
            return None
        if isinstance(original, MarkWait):
            return None if id(original.mark) in self.passed else self
        if cursor.inner is not None:
            return cursor.inner.blocker()
        if cursor.started:
            assert cursor.current is not None
            return None if cursor.current.done else cursor.current
        return self._copy(cursor, original).blocked_by()

    def _copy(self, cursor: _Cursor, original: Operation) -> Operation:
        if cursor.current is None:
            cursor.current = fresh = copy.copy(original)
            fresh.stream = self.stream
            fresh.done = False
            fresh.failure = None
            fresh.dropped = False
            fresh.expires = None
        return cursor.current

    def advance(self, machine: Machine) -> None:
        """Do whatever can be done now."""
        while not self.over and not self.aborted:
            ready = [cursor for cursor in self.cursors if self._blocked(cursor) is None]
            if not ready:
                break
            order = self.model.order
            cursor = min(ready, key=lambda c: -1 if c.original() is None else order[id(c.original())])
            self._step(machine, cursor)
        if self.aborted:
            self.over = True
            raise _failed(MODEL_ABORTED, f"{self.model!r} was aborted")
        if not self.cursors:
            self.over = True

    def _step(self, machine: Machine, cursor: _Cursor) -> None:
        original = cursor.original()
        if original is None:
            self.cursors.remove(cursor)
            return
        if isinstance(original, Branch) and self._branch(machine, cursor, original):
            return
        operation = self._copy(cursor, original)
        if id(original) in self.model.disabled:
            self._through(machine, cursor, original, Operation(original.name))
            return
        if not cursor.started:
            cursor.started = True
            if not _start(machine, operation, cursor.lane):
                return
            operation.done = True
        self._through(machine, cursor, original, operation)

    def _branch(self, machine: Machine, cursor: _Cursor, task: Branch) -> bool:
        """Get on with a condition task; False when it is through."""
        if cursor.inner is None:
            body = task.body(machine)
            if body is None:
                return False
            cursor.inner = Run(body, self.stream)
        cursor.inner.advance(machine)
        if not cursor.inner.over:
            return True
        cursor.inner = None
        return task.kind == WHILE

    def _through(self, machine: Machine, cursor: _Cursor, original: Operation, operation: Operation) -> None:
        if operation.failure is not None:
            raise operation.failure
        if machine.hazards is not None:
            machine.hazards.through(cursor.lane, original, operation)
        self.passed.add(id(original))
        cursor.index += 1
        cursor.current, cursor.started = None, False
        if isinstance(operation, EventRecord):
            _event_recorded(original, operation)
        elif isinstance(operation, EventReset):
            operation.event.was_reset = True
        elif isinstance(operation, EndGraph):
            self.ends -= 1
            self.over = self.ends == 0
        elif isinstance(operation, Jump):
            other = operation.starts(machine)
            if other is not None:
                self.cursors.append(_Cursor(other))
            target = operation.target(machine)
            if target is not None:
                cursor.lane, cursor.index = target
                for task in cursor.lane.tasks[cursor.index :]:
                    self.passed.discard(id(task))


def _start(machine: Machine, operation: Operation, lane: Lane) -> bool:
    """Start an operation as the scheduler would."""
    hazards = machine.hazards
    if hazards is None:
        return _begin(machine, operation)
    hazards.starting_in(lane, operation)
    try:
        finished = _begin(machine, operation)
    except Exception as failure:
        instead = hazards.failed(operation, failure)
        if instead is not None:
            raise instead from failure
        raise
    hazards.ran(operation)
    return finished


def _begin(machine: Machine, operation: Operation) -> bool:
    if operation.locked:
        return operation.start(machine)
    return machine.scheduler.execute(operation)


def _event_recorded(original: Operation, record: EventRecord) -> None:
    """The run recorded an event that is visible outside."""
    event = record.event
    for wait in event.waits:
        if wait.record is None or wait.record is original:
            wait.record = record
    event.last, event.was_reset = record, False


class ModelRun(Operation):
    """A run on a stream; goes on in another one of its kind when something outside must happen first."""

    __slots__ = ("run",)

    def __init__(self, name: str, run: Run) -> None:
        super().__init__(name)
        self.run = run

    def blocked_by(self) -> Any:
        return self.run.blocker()

    def start(self, machine: Machine) -> bool:
        run = self.run
        if not run.model.alive:
            raise UndefinedBehavior(f"{self.name}: {run.model!r} was destroyed before it ran")
        try:
            run.advance(machine)
        except BaseException:
            run.over = True
            run.model.runs.remove(run)
            raise
        if run.over:
            run.model.runs.remove(run)
            return True
        assert self.stream is not None
        rest = ModelRun(self.name, run)
        rest.stream, rest.place, rest.number = self.stream, self.place, self.number
        self.number -= 1  # this piece does not yet complete the submission
        self.stream.pending.insert(1, rest)
        return True


# -- all models ------------------------------------------------------------------------------------------------------


class _Modes:
    """How many captures of each mode are open, for a context or a thread, and the strictest mode."""

    def __init__(self) -> None:
        self.counts = [0, 0, 0]
        self.mode = NO_MODE

    def enter(self, mode: int) -> None:
        self.counts[mode] += 1
        self.mode = min(self.mode, mode)

    def leave(self, mode: int) -> None:
        self.counts[mode] = max(self.counts[mode] - 1, 0)
        if self.counts[GLOBAL]:
            return
        self.mode = next((m for m in (THREAD_LOCAL, RELAXED) if self.counts[m]), NO_MODE)


class Models:
    """All models of a machine, and the captures that are open."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.table: HandleTable[Model] = HandleTable("model")
        self.lanes: HandleTable[Lane] = HandleTable("stream of a model")
        self.groups: HandleTable[TaskGroup] = HandleTable("task group")
        self.task_table: HandleTable[tuple[Model, Operation]] = HandleTable("task")
        self.conditions: HandleTable[Condition] = HandleTable("condition handle")
        self._task_handles: dict[int, int] = {}
        self._modes: dict[Context, _Modes] = {}
        self._updates: dict[Stream, TaskGroup] = {}
        self._numbers: list[int] = []
        self._next = 0
        machine.captures_forbid = self.forbids
        self.end_notify = chips.END_NOTIFY in chips.features(machine.profile.family)

    def take_number(self) -> int:
        if self._numbers:
            return self._numbers.pop()
        self._next += 1
        return self._next - 1

    def give_number(self, number: int) -> None:
        self._numbers.append(number)

    def create(self, captured: bool) -> Model:
        return Model(self, self.machine.current_context(), captured)

    def get(self, handle: int, call: str) -> Model:
        return self.table.get(handle, call)

    def own(self, handle: int, call: str) -> Model:
        """A model, which must belong to the current context."""
        if self.table.is_foreign(handle):
            self.machine.current_context()
            raise _failed(MODEL_CONTEXT, f"{call}: {self.table.why_not(handle)}")
        model = self.get(handle, call)
        if model.context is not self.machine.current_context():
            raise _failed(MODEL_CONTEXT, f"{call}: model is not in current ctx, model_id={model.number}")
        return model

    def building(self, handle: int, call: str) -> Model:
        """A model that is built by hand."""
        if self.table.is_foreign(handle):
            return self.own(handle, call)
        model = self.get(handle, call)
        if model.captured:
            raise refusals.invalid(f"a captured model does not support {call}")
        return model

    # ---- what a capture forbids ------------------------------------------------------------------------------

    def _thread_modes(self) -> _Modes:
        kept = self.machine.thread.kept
        found: _Modes | None = kept.get("capture modes")
        if found is None:
            found = kept["capture modes"] = _Modes()
        return found

    def forbids(self, context: Context) -> bool:
        """Do the open captures forbid work that waits for the device?"""
        modes = self._modes.get(context)
        if modes is None or modes.mode == NO_MODE:
            return False
        own, exchanged = self._thread_modes().mode, self.exchange_mode
        if exchanged == GLOBAL:
            return modes.mode == GLOBAL or own == THREAD_LOCAL
        if exchanged == THREAD_LOCAL:
            return own in (GLOBAL, THREAD_LOCAL)
        return False

    @property
    def exchange_mode(self) -> int:
        """What the calling thread has set with aclmdlRICaptureThreadExchangeMode."""
        mode: int = self.machine.thread.kept.get("exchange mode", GLOBAL)
        return mode

    @exchange_mode.setter
    def exchange_mode(self, mode: int) -> None:
        self.machine.thread.kept["exchange mode"] = mode

    # ---- capture ---------------------------------------------------------------------------------------------

    def _capturable(self, handle: int, call: str) -> Stream:
        if self.machine.streams.get(handle, call).flags & NOT_SYNCHRONIZED:
            raise _failed(INTERNAL, "stream flag does not support capture to model")
        context = self.machine.current_context()
        stream = self.machine.own_stream(handle, call)
        if stream.models:
            raise _failed(STREAM_MODEL, f"stream is binded, stream_id={stream.number}")
        if stream is context.default_stream:
            raise refusals.unsupported("the default stream cannot be captured.")
        return stream

    def begin(self, handle: int, mode: int, call: str, model: Model | None = None) -> None:
        """aclmdlRICaptureBegin; with a model (9.1) the capture goes on in it."""
        stream = self._capturable(handle, call)
        if stream.recorder is not None:
            raise _failed(CAPTURED_STREAM, f"stream is already in capture status, stream_id={stream.number}")
        if model is None:
            model = self.create(captured=True)
        model.status = ACTIVE
        model.join(stream, origin=True)
        model.mode, model.thread = mode, self.machine.thread.kept.setdefault("thread", object())
        self._modes.setdefault(model.context, _Modes()).enter(mode)
        self._thread_modes().enter(mode)

    def end(self, handle: int, call: str) -> Model:
        """aclmdlRICaptureEnd. Whatever is wrong, the capture is over afterwards."""
        stream = self._capturable(handle, call)
        model: Model | None = stream.recorder
        if model is None:
            raise _failed(NOT_CAPTURED, f"stream is not in capture status, stream_id={stream.number}")
        if not model.lanes[stream].origin:
            raise _failed(UNMATCHED, f"The capture was not initiated in this stream. stream_id={stream.number}")
        wrong = model.thread is not self.machine.thread.kept.get("thread") and model.mode != RELAXED
        self._modes[model.context].leave(model.mode)
        self._thread_modes().leave(model.mode)
        if wrong:
            model.leave()
            raise _failed(WRONG_THREAD, "end capture in the wrong thread.")
        try:
            if model.status == INVALIDATED:
                raise _failed(INVALIDATED_CODE, f"current capture is invalid, stream_id={stream.number}.")
            model.check_joined()
        except RuntimeLayerError:
            model.leave()
            model.die()
            raise
        model.leave()
        return model

    # ---- task groups -----------------------------------------------------------------------------------------

    def begin_group(self, handle: int, call: str) -> None:
        stream = self._captured(handle, call)
        if self._group_busy(stream):
            raise _failed(GROUP_STATUS, "Task group is repeatedly started, or a task group is being updated.")
        stream.recorder.lanes[stream].group = TaskGroup()

    def end_group(self, handle: int, call: str) -> int:
        stream = self._captured(handle, call)
        model: Model = stream.recorder
        lane = model.lanes[stream]
        group, lane.group = lane.group, None
        if group is None:
            text = "The end operation cannot be performed on a stream that has not started a task group."
            raise _failed(GROUP_STATUS, text)
        if model.group_error or model.status == INVALIDATED:
            raise _failed(model.group_error or INVALIDATED_CODE, "the task group is broken")
        model.groups.append(group)
        group.handle = self.groups.add(group)
        return group.handle

    def _captured(self, handle: int, call: str) -> Stream:
        stream = self.machine.streams.get(handle, call)
        if stream.recorder is None:
            raise _failed(NOT_CAPTURED, "the stream is not captured.")
        return self.machine.own_stream(handle, call)

    def _group_busy(self, stream: Stream) -> bool:
        recording = stream.recorder is not None and stream.recorder.lanes[stream].group is not None
        return recording or stream in self._updates

    def begin_update(self, handle: int, group_handle: int, call: str) -> None:
        stream = self._updatable(handle, call)
        group = self.groups.get(group_handle, call)
        if self._group_busy(stream):
            raise refusals_group("Unable to start update tasks because the stream is busy.")
        if group.updating:
            raise _failed(GROUP_STATUS, "The handle only can be updated by one stream.")
        group.updating, group.next = True, 0
        self._updates[stream] = group
        stream.divert = self

    def end_update(self, handle: int, call: str) -> None:
        stream = self._updatable(handle, call)
        group = self._updates.pop(stream, None)
        if group is None:
            raise refusals_group("Unable to end update tasks because the stream is busy.")
        stream.divert = None
        group.updating = False
        if group.next != len(group.tasks):
            raise _failed(INTERNAL, f"Update tasks failed, total={len(group.tasks)}, success={group.next}")

    def _updatable(self, handle: int, call: str) -> Stream:
        stream = self.machine.streams.get(handle, call)
        if stream.recorder is not None:
            raise _failed(CAPTURED_STREAM, "the stream is capturing.")
        if stream.models:
            raise RuntimeLayerError(STREAM_MODEL, "EE1001", "only support single operator stream.")
        return self.machine.own_stream(handle, call)

    def divert(self, stream: Stream, operation: Operation) -> bool:
        """An operation on a stream that updates a task group replaces a launch; False: it runs as usual."""
        if isinstance(operation, EventRecord):
            return False
        if not isinstance(operation, KernelLaunch) or operation.function.cpu:
            raise _failed(TASK_NOT_SUPPORTED, "Unsupported task type for task update.")
        group = self._updates[stream]
        if group.next >= len(group.tasks):
            raise _failed(INTERNAL, "task num exceed task group size")
        task = group.tasks[group.next]
        group.next += 1
        if task.function.mix != operation.function.mix or task.function.ktype != operation.function.ktype:
            raise _failed(INTERNAL, "check kernel type failed: the new kernel is of another kind")
        if operation.emulation is None and not operation.function.mix:
            # what the recorded driver answers; a kernel that computes something is updated
            raise _failed(UPDATE_NOT_SUPPORTED, "current ts version does not support update no mix op")
        task.release(self.machine.area(Memory))
        for field in ("function", "emulation", "blocks", "data", "source", "attributes", "copy", "thread", "locked"):
            setattr(task, field, getattr(operation, field))
        return True

    # ---- running ---------------------------------------------------------------------------------------------

    def execute_async(self, model_handle: int, handle: int, call: str) -> None:
        """aclmdlRIExecuteAsync."""
        stream = self.machine.streams.get(handle, call) if handle else None
        if stream is not None and stream.models:
            raise refusals.invalid("The current stream cannot be the same as the model stream.")
        if stream is not None and stream.recorder is not None:
            text = "The stream cannot be used for model execution during the capture stage."
            raise _failed(CAPTURED_STREAM, text)
        model = self.own(model_handle, call)
        if model.capturing:
            raise _failed(CAPTURED_MODEL, f"model is capturing, can't execute, model_id={model.number}!")
        self._submit(model, self.machine.own_stream(handle, call), call)

    def _submit(self, model: Model, stream: Stream, call: str, synchronously: bool = False) -> Run:
        if not model.ready(synchronously):
            raise _failed(MODEL_EXECUTE, f"{call}: model_id={model.number} was not built to its end")
        run = Run(model, stream)
        model.runs.append(run)
        stream.submit(ModelRun(call, run))
        return run

    def execute(self, model_handle: int, timeout: int, call: str) -> None:
        """aclmdlRIExecute: on the default stream, and wait for it."""
        if timeout < -1 or timeout == 0:
            raise RuntimeLayerError(107000, "EE1006", f"timeout={timeout} is not supported")
        self.building(model_handle, call)
        model = self.own(model_handle, call)
        stream = model.context.default_stream
        self._submit(model, stream, call, synchronously=True)
        stream.synchronize(None if timeout == -1 else timeout)

    def check_destroy(self, handle: int, call: str) -> Model:
        """A model that may be destroyed now; a captured one is waited for while it runs."""
        model = self.own(handle, call)
        if model.capturing:
            raise _failed(CAPTURED_MODEL, f"model is capturing, can't destroy, model_id={model.number}!")
        if model.captured and model.runs:
            streams: list[Stream] = [run.stream for run in model.runs]
            if not self.machine.scheduler.wait(lambda: not model.runs, streams, DESTROY_PATIENCE):
                raise _failed(RUNNING, f"model is still running, can't destroy, model_id={model.number}")
            if self.machine.hazards is not None:
                for stream in streams:
                    self.machine.hazards.host_waited(stream)
        return model

    def abort(self, handle: int, call: str) -> None:
        model = self.own(handle, call)
        for run in model.runs:
            run.aborted = True
        self.machine.scheduler.notify()

    # ---- conditions (since 9.1) ------------------------------------------------------------------------------

    def add_condition(self, model: Model, default: int, assigned: bool) -> Condition:
        """A number on the device for the condition tasks of a model."""
        device = model.context.device.index
        block = self.machine.area(Memory).allocate(device, 8, 8, kind="aclmdlRICondHandleCreate")
        self.machine.area(Memory).write(block.base, default.to_bytes(8, "little"))
        condition = Condition(model, default, assigned, block)
        condition.handle = self.conditions.add(condition)
        model.conditions.append(condition)
        return condition

    def add_branch(self, condition: Condition, kind: int, count: int, stream: Stream) -> list[Model]:
        """A condition task on a stream that is being captured; returns the models that are to be captured into."""
        model: Model = stream.recorder
        bodies = [Model(self, model.context, captured=True) for _ in range(count)]
        for body in bodies:
            body.status = FINISHED
        model.bodies += bodies
        stream.submit(Branch(condition, kind, bodies))
        return bodies

    # ---- tasks by handle (since 9.1) -------------------------------------------------------------------------------

    def task_handle(self, model: Model, task: Operation) -> int:
        handle = self._task_handles.get(id(task))
        if handle is None:
            handle = self._task_handles[id(task)] = self.task_table.add((model, task))
        return handle

    def forget_tasks(self, model: Model) -> None:
        for handle, (owner, task) in self.task_table.items():
            if owner is model:
                self.task_table.remove(handle)
                del self._task_handles[id(task)]


def refusals_group(text: str) -> RuntimeLayerError:
    """107033: the task group of the stream is in another state."""
    return RuntimeLayerError(GROUP_STATUS, "EE1001", text)


def quiet(code: int, message_code: str | None = None, text: str = "") -> AclLayerError:
    """A refusal that does not become the last error."""
    return AclLayerError(code, message_code, text)
