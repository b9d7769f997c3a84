"""Functions of the program that are told when a device or a stream comes or goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from .failures import RuntimeLayerError

if TYPE_CHECKING:
    from .machine import Machine

# states of a device and of a stream, as the C enums number them
SET_PRE, SET_POST, RESET_PRE, RESET_POST = 0, 1, 2, 3
CREATED, DESTROYING = 1, 2

Callback = Callable[..., Any]


class Observers:
    """Named callbacks of one kind. They run without the engine lock, in the order of their names."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.callbacks: dict[str, Callback] = {}

    def register(self, name: str, callback: Callback, replace: bool = False) -> None:
        """A name that is taken is refused, unless the older function is used, which replaces."""
        if name in self.callbacks and not replace:
            raise RuntimeLayerError(107000, "EE1001", f"regName:{name} has already been registered")
        self.callbacks[name] = callback

    def remove(self, name: str) -> None:
        self.callbacks.pop(name, None)

    def notify(self, *arguments: Any) -> None:
        """Call all of them; what is registered meanwhile is not called."""
        if not self.callbacks:
            return
        called: list[Callback] = [self.callbacks[name] for name in sorted(self.callbacks)]
        with self.machine.unlocked():
            for callback in called:
                callback(*arguments)
