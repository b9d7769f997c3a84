"""Labels: places in the streams of a model that a run can jump to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .failures import RuntimeLayerError, UndefinedBehavior
from .handles import HandleTable
from .memory import Memory
from .models import INTERNAL, STREAM_MODEL, Jump, Lane, Model
from .operation import Access

if TYPE_CHECKING:
    from .context import Context
    from .machine import Machine
    from .memory import Block
    from .stream import Stream

LABEL_CONTEXT = 507031
MOST_IN_A_LIST = 65535
LIST_KIND = "aclrtCreateLabelList"
_BYTES = 16  # of a label in a list on the device


class Label:
    """One label."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.listed = False  # has a place in a list, which is on the device
        self.stream: Stream | None = None  # where it was set,
        self.model: Model | None = None
        self.handle = 0


class SetLabel(Jump):
    """The label itself. Nothing happens there."""

    __slots__ = ("label",)

    def __init__(self, label: Label) -> None:
        super().__init__("aclrtSetLabel")
        self.label = label

    def target(self, machine: Machine) -> tuple[Lane, int] | None:
        return None


class SwitchLabel(Jump):
    """Reads a number from the device and goes on at that label of a list."""

    __slots__ = ("address", "most", "labels", "model")

    def __init__(self, address: int, most: int, labels: int, model: Model) -> None:
        super().__init__("aclrtSwitchLabelByIndex", Access(((address, 4),)))
        self.address = address
        self.most = most
        self.labels = labels  # address of the list
        self.model = model

    def target(self, machine: Machine) -> tuple[Lane, int] | None:
        index = int.from_bytes(machine.area(Memory).read(self.address, 4, self.name), "little")
        labels = machine.area(Labels).lists.get(self.labels)
        if labels is None:
            raise UndefinedBehavior(f"{self.name}: 0x{self.labels:x} is not a list of labels")
        count = min(self.most, len(labels))
        if not count:
            return None
        # documented: a number beyond the end means the last one
        label = labels[min(index, count - 1)]
        for lane in self.model.lanes.values():
            for position, task in enumerate(lane.tasks):
                if isinstance(task, SetLabel) and task.label is label:
                    return lane, position
        text = f"{self.name}: label {index} of the list was not set in the model"
        raise RuntimeLayerError(INTERNAL, "EE9999", text)


class Labels:
    """All labels of a machine, and the lists of them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.table: HandleTable[Label] = HandleTable("label")
        self.lists: dict[int, list[Label]] = {}

    def create(self) -> int:
        label = Label(self.machine.current_context())
        label.handle = self.table.add(label)
        return label.handle

    def _own(self, handle: int, call: str) -> Label:
        """The label of a handle, which must belong to the current context."""
        context = self.machine.current_context()
        if self.table.is_foreign(handle):
            raise RuntimeLayerError(LABEL_CONTEXT, "EE9999", self.table.why_not(handle))
        label = self.table.get(handle, call)
        if label.context is not context:
            raise RuntimeLayerError(LABEL_CONTEXT, "EE9999", "label is not in current ctx")
        return label

    def destroy(self, handle: int, call: str) -> None:
        self._own(handle, call)
        self.table.remove(handle, call)

    def set(self, handle: int, stream_handle: int, call: str) -> None:
        label = self._own(handle, call)
        stream = self.machine.own_stream(stream_handle, call)
        if not stream.models:
            raise RuntimeLayerError(STREAM_MODEL, "EE9999", f"stream is not bound to a model, id={stream.number}")
        if not label.listed:
            raise RuntimeLayerError(INTERNAL, "EE9999", "label is in no list, so that it has no device address")
        if label.stream is not None:
            raise RuntimeLayerError(INTERNAL, "EE9999", "label was already set")
        label.stream, label.model = stream, stream.models[0]
        stream.submit(SetLabel(label))

    def create_list(self, handles: list[int], call: str) -> int:
        """A list on the device; returns its address."""
        context = self.machine.current_context()
        labels = [self.table.get(handle, call) for handle in handles]
        for label in labels:  # those before a wrong one stay in the list that is not made
            if label.listed:
                raise RuntimeLayerError(INTERNAL, "EE9999", "set label dev addr failed: label is already in a list")
            label.listed = True
        size = _BYTES * len(labels)
        block = self.machine.area(Memory).allocate(context.device.index, size, size, kind=LIST_KIND)
        self.lists[block.base] = labels
        return block.base

    def destroy_list(self, address: int, call: str) -> None:
        memory = self.machine.area(Memory)
        block: Block | None = memory.blocks.at(address)
        if block is None or block.kind != LIST_KIND:
            memory.free(address)  # the library frees whatever it is given
            return
        self.lists.pop(address, None)
        memory.drop(block)

    def switch(self, address: int, most: int, list_address: int, stream_handle: int, call: str) -> None:
        stream = self.machine.own_stream(stream_handle, call)
        if not stream.models:
            raise RuntimeLayerError(STREAM_MODEL, "EE1011", f"stream is not bound to a model, id={stream.number}")
        stream.submit(SwitchLabel(address, most, list_address, stream.models[0]))
