"""The table of entry points: C name -> what answers it."""
from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, TypeVar

from ..engine.failures import AclLayerError

F = TypeVar("F", bound=Callable[..., Any])


class Answer(NamedTuple):
    """One entry point. `locked`: the dispatcher takes the engine lock for it; `partly`: what it does not do."""

    function: Callable[..., Any]
    locked: bool
    partly: str


ANSWERS: Dict[str, Answer] = {}


def answers(*names: str, locked: bool = True, partly: str = "") -> Callable[[F], F]:
    """Register the decorated function as the answer to these C functions."""
    def register(function: F) -> F:
        for name in names:
            if name in ANSWERS:
                raise ValueError("%s is answered twice: by %r and %r" % (name, ANSWERS[name].function, function))
            ANSWERS[name] = Answer(function, locked, partly)
        return function
    return register


def require(pointer: int, name: str) -> None:
    """A null pointer where the acl layer checks for one: 100000 with EH0002."""
    if not pointer:
        raise AclLayerError(100000, "EH0002", "Argument [%s] must not be null" % name)
