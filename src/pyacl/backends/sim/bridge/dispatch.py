"""One entry point made into the callable behind a C address: lock, failures into codes, messages and last errors."""

from __future__ import annotations

from typing import Any, Callable

from ..engine.failures import CallFailure
from ..engine.machine import Machine
from .registry import find_answer, null_pointer

# what the runtime layer answers for a feature that a chip or a release does not have
NOT_SUPPORTED = 207000


def make_callable(machine: Machine, name: str, group: str, returns_code: bool = True) -> Callable[..., Any]:
    """The callable for a C function: called with the C arguments, returns what C gets.

    Parameters
    ----------
    group : its group in the API table
    returns_code : the C function returns aclError or rtError_t; the others answer a failure with 0 or a null pointer
    """
    answer = find_answer(name, group)
    if answer is None:
        return _not_simulated(machine, name, returns_code)
    function, lock, required = answer.function, machine.lock, answer.required

    # three ways of the same call: this is the path of every simulated call, and each step on it costs
    def call(*args: Any) -> Any:
        try:
            with lock:
                result = function(machine, *args)
        except CallFailure as failure:
            return failed(machine, name, failure, returns_code)
        return 0 if result is None else result

    def checked_call(*args: Any) -> Any:
        for position, parameter in required:
            if not args[position]:
                return failed(machine, name, null_pointer(parameter), returns_code)
        try:
            with lock:
                result = function(machine, *args)
        except CallFailure as failure:
            return failed(machine, name, failure, returns_code)
        return 0 if result is None else result

    def call_without_lock(*args: Any) -> Any:
        try:
            for position, parameter in required:
                if not args[position]:
                    raise null_pointer(parameter)
            result = function(machine, *args)
        except CallFailure as failure:
            return failed(machine, name, failure, returns_code)
        return 0 if result is None else result

    if not answer.locked:
        return call_without_lock
    return checked_call if required else call


def failed(machine: Machine, name: str, failure: CallFailure, returns_code: bool) -> int:
    """Note the failure of a call as the library does, and return what C gets."""
    if failure.message_code is not None:
        machine.messages().append((failure.message_code, f"{name} failed: {failure.text}"))
    if failure.runtime:
        machine.thread.last_error = failure.code
        context = machine.find_context()
        if context is not None:
            context.last_error = failure.code
    return failure.code if returns_code else 0


def _not_simulated(machine: Machine, name: str, returns_code: bool) -> Callable[..., Any]:
    def call(*args: Any) -> int:
        return NOT_SUPPORTED if returns_code else 0

    return call
