"""Launching kernels: what is checked, in which order, and the operation that runs a kernel."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import chips, exceptions, kernels, places, refusals
from .arguments import Addresses
from .failures import AclLayerError, RuntimeLayerError, UndefinedBehavior
from .memory import Block, Memory
from .operation import NO_ACCESS, Access, Operation
from .program import NO_MIX, Function, Programs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .arguments import Arguments
    from .faults import KernelTrouble
    from .kernels import Emulation
    from .machine import Machine
    from .stream import Stream

    Bytes = NDArray[np.uint8]

# ids of launch attributes
SCHEM_MODE, DYN_UBUF, ENGINE_TYPE, BLOCK_OFFSET, PREFETCH, DATA_DUMP, TIMEOUT, TIMEOUT_US = range(1, 9)
SCHEM_MODE_UNSET = 2
INVALID_HANDLE = 107017
ARGUMENTS = kernels.ARGUMENTS
_FOREVER = (1 << 64) - 1


class Attributes(NamedTuple):
    """What a launch configuration says."""

    scheme: int = SCHEM_MODE_UNSET
    ubuf: int = 0
    engine: int = 0
    offset: int = 0
    prefetch: bool = False
    dump: bool = False
    timeout_us: int = 0  # 0: the default; all ones: for ever


DEFAULTS = Attributes()


class KernelLaunch(Operation):
    """A launch on a stream.

    Attributes
    ----------
    data : the argument block as it was at the launch; None if it lies on the device
    source : (device address, bytes) of a block on the device
    thread : system id of the thread that launched it
    trouble : the fault that a test has asked for it, if any
    """

    __slots__ = (
        *("function", "emulation", "blocks", "data", "source", "attributes", "copy", "kept", "thread"),
        "trouble",
    )

    def __init__(
        self,
        name: str,
        function: Function,
        emulation: Emulation | None,
        blocks: int,
        data: bytes | None,
        source: tuple[int, int],
        attributes: Attributes,
    ) -> None:
        super().__init__(name, locked=emulation is None)
        self.function = function
        self.emulation = emulation
        self.blocks = blocks
        self.data = data
        self.source = source
        self.attributes = attributes
        self.copy: Block | None = None  # the block on the device, where placeholders point into it
        self.kept = False  # a model runs it again: its copy stays
        self.thread = threading.get_native_id()
        self.trouble: KernelTrouble | None = None

    @property
    def access(self) -> Access:
        """What the emulation declares to read and write, each to the end of its allocation. Found out when asked."""
        if self.emulation is None or self.data is None:
            return NO_ACCESS
        data = self.data[8:] if self.function.sync_slot else self.data
        memory = self.function.program.table.machine.area(Memory)
        reads, writes = [], []
        for kind, address in self.emulation.pointers(data):
            block = memory.find(address)
            if block is None:
                continue
            extent = (address, max(kernels.extent_end(block, address) - address, 0))
            if kind != "Out":
                reads.append(extent)
            if kind != "In":
                writes.append(extent)
        return Access(tuple(reads), tuple(writes))

    @access.setter
    def access(self, given: Access) -> None:
        """What every operation is given at first says nothing here."""

    def blocked_by(self) -> KernelTrouble | None:
        return None if self.trouble is None else self.trouble.blocks(self)

    def timed_out(self) -> RuntimeLayerError:
        assert self.trouble is not None
        self.release(self.function.program.table.machine.area(Memory))
        return self.trouble.failure(self)

    def start(self, machine: Machine) -> bool:
        function = self.function
        if machine.area(Programs).functions.find(function.handle) is not function:
            raise UndefinedBehavior(f"{self.name}: {function.name} runs after its binary was unloaded")
        memory = machine.area(Memory)
        try:
            if self.trouble is not None:
                self._break(machine, memory, self.trouble)
            if self.emulation is not None:
                self._run(machine, memory, self.emulation)
        finally:
            if self.copy is not None and not self.kept:
                if self.locked:
                    self.release(memory)
                else:
                    with machine.lock:
                        self.release(memory)
        return True

    def _break(self, machine: Machine, memory: Memory, trouble: KernelTrouble) -> None:
        data = self.data
        if data is None:
            data = memory.read(self.source[0], self.source[1], self.name)
        failure = trouble.failure(self)
        exceptions.tell(machine, self, failure.code, data)
        raise failure

    def _run(self, machine: Machine, memory: Memory, emulation: Emulation) -> None:
        data = self.data
        if data is None:
            data = memory.read(self.source[0], self.source[1], self.name)
        block = data
        if self.function.sync_slot:
            data = data[8:]
        assert self.stream is not None
        where = f"device_id={self.stream.context.device.index}, stream_id={self.stream.number}, task_id={self.number}"
        # one dimension of a launch has 16 bits on its way to the device
        try:
            wrap = None if self.trace is None else self.trace.wrap
            kernels.execute(memory, self.function, emulation, data, self.blocks & 0xFFFF, where, wrap)
        except RuntimeLayerError as fault:
            fault.text += f". Launched at {places.describe(self.place)}"
            exceptions.tell(machine, self, fault.code, block)
            raise

    def release(self, memory: Memory) -> None:
        """Give the copy of the block back."""
        if self.copy is not None and memory.blocks.at(self.copy.base) is self.copy:
            memory.drop(self.copy)
        self.copy = None


def check_blocks(blocks: int) -> None:
    if not blocks:
        raise refusals.out_of_range(0, "numBlocks", "not equal to 0")


def check_block_size(size: int) -> None:
    if not size:
        raise refusals.out_of_range(0, "argsInfo->argsSize", "not equal to 0")


def check_placeholders(function: Function, size: int, placeholders: Sequence[tuple[int, int]]) -> None:
    """Offsets of a block in host memory."""
    for address, data in placeholders:
        if not function.cpu and (address >= size or data >= size):
            raise refusals.invalid(
                "Parameter addrOffset and dataOffset should be less than parameter argsSize. "
                f"addrOffset = {address}, dataOffset = {data}, argsSize = {size}."
            )


def is_paired(machine: Machine, function: Function) -> bool:
    """A mix kernel on a chip that launches it on its two engines one by one."""
    features = machine.area(Programs).features
    return chips.LAUNCH_PAIRED in features and not function.cpu and function.mix != NO_MIX


def read_attributes(machine: Machine, function: Function, given: Sequence[tuple[int, bytes]] | None) -> Attributes:
    """The attributes of a launch out of (id, 16 bytes) pairs; None: no configuration was given."""
    paired = is_paired(machine, function)
    if given is None:
        if paired:
            raise refusals.null("cfg")
        return DEFAULTS
    if paired and not given:
        raise refusals.out_of_range(0, "cfg->numAttrs", "not equal to 0")
    if not given:
        return DEFAULTS
    found = dict(given)  # of an attribute given twice the last one counts
    if TIMEOUT in found and TIMEOUT_US in found:
        raise refusals.invalid("The TIMEOUT and TIMEOUT_US attributes cannot be carried at the same time.")
    scheme = _byte(found, SCHEM_MODE, SCHEM_MODE_UNSET)
    if SCHEM_MODE in found and scheme >= SCHEM_MODE_UNSET:
        raise refusals.out_of_range(scheme, "schedMode", "[0, 2)")
    prefetch, dump = _byte(found, PREFETCH, 0), _byte(found, DATA_DUMP, 0)
    for value, name in ((prefetch, "isBlockPrefetch"), (dump, "isDataDump")):
        if value > 1:
            raise refusals.out_of_range(value, name, "[0, 1]")
    if paired and not (ENGINE_TYPE in found and BLOCK_OFFSET in found):
        raise refusals.invalid("Insufficient parameters in the vector core enabled scenario.")
    for number in found:
        if not SCHEM_MODE <= number <= TIMEOUT_US:
            raise refusals.invalid(f"Launch kernel attr type[{number}] is invalid, should be [1, 9)")
    return Attributes(
        scheme,
        _word(found, DYN_UBUF),
        _word(found, ENGINE_TYPE),
        _word(found, BLOCK_OFFSET),
        bool(prefetch),
        bool(dump),
        _timeout(given),
    )


def attribute_bytes(attributes: Attributes, number: int) -> bytes:
    """The 16 bytes of one attribute, as a launch configuration has them."""
    values = {
        SCHEM_MODE: attributes.scheme,
        DYN_UBUF: attributes.ubuf,
        ENGINE_TYPE: attributes.engine,
        BLOCK_OFFSET: attributes.offset,
        PREFETCH: int(attributes.prefetch),
        DATA_DUMP: int(attributes.dump),
        TIMEOUT: attributes.timeout_us // 1_000_000 & 0xFFFF,
        TIMEOUT_US: attributes.timeout_us,
    }
    if number not in values:
        raise refusals.out_of_range(number, "attrId", "[1, 9)")
    return values[number].to_bytes(16, "little")


def _byte(found: dict[int, bytes], number: int, default: int) -> int:
    return found[number][0] if number in found else default


def _word(found: dict[int, bytes], number: int) -> int:
    return int.from_bytes(found[number][:4], "little") if number in found else 0


def _timeout(given: Iterable[tuple[int, bytes]]) -> int:
    for number, value in given:
        if number == TIMEOUT:
            return int.from_bytes(value[:2], "little") * 1_000_000 or _FOREVER
        if number == TIMEOUT_US:
            return min(int.from_bytes(value[:8], "little"), _FOREVER - 1) or _FOREVER
    return 0


def target(machine: Machine, function: Function, handle: int, call: str) -> Stream:
    """The stream of a launch, after the checks that need a context."""
    context = machine.current_context()
    stream = machine.stream(handle, call)
    if stream.context is not context:
        raise refusals.wrong_context("Kernel launch with handle failed")
    if not function.program.may_run_on(context.device):
        raise AclLayerError(INVALID_HANDLE)  # neither a message nor the last error
    return stream


def submit(
    machine: Machine,
    call: str,
    function: Function,
    blocks: int,
    stream: Stream,
    data: bytes | None,
    source: tuple[int, int],
    attributes: Attributes,
    copied: Block | None,
    given: int | None = None,
) -> KernelLaunch:
    """Queue a launch; `given`: bytes of arguments that the program gave, where `data` has more behind them."""
    if not function.cpu:
        function.program.image(stream.context.device)
    emulation = machine.area(kernels.Kernels).required(function)
    if emulation is not None:
        if given is None:
            given = len(data) if data is not None else source[1]
        kernels.check_size(function, emulation, given, call)
    operation = KernelLaunch(call, function, emulation, blocks, data, source, attributes)
    operation.copy = copied
    if machine.faults is not None:
        operation.trouble = machine.faults.launched(operation)
        if operation.trouble is not None:
            operation.locked = False  # functions of the program are told of the exception
    stream.submit(operation)
    return operation


def with_handle(
    machine: Machine,
    call: str,
    function: Function,
    blocks: int,
    handle: int,
    given: Sequence[tuple[int, bytes]] | None,
    arguments: Arguments,
) -> None:
    """Launch with an argument handle that was checked. The block is copied; the handle may be used again at once."""
    attributes = DEFAULTS if given is None and not function.mix else read_attributes(machine, function, given)
    stream = target(machine, function, handle, call)
    if machine.hazards is not None:
        machine.hazards.arguments_launched(arguments, function, call)
    block = arguments.block[: arguments.size]
    pieces = [(p.offset, p.data, p.data_size) for p in arguments.parameters if p.placeholder]
    copied = _copy(machine, stream, block, pieces) if pieces else None
    end = max((p.offset + p.size for p in arguments.parameters), default=0)  # behind them the hidden last one
    submit(machine, call, function, blocks, stream, block.tobytes(), (0, 0), attributes, copied, end)


def with_block(
    machine: Machine,
    call: str,
    function: Function,
    blocks: int,
    handle: int,
    given: Sequence[tuple[int, bytes]] | None,
    block: Bytes,
    placeholders: Sequence[tuple[int, int]],
) -> None:
    """Launch with a block in host memory; `placeholders`: (offset of the address, offset of the data)."""
    attributes = read_attributes(machine, function, given)
    with_checked_block(machine, call, function, blocks, handle, attributes, block, placeholders)


def with_checked_block(
    machine: Machine,
    call: str,
    function: Function,
    blocks: int,
    handle: int,
    attributes: Attributes,
    block: Bytes,
    placeholders: Sequence[tuple[int, int]],
) -> None:
    """The same with attributes that were checked."""
    stream = target(machine, function, handle, call)
    if not placeholders:
        submit(machine, call, function, blocks, stream, block.tobytes(), (0, 0), attributes, None)
        return
    starts = sorted({data for _, data in placeholders} | {len(block)})
    pieces = [(a, d, next((s for s in starts if s > d), d) - d) for a, d in placeholders]
    copied = _copy(machine, stream, block, pieces)
    submit(machine, call, function, blocks, stream, block.tobytes(), (0, 0), attributes, copied)


def with_bytes(
    machine: Machine,
    call: str,
    function: Function,
    blocks: int,
    handle: int,
    given: Sequence[tuple[int, bytes]] | None,
    data: bytes,
) -> None:
    """Launch with a whole block."""
    attributes = DEFAULTS if given is None and not function.mix else read_attributes(machine, function, given)
    stream = target(machine, function, handle, call)
    submit(machine, call, function, blocks, stream, data, (0, 0), attributes, None)


def with_packed(
    machine: Machine,
    call: str,
    function: Function,
    blocks: int,
    handle: int,
    given: Sequence[tuple[int, bytes]] | None,
    data: bytes,
) -> None:
    """Launch with the bytes of the parameters alone; the hidden ones are added."""
    attributes = read_attributes(machine, function, given)
    stream = target(machine, function, handle, call)
    if function.sync_slot:
        data = machine.area(Addresses).sync(stream.context.device.index).to_bytes(8, "little") + data
    submit(machine, call, function, blocks, stream, data, (0, 0), attributes, None)


def parameters_for_array(machine: Machine, function: Function, call: str) -> list[tuple[int, int]]:
    """(offset, size) of the parameters, for a launch that gives each by its address: from metadata or the emulation."""
    if function.parameters is not None:
        return list(function.parameters)
    emulation = machine.area(kernels.Kernels).required(function)
    if emulation is None:
        raise refusals.invalid(f"{call}: the binary says nothing of the parameters of {function.name}")
    return [(a.offset, 8 if a.kind in kernels.POINTERS else a.dtype.itemsize) for a in emulation.arguments]


def with_device_block(
    machine: Machine,
    call: str,
    function: Function,
    blocks: int,
    handle: int,
    attributes: Attributes,
    address: int,
    size: int,
) -> None:
    """Launch with a block in device memory: it is read when the kernel runs."""
    stream = target(machine, function, handle, call)
    submit(machine, call, function, blocks, stream, None, (address, size), attributes, None)


def _copy(machine: Machine, stream: Stream, block: Bytes, pieces: Sequence[tuple[int, int, int]]) -> Block:
    """The block on the device. Addresses of its data go into the block of the program too, as the library has it.

    pieces : (offset of the address, offset of the data, bytes of the data)
    """
    memory = machine.area(Memory)
    size = max(len(block), 1)
    copy = memory.allocate(stream.context.device.index, size, size, kind=ARGUMENTS, free_of_charge=True)
    copy.note = {}
    for offset, data, length in pieces:
        address = np.frombuffer((copy.base + data).to_bytes(8, "little"), np.uint8)
        block[offset : offset + 8] = address[: max(len(block) - offset, 0)]
        copy.note[copy.base + data] = copy.base + data + length
    memory.write(copy.base, block.tobytes(), ARGUMENTS)
    return copy
