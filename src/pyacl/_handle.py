"""The life of one C handle: what it hangs on, when it is freed, who may still use it, and which process made it.

An object of pyacl holds a `Handle`; the handle never refers to the object. Handles form a tree (session, device, the
rest); a handle is freed after everything below it. Three things can happen to a handle before that, and all three put
something in its place that raises wherever it is used, because a closed handle kept as None would be NULL, and NULL is
the default stream: it is closed, it is forbidden (its device broke), or it finds itself in a forked child.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Optional, TypeVar

from pyacl.errors import ClosedError, ForkedError

__all__ = ["CALLBACK_CODES", "Closeable", "Handle", "Unusable", "close_after", "drain"]

_open: set[Handle] = set()
#: handles that were dropped where no C call is allowed; closed at the next chance
_deferred: deque[Handle] = deque()
#: code objects of Python functions that C calls: nothing may be freed below one of them
CALLBACK_CODES: set[Any] = set()


class Unusable:
    """Stands where a C handle or an address was: every use raises, as an argument of a C call too."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        self.error = error

    def _refuse(self, *_: object) -> NoReturn:
        raise self.error()

    _as_parameter_ = property(_refuse)
    __add__ = __radd__ = __int__ = __index__ = __bool__ = _refuse


class Handle:
    """One thing that C made and has to free.

    Parameters
    ----------
    what : str
        What messages call it, such as ``"stream of device 0"``.
    value
        What C calls it: an instance of a handle class, or an address as int.
    release : callable or None
        Frees it, given the value; None for a borrowed handle, which is never freed.
    parent : Handle or None
        Is freed after this one.
    rank : int
        When the parent is closed, children of a lower rank go first, and the newest of a rank before the others.
    """

    __slots__ = (
        *("ptr", "what", "parent", "rank", "pid", "__weakref__"),
        *("_open", "_value", "_release", "_children", "_uses", "_finalizer"),
    )

    def __init__(
        self,
        what: str,
        value: Any,
        release: Optional[Callable[[Any], object]],
        parent: Optional[Handle] = None,
        rank: int = 0,
    ) -> None:
        #: what to hand to C; an `Unusable` once it must not be used
        self.ptr = value
        self.what = what
        self.parent = parent
        self.rank = rank
        self.pid = os.getpid()
        # lists of one entry: popping it is atomic, so that of two threads one closes and one frees
        self._open = [True]
        self._value = [value]
        self._release = release
        self._children: dict[Handle, None] = {}
        self._uses: set[object] = set()
        self._finalizer: Optional[weakref.finalize[..., Any]] = None
        if parent is not None:
            parent._children[self] = None
        _open.add(self)
        drain()

    def __repr__(self) -> str:
        return f"<handle of {self.what}{'' if self._open else ', closed'}>"

    @property
    def closed(self) -> bool:
        """Whether it was closed, or belongs to another process."""
        return not self._open

    def get(self) -> Any:
        """What to hand to C; raises ClosedError (or what forbids it) where that is no longer allowed."""
        ptr = self.ptr
        if ptr.__class__ is Unusable:
            raise ptr.error()
        return ptr

    def own(self, owner: object) -> None:
        """Close it when ``owner`` is collected, and at exit."""
        self._finalizer = weakref.finalize(owner, self._collect)
        # at exit finalizers run newest first, which would unload a binary that a stream still works with: there only
        # the root acts, and closes what is below it in the right order
        self._finalizer.atexit = self.parent is None

    @property
    def children(self) -> tuple[Handle, ...]:
        """What hangs on it and is not freed yet, oldest first."""
        return tuple(self._children)

    def tree(self) -> Iterator[Handle]:
        """This handle and everything below it."""
        yield self
        for child in self.children:
            yield from child.tree()

    def forbid(self, error: Callable[[], Exception]) -> None:
        """Let every use of it and of what hangs on it raise ``error()``; closing still frees."""
        for handle in self.tree():
            if handle._open:
                handle.ptr = Unusable(error)

    def allow(self) -> None:
        """Undo `forbid`."""
        for handle in self.tree():
            if handle._open:
                handle.ptr = handle._value[0]

    def use(self, user: object) -> None:
        """Do not free it before ``user`` is collected, even if it is closed: ``user`` reaches into its memory."""
        key = object()
        self._uses.add(key)
        # not at exit: what still reaches into the memory then, may do so until the process is gone
        weakref.finalize(user, self._unused, key).atexit = False

    def close(self) -> None:
        """Free it, after everything below it. Idempotent. The first error is raised once all of them were tried."""
        with contextlib.suppress(IndexError):
            self._open.pop()
        if not self._value:
            return
        what = self.what
        self.ptr = Unusable(lambda: ClosedError(f"the {what} is closed", next_step="Make a new one."))
        if self._finalizer is not None:
            self._finalizer.detach()
        # nothing may break off a close half-way, Ctrl-C neither
        failures: list[BaseException] = []
        for _ in range(2):  # once more for a child whose own close was broken off
            for child in sorted(reversed(self.children), key=lambda handle: handle.rank):
                try:
                    child.close()
                except BaseException as failure:
                    failures.append(failure)
        try:
            self._free_if_unused()
        except BaseException as failure:
            failures.append(failure)
        if failures:
            raise failures[0]

    def _free_if_unused(self) -> None:
        """Free it if it is closed and nothing below it or reaching into it is left."""
        if self._open or self._children or self._uses:
            return
        try:
            value = self._value.pop()
        except IndexError:
            return
        try:
            if not sys.is_finalizing():
                self._free(value)
        finally:
            _open.discard(self)
            parent = self.parent
            if parent is not None:
                parent._children.pop(self, None)
                parent._free_if_unused()

    def _free(self, value: Any) -> None:
        if self._release is not None:
            self._release(value)

    def _unused(self, key: object) -> None:
        self._uses.discard(key)
        if not self._open:
            if _inside_callback():
                _deferred.append(self)
            else:
                self._quietly(self._free_if_unused)

    def _collect(self) -> None:
        """The owner is gone: close it, but never from inside a callback of C, where the library forbids it.

        Nor from inside a backend: the collector may run there at any time, while a lock is held that closing needs.
        """
        if _inside_callback():
            _deferred.append(self)
        else:
            handle = self._abandoned()
            handle._quietly(handle.close)

    def _abandoned(self) -> Handle:
        """The topmost handle, from this one up, whose owner is gone as well.

        Owners that refer to each other are collected together, in any order; what they own must be freed in the
        order of the tree.
        """
        found, above = self, self.parent
        while above is not None:
            finalizer = above._finalizer
            if finalizer is not None and finalizer.alive and finalizer.peek() is None:
                found = above
            above = above.parent
        return found

    def _quietly(self, do: Callable[[], None]) -> None:
        # a finalizer has nobody to raise to
        try:
            do()
        except Exception as failure:
            warnings.warn(f"freeing the {self.what}: {failure}", ResourceWarning, stacklevel=2, source=self)

    def _forget(self) -> None:
        """In a forked child: the handle belongs to the parent process, which goes on using it."""
        made_by, what = self.pid, self.what
        self.ptr = Unusable(
            lambda: ForkedError(
                f"the {what} was made in process {made_by}, before this process ({os.getpid()}) was forked from it",
                next_step='Start worker processes with the "spawn" method of multiprocessing.',
            )
        )
        self._open.clear()
        self._value.clear()
        if self._finalizer is not None:
            self._finalizer.detach()


