"""What ``pyacl run`` is asked for: a kernel's arguments as text, and the host values they stand for. No device here.

One argument of the kernel is one option, in the kernel's order::

    --in x.npy  --in x.bin:float16[16384]  --in random:float16[16384]  --in zeros:…  --in arange:…
    --out z.npy:float16[16384]             --inout acc.npy=new.npy
    --scalar u32:16384                     --placeholder i32:8
    --tiling tiling.bin                    --workspace 16M

A job may also be a TOML or JSON file with the same: keys are the options' names, and ``arguments`` is a list of tables
with one entry each, ``{in = "x.npy"}``.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

__all__ = ["ARGUMENT_KINDS", "Argument", "Job", "JobError", "Source", "Target"]

HERE = Path()

Array = np.ndarray[Any, Any]

_GENERATED = ("random", "zeros", "arange")
_SHORT = {
    **{f"{kind[0]}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16",
    "half": "float16", "float": "float32", "double": "float64",
}  # fmt: skip
_NAMES = ("float16", "float32", "float64", "bfloat16", "bool", *(n for n in _SHORT.values() if "int" in n))
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class JobError(ValueError):
    """Something about the request is wrong; the message names the option and says how to write it."""


# -- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Where the values of an input come from: a file, or one of random, zeros, arange; perhaps with dtype and shape."""

    option: str
    origin: Union[str, Path]
    dtype: Optional[np.dtype[Any]] = None
    shape: Optional[tuple[int, ...]] = None

    def array(self, seed: int = 0, like: Optional[Array] = None) -> Array:
        """Return the values.

        Parameters
        ----------
        seed : for random values
        like : dtype and shape where the text says neither

        Raises
        ------
        JobError
            For a file that is missing, of an unknown kind, or that does not fit what the text says of it.
        """
        if isinstance(self.origin, str):
            return self._generated(seed, like)
        if not self.origin.is_file():
            close = difflib.get_close_matches(self.origin.name, _GENERATED, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise JobError(f"{self.option}: there is no file {self.origin}{hint}")
        return self._npy(self.origin) if self.origin.suffix == ".npy" else self._raw(self.origin, like)

    def _generated(self, seed: int, like: Optional[Array]) -> Array:
        dtype = self.dtype if self.dtype is not None or like is None else like.dtype
        shape = self.shape if self.shape is not None or like is None else like.shape
        if dtype is None or shape is None:
            raise JobError(f"{self.option}: {self.origin} needs a dtype and a shape: {self.origin}:float16[16384]")
        count = math.prod(shape)
        if self.origin == "zeros":
            return np.zeros(shape, dtype)
        if self.origin == "arange":
            with np.errstate(over="ignore"):  # beyond the largest float16 numbers are infinite, as in a kernel
                return np.arange(count).astype(dtype).reshape(shape)
        generator = np.random.default_rng(seed)
        if dtype.name == "bool":
            return generator.integers(0, 2, count).astype(dtype).reshape(shape)
        if dtype.kind in "iu":
            return generator.integers(0 if dtype.kind == "u" else -100, 101, count).astype(dtype).reshape(shape)
        return generator.uniform(-1, 1, count).astype(dtype).reshape(shape)

    def _npy(self, path: Path) -> Array:
        try:
            array: Array = np.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise JobError(f"{self.option}: {path} cannot be read as a .npy file: {error}") from None
        if not array.dtype.isnative:
            raise JobError(
                f"{self.option}: {path} holds {array.dtype.newbyteorder('=')} in the other byte order, which the "
                f"device cannot read; convert it with array.astype(array.dtype.newbyteorder('='))"
            )
        if self.dtype is not None and array.dtype != self.dtype:
            raise JobError(
                f"{self.option}: {path} holds {array.dtype}, not {self.dtype}; convert it with "
                f"numpy.load(...).astype({self.dtype.name!r})"
            )
        if self.shape is not None and array.shape != self.shape:
            raise JobError(f"{self.option}: {path} has the shape {list(array.shape)}, not {list(self.shape)}")
        return np.ascontiguousarray(array)

    def _raw(self, path: Path, like: Optional[Array]) -> Array:
        dtype = self.dtype if self.dtype is not None or like is None else like.dtype
        if dtype is None:
            raise JobError(
                f"{self.option}: {path.name} is a file of bare bytes (only a .npy has a dtype): say what they are, "
                f"{path.name}:float16 or {path.name}:float16[128,64]"
            )
        raw = path.read_bytes()
        if len(raw) % dtype.itemsize:
            raise JobError(f"{self.option}: {path} has {len(raw)} bytes, no multiple of {dtype.itemsize} ({dtype})")
        array = np.frombuffer(bytearray(raw), dtype)
        shape = self.shape if self.shape is not None or like is None else like.shape
        if shape is not None:
            if math.prod(shape) != array.size:
                raise JobError(
                    f"{self.option}: {path} holds {array.size} values of {dtype}, {list(shape)} are {math.prod(shape)}"
                )
            array = array.reshape(shape)
        if not array.size:
            raise JobError(f"{self.option}: {path} is empty")
        return array


@dataclass(frozen=True)
class Target:
    """What an output is."""

    option: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def array(self) -> Array:
        """Return the values before the launch: zeros, so that a result does not depend on what was there before."""
        return np.zeros(self.shape, self.dtype)


def save(array: Array, file: Path) -> None:
    """Write an output: as .npy, or bare bytes for any other name."""
    if file.suffix == ".npy":
        np.save(file, array)
    else:
        file.write_bytes(array.tobytes())


# -- arguments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Argument:
    """One argument of the kernel.

    Attributes
    ----------
    kind : str
        in, out, inout, scalar, placeholder, tiling or workspace.
    text : str
        As it was written.
    source : Source, optional
        For in, inout, tiling and a placeholder from a file: where the values come from.
    target : Target, optional
        For out.
    file : Path, optional
        For out and inout: where the result goes.
    value : numpy scalar, array or int, optional
        For scalar and a placeholder of values; the bytes of a workspace.
    by_pointer : bool or None
        For tiling: whether the kernel takes a pointer to it (True), the struct itself (False), or as the object says.
    align : int
        For tiling: 4 or 8, 0 when the text does not say.
    """

    kind: str
    text: str
    source: Optional[Source] = None
    target: Optional[Target] = None
    file: Optional[Path] = None
    value: Any = None
    by_pointer: Optional[bool] = None
    align: int = 0

    @property
    def option(self) -> str:
        """How messages call it: ``--in x.npy``."""
        return f"--{self.kind} {self.text}"

    @classmethod
    def parse(cls, kind: str, text: str, folder: Path = HERE) -> Argument:
        """Read one argument; file names are relative to the folder. JobError says what is wrong with it."""
        if kind not in _PARSERS:
            raise JobError(f"{kind!r} is no kind of argument; those are {', '.join(ARGUMENT_KINDS)}")
        return _PARSERS[kind](text, folder)


def _parse_in(text: str, folder: Path) -> Argument:
    return Argument("in", text, source=_source(text, f"--in {text}", folder))


def _parse_out(text: str, folder: Path) -> Argument:
    option = f"--out {text}"
    file, dtype, shape = _split(text, option)
    if dtype is None or shape is None:
        raise JobError(f"{option}: an output needs a dtype and a shape: --out {file or 'z.npy'}:float16[16384]")
    return Argument("out", text, target=Target(option, dtype, shape), file=folder / file if file else None)


def _parse_inout(text: str, folder: Path) -> Argument:
    option = f"--inout {text}"
    start, equals, file = text.partition("=")
    if equals and not file:
        raise JobError(f"{option}: after = comes the file for the result: --inout {start}=new.npy")
    return Argument("inout", text, source=_source(start, option, folder), file=folder / file if file else None)


def _parse_scalar(text: str, folder: Path) -> Argument:
    option = f"--scalar {text}"
    name, colon, number = text.partition(":")
    if not colon:
        raise JobError(f"{option}: a scalar needs its type, because the kernel reads exactly so many bytes: u32:{text}")
    return Argument("scalar", text, value=_scalar(dtype_of(name, option), number, option))


def _parse_placeholder(text: str, folder: Path) -> Argument:
    option = f"--placeholder {text}"
    name, colon, numbers = text.partition(":")
    if colon and (name in _SHORT or name in _NAMES):
        dtype = dtype_of(name, option)
        values = [_scalar(dtype, number, option) for number in numbers.split(",")]
        return Argument("placeholder", text, value=np.array(values, dtype))
    if colon and name not in _GENERATED and not Path(name).suffix:
        dtype_of(name, option)  # which says what is wrong with the name
    return Argument("placeholder", text, source=_bytes_source(text, option, folder))


def _parse_tiling(text: str, folder: Path) -> Argument:
    option = f"--tiling {text}"
    match = re.fullmatch(r"(?P<file>.+?)(?:@(?P<align>\d+))?(?::(?P<way>\w+))?", text)
    assert match is not None
    way = match["way"]
    if way not in (None, "value", "pointer"):
        raise JobError(f"{option}: after the file comes :value (the kernel takes the struct) or :pointer, not :{way}")
    if match["align"] not in (None, "4", "8"):
        raise JobError(f"{option}: a struct is aligned to 4, or to 8 when it has a 64-bit member: @4 or @8")
    source = _bytes_source(match["file"], option, folder)
    by_pointer = None if way is None else way == "pointer"
    return Argument("tiling", text, source=source, by_pointer=by_pointer, align=int(match["align"] or 0))


def _parse_workspace(text: str, folder: Path) -> Argument:
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    if match is None or not int(match[1]):
        raise JobError(f"--workspace {text}: give a number of bytes, as 4096, 64K or 16M")
    return Argument("workspace", text, value=int(match[1]) * _SIZES[match[2]])


_PARSERS = {
    "in": _parse_in,
    "out": _parse_out,
    "inout": _parse_inout,
    "scalar": _parse_scalar,
    "placeholder": _parse_placeholder,
    "tiling": _parse_tiling,
    "workspace": _parse_workspace,
}
ARGUMENT_KINDS = tuple(_PARSERS)


def expected(text: str, folder: Path = HERE) -> Source:
    """Read the text of ``--check``: a source, as for ``--in``; bare bytes have the output's dtype."""
    return _source(text, f"--check {text}", folder)


def _source(text: str, option: str, folder: Path) -> Source:
    origin, dtype, shape = _split(text, option)
    if not origin:
        raise JobError(f"{option}: where do the values come from? x.npy, x.bin:float16, random:float16[16384]")
    return Source(option, origin if origin in _GENERATED else folder / origin, dtype, shape)


def _bytes_source(text: str, option: str, folder: Path) -> Source:
    """A source that may be bare bytes of no dtype."""
    source = _source(text, option, folder)
    bare = source.dtype is None and isinstance(source.origin, Path) and source.origin.suffix != ".npy"
    return replace(source, dtype=np.dtype("u1")) if bare else source


_DTYPE_AND_SHAPE = re.compile(r"(?:(?P<origin>.+):)?(?P<dtype>[A-Za-z_]\w*)(?:\[(?P<shape>[^\[\]]*)\])?")


def _split(text: str, option: str) -> tuple[str, Optional[np.dtype[Any]], Optional[tuple[int, ...]]]:
    """``origin:dtype[shape]`` apart; what is not there is "" or None."""
    match = _DTYPE_AND_SHAPE.fullmatch(text)
    if match is None:
        if text.endswith("]") or "[" in text:
            raise JobError(f"{option}: write FILE:DTYPE[SHAPE], such as x.bin:float16[128,64]")
        return text, None, None
    origin, name, shape = match["origin"], match["dtype"], match["shape"]
    if origin is None and shape is None and name not in _SHORT and name not in _NAMES:
        return text, None, None  # a file without a suffix, or "zeros"
    return origin or "", dtype_of(name, option), None if shape is None else _shape(shape, option)


def _shape(text: str, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise JobError(f"{option}: [{text}] is no shape; write positive numbers, such as [16384] or [128,64]")
    return tuple(map(int, parts))


def dtype_of(name: str, option: str) -> np.dtype[Any]:
    """Return the dtype of a name such as float16, f16 or u32."""
    full = _SHORT.get(name, name)
    if full == "bfloat16":
        try:
            from ml_dtypes import bfloat16
        except ImportError:
            raise JobError(f"{option}: bfloat16 needs the package ml_dtypes: pip install ml_dtypes") from None
        brain: np.dtype[Any] = np.dtype(bfloat16)
        return brain
    if full not in _NAMES:
        near = difflib.get_close_matches(name, [*_NAMES, *_SHORT], 2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(_NAMES)}"
        raise JobError(f"{option}: {name!r} is no dtype; {hint}")
    return np.dtype(full)


def _scalar(dtype: np.dtype[Any], text: str, option: str) -> Any:
    """A numpy scalar of a number's text, exactly."""
    text = text.strip()
    try:
        if dtype.name == "bool":
            return np.bool_({"true": True, "1": True, "false": False, "0": False}[text.lower()])
        if dtype.kind in "iu":
            number = int(text, 0)
            limits = np.iinfo(dtype)
            if not limits.min <= number <= limits.max:
                raise JobError(f"{option}: {number} does not fit {dtype}: {limits.min} to {limits.max}")
            return dtype.type(number)
        value = float(text)
        with np.errstate(over="ignore"):
            scalar = dtype.type(value)
        if math.isinf(float(scalar)) and not math.isinf(value):
            raise JobError(f"{option}: {text} does not fit {dtype}")
        return scalar
    except (ValueError, KeyError) as error:
        if isinstance(error, JobError):
            raise
        raise JobError(f"{option}: {text!r} is no {dtype}") from None


# -- jobs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One run of one kernel. The fields are the options of ``pyacl run``: None or () where they were not given."""

    object: Optional[Path] = None
    kernel: Optional[str] = None
    blocks: Optional[int] = None
    arguments: tuple[Argument, ...] = ()
    signature: Optional[str] = None
    device: Optional[int] = None
    backend: Optional[str] = None
    emulate: Optional[str] = None
    attribute: tuple[str, ...] = ()
    repeat: Optional[int] = None
    warmup: Optional[int] = None
    timeout: Optional[float] = None
    seed: Optional[int] = None
    check: tuple[Source, ...] = ()
    rtol: Optional[float] = None
    atol: Optional[float] = None

    def over(self, other: Job) -> Job:
        """Return this job, with what it leaves open taken from another."""
        mine = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return replace(other, **{name: value for name, value in mine.items() if value is not None and value != ()})


_KEYS = tuple(entry.name for entry in fields(Job))
_KINDS = {
    **{name: str for name in ("kernel", "signature", "backend")},
    **{name: int for name in ("blocks", "device", "repeat", "warmup", "seed")},
    **{name: float for name in ("timeout", "rtol", "atol")},
}


def read_job(path: Union[str, Path]) -> Job:
    """Read a job from a TOML or JSON file. File names in it are relative to it.

    Raises
    ------
    JobError
        For a file that is no such, and for keys and values that are no options.
    """
    path = Path(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        data = json.loads(text) if path.suffix == ".json" else _toml(text, path)
    except ValueError as error:
        raise error if isinstance(error, JobError) else JobError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise JobError(f"{path}: a job is an object with keys, not a {type(data).__name__}")
    values = {}
    for key, value in data.items():
        name = key.replace("-", "_")
        if name not in _KEYS:
            near = difflib.get_close_matches(name, _KEYS, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_KEYS)}"
            raise JobError(f"{path}: there is no option {key!r}; {hint}")
        values[name] = _value_of(name, value, path)
    return Job(**values)


def _toml(text: str, path: Path) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ImportError:
            raise JobError(
                f"{path}: reading TOML before Python 3.11 needs the package tomli: pip install tomli, or use JSON"
            ) from None
    return tomllib.loads(text)


def _value_of(name: str, value: Any, path: Path) -> Any:
    folder = path.parent
    if name == "arguments":
        return _arguments_of(value, path)
    if name in _KINDS:
        kind = _KINDS[name]
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise JobError(f"{path}: {name} = {value!r} is no {kind.__name__}")
        return value
    texts = value if isinstance(value, list) and name not in ("object", "emulate") else [value]
    if not all(isinstance(text, str) for text in texts):
        raise JobError(f"{path}: {name} = {value!r} is no str")
    if name == "object":
        return folder / value
    if name == "check":
        return tuple(expected(text, folder) for text in texts)
    return anchored(value, folder) if name == "emulate" else tuple(texts)


def _arguments_of(value: Any, path: Path) -> tuple[Argument, ...]:
    tables = value if isinstance(value, list) else [value]
    arguments = []
    for number, table in enumerate(tables, 1):
        if not isinstance(table, dict) or len(table) != 1 or type(next(iter(table.values()))) not in (str, int):
            raise JobError(f'{path}: argument {number} is no table with one entry, such as {{in = "x.npy"}}')
        ((kind, text),) = table.items()
        arguments.append(Argument.parse(kind, str(text), path.parent))
    return tuple(arguments)


def anchored(emulation: str, folder: Path = HERE) -> str:
    """``file.py:function`` with the file relative to a folder; ``module:function`` as it is."""
    module = emulation.rpartition(":")[0]
    return str(folder / emulation) if module.endswith(".py") else emulation
