"""How arguments become the bytes a kernel reads. Pure: no C call, no device, nothing of the other rooms.

The rule of the kernel ABI: every argument lies at its natural alignment, at least 4, and the whole block is padded to a
multiple of 8. A struct that goes by value keeps C's own layout inside. A placeholder is a pointer whose target travels
with the block.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import operator
import re
import struct
import typing
from collections.abc import Iterable, Sequence
from typing import Any, Callable, NamedTuple, Optional, Union

import numpy as np

__all__ = ["In", "InOut", "Layout", "Out", "Packer", "Parameter", "Placeholder", "Workspace", "parse_signature"]

#: what a signature may be: text, or one entry per parameter (text, dtype, numpy scalar type, ctypes type)
SignatureLike = Union[str, Sequence[Any]]

POINTER_SIZE = 8
_MIN_ALIGN = 4
_BLOCK_ALIGN = 8


class Parameter(NamedTuple):
    """One parameter of a kernel: how wide it is, where it may lie, and how a value becomes its bytes.

    ``encode`` turns a value into what `struct` packs as ``code`` (an int, a float, or bytes); it raises TypeError or
    ValueError with a text that says what is wrong with the value, without naming the argument.
    """

    text: str
    size: int
    align: int
    code: str
    encode: Callable[[Any], Any]
    pointer: bool = False
    name: str = ""


# -- what a host program may wrap ------------------------------------------------------------------------------------


class _HostArgument:
    """A host array given in place of a device buffer: the launch makes the buffer, copies, and frees it."""

    reads: bool
    writes: bool

    def __init__(self, array: Any) -> None:
        kind = type(self).__name__
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{kind} takes a numpy array of the dtype the kernel reads, not {type(array).__name__}")
        if self.writes and not array.flags.writeable:
            raise ValueError(f"{kind} needs an array that can be written; this one is read-only")
        if array.dtype.hasobject:
            raise TypeError(f"{kind} cannot send Python objects (dtype {array.dtype}) to a device")
        self.array: np.ndarray[Any, Any] = array

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.array.dtype}{list(self.array.shape)})"


class In(_HostArgument):
    """A host array that the kernel reads: it is copied to the device before the launch.

    Parameters
    ----------
    array : numpy.ndarray
        Any shape, contiguous or not.
    """

    reads, writes = True, False


class Out(_HostArgument):
    """A host array that the kernel writes: the device memory starts undefined and is copied back after the launch.

    The launch waits for its stream, so the array holds the result when it returns.

    Parameters
    ----------
    array : numpy.ndarray
        Writable, of the result's shape and dtype.
    """

    reads, writes = False, True


class InOut(_HostArgument):
    """A host array that the kernel reads and writes: copied to the device before, and back after, the launch."""

    reads, writes = True, True


class Workspace:
    """Device memory for the kernel's own use: the launch allocates it, and it is freed when the stream has passed.

    Its content is undefined, before and after. A program that launches often allocates once, with ``device.allocate``,
    and passes that buffer.

    Parameters
    ----------
    nbytes : int
        How much, as the kernel's tiling asks for it.
    """

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        if isinstance(nbytes, bool) or not isinstance(nbytes, (int, np.integer)):
            raise TypeError(f"nbytes: a whole number of bytes, not {type(nbytes).__name__}")
        if nbytes < 1:
            raise ValueError(f"nbytes: {nbytes} is no size; pass None where the kernel takes no workspace")
        #: bytes
        self.nbytes = int(nbytes)

    def __repr__(self) -> str:
        return f"Workspace({self.nbytes} bytes)"


class Placeholder:
    """A small block of data sent along with the launch; the kernel's parameter is a pointer to it.

    Parameters
    ----------
    data
        A numpy array or scalar, a ctypes value or structure, or bytes. It is copied now. The documentation advises
        less than 2 KiB; larger data belongs into a device buffer.
    """

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        if isinstance(data, (np.ndarray, np.generic)):
            if data.dtype.hasobject:
                raise TypeError(f"a placeholder cannot hold Python objects (dtype {data.dtype})")
            raw = _record_bytes(data.dtype, data)
        elif isinstance(data, _BYTES + _CTYPES_VALUES):
            raw = bytes(data)
        else:
            raise TypeError(
                f"a placeholder takes a numpy array or scalar, a ctypes value or bytes, not {type(data).__name__}; "
                f"a bare Python number has no width: write numpy.int32(...)"
            )
        if not raw:
            raise ValueError("a placeholder without data: the library refuses an empty data area")
        #: the bytes the kernel finds behind its pointer
        self.data: bytes = raw

    def __repr__(self) -> str:
        return f"Placeholder({len(self.data)} bytes)"


_CTYPES_SIMPLE: Any = ctypes._SimpleCData
_CTYPES_VALUES: Any = (_CTYPES_SIMPLE, ctypes.Structure, ctypes.Union, ctypes.Array)
_BYTES = (bytes, bytearray, memoryview)


# -- values that have a width of their own ---------------------------------------------------------------------------


_address_of: Callable[[Any], int] = operator.attrgetter("__npu_address__")


def _raw_pointer(value: Any) -> int:
    return value.value or 0


_POINTER = Parameter("ptr", POINTER_SIZE, POINTER_SIZE, "Q", _address_of, True)
_RAW_POINTER = _POINTER._replace(encode=_raw_pointer)
#: a placeholder's slot: the library or the launch writes the pointer
_PLACEHOLDER = _POINTER._replace(text="placeholder", encode=lambda _value: 0)


_to_bytes: Callable[[Any], bytes] = operator.methodcaller("tobytes")


def _by_value(text: str, size: int, align: int, encode: Callable[[Any], Any] = bytes) -> Parameter:
    return Parameter(text, size, align, f"{size}s", encode)


def _key(value: Any) -> Any:
    """What decides the parameter of an undeclared value: its type, and what the type leaves open."""
    if isinstance(value, np.void):
        return value.dtype
    if isinstance(value, _BYTES):
        return (bytes, len(bytes(value)))
    if dataclasses.is_dataclass(value):
        return (type(value), *(_key(getattr(value, f.name)) for f in dataclasses.fields(value)))
    return type(value)


def _infer(value: Any) -> Parameter:
    """The parameter that a value with a width of its own stands for; TypeError for one that has none."""
    kind = type(value)
    if hasattr(kind, "__npu_address__"):
        return _POINTER
    if isinstance(value, Placeholder):
        return _PLACEHOLDER
    if isinstance(value, np.generic):
        return _numpy_parameter(value.dtype)
    if isinstance(value, ctypes.c_void_p):
        return _RAW_POINTER
    if isinstance(value, _CTYPES_VALUES):
        return _ctypes_parameter(kind)
    if isinstance(value, _BYTES):
        return _bytes_parameter(len(bytes(value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass_parameter(value)
    raise TypeError(_refusal(value))


def _numpy_parameter(dtype: np.dtype[Any]) -> Parameter:
    if dtype.hasobject:
        raise TypeError(f"dtype {dtype} holds Python objects")
    if not dtype.isnative:
        raise TypeError(f"dtype {dtype} is big-endian; the device is little-endian: convert with newbyteorder('=')")
    if dtype.names is not None:
        align = _record_align(dtype)
        return _by_value(
            f"struct of {dtype.itemsize} bytes", dtype.itemsize, align, functools.partial(_record_bytes, dtype)
        )
    # ml_dtypes' scalars have kind "V" or "f" and are no numpy.void
    if dtype.type is np.void or dtype.kind not in "biufV" or dtype.itemsize > 8:
        raise TypeError(f"a kernel has no parameter of dtype {dtype}")
    return _by_value(dtype.name, dtype.itemsize, dtype.itemsize, _to_bytes)


@functools.lru_cache(maxsize=256)
def _record_align(dtype: np.dtype[Any]) -> int:
    """The alignment of the C struct that a structured dtype describes."""
    natural = _aligned(dtype)
    if _shape_of(natural) != _shape_of(dtype):
        raise TypeError(
            f"the fields of {dtype} do not lie where C puts them: make the dtype with align=True, or pass bytes"
        )
    return natural.alignment


def _record_bytes(dtype: np.dtype[Any], value: Any) -> bytes:
    """The bytes of a record, or of an array of them, with zeros between the fields: numpy leaves there what it
    found, and a block must be the same for the same values, in a recording above all."""
    raw: bytes = value.tobytes()
    mask = _field_mask(dtype) if dtype.names is not None else None
    return raw if mask is None else (np.frombuffer(raw, np.uint8).reshape(-1, mask.size) & mask).tobytes()


@functools.lru_cache(maxsize=256)
def _field_mask(dtype: np.dtype[Any]) -> Optional[np.ndarray[Any, Any]]:
    mask = np.zeros(dtype.itemsize, np.uint8)
    _mark_fields(dtype, mask)
    return None if mask.all() else mask


def _mark_fields(dtype: np.dtype[Any], mask: np.ndarray[Any, Any]) -> None:
    if dtype.subdtype is not None:
        base = dtype.subdtype[0]
        for start in range(0, dtype.itemsize, base.itemsize):
            _mark_fields(base, mask[start : start + base.itemsize])
    elif dtype.names is None or dtype.fields is None:
        mask[:] = 0xFF
    else:
        for name in dtype.names:
            field, offset = dtype.fields[name][:2]
            _mark_fields(field, mask[offset : offset + field.itemsize])


def _aligned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_aligned(base), shape))
    if dtype.names is None:
        return dtype
    assert dtype.fields is not None
    return np.dtype([(name, _aligned(dtype.fields[name][0])) for name in dtype.names], align=True)


def _shape_of(dtype: np.dtype[Any]) -> Any:
    """Sizes and offsets of a dtype, all the way down."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return shape, _shape_of(base)
    if dtype.fields is None or dtype.names is None:
        return dtype.itemsize
    fields = dtype.fields
    return dtype.itemsize, [(fields[n][1], _shape_of(fields[n][0])) for n in dtype.names]


