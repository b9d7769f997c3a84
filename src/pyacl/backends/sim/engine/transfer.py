"""Copies and memsets, at once and on streams; values written and waited for on streams: the runtime library's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from .device import DRIVER_ERROR
from .failures import AclLayerError, RuntimeLayerError
from .memory import DEVICE, HOST, UNREGISTERED, Memory
from .operation import Access, Operation
from .refusals import MOST_BYTES, NOT_SUPPORTED, driver, invalid, out_of_range, silent, unsupported, wrong_context

if TYPE_CHECKING:
    from .context import Context
    from .machine import Machine
    from .stream import Stream

# kinds, as aclrtMemcpyKind has them
HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT, HOST_TO_BUF_TO_DEVICE, INNER, INTER = range(8)
MAX_ON_STREAM = 4 << 30  # bytes that one copy by descriptor or offset may have
MAX_HEIGHT = 5 * 1024 * 1024
MAX_WIDTH = 5_000_000
DESCRIPTOR = 32  # bytes of a copy descriptor
_MAX_BATCH = 4096  # copies in one synchronous batch
FAIL_NOWHERE = (1 << 64) - 1
# Descriptor of a copy on the device: what the hardware wants first, then length, source, destination.
_LENGTH_AT, _SOURCE_AT, _TARGET_AT = 12, 16, 24
# chips whose streams know these tasks
VALUE_TASKS = BATCHES = frozenset(("Ascend910B", "Ascend910_93", "Ascend950", "Ascend350"))
OFFSETS = BATCHES | {"Ascend910"}
DESCRIPTORS = BATCHES | {"Ascend310P", "Ascend310B"}


# ---- operations ----------------------------------------------------------------------------------------------


class Copy(Operation):
    """A copy between any two addresses."""

    __slots__ = ("memory", "dst", "src", "nbytes")

    def __init__(self, memory: Memory, name: str, dst: int, src: int, nbytes: int) -> None:
        super().__init__(name, Access(((src, nbytes),), ((dst, nbytes),)))
        self.memory = memory
        self.dst = dst
        self.src = src
        self.nbytes = nbytes

    def start(self, machine: Machine) -> bool:
        self.memory.copy(self.dst, self.src, self.nbytes, self.name)
        return True


class Put(Operation):
    """Bytes that were taken along when the operation was queued."""

    __slots__ = ("memory", "dst", "data")

    def __init__(self, memory: Memory, name: str, dst: int, data: bytes) -> None:
        super().__init__(name, Access((), ((dst, len(data)),)))
        self.memory = memory
        self.dst = dst
        self.data = data

    def start(self, machine: Machine) -> bool:
        self.memory.write(self.dst, self.data, self.name)
        return True


class Fill(Operation):
    """A memset; `width` is 1 or 4 bytes."""

    __slots__ = ("memory", "dst", "value", "nbytes", "width")

    def __init__(self, memory: Memory, name: str, dst: int, value: int, nbytes: int, width: int = 1) -> None:
        super().__init__(name, Access((), ((dst, nbytes),)))
        self.memory = memory
        self.dst = dst
        self.value = value
        self.nbytes = nbytes
        self.width = width

    def start(self, machine: Machine) -> bool:
        fill(self.memory, self.name, self.dst, self.value, self.nbytes, self.width)
        return True


class Copy2D(Operation):
    """A copy of rows."""

    __slots__ = ("memory", "shape")

    def __init__(
        self, memory: Memory, name: str, dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int
    ) -> None:
        rows = range(height)
        super().__init__(
            name,
            Access(
                tuple((src + row * src_pitch, width) for row in rows),
                tuple((dst + row * dst_pitch, width) for row in rows),
            ),
        )
        self.memory = memory
        self.shape = (dst, dst_pitch, src, src_pitch, width, height)

    def start(self, machine: Machine) -> bool:
        copy_rows(self.memory, self.name, *self.shape)
        return True


class CopyIndirect(Operation):
    """A copy whose addresses (and length) are read from device memory when it runs."""

    __slots__ = ("memory", "read")

    def __init__(
        self, memory: Memory, name: str, reads: tuple[tuple[int, int], ...], read: Callable[[], tuple[int, int, int]]
    ) -> None:
        super().__init__(name, Access(reads, ()))
        self.memory = memory
        self.read = read

    def start(self, machine: Machine) -> bool:
        dst, src, nbytes = self.read()
        self.memory.copy(dst, src, nbytes, self.name)
        return True


class Nothing(Operation):
    """A task that changes no bytes: cache maintenance."""

    def __init__(self, name: str) -> None:
        super().__init__(name)

    def start(self, machine: Machine) -> bool:
        return True


class Cell:
    """A word of device memory that streams wait for."""

    def __init__(self, address: int) -> None:
        self.address = address

    def ended_by(self, operation: Operation) -> bool:
        """May this operation change the word?"""
        return any(start < self.address + 8 and self.address < start + size for start, size in operation.access.writes)

    def __repr__(self) -> str:
        return f"the value at 0x{self.address:x}"


class ValueWait(Operation):
    """Waits until the 64-bit word at an address compares as wanted."""

    __slots__ = ("memory", "cell", "value", "how")

    def __init__(self, memory: Memory, address: int, value: int, how: int) -> None:
        super().__init__("aclrtValueWait", Access(((address, 8),), ()))
        self.memory = memory
        self.cell = Cell(address)
        self.value = value
        self.how = how

    def satisfied(self) -> bool:
        found = int.from_bytes(self.memory.read(self.cell.address, 8, self.name), "little")
        if self.how == 0:
            return (found - self.value) & (1 << 63) == 0
        if self.how == 1:
            return found == self.value
        if self.how == 2:
            return found & self.value != 0
        return ~(found | self.value) & FAIL_NOWHERE != 0

    def blocked_by(self) -> Any:
        return None if self.satisfied() else self.cell

    def start(self, machine: Machine) -> bool:
        return True


# ---- moving bytes --------------------------------------------------------------------------------------------


def fill(memory: Memory, call: str, address: int, value: int, nbytes: int, width: int = 1) -> None:
    """Set bytes, or 4-byte words, at any address."""
    if width == 1:
        memory.fill(address, value & 0xFF, nbytes, call)
    else:
        memory.view(address, nbytes, call)[:] = np.tile(
            np.array([value & 0xFFFFFFFF], np.uint32).view(np.uint8), nbytes // 4
        )


def copy_rows(
    memory: Memory, call: str, dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int
) -> None:
    """Copy `height` rows of `width` bytes."""
    target = memory.view(dst, (height - 1) * dst_pitch + width, call)
    source = memory.view(src, (height - 1) * src_pitch + width, call)
    shape = (height, width)
    np.lib.stride_tricks.as_strided(target, shape, (dst_pitch, 1))[:] = np.lib.stride_tricks.as_strided(
        source, shape, (src_pitch, 1)
    )


# ---- at once -------------------------------------------------------------------------------------------------


def refuse_while_capturing(machine: Machine, context: Context) -> None:
    """107030 for synchronous work that the capture of a model forbids; 507899 if the device is lost."""
    if context.device.lost:
        raise context.device.gone(DRIVER_ERROR)
    if machine.captures_forbid is not None and machine.captures_forbid(context):
        raise RuntimeLayerError(107030, "EE9999", "The current capture mode does not support this call")


def check_count(count: int, dest_max: int, name: str = "cnt") -> None:
    if not count:
        raise out_of_range(count, name, "not equal to 0")
    if count > dest_max:
        raise out_of_range(count, name, f"(0, {dest_max}]")


def memcpy(machine: Machine, dst: int, dest_max: int, src: int, count: int, call: str) -> None:
    """aclrtMemcpy, after its kind was checked. The direction follows from the addresses."""
    if not dest_max:
        raise out_of_range(dest_max, "destMax", "not equal to 0")
    check_count(count, dest_max)
    if dst == src:
        return
    refuse_while_capturing(machine, machine.current_context())
    memory = machine.area(Memory)
    if memory.on_access is not None:
        memory.on_access(call, Access(((src, count),), ((dst, count),)))
    memory.copy(dst, src, count, call)


def memset(
    machine: Machine, address: int, dest_max: int, value: int, count: int, call: str = "aclrtMemset", width: int = 1
) -> None:
    """aclrtMemset, and memsets of 4-byte words."""
    if not count:
        raise out_of_range(count, "cnt", "not equal to 0")
    refuse_while_capturing(machine, machine.current_context())
    if count > dest_max:
        raise driver(f"drvMemsetD8 failed: count={count} is above destMax={dest_max}")
    memory = machine.area(Memory)
    if memory.on_access is not None:
        memory.on_access(call, Access((), ((address, count),)))
    fill(memory, call, address, value, count, width)


def check_2d(dst_pitch: int, src_pitch: int, width: int, height: int) -> None:
    """What the runtime layer checks of a two-dimensional copy, in its order."""
    for name, value in (("height", height), ("dstPitch", dst_pitch), ("srcPitch", src_pitch), ("width", width)):
        if not value:
            raise out_of_range(value, name, "greater than 0")
    if width > dst_pitch:
        raise out_of_range(width, "width", "less than or equal to dstPitch")
    if width > src_pitch:
        raise out_of_range(width, "width", "less than or equal to srcPitch")
    if height > MAX_HEIGHT:
        raise out_of_range(height, "height", f"less than or equal to {MAX_HEIGHT}")
    if width > MAX_WIDTH:
        raise out_of_range(width, "width", f"less than or equal to {MAX_WIDTH}")


_ALLOWED = {
    (UNREGISTERED, DEVICE): (HOST_TO_DEVICE, DEVICE_TO_DEVICE),
    (DEVICE, UNREGISTERED): (DEVICE_TO_HOST, DEVICE_TO_DEVICE),
    (HOST, UNREGISTERED): (HOST_TO_HOST, HOST_TO_DEVICE),
    (UNREGISTERED, HOST): (HOST_TO_HOST, DEVICE_TO_HOST),
    (UNREGISTERED, UNREGISTERED): (HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE),
}
_FORCED = {
    (HOST, DEVICE): HOST_TO_DEVICE,
    (DEVICE, HOST): DEVICE_TO_HOST,
    (HOST, HOST): HOST_TO_HOST,
    (DEVICE, DEVICE): DEVICE_TO_DEVICE,
}


def corrected_kind(source: int, target: int, kind: int) -> int:
    """The kind that the two locations call for; 107000 where they contradict it."""
    forced = _FORCED.get((source, target))
    if forced is not None:
        return forced
    allowed = _ALLOWED.get((source, target))
    if allowed is None:
        return kind
    if kind == DEFAULT:
        return {(UNREGISTERED, DEVICE): HOST_TO_DEVICE, (DEVICE, UNREGISTERED): DEVICE_TO_HOST}.get(
            (source, target), HOST_TO_HOST
        )
    if kind not in allowed:
        raise invalid(f"The kind {kind} contradicts the memory of source and destination")
    return kind


def memcpy2d(
    machine: Machine, dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int, kind: int
) -> None:
    """aclrtMemcpy2d, after the checks of the acl layer."""
    check_2d(dst_pitch, src_pitch, width, height)
    if kind == DEVICE_TO_DEVICE:
        raise unsupported("The two-dimensional copy supports only host to device and device to host")
    context = machine.current_context(opens=False)
    memory = machine.area(Memory)
    kind = corrected_kind(memory.locate(src)[0], memory.locate(dst)[0], kind)
    if kind not in (HOST_TO_DEVICE, DEVICE_TO_HOST):
        raise invalid("The two-dimensional copy supports only host to device and device to host")
    refuse_while_capturing(machine, context)
    if memory.on_access is not None:
        memory.on_access(
            "aclrtMemcpy2d", Copy2D(memory, "aclrtMemcpy2d", dst, dst_pitch, src, src_pitch, width, height).access
        )
    copy_rows(memory, "aclrtMemcpy2d", dst, dst_pitch, src, src_pitch, width, height)


# ---- on streams ----------------------------------------------------------------------------------------------


def own_stream(machine: Machine, handle: int, call: str, what: str) -> Stream:
    """As `Machine.own_stream`; the text of the refusal says what failed."""
    try:
        return machine.own_stream(handle, call)
    except RuntimeLayerError as refusal:
        refused = wrong_context(what)
        raise (refused if refusal.code == refused.code else refusal) from None


def drain(machine: Machine, stream: Stream) -> None:
    """Wait for everything on a stream; what went wrong there is raised."""
    machine.scheduler.wait(lambda: stream.idle, (stream,))
    if machine.hazards is not None:
        machine.hazards.host_waited(stream)
    failure, stream.failure = stream.failure, None
    if failure is not None:
        raise failure


def memcpy_async(
    machine: Machine,
    dst: int,
    dest_max: int,
    src: int,
    count: int,
    kind: int,
    handle: int,
    call: str,
    check_pinned: bool = False,
) -> None:
    """aclrtMemcpyAsync, after its kind was checked.

    Pageable memory of the host is copied before the call returns, as documented. While a stream is captured, the
    copy is recorded whatever the memory.
    """
    check_count(count, dest_max)
    machine.current_context(opens=False)
    if check_pinned and kind != HOST_TO_BUF_TO_DEVICE:
        # the driver of the recorded library cannot tell how host memory was allocated
        raise AclLayerError(NOT_SUPPORTED, "EE9999", "The driver does not support the check for pinned memory")
    if kind == HOST_TO_HOST:
        raise silent(NOT_SUPPORTED)
    if dst == src:
        return
    stream = own_stream(machine, handle, call, "Memcpy async failed")
    if kind == HOST_TO_BUF_TO_DEVICE and handle and stream.models:
        raise invalid(f"A stream of a model takes no copy of kind {kind}")
    memory = machine.area(Memory)
    memory.check(dst, count, call)
    memory.check(src, count, call)
    if kind == HOST_TO_BUF_TO_DEVICE:
        stream.submit(Put(memory, call, dst, memory.read(src, count, call)))
        return
    if kind != DEVICE_TO_DEVICE and stream.recorder is None and (memory.pageable(src) or memory.pageable(dst)):
        drain(machine, stream)
        if stream.context.device.lost:
            raise stream.context.device.gone(DRIVER_ERROR)
        if memory.on_access is not None:
            memory.on_access(call, Access(((src, count),), ((dst, count),)))
        memory.copy(dst, src, count, call)
        return
    stream.submit(Copy(memory, call, dst, src, count))


def memset_async(
    machine: Machine,
    address: int,
    dest_max: int,
    value: int,
    count: int,
    handle: int,
    call: str = "aclrtMemsetAsync",
    width: int = 1,
) -> None:
    """aclrtMemsetAsync: on the stream for device memory, at once for memory of the host."""
    check_count(count, dest_max)
    stream = own_stream(machine, handle, call, "Memset async failed")
    memory = machine.area(Memory)
    memory.check(address, count, call)
    if memory.locate(address)[0] in (HOST, UNREGISTERED):
        if dest_max > MOST_BYTES:
            raise RuntimeLayerError(507000, "EE9999", f"memset of host memory failed: {dest_max} is no length")
        if memory.on_access is not None:
            memory.on_access(call, Access((), ((address, count),)))
        fill(memory, call, address, value, count, width)
        return
    stream.submit(Fill(memory, call, address, value, count, width))


def memcpy2d_async(
    machine: Machine,
    dst: int,
    dst_pitch: int,
    src: int,
    src_pitch: int,
    width: int,
    height: int,
    kind: int,
    handle: int,
) -> None:
    """aclrtMemcpy2dAsync, after the checks of the acl layer."""
    call = "aclrtMemcpy2dAsync"
    if handle == 0 and machine.find_context() is None:
        raise RuntimeLayerError(107000, "EE1004", "The argument curStm is a null pointer")
    check_2d(dst_pitch, src_pitch, width, height)
    context = machine.current_context(opens=False)
    memory = machine.area(Memory)
    # as with the recorded driver, which cannot tell pinned memory: kind DEFAULT is not resolved here
    if kind not in (HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE):
        raise invalid(
            "The two-dimensional asynchronous copy supports only host to device, device to host and device to device"
        )
    stream = own_stream(machine, handle, call, "Memcpy2D async failed")
    memory.check(dst, (height - 1) * dst_pitch + width, call)
    memory.check(src, (height - 1) * src_pitch + width, call)
    if kind != DEVICE_TO_DEVICE and stream.recorder is None and (memory.pageable(src) or memory.pageable(dst)):
        drain(machine, stream)
        refuse_while_capturing(machine, context)
        if memory.on_access is not None:
            memory.on_access(call, Copy2D(memory, call, dst, dst_pitch, src, src_pitch, width, height).access)
        copy_rows(memory, call, dst, dst_pitch, src, src_pitch, width, height)
        return
    stream.submit(Copy2D(memory, call, dst, dst_pitch, src, src_pitch, width, height))


# ---- batches -------------------------------------------------------------------------------------------------


class BatchAttribute(NamedTuple):
    """What a program says about the memory of some copies of a batch: (location, device) of both ends."""

    dst: tuple[int, int]
    src: tuple[int, int]


class BatchFailed(Exception):
    """A copy of a batch was refused: which one, and why."""

    def __init__(self, index: int, cause: RuntimeLayerError) -> None:
        super().__init__(index, cause)
        self.index = index
        self.cause = cause


def check_batch(count: int, starts: Sequence[int], attributes: int, limit: int = 0) -> None:
    """The rules for the attribute list of a batch, in the library's order."""
    if not attributes:
        raise out_of_range(attributes, "numAttrs", "not equal to 0")
    if attributes > count:
        raise invalid(f"numAttrs={attributes} must not be above the number of copies {count}")
    if limit and count > limit:
        raise out_of_range(count, "count", f"less than or equal to {limit}")
    if starts[0] != 0:
        raise out_of_range(starts[0], "attrsIdxs[0]", "0")
    for i in range(1, attributes):
        if starts[i] <= starts[i - 1]:
            raise invalid(f"attrsIdxs[{i}]={starts[i]} must be above the entry before it")
        if starts[i] >= count:
            raise invalid(f"attrsIdxs[{i}]={starts[i]} must be below the number of copies {count}")


