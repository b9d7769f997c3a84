"""What can go wrong, as exceptions: what a code means, what probably caused it and what to do about it.

One class per family that a program would catch. Nothing here calls C; texts are put together when somebody reads them.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

__all__ = [
    "AclAiCoreError",
    "AclAiCpuError",
    "AclCaptureError",
    "AclContextError",
    "AclDeviceFaultError",
    "AclError",
    "AclEventError",
    "AclInitializationError",
    "AclInvalidArgumentError",
    "AclInvalidDeviceError",
    "AclLibraryError",
    "AclMemoryError",
    "AclNotInitializedError",
    "AclNotSupportedError",
    "AclResourceError",
    "AclStreamError",
    "AclTimeoutError",
    "ClosedError",
    "ForkedError",
    "LibraryNotFoundError",
    "MissingFunctionError",
    "error_class",
    "make_error",
]


class AclError(RuntimeError):
    """A call of the Runtime API failed, or pyacl refused to make it.

    Parameters
    ----------
    code : int or None
        The aclError (or rtError_t) the C function returned; None when pyacl refused and no C function was called.
    function : str
        Name of the C function.
    message : str
        A short text about this failure. Left out, it is taken from `raw_text`.
    raw_text : str
        What aclGetRecentErrMsg returned on the failing thread, untouched.
    """

    codes: ClassVar[frozenset[int]] = frozenset()
    sticky: ClassVar[bool] = False
    """True when the device, not only the call, is broken: further work on it fails or hangs until it is reset."""

    def __init__(self, code: int | None = None, function: str = "", message: str = "", *, raw_text: str = "") -> None:
        super().__init__(code, function, message)
        self.code = code
        self.function = function
        self.raw_text = raw_text
        self._message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)

    @property
    def message(self) -> str:
        """What the library said, without the process id, the time and the places in its source; may be empty."""
        return self._message or str(self._text.headline)

    @property
    def name(self) -> str:
        """Symbolic name of the code, such as ACL_ERROR_RT_PARAM_INVALID; "UNKNOWN" for a code nobody knows."""
        return str(self._entry.get("name", "UNKNOWN")) if self.code is not None else ""

    @property
    def meaning(self) -> str:
        """One sentence about the code."""
        if self.code is None:
            return ""
        if self._entry:
            return str(self._entry["meaning"])
        return f"Not a code of any CANN version pyacl knows{_CATEGORY_HINTS.get(self.category, '')}."

    @property
    def category(self) -> str:
        """By the first digit of the code: "usage", "resource", "service", "internal" or "unknown"."""
        if self.code is None:
            return "usage"
        return _CATEGORIES.get(self.code // 100000, "unknown")

    @property
    def cause(self) -> str:
        """The likely cause, or an empty string."""
        return str(self._entry.get("cause", ""))

    @property
    def next_step(self) -> str:
        """What to try next."""
        if self.code is None:
            return ""
        return str(self._entry.get("next_step", "Look the number up in the aclError page of the CANN that is loaded."))

    @property
    def message_code(self) -> str:
        """The library's own message code, such as EE1003; empty when there is none."""
        return str(self._text.code)

    @property
    def facts(self) -> dict[str, Any]:
        """Everything recognised in the library's text: ids, kernel name, core, parameter, value, expected range."""
        return dict(self._text.facts)

    @property
    def device_id(self) -> int | None:
        """The device the library's text names."""
        return self._number("device_id")

    @property
    def stream_id(self) -> int | None:
        """The stream the library's text names."""
        return self._number("stream_id")

    @property
    def task_id(self) -> int | None:
        """The task the library's text names."""
        return self._number("task_id")

    @property
    def kernel_name(self) -> str | None:
        """The kernel the library's text blames."""
        return self._string("kernel_name")

    def __str__(self) -> str:
        if self.code is None:
            head = self.message or type(self).__name__
            return _sentences(head, _label("Next step", self.next_step))
        who = self.function or "The call"
        named = f" ({self.name})" if self._entry else ""
        return _sentences(
            f"{who} failed with {self.code}{named}: {self.meaning}",
            _label("The library says", self.message),
            self._where(),
            _label("Likely cause", self.cause),
            _label("Next step", self.next_step),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(code={self.code}, function={self.function!r}, message={self.message!r})"

    def _where(self) -> str:
        facts = self._text.facts
        said = [
            f"{label} {facts[key]}"
            for key, label in (
                ("kernel_name", "kernel"),
                ("device_id", "device"),
                ("stream_id", "stream"),
                ("task_id", "task"),
                ("core_type", "core type"),
                ("core_id", "core"),
            )
            if key in facts and str(facts[key]) not in self.message
        ]
        return f"Where: {', '.join(said)}." if said else ""

    def _number(self, fact: str) -> int | None:
        number: int | None = self._text.facts.get(fact)
        return number

    def _string(self, fact: str) -> str | None:
        string: str | None = self._text.facts.get(fact)
        return string

    @property
    def _entry(self) -> dict[str, Any]:
        return _table().get(str(self.code), {})

    @functools.cached_property
    def _text(self) -> Any:
        from pyacl import _error_text

        return _error_text.parse(self.raw_text)


class AclInitializationError(AclError):
    """aclInit or aclFinalize was called once too often (100002, 100037)."""

    codes = frozenset({100002, 100037, 145009, 207015})


class AclNotInitializedError(AclInitializationError):
    """Something was used before it was initialised."""

    codes = frozenset({100001, 100043, 100045, 145001})


class AclInvalidArgumentError(AclError, ValueError):
    """The library refused an argument. `parameter`, `value` and `expected` say which, where its text names them."""

    codes = frozenset(
        {100000, 107000, 145000, 107005, 107008, 107009, 107010, 107016, 107017, 107018, 107039, 107042, 107043, 107044}
        | {200003, 200005, 507038, 507039, 507040, 507041, 507910, 507911}
        | set(range(100003, 100033)) - {100026}
        | {148048, 148049, 145002, 145003, 145006, 145007, 145008}
        | set(range(145011, 145023))
    )

    @property
    def parameter(self) -> str | None:
        """Name of the refused parameter."""
        return self._string("parameter")

    @property
    def value(self) -> str | None:
        """The refused value, as the library printed it."""
        return self._string("value")

    @property
    def expected(self) -> str | None:
        """What the library would have accepted, in its words."""
        return self._string("expected")


class AclInvalidDeviceError(AclInvalidArgumentError):
    """There is no device of this number."""

    codes = frozenset({107001, 200002, 207004})

    @property
    def next_step(self) -> str:
        visible = os.environ.get("ASCEND_RT_VISIBLE_DEVICES")
        if visible is None:
            said = "ASCEND_RT_VISIBLE_DEVICES is not set."
        else:
            said = f"ASCEND_RT_VISIBLE_DEVICES is {visible!r}: ids count from 0 within that list."
        return f"{super().next_step or 'Take a number that exists; pyacl info lists them.'} {said}"


class AclContextError(AclError):
    """The calling thread has no context, or has the wrong one. `thread` is the name of that thread."""

    codes = frozenset({107002, 107004, 507007, 507031, 200004})

    def __init__(self, code: int | None = None, function: str = "", message: str = "", *, raw_text: str = "") -> None:
        super().__init__(code, function, message, raw_text=raw_text)
        self.thread = threading.current_thread().name

    def _where(self) -> str:
        return f"Thread: {self.thread}. {super()._where()}".rstrip()


class AclStreamError(AclError):
    """A stream is of another context, destroyed, full, being cleared, or has no subscription."""

    codes = frozenset(
        {100033, 100034, 100035, 107003, 107011, 107012, 107015, 107022, 107023, 107035, 507002, 507003, 507004}
    )


class AclCaptureError(AclStreamError):
    """A call that a stream capture forbids, or capture calls that do not match."""

    codes = frozenset(set(range(107024, 107035)) | {107036, 107037, 107038, 107040, 107041, 107045, 507903})


class AclEventError(AclError):
    """An event has no time, or is not complete."""

    codes = frozenset({107006, 107007, 507006})


class AclMemoryError(AclError, MemoryError):
    """Device memory or page-locked host memory ran out.

    `requested`, `free` and `total` are byte counts where the caller knows them, else None.
    """

    codes = frozenset({200000, 207001, 207018, 245000, 245002})

    requested: int | None = None
    free: int | None = None
    total: int | None = None

    def _where(self) -> str:
        said = [
            f"{label} {value} bytes"
            for label, value in (("requested", self.requested), ("free", self.free), ("total", self.total))
            if value is not None
        ]
        sizes = f"Memory: {', '.join(said)}." if said else ""
        return f"{sizes} {super()._where()}".strip()


class AclResourceError(AclError):
    """Streams, events, notifies, models, queues or another limited thing ran out."""

    codes = frozenset({207005, 207007, 207008, 207009, 207010, 207011, 207012, 207013, 207014, 300000, 507032})


class AclTimeoutError(AclError, TimeoutError):
    """A wait ended before the work did. The work is still pending; waiting again is allowed."""

    codes = frozenset({100036, 107019, 107020, 207020, 507012, 507046, 507047, 507905, 545601})


class AclNotSupportedError(AclError):
    """The device, the driver or this CANN version cannot do it."""

    codes = frozenset({100026, 148050, 148052, 200001, 200006, 200007, 207000, 207019, 207021, 507009})


class AclDeviceFaultError(AclError):
    """The device broke while it worked. The library reports it once, at the synchronizing call, and then forgets it."""

    codes = frozenset(
        {507001, 507010, 507011, 507013, 507053, 507054, 507055, 507056, 507057, 507901, 507914, 507915, 507916}
    )
    sticky = True

    @property
    def core_id(self) -> int | None:
        """The core that failed."""
        return self._number("core_id")

    @property
    def error_string(self) -> str | None:
        """The hardware's reason, such as "The DDR address of the MTE instruction is out of range"."""
        return self._string("error_string")


class AclAiCoreError(AclDeviceFaultError):
    """A kernel failed or hung on an AI Core, cube or vector."""

    codes = frozenset(
        {507014, 507015, 507016, 507034, 507035, 507036, 507042, 507043, 507044, 507045, 507048, 507049, 507050}
    )


class AclAiCpuError(AclDeviceFaultError):
    """A task failed or hung on an AI CPU."""

    codes = frozenset({507017, 507018, 507019, 507020, 507900, 507902})


class AclLibraryError(AclError, OSError):
    """The library that was loaded cannot do the work: it is a link-time stub (100039)."""

    codes = frozenset({100039})


class _Refusal(AclError):
    """A failure that pyacl itself found: there is a message, and no code of the library."""

    def __init__(self, message: str = "", function: str = "", *, next_step: str = "") -> None:
        super().__init__(None, function, message)
        self._next_step = next_step

    @property
    def next_step(self) -> str:
        return self._next_step


class LibraryNotFoundError(_Refusal, AclLibraryError):
    """CANN's libraries were not found, or cannot be loaded. The message lists what was looked for, and where.

    `attempts` has the same as a list of `pyacl.backends.library.Attempt`.
    """

    attempts: Sequence[Any] = ()


class MissingFunctionError(_Refusal, AclNotSupportedError):
    """The loaded CANN version does not have this function."""

    def __init__(self, function: str = "", message: str = "", *, next_step: str = "") -> None:
        super().__init__(message, function, next_step=next_step)


class ClosedError(_Refusal, ValueError):
    """An object was used after it was closed."""


class ForkedError(ClosedError):
    """An object made before a fork was used in the child. CANN does not survive that: use the "spawn" start method."""


def error_class(code: int) -> type[AclError]:
    """The class for a code; AclError itself for one that belongs to no family, known or not."""
    return _classes().get(code, AclError)


def make_error(code: int, function: str = "", text: str = "") -> AclError:
    """The exception for a failed call.

    Parameters
    ----------
    code : int
        What the C function returned.
    function : str
        Its name.
    text : str
        What aclGetRecentErrMsg gave on the failing thread right afterwards; may be empty.
    """
    error = error_class(code)(code, function, raw_text=text)
    # Running out of memory is reported under several codes; the driver's message code tells them apart. A text may end
    # with what earlier failures left, hence the second look.
    if "EL0004" in text and error.message_code == "EL0004" and not isinstance(error, AclMemoryError):
        return AclMemoryError(code, function, raw_text=text)
    return error


_CATEGORIES = {1: "usage", 2: "resource", 3: "service", 5: "internal"}
_CATEGORY_HINTS = {
    "usage": " (1xxxxx: wrong use or environment)",
    "resource": " (2xxxxx: something ran out, or is not supported)",
    "service": " (3xxxxx: a state that may pass)",
    "internal": " (5xxxxx: an internal or device fault)",
}


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    """error_codes.json, made by tools/generate_error_codes.py; read at the first failure."""
    import json
    import pkgutil

    data = pkgutil.get_data("pyacl", "error_codes.json")
    assert data is not None
    table: dict[str, dict[str, Any]] = json.loads(data)
    return table


@functools.cache
def _classes() -> dict[int, type[AclError]]:
    found: dict[int, type[AclError]] = {}
    waiting: list[type[AclError]] = [AclError]
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        # Only what the class itself names: subclasses inherit the attribute.
        for code in kind.__dict__.get("codes", ()):
            found[code] = kind
    return found


def _restore(kind: type[AclError], args: tuple[Any, ...], state: dict[str, Any]) -> AclError:
    error = kind()
    error.args = args
    error.__dict__.update(state)
    return error


def _label(label: str, text: str) -> str:
    return f"{label}: {text}" if text else ""


def _sentences(*parts: str) -> str:
    text = ""
    for part in filter(None, parts):
        text += f"{'' if not text or text.endswith(chr(10)) else ' '}{part}"
        text += "" if text.endswith((".", "!", "?", "\n")) else "."
    return text
