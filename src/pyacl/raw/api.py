"""Api: the C functions of one backend as Python callables, checked and unchecked."""

from __future__ import annotations

import ctypes
import difflib
import functools
import keyword
import re
import threading
from typing import TYPE_CHECKING, Any, Callable

from pyacl.raw.functions import FUNCTIONS, MISSPELT
from pyacl.raw.prototypes import Characters, prototype
from pyacl.raw.table import VERSIONS, Function

if TYPE_CHECKING:
    from pyacl.backends.base import Backend
    from pyacl.raw._signatures import Functions
else:
    Functions = object

__all__ = ["Api", "Unchecked"]


#: code of checked functions, by source: a test run has many sessions
_compiled: dict[str, Any] = {}


class Unchecked(Functions):
    """The bare ctypes functions of a backend: C arguments in, the C result out, nothing looked at.

    A function that the backend lacks raises MissingFunctionError when it is called.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    if not TYPE_CHECKING:  # a type checker knows the functions, and that there are no others

        def __getattr__(self, name):
            return self._api._bind(name, self, self._api._bare)


class Api(Functions):
    """The C functions of one backend.

    ``api.aclrtX(...)`` takes the C function's arguments (an instance of ``T`` passes where C takes ``T *``) and checks
    the result: an error code other than 0 raises `pyacl.AclError`, a function that returns anything else returns that.
    ``api.unchecked.aclrtX(...)`` returns the code.

    Parameters
    ----------
    backend
        Who answers the calls; see `pyacl.raw.load`.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        #: the bare functions
        self.unchecked = Unchecked(self)
        self._addresses: dict[str, int | None] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<pyacl.raw.Api of {self.backend.name}, CANN {self.version or 'unknown'}>"

    @property
    def version(self) -> str | None:
        """The CANN version of the backend as text, such as ``"9.0.0"``; None where the library cannot tell."""
        return self.backend.version

    def has(self, name: str) -> bool:
        """Whether the backend has the C function ``name``. A name that is no C function raises AttributeError."""
        self.row(name)
        return self._address(name) is not None

    def row(self, name: str) -> Function:
        """The row of the API table for a C function, in the declaration of this backend's CANN version.

        Raises
        ------
        AttributeError
            For a name that the table does not have; the message has the real spelling where a page prints it wrongly.
        """
        found = FUNCTIONS.get(name)
        if found is None:
            raise AttributeError(_unknown(name))
        return found.form(self.version) if found.forms else found

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            return self._bind(name, self, self._checked)

    # -- binding: once for each function, under a lock, then an ordinary attribute --------------------------------

    def _bind(self, name: str, owner: object, make: Callable[[str], Any]) -> Any:
        if name not in FUNCTIONS:
            raise AttributeError(_unknown(name))
        with self._lock:
            found = owner.__dict__.get(name)
            if found is None:
                found = make(name)
                setattr(owner, name, found)
            return found

    def _address(self, name: str) -> int | None:
        with self._lock:
            if name not in self._addresses:
                self._addresses[name] = self.backend.address(name)
            return self._addresses[name]

    def _bare(self, name: str) -> Any:
        address = self._address(name)
        row = self.row(name)
        if address is None:
            return _absent(row, self.version, self.backend.name)
        function = prototype(row)(address)
        function.__name__ = name
        return function

    def _checked(self, name: str) -> Any:
        row = self.row(name)
        bare = getattr(self.unchecked, name)
        # two functions of libruntime have a parameter called "in"
        names = [f"{p.name}_" if keyword.iskeyword(p.name) else p.name for p in row.params]
        parameters = ", ".join(names) + (", *variadic" if row.variadic else "")
        call = f"""try:
        _value = _bare({parameters})
    except _ArgumentError as _error:
        raise _refused(_error, [{", ".join(names)}]) from None"""
        if row.returns_status:
            body = f"{call}\n    if _value:\n        _fail(_value, {name!r})\n    return 0"
        else:
            body = f"{call}\n    _raise_pending({name!r})\n    return _value"
        # a function of the C signature costs less than one of *args, counts its arguments, and takes them by name
        source = f"def {name}({parameters}):\n    {body}\n"
        scope: dict[str, Any] = {
            "_bare": bare,
            "_fail": self.fail,
            "_raise_pending": _raise_pending,
            "_ArgumentError": ctypes.ArgumentError,
            "_refused": functools.partial(_refused, row, bare),
        }
        code = _compiled.get(source)
        if code is None:
            code = _compiled[source] = compile(source, f"<pyacl.raw.{name}>", "exec")
        exec(code, scope)
        function = scope[name]
        function.__doc__ = f"``{row.declaration}``, checked. Since CANN {row.since}."
        function.__module__ = "pyacl.raw"
        return function

    def fail(self, code: int, function: str) -> None:
        """Raise the error for a code that ``function`` returned on this thread.

        An exception that a fake backend's Python code raised during the call is raised itself, with its traceback.
        Otherwise the library's own text for the last failure (aclGetRecentErrMsg) goes into the `pyacl.AclError`.
        """
        _raise_pending(function)
        from pyacl.errors import make_error

        raise make_error(code, function, self.recent_message())

    def recent_message(self) -> str:
        """What aclGetRecentErrMsg says on this thread, which also clears it; empty where there is nothing."""
        if self._address("aclGetRecentErrMsg") is None:
            return ""
        text = self.unchecked.aclGetRecentErrMsg()
        _raise_pending("aclGetRecentErrMsg")
        return text.decode("utf-8", "replace") if text else ""


