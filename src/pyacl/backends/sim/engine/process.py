"""aclInit and aclFinalize: counting, configuration, registered functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from .failures import AclLayerError

if TYPE_CHECKING:
    from .machine import Machine

# kinds of registered functions that aclInit and aclFinalize run, in their order
MODEL, OP_EXECUTOR, OP_COMPILER, DVPP, OTHER = 0, 1, 3, 6, 65535

Callback = Callable[..., int]


class Registered:
    """Functions registered for one occasion. Each is known by its address, `key`."""

    def __init__(self) -> None:
        self._by_kind: dict[int, list[tuple[int, Callback]]] = {}

    def register(self, kind: int, key: int, callback: Callback) -> None:
        if not key:
            raise AclLayerError(100000)
        registered = self._by_kind.setdefault(kind, [])
        if registered and kind != OTHER:
            raise AclLayerError(500000)
        registered.append((key, callback))

    def remove(self, kind: int, key: int) -> None:
        if not key:
            raise AclLayerError(100000)
        registered = self._by_kind.get(kind, [])
        for index, (known, _) in enumerate(registered):
            if known == key:
                del registered[index]
                return
        raise AclLayerError(500000)

    def of(self, kind: int) -> list[Callback]:
        return [callback for _, callback in self._by_kind.get(kind, [])]


class Process:
    """What the acl layer knows about the process."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.count = 0  # aclInit calls without their aclFinalizeReference
        self.finalized = False
        self.configuration = ""  # text of the latest configuration file
        self.first_configuration: str | None = None  # of the first successful aclInit: later ones must have the same
        self.event_mode: int | None = None  # how captured events work; can be set once
        self.stack_size = 0
        self.at_init = Registered()
        self.at_finalize = Registered()

    def init(self, text: str, steps: list[tuple[int, Callable[[], None]]]) -> None:
        """aclInit with the text of a configuration file ("" for none).

        `steps` applies the parts of the configuration, each before the registered functions of a kind are run (the
        number).
        """
        self.configuration = text
        if self.first_configuration is not None and text != self.first_configuration:
            raise AclLayerError(100000)
        for kind, apply in steps:
            apply()
            if kind >= 0:
                # the library only logs the failure of a function of the kind OTHER
                self._run(self.at_init.of(kind), None if kind == OTHER else "EH9999", text)
        self.finalized = False
        self.count = 1
        if self.first_configuration is None:
            self.first_configuration = text

    def again(self) -> bool:
        """Is this a further aclInit? It is counted."""
        if self.count:
            self.count += 1
        return self.count > 1

    def finalize(self) -> None:
        """aclFinalize: ends whatever the count."""
        if self.finalized:
            raise AclLayerError(100037, "EH9999", "repeatedly finalized")
        self._end()

    def finalize_reference(self) -> None:
        """aclFinalizeReference: the last one ends."""
        if self.count > 1:
            self.count -= 1
        elif self.count == 1:
            self._end()
        else:
            raise AclLayerError(
                100037, "EH9999", "aclFinalizeReference called repeatedly or called without proper aclInit"
            )

    def _end(self) -> None:
        for kind in (OP_COMPILER, MODEL, DVPP):
            self._run(self.at_finalize.of(kind), "EH9999")
        self.machine.default_device = None
        self._run(self.at_finalize.of(OTHER), "EH9999")
        self.finalized = True
        self.count = 0

    def _run(self, callbacks: list[Callback], message_code: str | None, *arguments: Any) -> None:
        for callback in callbacks:
            with self.machine.unlocked():
                code = callback(*arguments)
            if code:
                raise AclLayerError(code, message_code, f"a registered function failed with {code}")
