"""The table of entry points: C name -> what answers it."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, TypeVar

from ..engine.failures import AclLayerError, RuntimeLayerError

F = TypeVar("F", bound=Callable[..., Any])


class Answer(NamedTuple):
    """One entry point.

    `locked`: the dispatcher takes the engine lock for it; `required`: (position, name) of the pointers that must not
    be null, checked first; `partly`: what it does not do.
    """

    function: Callable[..., Any]
    locked: bool
    required: tuple[tuple[int, str], ...]
    partly: str


ANSWERS: dict[str, Answer] = {}


def answers(*names: str, required: str = "", locked: bool = True, partly: str = "") -> Callable[[F], F]:
    """Register the decorated function as the answer to these C functions.

    Parameters
    ----------
    required : names of the parameters, separated by blanks, that the acl layer refuses as null (100000, EH0002)
    locked : False for a function that needs no engine state, or takes the lock itself
    partly : what is left out, for the generated table
    """

    def register(function: F) -> F:
        parameters = function.__code__.co_varnames[1 : function.__code__.co_argcount]
        positions = tuple((parameters.index(name), name) for name in required.split())
        for name in names:
            if name in ANSWERS:
                raise ValueError(f"{name} is answered twice: by {ANSWERS[name].function!r} and {function!r}")
            ANSWERS[name] = Answer(function, locked, positions, partly)
        return function

    return register


def find_answer(name: str, group: str) -> Answer | None:
    """The entry point for a C function of a group of the API table, None if nobody answers it."""
    from . import load_areas

    if name not in ANSWERS:
        load_areas(group)
    if name not in ANSWERS:
        load_areas()
    return ANSWERS.get(name)


def null_pointer(name: str) -> AclLayerError:
    """What the acl layer answers to a null pointer: 100000 with EH0002."""
    return AclLayerError(100000, "EH0002", f"Argument [{name}] must not be null")


def require(pointer: int, name: str) -> None:
    """A null pointer where the acl layer checks for one (after other checks; else say it with
    `answers(required=...)`)."""
    if not pointer:
        raise null_pointer(name)


def runtime_require(pointer: int, name: str) -> None:
    """A null pointer where the runtime layer checks for one: 107000 with EE1004."""
    if not pointer:
        raise RuntimeLayerError(107000, "EE1004", f"The argument {name} is a null pointer")