def _batch_location(memory: Memory, address: int, said: tuple[int, int], end: str) -> int:
    """The location of one end of a copy, compared with what the program said: UNREGISTERED counts as HOST."""
    if not address:
        raise driver("drvMemGetAttribute failed: the address is null")
    location, device, _ = memory.locate(address)
    plain = HOST if location == UNREGISTERED else location
    if plain != (HOST if said[0] == 4 else said[0]) or (plain == DEVICE and device != said[1]):
        raise invalid(
            f"The memory of {end} at 0x{address:x} is of type {location} on device {device}, "
            f"the attribute says type {said[0]} on device {said[1]}"
        )
    return location


def _batch_ends(memory: Memory, dst: int, src: int, attribute: BatchAttribute) -> tuple[int, int]:
    target = _batch_location(memory, dst, attribute.dst, "dst")
    source = _batch_location(memory, src, attribute.src, "src")
    if (target in (HOST, UNREGISTERED)) == (source in (HOST, UNREGISTERED)):
        raise invalid("Only host to device and device to host are supported in a batch")
    return target, source


def batch(
    machine: Machine,
    dsts: Sequence[int],
    srcs: Sequence[int],
    sizes: Sequence[int],
    attributes: Sequence[BatchAttribute],
    starts: Sequence[int],
) -> None:
    """aclrtMemcpyBatch: every copy is checked before the first one is made."""
    check_batch(len(sizes), starts, len(attributes), _MAX_BATCH)
    memory = machine.area(Memory)
    at = 0
    for i, (dst, src) in enumerate(zip(dsts, srcs)):
        if at + 1 < len(attributes) and i >= starts[at + 1]:
            at += 1
        try:
            _batch_ends(memory, dst, src, attributes[at])
        except RuntimeLayerError as failure:
            raise BatchFailed(i, failure) from None
    if any(not size for size in sizes):
        raise driver("halMemcpyBatch failed: a size is 0")
    for dst, src, size in zip(dsts, srcs, sizes):
        if memory.on_access is not None:
            memory.on_access("aclrtMemcpyBatch", Access(((src, size),), ((dst, size),)))
        memory.copy(dst, src, size, "aclrtMemcpyBatch")