def _raise_pending(function: str) -> None:
    from pyacl.backends.thunks import raise_pending

    raise_pending(function)


def _refused(row: Function, bare: Any, error: ctypes.ArgumentError, given: list[Any]) -> ctypes.ArgumentError:
    """The same error with the parameter's name and what would pass; ctypes says "argument 3: TypeError: wrong type"."""
    found = re.match(r"argument (\d+): (?:<class ')?([\w.]+)(?:'>)?: (.*)", str(error), re.S)
    position = int(found[1]) - 1 if found else -1
    if found is None or not 0 <= position < min(len(given), len(row.params)):
        return error
    parameter, value = row.params[position], given[position]
    where = f"{row.name}: {parameter.name} ({parameter.type})"
    if found[2] != "TypeError":  # a closed object, for instance
        return ctypes.ArgumentError(f"{where}: {found[2]}: {found[3]}")
    wanted = bare.argtypes[position]
    if hasattr(value, "ctypes") and hasattr(value, "dtype"):
        hint = "give its address, array.ctypes.data"
    elif isinstance(value, str) and "char" in parameter.type:
        hint = "give bytes, such as os.fsencode(path)"
    elif wanted is Characters:
        hint = "C writes to it, give ctypes.create_string_buffer(size)"
    elif hasattr(wanted, "contents"):
        hint = f"give an instance of what it points to, {_shown(wanted._type_)}()"
    elif wanted in _INTEGERS:
        hint = "give an int"
    else:
        hint = f"give {_shown(wanted)}"
    return ctypes.ArgumentError(f"{where}: {type(value).__name__} does not pass; {hint}")


_INTEGERS = {getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}


def _shown(kind: Any) -> str:
    """A ctypes class as a program writes it."""
    if kind.__module__ == "ctypes":
        return f"ctypes.{kind.__name__}"
    return f"raw.{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def _absent(row: Function, version: str | None, backend: str) -> Callable[..., Any]:
    """What stands for a function that the backend lacks: it raises when it is called, and only then."""

    def missing(*_: object) -> Any:
        from pyacl.errors import MissingFunctionError

        if not row.exported:
            raise MissingFunctionError(row.name, f"the headers declare {row.name}, but no CANN release exports it")
        until = f" to {row.until}" if row.until else " on"
        raise MissingFunctionError(
            row.name,
            f"{row.name} is in CANN from {row.since}{until} (lib{row.library}.so); {backend} has "
            f"CANN {version or 'of an unknown version'}. Test with api.has({row.name!r}), or use a CANN that has it.",
        )

    missing.__name__ = row.name
    return missing


def _unknown(name: str) -> str:
    if name in MISSPELT:
        return f"there is no C function {name}: that page misspells {MISSPELT[name]}"
    close = difflib.get_close_matches(name, FUNCTIONS, 3) if name.startswith(("acl", "rt", "stars_")) else []
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"the Runtime API (CANN {VERSIONS[0]} to {VERSIONS[-1]}) has no C function {name}{hint}"
