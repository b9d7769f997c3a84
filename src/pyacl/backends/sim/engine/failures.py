"""How a call fails: in the upper layer, in the runtime layer, or in a way for which the real library has no answer."""

from __future__ import annotations

# For these codes the runtime reports the reason once more, under a message code that comes before an inner error.
_REASONS = {107000: "EE1001", 107002: "EE1001", 207000: "EE1001", 507046: "EE1002"}


class CallFailure(Exception):
    """A call that ends with an error code.

    `message_code` (EH0001, EE1003, ...) and `text` become an entry of the thread's recent error messages; without a
    code there is no entry.
    """

    runtime = False

    def __init__(self, code: int, message_code: str | None = None, text: str = "") -> None:
        super().__init__(code, message_code, text)
        self.code = code
        self.message_code = message_code
        self.text = text


class AclLayerError(CallFailure):
    """Refused by the acl layer (parameter checks): does not become the thread's last error.

    Also what the runtime layer answers on its quiet ways, which leave neither last error nor message.
    """


class RuntimeLayerError(CallFailure):
    """Refused by the runtime layer: becomes the thread's last error.

    `explained` is False on the few ways on which the runtime does not report the reason once more.
    """

    runtime = True

    def __init__(self, code: int, message_code: str | None = None, text: str = "", explained: bool = True) -> None:
        if message_code == "EE9999" and explained:
            message_code = _REASONS.get(code, message_code)
        super().__init__(code, message_code, text)


class UndefinedBehavior(RuntimeError):
    """A call for which the real library would crash, corrupt memory, or read memory that is freed."""


class Deadlock(RuntimeError):
    """A wait that can never end. The text names who waits for what, as a chain or a cycle."""
