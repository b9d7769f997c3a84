"""Contexts: what streams and events belong to."""
from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Set

from . import places
from .stream import Stream

if TYPE_CHECKING:
    from .device import Device
    from .machine import Machine


class Context:
    """A context of a device; the primary one is made by aclrtSetDevice."""

    def __init__(self, device: Device, primary: bool) -> None:
        self.machine: Machine = device.machine
        self.device = device
        self.primary = primary
        self.place = places.caller()
        self.alive = True
        self.streams: Set[Stream] = set()
        self.parameters: Dict[int, int] = {}     # system parameters of this context (config area)
        self.handle = self.machine.contexts.add(self)
        self.default_stream = Stream(self)

    def live_streams(self) -> Set[Stream]:
        """All streams, the default stream included."""
        return self.streams | {self.default_stream}