def _ctypes_parameter(kind: Any) -> Parameter:
    if issubclass(kind, (ctypes.c_char_p, ctypes.c_wchar_p, ctypes.py_object)):
        raise TypeError(f"{kind.__name__} points into host memory, which the device cannot read")
    if hasattr(kind, "_swappedbytes_"):
        raise TypeError(f"{kind.__name__} is big-endian; the device is little-endian")
    size = ctypes.sizeof(kind)
    if not size:
        raise TypeError(f"{kind.__name__} has no bytes")
    return _by_value(kind.__name__, size, ctypes.alignment(kind))


def _bytes_parameter(size: int) -> Parameter:
    if not size:
        raise TypeError("empty bytes are no argument")
    # a C struct's size is a multiple of its alignment, so most sizes tell it; a multiple of 8 leaves 4 or 8 open,
    # which `Layout` refuses where it matters
    return _by_value(f"{size} bytes", size, 0 if size % 8 == 0 else _MIN_ALIGN)


def _dataclass_parameter(value: Any) -> Parameter:
    """A dataclass is laid out as the C struct of the same fields: by their annotations, else by what is in them."""
    kind: Any = type(value)
    annotated = _annotated_fields(kind)
    parts = []
    for field in dataclasses.fields(value):
        where = f"field {field.name!r} of {type(value).__name__}"
        try:
            part = annotated.get(field.name) or _infer(getattr(value, field.name))
        except TypeError as error:
            raise TypeError(f"{where}: {error}") from None
        if part is _PLACEHOLDER:
            raise TypeError(f"{where}: a placeholder is an argument of its own, not part of a struct")
        if not part.align:
            raise TypeError(f"{where}: the alignment of {part.text} is open; use a numpy or ctypes structure")
        parts.append((field.name, part))
    return _struct_of_parts(kind, parts)


