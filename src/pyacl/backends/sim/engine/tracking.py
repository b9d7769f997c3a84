"""Which bytes of device memory a kernel function really reads and writes: arrays that take note of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .kernels import DeviceArray, plain
from .memory import PATTERN
from .ranges import Ranges

if TYPE_CHECKING:
    from .memory import Block, Store

#: pieces of one access that are looked at one by one; of an access in more pieces no note is taken
MOST_PIECES = 4096
_LARGE = 1 << 20  # elements of an array whose offsets are not worth computing
_BASIC = (int, np.integer, slice, type(None), type(Ellipsis))


class Used:
    """What one run of a kernel does with the bytes of one store.

    Attributes
    ----------
    known : Ranges or None
        What is initialised; None: everything.
    missing : list
        Ranges that were read and not initialised, each with the line of the kernel function that did.
    writable : Ranges
        What the kernel may write to.
    """

    __slots__ = ("block", "store", "code", "known", "reads", "writes", "missing", "writable")

    def __init__(self, block: Block, store: Store, known: Ranges | None, code: Any) -> None:
        self.block = block
        self.store = store
        self.known = known
        self.code = code
        self.reads = Ranges()
        self.writes = Ranges()
        self.writable = Ranges()
        self.missing: list[tuple[int, int, int]] = []

    def note(self, low: int, high: int, write: bool) -> None:
        if write:
            self.writes.add(low, high)
            return
        self.reads.add(low, high)
        known = self.known
        if known is not None and not known.covers(low, high):
            self._unknown(known, low, high)

    def _unknown(self, known: Ranges, low: int, high: int) -> None:
        for start, end in known.missing(low, high):
            for first, last in self.writes.missing(start, end):
                # whatever differs from the pattern of fresh memory was written, in a way that nobody took note of
                if (self.store.array[first:last] == PATTERN).all():
                    self.missing.append((first, last, self._line()))
                known.add(first, last)

    def _line(self) -> int:
        frame: Any = sys._getframe(2)
        while frame is not None:
            if frame.f_code is self.code:
                return int(frame.f_lineno)
            frame = frame.f_back
        return 0


class TrackedArray(DeviceArray):
    """A `DeviceArray` that notes what is read and written; views of it do so too.

    What leaves by another door (`np.asarray`, the buffer interface) is not seen.
    """

    used: Used | None = None
    _low: int | None = None

    def __array_finalize__(self, source: Any) -> None:
        self.address = None
        self.used = getattr(source, "used", None)

    @property
    def low(self) -> int:
        """Where it begins in its store; -1 for a copy."""
        low = self._low
        if low is None:
            used = self.used
            low = -1
            if used is not None:
                at = self.__array_interface__["data"][0] - used.store.real
                low = at if 0 <= at < used.store.size else -1
            self._low = low
        return low

    def note(self, write: bool) -> None:
        """All of this array is read, or written."""
        used, low = self.used, self.low
        if used is None or low < 0 or not self.size:
            return
        flags = self.flags
        if flags.c_contiguous or flags.f_contiguous:
            used.note(low, low + self.nbytes, write)
        else:
            for start, end in _pieces(low, self.shape, self.strides, self.itemsize):
                used.note(start, end, write)

    def _note_at(self, key: Any, write: bool) -> None:
        """The elements of an index are read, or written."""
        used, low = self.used, self.low
        if used is None or low < 0:
            return
        if type(key) is int and self.ndim == 1:  # as loops do it
            start = low + self.strides[0] * (key if key >= 0 else key + len(self))
            used.note(start, start + self.itemsize, write)
            return
        if isinstance(key, str):
            self._view_at(key).note(write)
            return
        parts = key if isinstance(key, tuple) else (key,)
        if all(isinstance(part, _BASIC) and not isinstance(part, bool) for part in parts):
            # the Ellipsis makes a view even of a single element
            place = parts if any(part is Ellipsis for part in parts) else (*parts, Ellipsis)
            self._view_at(place).note(write)
        elif self.size <= _LARGE:
            offsets = np.zeros((1,) * self.ndim, np.int64)
            for axis, (length, stride) in enumerate(zip(self.shape, self.strides)):
                line = np.arange(length, dtype=np.int64) * stride
                offsets = offsets + line.reshape([-1 if i == axis else 1 for i in range(self.ndim)])
            chosen = np.unique(offsets[plain_all(key)])
            if len(chosen) <= MOST_PIECES:
                for start, end in _runs(chosen.tolist(), self.itemsize):
                    used.note(low + start, low + end, write)

    def _view_at(self, key: Any) -> Any:
        return np.ndarray.__getitem__(self, key)

    def __getitem__(self, key: Any) -> Any:
        if type(key) is not int:
            self._check(key)
        try:
            found = np.ndarray.__getitem__(self, key if type(key) is int else plain_all(key))
        except IndexError:
            raise self._fault(key) from None
        if isinstance(found, TrackedArray) and found.low >= 0:
            return found  # a view: noted when it is used
        self._note_at(key, False)
        if type(key) is not int:
            _read(key)
        return plain(found)

    def __setitem__(self, key: Any, value: Any) -> None:
        _read(value)
        _read(key)
        super().__setitem__(plain_all(key), plain_all(value))
        self._note_at(key, True)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        for value in inputs:
            _read(value)
        _read(options.get("where"))
        out = options.get("out")
        if out is not None:
            options["out"] = tuple(plain(value) for value in out)
        if isinstance(options.get("where"), TrackedArray):
            options["where"] = plain(options["where"])
        result = getattr(ufunc, method)(*(plain(value) for value in inputs), **options)
        if method == "at":
            _write(inputs[0])
        if out is None:
            return result
        for value in out:
            _write(value)
        return out if len(out) > 1 else out[0]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _VIEWS:
            return super().__array_function__(func, types, args, kwargs)
        if func in _WRITERS:
            target, rest = args[0], args[1:]
            _read(rest)
            _read(kwargs)
            result = func(plain_all(target), *plain_all(rest), **plain_all(kwargs))
            _write(target)
            return result
        out = kwargs.get("out")
        _read(args)
        _read({name: value for name, value in kwargs.items() if name != "out"})
        result = func(*plain_all(args), **plain_all(kwargs))
        if out is None:
            return result
        for value in out if isinstance(out, tuple) else (out,):
            _write(value)
        return out

    def reshape(self, *shape: Any, **options: Any) -> Any:
        return self._view_or_copy(np.ndarray.reshape(self, *shape, **options))

    def ravel(self, *order: Any, **options: Any) -> Any:
        return self._view_or_copy(np.ndarray.ravel(self, *order, **options))

    def _view_or_copy(self, found: Any) -> Any:
        if found.low >= 0:
            return found
        self.note(False)
        return plain(found)

    @property  # type: ignore[misc,unused-ignore]  # the stubs of some numpy versions let it be set
    def flat(self) -> Any:
        self.note(False)
        if self.flags.writeable:
            self.note(True)
        return plain(self).flat


def _reader(name: str, writes: bool = False) -> Callable[..., Any]:
    method = getattr(np.ndarray, name)

    def call(self: TrackedArray, *args: Any, **kwargs: Any) -> Any:
        if name != "fill":
            self.note(False)
        _read(args)
        result = method(plain(self), *plain_all(args), **plain_all(kwargs))
        if writes:
            self.note(True)
        out = kwargs.get("out")
        if out is not None:
            _write(out)
            return out
        return result

    call.__name__ = name
    return call


# fmt: off
_READERS = (
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "astype", "choose", "clip", "compress", "copy",
    "cumprod", "cumsum", "dot", "flatten", "item", "max", "mean", "min", "nonzero", "prod", "ptp", "repeat", "round",
    "searchsorted", "std", "sum", "take", "tobytes", "tofile", "tolist", "trace", "var", "conj", "conjugate", "dump",
    "dumps", "__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__", "__reduce__", "__copy__",
    "__deepcopy__",
)
# fmt: on
for _name in _READERS:
    if hasattr(np.ndarray, _name):
        setattr(TrackedArray, _name, _reader(_name))
for _name in ("fill", "itemset", "partition", "put", "setfield", "sort"):
    if hasattr(np.ndarray, _name):
        setattr(TrackedArray, _name, _reader(_name, writes=True))

# functions of numpy that give another view, or look at no element
# fmt: off
_VIEW_NAMES = (
    "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_to", "can_cast",
    "diagonal", "dsplit", "empty_like", "expand_dims", "flip", "fliplr", "flipud", "full_like", "hsplit",
    "iscomplexobj", "isrealobj", "may_share_memory", "moveaxis", "ndim", "ones_like", "ravel", "reshape",
    "result_type", "rollaxis", "rot90", "shape", "shares_memory", "size", "split", "squeeze", "swapaxes",
    "transpose", "vsplit", "zeros_like",
)
# fmt: on
_VIEWS = {getattr(np, name) for name in _VIEW_NAMES if hasattr(np, name)}
_WRITERS = {np.copyto, np.fill_diagonal, np.place, np.put, np.put_along_axis, np.putmask}


def plain_all(value: Any) -> Any:
    """A value, or values in tuples, lists and dicts, without tracking."""
    if isinstance(value, DeviceArray):
        return plain(value)
    if type(value) in (tuple, list):
        return type(value)(plain_all(item) for item in value)
    if type(value) is dict:
        return {name: plain_all(item) for name, item in value.items()}
    return value


def _read(value: Any) -> None:
    if isinstance(value, TrackedArray):
        value.note(False)
    elif type(value) in (tuple, list):
        for item in value:
            if not isinstance(item, _BASIC):
                _read(item)
    elif type(value) is dict:
        _read(list(value.values()))


def _write(value: Any) -> None:
    if isinstance(value, TrackedArray):
        value.note(True)


def _pieces(low: int, shape: Iterable[int], strides: Iterable[int], run: int) -> Iterator[tuple[int, int]]:
    """The ranges of bytes of a strided array; none where there are too many."""
    steps = []
    for length, stride in zip(shape, strides):
        if stride < 0:  # the first element is the last in memory
            low += stride * (length - 1)
            stride = -stride
        if length > 1 and stride:
            steps.append((stride, length))
    steps.sort()
    while steps and steps[0][0] <= run:
        stride, length = steps.pop(0)
        run += stride * (length - 1)
    count = 1
    for _, length in steps:
        count *= length
    if count > MOST_PIECES:
        return
    starts = [low]
    for stride, length in reversed(steps):
        starts = [start + stride * i for start in starts for i in range(length)]
    for start in starts:
        yield start, start + run


def _runs(offsets: list[int], size: int) -> Iterator[tuple[int, int]]:
    """Rising offsets of elements as ranges."""
    if not offsets:
        return
    start = end = offsets[0]
    for offset in offsets:
        if offset > end:
            yield start, end
            start = offset
        end = offset + size
    yield start, end


def tracked(array: DeviceArray, used: Used) -> TrackedArray:
    """The same array, with notes."""
    found = array.view(TrackedArray)
    found.address, found.block, found.name, found.used = array.address, array.block, array.name, used
    if found.flags.writeable and found.size:
        used.writable.add(found.low, found.low + found.nbytes)
    return found
