"""Faults that a test asked for, as the engine meets them: kernels that break or never end, slow work, lost devices.

The engine asks `Machine.faults`, which is None until somebody wants a fault. Who asks for them is `..faults`.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from . import kernels, places
from .failures import RuntimeLayerError
from .launch import KernelLaunch
from .operation import Operation
from .optimeouts import OpTimeouts

if TYPE_CHECKING:
    from .device import Device
    from .machine import Machine
    from .program import Function
    from .stream import Stream

#: what becomes of a kernel that was stopped for taking too long, by the code of its exception
TIMEOUTS = {
    kernels.AICORE_EXCEPTION: 507014,
    kernels.VECTOR_EXCEPTION: 507034,
    kernels.AICPU_EXCEPTION: 507017,
}


class Turns:
    """Which of a series of occasions is hit: the nth and `times` in all from there, or each with a probability."""

    def __init__(self, nth: int = 1, times: int | None = 1, probability: float | None = None, seed: int = 0) -> None:
        self.nth = nth
        self.times = times  # None: all from there on
        self.probability = probability
        self.random = random.Random(seed)
        self.seen = 0
        self.hits = 0

    def due(self) -> bool:
        """One more occasion: is it hit?"""
        self.seen += 1
        if self.times is not None and self.hits >= self.times:
            return False
        hit = self.seen >= self.nth if self.probability is None else self.random.random() < self.probability
        self.hits += hit
        return hit

    def __str__(self) -> str:
        if self.probability is not None:
            return f"with a probability of {self.probability:g}"
        last = "" if self.times == 1 else " and all later" if self.times is None else f" to {self.nth + self.times - 1}"
        return f"number {self.nth}{last}"


class KernelTrouble:
    """A fault of kernels.

    Attributes
    ----------
    kernel : the name its launches have, or the name of its source; None: any
    hangs : it never ends; otherwise it breaks
    code : what the next wait fails with; None: what the kind of core calls for
    place : where the test asked for it
    """

    def __init__(
        self, machine: Machine, kernel: str | None, hangs: bool, code: int | None, turns: Turns, place: places.Place
    ) -> None:
        self.machine = machine
        self.kernel = kernel
        self.hangs = hangs
        self.code = code
        self.turns = turns
        self.place = place
        self.hits: list[places.Place] = []

    def concerns(self, function: Function) -> bool:
        return self.kernel is None or self.kernel in (function.name, *kernels.source_names(function.name))

    def blocks(self, launch: KernelLaunch) -> KernelTrouble | None:
        """Itself where the kernel hangs. Asked when the launch is the next of its stream: it has begun then."""
        if not self.hangs:
            return None
        if launch.expires is None:
            limit = launch.attributes.timeout_us or self.machine.area(OpTimeouts).us or 0
            if 0 < limit < 1 << 63:  # of a kernel that has no limit, nobody waits for the end
                launch.expires = self.machine.clock.now() + limit * 1000
        return self

    def failure(self, launch: KernelLaunch) -> RuntimeLayerError:
        """What the wait for the launch fails with."""
        stream = launch.stream
        assert stream is not None
        code = kernels.exception_code(launch.function)
        core = {kernels.VECTOR_EXCEPTION: "vector core", kernels.AICPU_EXCEPTION: "aicpu"}.get(code, "aicore")
        text = (
            f"[{core} {'timeout' if self.hangs else 'exception'}] fault kernel_name={launch.function.name}, "
            f"device_id={stream.context.device.index}, stream_id={stream.number}, task_id={launch.number}. "
            f"A test asked for it at {places.describe(self.place)}"
        )
        if self.code is None and self.hangs:
            code = TIMEOUTS[code]
        return RuntimeLayerError(self.code or code, "EZ9999", text)

    def __repr__(self) -> str:
        return f"<a kernel that never ends, as asked for at {places.describe(self.place)}>"


class Pause(Operation):
    """Time that passes before the next operation of a stream: in front of slow work."""

    __slots__ = ("ns", "machine", "wanted")

    def __init__(self, name: str, ns: int, machine: Machine, wanted: places.Place) -> None:
        super().__init__(name)
        self.ns = ns
        self.machine = machine
        self.wanted = _Time(ns, wanted)

    def blocked_by(self) -> Any:
        now = self.machine.clock.now()
        if self.expires is None:  # it is the next one now
            self.expires = now + self.ns
        return None if now >= self.expires else self.wanted

    def start(self, machine: Machine) -> bool:
        return True


class _Time:
    """What a pause waits for."""

    def __init__(self, ns: int, place: places.Place) -> None:
        self.text = f"<{ns / 1e6:g} ms to pass, as asked for at {places.describe(place)}>"

    def __repr__(self) -> str:
        return self.text


class Loss:
    """A device that goes away after so many more operations."""

    def __init__(self, device: Device, code: int, after: int) -> None:
        self.device = device
        self.code = code
        self.left = after

    def count(self) -> None:
        """One more operation is queued on the device."""
        if not self.device.away:
            if self.left == 0:
                self.device.lose(self.code)
            self.left -= 1


class Injected:
    """All faults of a machine that the engine has to know of."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.kernels: list[KernelTrouble] = []
        self.delays: dict[str, tuple[int, places.Place]] = {}  # by C function: ns, and who wants it
        self.losses: list[Loss] = []
        self.pauses = 0  # so far, in front of slow work

    def launched(self, launch: KernelLaunch) -> KernelTrouble | None:
        """The trouble that a launch is in for."""
        due = [trouble for trouble in self.kernels if trouble.concerns(launch.function) and trouble.turns.due()]
        if not due:
            return None
        due[0].hits.append(places.caller())
        return due[0]

    def submitting(self, stream: Stream, operation: Operation) -> None:
        """An operation is about to be queued."""
        device = stream.context.device
        for loss in self.losses:
            if loss.device is device:
                loss.count()
        if device.lost:
            raise device.gone()
        delay = self.delays.get(operation.name)
        # inside a model no time passes
        if delay is not None and stream.recorder is None and not stream.models and not isinstance(operation, Pause):
            self.pauses += 1
            stream.submit(Pause(operation.name, delay[0], self.machine, delay[1]))