@functools.lru_cache(maxsize=256)
def _annotated_fields(kind: Any) -> dict[str, Parameter]:
    """The fields of a dataclass whose annotation has a width: a type of numpy or ctypes, or such a dataclass."""
    try:
        hints = typing.get_type_hints(kind)
    except NameError:  # annotations as text, of names that only a function knows
        hints = {field.name: field.type for field in dataclasses.fields(kind)}
    found = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        wide = isinstance(hint, type) and (
            issubclass(hint, (np.generic, *_CTYPES_VALUES)) or dataclasses.is_dataclass(hint)
        )
        if wide or isinstance(hint, np.dtype):
            try:
                found[field.name] = _declared(hint)
            except (TypeError, ValueError):
                continue  # numpy.integer and its like: what is in the field counts
    return found


def _struct_of_parts(kind: type, parts: Sequence[tuple[str, Parameter]]) -> Parameter:
    """The C struct of the fields of a class, in their order."""
    offset, align = 0, 1
    places = []
    for name, part in parts:
        offset = _round_up(offset, part.align)
        places.append((name, offset, part))
        offset += part.size
        align = max(align, part.align)
    size = _round_up(offset, align)
    if not size:
        raise TypeError(f"{kind.__name__} has no fields")

    def encode(given: Any) -> bytes:
        if not isinstance(given, kind):
            return _exactly(kind, size, given)
        block = bytearray(size)
        for name, at, part in places:
            try:
                struct.pack_into("<" + part.code, block, at, part.encode(getattr(given, name)))
            except (TypeError, ValueError) as error:
                raise type(error)(f"field {name!r} of {kind.__name__}: {error}") from None
        return bytes(block)

    return _by_value(f"struct {kind.__name__}", size, align, encode)


