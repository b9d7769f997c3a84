"""Devices: opening and closing them, what they are, their memory and their context on the calling thread."""

from __future__ import annotations

import copy
import ctypes
import math
import operator
import os
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, NoReturn, Optional, SupportsIndex, Union

from pyacl._checks import whole
from pyacl._handle import Closeable, Handle, drain
from pyacl.backends.thunks import raise_pending
from pyacl.errors import (
    AclDeviceFaultError,
    AclError,
    AclInvalidArgumentError,
    AclInvalidDeviceError,
    AclNotSupportedError,
    AclTimeoutError,
)
from pyacl.raw import constants, types
from pyacl.session import current_session

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pyacl.kernel import KernelBinary
    from pyacl.memory import DeviceBuffer, HostBuffer, ShapeLike
    from pyacl.objfile.reader import Source
    from pyacl.raw.api import Api
    from pyacl.stream import Event, Stream, StreamHandle

__all__ = ["Device", "DeviceInfo", "MemoryInfo", "device_count"]

#: refusals that say "this thread is not in the right context" and have done nothing
WRONG_CONTEXT = frozenset({107002, 107003, 107004})

#: order in which things on a device are closed: what may still be working first
STREAM, EVENT, BINARY, MEMORY = range(4)

_opened: weakref.WeakSet[Device] = weakref.WeakSet()


class MemoryInfo(NamedTuple):
    """Device memory in bytes."""

    free: int
    total: int


@dataclass(frozen=True)
class DeviceInfo:
    """What a device is. None where the loaded CANN version cannot tell."""

    #: number in this process, as in ``Device(id)``
    id: int
    #: name of the SoC, such as ``Ascend910B3``
    name: str
    #: CANN version of the library
    cann: Optional[str]
    #: number in the list that ASCEND_RT_VISIBLE_DEVICES selects from
    user_id: Optional[int]
    #: number of the chip, as npu-smi shows it
    physical_id: Optional[int]
    #: cores that multiply matrices, 0 on a device whose cores do both
    cube_cores: Optional[int]
    #: cores that work on vectors
    vector_cores: Optional[int]
    #: cores that do both, or blocks of both (the AI Cores)
    ai_cores: Optional[int]
    #: AI CPUs
    ai_cpus: Optional[int]
    #: bytes of device memory
    total_memory: Optional[int]
    #: bytes of the L2 cache
    l2_cache: Optional[int]


