"""A backend that stands before another one and lets one chosen call fail, or raise, without making it."""

from __future__ import annotations

from typing import Any, Callable, Optional

from pyacl.backends.thunks import Thunk
from pyacl.raw.functions import FUNCTIONS
from pyacl.raw.prototypes import thunk_prototype

#: what gives things back: if such a call fails, the thing stays
RELEASES = ("Free", "Destroy", "UnLoad", "Reset", "Finalize")


class FailingBackend:
    """Counts the calls that go to ``inner`` and stops one of them.

    Parameters
    ----------
    inner
        The backend behind it.
    at
        The number of the call, from 0, that is not made; None makes all.
    code
        What that call returns.
    error
        What that call raises instead.
    """

    def __init__(
        self,
        inner: Any,
        at: Optional[int] = None,
        code: int = 507899,
        error: Optional[Callable[[], BaseException]] = None,
    ) -> None:
        self.inner = inner
        self.at = at
        self.code = code
        self.error = error
        #: names of the calls so far
        self.calls: list[str] = []
        self.name, self.version = inner.name, inner.version
        self._thunks: dict[str, Thunk] = {}

    def address(self, name: str) -> Optional[int]:
        """The address of a function that counts and goes on to the other backend's."""
        behind = self.inner.address(name)
        if behind is None:
            return None
        if name not in self._thunks:
            row = FUNCTIONS[name].form(self.version)
            inner = thunk_prototype(row)(behind)

            def call(*arguments: Any) -> Any:
                number = len(self.calls)
                self.calls.append(name)
                if number == self.at and row.returns_status:
                    if self.error is not None:
                        raise self.error()
                    return self.code
                return inner(*arguments)

            self._thunks[name] = Thunk(row, call)
        return self._thunks[name].address

    def close(self) -> None:
        """Nothing of its own."""
