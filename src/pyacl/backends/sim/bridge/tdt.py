"""Entry points: data items, datasets, and channels of tensors."""

from __future__ import annotations

from typing import Any, Optional

from ..engine.handles import HandleTable
from ..engine.machine import Machine
from ..engine.memory import HOST, UNREGISTERED, Memory
from ..engine.queues import Queues
from ..engine.refusals import inner, silent
from . import hostmem
from .registry import answers, null_pointer, require

_TENSOR, _END_OF_SEQUENCE, _ABNORMAL = 0, 1, 2
_UNDEFINED = -1
_MAX_DIMS = 128
_UNSUPPORTED = 200006
_NOTE = "what is sent comes back on the channel of the same name; no program on the device reads it"


class Item:
    """A tensor or a mark in a dataset."""

    def __init__(self, kind: int, dims: list[int], data_type: int, data: int, size: int) -> None:
        self.kind = kind
        self.dims = dims
        self.data_type = data_type
        self.data = data
        self.size = size
        self.kept: Any = None  # holds received bytes


class Dataset:
    """A list of items; one that was received owns them."""

    def __init__(self) -> None:
        self.items: list[int] = []
        self.name = ""
        self.on_device: Optional[bool] = None
        self.owns = False
        self.kept: dict[str, Any] = {}


class Channel:
    """A channel: a queue with a name."""

    def __init__(self, device: int, name: str, queue: int) -> None:
        self.device = device
        self.name = name
        self.queue = queue


