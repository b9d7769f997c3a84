"""Kernels that a host library launches: ``<<<>>>`` inside a function of it, or a generated ``aclrtlaunch_<kernel>``.

Such a library is code for the host. It has the device binary inside, registers it when it is opened, and its functions
take the number of blocks, the stream and the kernel's arguments as C does.
"""

from __future__ import annotations

import ctypes
import difflib
import functools
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Callable, NamedTuple, Optional, Union

import numpy as np

from pyacl import objfile
from pyacl.arguments import Packed, Packer, Parameter, SignatureLike, parse_signature
from pyacl.device import same_device
from pyacl.errors import LibraryNotFoundError
from pyacl.kernel import MADE_AT_LAUNCH, KernelNotFoundError, checked_blocks, launch_with_buffers
from pyacl.memory import DeviceBuffer
from pyacl.objfile import elf, mangled
from pyacl.raw import constants
from pyacl.session import current_session
from pyacl.stream import Stream

__all__ = ["KernelLibrary", "LibraryKernel"]

_GENERATED = "aclrtlaunch_"
_SHT_DYNSYM = 11

#: by the names of numpy and of signatures
_C_TYPES: dict[str, Any] = {"f32": ctypes.c_float, "f64": ctypes.c_double, "bool": ctypes.c_bool}
for _bits in (8, 16, 32, 64):
    _C_TYPES[f"i{_bits}"] = _C_TYPES[f"int{_bits}"] = getattr(ctypes, f"c_int{_bits}")
    _C_TYPES[f"u{_bits}"] = _C_TYPES[f"uint{_bits}"] = getattr(ctypes, f"c_uint{_bits}")
_C_TYPES.update(float32=ctypes.c_float, float64=ctypes.c_double)


