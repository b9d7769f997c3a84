"""Functions of the program that run in the order of a stream: on a thread that asks for them, or on a thread of
the library."""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Callable

from .failures import RuntimeLayerError
from .operation import Operation

if TYPE_CHECKING:
    from .machine import Machine
    from .stream import Stream

Function = Callable[[], Any]
LIBRARY = -1  # in place of a thread: the callbacks of the stream run on the library's own thread
IDLE = 1.0  # seconds after which a library thread without work ends


class HostFunction(Operation):
    """aclrtLaunchHostFunc: runs on the library's thread; the stream goes on when it returns."""

    __slots__ = ("function",)
    elsewhere = True

    def __init__(self, function: Function) -> None:
        super().__init__("aclrtLaunchHostFunc")
        self.function = function

    def start(self, machine: Machine) -> bool:
        if machine.area(LibraryThread).takes(self):
            return False
        with machine.unlocked():
            self.function()
        return True

    def unfinished(self) -> str:
        return "whose function has not returned"


class LibraryThread:
    """The thread that runs host functions, one after the other. It is made when needed and ends when idle."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._work: queue.Queue[HostFunction] = queue.Queue()
        self._thread: threading.Thread | None = None

    def takes(self, operation: HostFunction) -> bool:
        """Let the thread run it. False when there is none: an interpreter that shuts down starts no more threads."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="pyacl-sim-host-functions", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        self.machine.scheduler.busy += 1
        self._work.put(operation)
        return True

    def _run(self) -> None:
        machine, ident = self.machine, threading.get_ident()
        machine.scheduler.library_threads.add(ident)
        while True:
            try:
                operation = self._work.get(timeout=IDLE)
            except queue.Empty:
                with machine.lock:
                    if self._work.empty():
                        machine.scheduler.library_threads.discard(ident)
                        self._thread = None
                        return
                continue
            with machine.lock:
                machine.scheduler.doing[ident] = 1
            try:
                operation.function()
            except Exception as failure:
                operation.failure = failure
            with machine.lock:
                del machine.scheduler.doing[ident]
                machine.scheduler.busy -= 1
                machine.scheduler.finish(operation)


class ReportedCallback(Operation):
    """aclrtLaunchCallback: runs on the thread that processes the reports of the stream."""

    __slots__ = ("function", "blocks")

    def __init__(self, function: Function, blocks: bool) -> None:
        super().__init__("aclrtLaunchCallback")
        self.function = function
        self.blocks = blocks

    def start(self, machine: Machine) -> bool:
        assert self.stream is not None
        machine.area(Reports).put(self.stream, self)
        return not self.blocks

    def unfinished(self) -> str:
        return "which waits for the subscribed thread to call aclrtProcessReport"


class Reports:
    """Which thread processes the callbacks of which stream, and what waits for it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.streams: dict[int, list[Stream]] = {}  # by thread
        self.waiting: dict[int, deque[ReportedCallback]] = {}

    def subscribe(self, thread: int, stream: Stream) -> None:
        if stream.report_thread is not None:
            raise RuntimeLayerError(107011, "EE9999", f"Stream is exist in stream map, streamId={stream.number}")
        subscribed = self.streams.get(thread)
        if subscribed and subscribed[0].context.device is not stream.context.device:
            raise RuntimeLayerError(107012, "EE9999", "the thread is subscribed to streams of another device")
        stream.report_thread = thread
        self.streams.setdefault(thread, []).append(stream)
        self.waiting.setdefault(thread, deque())

    def unsubscribe(self, thread: int, stream: Stream) -> None:
        if stream.report_thread is None:
            raise RuntimeLayerError(107011, "EE9999", f"Stream is not exist in stream map, streamId={stream.number}")
        if stream.report_thread != thread:
            raise RuntimeLayerError(107012, "EE9999", f"Stream is not exist in thread map, streamId={stream.number}")
        stream.report_thread = None
        self.streams[thread].remove(stream)
        if not self.streams[thread]:
            del self.streams[thread]

    def put(self, stream: Stream, operation: ReportedCallback) -> None:
        """A callback is due."""
        if stream.report_thread is not None:
            self.waiting.setdefault(stream.report_thread, deque()).append(operation)
            self.machine.scheduler.notify()

    def process(self, timeout: float | None) -> None:
        """Wait for callbacks of the calling thread's streams, and run those that are due."""
        thread = threading.get_ident()
        if thread not in self.streams:
            raise RuntimeLayerError(107012)
        due = self.waiting[thread]
        machine = self.machine
        if self.streams[thread][0].context.device.primary is None:
            machine.current_context()  # the call needs a context for its device, whichever
        if not machine.scheduler.wait(lambda: bool(due), self.streams[thread], timeout):
            raise RuntimeLayerError(507012)
        for _ in range(len(due)):
            operation = due.popleft()
            with machine.unlocked():
                operation.function()
            if operation.blocks:
                machine.scheduler.finish(operation)
