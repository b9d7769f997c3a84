"""Entry points: copies, memsets, values on streams, cache maintenance."""

from __future__ import annotations

from ..engine import transfer
from ..engine.failures import RuntimeLayerError
from ..engine.machine import Machine
from ..engine.refusals import bad_value, inner_null, out_of_range, silent, unsupported
from . import hostmem
from .registry import answers, runtime_require

_LAST_PLAIN_KIND = transfer.HOST_TO_BUF_TO_DEVICE
_KINDS_2D = (transfer.HOST_TO_DEVICE, transfer.DEVICE_TO_HOST, transfer.DEVICE_TO_DEVICE, transfer.DEFAULT)
_KIND_MAX = 8
_WORD = 4


def _plain_kind(kind: int) -> None:
    if kind > _LAST_PLAIN_KIND:
        raise bad_value(kind, "kind", "it must be one of the kinds 0 (HOST_TO_HOST) to 5 (HOST_TO_BUF_TO_DEVICE)")


@answers("aclrtMemcpy", required="dst src")
def memcpy(sim: Machine, dst: int, dest_max: int, src: int, count: int, kind: int) -> None:
    _plain_kind(kind)
    transfer.memcpy(sim, dst, dest_max, src, count, "aclrtMemcpy")


@answers("aclrtMemcpyAsync", required="dst src")
def memcpy_async(sim: Machine, dst: int, dest_max: int, src: int, count: int, kind: int, stream: int) -> None:
    _plain_kind(kind)
    transfer.memcpy_async(sim, dst, dest_max, src, count, kind, stream, "aclrtMemcpyAsync")


@answers(
    "aclrtMemcpyAsyncWithCondition",
    required="dst src",
    partly="as with the recorded driver, which cannot tell pinned memory: only HOST_TO_BUF_TO_DEVICE works",
)
def memcpy_async_with_condition(
    sim: Machine, dst: int, dest_max: int, src: int, count: int, kind: int, stream: int
) -> None:
    _plain_kind(kind)
    transfer.memcpy_async(
        sim, dst, dest_max, src, count, kind, stream, "aclrtMemcpyAsyncWithCondition", check_pinned=True
    )


@answers("aclrtMemset", required="dev_ptr")
def memset(sim: Machine, dev_ptr: int, max_count: int, value: int, count: int) -> None:
    transfer.memset(sim, dev_ptr, max_count, value, count)


@answers("aclrtMemsetAsync", required="dev_ptr")
def memset_async(sim: Machine, dev_ptr: int, max_count: int, value: int, count: int, stream: int) -> None:
    transfer.memset_async(sim, dev_ptr, max_count, value, count, stream)


def _words_fit(ptr: int, mem_size: int, words: int) -> None:
    """Assumption: what the library checks of a memset of 32-bit words; it is younger than the recorded one."""
    if ptr % _WORD:
        raise bad_value(hex(ptr), "ptr", "must be a multiple of 4")
    if words * _WORD > mem_size:
        raise out_of_range(words, "N", f"[1, {mem_size // _WORD}]")


@answers("aclrtMemsetD32", required="ptr", partly="assumption: errors like those of aclrtMemset")
def memset_d32(sim: Machine, ptr: int, mem_size: int, value: int, n: int) -> None:
    _words_fit(ptr, mem_size, n)
    transfer.memset(sim, ptr, mem_size, value, n * _WORD, "aclrtMemsetD32", _WORD)


@answers("aclrtMemsetD32Async", required="ptr", partly="assumption: errors like those of aclrtMemsetAsync")
def memset_d32_async(sim: Machine, ptr: int, mem_size: int, value: int, n: int, stream: int) -> None:
    _words_fit(ptr, mem_size, n)
    transfer.memset_async(sim, ptr, mem_size, value, n * _WORD, stream, "aclrtMemsetD32Async", _WORD)


# ---- two-dimensional -----------------------------------------------------------------------------------------


def _check_2d(dpitch: int, spitch: int, width: int, height: int, kind: int) -> None:
    """What the acl layer checks."""
    if not height or not width:
        raise silent()
    if width > spitch or width > dpitch:
        raise bad_value(width, "width", "must be smaller than spitch and dpitch")
    if kind not in _KINDS_2D:
        raise bad_value(kind, "kind", "invalid kind of memcpy")


