"""Argument handles: where the runtime library puts the parameters of a launch, and in which order that may be done.

A block is `[hidden synchronization address] parameters, each at a multiple of 8, [hidden overflow address] placeholder
data`. It lies in memory of the program, so that the program can write to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import refusals
from .failures import RuntimeLayerError, UndefinedBehavior
from .handles import NO_MEMORY
from .program import Function, Programs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .machine import Machine

    Bytes = NDArray[np.uint8]

ROOM = 64 << 10  # bytes of the block of a thread
MAX_PARAMETERS = 128
HEAD = 80  # bytes of a handle, without its parameters
STEP = 32  # bytes of a handle for each parameter
ADDRESSES = 1 << 47  # more than any program has
KEPT = 64  # as many handles may be there before those of unloaded binaries are looked for
HIDDEN_ROOM = 64  # what a block is given for hidden arguments
SIZES = 1 << 64  # sums of sizes wrap around here, as in C


class Parameter:
    """One parameter of a block."""

    __slots__ = ("offset", "size", "placeholder", "data", "data_size")

    def __init__(self, offset: int, size: int, placeholder: bool) -> None:
        self.offset = offset
        self.size = size
        self.placeholder = placeholder
        self.data = 0  # where the data of a placeholder starts
        self.data_size = 0


class Arguments:
    """One argument handle."""

    __slots__ = (
        "machine",
        "address",
        "function",
        "block",
        "start",
        "room",
        "limit",
        "size",
        "parameters",
        "placeholders",
        "overflow_done",
        "data_begun",
        "finalized",
        "updating",
    )

    def __init__(self, machine: Machine, address: int, function: Function, block: Bytes, limit: int) -> None:
        self.machine = machine
        self.address = address  # of the handle
        self.function = function
        self.block = block
        self.start: int = block.__array_interface__["data"][0]
        self.room = len(block)
        self.limit = MAX_PARAMETERS if function.cpu else limit & 0xFF
        self.size = 8 if function.sync_slot else 0
        self.parameters: list[Parameter] = []
        self.placeholders = 0
        self.overflow_done = False
        self.data_begun = False
        self.finalized = False
        self.updating = False

    def parameter(self, handle: int) -> Parameter:
        """The parameter of a parameter handle."""
        index, rest = divmod(handle - self.address - HEAD, STEP)
        if not rest and 0 <= index < len(self.parameters):
            return self.parameters[index]
        text = f"0x{handle:x} is not a parameter of the argument handle 0x{self.address:x}"
        if handle < NO_MEMORY or self.machine.area(Handles).around(handle):
            raise UndefinedBehavior(text)
        raise refusals.invalid(text)  # as for zeroed memory, which is a parameter of 0 bytes

    def place(self, size: int) -> int:
        """The offset at which the next parameter, of this size, goes."""
        if self.finalized:
            raise refusals.unsupported("not support append and get ph buffer after finalized")
        if self.data_begun:
            raise refusals.unsupported("not support append ph or common param, after getting ph buffer")
        return self._take(size)

    def next_handle(self) -> int:
        """The handle that the next parameter gets."""
        return self.address + HEAD + STEP * len(self.parameters)

    def append(self, source: int, size: int, offset: int) -> None:
        """Put a parameter into the block at its place, from an address of the program."""
        if size > refusals.MOST_BYTES:
            raise refusals.invalid(f"args append, memcpy failed: {size} bytes")
        self.machine.host.move(self.start + offset, source, size)
        self._added(Parameter(offset, size, False))

    def append_placeholder(self) -> int:
        """Reserve room for the address of data that travels with the block; returns its handle."""
        if self.data_begun:
            raise refusals.unsupported("not support append ph or common param after getting placeholder buffer")
        if self.finalized:
            raise refusals.unsupported("not support append and get placeholder buffer after finalized")
        offset = self._take(8)
        self.placeholders += 1
        handle = self.next_handle()
        self._added(Parameter(offset, 8, True))
        return handle

    def placeholder_data(self, parameter: Parameter, size: int) -> int:
        """Room for the data of a placeholder; returns its offset in the block."""
        if not parameter.placeholder:
            raise refusals.invalid("param type=0 not support get placeholder buffer")
        if self.finalized:
            raise refusals.unsupported("not support append and get placeholder buffer after finalized")
        self._overflow_slot()
        offset = self._fits(size, "get placeholder buff fail,size overflow")
        self.data_begun = True
        parameter.data, parameter.data_size = offset, size
        self.size = (offset + size) % SIZES
        return offset

    def update(self, parameter: Parameter, source: int, size: int) -> None:
        """Write a parameter again; a launch needs `finalize` afterwards."""
        if parameter.placeholder or parameter.size != size:
            raise refusals.invalid(
                f"invalid param, paraHandle type is {int(parameter.placeholder)}, dest paraSize is {parameter.size}, "
                f"input paraSize is {size}."
            )
        self.machine.host.move(self.start + parameter.offset, source, size)
        self.updating = True

    def finalize(self) -> None:
        """Fill in the hidden arguments."""
        self._overflow_slot()
        context = self.machine.current_context()
        if self.function.sync_slot:
            self._word(0, self.machine.area(Addresses).sync(context.device.index))
        self.finalized = True
        self.updating = False

    def check_for_launch(self) -> None:
        """What a launch looks at first."""
        if not self.finalized or self.updating:
            raise refusals.invalid(
                f"args handle is not finalized,invalid param.isFinalized={int(self.finalized)},"
                f"isParamUpdating={int(self.updating)}"
            )
        if not self.size:
            raise refusals.out_of_range(0, "argsHandle->argsSize", "not equal to 0")
        for parameter in self.parameters:
            if parameter.placeholder and (parameter.offset >= self.size or parameter.data >= self.size):
                raise refusals.invalid("a placeholder of the argument handle lies behind the end of the block")

    def _take(self, size: int) -> int:
        if len(self.parameters) + 1 > self.limit:
            raise refusals.invalid(
                f"para num exceed max num,current real user para num is {len(self.parameters)},"
                f"max user para num is {self.limit}"
            )
        return self._fits(size, "args append failed, para size overflow")

    def _fits(self, size: int, problem: str) -> int:
        offset = self.size if self.function.cpu else (self.size + 7) & ~7
        end = (offset + size) % SIZES
        if end > self.room:
            raise refusals.invalid(f"{problem}, needOccupyOffset={end},total={self.room}")
        return offset

    def _added(self, parameter: Parameter) -> None:
        self.parameters.append(parameter)
        self.size = parameter.offset + parameter.size

    def _overflow_slot(self) -> None:
        if self.function.cpu or self.overflow_done or not self.function.overflow_slot:
            return
        offset = self._fits(8, "process overflow args failed, para size overflow")
        context = self.machine.current_context()
        self._word(offset, self.machine.area(Addresses).overflow(context))
        self.size = offset + 8
        self.overflow_done = True

    def _word(self, offset: int, value: int) -> None:
        self.block[offset : offset + 8] = np.frombuffer(value.to_bytes(8, "little"), np.uint8)


class Handles:
    """The argument handles of a machine, by address."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._live: dict[int, Arguments] = {}
        self._enough = KEPT

    def of_thread(self, function: Function) -> Arguments:
        """aclrtKernelArgsInit: the one handle of the calling thread, emptied."""
        kept = self.machine.thread.kept
        buffers = kept.get("arguments")
        if buffers is None:
            # the handle itself is memory too: nothing is written there, but no other object has its address
            buffers = kept["arguments"] = np.zeros(HEAD + STEP * MAX_PARAMETERS, np.uint8), np.zeros(ROOM, np.uint8)
        address: int = buffers[0].__array_interface__["data"][0]
        return self._made(Arguments(self.machine, address, function, buffers[1], MAX_PARAMETERS))

    def in_memory(self, function: Function, address: int, block: int, room: int) -> Arguments:
        """aclrtKernelArgsInitByUserMem: handle and block in memory of the program."""
        view: Bytes = self.machine.host.view(block, min(room, ADDRESSES))
        return self._made(Arguments(self.machine, address, function, view, function.room))

    def _made(self, arguments: Arguments) -> Arguments:
        self._live[arguments.address] = arguments
        if len(self._live) > self._enough:
            # nobody says when the memory of a handle is given back; once its binary is unloaded, it is of no use
            functions = self.machine.area(Programs).functions
            self._live = {at: made for at, made in self._live.items() if functions.find(made.function.handle)}
            self._enough = max(KEPT, 2 * len(self._live))
        if self.machine.hazards is not None:
            self.machine.hazards.arguments_made(arguments)
        return arguments

    def get(self, address: int, call: str, message_code: str = "EE1004") -> Arguments:
        """The handle at an address. Other memory is taken for zeroed memory, a handle without a function."""
        found = self._live.get(address)
        if found is not None:
            return found
        if address < NO_MEMORY:
            raise UndefinedBehavior(f"{call}: 0x{address:x} is not an argument handle")
        text = f"{call}: 0x{address:x} is not an argument handle, or its initialization failed"
        raise RuntimeLayerError(107000, message_code, text)

    def around(self, address: int) -> bool:
        """Does an address lie in one of the handles?"""
        return any(0 <= address - start < HEAD + STEP * MAX_PARAMETERS for start in self._live)


class Addresses:
    """Device addresses that kernels get as hidden arguments."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._sync: dict[int, int] = {}
        self._overflow: dict[int, int] = {}

    def sync(self, device: int) -> int:
        """The hardware synchronization address of a device."""
        if device not in self._sync:
            # Assumption: registers of the device, not memory that the host gave out
            self._sync[device] = 0xE700_0000 + device * 0x0100_0000
        return self._sync[device]

    def overflow(self, context: object) -> int:
        """Where kernels of a context report an overflow."""
        key = id(context)
        if key not in self._overflow:
            self._overflow[key] = 0xE600_0000 + len(self._overflow) * 0x1000
        return self._overflow[key]


def memory_size(function: Function, user_bytes: int) -> int:
    """aclrtKernelArgsGetMemSize."""
    return user_bytes if function.cpu else user_bytes + HIDDEN_ROOM + 8 * function.room


def handle_size(function: Function) -> int:
    """aclrtKernelArgsGetHandleMemSize."""
    return HEAD + STEP * function.room
