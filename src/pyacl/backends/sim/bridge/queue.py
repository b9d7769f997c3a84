"""Entry points: queues, routes between them, and their buffers."""

from __future__ import annotations

from typing import Any, Callable, Optional

from ..engine.failures import AclLayerError, RuntimeLayerError
from ..engine.handles import HandleTable
from ..engine.machine import Machine
from ..engine.memory import Memory
from ..engine.queues import USER_DATA, Buffer, Buffers, Content, Queues
from ..engine.refusals import MOST_BYTES, bad_value, inner, silent
from . import hostmem
from .registry import answers, null_pointer, require

_NAME_BYTES = 128
_DEFAULT_DEPTH = 8
_NOTE = "queues live in the simulated process; nothing on the device reads them"
_UNSUPPORTED = 200006


class Objects:
    """What programs describe queues and routes with."""

    def __init__(self, machine: Machine) -> None:
        self.attributes: HandleTable[Attribute] = HandleTable("queue attribute")
        self.routes: HandleTable[Route] = HandleTable("queue route")
        self.lists: HandleTable[list[Route]] = HandleTable("queue route list")
        self.queries: HandleTable[Query] = HandleTable("queue route query")


class Attribute:
    def __init__(self) -> None:
        self.name = ""
        self.depth = _DEFAULT_DEPTH
        self.kept: dict[str, Any] = {}


class Route:
    def __init__(self, source: int, target: int, status: int = 0) -> None:
        self.source = source
        self.target = target
        self.status = status

    def copy(self) -> Route:
        return Route(self.source, self.target, self.status)


class Query:
    def __init__(self) -> None:
        self.values = [0, 0, 0]  # mode, source, destination
        self.given = [False, False, False]


def _fits(length: int, room: int) -> None:
    if length > room:
        raise inner(f"src length={length} is larger than dst length={room} when memcpy")


def _overlay(old: int, size: int, address: int, length: int) -> int:
    """The number of `size` bytes after `length` bytes of it were replaced."""
    _fits(length, size)
    return int.from_bytes(hostmem.read_bytes(address, length) + old.to_bytes(size, "little")[length:], "little")


def _give(data: bytes, param: int, room: int, param_ret_size: int) -> None:
    _fits(len(data), room)
    if room > MOST_BYTES:
        raise silent(500001)
    hostmem.write_bytes(param, data)
    hostmem.write_u64(param_ret_size, len(data))


# ---- attributes of queues ------------------------------------------------------------------------------------


@answers("acltdtCreateQueueAttr")
def create_queue_attr(sim: Machine) -> int:
    return sim.area(Objects).attributes.add(Attribute())


@answers("acltdtDestroyQueueAttr", required="attr")
def destroy_queue_attr(sim: Machine, attr: int) -> None:
    sim.area(Objects).attributes.remove(attr, "acltdtDestroyQueueAttr")


@answers("acltdtSetQueueAttr", required="attr param")
def set_queue_attr(sim: Machine, attr: int, kind: int, length: int, param: int) -> None:
    if kind not in (0, 1):
        raise inner(f"unkown acltdtQueueAttrType {kind}")
    found = sim.area(Objects).attributes.get(attr, "acltdtSetQueueAttr")
    if kind == 1:
        found.depth = _overlay(found.depth, 4, param, length)
        return
    pointer = _overlay(0, 8, param, length)
    if not pointer:
        raise silent()
    name = hostmem.read_text(pointer)
    if len(name) + 1 > _NAME_BYTES:
        raise silent()
    found.name = name


@answers("acltdtGetQueueAttr", required="attr param param_ret_size")
def get_queue_attr(sim: Machine, attr: int, kind: int, length: int, param_ret_size: int, param: int) -> None:
    if kind not in (0, 1):
        raise inner(f"unkown acltdtQueueAttrType {kind}")
    found = sim.area(Objects).attributes.get(attr, "acltdtGetQueueAttr")
    if kind == 1:
        _give(found.depth.to_bytes(4, "little"), param, length, param_ret_size)
    else:
        address = hostmem.keep_text(found.kept, "name", found.name)
        _give(address.to_bytes(8, "little"), param, length, param_ret_size)


# ---- queues --------------------------------------------------------------------------------------------------


def _device(sim: Machine) -> int:
    """The calling thread's device. That there is none does not become the last error here."""
    try:
        return sim.current_context().device.index
    except RuntimeLayerError as error:
        raise AclLayerError(error.code, "EH9999", error.text) from None


