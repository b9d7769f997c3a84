"""Python functions as C addresses, and how an exception in one of them reaches the Python caller."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable

from pyacl.raw.prototypes import thunk_prototype
from pyacl.raw.table import Function

#: what C receives when the Python function behind an address raised: no code of the library, and not success
SENTINEL = -0x50C0DE

_pending = threading.local()
_NOTHING = ("", None)


class Thunk:
    """A Python function with an address that C can call; keep it alive as long as the address is in use.

    Parameters
    ----------
    row
        The row of the API table: it decides the widths of the arguments, for caller and callee alike.
    function
        Gets pointers as int (0 for NULL), numbers as int or float, structures by value as their ctypes class.
    """

    def __init__(self, row: Function, function: Callable[..., Any]) -> None:
        failure = SENTINEL if row.returns in ("aclError", "rtError_t", "int", "int32_t") else 0

        def trampoline(*arguments: Any) -> Any:
            # an exception that leaves a callback reaches C as an undefined number, 0 among them
            try:
                return function(*arguments)
            except BaseException as error:
                keep(error, row.name)
                return failure

        def replace(other: Callable[..., Any]) -> None:
            nonlocal function
            function = other

        #: put another function behind the address
        self.replace = replace
        self._code = thunk_prototype(row)(trampoline)
        #: where C finds it
        self.address = ctypes.cast(self._code, ctypes.c_void_p).value or 0


def keep(error: BaseException, function: str = "") -> None:
    """Keep an exception of this thread, of the C function `function`, for the Python caller on the other side of C."""
    _pending.error = function, error


def take_pending() -> BaseException | None:
    """The exception that a thunk raised on this thread since the last call of this function."""
    return _take()[1]


def raise_pending(function: str = "") -> None:
    """Raise the exception that a thunk kept on this thread, with its traceback; return if there is none.

    With the name of a C function an exception of another one is dropped: the caller of its `unchecked` form has seen
    its result, and it must not turn up as the reason of a later failure.
    """
    owner, error = _take()
    if error is not None and function in ("", owner):
        raise error


def _take() -> tuple[str, BaseException | None]:
    found: tuple[str, BaseException | None] = getattr(_pending, "error", _NOTHING)
    _pending.error = _NOTHING
    return found
