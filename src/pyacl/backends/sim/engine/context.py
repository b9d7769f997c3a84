"""Contexts: what streams belong to, and what a thread works in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import places
from .failures import RuntimeLayerError
from .stream import NOT_SYNCHRONIZED, Stream
from .waiting import finish_work, wait_for_streams

if TYPE_CHECKING:
    from .device import Device
    from .machine import Machine

DEFAULT_STREAM_FLAGS = 0x3  # as the library reports the default stream: fast launch, fast sync


class Context:
    """A context of a device; the primary one is made by aclrtSetDevice."""

    def __init__(self, device: Device, primary: bool) -> None:
        self.machine: Machine = device.machine
        self.device = device
        self.primary = primary
        self.place = places.caller()
        self.alive = True
        self.streams: set[Stream] = set()  # made by the program; the default stream is not among them
        self.parameters: dict[int, int] = {}  # system parameters of this context
        self.last_error = 0
        self.overflow_address = 0  # device memory of its overflow status, once somebody asked for it
        self.failure: BaseException | None = None  # stops all streams of the context (failure mode 1)
        self.handle = self.machine.contexts.add(self)
        self.default_stream = Stream(self, DEFAULT_STREAM_FLAGS)

    def live_streams(self) -> set[Stream]:
        """All streams, the default stream included."""
        return self.streams | {self.default_stream}

    def synchronize(self, timeout: float | None) -> None:
        """Wait for all streams of the context, at most `timeout` milliseconds."""
        streams = [
            stream
            for stream in sorted(self.live_streams(), key=lambda stream: stream.number)
            if not stream.flags & NOT_SYNCHRONIZED
        ]
        for stream in streams:
            if stream.recorder is not None:
                raise RuntimeLayerError(
                    107027, "EE9999", f"Not allow to synchronize captured-stream, stream_id={stream.number}"
                )
        wait_for_streams(self.machine, streams, timeout)

    def tear_down(self, force: bool = False) -> list[Stream]:
        """Wait for the work (or drop it), end the streams, and the context with them. Returns the streams."""
        machine = self.machine
        streams = sorted(self.live_streams(), key=lambda stream: stream.number)
        if not force:
            finish_work(machine, streams)
        told = [] if self.primary else [self.default_stream]  # that of the primary context was told of before
        for stream in told + [stream for stream in streams if stream is not self.default_stream] + told:
            stream.announce_end()
        for stream in streams:
            stream.end()
        self.alive = False
        machine.contexts.remove(self.handle)
        thread = machine.thread
        if thread.context is self:
            thread.context = None
        return streams
