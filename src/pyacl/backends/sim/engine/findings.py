"""What the hazard checker finds, in words: two calls, the bytes they meet in, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from . import places

NOT_WAITED_FOR = "not-waited-for"
UNORDERED = "unordered"
FREED_IN_USE = "freed-in-use"
PINNED_CHANGED = "pinned-changed"
WAITED_BEFORE_RECORD = "waited-before-record"
ARGUMENTS_REWRITTEN = "arguments-rewritten"
UNINITIALIZED_READ = "uninitialized-read"
OUT_OF_BOUNDS = "out-of-bounds"

_HEADLINES = {
    NOT_WAITED_FOR: "the host does not wait for work on the same memory",
    UNORDERED: "nothing orders two streams that use the same memory",
    FREED_IN_USE: "memory is freed while it is in use",
    PINNED_CHANGED: "pinned memory changes while a copy needs it",
    WAITED_BEFORE_RECORD: "a stream waits for an event that nobody has recorded",
    ARGUMENTS_REWRITTEN: "the arguments of a launch are overwritten",
    UNINITIALIZED_READ: "a kernel reads memory that nobody has written",
    OUT_OF_BOUNDS: "a kernel goes beyond its memory",
}

_ADVICE = {
    NOT_WAITED_FOR: "wait for the stream in between (aclrtSynchronizeStream, stream.synchronize()), or for an event "
    "that is recorded behind the work (aclrtSynchronizeEvent, event.synchronize())",
    UNORDERED: "record an event behind the first (aclrtRecordEvent, stream.record(event)) and let the second stream "
    "wait for it (aclrtStreamWaitEvent, stream.wait(event)), or put both on one stream",
    FREED_IN_USE: "wait for the stream before the memory is freed (aclrtSynchronizeStream, stream.synchronize())",
    PINNED_CHANGED: "wait for the stream, or for an event behind the copy, before the memory is changed or read; or "
    "take turns with a second buffer",
    WAITED_BEFORE_RECORD: "record the event first (aclrtRecordEvent, stream.record(event)); a wait that comes before "
    "it orders nothing",
    ARGUMENTS_REWRITTEN: "give each launch argument memory of its own, or finish one launch before the next is "
    "prepared in the same memory",
    UNINITIALIZED_READ: "copy to it or fill it first (aclrtMemcpy, aclrtMemset, device.zeros(...)), or order the "
    "kernel behind what writes it",
    OUT_OF_BOUNDS: "compare the lengths that the kernel is given with the memory behind its pointers",
}


class Party(NamedTuple):
    """One of the two that a hazard is between.

    Attributes
    ----------
    call : str
        The C function, with the kernel where it launches one.
    place : tuple of str and int, or None
        File and line of the call in the program.
    does : str
        What it does to the memory, such as "writes".
    where : str
        "the host", or a stream.
    """

    call: str
    place: places.Place
    does: str = ""
    where: str = ""

    def __str__(self) -> str:
        on = f", on {self.where}" if self.where else ""
        return f"{self.call} {self.does}{on}: {places.describe(self.place)}"


@dataclass(frozen=True)
class Hazard:
    """Something that hardware may do wrong without a word.

    Attributes
    ----------
    kind : str
        "not-waited-for", "unordered", "freed-in-use", "pinned-changed", "waited-before-record",
        "arguments-rewritten", "uninitialized-read" or "out-of-bounds".
    first, second : Party
        The two calls, in the order of the program.
    address, nbytes : int
        The bytes they meet in; 0 where it is about no memory.
    memory : str
        The allocation, and the line that made it.
    detail : str
        More about it.
    """

    kind: str
    first: Party
    second: Party
    address: int = 0
    nbytes: int = 0
    memory: str = ""
    detail: str = ""

    @property
    def advice(self) -> str:
        """What would mend the program."""
        return _ADVICE[self.kind]

    def __str__(self) -> str:
        lines = [f"{_HEADLINES[self.kind]} ({self.kind})", f"  first:  {self.first}", f"  then:   {self.second}"]
        if self.nbytes:
            lines.append(f"  bytes:  {self.nbytes} at 0x{self.address:x}")
        if self.memory:
            lines.append(f"  memory: {self.memory}")
        if self.detail:
            lines.append(f"  {self.detail}")
        lines.append(f"  next step: {self.advice}")
        return "\n".join(lines)


class HazardError(RuntimeError):
    """What ``hazards="raise"`` raises, at the call that completes the hazard. `hazard` says what was found."""

    def __init__(self, hazard: Hazard) -> None:
        super().__init__(str(hazard))
        self.hazard = hazard


class HazardWarning(RuntimeWarning):
    """What ``hazards="warn"`` warns of. `hazard` says what was found."""

    def __init__(self, hazard: Hazard) -> None:
        super().__init__(str(hazard))
        self.hazard = hazard
