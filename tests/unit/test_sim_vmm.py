"""Virtual memory, memory pools and shared memory of the simulated NPU."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from simulated import D2D, H2D, Calls, undefined

from pyacl.raw import types as c

MIB = 1 << 20
PAGES = 2 * MIB


@pytest.fixture
def calls():
    return Calls(memory=64 * MIB, cann="9.1.0")


def properties(device=0):
    found = c.aclrtPhysicalMemProp()
    found.memAttr = 4  # huge pages
    found.location.type = 1
    found.location.id = device
    return found


def physical(calls, nbytes=PAGES, device=0):
    handle = c.aclrtDrvMemHandle()
    calls.aclrtMallocPhysical(handle, nbytes, properties(device), 0)
    return handle


def reserve(calls, nbytes=PAGES):
    return calls.pointer("aclrtReserveMemAddress", nbytes, 0, None, 1)


# ---- virtual memory ------------------------------------------------------------------------------------------


def test_one_memory_at_two_addresses(calls):
    handle = physical(calls)
    first, second = reserve(calls), reserve(calls)
    calls.aclrtMapMem(first, PAGES, 0, handle, 0)
    calls.aclrtMapMem(second, PAGES, 0, handle, 0)
    calls.aclrtMemset(first + 100, 8, 5, 8)
    assert calls.bytes_at(second + 99, 10) == b"\xff" + b"\5" * 8 + b"\xff"
    calls.aclrtUnmapMem(first)
    with undefined("aclrtMemcpy"):
        calls.bytes_at(first, 1)
    assert calls.bytes_at(second + 100, 8) == b"\5" * 8


def test_copies_run_across_mappings_that_lie_side_by_side(calls):
    base = reserve(calls, 2 * PAGES)
    handles = [physical(calls), physical(calls)]
    calls.aclrtMapMem(base, PAGES, 0, handles[0], 0)
    with undefined("aclrtMemcpy"):
        calls.bytes_at(base + PAGES - 4, 8)
    calls.aclrtMapMem(base + PAGES, PAGES, 0, handles[1], 0)
    data = np.arange(8, dtype=np.uint8)
    calls.aclrtMemcpy(base + PAGES - 4, 8, data.ctypes.data, 8, H2D)
    assert calls.bytes_at(base + PAGES - 4, 8) == data.tobytes()
    elsewhere = reserve(calls)
    calls.aclrtMapMem(elsewhere, PAGES, 0, handles[1], 0)
    assert calls.bytes_at(elsewhere, 4) == b"\4\5\6\7"
    target = calls.malloc(8)
    calls.aclrtMemcpy(target, 8, base + PAGES - 4, 8, D2D)
    assert calls.bytes_at(target, 8) == data.tobytes()


def test_physical_memory_counts_until_its_last_user_is_gone(calls):
    handle, base = physical(calls, 2 * PAGES), reserve(calls, 2 * PAGES)
    assert calls.free_bytes() == 60 * MIB
    calls.aclrtMapMem(base, 2 * PAGES, 0, handle, 0)
    calls.aclrtFreePhysical(handle)
    assert calls.free_bytes() == 60 * MIB  # still mapped
    calls.aclrtMemset(base, 4, 0, 4)
    calls.aclrtUnmapMem(base)
    assert calls.free_bytes() == 64 * MIB
    calls.aclrtReleaseMemAddress(base)
    assert calls.code("aclrtReleaseMemAddress", base) == 107000
    assert calls.code("aclrtFreePhysical", handle) == 107000


def test_physical_memory_runs_out(calls):
    assert calls.code("aclrtMallocPhysical", c.aclrtDrvMemHandle(), 66 * MIB, properties(), 0) == 207001
    physical(calls, 66 * MIB - PAGES)
    assert calls.free_bytes() == 0


def test_mappings_are_refused_where_something_is_wrong(calls):
    handle, base = physical(calls), reserve(calls, 2 * PAGES)
    assert calls.code("aclrtMapMem", base + 3 * PAGES, PAGES, 0, handle, 0) == 107000
    assert calls.code("aclrtMapMem", base, 2 * PAGES, 0, handle, 0) == 107000  # more than there is
    assert calls.code("aclrtMapMem", base, PAGES, 4096, handle, 0) == 107000  # an offset
    assert calls.code("aclrtMapMem", base, PAGES, 0, handle, 1) == 100000
    calls.aclrtMapMem(base, PAGES, 0, handle, 0)
    assert calls.code("aclrtMapMem", base, PAGES, 0, physical(calls), 0) == 107000  # mapped already
    assert calls.code("aclrtReleaseMemAddress", base) == 107000  # still mapped
    assert calls.code("aclrtUnmapMem", base + PAGES) == 107000


def test_access_is_kept_by_location(calls):
    handle, base = physical(calls), reserve(calls)
    calls.aclrtMapMem(base, PAGES, 0, handle, 0)
    where = c.aclrtMemLocation(id=1, type=1)
    flags = ctypes.c_uint64(9)
    calls.aclrtMemGetAccess(base, where, flags)
    assert flags.value == 0
    wanted = c.aclrtMemAccessDesc()
    wanted.flags, wanted.location.type, wanted.location.id = 3, 1, 1
    calls.aclrtMemSetAccess(base, PAGES, wanted, 1)
    calls.aclrtMemGetAccess(base, where, flags)
    assert flags.value == 3


def test_handles_of_mapped_memory_can_be_found_again(calls):
    handle, base = physical(calls), reserve(calls)
    calls.aclrtMapMem(base, PAGES, 0, handle, 0)
    again = c.aclrtDrvMemHandle()
    calls.aclrtMemRetainAllocationHandle(base + 5, again)
    calls.aclrtFreePhysical(handle)
    calls.aclrtUnmapMem(base)
    assert calls.free_bytes() == 62 * MIB
    calls.aclrtFreePhysical(again)
    assert calls.free_bytes() == 64 * MIB


def test_everything_ends_with_the_device(calls):
    handle, base = physical(calls), reserve(calls)
    calls.aclrtMapMem(base, PAGES, 0, handle, 0)
    pool = make_pool(calls)
    calls.pointer("aclrtMemPoolMallocAsync", MIB, pool, None)
    assert calls.free_bytes() < 62 * MIB
    calls.aclrtResetDevice(0)
    calls.aclrtSetDevice(0)
    assert calls.free_bytes() == 64 * MIB
    assert calls.code("aclrtFreePhysical", handle) == 107000
    assert calls.code("aclrtMemPoolDestroy", pool) == 507000
    with undefined("aclrtMemcpy"):
        calls.bytes_at(base, 1)
    calls.aclrtMapMem(base, PAGES, 0, physical(calls), 0)  # the range is still reserved
    assert calls.bytes_at(base, 1) == b"\xff"


def test_exported_memory_is_imported_on_another_device(calls):
    handle = physical(calls)
    number = ctypes.c_uint64()
    calls.aclrtMemExportToShareableHandle(handle, 0, 0, number)
    imported = c.aclrtDrvMemHandle()
    calls.aclrtMemImportFromShareableHandle(number.value, 1, imported)
    first, second = reserve(calls), reserve(calls)
    calls.aclrtMapMem(first, PAGES, 0, handle, 0)
    calls.aclrtMapMem(second, PAGES, 0, imported, 0)
    calls.aclrtMemset(second, 4, 1, 4)
    assert calls.bytes_at(first, 5) == b"\1\1\1\1\xff"


def test_memory_with_a_key(calls):
    data = np.arange(100, dtype=np.uint8)
    source = calls.upload(data)
    key = ctypes.create_string_buffer(65)
    calls.aclrtIpcMemGetExportKey(source, 100, key, 65, 0)
    assert len(key.value) == 64
    imported = calls.pointer("aclrtIpcMemImportByKey", key.value, 0)
    assert imported != source
    assert calls.bytes_at(imported, 100) == data.tobytes()
    calls.aclrtMemset(imported + 2, 1, 77, 1)
    assert calls.bytes_at(source, 4) == b"\0\1\x4d\3"
    calls.aclrtIpcMemClose(key.value)
    with undefined("aclrtMemcpy"):
        calls.bytes_at(imported, 1)
    assert calls.bytes_at(source, 1) == b"\0"
    assert calls.code("aclrtIpcMemImportByKey", ctypes.c_void_p(), b"nobody knows this key", 0) == 107000


# ---- pools ---------------------------------------------------------------------------------------------------

THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = range(4, 9)


def make_pool(calls, nbytes=32 * MIB):
    described = c.aclrtMemPoolProps()
    described.allocType = 0  # pinned
    described.handleType = 0
    described.location.id, described.location.type = 0, 1
    described.maxSize = nbytes
    pool = c.aclrtMemPool()
    calls.aclrtMemPoolCreate(pool, described)
    return pool


def attribute(calls, pool, which):
    value = ctypes.c_uint64(12345)
    calls.aclrtMemPoolGetAttr(pool, which, ctypes.addressof(value))
    return value.value


def test_pool_memory_comes_and_goes_in_the_order_of_the_stream():
    calls = Calls(memory=64 * MIB, order="lazy", cann="9.1.0")
    pool, stream = make_pool(calls), calls.stream()
    address = calls.pointer("aclrtMemPoolMallocAsync", 3 * MIB, pool, stream)
    calls.aclrtMemsetAsync(address, 16, 6, 16, stream)
    assert attribute(calls, pool, USED) >= 3 * MIB
    calls.aclrtMemPoolFreeAsync(address, stream)
    calls.aclrtSynchronizeStream(stream)
    assert attribute(calls, pool, USED) == 0
    assert attribute(calls, pool, USED_HIGH) >= 3 * MIB
    with undefined("aclrtMemcpy", "freed"):
        calls.bytes_at(address, 1)


def test_pools_have_an_end(calls):
    pool, stream = make_pool(calls, 4 * MIB), calls.stream()
    calls.pointer("aclrtMemPoolMallocAsync", 3 * MIB, pool, stream)
    assert calls.code("aclrtMemPoolMallocAsync", ctypes.c_void_p(), 3 * MIB, pool, stream) == 207001
    calls.aclrtSynchronizeStream(stream)


def test_pool_attributes(calls):
    pool = make_pool(calls)
    value = ctypes.c_uint64(MIB)
    calls.aclrtMemPoolSetAttr(pool, THRESHOLD, ctypes.addressof(value))
    assert attribute(calls, pool, THRESHOLD) == MIB
    assert calls.code("aclrtMemPoolSetAttr", pool, USED, ctypes.addressof(value)) == 507000
    assert calls.code("aclrtMemPoolGetAttr", pool, 99, ctypes.addressof(value)) == 507000
    calls.aclrtMemPoolDestroy(pool)
    assert calls.code("aclrtMemPoolDestroy", pool) == 507000
    assert calls.code("aclrtMemPoolGetAttr", pool, USED, ctypes.addressof(value)) == 107000