class DeviceHandle(Handle):
    """The open device below all objects on it: its context, its C functions, and whether it broke."""

    __slots__ = ("api", "context", "fault", "hung", "id", "peers", "reset")

    def __init__(self, api: Api, device_id: int, parent: Handle) -> None:
        #: the C functions
        self.api = api
        self.id = device_id
        #: the fault that made the device unusable
        self.fault: Optional[AclDeviceFaultError] = None
        #: whether something on it was last seen working without an end
        self.hung = False
        #: whether it was reset and could not be set again since
        self.reset = False
        #: devices that copies may go to and come from directly
        self.peers: set[int] = set()
        api.aclrtSetDevice(device_id)
        super().__init__(f"device {device_id}", device_id, None, parent)
        self.context = types.aclrtContext()
        try:
            api.aclrtGetCurrentContext(self.context)
        except BaseException:
            self.close()
            raise
        for other in self.twins:
            if other.fault is not None:
                self._break(other.fault)

    @property
    def twins(self) -> list[DeviceHandle]:
        """The open handles of this number, itself among them: what breaks or resets one, breaks or resets all."""
        assert self.parent is not None
        handles = (handle for handle in self.parent.children if isinstance(handle, DeviceHandle))
        return [handle for handle in handles if handle.id == self.id and not handle.closed]

    def _free(self, value: Any) -> None:
        if self.reset:
            return
        others = self.twins
        for other in others:
            other.hung = other.hung or self.hung
        # the gentle reset waits for what never ends, but only the last one
        force = not others and (self.hung or self.fault is not None) and self.api.has("aclrtResetDeviceForce")
        if force:
            self.api.aclrtResetDeviceForce(value)
        else:
            self.api.aclrtResetDevice(value)

    # -- the context of the calling thread --------------------------------------------------------------------------

    @contextmanager
    def current(self, must: bool = True) -> Iterator[None]:
        """The body runs in this device's context; a thread that was in another one is put back afterwards.

        For calls that act on whatever device is current: malloc, create, load, synchronize. With ``must=False`` the
        body runs even where the context cannot be set: what frees something has to try.
        """
        bare = self.api.unchecked
        before = types.aclrtContext()
        code = bare.aclrtGetCurrentContext(before)
        mine = not code and before.value == self.context.value
        if not mine:
            if must:
                raise_pending("aclrtGetCurrentContext")
                self.bind()
            else:
                bare.aclrtSetCurrentContext(self.context)
            if code == 107002:
                self.forget_message()
        try:
            yield
        finally:
            if not mine and not code:
                bare.aclrtSetCurrentContext(before)

    def bind(self) -> None:
        """Make this device's context the calling thread's."""
        self.api.aclrtSetCurrentContext(self.context)

    def forget_message(self) -> None:
        """Drop the text and the last error of a refusal that was answered: they must not turn up in a later error."""
        self.api.recent_message()
        if self.api.has("aclrtGetLastError"):
            self.api.unchecked.aclrtGetLastError(constants.ACL_RT_THREAD_LEVEL)

    # -- calls ------------------------------------------------------------------------------------------------------

    def call(self, name: str, *args: Any) -> Any:
        """A checked C call in this device's context."""
        self.get()
        with self.current():
            try:
                return getattr(self.api, name)(*args)
            except AclError as error:
                self.note(error)
                raise

    def direct(self, name: str, *args: Any) -> None:
        """A C call on a handle that knows its context: nothing is asked or set before it.

        The calling thread's context is set only where the call is refused for it.
        """
        function = getattr(self.api.unchecked, name)
        code = function(*args)
        if code:
            self.again(code, name, function, *args)

    def again(self, code: int, name: str, function: Callable[..., int], *args: Any) -> None:
        """A call on a handle returned this code: where the thread's context was to blame, bind it and call once more.

        The thread stays bound, so that the next call goes through at once.
        """
        if code in WRONG_CONTEXT:
            self.bind()
            self.forget_message()
            code = function(*args)
            if not code:
                return
        self.fail(code, name)

    def fail(self, code: int, name: str) -> NoReturn:
        """Raise the error of a C call on this device."""
        try:
            self.api.fail(code, name)
        except AclError as error:
            self.note(error)
            raise
        raise AssertionError(f"{name} returned {code}, which is no failure")

    def note(self, error: AclError) -> None:
        """Remember a fault: the library reports it once and then answers as if nothing had happened."""
        if isinstance(error, AclDeviceFaultError) and self.fault is None:
            # without its traceback, whose frames hold buffers and arrays of the program
            fault = copy.copy(error)
            for handle in self.twins:
                handle._break(fault)

    def _break(self, fault: AclDeviceFaultError) -> None:
        self.fault = fault
        self.forbid(lambda: _after_fault(self.id, fault))

    def release(self, name: str) -> Callable[[Any], None]:
        """A release function for something on this device: one C call in its context."""

        def free(value: Any) -> None:
            with self.current(must=False):
                getattr(self.api, name)(value)
            raise_pending()

        return free


def _after_fault(device: int, first: AclDeviceFaultError) -> AclDeviceFaultError:
    again = type(first)(
        first.code,
        first.function,
        f"device {device} broke earlier, and everything on it is refused until device.recover() resets it "
        f"(device.clear_fault() goes on at your own risk). What broke it: {first.message or first.meaning}",
        raw_text=first.raw_text,
    )
    again.__cause__ = first
    return again