class KernelLibrary:
    """A host library with kernels, opened.

    Parameters
    ----------
    path : path
        The ``.so``, built by bisheng from sources with ``<<<>>>`` or by ``ascendc_library``; `pyacl.compile` makes one
        with ``shared=True``.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    KernelObjectError
        When it is no library.
    LibraryNotFoundError
        When it cannot be opened; the message says what it needs.

    Notes
    -----
    The library launches through CANN itself, so the backend is the real library; a library of functions that need no
    CANN opens on any. It stays open as long as the process: its device binaries are registered with the runtime.
    """

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        #: absolute path of the library
        self.path = os.path.abspath(os.fspath(path))
        if not os.path.isfile(self.path):
            raise FileNotFoundError(f"there is no library {self.path}")
        with open(self.path, "rb") as file:
            data = file.read()
        self._functions = sorted(_functions(data, self.path), key=lambda f: (not f.generated, f.name, f.symbol))
        self._kernels = _kernels_inside(data)
        # the session loads CANN, and with it what the library needs
        backend = current_session().api.backend.name
        try:
            self._library = ctypes.CDLL(self.path)
        except OSError as error:
            raise LibraryNotFoundError(
                f"{self.path} cannot be opened: {error}. The backend is {backend}",
                next_step="Use the real library (it holds the functions that the launches need), or make the .so again",
            ) from error

    def __repr__(self) -> str:
        return f"<KernelLibrary {self.path}: {', '.join(self.names) or 'no kernels'}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels with a generated entry point, then the library's other functions."""
        return tuple(dict.fromkeys(function.name for function in self._functions))

    def __contains__(self, name: object) -> bool:
        return any(name in (f.name, f.symbol) for f in self._functions)

    def __getitem__(self, name: str) -> LibraryKernel:
        return self.kernel(name)

    def kernel(
        self,
        name: str,
        signature: Optional[SignatureLike] = None,
        *,
        head: str = "blocks stream",
        returns: Optional[str] = None,
    ) -> LibraryKernel:
        """Return a kernel that can be launched.

        Parameters
        ----------
        name : str
            The kernel with a generated entry point, or the function with ``<<<>>>`` inside: its name in C++, or its
            symbol.
        signature : str or sequence, optional
            What it takes behind its head, as for ``KernelBinary.kernel``. Left out, a C++ function's own types count;
            for a C function each argument brings its own width.
        head : str
            What comes first: ``"blocks stream"``, or ``"blocks l2ctrl stream"`` as older samples have it.
        returns : {"code", "nothing"}, optional
            Whether the function returns an error code. By default generated ones do, others do not.

        Raises
        ------
        KernelNotFoundError
            Also a KeyError: there is none of that name; the message lists what there is.
        """
        found = self._find(name)
        known = self._kernels.get(found.name) if found.generated else None
        pointer = getattr(self._library, found.symbol)
        return LibraryKernel(self, found, pointer, signature, head, returns, known)

    def _find(self, name: str) -> _Function:
        candidates = [f for f in self._functions if name in (f.name, f.symbol)]
        if candidates and (candidates[0].generated or len(candidates) == 1 or name == candidates[0].symbol):
            return candidates[0]
        file = os.path.basename(self.path)
        if candidates:
            symbols = ", ".join(f.symbol for f in candidates)
            raise KernelNotFoundError(f"{file} has several functions {name}; give the symbol of one: {symbols}")
        near = difflib.get_close_matches(name, self.names, 3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        have = ", ".join(self.names[:20]) + (", …" if len(self.names) > 20 else "")
        raise KernelNotFoundError(
            f"{file} has no kernel {name!r}; {hint}it has {have or 'no functions that can be called'}"
        )


class LibraryKernel:
    """One function of a `KernelLibrary`; ``kernel[blocks, stream](*args)`` calls it."""

    def __init__(
        self,
        library: KernelLibrary,
        function: _Function,
        pointer: Any,
        signature: Optional[SignatureLike],
        head: str,
        returns: Optional[str],
        known: Optional[objfile.Kernel],
    ) -> None:
        #: the library it is from
        self.library = library
        #: the kernel's name, or the function's
        self.name = function.name
        #: its name in the library's symbol table
        self.symbol = function.symbol
        #: whether it is a generated ``aclrtlaunch_`` entry point
        self.generated = function.generated
        if head not in ("blocks stream", "blocks l2ctrl stream"):
            raise ValueError(f"head={head!r} is neither 'blocks stream' nor 'blocks l2ctrl stream'")
        if returns not in (None, "code", "nothing"):
            raise ValueError(f"returns={returns!r} is neither 'code' nor 'nothing'")
        self._head = head
        self._returns_code = function.generated if returns is None else returns == "code"
        pointer.restype = ctypes.c_uint32 if self._returns_code else None
        self._pointer = pointer
        if signature is None:
            signature = _declared(function, head)
        self._packer = Packer(self.name, signature)
        self._known = known
        for number, parameter in enumerate(self._packer.declared or (), 1):
            if parameter.text in ("f16", "bf16"):
                raise TypeError(_no_half(f"{self.name}: argument {number} ({parameter.text})"))

    def __repr__(self) -> str:
        return f"<LibraryKernel {self.name} of {self.library.path}>"

    def __getitem__(self, where: Any) -> Callable[..., None]:
        if not isinstance(where, tuple) or len(where) != 2:
            raise TypeError(f"{self.name}[blocks, stream](*args): give the number of blocks and a stream")
        blocks, stream = where
        return lambda *args: self.launch(*args, blocks=blocks, stream=stream)

    def launch(self, *args: Any, blocks: int, stream: Stream) -> None:
        """Launch the kernel on a stream; it is queued when this returns.

        Parameters
        ----------
        *args
            By the rules of every launch: a DeviceBuffer is a pointer, numpy scalars and ctypes values have their own
            width, structures go by value; a bare Python number needs a declared signature. The functions are C, which
            has no half precision and no placeholders. A generated entry point is handed the address of a structure, as
            its header asks; a pointer made with ``ctypes.byref`` reaches any other function as it is. With `In`, `Out`
            and `InOut` the launch waits for the stream.
        blocks : int
            1 to 65535.
        stream : Stream

        Raises
        ------
        TypeError, ValueError
            For arguments that do not fit; the message names the argument.
        AclError
            When the launch failed.

        Notes
        -----
        A generated entry point returns a code; it answers 0 and prints a line when its binary was not registered. Of a
        function that returns nothing, what the runtime remembers as the thread's last error counts.
        """
        blocks = checked_blocks(blocks)
        if not isinstance(stream, Stream):
            raise TypeError(
                f"{self.name}: stream is a Stream, such as device.default_stream, not {type(stream).__name__}"
            )
        if any(isinstance(arg, MADE_AT_LAUNCH) for arg in args):
            again = functools.partial(self.launch, blocks=blocks, stream=stream)
            launch_with_buffers(stream, args, self._values, again)
            return
        for position, arg in enumerate(args):
            if isinstance(arg, DeviceBuffer):
                same_device(self._packer.name_of(position, args), stream.device, arg, DeviceBuffer)
        values = self._values(args)
        handle = stream._handle
        device = handle.device
        head = [ctypes.c_uint32(blocks), handle.get()]
        if self._head == "blocks l2ctrl stream":
            head.insert(1, ctypes.c_void_p())
        with device.current():
            if self._returns_code:
                code = self._pointer(*head, *values)
                if code:
                    device.fail(code, self.symbol)
            else:
                self._call_without_code(device, [*head, *values])
        handle.keep(args)

    def _call_without_code(self, device: Any, values: list[Any]) -> None:
        last_error = device.api.unchecked.aclrtGetLastError if device.api.has("aclrtGetLastError") else None
        if last_error is not None:
            last_error(constants.ACL_RT_THREAD_LEVEL)
        self._pointer(*values)
        code = last_error(constants.ACL_RT_THREAD_LEVEL) if last_error is not None else 0
        if code:
            device.fail(code, self.symbol)

    def _values(self, args: Sequence[Any]) -> list[Any]:
        """The arguments as ctypes values, checked."""
        host = [i for i, arg in enumerate(args) if _is_host_pointer(arg)]
        if host and self.generated:
            raise TypeError(f"{self._packer.name_of(host[0], args)}: a host address, which the kernel cannot read")
        checked = [ctypes.c_void_p() if i in host else arg for i, arg in enumerate(args)]
        packed = self._packer.pack(checked)
        if packed.placeholders:
            position = packed.layout.placeholders[0]
            raise TypeError(
                f"{self._packer.name_of(position, args)}: a function of a library has no placeholders; put the data "
                f"into a DeviceBuffer"
            )
        self._check_size(packed)
        return [
            args[i] if i in host else self._value(i, parameter, value, args)
            for i, (parameter, value) in enumerate(zip(packed.layout.parameters, packed.values))
        ]

    def _check_size(self, packed: Packed) -> None:
        """The kernel inside the library says how many bytes of arguments it reads."""
        sizes = self._known.user_sizes if self._known is not None else ()
        if sizes and packed.layout.size not in sizes:
            raise TypeError(
                f"{self.name}: the arguments take {packed.layout.size} bytes, the kernel reads "
                f"{' or '.join(map(str, sorted(sizes)))}: {packed.layout!r}"
            )

    def _value(self, position: int, parameter: Parameter, value: Any, args: Sequence[Any]) -> Any:
        given = args[position]
        if parameter.pointer:
            return ctypes.c_void_p(value)
        raw = struct.pack("<" + parameter.code, value)
        if isinstance(given, ctypes._SimpleCData):
            return given
        kind = _C_TYPES.get(parameter.text)
        if kind is not None:
            return kind.from_buffer_copy(raw)
        where = self._packer.name_of(position, args)
        if parameter.size == 2 and not isinstance(given, (np.void, ctypes.Structure, bytes)):
            raise TypeError(_no_half(where))
        if self.generated:
            # the entry point copies the structure from the address it is given, before it returns
            return ctypes.byref(ctypes.create_string_buffer(raw, len(raw)))
        if isinstance(given, (ctypes.Structure, ctypes.Union)):
            return given
        if isinstance(given, (np.void, np.ndarray)) and given.dtype.names is not None:
            return _structure(given.dtype).from_buffer_copy(raw)
        raise TypeError(
            f"{where}: C passes a structure by the types of its members, which {type(given).__name__} does not tell: "
            f"pass a ctypes.Structure or a numpy record"
        )


def _no_half(where: str) -> str:
    return (
        f"{where}: C has no half-precision parameters. Let the function take the bits (uint16_t), and pass "
        f"numpy.float16(x).view(numpy.uint16)"
    )


def _is_host_pointer(value: Any) -> bool:
    return isinstance(value, (ctypes._Pointer, type(ctypes.byref(ctypes.c_int()))))


def _structure(dtype: np.dtype[Any]) -> Any:
    """The ctypes structure of a structured dtype whose members lie where C puts them."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        kind = _structure(base)
        for length in reversed(shape):
            kind = kind * length
        return kind
    if dtype.names is None:
        if dtype.name not in _C_TYPES:
            raise TypeError(f"C has no member of dtype {dtype} that can be passed by value")
        return _C_TYPES[dtype.name]
    assert dtype.fields is not None
    members = [(name, _structure(dtype.fields[name][0])) for name in dtype.names]
    return type("Structure", (ctypes.Structure,), {"_fields_": members})


# -- what is in the library ------------------------------------------------------------------------------------------


class _Function(NamedTuple):
    symbol: str
    name: str
    generated: bool
    #: Itanium codes of the parameters; None for a C function
    parameters: Optional[str]


def _functions(data: bytes, path: str) -> Iterator[_Function]:
    """The functions that a library exports."""
    try:
        file = elf.Elf(data)
    except objfile.KernelObjectError as error:
        raise objfile.KernelObjectError(f"{path} is no library: {error}") from None
    if file.header.type != elf.ET_DYN or file.header.machine == elf.EM_ASCEND:
        raise objfile.KernelObjectError(f"{path} is no host library; a device binary is loaded with device.load(path)")
    for section in file.sections:
        if section.type != _SHT_DYNSYM:
            continue
        if section.link >= len(file.sections):
            raise objfile.KernelObjectError(f"{path} is no library: its symbols have no names (section {section.link})")
        names = file.sections[section.link]
        count = section.size // elf.SYMBOL_DTYPE.itemsize
        table = np.frombuffer(data, elf.SYMBOL_DTYPE, count, section.offset)
        for name, info, other, number, _, _ in table.tolist():
            exported = info >> 4 in (elf.STB_GLOBAL, elf.STB_WEAK) and other & 3 == elf.STV_DEFAULT
            if info & 0xF == elf.STT_FUNC and exported and number:
                symbol = file.string(names, name)
                if not symbol.startswith(("_init", "_fini")):
                    yield _function(symbol)


def _function(symbol: str) -> _Function:
    if symbol.startswith(_GENERATED):
        return _Function(symbol, symbol[len(_GENERATED) :], True, None)
    name, parameters = mangled.split(symbol)
    return _Function(symbol, name, False, parameters)


def _kernels_inside(data: bytes) -> dict[str, objfile.Kernel]:
    """The kernels of the device binaries in a library, as far as they can be seen."""
    try:
        parts = objfile.read(data).device_parts()
    except objfile.KernelObjectError:
        return {}
    return {kernel.name: kernel for part in parts for kernel in part.kernels}


def _declared(function: _Function, head: str) -> Optional[tuple[Parameter, ...]]:
    """The parameters behind the head, from a C++ symbol; None where it does not tell, or has types of its own."""
    if function.parameters is None:
        return None
    words = mangled.parameter_words(function.parameters)
    wanted = ["u32", *["ptr"] * head.count(" ")]
    if words is None:
        return None
    if words[: len(wanted)] != wanted:
        raise TypeError(
            f"{function.symbol} does not start with (uint32_t {head.replace(' ', ', void *')}) but with "
            f"({', '.join(words[: len(wanted)]) or 'nothing'}): it is no function that launches a kernel, or head is "
            f"another one"
        )
    return parse_signature(words[len(wanted) :])
