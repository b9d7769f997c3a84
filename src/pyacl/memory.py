"""Memory: device buffers, pinned host buffers, views of them, fills, and the copies between them and numpy."""

from __future__ import annotations

import bisect
import ctypes
import math
import operator
import threading
from collections.abc import Sequence
from typing import Any, NoReturn, Optional, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from pyacl._handle import Closeable, Handle
from pyacl.device import MEMORY, Device, checked_address, open_device, same_device
from pyacl.errors import AclMemoryError
from pyacl.raw import constants
from pyacl.stream import Stream

__all__ = ["DeviceBuffer", "HostBuffer"]

ShapeLike = Union[SupportsIndex, Sequence[SupportsIndex]]
Array = np.ndarray[Any, Any]

#: asynchronous copies want both addresses aligned to this many bytes
_COPY_ALIGN = 64
#: bytes of a fill pattern that are sent from the host; the device doubles it
_PATTERN = 1 << 20


class _Buffer(Closeable):
    """What a device buffer and a host buffer have in common: a typed piece of memory that some handle owns."""

    def __init__(
        self, device: Device, memory: Handle, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: object
    ) -> None:
        #: the device it belongs to
        self.device = device
        #: lengths of the array it holds
        self.shape = shape
        #: numpy dtype of the array it holds
        self.dtype = dtype
        self._handle = memory
        self._offset = offset
        # a view holds what it is a view of, a borrower what it borrowed from
        self._owner = owner

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.size * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def address(self) -> int:
        """Where it starts, as a number. Raises ClosedError once it is closed."""
        address: int = self._handle.ptr + self._offset
        return address

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.address)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a buffer of one element without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        where = "closed" if self.closed else f"at {self._handle._value[0] + self._offset:#x}"
        return f"<{type(self).__name__} {self.dtype}{list(self.shape)} of device {self.device.id}, {where}>"