@answers("acltdtCreateQueue", partly=_NOTE)
def create_queue(sim: Machine, attr: int, qid: int) -> None:
    if not qid:
        raise silent()
    device = _device(sim)
    found = sim.area(Objects).attributes.get(attr, "acltdtCreateQueue") if attr else Attribute()
    hostmem.write_u32(qid, sim.area(Queues).create(device, found.depth, found.name))


@answers("acltdtDestroyQueue", partly=_NOTE)
def destroy_queue(sim: Machine, qid: int) -> None:
    _device(sim)
    sim.area(Queues).destroy(qid)


@answers("acltdtEnqueueData", partly=_NOTE)
def enqueue_data(
    sim: Machine, qid: int, data: int, data_size: int, user_data: int, user_data_size: int, timeout: int, rsv: int
) -> None:
    if not data or not data_size:
        raise silent()
    _device(sim)
    along = hostmem.read_bytes(user_data, user_data_size) if user_data else b""
    sim.area(Queues).put(qid, (hostmem.read_bytes(data, data_size), along), timeout)


@answers("acltdtDequeueData", partly=_NOTE)
def dequeue_data(
    sim: Machine,
    qid: int,
    data: int,
    data_size: int,
    ret_data_size: int,
    user_data: int,
    user_data_size: int,
    timeout: int,
) -> None:
    if not data or not ret_data_size or not data_size:
        raise silent()
    _device(sim)
    queues = sim.area(Queues)
    content, along = queues.head(qid, timeout)
    hostmem.write_u64(ret_data_size, len(content))
    if len(content) > data_size:
        raise AclLayerError(107000, "EE9999", f"The entry has {len(content)} bytes, the buffer {data_size}")
    queues.take(qid)
    hostmem.write_bytes(data, content)
    if user_data:
        hostmem.write_bytes(user_data, along[:user_data_size])


def _not_here(feature: str) -> Callable[..., None]:
    """What only the device's side of the interface has."""

    @answers(feature)
    def refuse(sim: Machine, *arguments: int) -> None:
        raise AclLayerError(_UNSUPPORTED, "EH0006", f"{feature} is not supported in this version")

    return refuse


for _name in (
    "acltdtEnqueue",
    "acltdtDequeue",
    "acltdtGrantQueue",
    "acltdtAttachQueue",
    "acltdtFreeBuf",
    "acltdtGetBufData",
    "acltdtGetBufUserData",
    "acltdtSetBufUserData",
    "acltdtCopyBufRef",
    "acltdtSetBufDataLen",
    "acltdtGetBufDataLen",
    "acltdtAppendBufChain",
    "acltdtGetBufChainNum",
    "acltdtGetBufFromChain",
):
    _not_here(_name)


@answers("acltdtAllocBuf")
def tdt_alloc_buf(sim: Machine, size: int, kind: int, buf: int) -> None:
    if kind > 1:
        raise bad_value(kind, "type", "must be equal to 0 or 1 currently")
    if not buf:
        raise null_pointer("buf")
    raise AclLayerError(_UNSUPPORTED, "EH0006", "acltdtAllocBuf is not supported in this version")


# ---- routes --------------------------------------------------------------------------------------------------


@answers("acltdtCreateQueueRoute")
def create_queue_route(sim: Machine, src_id: int, dst_id: int) -> int:
    return sim.area(Objects).routes.add(Route(src_id, dst_id))


@answers("acltdtDestroyQueueRoute", required="route")
def destroy_queue_route(sim: Machine, route: int) -> None:
    sim.area(Objects).routes.remove(route, "acltdtDestroyQueueRoute")


@answers("acltdtGetQueueRouteParam", required="route param param_ret_size")
def get_queue_route_param(sim: Machine, route: int, kind: int, length: int, param_ret_size: int, param: int) -> None:
    if not 0 <= kind <= 2:
        raise inner(f"unkown acltdtQueueRouteParamType {kind}")
    found = sim.area(Objects).routes.get(route, "acltdtGetQueueRouteParam")
    value = (found.source, found.target, found.status)[kind]
    _give((value & 0xFFFFFFFF).to_bytes(4, "little"), param, length, param_ret_size)


@answers("acltdtCreateQueueRouteList")
def create_queue_route_list(sim: Machine) -> int:
    return sim.area(Objects).lists.add([])


