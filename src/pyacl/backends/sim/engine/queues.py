"""Queues of host data, buffers of the queue interface, and routes between queues."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Optional

from .failures import AclLayerError
from .handles import HandleTable
from .refusals import driver, silent

if TYPE_CHECKING:
    from .machine import Machine

EMPTY, FULL = 207013, 207014
FAILURE = 500001
BOUND = 1
Data = tuple[Any, bytes]  # content, what the program sends along


class Queue:
    """A queue of a device."""

    def __init__(self, device: int, depth: int, name: str) -> None:
        self.device = device
        self.depth = depth
        self.name = name
        self.entries: deque[Data] = deque()


class Queues:
    """The queues of one machine by number, and the routes between them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.by_number: dict[int, Queue] = {}
        self.routes: list[tuple[int, int]] = []
        self._next = 0

    def create(self, device: int, depth: int, name: str) -> int:
        number, self._next = self._next, self._next + 1
        self.by_number[number] = Queue(device, depth, name)
        return number

    def find(self, number: int) -> Queue:
        queue = self.by_number.get(number)
        if queue is None:
            raise driver(f"There is no queue {number}")
        return queue

    def destroy(self, number: int) -> None:
        self.find(number)
        if any(number in route for route in self.routes):
            raise silent(FAILURE)
        del self.by_number[number]

    def put(self, number: int, data: Data, timeout: int) -> None:
        """Append; 207014 when the queue stays full. What a route takes over goes to its end."""
        for target in [end for start, end in self.routes if start == number] or [number]:
            queue = self.find(target)
            if not self._wait(lambda queue=queue: len(queue.entries) < queue.depth, timeout):
                raise AclLayerError(FULL, None)
            queue.entries.append(data)
            self.machine.scheduler.notify()

    def head(self, number: int, timeout: int) -> Data:
        """The oldest entry, left where it is; 207013 when the queue stays empty."""
        queue = self.find(number)
        if not self._wait(lambda: bool(queue.entries), timeout):
            raise AclLayerError(EMPTY, None)
        return queue.entries[0]

    def take(self, number: int) -> None:
        self.find(number).entries.popleft()
        self.machine.scheduler.notify()

    def _wait(self, goal: Any, timeout: int) -> bool:
        if goal():
            return True
        if timeout == 0:
            return False
        return self.machine.scheduler.wait(goal, (), None if timeout < 0 else timeout)

    # ---- routes ------------------------------------------------------------------------------------------

    def bind(self, source: int, target: int) -> int:
        """The status of the route afterwards."""
        if source not in self.by_number or target not in self.by_number:
            return 2
        if (source, target) not in self.routes:
            self.routes.append((source, target))
        return BOUND

    def unbind(self, source: int, target: int) -> int:
        if (source, target) in self.routes:
            self.routes.remove((source, target))
        return 0

    def query(self, source: Optional[int], target: Optional[int]) -> list[tuple[int, int]]:
        return [route for route in self.routes if source in (None, route[0]) and target in (None, route[1])]


USER_DATA = 96  # bytes of a buffer that belong to the program


class Content:
    """What the references to a buffer share."""

    def __init__(self, block: Any, size: int) -> None:
        self.block = block
        self.size = size
        self.references = 1
        self.user_data = bytearray(USER_DATA)


class Buffer:
    """A reference to a buffer of the queue interface; the first of a chain knows the others."""

    def __init__(self, content: Content) -> None:
        self.content = content
        self.length = content.size
        self.chain: list[Buffer] = [self]
        self.handle = 0


class Buffers:
    """The buffers of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.table: HandleTable[Buffer] = HandleTable("queue buffer")

    def add(self, content: Content) -> Buffer:
        buffer = Buffer(content)
        buffer.handle = self.table.add(buffer)
        return buffer