class DeviceBuffer(_Buffer):
    """A typed piece of device memory, contiguous in C order. The host cannot read it, only copy.

    Made by `Device.empty`, `Device.to_device` and their kind, or by `borrow`. ``buffer[10:20]``, `reshape` and `view`
    give views: other buffers on the same memory, which keep it alive.
    """

    @classmethod
    def _allocate(cls, device: Device, shape: ShapeLike, dtype: npt.DTypeLike) -> DeviceBuffer:
        lengths, kind = _checked_shape(shape), _checked_dtype(dtype)
        nbytes = _nbytes(lengths, kind)
        core = device._handle
        pointer = ctypes.c_void_p()
        try:
            # the library allocates no 0 bytes; an array without elements still wants an address
            core.call("aclrtMalloc", pointer, max(1, nbytes), constants.ACL_MEM_MALLOC_HUGE_FIRST)
        except AclMemoryError as error:
            error.requested = nbytes
            error.free, error.total = device.memory_info
            raise
        what = f"buffer of {nbytes} bytes of device {device.id}"
        memory = Handle(what, pointer.value, core.release("aclrtFree"), core, MEMORY)
        buffer = cls(device, memory, 0, lengths, kind, None)
        memory.own(buffer)
        return buffer

    @classmethod
    def borrow(
        cls,
        address: int,
        nbytes: int,
        *,
        owner: object = None,
        device: Optional[Device] = None,
        shape: Optional[ShapeLike] = None,
        dtype: npt.DTypeLike = "uint8",
    ) -> DeviceBuffer:
        """Device memory that somebody else made and will free.

        Parameters
        ----------
        address : int
            Where it starts, such as ``tensor.data_ptr()``.
        nbytes : int
            How many bytes of it may be used.
        owner
            Kept alive as long as this buffer and its views, such as the tensor.
        device : Device, optional
            The device it is on; may be left out while only one is open.
        shape, dtype
            What it holds. By default bytes, or as many elements of the dtype as fit.

        Notes
        -----
        `close` forgets the memory and does not free it.
        """
        device = open_device(device)
        device._handle.get()
        address, nbytes = checked_address(address, "device address"), checked_nbytes(nbytes)
        kind = _checked_dtype(dtype)
        if shape is None:
            if nbytes % kind.itemsize:
                raise ValueError(f"nbytes: {nbytes} is no multiple of the {kind.itemsize} bytes of a {kind}")
            lengths: tuple[int, ...] = (nbytes // kind.itemsize,)
        else:
            lengths = _checked_shape(shape)
            if _nbytes(lengths, kind) > nbytes:
                raise ValueError(f"shape: {list(lengths)} of {kind} needs {_nbytes(lengths, kind)} bytes, not {nbytes}")
        what = f"borrowed buffer of {nbytes} bytes of device {device.id}"
        memory = Handle(what, address, None, device._handle, MEMORY)
        buffer = cls(device, memory, 0, lengths, kind, owner)
        memory.own(buffer)
        return buffer

    #: what `pyacl.arguments` takes for a pointer
    __npu_address__ = _Buffer.address

    def __array__(self, *_: object, **__: object) -> NoReturn:
        # without it numpy takes the buffer for a sequence, and makes an array of one-element buffers
        raise TypeError(f"{self!r} is device memory, which numpy cannot read: copy it with to_host()")

    def close(self) -> None:
        """Free the memory. Idempotent. A borrowed buffer is forgotten, not freed. aclrtFree.

        It does not wait: work that still uses the memory must be done. Closing a view closes the memory of all.
        """
        self._handle.close()

    # -- views ------------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> DeviceBuffer:
        """A view, by whole numbers and slices, of what stays contiguous: ``buffer[3]``, ``buffer[10:20]``.

        Raises
        ------
        IndexError
            When it is out of bounds.
        ValueError
            When the elements do not lie next to each other.
        """
        parts = index if isinstance(index, tuple) else (index,)
        for part in parts:
            if not (part is Ellipsis or isinstance(part, slice) or _is_whole(part)):
                raise TypeError(
                    f"a buffer is indexed by whole numbers and slices, not by {type(part).__name__}: device memory is "
                    f"selected by its place; copy to the host for anything else"
                )
        # numpy does the arithmetic, on an array that looks like the buffer and is never read: the Ellipsis keeps even
        # a single element a view
        probe: Array = np.lib.stride_tricks.as_strided(np.empty(1, self.dtype), self.shape, _strides(self))
        found = probe[(*parts, Ellipsis)] if Ellipsis not in parts else probe[index]
        if not found.flags.c_contiguous:
            raise ValueError(
                f"[{_shown(parts)}] of {list(self.shape)} is not contiguous, and a kernel gets an address: take whole "
                f"rows, or copy with copy_2d_to and copy_2d_from"
            )
        offset = _data(found) - _data(probe) if found.size else 0
        return self._view(self._offset + offset, found.shape, self.dtype)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise TypeError(
            "device memory cannot be assigned to: copy with buffer[...].copy_from(array), or buffer[...].fill(number)"
        )

    def reshape(self, *shape: Any) -> DeviceBuffer:
        """A view of other lengths and the same elements; one length may be -1."""
        lengths = shape[0] if len(shape) == 1 and not _is_whole(shape[0]) else shape
        probe: Array = np.lib.stride_tricks.as_strided(np.empty(1, self.dtype), self.shape, _strides(self))
        return self._view(self._offset, probe.reshape(tuple(lengths)).shape, self.dtype)

    def view(self, dtype: npt.DTypeLike) -> DeviceBuffer:
        """A view of the same bytes as another dtype; the last length changes with the size of the elements."""
        kind = _checked_dtype(dtype)
        last = (self.shape[-1] if self.shape else 1) * self.dtype.itemsize
        if last % kind.itemsize or (not self.shape and last != kind.itemsize):
            raise ValueError(f"dtype: rows of {last} bytes are no whole number of {kind}")
        return self._view(self._offset, (*self.shape[:-1], last // kind.itemsize) if self.shape else (), kind)

    def _view(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceBuffer:
        self._handle.get()
        return DeviceBuffer(self.device, self._handle, offset, shape, dtype, self)

    # -- copies -----------------------------------------------------------------------------------------------------

    def to_host(self, stream: Optional[Stream] = None, *, timeout: Optional[float] = None) -> Array:
        """The content as a new numpy array.

        Parameters
        ----------
        stream : Stream, optional
            It is waited for first, so that the work queued in it is in the result. Without one, the memory is read at
            once, whatever is still being computed.
        timeout : float, optional
            Seconds to wait for the stream.

        Notes
        -----
        aclrtSynchronizeStream, aclrtMemcpy.
        """
        array = np.empty(self.shape, self.dtype)
        if stream is not None:
            same_device("stream", self.device, stream, Stream)
            stream.synchronize(timeout)
        _copy_now(self, array.ctypes.data, self.address, self.nbytes, constants.ACL_MEMCPY_DEVICE_TO_HOST)
        return array

    def copy_from(
        self, source: Union[npt.ArrayLike, HostBuffer, DeviceBuffer], stream: Optional[Stream] = None
    ) -> DeviceBuffer:
        """Overwrite the content.

        Parameters
        ----------
        source : array, HostBuffer or DeviceBuffer
            Of the same dtype and number of elements. A buffer of another device needs `Device.enable_peer_access`.
        stream : Stream, optional
            The copy takes its place among the work of the stream. From pinned memory, and from device memory, it
            goes on while the program does; source and target are kept alive until the stream has passed it, and must
            not be changed before. Other host memory is copied once the stream has done its earlier work, before this
            returns. Without a stream, the copy is made at once.

        Returns
        -------
        DeviceBuffer
            This buffer.

        Raises
        ------
        TypeError, ValueError
            When dtype, number of elements or device do not match.

        Notes
        -----
        aclrtMemcpyAsync or aclrtMemcpy. The documentation asks asynchronous copies for addresses that are multiples of
        64; others are copied like ordinary host memory, with waiting.
        """
        if isinstance(source, DeviceBuffer):
            _match("source", source, self)
            _check_peers(self, source)
            _copy(self, self.address, source.address, constants.ACL_MEMCPY_DEVICE_TO_DEVICE, stream, source)
        else:
            array, keep = _host_array(source)
            _match("source", array, self)
            array = np.ascontiguousarray(array)
            _copy(self, self.address, _data(array), constants.ACL_MEMCPY_HOST_TO_DEVICE, stream, keep, array)
        return self

    def copy_to(
        self, target: Union[Array, HostBuffer, DeviceBuffer], stream: Optional[Stream] = None
    ) -> Union[Array, HostBuffer, DeviceBuffer]:
        """Copy the content somewhere.

        Parameters
        ----------
        target : numpy.ndarray, HostBuffer or DeviceBuffer
            Of the same dtype and number of elements. A numpy array may have any layout.
        stream : Stream, optional
            As for `copy_from`. Into pinned memory the copy goes on while the program does: wait for the stream before
            reading. Into other host memory it is complete when this returns.

        Returns
        -------
            The target.

        Notes
        -----
        aclrtMemcpyAsync or aclrtMemcpy.
        """
        if isinstance(target, DeviceBuffer):
            target.copy_from(self, stream)
            return target
        array, keep = _host_array(target, for_writing=True)
        _match("target", array, self)
        kind = constants.ACL_MEMCPY_DEVICE_TO_HOST
        if array.flags.c_contiguous:
            _copy(self, _data(array), self.address, kind, stream, keep, array)
        else:
            straight = np.empty(array.shape, array.dtype)
            _copy(self, _data(straight), self.address, kind, stream, None, straight)
            array[...] = straight
        return target

    def copy_2d_from(
        self,
        source: Union[Array, HostBuffer],
        stream: Optional[Stream] = None,
        *,
        pitch: Optional[int] = None,
    ) -> None:
        """Copy the rows of a host matrix into this buffer, row by row, leaving what lies between the rows.

        Parameters
        ----------
        source : numpy.ndarray or HostBuffer
            Two dimensions; the elements of a row must lie next to each other, the rows need not.
        stream : Stream, optional
            As for `copy_from`.
        pitch : int, optional
            Bytes from row to row in this buffer. By default its own rows if it has two dimensions, else rows without a
            gap.

        Notes
        -----
        aclrtMemcpy2d, aclrtMemcpy2dAsync.
        """
        self._copy_2d(source, stream, pitch, to_device=True)

    def copy_2d_to(
        self,
        target: Union[Array, HostBuffer],
        stream: Optional[Stream] = None,
        *,
        pitch: Optional[int] = None,
    ) -> None:
        """Copy rows of this buffer into the rows of a host matrix; see `copy_2d_from`."""
        self._copy_2d(target, stream, pitch, to_device=False)

    def _copy_2d(
        self, host: Union[Array, HostBuffer], stream: Optional[Stream], pitch: Optional[int], to_device: bool
    ) -> None:
        array, keep = _host_array(host, for_writing=not to_device)
        what = "source" if to_device else "target"
        _match_dtype(what, array.dtype, self)
        if array.ndim != 2 or (array.size and array.strides[1] != array.itemsize):
            raise ValueError(f"{what}: a host matrix of two dimensions is due, elements of a row next to each other")
        height, width = array.shape[0], array.shape[1] * array.itemsize
        host_pitch = array.strides[0] if height > 1 else width
        if host_pitch < width:
            raise ValueError(f"{what}: the rows of the host matrix overlap or run backwards: copy it first")
        own = self.shape[1] * self.dtype.itemsize if self.ndim == 2 else width
        pitch = own if pitch is None else _whole("pitch", pitch)
        if pitch < width:
            raise ValueError(f"pitch: {pitch} bytes is less than a row of {width} bytes")
        needed = (height - 1) * pitch + width if height else 0
        if needed > self.nbytes:
            raise ValueError(
                f"{what}: {height} rows of {width} bytes, {pitch} apart, need {needed} bytes, not {self.nbytes}"
            )
        address = self.address
        if not array.size:
            return
        if to_device:
            args = (address, pitch, _data(array), host_pitch, width, height, constants.ACL_MEMCPY_HOST_TO_DEVICE)
        else:
            args = (_data(array), host_pitch, address, pitch, width, height, constants.ACL_MEMCPY_DEVICE_TO_HOST)
        extent = (height - 1) * host_pitch + width
        if _goes_on(stream, self, (_data(array), extent), address):
            assert stream is not None
            self.device._handle.direct("aclrtMemcpy2dAsync", *args, stream._handle.get())
            stream._handle.keep(self, keep, array)
        else:
            self.device._handle.call("aclrtMemcpy2d", *args)

    # -- fills ------------------------------------------------------------------------------------------------------

    def fill(self, value: Any, stream: Optional[Stream] = None) -> DeviceBuffer:
        """Write one value everywhere.

        Parameters
        ----------
        value
            What numpy converts to the dtype; a number that does not fit is refused.
        stream : Stream, optional
            The fill takes its place among the work of the stream. Without one it is made at once.

        Returns
        -------
        DeviceBuffer
            This buffer.

        Notes
        -----
        aclrtMemset or aclrtMemsetAsync where all bytes of the value are the same (0 for example); else the value is
        copied, and the device doubles it.
        """
        element = _element(value, self.dtype)
        if stream is not None:
            same_device("stream", self.device, stream, Stream)
        address, nbytes = self.address, self.nbytes
        if not nbytes:
            return self
        core = self.device._handle
        if len(set(element)) == 1:
            if stream is None:
                core.call("aclrtMemset", address, nbytes, element[0], nbytes)
            else:
                core.direct("aclrtMemsetAsync", address, nbytes, element[0], nbytes, stream._handle.get())
                stream._handle.keep(self)
            return self
        # a multiple of 64 elements keeps the pieces aligned
        done = min(nbytes, 64 * max(1, _PATTERN // (64 * len(element))) * len(element))
        first = np.frombuffer(element * (done // len(element)), np.uint8)
        whole = DeviceBuffer(self.device, self._handle, self._offset, (nbytes,), np.dtype(np.uint8), self)
        whole[:done].copy_from(first, stream)
        while done < nbytes:
            size = min(done, nbytes - done)
            whole[done : done + size].copy_from(whole[:size], stream)
            done += size
        return self


class HostBuffer(_Buffer):
    """A typed piece of pinned (page-locked) host memory: the program and the device's copies both reach it.

    Made by `Device.empty_host`. `array` is the numpy array on it.
    """

    @classmethod
    def _allocate(cls, device: Device, shape: ShapeLike, dtype: npt.DTypeLike) -> HostBuffer:
        lengths, kind = _checked_shape(shape), _checked_dtype(dtype)
        nbytes = _nbytes(lengths, kind)
        core = device._handle
        pointer = ctypes.c_void_p()
        try:
            core.call("aclrtMallocHost", pointer, max(1, nbytes))
        except AclMemoryError as error:
            error.requested = nbytes
            raise
        address = pointer.value or 0
        free = core.release("aclrtFreeHost")

        def release(value: Any) -> None:
            _pinned.remove(value)
            free(value)

        memory = Handle(f"pinned buffer of {nbytes} bytes of device {device.id}", address, release, core, MEMORY)
        _pinned.add(address, max(1, nbytes))
        buffer = cls(device, memory, 0, lengths, kind, None)
        memory.own(buffer)
        return buffer

    @property
    def array(self) -> Array:
        """The memory as a numpy array. While any array on it lives, the memory is not freed, closed or not."""
        address = self.address
        block = (ctypes.c_uint8 * max(1, self.nbytes)).from_address(address)
        self._handle.use(block)
        return np.ndarray(self.shape, self.dtype, buffer=block)  # type: ignore[arg-type,unused-ignore]  # old numpy

    def __array__(self, dtype: Optional[npt.DTypeLike] = None, copy: Optional[bool] = None) -> Array:
        array = self.array
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"the buffer holds {array.dtype}; as {np.dtype(dtype)} it must be copied")
            return array.astype(dtype)
        return array.copy() if copy else array

    def close(self) -> None:
        """Free the memory, once no numpy array looks into it any more. Idempotent. aclrtFreeHost.

        It does not wait: copies that still use the memory must be done.
        """
        self._handle.close()


class _Ranges:
    """Pieces of pinned memory by address, so that any array that lies in one is recognised.

    The collector may free a piece, and so remove it, in the middle of any of these methods. So the list is never
    changed, only replaced; one that has a freed piece does no harm, because `_ends` does not have it.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: dict[int, int] = {}
        self._lock = threading.RLock()

    def add(self, start: int, nbytes: int) -> None:
        with self._lock:
            self._ends[start] = start + nbytes
            self._starts = sorted(self._ends)

    def remove(self, start: int) -> None:
        with self._lock:
            self._ends.pop(start, None)
            self._starts = sorted(self._ends)

    def has(self, start: int, nbytes: int) -> bool:
        starts = self._starts
        at = bisect.bisect_right(starts, start) - 1
        return at >= 0 and start + nbytes <= self._ends.get(starts[at], 0)


_pinned = _Ranges()


def to_device(device: Device, array: Any, stream: Optional[Stream]) -> DeviceBuffer:
    """`Device.to_device`."""
    if isinstance(array, DeviceBuffer):
        raise TypeError("array: it is on a device already; device.empty_like(buffer).copy_from(buffer) copies it")
    if not isinstance(array, HostBuffer):
        array = np.asarray(array)
    if stream is not None:
        same_device("stream", device, stream, Stream)
        stream._handle.get()
    host, keep = _host_array(array)
    host = np.ascontiguousarray(host).reshape(host.shape)
    buffer = DeviceBuffer._allocate(device, host.shape, host.dtype)
    try:
        # nothing in the stream can use new memory yet, so there is no earlier work to wait for
        late = stream if _goes_on(stream, buffer, (_data(host), host.nbytes), buffer.address, wait=False) else None
        _copy(buffer, buffer.address, _data(host), constants.ACL_MEMCPY_HOST_TO_DEVICE, late, keep, host)
    except BaseException:
        buffer.close()
        raise
    return buffer


# -- the two ways to copy ------------------------------------------------------------------------------------------


def _copy(
    buffer: DeviceBuffer, target: int, source: int, kind: int, stream: Optional[Stream], other: object, host: Any = None
) -> None:
    """Copy all of a buffer to or from ``other``, on a stream where one is given."""
    nbytes = buffer.nbytes
    host_range = None if host is None else (_data(host), nbytes)
    if stream is not None:
        same_device("stream", buffer.device, stream, Stream)
        stream._handle.get()
    if not nbytes:
        return
    if _goes_on(stream, buffer, host_range, target, source):
        assert stream is not None
        stream_handle = stream._handle
        args = (target, nbytes, source, nbytes, kind, stream_handle.get())
        buffer.device._handle.direct("aclrtMemcpyAsync", *args)
        stream_handle.keep(buffer, other, host)
    else:
        _copy_now(buffer, target, source, nbytes, kind)


def _copy_now(buffer: DeviceBuffer, target: int, source: int, nbytes: int, kind: int) -> None:
    if nbytes:  # a copy of 0 bytes is an error
        buffer.device._handle.call("aclrtMemcpy", target, nbytes, source, nbytes, kind)


def _goes_on(
    stream: Optional[Stream],
    buffer: DeviceBuffer,
    host: Optional[tuple[int, int]],
    *addresses: int,
    wait: bool = True,
) -> bool:
    """Whether a copy can go on while the program does. If not, wait for the earlier work of the stream instead."""
    if stream is None:
        return False
    same_device("stream", buffer.device, stream, Stream)
    stream._handle.get()
    where = addresses if host is None else (*addresses, host[0])
    if all(a % _COPY_ALIGN == 0 for a in where) and (host is None or _pinned.has(*host)):
        return True
    if wait:
        stream.synchronize()
    return False


def _check_peers(target: DeviceBuffer, source: DeviceBuffer) -> None:
    here, there = target.device, source.device
    if here.id != there.id and there.id not in here._handle.peers:
        raise ValueError(
            f"source belongs to device {there.id}, this buffer to device {here.id}: call enable_peer_access on one of "
            f"the two devices first, or copy through the host"
        )


def _host_array(thing: Any, for_writing: bool = False) -> tuple[Array, object]:
    """A host array, and what must live as long as a copy reaches into it."""
    if isinstance(thing, HostBuffer):
        return thing.array, thing
    if for_writing:
        if not isinstance(thing, np.ndarray):
            raise TypeError(f"target: a numpy array, a HostBuffer or a DeviceBuffer, not {type(thing).__name__}")
        if not thing.flags.writeable:
            raise ValueError("target: the array is read-only")
        return thing, thing
    array = np.asarray(thing)
    return array, array


def _match(what: str, other: Union[Array, DeviceBuffer], buffer: DeviceBuffer) -> None:
    """Refuse a copy between things that do not hold the same."""
    _match_dtype(what, other.dtype, buffer)
    if other.size != buffer.size:
        smaller = other.size < buffer.size
        hint = f"a part of it is buffer[:{other.size}]" if smaller else f"take a part of the {what}"
        raise ValueError(
            f"{what}: {other.size} elements {list(other.shape)} here, {buffer.size} elements {list(buffer.shape)} in "
            f"the buffer: {hint}, or make another"
        )


def _match_dtype(what: str, dtype: np.dtype[Any], buffer: DeviceBuffer) -> None:
    if dtype != buffer.dtype:
        raise TypeError(
            f"{what}: {dtype} here, {buffer.dtype} in the buffer: convert with array.astype({buffer.dtype.name!r}), or "
            f"take the bytes for what they are with buffer.view({dtype.name!r})"
        )


# -- small helpers -------------------------------------------------------------------------------------------------


def _data(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _strides(buffer: _Buffer) -> tuple[int, ...]:
    strides = []
    step = buffer.dtype.itemsize
    for length in reversed(buffer.shape):
        strides.append(step)
        step *= max(1, length)
    return tuple(reversed(strides))


def _shown(parts: tuple[Any, ...]) -> str:
    def text(part: Any) -> str:
        if isinstance(part, slice):
            ends = ["" if end is None else str(end) for end in (part.start, part.stop)]
            return ":".join(ends + ([] if part.step is None else [str(part.step)]))
        return "..." if part is Ellipsis else str(part)

    return ", ".join(text(part) for part in parts)


def _is_whole(number: Any) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def _whole(name: str, number: Any) -> int:
    if not _is_whole(number):
        raise TypeError(f"{name}: a whole number, not {type(number).__name__}")
    return operator.index(number)


def checked_nbytes(nbytes: Any) -> int:
    """A number of bytes."""
    number = _whole("nbytes", nbytes)
    if number < 0:
        raise ValueError(f"nbytes: {number} is negative")
    return number


def _checked_shape(shape: Any) -> tuple[int, ...]:
    if _is_whole(shape):
        shape = (shape,)
    try:
        lengths = tuple(_whole("shape", length) for length in shape)
    except TypeError:
        raise TypeError(f"shape: a whole number or a tuple of them, not {shape!r}") from None
    if any(length < 0 for length in lengths):
        raise ValueError(f"shape: {lengths} has a negative length")
    return lengths


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        kind: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"dtype: {error}; give what numpy knows, such as 'float16' or ml_dtypes.bfloat16") from None
    if not kind.isnative:
        raise TypeError(f"dtype: {kind} is big-endian, the device is little-endian: use {kind.newbyteorder('=')}")
    if kind.hasobject:
        raise TypeError(f"dtype: {kind} holds Python objects, which live on the host")
    if not kind.itemsize:
        raise TypeError(f"dtype: {kind} has no size")
    if kind.subdtype is not None:
        raise TypeError(f"dtype: {kind} is an array; put its lengths into the shape")
    return kind


def _nbytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes >= 1 << 63:
        raise ValueError(f"shape: {list(shape)} of {dtype} is {nbytes} bytes")
    return nbytes


def _element(value: Any, dtype: np.dtype[Any]) -> bytes:
    """The bytes of one element; a number that the dtype cannot hold is refused."""
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not math.isfinite(value) or int(value) != value or not limits.min <= value <= limits.max:
            raise ValueError(f"value: {value!r} is no {dtype} ({limits.min} to {limits.max})")
        value = int(value)
    # the floating types of ml_dtypes are of kind V, and no numpy.void
    floating = dtype.kind in "fc" or (dtype.kind == "V" and dtype.type is not np.void)
    try:
        with np.errstate(all="ignore"):
            # the fields of a structure are given as a tuple, which is no row of numbers
            given = np.asarray(value, dtype if dtype.names and isinstance(value, tuple) else None)
            if given.dtype.kind == "c" and dtype.kind != "c":
                raise TypeError("it is complex")
            element = given.astype(dtype).reshape(())
            finite = floating and given.dtype.kind in "iuf" and np.isfinite(given)
            overflow = finite and not np.isfinite(element.astype(complex))
    except (TypeError, ValueError) as error:
        raise TypeError(f"value: {value!r} is no {dtype}: {error}") from None
    if overflow:
        raise ValueError(f"value: {value!r} is too large for {dtype}")
    return element.tobytes()
