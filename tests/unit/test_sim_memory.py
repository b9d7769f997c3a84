"""Device and pinned memory of the simulated NPU: addresses, capacity, contents, attributes, what is refused."""

from __future__ import annotations

import ctypes
import resource

import numpy as np
import pytest
from simulated import D2D, D2H, H2D, Calls, undefined

from pyacl import AclError, raw, sim
from pyacl.backends.sim.engine.memory import GRAIN, PATTERN, WINDOW, WINDOW_STEP, Block, BlockTable, Store, Window
from pyacl.raw import types as c

MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture
def calls():
    return Calls()


# ---- tables and windows --------------------------------------------------------------------------------------


def block(base, size):
    return Block(base, size, size, 1, 0, 4096, 0, "test")


def test_block_table_finds_interior_addresses():
    table = BlockTable()
    for base in (4096, 512, 65536, 1024):
        table.add(block(base, 300))
    assert [found.base for found in table] == [512, 1024, 4096, 65536]
    assert table.around(512).base == 512
    assert table.around(811).base == 512
    assert table.around(812) is None
    assert table.around(511) is None
    assert table.around(4395).base == 4096
    assert table.after(1024).base == 4096
    assert table.after(65536) is None
    assert table.remove(1024).base == 1024
    assert table.around(1024) is None
    assert len(table) == 3
    assert table.at(4096).size == 300
    assert table.at(4097) is None


def test_window_never_gives_touching_ranges_and_wraps_into_gaps():
    table = BlockTable()
    window = Window(1 << 20, (1 << 20) + 3 * GRAIN + 100, table)
    first, second = window.take(GRAIN), window.take(1)
    assert (first, second) == (1 << 20, (1 << 20) + 2 * GRAIN)
    for base in (first, second):
        table.add(block(base, GRAIN))
    table.remove(first)
    assert window.take(GRAIN) == first  # the end is reached: the gap is used again
    table.add(block(first, GRAIN))
    with pytest.raises(Exception, match="No address range of 2048 bytes"):
        window.take(4 * GRAIN)


def test_store_pattern_appears_chunk_by_chunk():
    store = Store(3 * MIB + 5)
    store.array[:] = 0
    store.prepare(MIB + 7, MIB + 9, overwritten=False)
    assert store.array[MIB : 2 * MIB].tolist().count(PATTERN) == MIB
    assert store.array[MIB - 1] == 0
    assert store.array[2 * MIB] == 0
    store.prepare(0, MIB, overwritten=True)  # will be overwritten whole: no pattern needed
    assert store.array[0] == 0
    store.prepare(2 * MIB, 3 * MIB + 5, overwritten=True)
    assert store.fresh is None
    assert store.array[3 * MIB + 4] == 0


# ---- allocation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [0, 1])
def test_addresses_lie_in_the_window_of_the_device(calls, device):
    calls.aclrtSetDevice(device)
    addresses = [calls.malloc(size, policy) for size in (1, 512, 5000, 3 * MIB) for policy in (0, 1, 2)]
    low = WINDOW + device * WINDOW_STEP
    for address in addresses:
        assert low <= address < low + WINDOW_STEP
        assert address % 512 == 0
    assert len(set(addresses)) == len(addresses)


def test_device_memory_is_not_mapped_in_the_process(calls):
    address = calls.malloc(4096)
    with open("/proc/self/maps") as maps:
        for line in maps:
            low, high = (int(part, 16) for part in line.split()[0].split("-"))
            assert not low <= address < high


def test_32_gib_cost_nothing_until_touched():
    calls = Calls(memory=64 * GIB)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    address = calls.malloc(32 * GIB)
    last = np.array([1.5, 2.5], np.float32)
    calls.aclrtMemcpy(address + 32 * GIB - 8, 8, last.ctypes.data, 8, H2D)
    assert calls.bytes_at(address + 32 * GIB - 8, 8) == last.tobytes()
    assert calls.bytes_at(address + 16 * GIB, 4) == b"\xff" * 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
    assert calls.free_bytes() == 64 * GIB - 32 * GIB - 2 * MIB  # 32 bytes of padding make one more huge page