@answers("aclrtMemcpy2d", required="dst src")
def memcpy2d(sim: Machine, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int) -> None:
    _check_2d(dpitch, spitch, width, height, kind)
    transfer.memcpy2d(sim, dst, dpitch, src, spitch, width, height, kind)


@answers("aclrtMemcpy2dAsync", required="dst src")
def memcpy2d_async(
    sim: Machine, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: int
) -> None:
    _check_2d(dpitch, spitch, width, height, kind)
    transfer.memcpy2d_async(sim, dst, dpitch, src, spitch, width, height, kind, stream)


# ---- batches -------------------------------------------------------------------------------------------------

_ATTRIBUTE = 32  # bytes of an aclrtMemcpyBatchAttr
_POINTER_NAMES = ("dsts", "destMaxs", "srcs", "sizes", "attrs", "attrsIndexes", "failIndex")


def _words(address: int, count: int) -> list[int]:
    return [hostmem.read_u64(address + 8 * i) for i in range(count)]


def _batch_attributes(address: int, count: int) -> list[transfer.BatchAttribute]:
    """The attributes of a batch; the location structures hold the device first."""
    found = []
    for at in range(address, address + count * _ATTRIBUTE, _ATTRIBUTE):
        ends = [(hostmem.read_u32(at + offset + 4), hostmem.read_u32(at + offset)) for offset in (0, 8)]
        found.append(transfer.BatchAttribute(*ends))
    return found


def _batch(sim: Machine, pointers: tuple[int, ...], count: int, attribute_count: int, stream: int, queue: bool) -> None:
    for pointer, name in zip(pointers, _POINTER_NAMES):
        if not pointer:
            raise inner_null(name)
    dsts, maxima, srcs, sizes, attributes, starts = pointers[:6]
    fail_index = pointers[6] if len(pointers) > 6 else 0  # the second form does not tell
    if not count:
        raise bad_value(count, "numBatches", "numBatches must be greater than zero")
    for at in range(0, 8 * count, 8):  # one by one, as the library does: a count that is too high ends at a wrong one
        limit = hostmem.read_u64(maxima + at)
        if limit < hostmem.read_u64(sizes + at):
            raise bad_value(
                limit,
                "destMaxs",
                "an element of destMaxs must be equal to or greater than the corresponding element of sizes",
            )
    for at in range(attributes, attributes + attribute_count * _ATTRIBUTE, _ATTRIBUTE):
        if any(hostmem.read_bytes(at + 16, 16)):
            raise silent()
    if sim.profile.family not in transfer.BATCHES:
        raise unsupported("This chip does not support copies in batches", "EH9999")
    size_list, limits = _words(sizes, count), _words(maxima, count)
    if fail_index:
        hostmem.write_u64(fail_index, transfer.FAIL_NOWHERE)
    said, places = _batch_attributes(attributes, attribute_count), _words(starts, attribute_count)
    try:
        if queue:
            transfer.batch_async(sim, _words(dsts, count), limits, _words(srcs, count), size_list, said, places, stream)
        else:
            transfer.batch(sim, _words(dsts, count), _words(srcs, count), size_list, said, places)
    except transfer.BatchFailed as failed:
        if fail_index:
            hostmem.write_u64(fail_index, failed.index)
        raise failed.cause from None


@answers("aclrtMemcpyBatch")
def memcpy_batch(
    sim: Machine,
    dsts: int,
    dest_maxs: int,
    srcs: int,
    sizes: int,
    num_batches: int,
    attrs: int,
    attrs_indexes: int,
    num_attrs: int,
    fail_index: int,
) -> None:
    _batch(
        sim, (dsts, dest_maxs, srcs, sizes, attrs, attrs_indexes, fail_index), num_batches, num_attrs, 0, queue=False
    )


@answers("aclrtMemcpyBatchAsync")
def memcpy_batch_async(
    sim: Machine,
    dsts: int,
    dest_maxs: int,
    srcs: int,
    sizes: int,
    num_batches: int,
    attrs: int,
    attrs_indexes: int,
    num_attrs: int,
    fail_index: int,
    stream: int,
) -> None:
    _batch(
        sim,
        (dsts, dest_maxs, srcs, sizes, attrs, attrs_indexes, fail_index),
        num_batches,
        num_attrs,
        stream,
        queue=True,
    )


