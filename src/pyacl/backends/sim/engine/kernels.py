"""Kernels as numpy functions: how they are registered, how they get their arguments, how they run.

A function stands for a device kernel. Its parameters say how the bytes of the argument block are read, exactly as the
compiled kernel would read them: every argument at its natural alignment, at least 4.

    @sim.kernel
    def add_custom(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]):
        z[:] = x + y

A function without a parameter named ``block`` is called once for the whole grid; with one it is called once a block.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Callable, NamedTuple, TypeVar, overload

import numpy as np

from pyacl.arguments import Layout, Parameter, parse_signature

from . import places
from .failures import RuntimeLayerError, UndefinedBehavior
from .memory import DEVICE, MANAGED, Memory
from .memory import Block as MemoryBlock
from .program import CUBE_HALF, MAIN_CUBE, MAIN_VECTOR, TYPE_AICPU, TYPE_VECTOR, VECTOR_HALF, Function

if TYPE_CHECKING:
    from .machine import Machine

    T = TypeVar("T", bound=np.generic)
    S = TypeVar("S")
    # what a type checker sees; below is what runs
    In = np.ndarray[Any, np.dtype[T]]
    Out = np.ndarray[Any, np.dtype[T]]
    InOut = np.ndarray[Any, np.dtype[T]]
    Scalar = Annotated[S, "a number"]
    Struct = Annotated[S, "a structure"]

F = TypeVar("F", bound=Callable[..., Any])

#: what blocks of arguments on the device are called
ARGUMENTS = "the arguments of a launch"

AICORE_EXCEPTION = 507015
VECTOR_EXCEPTION = 507035
AICPU_EXCEPTION = 507018


class UnregisteredKernel(RuntimeError):
    """A launch of a kernel for which no numpy function was registered."""


class KernelFault(Exception):
    """A kernel touched memory that is not there. Becomes the exception of its core at the next wait."""

    def __init__(self, address: int, why: str) -> None:
        super().__init__(address, why)
        self.address = address
        self.why = why


@dataclass(frozen=True)
class Block:
    """Which part of a launch a call stands for.

    Attributes
    ----------
    index : int
        Number of the block.
    count : int
        Blocks of the launch.
    core : {"aic", "aiv", "aicpu"}
        The kind of core that the call stands for.
    subblock : int
        Number of the core among those of its kind in the block: 0, or 0 and 1 for the vector cores of a 1:2 mix kernel.
    """

    index: int
    count: int
    core: str
    subblock: int


# -- annotations -----------------------------------------------------------------------------------------------------


class _Marker(NamedTuple):
    kind: str
    type: Any


class _Kind:
    """What `In[...]` and the like are at run time."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.__doc__ = text

    def __getitem__(self, type_: Any) -> _Marker:
        return _Marker(self.kind, type_)

    def __call__(self, *_: Any) -> Any:
        raise TypeError(f"{self!r} belongs into an annotation: {self!r}[np.float16]")

    def __repr__(self) -> str:
        return f"sim.{self.kind}"


if not TYPE_CHECKING:
    In = _Kind("In", "A pointer to memory that the kernel reads: a read-only array of this dtype.")
    Out = _Kind("Out", "A pointer to memory that the kernel writes: an array of this dtype.")
    InOut = _Kind("InOut", "A pointer to memory that the kernel reads and writes: an array of this dtype.")
    Scalar = _Kind("Scalar", "A number by value.")
    Struct = _Kind("Struct", "A structure by value: a structured dtype or a ctypes structure.")

POINTERS = ("In", "Out", "InOut")


class _Argument(NamedTuple):
    name: str
    kind: str
    type: Any  # what the annotation said
    dtype: np.dtype[Any]
    offset: int
    shown: str  # what messages call it


