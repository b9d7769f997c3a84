"""Notifies: flags (and counters, on chips that have them) that one stream sets and another waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import places
from .event import TASK_TIMEOUT
from .failures import RuntimeLayerError, UndefinedBehavior
from .handles import HandleTable
from .operation import Operation

if TYPE_CHECKING:
    from .device import Device
    from .machine import Machine
    from .stream import Stream

# how a counter is changed, and what a wait compares
STORE, ADD, SET_BITS, INVALID, CLEAR_BITS = 0, 1, 2, 3, 4
LESS, EQUAL, BIGGER, BIGGER_OR_EQUAL, BITMASK = 0, 1, 2, 3, 4
_MASK = 0xFFFFFFFF


class Notify:
    """A flag with an id. `value` is 0 or 1; of a counting notify, any number of 32 bits."""

    def __init__(self, device: Device, number: int, counting: bool = False) -> None:
        self.device = device
        self.generation = device.generation
        self.number = number
        self.counting = counting
        self.value = 0
        self.key: str | None = None  # under which other processes find it
        self.clock: Any = None  # what the hazard checker knows of those who changed it
        self.place = places.caller()
        self.handle = 0

    def __repr__(self) -> str:
        kind = "counting notify" if self.counting else "notify"
        return f"<{kind} {self.number} made at {places.describe(self.place)}>"


class NotifyRecord(Operation):
    """Changes the value."""

    __slots__ = ("notify", "mode", "amount")

    def __init__(self, name: str, notify: Notify, mode: int = STORE, amount: int = 1) -> None:
        super().__init__(name)
        self.notify, self.mode, self.amount = notify, mode, amount

    def signals(self) -> Any:
        return self.notify

    def start(self, machine: Machine) -> bool:
        notify = self.notify
        if self.mode == STORE:
            notify.value = self.amount
        elif self.mode == ADD:
            notify.value = (notify.value + self.amount) & _MASK
        elif self.mode == SET_BITS:
            notify.value |= self.amount
        else:
            notify.value &= ~self.amount & _MASK
        return True


class NotifyWait(Operation):
    """Waits for the value, and takes it back where that is asked for."""

    __slots__ = ("notify", "mode", "amount", "clear")

    def __init__(self, name: str, notify: Notify, mode: int = EQUAL, amount: int = 1, clear: bool = True) -> None:
        super().__init__(name)
        self.notify, self.mode, self.amount, self.clear = notify, mode, amount, clear

    def _met(self) -> bool:
        value, amount = self.notify.value, self.amount
        return {
            LESS: value < amount,
            EQUAL: value == amount,
            BIGGER: value > amount,
            BIGGER_OR_EQUAL: value >= amount,
            BITMASK: value & amount == amount,
        }[self.mode]

    def blocked_by(self) -> Any:
        return None if self._met() else self.notify

    def start(self, machine: Machine) -> bool:
        if self.clear:
            self.notify.value = 0
        return True

    def timed_out(self) -> BaseException:
        return RuntimeLayerError(
            TASK_TIMEOUT, "EE9999", f"the wait for a notify timed out ({places.describe(self.place)})"
        )


class Notifies:
    """All notifies of a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.table: HandleTable[Notify] = HandleTable("notify")
        self.counting: HandleTable[Notify] = HandleTable("counting notify")
        self._imports: set[int] = set()  # handles that share a notify made elsewhere
        self._next = 0
        self._free: list[int] = []

    def create(self, device: Device, counting: bool = False) -> Notify:
        number = self._free.pop() if self._free else self._next
        self._next = max(self._next, number + 1)
        notify = Notify(device, number, counting)
        notify.handle = (self.counting if counting else self.table).add(notify)
        return notify

    def get(self, handle: int, call: str) -> Notify:
        return self._checked(self.table.get(handle, call), call)

    def get_counting(self, handle: int, call: str) -> Notify:
        return self._checked(self.counting.get(handle, call), call)

    @staticmethod
    def _checked(notify: Notify, call: str) -> Notify:
        if notify.generation != notify.device.generation or notify.device.open_count == 0:
            raise UndefinedBehavior(f"{call}: device {notify.device.index} was reset after {notify!r}")
        return notify

    def destroy(self, handle: int, call: str, counting: bool = False) -> None:
        notify = (self.counting if counting else self.table).remove(handle, call)
        if handle in self._imports:
            self._imports.discard(handle)
        else:
            self._free.append(notify.number)

    def by_key(self, key: str) -> Notify | None:
        """The notify that was exported under a key."""
        for notify in self.table:
            if notify.key == key:
                return notify
        return None

    def share(self, notify: Notify) -> int:
        """One more handle for a notify (an import). Nobody may wait through it."""
        handle = self.table.add(notify)
        self._imports.add(handle)
        return handle

    def imported(self, handle: int) -> bool:
        return handle in self._imports


def wait(stream: Stream, operation: NotifyWait, seconds: int) -> None:
    """Queue a wait, with a timeout in seconds (0 and 2**32-1: none)."""
    if 0 < seconds < _MASK:
        operation.expires = stream.machine.clock.now() + seconds * 1_000_000_000
    stream.submit(operation)
