"""Devices: reference counts, the primary context, what is open as long as a context lives."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Callable

from . import chips, observers
from .context import Context
from .failures import RuntimeLayerError
from .waiting import raise_unseen

if TYPE_CHECKING:
    from .machine import Machine

INFNAN = 1  # float overflow mode of a fresh process
SETUP_ERROR = 507033  # a device that cannot be opened
# what memory calls answer on a lost device. Assumption: the driver's error is one the library has no code for
DRIVER_ERROR = 507899


class Device:
    """One NPU.

    A device is open while at least one context lives on it. What belongs to the device and not to a context (its
    memory, events, notifies) ends when it closes: `when_closed` holds the functions that see to that.
    """

    def __init__(self, machine: Machine, index: int) -> None:
        self.machine = machine
        self.index = index
        self.primary: Context | None = None
        self.references = 0  # aclrtSetDevice calls without their aclrtResetDevice
        self.open_count = 0  # live contexts, the primary one among them
        self.generation = 0  # how often it was opened
        self.saturation = INFNAN
        self.failure_mode = 0
        self.lost = 0  # the code its work fails with since it was lost; 0: it is there
        self.away = False  # it was lost and cannot be opened again yet
        self.peers: set[int] = set()
        self.when_closed: list[Callable[[Device], None]] = []
        self._free_ids: list[int] = []
        self._next_id = 0

    # ---- ids ---------------------------------------------------------------------------------------------

    def take_stream_id(self) -> int:
        """The smallest id that no live stream has."""
        if self._free_ids:
            return heapq.heappop(self._free_ids)
        self._next_id += 1
        return self._next_id - 1

    def give_stream_id(self, number: int) -> None:
        heapq.heappush(self._free_ids, number)

    def free_streams(self) -> int:
        """How many more streams the device can have."""
        return max(0, self.machine.profile.streams - self._next_id + len(self._free_ids))

    # ---- open and close ----------------------------------------------------------------------------------

    def retain(self) -> bool:
        """One more context. The first one opens the device; was it the first?"""
        if self.away or self.lost:
            raise self.gone(SETUP_ERROR)
        if self.open_count == 0:
            self.machine.device_observers.notify(self.index, observers.SET_PRE)
            self.generation += 1
        self.open_count += 1
        return self.open_count == 1

    def announce_streams(self, primary: int) -> None:
        """Tell of the streams that an opened device has of its own: the primary one, and one for random numbers."""
        machine = self.machine
        machine.stream_observers.notify(primary, observers.CREATED)
        if chips.RANDOM in chips.features(machine.profile.family):
            machine.stream_observers.notify(machine.streams.reserve(), observers.CREATED)

    def release(self) -> None:
        """One context less: the last one closes the device and everything on it."""
        self.open_count -= 1
        if self.open_count == 0:
            for close in list(self.when_closed):
                close(self)
            self.peers.clear()
            self.lost = 0

    # ---- loss --------------------------------------------------------------------------------------------

    def lose(self, code: int) -> None:
        """The device is gone: none of its work ever ends, and what needs it fails."""
        self.lost, self.away = code, True
        for context in self.machine.contexts:
            if context.device is self:
                for stream in context.live_streams():
                    stream.drop()

    def gone(self, code: int = 0) -> RuntimeLayerError:
        """What a call on a lost device fails with: by default what the library answers to work and waits."""
        return RuntimeLayerError(code or self.lost, "EL9999", f"Device[{self.index}] fault, ret={code or self.lost}")

    # ---- set and reset -----------------------------------------------------------------------------------

    def set(self) -> None:
        """aclrtSetDevice: the primary context, shared by all threads that set this device, becomes the thread's
        context."""
        thread = self.machine.thread
        if self.primary is None:
            opened = self.retain()
            self.primary = Context(self, primary=True)
            if opened:
                self.announce_streams(self.primary.default_stream.handle)
        self.references += 1
        thread.device = self
        self.machine.device_observers.notify(self.index, observers.SET_POST)
        self.saturation = self.machine.saturation
        thread.context = None

    def reset(self, force: bool) -> None:
        """aclrtResetDevice: the last one of as many as there were sets, or a forced one, ends the primary context."""
        if self.references == 0 or self.primary is None:
            raise RuntimeLayerError(
                507007, "EE9999", f"The primary context of device {self.index} is not there: it was not set"
            )
        if force:
            self.references = 0
        else:
            self.references -= 1
        if self.references:
            return
        machine, context = self.machine, self.primary
        machine.stream_observers.notify(context.default_stream.handle, observers.DESTROYING)
        machine.device_observers.notify(self.index, observers.RESET_PRE)
        streams = context.tear_down(force)
        self.primary = None
        machine.thread.device = None
        machine.device_observers.notify(self.index, observers.RESET_POST)
        self.release()
        if not force:
            raise_unseen(streams)