def test_capacity_and_out_of_memory():
    calls = Calls(memory=8 * MIB)
    assert calls.free_bytes() == 8 * MIB
    first = calls.malloc(3 * MIB)
    assert calls.free_bytes() == 8 * MIB - 4 * MIB
    assert calls.code("aclrtMalloc", ctypes.c_void_p(), 6 * MIB, 0) == 207001
    second = calls.malloc(2 * MIB - 32)
    calls.aclrtFree(first)
    assert calls.free_bytes() == 8 * MIB - 2 * MIB
    third = calls.malloc(4 * MIB)
    for address in (second, third):
        calls.aclrtFree(address)
    assert calls.free_bytes() == 8 * MIB


def test_out_of_memory_names_the_device(calls):
    with pytest.raises(AclError, match="Failed to allocate 1099511627776 bytes: device 0 has 68719476736") as caught:
        calls.malloc((1 << 40) - 32)
    assert caught.value.code == 207001
    assert calls.api.unchecked.aclrtMalloc(ctypes.c_void_p(), 1 << 40, 0) == 207001
    assert "Error(EL0004): aclrtMalloc failed: Failed to allocate" in calls.api.recent_message()


def test_devices_have_memory_of_their_own():
    calls = Calls(memory=8 * MIB)
    calls.malloc(3 * MIB)
    calls.aclrtSetDevice(1)
    assert calls.free_bytes() == 8 * MIB


def test_reset_gives_memory_back_and_its_pointers_are_known_as_freed():
    calls = Calls(memory=8 * MIB)
    address = calls.malloc(100)
    calls.aclrtResetDevice(0)
    calls.aclrtSetDevice(0)
    assert calls.free_bytes() == 8 * MIB
    with undefined("aclrtMemcpy", "was freed", "test_sim_memory.py"):
        calls.bytes_at(address, 4)


def test_untouched_memory_has_the_pattern(calls):
    small, large = calls.malloc(64), calls.malloc(5 * MIB)
    assert calls.bytes_at(small, 64) == b"\xff" * 64
    assert calls.bytes_at(large + 3 * MIB - 2, 4) == b"\xff" * 4
    assert np.isnan(np.frombuffer(calls.bytes_at(small, 16), np.float32)).all()


def test_contents_survive_until_overwritten(calls):
    data = np.arange(10000, dtype=np.int64)
    address = calls.upload(data)
    copied = calls.malloc(data.nbytes)
    calls.aclrtMemcpy(copied, data.nbytes, address, data.nbytes, D2D)
    calls.aclrtMemset(address, data.nbytes, 0x1AB, 64)  # a byte is set: the rest of the value is lost
    assert calls.bytes_at(copied, data.nbytes) == data.tobytes()
    assert calls.bytes_at(address, 64) == b"\xab" * 64
    assert calls.bytes_at(address + 64, 64) == data.tobytes()[64:128]


# ---- freed and wrong pointers --------------------------------------------------------------------------------


def test_freed_pointer_is_refused_with_both_places(calls):
    address = calls.malloc(256)
    calls.aclrtFree(address)
    with undefined(f"0x{address + 8:x} was freed", "of aclrtMalloc at", "test_sim_memory.py"):
        calls.bytes_at(address + 8, 8)
    with undefined("aclrtMemset", "was freed"):
        calls.aclrtMemset(address, 256, 0, 256)
    assert calls.code("aclrtFree", address) == 107000


@pytest.mark.parametrize("size, reach", [(1000, 1056), (32, 64), (1, 64), (4096, 4128)])
def test_reading_beyond_the_padding_is_undefined(calls, size, reach):
    address = calls.malloc(size)
    assert len(calls.bytes_at(address, reach)) == reach
    with undefined(f"{reach + 1} bytes at 0x{address:x} reach 1 bytes beyond the end", f"{size} bytes"):
        calls.bytes_at(address, reach + 1)
    with undefined("aclrtMemcpy"):
        calls.bytes_at(address - 1, 1)


