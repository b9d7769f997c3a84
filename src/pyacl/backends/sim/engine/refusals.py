"""The ways in which the library refuses a call, with the code and message code that belong to each."""

from __future__ import annotations

from typing import Optional

from .failures import AclLayerError, RuntimeLayerError

INVALID_PARAM = 100000
PARAM_INVALID = 107000
NOT_SUPPORTED = 207000
MOST_BYTES = 0x7FFF_FFFF  # that the safe copy functions of C, which the library uses, take for a length


# ---- the acl layer: none of these becomes the thread's last error


def bad_value(value: object, name: str, reason: str) -> AclLayerError:
    """100000 with EH0001."""
    return AclLayerError(INVALID_PARAM, "EH0001", f"The value {value} of the argument [{name}] is invalid: {reason}")


def inner(text: str, code: int = INVALID_PARAM) -> AclLayerError:
    """100000 with EH9999: a check of the acl layer that reports an inner error."""
    return AclLayerError(code, "EH9999", text)


def inner_null(name: str) -> AclLayerError:
    """A null pointer where the acl layer reports it as an inner error."""
    return inner(f"The argument [{name}] must not be null")


def silent(code: int = INVALID_PARAM) -> AclLayerError:
    """A code without a message that does not become the last error either."""
    return AclLayerError(code)


# ---- the runtime layer: all of these become the thread's last error


def out_of_range(value: object, name: str, expected: str) -> RuntimeLayerError:
    """107000 with EE1003."""
    return RuntimeLayerError(
        PARAM_INVALID, "EE1003", f"The value {value} of the parameter {name} is invalid. Expected value: {expected}"
    )


def null(name: str) -> RuntimeLayerError:
    """A null pointer where the runtime layer checks for one: 107000 with EE1004."""
    return RuntimeLayerError(PARAM_INVALID, "EE1004", f"The argument {name} is a null pointer")


def invalid(text: str) -> RuntimeLayerError:
    """107000 with EE1001."""
    return RuntimeLayerError(PARAM_INVALID, "EE1001", text)


def unsupported(text: str, message_code: Optional[str] = "EE1001") -> RuntimeLayerError:
    """207000, known to the last error."""
    return RuntimeLayerError(NOT_SUPPORTED, message_code, text)


def driver(text: str, code: int = PARAM_INVALID) -> RuntimeLayerError:
    """What the driver refuses: EE9999."""
    return RuntimeLayerError(code, "EE9999", text)


def wrong_context(what: str) -> RuntimeLayerError:
    """107003: the stream belongs to another context than the thread's."""
    return RuntimeLayerError(107003, "EE9999", f"{what}: the stream is not in the current context")


def bad_device(device: int, count: int) -> RuntimeLayerError:
    """107001 with EE1003."""
    return RuntimeLayerError(
        107001, "EE1003", f"The value {device} of the parameter devId is invalid. Expected value: [0, {count})"
    )