def batch_async(
    machine: Machine,
    dsts: Sequence[int],
    maxima: Sequence[int],
    srcs: Sequence[int],
    sizes: Sequence[int],
    attributes: Sequence[BatchAttribute],
    starts: Sequence[int],
    handle: int,
) -> None:
    """aclrtMemcpyBatchAsync: the copies are checked and queued one after the other."""
    call = "aclrtMemcpyBatchAsync"
    check_batch(len(sizes), starts, len(attributes))
    machine.current_context(opens=False)
    memory = machine.area(Memory)
    at = 0
    for i, (dst, src, size) in enumerate(zip(dsts, srcs, sizes)):
        if at + 1 < len(attributes) and i >= starts[at + 1]:
            at += 1
        try:
            if not size or size > maxima[i]:
                raise driver(f"The size {size} is not in (0, {maxima[i]}]")
            if not dst or not src:
                raise driver("An address of the copy is null")
            target, source = _batch_ends(memory, dst, src, attributes[at])
        except RuntimeLayerError as failure:
            raise BatchFailed(i, RuntimeLayerError(failure.code, "EE1001", failure.text)) from None
        if UNREGISTERED in (target, source):
            drain(machine, machine.stream(handle, call))
            refuse_while_capturing(machine, machine.current_context())
            if memory.on_access is not None:
                memory.on_access(call, Access(((src, size),), ((dst, size),)))
            memory.copy(dst, src, size, call)
        else:
            stream = own_stream(machine, handle, call, "Memcpy async failed")
            memory.check(dst, size, call)
            memory.check(src, size, call)
            stream.submit(Copy(memory, call, dst, src, size))


