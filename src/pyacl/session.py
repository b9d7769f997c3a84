"""The process's one session: which backend, aclInit and aclFinalize, fork, exit. Nobody else knows both sides."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, Optional, Union

from pyacl import raw
from pyacl._handle import Handle, close_after
from pyacl.errors import ForkedError

if TYPE_CHECKING:
    from pyacl.backends.base import Backend
    from pyacl.raw.api import Api

__all__ = ["Session", "current_session", "isolated", "use_backend"]

#: the environment variable that names the backend of a program that does not call `use_backend`
BACKEND_VARIABLE = "PYACL_BACKEND"

_REPEATED_INITIALIZE = 100002
_REPEATED_FINALIZE = 100037

_lock = threading.RLock()
_current: Optional[Session] = None
#: is told of every new session, inside of `isolated`
_watch: Optional[Callable[[Session], None]] = None


class Session:
    """One backend in use: its C functions, and whether aclInit was called.

    The library is initialised when the first device is opened, not before, so that `pyacl.raw` can also be used as the
    C API is used: aclInit first.

    Parameters
    ----------
    backend
        A name or an object; see `use_backend`.
    config : str, optional
        Path of the JSON file for aclInit.
    """

    def __init__(self, backend: Union[str, Backend], config: Optional[str] = None) -> None:
        #: the C functions, checked and unchecked
        self.api: Api = raw.load(backend)
        self.config = config
        #: whether this session called aclInit first, and so will call aclFinalize
        self.owns_init = False
        self._closes_backend = isinstance(backend, str)
        self._root: Optional[Handle] = None
        if _watch is not None:
            _watch(self)

    def __repr__(self) -> str:
        return f"<session on {self.api.backend.name}>"

    def start(self) -> Handle:
        """Call aclInit unless that was done, and return the handle that everything of this session hangs on.

        Raises
        ------
        ForkedError
            In a process that was forked from the one that called aclInit.
        AclError
            When aclInit fails. It may be tried again: a failed aclInit does not count.
        """
        with _lock:
            if self._root is None:
                self.owns_init = self._initialize()
                # made before any other handle, so at exit it is the last one that is freed
                self._root = Handle("session of pyacl", self.api, _finalize if self.owns_init else None)
                self._root.own(self)
            self._root.get()
            return self._root

    @property
    def open_handles(self) -> int:
        """How many devices and things on devices are open."""
        return len(self.open_things)

    @property
    def open_things(self) -> list[str]:
        """What is open: devices and things on devices, in words."""
        if self._root is None or self._root.closed:
            return []
        # pinned memory that a numpy array looks into is closed with its device, and freed later
        return [handle.what for handle in self._root.tree() if not handle.closed and handle is not self._root]

    def abandon(self) -> None:
        """Close what is open without waiting for its work from now on: nobody wants the results any more."""
        for handle in self._root.tree() if self._root is not None else ():
            if hasattr(handle, "hung"):
                handle.hung = True

    @property
    def forked(self) -> bool:
        """Whether aclInit was called in the process that this one was forked from."""
        return self._root is not None and self._root.pid != os.getpid()

    def close(self) -> None:
        """Free what is open, and finalize the library if this session initialised it. Idempotent."""
        if self._root is not None:
            self._root.close()
        still_needed = self._root is not None and self._root.children
        if self._closes_backend and not self.forked and not still_needed:
            self.api.backend.close()

    def _initialize(self) -> bool:
        code = self.api.unchecked.aclInit(None if self.config is None else os.fsencode(self.config))
        if code == _REPEATED_INITIALIZE:
            # somebody else in this process, torch_npu for example, was first and will finalize; the text of this
            # "failure" must not turn up in the next real one
            self.api.recent_message()
            return False
        if code:
            self.api.fail(code, "aclInit")
        return True


def _finalize(api: Api) -> None:
    code = api.unchecked.aclFinalize()
    if code and code != _REPEATED_FINALIZE:
        api.fail(code, "aclFinalize")


def current_session() -> Session:
    """The session of this process; opened on first use, on the backend that `use_backend` or PYACL_BACKEND names.

    Raises
    ------
    LibraryNotFoundError
        When neither names one, and no CANN is installed. pyacl never takes a simulator by itself.
    ValueError
        When PYACL_BACKEND names none.
    """
    global _current
    session = _current
    if session is None:
        with _lock:
            if _current is None:
                try:
                    _current = Session(_named_by_environment())
                except ValueError as error:
                    raise ValueError(f"{BACKEND_VARIABLE}: {error}") from None
            session = _current
    return session


def use_backend(backend: Union[str, Backend], *, config: Optional[str] = None) -> None:
    """Choose who answers the C calls of this process.

    Parameters
    ----------
    backend : str or Backend
        ``"library"`` (the installed CANN), ``"library:/a/folder"``, ``"sim"``, ``"sim:Ascend910B3"``,
        ``"sim:Ascend910B1@8.1.RC1"``, or a backend object such as ``pyacl.sim.Backend(devices=2)``.
    config : str, optional
        Path of the JSON file for aclInit.

    Raises
    ------
    RuntimeError
        While devices of the backend in use are open.
    ForkedError
        In a forked process whose parent has the real library initialised: CANN does not work there.
    LibraryNotFoundError, ValueError
        When there is no such backend.
    """
    global _current
    with _lock:
        old = _current
        if old is not None and old.open_handles:
            raise RuntimeError(
                f"{old.api.backend.name} is in use: {old.open_handles} handles are open ({_described(old)}). "
                f"Close the devices, then choose another backend."
            )
        new = Session(backend, config)
        if old is not None:
            if old.forked and _is_library(old) and _is_library(new):
                raise ForkedError(
                    "CANN was initialised in the process that this one was forked from, and does not work in both",
                    next_step='Start worker processes with the "spawn" method of multiprocessing.',
                )
            old.close()
        _current = new


@contextmanager
def isolated(backend: Union[str, Backend], *, watch: Optional[Callable[[Session], None]] = None) -> Iterator[Session]:
    """A session of its own for a block, such as a test.

    At the end of the block what is open on it is closed, and the former session goes on with all that is open on that.

    Parameters
    ----------
    backend : str or Backend
        As for `use_backend`.
    watch
        Is called with this session, and with every other one that the block itself chooses with `use_backend`.
    """
    global _current, _watch
    with _lock:
        before = _current, _watch
        _current, _watch = None, watch
    raised: Optional[BaseException] = None
    try:
        _current = session = Session(backend)
        yield session
    except BaseException as error:
        raised = error
        raise
    finally:
        with _lock:
            last = _current
            _current, _watch = before
        if last is not None:
            close_after(last, raised)
        del raised  # its traceback refers to this frame


def _named_by_environment() -> str:
    return os.environ.get(BACKEND_VARIABLE) or "library"


def _is_library(session: Session) -> bool:
    return session.api.backend.name.startswith("library")


def _described(session: Session) -> str:
    assert session._root is not None
    names = [handle.what for handle in session._root.children if not handle.closed]
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