def _refusal(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, (bool, int, float)):
        example = {bool: "numpy.bool_", int: "numpy.int32", float: "numpy.float32"}[
            bool if isinstance(value, bool) else int if isinstance(value, int) else float
        ]
        return (
            f"a bare Python {kind} has no width: pass {example}({value!r}), or declare the kernel's parameters, "
            f'binary.kernel("name", "ptr ptr ptr u32")'
        )
    if isinstance(value, np.ndarray):
        return (
            f"a numpy array ({value.dtype}{list(value.shape)}) is host memory, which the device cannot read: "
            f"send it with device.to_device(array), or wrap it in pyacl.In, Out or InOut"
        )
    if value is None:
        return "None has no width: pass ctypes.c_void_p(0) for a null pointer"
    if isinstance(value, ctypes._Pointer):
        return f"{kind} is a host address, which the device cannot read"
    return (
        f"{kind} is no argument of a kernel: pass a DeviceBuffer, a numpy scalar, a ctypes value or structure, bytes, "
        f"a Placeholder, a Workspace, or In, Out, InOut of a numpy array"
    )


# -- declared signatures ---------------------------------------------------------------------------------------------


_INTEGERS = {f"{kind[0]}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_FLOATS = {"f16": "float16", "f32": "float32", "f64": "float64"}
_ALIASES = {
    **{long: short for short, long in {**_INTEGERS, **_FLOATS}.items()},
    **{f"{long}_t": short for short, long in _INTEGERS.items()},
    "bfloat16": "bf16",
    "half": "f16",
    "float": "f32",
    "double": "f64",
    "pointer": "ptr",
}


def parse_signature(signature: SignatureLike) -> tuple[Parameter, ...]:
    """The parameters that a signature declares.

    Parameters
    ----------
    signature : str or sequence
        Text such as ``"ptr ptr ptr u32"``: one word a parameter, separated by blanks or commas, each optionally with a
        name in front (``"x:ptr n:u32"``). Words: ``ptr``, ``i8`` to ``i64``, ``u8`` to ``u64``, ``f16``, ``bf16``,
        ``f32``, ``f64``, ``bool``, numpy's and C's names for them, and ``bytes24@8`` for a struct of 24 bytes
        aligned to 8. A sequence holds such words, numpy dtypes (structured ones go by value), ctypes types, or
        dataclasses whose fields are annotated with types of numpy or ctypes.

    Raises
    ------
    TypeError, ValueError
        For an entry that is none of these; the message has the entry.
    """
    if isinstance(signature, str):
        signature = signature.replace(",", " ").split()
    elif not isinstance(signature, Iterable):
        raise TypeError(f"signature: text such as 'ptr ptr u32' or a sequence, not {type(signature).__name__}")
    return tuple(_declared(entry) for entry in signature)


def _declared(entry: Any) -> Parameter:
    if isinstance(entry, Parameter):
        return entry
    if isinstance(entry, str):
        name, colon, word = entry.rpartition(":")
        if colon and not name.isidentifier():
            raise ValueError(f"{entry!r} in a signature: the name in front of the colon is no identifier")
        return _declared_word(word, entry)._replace(name=name)
    if isinstance(entry, type) and issubclass(entry, ctypes.c_void_p):
        return _declared_word("ptr", entry)
    if isinstance(entry, type) and dataclasses.is_dataclass(entry):
        fields, known = [field.name for field in dataclasses.fields(entry)], _annotated_fields(entry)
        for name in fields:
            if name not in known:
                raise TypeError(
                    f"{entry.__name__} in a signature: the annotation of {name!r} has no width; write numpy.uint32 and "
                    f"the like"
                )
        return _struct_of_parts(entry, [(name, known[name]) for name in fields])
    if isinstance(entry, type) and issubclass(entry, (ctypes.Structure, ctypes.Union, ctypes.Array)):
        plain = _ctypes_parameter(entry)
        return plain._replace(encode=functools.partial(_exactly, entry, plain.size))
    try:
        dtype = np.dtype(entry)
    except TypeError:
        raise TypeError(f"{entry!r} in a signature is no word, dtype or ctypes type") from None
    if dtype.names is not None:
        plain = _numpy_parameter(dtype)
        return plain._replace(encode=functools.partial(_exact_record, dtype))
    if not dtype.isnative:
        raise TypeError(f"{entry!r} in a signature is big-endian; the device is little-endian: write {dtype.name}")
    if dtype.name == "bool":
        return _declared_word("bool", entry)
    return _declared_word(dtype.name, entry)


@functools.cache
def _declared_word(word: str, entry: Any) -> Parameter:
    word = _ALIASES.get(word, word)
    if word == "ptr":
        return _POINTER._replace(encode=_declared_pointer)
    if word == "bool":
        return Parameter("bool", 1, 1, "?", _declared_bool)
    if word == "bf16":
        return Parameter("bf16", 2, 2, "H", _declared_bf16)
    if word in _INTEGERS:
        dtype = np.dtype(_INTEGERS[word])
        limits = np.iinfo(dtype)
        encode = functools.partial(_declared_integer, dtype, int(limits.min), int(limits.max))
        code = {1: "b", 2: "h", 4: "i", 8: "q"}[dtype.itemsize]
        return Parameter(word, dtype.itemsize, dtype.itemsize, code.upper() if word[0] == "u" else code, encode)
    if word in _FLOATS:
        dtype = np.dtype(_FLOATS[word])
        code = {2: "e", 4: "f", 8: "d"}[dtype.itemsize]
        # bytes, not a number: struct would lose the payload of a NaN
        return _by_value(
            word, dtype.itemsize, dtype.itemsize, functools.partial(_declared_float, dtype, struct.Struct("<" + code))
        )
    match = re.fullmatch(r"bytes(\d+)(?:@(\d+))?", word)
    if match:
        size, align = int(match[1]), int(match[2] or 0)
        if not size:
            raise ValueError(f"{entry!r} in a signature: a struct has at least one byte")
        plain = _bytes_parameter(size)
        if match[2] and (align not in (1, 2, 4, 8, 16, 32, 64) or size % align):
            raise ValueError(
                f"{entry!r} in a signature: the alignment is a power of two up to 64 that divides the size"
            )
        return plain._replace(text=word, align=align or plain.align, encode=functools.partial(_exactly, None, size))
    raise ValueError(
        f"{entry!r} in a signature is none of ptr, i8 to i64, u8 to u64, f16, bf16, f32, f64, bool, bytesN@ALIGN"
    )


def _declared_pointer(value: Any) -> int:
    if value is None:
        return 0
    if hasattr(type(value), "__npu_address__"):
        return _address_of(value)
    if isinstance(value, ctypes.c_void_p):
        return _raw_pointer(value)
    if isinstance(value, (int, np.integer)):
        raise TypeError(
            f"a number ({value!r}) is no pointer: pass the DeviceBuffer (DeviceBuffer.borrow makes one from an "
            f"address), or ctypes.c_void_p(address)"
        )
    raise TypeError(f"a pointer is due, not {_what(value)}" + (f": {_refusal(value)}" if _refused(value) else ""))


def _declared_integer(dtype: np.dtype[Any], low: int, high: int, value: Any) -> int:
    if type(value) is int or (isinstance(value, int) and not isinstance(value, bool)):
        if not low <= value <= high:
            raise ValueError(f"{value} does not fit: the range is {low} to {high}")
        return value
    if _dtype_of(value) == dtype:
        return int(value.value if isinstance(value, _CTYPES_SIMPLE) else value)
    raise TypeError(f"a Python int or a {dtype.name} is due, not {_what(value)}{_converted('int', value, dtype)}")


def _declared_float(dtype: np.dtype[Any], packer: struct.Struct, value: Any) -> bytes:
    if isinstance(value, (int, float)) and not isinstance(value, (bool, np.generic)):
        try:
            return packer.pack(value)
        except OverflowError:
            raise ValueError(f"{value!r} is too large for a {dtype.name}") from None
    if _dtype_of(value) == dtype:
        return _to_bytes(value) if isinstance(value, np.generic) else bytes(value)
    raise TypeError(f"a Python float or a {dtype.name} is due, not {_what(value)}{_converted('float', value, dtype)}")


def _converted(kind: str, value: Any, dtype: np.dtype[Any]) -> str:
    """How a numpy number of another width becomes the declared one."""
    if isinstance(value, (np.number, np.ndarray)) and value.ndim == 0:
        return f": pass {kind}(value) or numpy.{dtype.name}(value)"
    return ""


def _declared_bf16(value: Any) -> int:
    if isinstance(value, (int, float)) and not isinstance(value, (bool, np.generic)):
        return _bf16_bits(value)
    if isinstance(value, np.generic) and value.dtype.name == "bfloat16":
        return int.from_bytes(value.tobytes(), "little")
    raise TypeError(f"a Python float or an ml_dtypes.bfloat16 is due, not {_what(value)}")


def _bf16_bits(value: float) -> int:
    """The upper half of the float32, rounded to nearest even."""
    try:
        bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        raise ValueError(f"{value!r} is too large for a bfloat16") from None
    if bits & 0x7FFFFFFF > 0x7F800000:
        return bits >> 16 | 0x40
    rounded = bits + 0x7FFF + (bits >> 16 & 1) >> 16
    if rounded & 0x7FFF == 0x7F80 and bits & 0x7FFFFFFF != 0x7F800000:
        raise ValueError(f"{value!r} is too large for a bfloat16")
    return rounded


def _declared_bool(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, ctypes.c_bool):
        return bool(value.value)
    raise TypeError(f"a bool is due, not {_what(value)}")


def _exactly(kind: Optional[type], size: int, value: Any) -> bytes:
    """Bytes of a struct that was declared by its size or its ctypes class."""
    if kind is not None and isinstance(value, kind):
        return bytes(value)  # type: ignore[call-overload,no-any-return]
    if isinstance(value, _BYTES):
        raw = bytes(value)
    elif kind is None and isinstance(value, np.void):
        raw = value.tobytes()
    elif kind is None and isinstance(value, (ctypes.Structure, ctypes.Union, ctypes.Array)):
        raw = bytes(value)
    else:
        raise TypeError(f"{'bytes' if kind is None else f'a {kind.__name__}'} of size {size} due, not {_what(value)}")
    if len(raw) != size:
        raise TypeError(f"{size} bytes are due, not {len(raw)}")
    return raw


def _exact_record(dtype: np.dtype[Any], value: Any) -> bytes:
    if isinstance(value, (np.void, np.ndarray)) and value.shape == () and value.dtype == dtype:
        return _record_bytes(dtype, value)
    if isinstance(value, _BYTES):
        return _exactly(None, dtype.itemsize, value)
    raise TypeError(f"a structure of size {dtype.itemsize} is due, not {_what(value)}")


def _dtype_of(value: Any) -> Optional[np.dtype[Any]]:
    if isinstance(value, np.generic):
        return value.dtype
    if isinstance(value, _CTYPES_SIMPLE) and not isinstance(value, (ctypes.c_void_p, ctypes.c_char_p)):
        return np.dtype(type(value))
    return None


def _what(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        return f"a numpy array of {value.dtype}"
    if isinstance(value, np.generic):
        return f"{value.dtype.name if value.dtype.names is None else 'a structure'}"
    if isinstance(value, (bool, int, float)):
        return f"the Python {kind} {value!r}"
    return kind


def _refused(value: Any) -> bool:
    return isinstance(value, (np.ndarray, ctypes._Pointer))


# -- layout ----------------------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """Consecutive parameters without a placeholder among them: where in the block, which, and how they are packed."""

    offset: int
    first: int
    end: int
    packer: struct.Struct


_numbers = itertools.count()
_keys: dict[tuple[str, tuple[int, ...]], int] = {}


class Layout:
    """Where the parameters lie in the argument block.

    Parameters
    ----------
    parameters
        What the kernel takes, in order.
    placeholders
        Positions of the parameters that are placeholders.

    Raises
    ------
    TypeError
        Where the alignment of raw bytes is open and decides the layout; `args` of the error start with the position.
    """

    def __init__(self, parameters: Sequence[Parameter], placeholders: Sequence[int] = ()) -> None:
        self.parameters = tuple(parameters)
        self.encoders = tuple(parameter.encode for parameter in self.parameters)
        self.placeholders = tuple(placeholders)
        offsets = []
        offset = 0
        for position, parameter in enumerate(self.parameters):
            align = parameter.align
            if not align:
                if offset % _BLOCK_ALIGN:
                    raise _At(
                        position,
                        f"{parameter.text} can be aligned to 4 or to 8, and here that changes where the kernel looks "
                        f"for them: pass a numpy or ctypes structure, or declare bytes{parameter.size}@4 or @8",
                    )
                align = _BLOCK_ALIGN
            offset = _round_up(offset, max(_MIN_ALIGN, align))
            offsets.append(offset)
            offset += parameter.size
        #: bytes where each parameter starts
        self.offsets = tuple(offsets)
        #: bytes of the block, a multiple of 8
        self.size = _round_up(offset, _BLOCK_ALIGN)
        self._whole = self._struct(0, len(self.parameters), 0, self.size)
        #: the same number for layouts that lie the same, for whoever keeps prepared memory by layout
        self.key = _keys.setdefault((self._whole.format, self.placeholders), next(_numbers))
        self.pieces = self._split()

    def __repr__(self) -> str:
        inside = ", ".join(f"{p.text} at {o}" for p, o in zip(self.parameters, self.offsets))
        return f"<Layout of {self.size} bytes: {inside}>"

    def pack(self, values: Sequence[Any]) -> bytes:
        """The whole block; the slots of placeholders are zero."""
        return self._whole.pack(*values)

    def place(self, sizes: Sequence[int], lead: int = 0, trail: int = 8) -> tuple[tuple[int, ...], int]:
        """Where the library puts the data of placeholders: behind the block and its hidden slots, each aligned to 8.

        Parameters
        ----------
        sizes : bytes of each placeholder's data
        lead : bytes of the hidden slots in front of the block
        trail : bytes of the hidden slots behind it

        Returns
        -------
        offsets : where each data area starts
        total : bytes up to the end of the last one
        """
        offsets = []
        end = lead + self.size + trail
        for size in sizes:
            start = _round_up(end, _BLOCK_ALIGN)
            offsets.append(start)
            end = start + size
        return tuple(offsets), end

    def _split(self) -> tuple[Piece, ...]:
        pieces = []
        first = 0
        for end in (*self.placeholders, len(self.parameters)):
            if end > first:
                start = self.offsets[first]
                last = self.offsets[end - 1] + self.parameters[end - 1].size
                stop = self.offsets[end] if end < len(self.parameters) else self.size
                pieces.append(Piece(start, first, end, self._struct(first, end, start, max(stop, last))))
            first = end + 1
        return tuple(pieces)

    def _struct(self, first: int, end: int, start: int, stop: int) -> struct.Struct:
        code = ["<"]
        at = start
        for parameter, offset in zip(self.parameters[first:end], self.offsets[first:end]):
            if offset > at:
                code.append(f"{offset - at}x")
            code.append(parameter.code)
            at = offset + parameter.size
        if stop > at:
            code.append(f"{stop - at}x")
        return struct.Struct("".join(code))


class Packed(NamedTuple):
    """The arguments of one launch: their layout, what `struct` packs, and the data of the placeholders."""

    layout: Layout
    values: list[Any]
    placeholders: tuple[bytes, ...]

    @property
    def block(self) -> bytes:
        """The block as the kernel reads it, without hidden slots; placeholders' slots are zero."""
        return self.layout.pack(self.values)


class Packer:
    """Turns the arguments of one kernel into its block, strictly.

    Parameters
    ----------
    kernel : str
        Name for messages.
    signature
        The declared parameters (see `parse_signature`), or None: then each argument brings its own width.
    """

    def __init__(self, kernel: str, signature: Optional[SignatureLike] = None) -> None:
        self.kernel = kernel
        self.declared: Optional[tuple[Parameter, ...]] = None if signature is None else parse_signature(signature)
        self._layouts: dict[Any, Layout] = {}
        # the same, where the types alone decide: the usual case, and cheaper to look up
        self._by_type: dict[tuple[type, ...], Layout] = {}

    def pack(self, args: Sequence[Any]) -> Packed:
        """The packed arguments.

        Raises
        ------
        TypeError
            For an argument of no or the wrong width, or the wrong number of them; the message names the argument.
        ValueError
            For a number that does not fit its parameter.
        """
        layout = self._by_type.get(tuple(map(type, args)))
        if layout is None:
            layout = self._layout(args)
        values: list[Any] = []
        try:
            for encode, value in zip(layout.encoders, args):
                values.append(encode(value))
        except (TypeError, ValueError) as error:
            where = self.name_of(len(values), args)
            if type(error) in (TypeError, ValueError):
                raise type(error)(f"{where}: {error}") from None
            fault: Any = error
            if hasattr(fault, "next_step"):  # ClosedError and its like, which this module does not know
                raise type(fault)(f"{where}: {fault.message}", next_step=fault.next_step) from None
            raise
        data = tuple([args[i].data for i in layout.placeholders]) if layout.placeholders else ()
        return Packed(layout, values, data)

    @property
    def declared_layout(self) -> Optional[Layout]:
        """Where the declared parameters lie; None without a declaration."""
        return None if self.declared is None else self._make([None] * len(self.declared))

    def name_of(self, position: int, args: Sequence[Any] = ()) -> str:
        """What messages call an argument: kernel, number (from 1), and the declared name and type."""
        declared = ""
        if self.declared is not None and position < len(self.declared):
            parameter = self.declared[position]
            declared = f" ({parameter.name}: {parameter.text})" if parameter.name else f" ({parameter.text})"
        of = f" of {len(args)}" if args else ""
        return f"{self.kernel}: argument {position + 1}{of}{declared}"

    def _layout(self, args: Sequence[Any]) -> Layout:
        if self.declared is not None:
            if len(args) != len(self.declared):
                wanted = " ".join(p.name or p.text for p in self.declared)
                raise TypeError(f"{self.kernel} takes {len(self.declared)} arguments ({wanted}), not {len(args)}")
            key: Any = tuple(type(a) is Placeholder for a in args)
        else:
            key = tuple(map(_key, args))
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = self._make(args)
        if self.declared is not None or all(_key(value) is type(value) for value in args):
            self._by_type[tuple(map(type, args))] = found
        return found

    def _make(self, args: Sequence[Any]) -> Layout:
        parameters = []
        placeholders = []
        for position, value in enumerate(args):
            try:
                parameter = _infer(value) if self.declared is None else self.declared[position]
                if isinstance(value, Placeholder):
                    if not parameter.pointer:
                        raise TypeError("a Placeholder is a pointer to its data; this parameter is no pointer")
                    parameter = _PLACEHOLDER
                    placeholders.append(position)
            except TypeError as error:
                raise TypeError(f"{self.name_of(position, args)}: {error}") from None
            parameters.append(parameter)
        try:
            return Layout(parameters, placeholders)
        except _At as error:
            raise TypeError(f"{self.name_of(error.position, args)}: {error}") from None


class _At(TypeError):
    """A TypeError about the argument at a position."""

    def __init__(self, position: int, text: str) -> None:
        super().__init__(text)
        self.position = position


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