class Tensors:
    """Items, datasets and channels of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.items: HandleTable[Item] = HandleTable("data item")
        self.datasets: HandleTable[Dataset] = HandleTable("dataset")
        self.channels: HandleTable[Channel] = HandleTable("tensor channel")


# ---- items ---------------------------------------------------------------------------------------------------


@answers("acltdtCreateDataItem")
def create_data_item(sim: Machine, tdt_type: int, dims: int, dim_num: int, data_type: int, data: int, size: int) -> int:
    if (dims == 0) != (dim_num == 0):
        raise inner(f"acltdtCreateDataItem failed, invalid dims and dimNum[{dim_num}]")
    if dim_num > _MAX_DIMS:
        raise inner(f"acltdtCreateDataItem failed, dimNum[{dim_num}] can't be larger than {_MAX_DIMS}")
    if tdt_type != _TENSOR:
        if dims:
            raise inner("acltdtCreateDataItem failed, dims must be nullptr")
        return sim.area(Tensors).items.add(Item(tdt_type, [], _UNDEFINED, 0, 0))
    sizes = [int.from_bytes(hostmem.read_bytes(dims + 8 * i, 8), "little", signed=True) for i in range(dim_num)]
    return sim.area(Tensors).items.add(Item(tdt_type, sizes, data_type, data, size))


@answers("acltdtDestroyDataItem")
def destroy_data_item(sim: Machine, data_item: int) -> None:
    if not data_item:
        raise silent()
    sim.area(Tensors).items.remove(data_item, "acltdtDestroyDataItem")


def _item(sim: Machine, handle: int, call: str) -> Item:
    return sim.area(Tensors).items.get(handle, call)


def _missing(sim: Machine, name: str) -> None:
    """A function that returns a value reports a null pointer and answers with that value nevertheless."""
    sim.messages().append(("EH0002", null_pointer(name).text))


@answers("acltdtGetTensorTypeFromItem")
def get_tensor_type(sim: Machine, data_item: int) -> int:
    if not data_item:
        _missing(sim, "dataItem")
        return _UNDEFINED
    return _item(sim, data_item, "acltdtGetTensorTypeFromItem").kind


@answers("acltdtGetDataTypeFromItem")
def get_data_type(sim: Machine, data_item: int) -> int:
    if not data_item:
        _missing(sim, "dataItem")
        return _UNDEFINED
    return _item(sim, data_item, "acltdtGetDataTypeFromItem").data_type


@answers("acltdtGetDataAddrFromItem")
def get_data_addr(sim: Machine, data_item: int) -> int:
    return _item(sim, data_item, "acltdtGetDataAddrFromItem").data if data_item else 0


@answers("acltdtGetDataSizeFromItem")
def get_data_size(sim: Machine, data_item: int) -> int:
    require(data_item, "dataItem")
    return _item(sim, data_item, "acltdtGetDataSizeFromItem").size


@answers("acltdtGetDimNumFromItem")
def get_dim_num(sim: Machine, data_item: int) -> int:
    require(data_item, "dataItem")
    return len(_item(sim, data_item, "acltdtGetDimNumFromItem").dims)


@answers("acltdtGetDimsFromItem")
def get_dims(sim: Machine, data_item: int, dims: int, dim_num: int) -> None:
    if not data_item:
        raise silent()
    if (dims == 0) != (dim_num == 0):
        raise inner(f"acltdtGetDimsFromItem failed, invalid dims and dimNum[{dim_num}]")
    found = _item(sim, data_item, "acltdtGetDimsFromItem").dims
    if dim_num < len(found):
        raise inner(f"output dimNum[{dim_num}] cannot be less than dims number[{len(found)}]")
    for i, size in enumerate(found):
        hostmem.write_i64(dims + 8 * i, size)


@answers("acltdtGetSliceInfoFromItem", required="data_item slice_num slice_id")
def get_slice_info(sim: Machine, data_item: int, slice_num: int, slice_id: int) -> None:
    _item(sim, data_item, "acltdtGetSliceInfoFromItem")
    hostmem.write_u64(slice_num, 0)
    hostmem.write_u64(slice_id, 0)


# ---- datasets ------------------------------------------------------------------------------------------------


@answers("acltdtCreateDataset")
def create_dataset(sim: Machine) -> int:
    return sim.area(Tensors).datasets.add(Dataset())


@answers("acltdtDestroyDataset")
def destroy_dataset(sim: Machine, dataset: int) -> None:
    if not dataset:
        raise silent()
    area = sim.area(Tensors)
    found = area.datasets.remove(dataset, "acltdtDestroyDataset")
    if found.owns:
        for item in found.items:
            area.items.remove(item, "acltdtDestroyDataset")


@answers("acltdtAddDataItem")
def add_data_item(sim: Machine, dataset: int, data_item: int) -> None:
    if not dataset or not data_item:
        raise silent()
    area = sim.area(Tensors)
    found, item = area.datasets.get(dataset, "acltdtAddDataItem"), area.items.get(data_item, "acltdtAddDataItem")
    if found.owns:
        raise inner("item cannot be added, because internal item already exists", _UNSUPPORTED)
    if item.data:
        on_device = sim.area(Memory).locate(item.data)[0] not in (HOST, UNREGISTERED)
        if found.on_device is None:
            found.on_device = on_device
        elif found.on_device != on_device:
            raise silent()
    found.items.append(data_item)


@answers("acltdtGetDataItem")
def get_data_item(sim: Machine, dataset: int, index: int) -> int:
    items = sim.area(Tensors).datasets.get(dataset, "acltdtGetDataItem").items if dataset else []
    if index >= len(items):
        raise inner(f"input param is invalid, index[{index}]")
    return items[index]


@answers("acltdtGetDatasetSize")
def get_dataset_size(sim: Machine, dataset: int) -> int:
    require(dataset, "dataset")
    return len(sim.area(Tensors).datasets.get(dataset, "acltdtGetDatasetSize").items)


@answers("acltdtGetDatasetName")
def get_dataset_name(sim: Machine, dataset: int) -> int:
    require(dataset, "dataset")
    found = sim.area(Tensors).datasets.get(dataset, "acltdtGetDatasetName")
    return hostmem.keep_text(found.kept, "name", found.name)


# ---- channels ------------------------------------------------------------------------------------------------


@answers("acltdtCreateChannel", partly="as without libdatatransfer.so: there is no such channel")
def create_channel(sim: Machine, device_id: int, name: int) -> int:
    return 0


@answers("acltdtCreateChannelWithCapacity", partly=_NOTE)
def create_channel_with_capacity(sim: Machine, device_id: int, name: int, capacity: int) -> int:
    if not name:
        raise silent()
    text = hostmem.read_text(name)
    if len(text) + 1 > 128 or device_id >= len(sim.devices):
        raise silent()
    queue = sim.area(Queues).create(device_id, capacity, text)
    return sim.area(Tensors).channels.add(Channel(device_id, text, queue))


def _channel(sim: Machine, handle: int, call: str) -> Channel:
    return sim.area(Tensors).channels.get(handle, call)


@answers("acltdtStopChannel", partly=_NOTE)
def stop_channel(sim: Machine, handle: int) -> None:
    if not handle:
        raise silent()
    _channel(sim, handle, "acltdtStopChannel")


@answers("acltdtDestroyChannel", partly=_NOTE)
def destroy_channel(sim: Machine, handle: int) -> None:
    if not handle:
        raise silent()
    sim.area(Queues).destroy(sim.area(Tensors).channels.remove(handle, "acltdtDestroyChannel").queue)


@answers("acltdtCleanChannel", partly=_NOTE)
def clean_channel(sim: Machine, handle: int) -> None:
    if not handle:
        raise silent()
    sim.area(Queues).find(_channel(sim, handle, "acltdtCleanChannel").queue).entries.clear()


@answers("acltdtQueryChannelSize", required="handle size", partly=_NOTE)
def query_channel_size(sim: Machine, handle: int, size: int) -> None:
    queue = _channel(sim, handle, "acltdtQueryChannelSize").queue
    hostmem.write_u64(size, len(sim.area(Queues).find(queue).entries))


@answers("acltdtSendTensor", required="handle dataset", partly=_NOTE)
def send_tensor(sim: Machine, handle: int, dataset: int, timeout: int) -> None:
    area = sim.area(Tensors)
    channel = area.channels.get(handle, "acltdtSendTensor")
    sent = []
    for member in area.datasets.get(dataset, "acltdtSendTensor").items:
        item = area.items.get(member, "acltdtSendTensor")
        if item.kind not in (_TENSOR, _END_OF_SEQUENCE, _ABNORMAL):
            raise inner(f"unkown acltdtTensorType {item.kind}")
        content = sim.area(Memory).read(item.data, item.size, "acltdtSendTensor") if item.data and item.size else b""
        sent.append((item.kind, list(item.dims), item.data_type, content))
    sim.area(Queues).put(channel.queue, (sent, b""), timeout)


@answers("acltdtReceiveTensor", required="handle dataset", partly=_NOTE)
def receive_tensor(sim: Machine, handle: int, dataset: int, timeout: int) -> None:
    area, queues = sim.area(Tensors), sim.area(Queues)
    channel = area.channels.get(handle, "acltdtReceiveTensor")
    found = area.datasets.get(dataset, "acltdtReceiveTensor")
    if found.items and not found.owns:
        raise inner(f"Dataset size[{len(found.items)}] is not empty")
    entry, _ = queues.head(channel.queue, timeout)
    queues.take(channel.queue)
    for old in found.items:
        area.items.remove(old, "acltdtReceiveTensor")
    found.items, found.owns, found.name = [], True, channel.name
    for kind, dims, data_type, content in entry:
        kept, address = hostmem.keep_bytes(content)
        item = Item(kind, dims, data_type, address, len(content))
        item.kept = kept
        found.items.append(area.items.add(item))