# ---- by descriptor and by offset -----------------------------------------------------------------------------


def _device_address(memory: Memory, address: int) -> None:
    """107000 for an address in other memory than a device's."""
    location = memory.locate(address)[0]
    if location != DEVICE:
        raise out_of_range(location, "attributes.location.type", str(DEVICE))


def set_descriptor(machine: Machine, desc: int, src: int, dst: int, count: int) -> None:
    """aclrtSetMemcpyDesc, after the checks of the acl layer and of the kind."""
    if count > MAX_ON_STREAM:
        raise out_of_range(count, "count", f"(0, {MAX_ON_STREAM}]")
    if desc % 64:
        raise invalid("The descriptor must start on a multiple of 64 bytes")
    memory = machine.area(Memory)
    places = [memory.locate(address) for address in (desc, dst, src)]
    if places[0][0] != DEVICE:
        raise invalid("The descriptor must be in device memory")
    if places[1][1] != places[2][1] or places[1][0] != DEVICE or places[2][0] != DEVICE:
        raise invalid("Source and destination must be in memory of one device")
    machine.current_context()
    content = (
        bytes(_LENGTH_AT)
        + (count & 0xFFFFFFFF).to_bytes(4, "little")
        + src.to_bytes(8, "little")
        + dst.to_bytes(8, "little")
    )
    if memory.on_access is not None:
        memory.on_access("aclrtSetMemcpyDesc", Access((), ((desc, len(content)),)))
    memory.write(desc, content, "aclrtSetMemcpyDesc")