@answers("aclrtMemcpyBatchV2", partly="assumption: like aclrtMemcpyBatch")
def memcpy_batch_v2(
    sim: Machine,
    dsts: int,
    dest_maxs: int,
    srcs: int,
    sizes: int,
    num_batches: int,
    attrs: int,
    attrs_indexes: int,
    num_attrs: int,
) -> None:
    _batch(sim, (dsts, dest_maxs, srcs, sizes, attrs, attrs_indexes), num_batches, num_attrs, 0, queue=False)


@answers("aclrtMemcpyBatchAsyncV2", partly="assumption: like aclrtMemcpyBatchAsync")
def memcpy_batch_async_v2(
    sim: Machine,
    dsts: int,
    dest_maxs: int,
    srcs: int,
    sizes: int,
    num_batches: int,
    attrs: int,
    attrs_indexes: int,
    num_attrs: int,
    stream: int,
) -> None:
    _batch(sim, (dsts, dest_maxs, srcs, sizes, attrs, attrs_indexes), num_batches, num_attrs, stream, queue=True)


# ---- by descriptor and by offset -----------------------------------------------------------------------------


def _descriptor_kind(sim: Machine, kind: int, message_code: str = "EE1001") -> None:
    if sim.profile.family not in transfer.DESCRIPTORS:
        raise unsupported("This chip does not support copies by descriptor", message_code)
    if kind != transfer.INNER:
        raise unsupported(f"Kind should be {transfer.INNER}, but is {kind}", message_code)


@answers("aclrtGetMemcpyDescSize")
def get_memcpy_desc_size(sim: Machine, kind: int, desc_size: int) -> None:
    if not desc_size:
        raise inner_null("descSize")
    if kind > _KIND_MAX:
        raise silent()
    _descriptor_kind(sim, kind, "EH9999")
    hostmem.write_u64(desc_size, 64 if sim.profile.family in ("Ascend950", "Ascend350") else transfer.DESCRIPTOR)


@answers("aclrtSetMemcpyDesc")
def set_memcpy_desc(sim: Machine, desc: int, kind: int, src_addr: int, dst_addr: int, count: int, config: int) -> None:
    if not desc:
        raise inner_null("desc")
    if kind > _KIND_MAX:
        raise silent()
    for pointer, name in ((src_addr, "srcAddr"), (dst_addr, "dstAddr")):
        if not pointer:
            raise inner_null(name)
    if not count:
        raise bad_value(count, "count", "must be positive")
    if config:
        raise silent()
    _descriptor_kind(sim, kind)
    transfer.set_descriptor(sim, desc, src_addr, dst_addr, count)


@answers("aclrtMemcpyAsyncWithDesc")
def memcpy_async_with_desc(sim: Machine, desc: int, kind: int, stream: int) -> None:
    if not desc:
        raise inner_null("desc")
    if kind > _KIND_MAX:
        raise silent()
    if not stream:
        raise inner_null("stream")
    _descriptor_kind(sim, kind)
    transfer.memcpy_by_descriptor(sim, desc, stream)


@answers("aclrtMemcpyAsyncWithOffset")
def memcpy_async_with_offset(
    sim: Machine,
    dst: int,
    dest_max: int,
    dst_data_offset: int,
    src: int,
    count: int,
    src_data_offset: int,
    kind: int,
    stream: int,
) -> None:
    if kind != transfer.INNER:
        raise out_of_range(kind, "kind", str(transfer.INNER))
    if sim.profile.family not in transfer.OFFSETS:
        raise unsupported("This chip does not support copies with offsets", None)
    transfer.memcpy_with_offset(sim, dst, dest_max, dst_data_offset, src, count, src_data_offset, stream)


# ---- values --------------------------------------------------------------------------------------------------


def _value_task(sim: Machine, address: int) -> None:
    if not address:
        raise inner_null("devAddr")
    if sim.profile.family not in transfer.VALUE_TASKS:
        raise unsupported("This chip does not support value tasks", "EH9999")


@answers("aclrtValueWrite")
def value_write(sim: Machine, dev_addr: int, value: int, flag: int, stream: int) -> None:
    _value_task(sim, dev_addr)
    transfer.value_write(sim, dev_addr, value, flag, stream)


@answers("aclrtValueWait")
def value_wait(sim: Machine, dev_addr: int, value: int, flag: int, stream: int) -> None:
    _value_task(sim, dev_addr)
    transfer.value_wait(sim, dev_addr, value, flag, stream)


# ---- cache maintenance ---------------------------------------------------------------------------------------

