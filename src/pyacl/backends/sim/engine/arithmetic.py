"""What the device computes without a kernel: reductions by its copy engine, random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from . import refusals
from .failures import RuntimeLayerError
from .memory import Memory
from .operation import Access, Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .machine import Machine
    from .stream import Stream

# data types by the numbers of aclDataType
FLOAT, FLOAT16, INT8, INT32, UINT8, INT16, UINT16 = 0, 1, 2, 3, 4, 6, 7
UINT32, INT64, UINT64, BF16, INT4 = 8, 9, 10, 27, 29
#: what aclrtReduceAsync knows; those with None are refused by the device
REDUCIBLE: dict[int, Any] = {
    FLOAT: np.float32, FLOAT16: np.float16, INT8: np.int8, INT32: np.int32, INT16: np.int16, BF16: np.uint16,
    UINT8: None, UINT16: None, UINT32: None, INT4: None,
}  # fmt: skip
ALIGNMENT = {FLOAT: 4, INT32: 4, UINT32: 4, FLOAT16: 2, INT16: 2, UINT16: 2, BF16: 2}
SUM, MAXIMUM, MINIMUM, EQUAL = 10, 11, 12, 13
MOST_BYTES = 4 << 30  # of a sum
UNALIGNED = 107008

# kinds of random numbers
DROPOUT, UNIFORM, NORMAL, TRUNCATED = 0, 1, 2, 3
#: aclDataType -> (number in the runtime, numpy type); the acl layer puts that number into the program's structure
RANDOM_TYPES: dict[int, tuple[int, Any]] = {
    INT32: (0, np.int32), INT64: (1, np.int64), UINT32: (2, np.uint32), UINT64: (3, np.uint64), BF16: (4, np.uint16),
    FLOAT16: (5, np.float16), FLOAT: (6, np.float32),
}  # fmt: skip
_FLOATING = (BF16, FLOAT16, FLOAT)


def bf16_to_float(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The values of bfloat16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def float_to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest bfloat16, as bits; ties go to even."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


# -- reductions ------------------------------------------------------------------------------------------------------


def reduce(machine: Machine, destination: int, source: int, size: int, kind: int, dtype: int, stream: Stream) -> None:
    """Queue `destination = destination (kind) source`, on `size` bytes."""
    if REDUCIBLE[dtype] is None:
        raise RuntimeLayerError(207000, "EE1006", f"the device does not reduce data of type {dtype}")
    for address in (source, destination):
        if address % ALIGNMENT.get(dtype, 1):
            raise RuntimeLayerError(UNALIGNED, "EE9999", f"address 0x{address:x} is not aligned for type {dtype}")
    memory = machine.area(Memory)
    for address in (source, destination):
        memory.check(address, size, "aclrtReduceAsync")
    extent = (destination, size)

    def work() -> None:
        _reduce(memory, destination, source, size, kind, dtype)

    stream.submit(Work("aclrtReduceAsync", work, Access(((source, size), extent), (extent,))))


def _reduce(memory: Memory, destination: int, source: int, size: int, kind: int, dtype: int) -> None:
    kept = np.dtype(REDUCIBLE[dtype])
    count = size // kept.itemsize
    target = memory.view(destination, size, "aclrtReduceAsync")[: count * kept.itemsize].view(kept)
    given = memory.view(source, size, "aclrtReduceAsync")[: count * kept.itemsize].view(kept)
    operations: dict[int, Callable[[Any, Any], Any]] = {
        SUM: np.add, MAXIMUM: np.maximum, MINIMUM: np.minimum, EQUAL: np.equal,
    }  # fmt: skip
    operation = operations[kind]
    with np.errstate(all="ignore"):
        if dtype == BF16:
            target[:] = float_to_bf16(operation(bf16_to_float(target), bf16_to_float(given)).astype(np.float32))
        else:
            target[:] = operation(target, given)


# -- random numbers --------------------------------------------------------------------------------------------------


class Value(NamedTuple):
    """A parameter of the random generator: bytes of a value, or the device address where it lies."""

    is_address: int
    content: bytes
    size: int

    def read(self, memory: Memory, size: int) -> bytes:
        if self.is_address:
            return memory.read(int.from_bytes(self.content[: self.size], "little"), size, "aclrtRandomNumAsync")
        return self.content[: self.size].ljust(size, b"\0")[:size]


class RandomTask(NamedTuple):
    """One request for random numbers."""

    dtype: int  # aclDataType
    function: int
    first: Value  # ratio, minimum or mean
    second: Value  # maximum or deviation
    result: int
    counter: int
    seed: Value
    number: Value


def check_random(task: RandomTask) -> None:
    """107000 for what the generator cannot do."""
    if not DROPOUT <= task.function <= TRUNCATED:
        raise refusals.invalid(f"funcType[{task.function}] is invalid, range=[0,4)")
    if task.function != UNIFORM and task.dtype not in _FLOATING:
        raise refusals.invalid(f"The dataType of funcType[{task.function}] is invalid, range=[bf16,fp16,fp32]")
    size = np.dtype(RANDOM_TYPES[task.dtype][1]).itemsize
    if not task.counter:
        raise refusals.null("taskInfo->randomCounterAddr")
    if not task.result:
        raise refusals.null("taskInfo->randomResultAddr")
    _check_value(task.seed, "randomSeed", 8)
    _check_value(task.number, "randomNum", 8)
    names = {DROPOUT: ("dropoutRation",), UNIFORM: ("min", "max")}.get(task.function, ("mean", "stddev"))
    for name, value in zip(names, (task.first, task.second)):
        _check_value(value, name, 8 if value.is_address == 1 else size)


def _check_value(value: Value, name: str, most: int) -> None:
    if value.is_address not in (0, 1):
        raise refusals.invalid(f"{name} isAddr para is invalid, range=[0,1]")
    if not 0 < value.size <= most:
        raise refusals.invalid(f"{name} size is exceed, current size={value.size}, range=[1,{most}]")


def random(machine: Machine, task: RandomTask, stream: Stream) -> None:
    """Queue the generation of random numbers. They are not those of the hardware, but the same seed gives the same."""
    memory = machine.area(Memory)
    count = 0 if task.number.is_address else int.from_bytes(task.number.read(memory, 8), "little")
    bits = count if task.function == DROPOUT else count * 8 * np.dtype(RANDOM_TYPES[task.dtype][1]).itemsize
    access = Access(((task.counter, 16),), ((task.result, (bits + 7) // 8), (task.counter, 16)))
    stream.submit(Work("aclrtRandomNumAsync", lambda: _random(memory, task), access))


def _random(memory: Memory, task: RandomTask) -> None:
    call = "aclrtRandomNumAsync"
    seed = int.from_bytes(task.seed.read(memory, 8), "little")
    number = int.from_bytes(task.number.read(memory, 8), "little")
    counter = int.from_bytes(memory.read(task.counter, 16, call), "little")
    generator = np.random.Generator(np.random.Philox(key=seed, counter=counter))
    kept = np.dtype(RANDOM_TYPES[task.dtype][1])
    first = _number(task.first.read(memory, kept.itemsize), task.dtype)
    second = _number(task.second.read(memory, kept.itemsize), task.dtype) if task.function != DROPOUT else 0
    if task.function == DROPOUT:
        bits = np.packbits(generator.random(number) < first, bitorder="little")
        memory.write(task.result, bits.tobytes(), call)
    else:
        values = _values(generator, task, number, first, second)
        raw = float_to_bf16(values.astype(np.float32)) if task.dtype == BF16 else values.astype(kept)
        memory.write(task.result, raw.tobytes(), call)
    memory.write(task.counter, ((counter + -(-number // 4)) % (1 << 128)).to_bytes(16, "little"), call)


def _values(generator: np.random.Generator, task: RandomTask, number: int, first: Any, second: Any) -> NDArray[Any]:
    if task.function == UNIFORM:
        if task.dtype in _FLOATING:
            return generator.uniform(first, second, number)
        return generator.integers(first, second, number, dtype=RANDOM_TYPES[task.dtype][1])
    values = generator.normal(first, second, number)
    while task.function == TRUNCATED:
        beyond = np.abs(values - first) > 2 * second
        if not beyond.any():
            break
        values[beyond] = generator.normal(first, second, int(beyond.sum()))
    return values


def _number(raw: bytes, dtype: int) -> Any:
    kept = np.frombuffer(raw, RANDOM_TYPES[dtype][1])
    return bf16_to_float(kept)[0].item() if dtype == BF16 else kept[0].item()