def memcpy_by_descriptor(machine: Machine, desc: int, handle: int) -> None:
    """aclrtMemcpyAsyncWithDesc, after the checks of the acl layer and of the kind."""
    call = "aclrtMemcpyAsyncWithDesc"
    memory = machine.area(Memory)
    if memory.locate(desc)[0] != DEVICE:
        raise invalid("The descriptor must be in device memory")
    if desc % 64:
        raise invalid("The descriptor must start on a multiple of 64 bytes")
    stream = own_stream(machine, handle, call, "Memcpy async failed")

    def read() -> tuple[int, int, int]:
        content = memory.read(desc, DESCRIPTOR, call)
        # a length of 0 stands for the largest one, which does not fit into the field
        length = int.from_bytes(content[_LENGTH_AT:_SOURCE_AT], "little") or MAX_ON_STREAM
        return (
            int.from_bytes(content[_TARGET_AT:], "little"),
            int.from_bytes(content[_SOURCE_AT:_TARGET_AT], "little"),
            length,
        )

    stream.submit(CopyIndirect(memory, call, ((desc, DESCRIPTOR),), read))


def memcpy_with_offset(
    machine: Machine, dst: int, dest_max: int, dst_offset: int, src: int, count: int, src_offset: int, handle: int
) -> None:
    """aclrtMemcpyAsyncWithOffset: `dst` and `src` are addresses of device memory that hold the base addresses."""
    call = "aclrtMemcpyAsyncWithOffset"
    for address, name in ((dst, "dst"), (src, "src")):
        if not address:
            raise RuntimeLayerError(107000, "EE1004", f"The argument {name} is a null pointer")
    check_count(count, dest_max)
    if count > MAX_ON_STREAM:
        raise invalid(f"cnt={count} is not in (0, {MAX_ON_STREAM}]")
    for offset, name in ((src_offset, "srcOffset"), (dst_offset, "dstOffset")):
        if offset > 0xFFFF_FFFF_FFFF:
            raise out_of_range(offset, name, "less than or equal to 0xFFFFFFFFFFFF")
    if dst_offset >= dest_max:
        raise out_of_range(dst_offset, "dstOffset", f"[0, {dest_max})")
    if count > dest_max - dst_offset:
        raise out_of_range(count, "cnt", f"(0, {dest_max - dst_offset}]")
    stream = own_stream(machine, handle, call, "Memcpy async failed")
    memory = machine.area(Memory)
    memory.check(dst, 8, call)
    memory.check(src, 8, call)

    def read() -> tuple[int, int, int]:
        target, source = (int.from_bytes(memory.read(address, 8, call), "little") for address in (dst, src))
        return target + dst_offset, source + src_offset, count

    stream.submit(CopyIndirect(memory, call, ((dst, 8), (src, 8)), read))


