"""Profiling: the objects that describe it and the order in which its calls belong. Nothing is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional

from .failures import AclLayerError
from .handles import HandleTable

if TYPE_CHECKING:
    from .machine import Machine

REPEATED, NOT_RUN, UNSUPPORTED_MODULES = 100002, 100043, 200007
INVALID_MODEL = 100011
FAILED = -1
MAX_DEVICES = 64

# bits of a configuration
TASK_TIME_L1, MARKS, TASK_TIME, TASK_TIME_L2, OPERATOR_ATTRIBUTES = 0x2, 0x80, 0x800, 0x2000, 0x4000
_AICPU_MODEL = 0x4000_0000_0000_0000
_SUPPORTED = 0x1_00_7B_FF | _AICPU_MODEL


class Config:
    """What to record (aclprofConfig)."""

    def __init__(self, devices: list[int], metrics: int, switches: int) -> None:
        self.devices = devices
        self.metrics = metrics
        switches |= _AICPU_MODEL
        if switches & TASK_TIME_L1:
            switches |= TASK_TIME
        if switches & (TASK_TIME_L2 | OPERATOR_ATTRIBUTES):
            switches |= TASK_TIME | TASK_TIME_L1
        self.switches = switches


class SubscribeConfig(NamedTuple):
    """What a subscription gets (aclprofSubscribeConfig)."""

    times: int
    metrics: int
    fd: int


class Step:
    """The start and end of an iteration (aclprofStepInfo)."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.started = self.ended = False


class Stamp:
    """A mark with a message."""

    def __init__(self) -> None:
        self.message = b""


class Profiler:
    """The profiling of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.configs: HandleTable[Config] = HandleTable("profiling configuration")
        self.subscribe_configs: HandleTable[SubscribeConfig] = HandleTable("subscription configuration")
        self.steps: HandleTable[Step] = HandleTable("step")
        self.stamps: HandleTable[Stamp] = HandleTable("stamp")
        self.initialized = False
        self.switches: Optional[int] = None  # of the profiling that runs
        self.stack: list[Stamp] = []
        self.ranges: dict[int, Stamp] = {}
        self._next_range = 0
        self._next_step = 1

    def step(self) -> int:
        self._next_step += 1
        return self.steps.add(Step(self._next_step - 1))

    def init(self) -> None:
        if self.initialized:
            raise AclLayerError(REPEATED, "EK9999", "Acl profiling is already inited")
        self.initialized = True

    def finalize(self) -> None:
        if not self.initialized:
            raise AclLayerError(NOT_RUN, "EK0002", "aclprofFinalize was called before aclprofInit")
        self.initialized = False
        self.switches = None

    def start(self, switches: int) -> None:
        self._check(switches)
        if self.switches is not None:
            self._check_same(switches)
            return
        if not self.initialized:
            raise AclLayerError(NOT_RUN, "EK0002", "aclprofStart was called before aclprofInit")
        self.switches = switches

    def stop(self, switches: int) -> None:
        self._check(switches)
        if not self.initialized:
            raise AclLayerError(NOT_RUN, "EK0002", "aclprofStop was called before aclprofInit")
        if self.switches is None:
            raise AclLayerError(NOT_RUN, "EK9999", "Profiling was not started")
        self._check_same(switches)
        self.switches = None

    def _check(self, switches: int) -> None:
        if switches & ~_SUPPORTED:
            raise AclLayerError(
                UNSUPPORTED_MODULES, "EK0001", f"dataTypeConfig 0x{switches:x} is not supported: only 0x{_SUPPORTED:x}"
            )

    def _check_same(self, switches: int) -> None:
        if switches != self.switches:
            raise AclLayerError(100000, "EK0001", f"dataTypeConfig 0x{switches:x} differs from that of the start")

    # ---- marks -------------------------------------------------------------------------------------------

    def require_marks(self) -> None:
        """Marks are taken while a profiling runs that asks for them; -1 otherwise."""
        if self.switches is None or not self.switches & MARKS:
            raise AclLayerError(FAILED)

    def start_range(self, stamp: Stamp) -> int:
        self._next_range += 1
        self.ranges[self._next_range] = stamp
        return self._next_range
