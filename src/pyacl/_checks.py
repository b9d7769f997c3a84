"""Numbers that a program gives, checked: the error names the argument."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["whole"]


def whole(name: str, value: Any, what: str = "a whole number") -> int:
    """The value as an int; TypeError for a bool, and for what is no whole number."""
    if isinstance(value, bool):
        raise TypeError(f"{name}: {what}, not a bool")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: {what}, not {type(value).__name__}") from None