class Emulation:
    """A numpy function that stands for a kernel.

    Attributes
    ----------
    size : bytes of arguments it reads
    takes_block : it is called once a block
    """

    def __init__(self, name: str, function: Callable[..., Any], scope: dict[str, Any]) -> None:
        self.name = name
        self.function = function
        self.place = places.caller()
        self.takes_block = False
        self._block_at: int | None = None  # its position; None: it goes by name
        found: list[tuple[str, str, Any]] = []
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError as error:
            raise TypeError(f"kernel {name}: {function!r} is no Python function: {error}") from None
        for parameter in parameters:
            if parameter.name == "block" and _is_block(parameter.annotation):
                self.takes_block = True
                self._block_at = None if parameter.kind is parameter.KEYWORD_ONLY else len(found)
                continue
            found.append(self._read(parameter, scope))
        layout = Layout([_parameter_of(name, kind, type_) for name, kind, type_ in found])
        self.arguments = tuple(
            _Argument(parameter, kind, type_, np.dtype(type_), offset, f"{name}({parameter})")
            for (parameter, kind, type_), offset in zip(found, layout.offsets)
        )
        ends = [a + p.size for a, p in zip(layout.offsets, layout.parameters)]
        self.size = ends[-1] if ends else 0

    def _read(self, parameter: inspect.Parameter, scope: dict[str, Any]) -> tuple[str, str, Any]:
        """One parameter as (name, kind, type)."""
        where = f"kernel {self.name}: the parameter {parameter.name!r}"
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise TypeError(f"{where} is {parameter.kind.description}; a kernel has positional parameters only")
        if parameter.default is not parameter.empty:
            raise TypeError(f"{where} has a default; a kernel gets all its arguments from the launch")
        note = parameter.annotation
        if note is parameter.empty:
            raise TypeError(f"{where} has no annotation; write what it is, such as sim.In[np.float16] or np.uint32")
        if isinstance(note, str):
            try:
                note = eval(note, getattr(self.function, "__globals__", {}), scope)
            except Exception as error:
                raise TypeError(f"{where}: the annotation {note!r} cannot be evaluated: {error}") from None
        kind, type_ = note if isinstance(note, _Marker) else ("Scalar", note)
        if isinstance(note, _Kind):
            raise TypeError(f"{where} is {note!r} without a dtype; write {note!r}[np.float16]")
        if type_ in (int, float, bool, complex):
            raise TypeError(f"{where} is {type_.__name__}, which says no width; write np.int32, np.float32 or another")
        try:
            dtype = np.dtype(type_)
        except TypeError:
            raise TypeError(f"{where}: {note!r} is no dtype, ctypes structure or annotation of pyacl.sim") from None
        if dtype.hasobject:
            raise TypeError(
                f"{where} holds Python objects, which no kernel can read; write what it is, such as sim.In[np.float16] "
                f"or np.uint32"
            )
        if dtype.itemsize == 0:
            raise TypeError(f"{where} has no fixed size: {type_!r}")
        return parameter.name, kind, type_

    def decode(self, data: bytes, memory: Memory) -> list[Any]:
        """The arguments as the function takes them, out of the bytes a kernel would read."""
        return [self._decode_one(argument, data, memory) for argument in self.arguments]

    def _decode_one(self, argument: _Argument, data: bytes, memory: Memory) -> Any:
        dtype = argument.dtype
        if argument.kind in POINTERS:
            address = int.from_bytes(data[argument.offset : argument.offset + 8], "little")
            return device_array(memory, address, dtype, argument.kind != "In", argument.shown)
        raw = data[argument.offset : argument.offset + dtype.itemsize]
        if hasattr(argument.type, "from_buffer_copy"):
            return argument.type.from_buffer_copy(raw)
        return np.frombuffer(raw, dtype)[0].copy()

    def pointers(self, data: bytes) -> Iterator[tuple[str, int]]:
        """(kind, address) of every pointer among the arguments."""
        for argument in self.arguments:
            if argument.kind in POINTERS:
                yield argument.kind, int.from_bytes(data[argument.offset : argument.offset + 8], "little")

    def run(self, arguments: list[Any], blocks: int, cores: list[tuple[str, int]]) -> None:
        """Call the function for a launch; `cores`: (core, number of them) of one block, main core first."""
        if not blocks:
            return
        if not self.takes_block:
            self._ignore(self.function(*arguments))
            return
        at = self._block_at
        for index in range(blocks):
            for core, number in cores:
                for subblock in range(number):
                    block = Block(index, blocks, core, subblock)
                    if at is None:
                        self._ignore(self.function(*arguments, block=block))
                    else:
                        self._ignore(self.function(*arguments[:at], block, *arguments[at:]))

    def _ignore(self, value: Any) -> None:
        if value is not None:
            raise TypeError(
                f"kernel {self.name}: the function returned {type(value).__name__}, and nobody gets it: a kernel "
                f"writes into its Out and InOut arrays, z[:] = ..."
            )

    def __repr__(self) -> str:
        return f"<emulation of {self.name}, {places.describe(self.place)}>"


