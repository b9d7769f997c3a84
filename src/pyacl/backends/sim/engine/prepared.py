"""Arguments that are prepared over others that still wait for their launch.

The library copies the arguments of a launch out of the program's memory before the launch returns, so that memory is
free again at once. What goes wrong is the other order: two kernels prepared in turn in the same memory, the one buffer
of a thread above all (aclrtKernelArgsInit), and launched afterwards, both with what was prepared last. (Of one and the
same kernel it cannot be told: a handle may well be launched twice.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import places

if TYPE_CHECKING:
    from .arguments import Arguments
    from .program import Function

#: handles that are remembered, and how many of the latest are compared with a new one
MOST_HANDLES = 256
LATEST = 64


class Prepared:
    """One use of a handle: from its initialisation on."""

    __slots__ = ("arguments", "place", "before", "over")

    def __init__(self, arguments: Arguments, before: Prepared | None) -> None:
        self.arguments = arguments
        self.place = places.caller()
        #: what was prepared under the same handle before, until the first launch
        self.before = before
        #: another handle that was prepared in the same memory later
        self.over: Prepared | None = None

    @property
    def name(self) -> str:
        return self.arguments.function.name


class Preparations:
    """The latest uses of handles, by their address."""

    def __init__(self) -> None:
        self._made: dict[int, Prepared] = {}

    def made(self, arguments: Arguments) -> None:
        """A handle is initialised."""
        before = self._made.pop(arguments.address, None)
        if before is not None:
            before.before = None
        made = Prepared(arguments, before)
        start, end = arguments.start, arguments.start + arguments.room
        for other in list(self._made.values())[-LATEST:]:
            if other.arguments.start < end and start < other.arguments.start + other.arguments.room:
                other.over = made
        self._made[arguments.address] = made
        if len(self._made) > MOST_HANDLES:
            del self._made[next(iter(self._made))]

    def launched(self, arguments: Arguments, function: Function) -> tuple[Prepared, Prepared] | None:
        """A launch takes its arguments from a handle; returns what was prepared for it, and what was written over
        it."""
        made = self._made.get(arguments.address)
        if made is None or made.arguments is not arguments:
            return None
        before, made.before = made.before, None
        if before is not None and before.name == function.name != made.name:
            return before, made
        if made.over is not None:
            over, made.over = made.over, None
            return made, over
        return None