def test_free_takes_only_starts_of_allocations(calls):
    address = calls.malloc(256)
    assert calls.code("aclrtFree", address + 32) == 107000
    assert calls.code("aclrtFree", 0x1234) == 107000
    assert calls.code("aclrtFree", None) == 100000
    calls.aclrtFree(address)
    pinned = calls.pointer("aclrtMallocHost", 64)
    calls.aclrtFree(pinned)  # the driver frees both with one function
    other = calls.pointer("aclrtMallocHost", 64)
    assert calls.code("aclrtFreeHost", calls.malloc(64)) == 107000
    calls.aclrtFreeHost(other)
    assert calls.code("aclrtFreeHost", other) == 107000


# ---- host memory ---------------------------------------------------------------------------------------------


def test_pinned_memory_is_host_memory(calls):
    address = calls.pointer("aclrtMallocHost", 1000)
    assert address % 4096 == 0
    view = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (1000,))
    assert (view == PATTERN).all()
    view[:] = 7
    device = calls.malloc(1000)
    calls.aclrtMemcpy(device, 1000, address, 1000, H2D)
    assert calls.bytes_at(device, 1000) == b"\7" * 1000
    assert attributes(calls, address) == (0, 0, 4096)


def attributes(calls, address):
    """(type, device, page size) of the memory at an address."""
    found = c.aclrtPtrAttributes()
    calls.aclrtPointerGetAttributes(address, found)
    return found.location.type, found.location.id, found.pageSize


def test_pointer_attributes(calls):
    small, large = calls.malloc(100), calls.malloc(3 * MIB)
    assert attributes(calls, small + 5) == (1, 0, 4096)
    assert attributes(calls, large) == (1, 0, 2 * MIB)
    calls.aclrtSetDevice(1)
    assert attributes(calls, calls.malloc(64))[:2] == (1, 1)
    assert attributes(calls, np.zeros(4).ctypes.data)[0] == 2
    managed = calls.pointer("aclrtMemAllocManaged", 64, 1)
    assert attributes(calls, managed)[0] == 3


def test_address_range(calls):
    address = calls.malloc(1000)
    base, size = ctypes.c_void_p(), ctypes.c_size_t()
    calls.aclrtMemGetAddressRange(address + 500, base, size)
    assert (base.value, size.value) == (address, 1056)
    calls.aclrtMemGetAddressRange(address + 1055, base, None)
    assert base.value == address
    assert calls.code("aclrtMemGetAddressRange", address + 1056, base, size) == 107000
    assert calls.code("aclrtMemGetAddressRange", address, None, None) == 107000


def test_registered_host_memory_is_seen_by_the_device(calls):
    data = np.frombuffer(bytearray(8192 + 4096), np.uint8)
    start = -data.ctypes.data % 4096
    address = data.ctypes.data + start
    mapped = ctypes.c_void_p()
    calls.aclrtHostRegister(address, 8192, 0, mapped)
    assert mapped.value != address
    data[start : start + 8] = np.arange(8)
    assert calls.bytes_at(mapped.value, 8) == bytes(range(8))
    calls.aclrtMemset(mapped.value + 4, 4, 9, 4)
    assert data[start : start + 8].tolist() == [0, 1, 2, 3, 9, 9, 9, 9]
    calls.aclrtHostUnregister(address)
    with undefined("aclrtMemcpy"):
        calls.bytes_at(mapped.value, 8)


def test_uninitialised_structures_of_a_failed_call_stay(calls):
    base, size = ctypes.c_void_p(77), ctypes.c_size_t(88)
    assert calls.code("aclrtMemGetAddressRange", 0xDEAD000, base, size) == 107000
    assert (base.value, size.value) == (77, 88)
    found = ctypes.c_void_p(5)
    assert calls.code("aclrtMalloc", found, 0, 0) == 100000
    assert found.value == 5


# ---- managed memory ------------------------------------------------------------------------------------------