def _is_block(note: Any) -> bool:
    """Is an annotation that of the parameter `block`, written out or not?"""
    if isinstance(note, str):
        return note.rpartition(".")[2] == "Block"
    return note is inspect.Parameter.empty or note is Block


def _parameter_of(name: str, kind: str, type_: Any) -> Parameter:
    """How the argument block holds it."""
    try:
        return parse_signature(["ptr" if kind in POINTERS else type_])[0]
    except (TypeError, ValueError) as error:
        raise TypeError(f"the parameter {name!r}: {error}") from None


# -- arrays over device memory ---------------------------------------------------------------------------------------


class DeviceArray(np.ndarray):
    """An array over device memory as an emulation sees it: what a kernel would touch outside of it is a fault.

    Attributes
    ----------
    address : the device address of the first element; None for whatever was computed from it
    """

    address: int | None = None
    block: MemoryBlock | None = None
    name = ""

    def __array_finalize__(self, source: Any) -> None:
        self.address = None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        inputs = tuple(plain(value) for value in inputs)
        if options.get("out") is not None:
            options["out"] = tuple(plain(value) for value in options["out"])
        return getattr(ufunc, method)(*inputs, **options)

    def __getitem__(self, key: Any) -> Any:
        self._check(key)
        try:
            return plain(super().__getitem__(key))
        except IndexError:
            raise self._fault(key) from None

    def __setitem__(self, key: Any, value: Any) -> None:
        self._check(key)
        if self.address is not None and not self.flags.writeable:
            raise ValueError(f"{self.name}: sim.In is read-only; what the kernel writes is sim.Out or sim.InOut")
        try:
            super().__setitem__(key, value)
        except IndexError:
            raise self._fault(key) from None

    def _check(self, key: Any) -> None:
        """Numpy cuts slices at the end of an array; a device does not."""
        if self.address is None:
            return
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, slice):
                for end in (part.start, part.stop):
                    if end is not None and end > len(self):
                        raise self._fault(max(end - 1, len(self)), key)

    def _fault(self, key: Any, asked: Any = None) -> Exception:
        if self.address is None:
            return IndexError(f"index {key!r} is out of bounds for {len(self)} elements")
        beyond = len(self)
        if isinstance(key, tuple) and len(key) == 1:
            key = key[0]
        if isinstance(key, (int, np.integer)) and key >= beyond:
            beyond = int(key)
        behind = f" ({self.block.describe()})" if self.block is not None else ""
        shown = _shown(key if asked is None else asked)
        why = f"{self.name}{shown} is beyond its {len(self)} elements of {self.dtype}{behind}"
        return KernelFault(self.address + beyond * self.itemsize, why)


class Nowhere:
    """Stands for a pointer that points to no device memory: touching it is a fault. `address` tells which pointer."""

    def __init__(self, address: int, why: str) -> None:
        self.address = address
        self._why = why

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<no memory at 0x{self.address:x}>"

    def _touched(self, *_: Any, **__: Any) -> Any:
        raise KernelFault(self.address, self._why)

    __getitem__ = __setitem__ = __len__ = __iter__ = __array__ = __array_ufunc__ = _touched
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _touched
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __matmul__ = __rmatmul__ = _touched

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._touched()


def _shown(key: Any) -> str:
    """An index as the program wrote it."""
    if isinstance(key, tuple):
        return f"[{', '.join(_shown(part)[1:-1] for part in key)}]"
    if isinstance(key, slice):
        ends = ["" if end is None else str(end) for end in (key.start, key.stop, key.step)]
        return f"[{':'.join(ends[: 2 if key.step is None else 3])}]"
    text = str(key)
    return f"[{text if len(text) <= 40 else text[:37] + '...'}]"