_CMO_CHIPS = frozenset(("Ascend910B", "Ascend910_93", "Ascend950", "Ascend350"))
_CMO_BARRIER_CHIPS = frozenset(("Ascend310B",))
_PREFETCH, _WRITEBACK, _INVALID, _FLUSH = range(4)
_CMO_DESCRIPTOR = {"Ascend950": 64, "Ascend350": 64}
_OTHER_CMO_DESCRIPTOR = 32
_MAX_BARRIERS = 6


@answers("aclrtCmoAsync", required="src", partly="there are no caches")
def cmo_async(sim: Machine, src: int, size: int, cmo_type: int, stream: int) -> None:
    if not size:
        raise silent()
    if sim.profile.family not in _CMO_CHIPS or cmo_type > _FLUSH:
        raise silent(207000)
    transfer.cache_task(sim, stream, "aclrtCmoAsync")


@answers("aclrtCmoAsyncWithBarrier", partly="there are no caches")
def cmo_async_with_barrier(sim: Machine, src: int, size: int, cmo_type: int, barrier_id: int, stream: int) -> None:
    if not src:
        raise inner_null("src")
    if sim.profile.family not in _CMO_BARRIER_CHIPS:
        raise unsupported("This chip does not support cache maintenance with barriers", "EH9999")
    if not size:
        raise out_of_range(size, "srcLen", "greater than 0")
    if cmo_type > _FLUSH:
        raise unsupported(f"cmoType {cmo_type} is not supported", "EH9999")
    if (cmo_type == _INVALID) != (barrier_id != 0):
        raise RuntimeLayerError(
            107000, "EE1001", f"Parameter logicId={barrier_id} does not fit the type of the operation"
        )
    transfer.task_without_effect(sim, stream, "aclrtCmoAsyncWithBarrier", "Cmo Task launch failed")


@answers("aclrtCmoWaitBarrier", required="task_info", partly="there are no caches")
def cmo_wait_barrier(sim: Machine, task_info: int, stream: int, flag: int) -> None:
    count = hostmem.read_u64(task_info)
    if not 0 < count <= _MAX_BARRIERS:
        raise silent()
    for i in range(count):
        kind, number = hostmem.read_u32(task_info + 8 + 8 * i), hostmem.read_u32(task_info + 12 + 8 * i)
        if kind != _INVALID:
            raise RuntimeLayerError(107000, "EE1006", f"cmoInfo[{i}].cmoType={kind} is not supported")
        if not number:
            raise out_of_range(number, "cmoInfo.logicId", "not equal to 0")
    if sim.profile.family not in _CMO_BARRIER_CHIPS:
        raise unsupported("This chip does not support barriers of cache maintenance")
    transfer.task_without_effect(sim, stream, "aclrtCmoWaitBarrier", "Cmo Task launch failed")


@answers("aclrtCmoGetDescSize")
def cmo_get_desc_size(sim: Machine, size: int) -> None:
    if sim.profile.family not in _CMO_CHIPS:
        raise unsupported("This chip does not support cache maintenance", "EH9999")
    runtime_require(size, "size")
    hostmem.write_u64(size, _CMO_DESCRIPTOR.get(sim.profile.family, _OTHER_CMO_DESCRIPTOR))


@answers("aclrtCmoSetDesc")
def cmo_set_desc(sim: Machine, cmo_desc: int, src: int, size: int) -> None:
    if sim.profile.family not in _CMO_CHIPS:
        raise unsupported("This chip does not support cache maintenance", "EH9999")
    runtime_require(cmo_desc, "cmoDesc")
    runtime_require(src, "srcAddr")
    if not size:
        raise out_of_range(size, "srcLen", "not equal to 0")
    transfer.set_cache_descriptor(sim, cmo_desc, src, size)


@answers("aclrtCmoAsyncWithDesc", partly="there are no caches")
def cmo_async_with_desc(sim: Machine, cmo_desc: int, cmo_type: int, stream: int, reserve: int) -> None:
    if reserve:
        raise out_of_range(reserve, "reserve", "nullptr")
    if sim.profile.family not in _CMO_CHIPS:
        raise unsupported("This chip does not support cache maintenance", "EH9999")
    runtime_require(cmo_desc, "cmoAddrInfo")
    if cmo_type > _FLUSH:
        raise RuntimeLayerError(107000, "EE1001", "Invalid cmoOpCode")
    transfer.cache_task_of_model(sim, stream, "aclrtCmoAsyncWithDesc")
