"""Places in the user's program: the nearest caller outside this package, as (file, line)."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from typing import Optional

Place = Optional[tuple[str, int]]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))) + os.sep

_OURS = (
    _PACKAGE,
    "<pyacl.",  # the checked functions of raw.Api are compiled from text under such a name
    # through these pyacl calls itself
    contextlib.contextmanager.__code__.co_filename,
    weakref.finalize.__call__.__code__.co_filename,
)
_known: dict[str, bool] = {}  # is a file ours?


def caller() -> Place:
    """The file and line of the innermost frame that is not part of pyacl (cheap: nothing is kept alive)."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        ours = _known.get(name)
        if ours is None:
            ours = _known[name] = name.startswith(_OURS)
        if not ours:
            return name, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


def describe(place: Place) -> str:
    """`file:line`, for messages."""
    return "an unknown place" if place is None else f"{place[0]}:{place[1]}"