def test_managed_memory_has_one_address_for_host_and_device():
    calls = Calls(cann="9.1.0")
    address = calls.pointer("aclrtMemAllocManaged", 4096, 1)
    ctypes.memset(address, 3, 4096)
    assert calls.bytes_at(address + 1, 3) == b"\3\3\3"
    calls.aclrtMemset(address, 4096, 4, 2)
    assert ctypes.string_at(address, 3) == b"\4\4\3"
    where = c.aclrtMemManagedLocation(type=1, id=1)
    value = ctypes.c_int32(99)
    calls.aclrtMemManagedGetAttr(2, address, 4096, ctypes.addressof(value), 4)
    assert value.value == -2
    calls.aclrtMemManagedAdvise(address, 4096, 2, where)
    calls.aclrtMemManagedPrefetchAsync(address, 64, c.aclrtMemManagedLocation(type=1, id=0), 0, None)
    found = []
    for attribute in (2, 4, 5, 6, 7, 8, 1):
        calls.aclrtMemManagedGetAttr(attribute, address, 4096, ctypes.addressof(value), 4)
        found.append(value.value)
    assert found == [1, 1, 1, 0, 1, 0, 0]
    assert calls.code("aclrtMemManagedAdvise", calls.malloc(64), 64, 2, where) == 107000


def test_a_newer_function_is_absent_in_an_older_version(calls):
    assert not calls.api.has("aclrtMemManagedAdvise")
    assert raw.load(sim.Backend(cann="9.1.0")).has("aclrtMemManagedAdvise")


# ---- allocators ----------------------------------------------------------------------------------------------


def test_data_buffers(calls):
    data = calls.malloc(64)
    buffer = calls.aclCreateDataBuffer(data, 64)
    assert calls.aclGetDataBufferAddr(buffer) == data
    assert calls.aclGetDataBufferSizeV2(buffer) == 64
    assert calls.aclGetDataBufferSize(buffer) == 64
    calls.aclUpdateDataBuffer(buffer, data + 32, 16)
    assert calls.aclGetDataBufferAddr(buffer) == data + 32
    assert calls.aclGetDataBufferSizeV2(buffer) == 16
    calls.aclDestroyDataBuffer(buffer)
    with undefined("aclDestroyDataBuffer", "was destroyed"):
        calls.aclDestroyDataBuffer(buffer)
    assert calls.aclCreateDataBuffer(None, 0)


def test_hooks_see_allocations_frees_and_accesses_of_the_host(calls):
    from pyacl.backends.sim.engine.memory import Memory

    memory = calls.backend.machine.area(Memory)
    seen = []
    memory.on_allocated = lambda block: seen.append(("allocated", block.base, block.requested))
    memory.on_freed = lambda block: seen.append(("freed", block.base))
    memory.on_access = lambda call, access: seen.append((call, access.reads, access.writes))
    address = calls.malloc(100)
    host = np.zeros(100, np.uint8)
    calls.aclrtMemcpy(host.ctypes.data, 100, address, 60, D2H)
    calls.aclrtMemset(address, 100, 0, 100)
    calls.aclrtFree(address)
    assert seen == [
        ("allocated", address, 100),
        ("aclrtMemcpy", ((address, 60),), ((host.ctypes.data, 60),)),
        ("aclrtMemset", (), ((address, 100),)),
        ("freed", address),
    ]


# ---- the runtime's own functions -----------------------------------------------------------------------------


def test_the_runtime_functions_share_the_memory_of_the_acl_functions(calls):
    address = calls.pointer("rtMalloc", 100, 2, 0)
    locked = calls.pointer("rtMallocHost", 100, 0)
    ctypes.memset(locked, 6, 100)
    calls.rtMemcpy(address, 100, locked, 100, 1)
    calls.rtMemset(address + 4, 96, 1, 2)
    assert calls.bytes_at(address, 8) == b"\6\6\6\6\1\1\6\6"
    stream = calls.stream()
    calls.rtMemcpyAsync(locked, 8, address + 4, 8, 2, stream.value)
    calls.aclrtSynchronizeStream(stream)
    assert ctypes.string_at(locked, 4) == b"\1\1\6\6"
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    calls.rtMemGetInfo(free, total)
    assert (free.value, total.value) == (calls.free_bytes(), 64 * GIB)
    calls.rtFree(address)
    calls.rtFreeHost(locked)
    assert calls.code("rtFree", address) == 107000
    assert [
        calls.code("rtFree", None),
        calls.code("rtMalloc", None, 8, 2, 0),
        calls.code("rtMemset", None, 1, 0, 1),
    ] == [107000] * 3
    assert calls.api.unchecked.aclrtPeekAtLastError(0) == 107000