def plain(value: Any) -> Any:
    """An array without the checks of device memory."""
    return value.view(np.ndarray) if isinstance(value, DeviceArray) else value


def device_array(memory: Memory, address: int, dtype: np.dtype[Any], writable: bool, name: str) -> Any:
    """What a pointer argument becomes: the device memory from there to the end of what the host asked for."""
    block = memory.find(address)
    if block is None or block.location not in (DEVICE, MANAGED) and block.kind == "aclrtMallocHost":
        why = "it is a null pointer" if address == 0 else memory.why_not(address)
        return Nowhere(address, f"{name}: {why}")
    extent = max(extent_end(block, address) - address, 0)
    count = extent // dtype.itemsize
    if count:
        array = memory.view(address, count * dtype.itemsize, name).view(dtype).view(DeviceArray)
    else:  # a buffer without elements, which a kernel that was told so leaves alone
        array = np.empty(0, dtype).view(DeviceArray)
    array.address, array.block, array.name = address, block, name
    if not writable:
        array.flags.writeable = False
    return array


def extent_end(block: MemoryBlock, address: int) -> int:
    """Where the memory behind a pointer ends: what the host asked for, or the data of one placeholder."""
    if block.kind == ARGUMENTS and block.note:
        end: int = block.note.get(address, block.end)
        return end
    return block.base + min(block.requested, block.size)


# -- registering -----------------------------------------------------------------------------------------------------

#: what every backend knows, by kernel name
EMULATIONS: dict[str, Emulation] = {}