# ---- values and caches ---------------------------------------------------------------------------------------


def value_write(machine: Machine, address: int, value: int, flag: int, handle: int) -> None:
    """aclrtValueWrite, after the null check."""
    if flag != 0:
        raise out_of_range(flag, "flag", "0")
    memory = machine.area(Memory)
    _device_address(memory, address)
    stream = own_stream(machine, handle, "aclrtValueWrite", "mem write value failed")
    memory.check(address, 8, "aclrtValueWrite")
    stream.submit(Put(memory, "aclrtValueWrite", address, (value & FAIL_NOWHERE).to_bytes(8, "little")))


def value_wait(machine: Machine, address: int, value: int, flag: int, handle: int) -> None:
    """aclrtValueWait, after the null check."""
    if flag >= 4:
        raise out_of_range(flag, "flag", "[0, 4)")
    memory = machine.area(Memory)
    _device_address(memory, address)
    stream = own_stream(machine, handle, "aclrtValueWait", "mem wait value failed")
    memory.check(address, 8, "aclrtValueWait")
    stream.submit(ValueWait(memory, address, value, flag))


def task_without_effect(machine: Machine, handle: int, call: str, what: str) -> None:
    """A task that does nothing that a simulation would show: on caches that it lacks, marks that nobody records."""
    own_stream(machine, handle, call, what).submit(Nothing(call))


def cache_task(machine: Machine, handle: int, call: str) -> None:
    """A task on the caches by address: no stream of a model takes it (207000, and nobody is told)."""
    stream = own_stream(machine, handle, call, "Cmo Task launch failed")
    if stream.models:
        raise AclLayerError(207000)
    stream.submit(Nothing(call))


def cache_task_of_model(machine: Machine, handle: int, call: str) -> None:
    """A task on the caches by descriptor: only streams of models take it (507000 otherwise)."""
    stream = own_stream(machine, handle, call, "CmoAddr Task launch failed")
    if stream.recorder is None and not stream.models:
        raise RuntimeLayerError(507000, "EE9999", "The stream of a task by descriptor is not in a model")
    stream.submit(Nothing(call))


def set_cache_descriptor(machine: Machine, desc: int, src: int, nbytes: int) -> None:
    """aclrtCmoSetDesc, after its checks."""
    refuse_while_capturing(machine, machine.current_context())
    content = bytes(8) + src.to_bytes(8, "little") + bytes(8) + (nbytes & 0xFFFFFFFF).to_bytes(4, "little") + bytes(4)
    machine.area(Memory).write(desc, content, "aclrtCmoSetDesc")