class Device(Closeable):
    """An NPU, opened for this process.

    Opening the first device initialises the library (aclInit). A device is closed with `close`, at the end of a
    ``with`` block, when it is collected, and at exit; everything made on it is closed with it. Several `Device` objects
    of one number, and other users of the device in this process, do not disturb each other.

    Parameters
    ----------
    id : int
        Number of the device in this process, from 0. ASCEND_RT_VISIBLE_DEVICES decides which chip that is.

    Raises
    ------
    AclInvalidDeviceError
        When there is no such device; the message says how many there are and what ASCEND_RT_VISIBLE_DEVICES says.
    LibraryNotFoundError
        When no CANN is installed and no other backend was chosen.

    Notes
    -----
    aclrtSetDevice, and aclrtResetDevice when it is closed. Methods act on this device whatever device is current on the
    calling thread, and work on any thread. A thread keeps its current device over calls that make or free something; a
    launch, a copy or another call on a stream leaves the thread at the stream's device.
    """

    _handle: DeviceHandle

    def __init__(self, id: SupportsIndex = 0) -> None:
        number = _checked_id(id)
        session = current_session()
        root = session.start()
        count = device_count()
        if not 0 <= number < count:
            raise AclInvalidDeviceError(None, "aclrtSetDevice", _no_such_device(number, count))
        self._handle = DeviceHandle(session.api, number, root)
        self._handle.own(self)
        self._default_stream: Optional[StreamHandle] = None
        #: what work in the default stream still needs
        self._kept: Optional[deque[Any]] = None
        self._soc = ""
        _opened.add(self)

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ", broken" if self.fault else ""
        return f"<Device {self.id}{f' ({self._soc})' if self._soc else ''}{state}>"

    def close(self) -> None:
        """Close everything on the device, then the device. Idempotent. Waits for work on its streams.

        Pinned memory that a numpy array still looks into is freed, and the device reset, once that array is gone.
        """
        self._handle.close()

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def id(self) -> int:
        """Number of the device in this process."""
        return self._handle.id

    @property
    def name(self) -> str:
        """Name of the SoC, such as ``Ascend910B3``. aclrtGetSocName."""
        if not self._soc:
            self._handle.get()
            with self._handle.current():
                self._soc = (self._handle.api.aclrtGetSocName() or b"").decode()
        return self._soc

    @property
    def info(self) -> DeviceInfo:
        """What the device is."""
        handle = self._handle

        def attribute(name: str) -> Optional[int]:
            try:
                return self.attribute(getattr(constants.aclrtDevAttr, name))
            except (AclNotSupportedError, AclInvalidArgumentError):
                return None

        def number(name: str) -> Optional[int]:
            try:
                value = ctypes.c_int32()
                handle.call(name, self.id, value)
                return value.value
            except (AclNotSupportedError, AclInvalidArgumentError):
                return None

        return DeviceInfo(
            id=self.id,
            name=self.name,
            cann=handle.api.version,
            user_id=number("aclrtGetUserDevIdByLogicDevId"),
            physical_id=number("aclrtGetPhyDevIdByLogicDevId"),
            cube_cores=attribute("ACL_DEV_ATTR_CUBE_CORE_NUM"),
            vector_cores=attribute("ACL_DEV_ATTR_VECTOR_CORE_NUM"),
            ai_cores=attribute("ACL_DEV_ATTR_AICORE_CORE_NUM"),
            ai_cpus=attribute("ACL_DEV_ATTR_AICPU_CORE_NUM"),
            total_memory=self.memory_info.total,
            l2_cache=attribute("ACL_DEV_ATTR_L2_CACHE_SIZE"),
        )

    def attribute(self, attribute: int) -> int:
        """One number about the device.

        Parameters
        ----------
        attribute
            A member of ``pyacl.raw.constants.aclrtDevAttr``.

        Raises
        ------
        AclInvalidArgumentError
            For an attribute that the library does not know.
        MissingFunctionError
            Before CANN 8.5.

        Notes
        -----
        aclrtGetDeviceInfo.
        """
        value = ctypes.c_int64()
        self._handle.call("aclrtGetDeviceInfo", self.id, int(attribute), value)
        return value.value

    @property
    def memory_info(self) -> MemoryInfo:
        """Free and total device memory in bytes. aclrtGetMemInfo."""
        drain()
        for kind in (constants.ACL_HBM_MEM, constants.ACL_DDR_MEM):
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            self._handle.call("aclrtGetMemInfo", kind, free, total)
            # a kind of memory that the device does not have answers 0
            if total.value:
                break
        return MemoryInfo(free.value, total.value)

    @property
    def context(self) -> types.aclrtContext:
        """The C context, for calls through `pyacl.raw`. It belongs to the device; do not destroy it."""
        self._handle.get()
        return self._handle.context

    # -- faults -------------------------------------------------------------------------------------------------------

    @property
    def fault(self) -> Optional[AclDeviceFaultError]:
        """The error with which the device broke, or None.

        The library reports a kernel that faulted once, at the next wait, and then answers as if nothing had happened.
        pyacl remembers it: until `recover` or `clear_fault`, everything on this device raises it again.
        """
        return self._handle.fault

    def clear_fault(self) -> None:
        """Go on after a fault without a reset. What the device computed, and will compute, may be wrong."""
        for handle in self._handle.twins:
            handle.fault = None
            handle.allow()

    def recover(self, attempts: int = 3) -> None:
        """Reset the device after a fault or a hang: everything made on it is closed, and it can be used again.

        That goes for all `Device` objects of this number.

        Parameters
        ----------
        attempts : int
            How often to try; between two tries it waits a second.

        Raises
        ------
        AclError
            When the last attempt failed.

        Notes
        -----
        aclrtResetDeviceForce takes the device away from everybody in this process, torch_npu for example.
        """
        handle = self._handle
        if handle.closed:
            handle.get()
        twins = handle.twins
        for twin in twins:
            for child in sorted(reversed(twin.children), key=lambda child: child.rank):
                child._quietly(child.close)
        for attempt in range(1, attempts + 1):
            try:
                if not handle.reset:
                    handle.api.aclrtResetDeviceForce(self.id)
                    for twin in twins:
                        twin.reset = True
                for twin in twins:
                    if twin.reset:
                        twin.api.aclrtSetDevice(self.id)
                        twin.reset = False
                    twin.api.aclrtGetCurrentContext(twin.context)
                break
            except AclError:
                if attempt == attempts:
                    raise
                time.sleep(1)
        for twin in twins:
            twin.hung = False
            twin.peers.clear()
        self.clear_fault()

    # -- waiting ------------------------------------------------------------------------------------------------------

    def synchronize(self, timeout: Optional[float] = None) -> None:
        """Wait for all work on the device.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits without an end. 0 asks whether all work is done; the library has no such question for
            a device, so that takes up to a millisecond.

        Raises
        ------
        AclTimeoutError
            When the work is not done in time. It goes on; waiting again is allowed.
        AclDeviceFaultError
            When a kernel broke.
        BaseException
            What a host function on one of its streams raised.

        Notes
        -----
        aclrtSynchronizeDevice, aclrtSynchronizeDeviceWithTimeout.
        """
        from pyacl.stream import StreamHandle

        handle = self._handle
        streams = [(s, s.position) for s in handle.children if isinstance(s, StreamHandle)]
        try:
            if timeout is None:
                handle.call("aclrtSynchronizeDevice")
            else:
                handle.call("aclrtSynchronizeDeviceWithTimeout", max(1, milliseconds(timeout)))
        except BaseException as error:
            if broken_off(error):
                handle.hung = True
                for stream, _ in streams:
                    stream.hung = True
            raise
        handle.hung = False
        for stream, position in streams:
            stream.hung = False
            stream.passed(position)
        for stream, _ in streams:
            stream.raise_host_error()

    # -- making things on it ------------------------------------------------------------------------------------------

    def create_stream(
        self, *, priority: int = 0, fast_launch: bool = False, fast_sync: bool = False, flags: int = 0
    ) -> Stream:
        """Make a stream: a queue of work that runs in order.

        Parameters
        ----------
        priority : int
            0 is the highest. Reserved on Atlas A2 and A3.
        fast_launch : bool
            Reserve the resources of launches now, which makes them faster.
        fast_sync : bool
            Waiting for the stream keeps a processor busy, which makes it faster.
        flags : int
            Further bits of aclrtCreateStreamWithConfig.

        Notes
        -----
        aclrtCreateStream; aclrtCreateStreamWithConfig where anything is asked for.
        """
        from pyacl.stream import Stream

        priority, flags = (checked_number(n, v, 0, 0xFFFFFFFF) for n, v in (("priority", priority), ("flags", flags)))
        return Stream._create(self, priority, flags | (1 if fast_launch else 0) | (2 if fast_sync else 0))

    @property
    def default_stream(self) -> Stream:
        """The stream that is used where none is named: the context's own (aclrtCtxGetCurrentDefaultStream).

        Before CANN 8.5, which cannot name its default stream, one that pyacl makes.
        """
        from pyacl.stream import Stream, default_stream

        # the handle, not the Stream, which would keep this device alive in a circle
        found = self._default_stream
        if found is None or found.closed:
            self._default_stream = found = default_stream(self)
        return Stream(self, found)

    def create_event(self, *, timing: bool = True) -> Event:
        """Make an event: a mark in a stream that can be waited for, asked and timed.

        Parameters
        ----------
        timing : bool
            Whether it notes the time; without, it costs less and cannot be subtracted.

        Notes
        -----
        aclrtCreateEventExWithFlag; aclrtCreateEventWithFlag before CANN 8.0.RC2.
        """
        from pyacl.stream import Event

        return Event._create(self, timing)

    def load(self, source: Source, *, lazy: bool = False, cpu_mode: Optional[int] = None) -> KernelBinary:
        """Load a kernel binary that bisheng compiled.

        The file is looked into before the library is asked, which checks next to nothing: whether it is a linked device
        binary, of this device's architecture, and which of the library's ways of loading takes it.

        Parameters
        ----------
        source : path, bytes or binary file object
            The ``.o``. A host object that carries a device binary is loaded for that part. Of AI CPU kernels, the
            library (``.so``) or its JSON.
        lazy : bool
            Copy the code to the device at the first launch, not when the first kernel is taken out (LAZY_LOAD).
        cpu_mode : {0, 1, 2}, optional
            How AI CPU kernels are loaded (CPU_KERNEL_MODE): 0 by the JSON alone, for libraries that the device has
            already; 1 by the JSON and the library beside it; 2 the library without a JSON, whose kernels are then
            named with `KernelBinary.register`. By default 1 for a library with its JSON, 0 for a JSON without library.

        Raises
        ------
        FileNotFoundError
            When there is no such file.
        KernelObjectError
            When it is no device binary, is damaged, or is of another architecture; the message says what it is and
            what to do.

        Notes
        -----
        aclrtBinaryLoadFromFile; aclrtBinaryLoadFromData with MAGIC where that function would not take the file, and for
        a `cpu_mode` of 2.
        """
        from pyacl.kernel import KernelBinary

        return KernelBinary._load(self, source, lazy, cpu_mode)

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Device memory of this many bytes, as uint8. Its content is undefined. aclrtMalloc."""
        from pyacl.memory import checked_nbytes

        return self.empty(checked_nbytes(nbytes), "uint8")

    def empty(self, shape: ShapeLike, dtype: npt.DTypeLike = "float32") -> DeviceBuffer:
        """Device memory for an array; its content is undefined.

        Parameters
        ----------
        shape : int or tuple of int
            A length of 0 is allowed.
        dtype
            Anything numpy takes, ml_dtypes.bfloat16 for example.

        Raises
        ------
        AclMemoryError
            Also a MemoryError; its text has the requested, the free and the total bytes.

        Notes
        -----
        aclrtMalloc with ACL_MEM_MALLOC_HUGE_FIRST.
        """
        from pyacl.memory import DeviceBuffer

        return DeviceBuffer._allocate(self, shape, dtype)

    def empty_like(self, array: Union[DeviceBuffer, HostBuffer, np.ndarray[Any, Any]]) -> DeviceBuffer:
        """Device memory of the shape and dtype of a buffer or a numpy array; its content is undefined."""
        return self.empty(array.shape, array.dtype)

    def zeros(
        self, shape: ShapeLike, dtype: npt.DTypeLike = "float32", stream: Optional[Stream] = None
    ) -> DeviceBuffer:
        """Device memory for an array of zeros. With a stream they are written there, without one at once."""
        return self.full(shape, 0, dtype, stream)

    def full(
        self, shape: ShapeLike, value: Any, dtype: npt.DTypeLike = "float32", stream: Optional[Stream] = None
    ) -> DeviceBuffer:
        """Device memory for an array that has one value everywhere; see `DeviceBuffer.fill`."""
        buffer = self.empty(shape, dtype)
        buffer.fill(value, stream)
        return buffer

    def to_device(self, array: npt.ArrayLike, stream: Optional[Stream] = None) -> DeviceBuffer:
        """Copy an array into new device memory.

        Parameters
        ----------
        array
            A numpy array of any layout, a `HostBuffer`, or what `numpy.asarray` takes.
        stream : Stream, optional
            Pinned memory is copied on this stream while the program goes on. Other host memory is copied before this
            returns, with or without a stream.

        Notes
        -----
        aclrtMemcpyAsync for pinned memory on a stream, else aclrtMemcpy.
        """
        from pyacl.memory import to_device

        return to_device(self, array, stream)

    def allocate_host(self, nbytes: int) -> HostBuffer:
        """Pinned (page-locked) host memory of this many bytes, as uint8. aclrtMallocHost."""
        from pyacl.memory import checked_nbytes

        return self.empty_host(checked_nbytes(nbytes), "uint8")

    def empty_host(self, shape: ShapeLike, dtype: npt.DTypeLike = "float32") -> HostBuffer:
        """Pinned (page-locked) host memory for an array; its content is undefined.

        Copies between it and the device can go on while the program does. ``buffer.array`` is the numpy array.

        Notes
        -----
        aclrtMallocHost. Too much pinned memory slows the whole machine, and making it is slow: keep it, use it again.
        """
        from pyacl.memory import HostBuffer

        return HostBuffer._allocate(self, shape, dtype)

    # -- other devices ------------------------------------------------------------------------------------------------

    def can_access_peer(self, other: Device) -> bool:
        """Whether data can go directly between this device and another one. aclrtDeviceCanAccessPeer."""
        if other.id == self.id:
            return True
        answer = ctypes.c_int32()
        self._handle.call("aclrtDeviceCanAccessPeer", answer, self.id, other.id)
        return bool(answer.value)

    def enable_peer_access(self, other: Device) -> None:
        """Allow copies between this device and another one, both ways.

        Raises
        ------
        AclNotSupportedError
            When the two devices cannot reach each other.

        Notes
        -----
        aclrtDeviceEnablePeerAccess, on each of the two.
        """
        if other.id == self.id or other.id in self._handle.peers:
            return
        if not self.can_access_peer(other):
            raise AclNotSupportedError(
                None,
                "aclrtDeviceEnablePeerAccess",
                f"devices {self.id} and {other.id} cannot reach each other directly",
            )
        self._handle.call("aclrtDeviceEnablePeerAccess", other.id, 0)
        other._handle.call("aclrtDeviceEnablePeerAccess", self.id, 0)
        self._handle.peers.add(other.id)
        other._handle.peers.add(self.id)


def device_count() -> int:
    """How many devices this process sees; ASCEND_RT_VISIBLE_DEVICES limits them. aclrtGetDeviceCount."""
    count = ctypes.c_uint32()
    current_session().api.aclrtGetDeviceCount(count)
    return count.value


def broken_off(error: BaseException) -> bool:
    """Whether a wait that ended so may be for something that never ends: its time ran out, or it was interrupted."""
    return isinstance(error, AclTimeoutError) or not isinstance(error, AclError)


def milliseconds(timeout: float) -> int:
    """A timeout in seconds as the library takes it, within its 32 bits; 0 only for 0, which the library refuses."""
    try:
        seconds = float(timeout)
    except (TypeError, ValueError):
        raise TypeError(f"timeout: seconds as a number, or None to wait without an end, not {timeout!r}") from None
    if not seconds >= 0:
        raise ValueError(f"timeout: {timeout!r} seconds; 0 asks, None waits without an end")
    return math.ceil(min(seconds, 2_000_000) * 1000)


def same_device(what: str, device: Device, thing: Any, kind: type[Any]) -> None:
    """Refuse what is not of this kind (Stream, Event, DeviceBuffer), and to mix things of two devices."""
    if not isinstance(thing, kind):
        name = kind.__name__
        raise TypeError(
            f"{what}: {'an' if name[0] in 'AEIOU' else 'a'} {name}, not {type(thing).__name__}; "
            f"{name}.borrow(address) makes one of what somebody else made"
        )
    if device.id != thing.device.id:
        raise ValueError(
            f"{what} belongs to device {thing.device.id}, not to device {device.id}: take one that was made on that"
        )


def checked_number(name: str, value: Any, low: int, high: int) -> int:
    """A whole number in a range."""
    number = whole(name, value)
    if not low <= number <= high:
        raise ValueError(f"{name}: {number} is not in {low} to {high}")
    return number


def checked_address(address: Any, what: str) -> int:
    """The address of something borrowed, which is not NULL."""
    try:
        number = operator.index(address)
    except TypeError:
        raise TypeError(f"address: a whole number, not {type(address).__name__}") from None
    if not 0 < number < 1 << 64:
        raise ValueError(f"address: {number:#x} is no {what}")
    return number


def open_device(device: Optional[Device]) -> Device:
    """The device of a borrowed handle: the one given, or the only one that is open."""
    if device is not None:
        return device
    api = current_session().api
    found = [candidate for candidate in _opened if not candidate.closed and candidate._handle.api is api]
    if len({candidate.id for candidate in found}) != 1:
        numbers = ", ".join(str(number) for number in sorted({candidate.id for candidate in found})) or "none"
        raise ValueError(f"device: say which device it belongs to; open are {numbers}")
    return found[0]


def _checked_id(number: SupportsIndex) -> int:
    return whole("id", number, "the number of a device")


def _no_such_device(number: int, count: int) -> str:
    if count == 0:
        return f"device {number} does not exist: this process sees no device"
    range_ = "number 0" if count == 1 else f"numbers 0 to {count - 1}"
    visible = os.environ.get("ASCEND_RT_VISIBLE_DEVICES")
    dropped = "" if visible is None else f" (ASCEND_RT_VISIBLE_DEVICES={visible}; what it lists wrongly is left out)"
    return f"device {number} does not exist: this process sees {count}, {range_}{dropped}"