_Self = TypeVar("_Self", bound="Closeable")


class Closeable:
    """An object that holds a handle: it knows when that is closed, and a ``with`` block closes it."""

    _handle: Handle

    def close(self) -> None:
        """Close the handle; each class says what that does."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called: here, on what this is a view of, or on the device."""
        return self._handle.closed

    def __enter__(self: _Self) -> _Self:
        self._handle.get()
        return self

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        close_after(self, error)


def drain() -> None:
    """Free what was dropped inside a callback or a backend."""
    while _deferred and not _inside_callback():
        try:
            handle = _deferred.popleft()
        except IndexError:
            return
        handle._quietly(handle.close)


def close_after(thing: Any, error: Optional[BaseException]) -> None:
    """Close at the end of a ``with`` block. What the block raised is never hidden by what closing raises."""
    try:
        thing.close()
    except Exception as failure:
        if error is None:
            raise
        text = f"closing {thing!r} failed too: {failure}"
        if sys.version_info >= (3, 11):
            error.add_note(text)
        else:
            warnings.warn(text, ResourceWarning, stacklevel=3)


def _inside_callback() -> bool:
    """Whether this runs inside a host function of a stream, or inside a backend, which may hold its lock."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code in CALLBACK_CODES or str(frame.f_globals.get("__name__")).startswith("pyacl.backends."):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _after_fork() -> None:
    for handle in list(_open):
        handle._forget()
    _open.clear()
    _deferred.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