@answers("acltdtDestroyQueueRouteList", required="route_list")
def destroy_queue_route_list(sim: Machine, route_list: int) -> None:
    sim.area(Objects).lists.remove(route_list, "acltdtDestroyQueueRouteList")


@answers("acltdtAddQueueRoute", required="route_list route")
def add_queue_route(sim: Machine, route_list: int, route: int) -> None:
    objects = sim.area(Objects)
    objects.lists.get(route_list, "acltdtAddQueueRoute").append(objects.routes.get(route, "acltdtAddQueueRoute").copy())


@answers("acltdtGetQueueRoute", required="route_list route")
def get_queue_route(sim: Machine, route_list: int, index: int, route: int) -> None:
    objects = sim.area(Objects)
    found = objects.lists.get(route_list, "acltdtGetQueueRoute")
    if index >= len(found):
        raise silent()
    target = objects.routes.get(route, "acltdtGetQueueRoute")
    target.source, target.target, target.status = found[index].source, found[index].target, found[index].status


@answers("acltdtGetQueueRouteNum")
def get_queue_route_num(sim: Machine, route_list: int) -> int:
    require(route_list, "dataset")
    return len(sim.area(Objects).lists.get(route_list, "acltdtGetQueueRouteNum"))


@answers("acltdtCreateQueueRouteQueryInfo")
def create_queue_route_query_info(sim: Machine) -> int:
    return sim.area(Objects).queries.add(Query())


@answers("acltdtDestroyQueueRouteQueryInfo", required="info")
def destroy_queue_route_query_info(sim: Machine, info: int) -> None:
    sim.area(Objects).queries.remove(info, "acltdtDestroyQueueRouteQueryInfo")


@answers("acltdtSetQueueRouteQueryInfo", required="param value")
def set_queue_route_query_info(sim: Machine, param: int, kind: int, length: int, value: int) -> None:
    if not 0 <= kind <= 2:
        raise inner(f"unkown acltdtQueueRouteQueryInfoParamType {kind}")
    found = sim.area(Objects).queries.get(param, "acltdtSetQueueRouteQueryInfo")
    found.values[kind] = _overlay(found.values[kind], 4, value, length)
    found.given[kind] = True


def _change_routes(sim: Machine, route_list: int, bind: bool, call: str) -> None:
    if not route_list:
        raise silent()
    _device(sim)
    queues = sim.area(Queues)
    change = queues.bind if bind else queues.unbind
    for route in sim.area(Objects).lists.get(route_list, call):
        route.status = change(route.source, route.target)


@answers("acltdtBindQueueRoutes", partly=_NOTE)
def bind_queue_routes(sim: Machine, route_list: int) -> None:
    _change_routes(sim, route_list, True, "acltdtBindQueueRoutes")


@answers("acltdtUnbindQueueRoutes", partly=_NOTE)
def unbind_queue_routes(sim: Machine, route_list: int) -> None:
    _change_routes(sim, route_list, False, "acltdtUnbindQueueRoutes")


_QUERY_SRC, _QUERY_DST, _QUERY_BOTH, _QUERY_ABNORMAL = 0, 1, 2, 100


@answers("acltdtQueryQueueRoutes", partly=_NOTE)
def query_queue_routes(sim: Machine, query_info: int, route_list: int) -> None:
    for pointer, name in ((route_list, "qRouteList"), (query_info, "queryInfo")):
        require(pointer, name)
    objects = sim.area(Objects)
    found = objects.lists.get(route_list, "acltdtQueryQueueRoutes")
    query = objects.queries.get(query_info, "acltdtQueryQueueRoutes")
    found.clear()
    mode, source, target = query.values
    if not query.given[0]:
        raise silent()
    if mode not in (_QUERY_SRC, _QUERY_DST, _QUERY_BOTH, _QUERY_ABNORMAL):
        raise inner(f"unkown mode {mode}")
    if (mode in (_QUERY_SRC, _QUERY_BOTH) and not query.given[1]) or (
        mode in (_QUERY_DST, _QUERY_BOTH) and not query.given[2]
    ):
        raise silent()
    _device(sim)
    if mode == _QUERY_ABNORMAL:
        return
    by_source: Optional[int] = source if mode != _QUERY_DST else None
    by_target: Optional[int] = target if mode != _QUERY_SRC else None
    found.extend(Route(start, end, 1) for start, end in sim.area(Queues).query(by_source, by_target))


# ---- buffers -------------------------------------------------------------------------------------------------


