"""Queues, buffers, routes, data items and tensor channels of the simulated NPU."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
from simulated import Calls, undefined

from pyacl.raw import types as c

FULL, EMPTY = 207014, 207013


@pytest.fixture
def calls():
    return Calls()


def make_queue(calls, name=b"q", depth=2):
    attributes = calls.acltdtCreateQueueAttr()
    text, number = ctypes.create_string_buffer(name), ctypes.c_uint32(depth)
    where = ctypes.c_void_p(ctypes.addressof(text))
    calls.acltdtSetQueueAttr(attributes, 0, 8, ctypes.addressof(where))
    calls.acltdtSetQueueAttr(attributes, 1, 4, ctypes.addressof(number))
    queue = ctypes.c_uint32()
    calls.acltdtCreateQueue(attributes, queue)
    calls.acltdtDestroyQueueAttr(attributes)
    return queue.value


def put(calls, queue, data, user=b"", timeout=0):
    return calls.code("acltdtEnqueueData", queue, data, len(data), user, len(user), timeout, 0)


def get(calls, queue, room=64, timeout=0):
    data, size = ctypes.create_string_buffer(room), ctypes.c_size_t()
    user = ctypes.create_string_buffer(96)
    code = calls.code("acltdtDequeueData", queue, data, room, size, user, 96, timeout)
    return code, data.raw[: size.value]


def test_data_comes_out_in_the_order_it_went_in(calls):
    queue = make_queue(calls, depth=3)
    assert [put(calls, queue, data) for data in (b"one", b"two", b"three", b"four")] == [0, 0, 0, FULL]
    assert [get(calls, queue)[1] for _ in range(3)] == [b"one", b"two", b"three"]
    assert get(calls, queue)[0] == EMPTY
    assert put(calls, queue, b"again") == 0
    assert get(calls, queue) == (0, b"again")
    calls.acltdtDestroyQueue(queue)
    assert put(calls, queue, b"x") == 107000


def test_queues_are_apart(calls):
    first, second = make_queue(calls, b"a"), make_queue(calls, b"b")
    assert first != second
    put(calls, first, b"1")
    assert get(calls, second)[0] == EMPTY
    assert get(calls, first) == (0, b"1")


def test_a_waiting_reader_gets_what_another_thread_puts(calls):
    queue = make_queue(calls)
    found = []

    def read():
        calls.aclrtSetDevice(0)
        found.append(get(calls, queue, timeout=10_000))

    reader = threading.Thread(target=read)
    reader.start()
    put(calls, queue, b"late")
    reader.join(20)
    assert found == [(0, b"late")]


def test_routes_carry_data_on(calls):
    first, second = make_queue(calls, b"a"), make_queue(calls, b"b")
    routes = calls.acltdtCreateQueueRouteList()
    route = calls.acltdtCreateQueueRoute(first, second)
    calls.acltdtAddQueueRoute(routes, route)
    calls.acltdtBindQueueRoutes(routes)
    put(calls, first, b"carried")
    assert get(calls, second) == (0, b"carried")
    assert get(calls, first)[0] == EMPTY
    assert calls.code("acltdtDestroyQueue", first) != 0
    calls.acltdtUnbindQueueRoutes(routes)
    put(calls, first, b"stays")
    assert get(calls, first) == (0, b"stays")


def make_buffer(calls, nbytes):
    buffer = c.aclrtMbuf()
    calls.aclrtAllocBuf(buffer, nbytes)
    return buffer


def test_buffers_share_content_and_count_references(calls):
    buffer = make_buffer(calls, 32)
    data, size = ctypes.c_void_p(), ctypes.c_size_t()
    calls.aclrtGetBufData(buffer, data, size)
    assert size.value == 32
    ctypes.memset(data.value, 5, 32)
    calls.aclrtSetBufDataLen(buffer, 20)
    other = c.aclrtMbuf()
    calls.aclrtCopyBufRef(buffer, other)
    same = ctypes.c_void_p()
    calls.aclrtGetBufData(other, same, size)
    assert same.value == data.value
    calls.aclrtFreeBuf(buffer)
    assert ctypes.string_at(same.value, 4) == b"\5\5\5\5"  # the other reference keeps it
    with undefined("aclrtGetBufDataLen", "was destroyed"):
        calls.aclrtGetBufDataLen(buffer, size)
    calls.aclrtFreeBuf(other)
    with undefined("aclrtFreeBuf"):
        calls.aclrtFreeBuf(other)


def test_chains(calls):
    head, second = make_buffer(calls, 8), make_buffer(calls, 16)
    calls.aclrtAppendBufChain(head, second)
    count = ctypes.c_uint32()
    calls.aclrtGetBufChainNum(head, count)
    assert count.value == 2
    found = c.aclrtMbuf()
    calls.aclrtGetBufFromChain(head, 1, found)
    assert found.value == second.value
    assert calls.code("aclrtGetBufFromChain", head, 2, found) == 107000


def test_user_data_of_buffers(calls):
    buffer = make_buffer(calls, 8)
    calls.aclrtSetBufUserData(buffer, b"hello", 5, 3)
    found = ctypes.create_string_buffer(10)
    calls.aclrtGetBufUserData(buffer, found, 7, 2)
    assert found.raw[:7] == b"\0hello\0"
    assert calls.code("aclrtSetBufUserData", buffer, b"x" * 97, 97, 0) == 100000


# ---- tensors -------------------------------------------------------------------------------------------------


def item(calls, array, kind=0):
    sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
    return calls.acltdtCreateDataItem(kind, sizes, array.ndim, 0, array.ctypes.data, array.nbytes)


def test_items_say_what_they_were_made_of(calls):
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = item(calls, data)
    assert calls.acltdtGetTensorTypeFromItem(made) == 0
    assert calls.acltdtGetDataTypeFromItem(made) == 0
    assert calls.acltdtGetDataAddrFromItem(made) == data.ctypes.data
    assert calls.acltdtGetDataSizeFromItem(made) == 24
    assert calls.acltdtGetDimNumFromItem(made) == 2
    sizes = (ctypes.c_int64 * 4)(9, 9, 9, 9)
    calls.acltdtGetDimsFromItem(made, sizes, 4)
    assert list(sizes) == [2, 3, 9, 9]
    assert calls.code("acltdtGetDimsFromItem", made, sizes, 1) == 100000
    calls.acltdtDestroyDataItem(made)
    with undefined("acltdtDestroyDataItem", "was destroyed"):
        calls.acltdtDestroyDataItem(made)


def test_datasets_hold_items_in_order(calls):
    dataset = calls.acltdtCreateDataset()
    data = [np.zeros(2, np.float32), np.ones(3, np.float32)]
    items = [item(calls, array) for array in data]
    for made in items:
        calls.acltdtAddDataItem(dataset, made)
    assert calls.acltdtGetDatasetSize(dataset) == 2
    found = [calls.acltdtGetDataItem(dataset, i) for i in range(3)]
    values = [ctypes.cast(handle, ctypes.c_void_p).value for handle in items]
    assert [ctypes.cast(handle, ctypes.c_void_p).value for handle in found] == values + [None]
    calls.acltdtDestroyDataset(dataset)
    assert calls.acltdtGetDataSizeFromItem(items[1]) == 12  # the items are the program's


def test_tensors_pass_through_a_channel(calls):
    channel = calls.acltdtCreateChannelWithCapacity(0, b"tensors", 2)
    sent, data = calls.acltdtCreateDataset(), np.arange(4, dtype=np.float32)
    calls.acltdtAddDataItem(sent, item(calls, data))
    calls.acltdtSendTensor(channel, sent, 0)
    data[:] = 0  # sent is sent
    size = ctypes.c_size_t()
    calls.acltdtQueryChannelSize(channel, size)
    assert size.value == 1
    received = calls.acltdtCreateDataset()
    calls.acltdtReceiveTensor(channel, received, 0)
    assert calls.acltdtGetDatasetSize(received) == 1
    made = calls.acltdtGetDataItem(received, 0)
    address = calls.acltdtGetDataAddrFromItem(made)
    assert np.frombuffer(ctypes.string_at(address, 16), np.float32).tolist() == [0, 1, 2, 3]
    assert calls.acltdtGetDatasetName(received) == b"tensors"
    assert calls.code("acltdtReceiveTensor", channel, received, 0) == EMPTY
    assert calls.code("acltdtAddDataItem", received, item(calls, data)) == 200006
    calls.acltdtDestroyChannel(channel)


def test_item_sizes_need_a_list(calls):
    assert not calls.api.unchecked.acltdtCreateDataItem(0, None, 2, 0, None, 0)
    data = np.zeros((2, 2), np.float32)
    assert not calls.api.unchecked.acltdtCreateDataItem(1, (ctypes.c_int64 * 2)(2, 2), 2, 0, data.ctypes.data, 16)
    assert c.acltdtDataItem is not None
