"""How a host thread waits for streams, and how it learns of what failed on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .failures import CallFailure, RuntimeLayerError
from .findings import HazardError

if TYPE_CHECKING:
    from .machine import Machine
    from .stream import Stream

STREAM_TIMEOUT = 507046
STREAM_ABORTED = 107023


def wait_for_streams(machine: Machine, streams: Iterable[Stream], timeout: float | None) -> None:
    """Wait until everything queued so far on these streams is finished.

    Raises what failed on them: once, as the library does. 507046 when `timeout` (milliseconds) runs out, 107023 when
    a stream is aborted meanwhile.
    """
    waited = list(streams)
    for stream in waited:
        if stream.context.device.lost:
            raise stream.context.device.gone()
    if not any(stream.pending or stream.failure for stream in waited):
        if machine.hazards is not None:
            for stream in waited:
                machine.hazards.host_waited(stream)
        return
    marks = [(stream, stream.submitted, stream.aborts) for stream in waited]

    def passed() -> bool:
        return all(stream.completed >= number for stream, number, _ in marks)

    done = machine.scheduler.wait(passed, waited, timeout)
    if done and machine.hazards is not None:
        for stream, number, _ in marks:
            machine.hazards.host_waited(stream, number)
    raise_failure(waited)
    if any(stream.aborts != aborts for stream, _, aborts in marks):
        raise RuntimeLayerError(STREAM_ABORTED, "EE9999", "the stream was aborted while it was waited for")
    if not done:
        raise RuntimeLayerError(STREAM_TIMEOUT, "EE1002", f"stream synchronize timeout after {(timeout or 0):g} ms")


def raise_failure(streams: Iterable[Stream]) -> None:
    """Raise what failed on these streams since the last wait for them, the first one first."""
    failed: list[BaseException] = []
    for stream in streams:
        if stream.failure is not None:
            failed.append(stream.failure)
            stream.failure = None
    if failed:
        failure = failed[0]
        if isinstance(failure, CallFailure):
            # a new object: the same failure may be found by several waits, each with a traceback of its own
            raise RuntimeLayerError(failure.code, failure.message_code, failure.text) from failure.__cause__
        raise failure


def finish_work(machine: Machine, streams: Sequence[Stream]) -> None:
    """Wait for the work of streams that are about to end.

    A hazard that shows then does not keep them, or they would stay for ever: nobody closes a thing twice. It is told
    by `raise_unseen` when they have ended.
    """
    while True:
        try:
            machine.scheduler.wait(lambda: all(stream.idle or not stream.alive for stream in streams), streams)
            return
        except HazardError as hazard:
            if not isinstance(streams[0].failure, HazardError):
                streams[0].failure = hazard


def raise_unseen(streams: Iterable[Stream]) -> None:
    """Raise a hazard, or what a function of the program has raised, on streams that have ended: no wait has told of it.

    (What failed on the device itself the library does not tell there.)
    """
    for stream in streams:
        failure, stream.failure = stream.failure, None
        if failure is not None and not isinstance(failure, CallFailure):
            raise failure