class Kernels:
    """The emulations of one machine: its own, then those of the process."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.own: dict[str, Emulation] = {}

    def find(self, name: str) -> Emulation | None:
        """The emulation for the name of a function, or for the name its source has."""
        found = self.own.get(name) or EMULATIONS.get(name)
        if found is None:
            for shorter in source_names(name):
                found = self.own.get(shorter) or EMULATIONS.get(shorter)
                if found is not None:
                    break
        return found

    def required(self, function: Function) -> Emulation | None:
        """The emulation of a function that is launched; None if it is to be skipped."""
        found = self.find(function.name)
        if found is None and self.machine.unregistered == "error":
            raise UnregisteredKernel(_how_to_register(function.name))
        return found


def source_names(name: str) -> Iterator[str]:
    """What a function may be called in its source: without tiling key, without the hash of its parameters, demangled.

    >>> list(source_names("AddRelu_1907f3e124c32ea4c8637789e310b4df_0"))
    ['AddRelu_1907f3e124c32ea4c8637789e310b4df', 'AddRelu']
    """
    match = re.fullmatch(r"(.+)_\d+", name)
    if match:
        yield match[1]
        compiled = re.fullmatch(r"(.+)_[0-9a-f]{32}", match[1])
        if compiled:
            yield compiled[1]
    mangled = re.match(r"_Z(\d+)", name)
    if mangled:
        yield name[mangled.end() :][: int(mangled[1])]


def _how_to_register(name: str) -> str:
    short = list(source_names(name))
    shown = short[-1] if short else name
    defined = shown if shown.isidentifier() else "my_kernel"
    first = "@sim.kernel" if shown.isidentifier() else f"@sim.kernel({shown!r})"
    return (
        f"the kernel {name} is launched, and the simulator does not know what it does. Register a function:\n"
        f"    {first}\n"
        f"    def {defined}(x: sim.In[np.float16], z: sim.Out[np.float16]): ...\n"
        'or make the backend with unregistered="skip", and launches of unknown kernels do nothing.'
    )


@overload
def kernel(name: F, *, backend: Any = None) -> F: ...
@overload
def kernel(name: str | None = None, *, backend: Any = None) -> Callable[[F], F]: ...
def kernel(name: Any = None, *, backend: Any = None) -> Any:
    """Register a numpy function as what a device kernel computes.

    Used as ``@sim.kernel`` (the function's name is the kernel's) or ``@sim.kernel("name")``. The name is the one that
    aclrtBinaryGetFunction takes; its source name, without tiling key and hash, does too. The function stays usable
    as it is. A later registration of the same name replaces the earlier one.

    Parameters
    ----------
    name : str, optional
        Name of the kernel.
    backend : sim.Backend, optional
        Register for this backend alone; it goes before what is registered for all.

    Notes
    -----
    Parameters are annotated: ``sim.In[dtype]``, ``sim.Out[dtype]``, ``sim.InOut[dtype]`` for pointers,
    ``sim.Scalar[dtype]`` or a plain numpy type for numbers, ``sim.Struct[dtype or ctypes structure]`` for structures by
    value. A pointer becomes an array over the device memory from that address to the end of what the host asked for
    in aclrtMalloc. Hidden arguments (synchronization and overflow addresses) are not listed. With a parameter
    ``block`` the function is called once a block, and once for each core of a mix kernel: see `Block`.

    Raises
    ------
    TypeError
        A parameter that no kernel can have; the message names it.

    Examples
    --------
    >>> @kernel
    ... def add_one(x: In[np.float32], z: Out[np.float32], n: np.uint32):
    ...     z[:n] = x[:n] + 1
    """
    scope = sys._getframe(1).f_locals

    def register(function: F) -> F:
        chosen = name if isinstance(name, str) else getattr(function, "__name__", "")
        if not chosen:
            raise TypeError(f"{function!r} has no name; write @sim.kernel('name')")
        target = EMULATIONS if backend is None else backend.machine.area(Kernels).own
        target[chosen] = Emulation(chosen, function, dict(scope))
        return function

    if name is None or isinstance(name, str):
        return register
    if not callable(name):
        raise TypeError(f"sim.kernel takes a name or decorates a function, not {name!r}")
    return register(name)


# -- running ---------------------------------------------------------------------------------------------------------


def cores_of(function: Function) -> list[tuple[str, int]]:
    """The cores that one block of a launch runs on."""
    if function.type == TYPE_AICPU:
        return [("aicpu", 1)]
    if function.mix in (MAIN_CUBE, MAIN_VECTOR):
        cube, vector = function.cores if function.cores != (0, 0) else (1, 2)
        both = [("aic", cube), ("aiv", vector)]
        return both if function.mix == MAIN_CUBE else both[::-1]
    if function.mix == VECTOR_HALF or function.type == TYPE_VECTOR:
        return [("aiv", max(function.cores[1], 1) if function.mix == VECTOR_HALF else 1)]
    if function.mix == CUBE_HALF:
        return [("aic", max(function.cores[0], 1))]
    return [("aic", 1)]


def exception_code(function: Function) -> int:
    """The code of a fault in this function."""
    main = cores_of(function)[0][0]
    return {"aicpu": AICPU_EXCEPTION, "aiv": VECTOR_EXCEPTION}.get(main, AICORE_EXCEPTION)


def execute(
    memory: Memory,
    function: Function,
    emulation: Emulation,
    data: bytes,
    blocks: int,
    where: str,
    wrap: Callable[[list[Any]], list[Any]] | None = None,
) -> None:
    """Run an emulation; a fault in it becomes the exception of the core that the kernel runs on."""
    try:
        arguments = emulation.decode(data, memory)
        if wrap is not None:
            arguments = wrap(arguments)
        emulation.run(arguments, blocks, cores_of(function))
    except KernelFault as fault:
        code = exception_code(function)
        core = {VECTOR_EXCEPTION: "vector core", AICPU_EXCEPTION: "aicpu"}.get(code, "aicore")
        raise RuntimeLayerError(
            code,
            "EZ9999",
            f"[{core} exception] fault kernel_name={function.name}, {where}, fault address=0x{fault.address:x}. "
            f"{fault.why}",
        ) from fault


def check_size(function: Function, emulation: Emulation, given: int, call: str) -> None:
    """A kernel that reads more arguments than a launch gives reads whatever lies behind them."""
    need = emulation.size + 8 * int(function.sync_slot)
    if given < need:
        hidden = ", 8 of them for the hidden first one," if function.sync_slot else ""
        names = ", ".join(argument.name for argument in emulation.arguments)
        raise UndefinedBehavior(
            f"{call}: {function.name} reads {need} bytes of arguments{hidden} but the launch gives {given}. "
            f"The function registered for it at {places.describe(emulation.place)} takes ({names})"
        )