def _some(*pointers: int) -> None:
    if not all(pointers):
        raise silent()


def _buffer(sim: Machine, handle: int, call: str) -> Buffer:
    return sim.area(Buffers).table.get(handle, call)


@answers("aclrtAllocBuf", partly=_NOTE)
def alloc_buf(sim: Machine, buf: int, size: int) -> None:
    _some(buf)
    if not size:
        raise bad_value(size, "size", "size must be greater than zero")
    block = sim.area(Memory).allocate_pinned(0, size, size, "aclrtAllocBuf")
    hostmem.write_pointer(buf, sim.area(Buffers).add(Content(block, size)).handle)


@answers("aclrtFreeBuf", partly=_NOTE)
def free_buf(sim: Machine, buf: int) -> None:
    _some(buf)
    for member in _buffer(sim, buf, "aclrtFreeBuf").chain:
        sim.area(Buffers).table.remove(member.handle, "aclrtFreeBuf")
        member.content.references -= 1
        if not member.content.references:
            sim.area(Memory).free(member.content.block.base)


@answers("aclrtSetBufDataLen", partly=_NOTE)
def set_buf_data_len(sim: Machine, buf: int, length: int) -> None:
    _some(buf)
    found = _buffer(sim, buf, "aclrtSetBufDataLen")
    if length > found.content.size:
        raise AclLayerError(107000, "EE9999", f"The buffer has {found.content.size} bytes")
    found.length = length


@answers("aclrtGetBufDataLen", partly=_NOTE)
def get_buf_data_len(sim: Machine, buf: int, length: int) -> None:
    _some(buf, length)
    hostmem.write_u64(length, _buffer(sim, buf, "aclrtGetBufDataLen").length)


@answers("aclrtGetBufData", partly=_NOTE)
def get_buf_data(sim: Machine, buf: int, data_ptr: int, size: int) -> None:
    _some(buf, data_ptr, size)
    found = _buffer(sim, buf, "aclrtGetBufData")
    hostmem.write_pointer(data_ptr, found.content.block.base)
    hostmem.write_u64(size, found.content.size)


@answers("aclrtGetBufUserData", partly=_NOTE)
def get_buf_user_data(sim: Machine, buf: int, data_ptr: int, size: int, offset: int) -> None:
    if size + offset > USER_DATA:
        raise silent()
    _some(buf, data_ptr)
    hostmem.write_bytes(
        data_ptr, bytes(_buffer(sim, buf, "aclrtGetBufUserData").content.user_data[offset : offset + size])
    )


@answers("aclrtSetBufUserData", partly=_NOTE)
def set_buf_user_data(sim: Machine, buf: int, data_ptr: int, size: int, offset: int) -> None:
    if size + offset > USER_DATA:
        raise silent()
    _some(buf, data_ptr)
    _buffer(sim, buf, "aclrtSetBufUserData").content.user_data[offset : offset + size] = hostmem.read_bytes(
        data_ptr, size
    )


@answers("aclrtCopyBufRef", partly=_NOTE)
def copy_buf_ref(sim: Machine, buf: int, new_buf: int) -> None:
    _some(buf, new_buf)
    content = _buffer(sim, buf, "aclrtCopyBufRef").content
    content.references += 1
    hostmem.write_pointer(new_buf, sim.area(Buffers).add(content).handle)


@answers("aclrtAppendBufChain", partly=_NOTE)
def append_buf_chain(sim: Machine, head_buf: int, buf: int) -> None:
    _some(head_buf, buf)
    _buffer(sim, head_buf, "aclrtAppendBufChain").chain.append(_buffer(sim, buf, "aclrtAppendBufChain"))


@answers("aclrtGetBufChainNum", partly=_NOTE)
def get_buf_chain_num(sim: Machine, head_buf: int, num: int) -> None:
    _some(head_buf, num)
    hostmem.write_u32(num, len(_buffer(sim, head_buf, "aclrtGetBufChainNum").chain))


@answers("aclrtGetBufFromChain", partly=_NOTE)
def get_buf_from_chain(sim: Machine, head_buf: int, index: int, buf: int) -> None:
    _some(head_buf, buf)
    chain = _buffer(sim, head_buf, "aclrtGetBufFromChain").chain
    if index >= len(chain):
        raise AclLayerError(107000, "EE9999", f"The chain has {len(chain)} buffers")
    hostmem.write_pointer(buf, chain[index].handle)
