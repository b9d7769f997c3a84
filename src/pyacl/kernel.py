"""Kernels: loading binaries, finding functions in them, launching them, and the memory their arguments lie in."""

from __future__ import annotations

import ctypes
import difflib
import math
import numbers
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from pyacl import objfile
from pyacl._handle import Closeable, Handle
from pyacl.arguments import In, InOut, Layout, Out, Packed, Packer, SignatureLike, Workspace, parse_signature
from pyacl.device import BINARY, Device, checked_number, same_device
from pyacl.errors import AclInvalidArgumentError
from pyacl.memory import DeviceBuffer
from pyacl.objfile import mangled
from pyacl.objfile.arch import npu_arch_of
from pyacl.raw import constants, types
from pyacl.stream import Stream, StreamHandle

if TYPE_CHECKING:
    from pyacl.objfile.reader import Source

__all__ = ["BoundKernel", "Kernel", "KernelBinary", "KernelNotFoundError", "LaunchConfig"]

#: wrappers of host arrays that may stand among the arguments of a launch
_HOST_ARRAYS = (In, Out, InOut)
#: arguments for which the launch makes a buffer
MADE_AT_LAUNCH = (*_HOST_ARRAYS, Workspace)


class KernelNotFoundError(KeyError):
    """A binary has no kernel of this name; the message says which it has."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class KernelBinary(Closeable):
    """A kernel binary on a device. ``binary["add_custom"]`` is a kernel in it.

    Made by `Device.load`.
    """

    def __init__(self, device: Device, handle: Handle, content: objfile.KernelObject) -> None:
        #: the device it is on
        self.device = device
        #: what is in the file: kernels, argument sizes, metadata
        self.object = content
        self._handle = handle
        self._functions: dict[str, _Function] = {}
        handle.own(self)

    @classmethod
    def _load(cls, device: Device, source: Source, lazy: bool = False, cpu_mode: Optional[int] = None) -> KernelBinary:
        core = device._handle
        core.get()
        content, verdict = _inspect(source, device.name, cpu_mode)
        options: dict[int, Optional[int]] = {
            constants.ACL_RT_BINARY_LOAD_OPT_LAZY_LOAD: 1 if lazy else None,
            constants.ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE: verdict.cpu_kernel_mode,
        }
        binary = types.aclrtBinHandle()
        if verdict.from_file and content.path is not None:
            _load_from_file(device, content.path, options, binary)
        elif core.api.has("aclrtBinaryLoadFromData"):
            options[constants.ACL_RT_BINARY_LOAD_OPT_MAGIC] = verdict.magic_value
            core.call("aclrtBinaryLoadFromData", content.data, len(content.data), _load_options(options), binary)
        elif verdict.from_file:
            with tempfile.TemporaryDirectory() as folder:  # before CANN 8.5 only files can be loaded
                path = os.path.join(folder, "kernel.o")
                with open(path, "wb") as file:
                    file.write(content.data)
                _load_from_file(device, path, options, binary)
        else:
            raise objfile.KernelObjectError(
                f"{_label(content)} cannot be loaded from a file: {'; '.join(verdict.reasons)}. "
                f"{_sentence(verdict.advice)} CANN {core.api.version} cannot load it from memory either; 8.5 can."
            )
        what = f"binary {os.path.basename(content.path) if content.path else ''} of device {device.id}"
        handle = Handle(what.replace("  ", " "), binary, core.release("aclrtBinaryUnLoad"), core, BINARY)
        return cls(device, handle, content)

    def __repr__(self) -> str:
        return f"<KernelBinary {_label(self.object)} of device {self.device.id}{', closed' if self.closed else ''}>"

    @property
    def _as_parameter_(self) -> types.aclrtBinHandle:
        handle: types.aclrtBinHandle = self._handle.get()
        return handle

    def close(self) -> None:
        """Unload it. Idempotent. Work that still runs its kernels must be done. aclrtBinaryUnLoad."""
        self._handle.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels in it, as `binary[name]` takes them."""
        registered = [name for name, function in self._functions.items() if function.info not in self.object.kernels]
        return (*(kernel.name for kernel in self.object.kernels), *registered)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Kernel:
        """The kernel of this name; see `kernel`."""
        return self.kernel(name)

    def kernel(self, name: str, signature: Optional[SignatureLike] = None, *, route: str = "auto") -> Kernel:
        """A kernel in the binary.

        Parameters
        ----------
        name : str
            As in the source where the kernel is ``extern "C"``; an ELF symbol or a C++ name does as well.
        signature : str or sequence, optional
            What the kernel takes, such as ``"ptr ptr ptr u32"`` or a list of dtypes. With it, plain Python numbers are
            taken and checked. Without it, the kernels of operator packages are known to take pointers, by the roles
            that their metadata lists, and C++ kernels have their types in their names; of others (``extern "C"``), each
            argument must have a width of its own.
        route : str
            How arguments reach the library: ``"user"`` memory owned by the kernel, the ``"thread"``'s buffer,
            or ``"host"`` memory handed over at each launch (CANN 8.5). ``"auto"`` takes the first that works, in this
            order.

        Raises
        ------
        KernelNotFoundError
            Also a KeyError; it lists the kernels there are.

        Notes
        -----
        aclrtBinaryGetFunction, once for a binary and name.
        """
        if route not in ("auto", *_ROUTES):
            raise ValueError(f"route: {route!r} is none of auto, {', '.join(_ROUTES)}")
        info = self._find(name)
        function = self._functions.get(info.name)
        if function is None:
            value = types.aclrtFuncHandle()
            self.device._handle.call("aclrtBinaryGetFunction", self._handle.get(), info.name.encode(), value)
            function = self._keep(info, value)
        return Kernel(self, function, signature, route)

    def register(self, name: str, function: str, signature: Optional[SignatureLike] = None) -> Kernel:
        """An AI CPU kernel of a library that was loaded without a JSON (``cpu_mode=2``).

        Parameters
        ----------
        name : str
            What the kernel is called from now on: its operator type.
        function : str
            The function in the library that runs it.
        signature : str or sequence, optional
            As for `kernel`.

        Raises
        ------
        AclInvalidArgumentError
            When the binary holds no AI CPU kernels.

        Notes
        -----
        aclrtRegisterCpuFunc.
        """
        value = types.aclrtFuncHandle()
        self.device._handle.call("aclrtRegisterCpuFunc", self._handle.get(), function.encode(), name.encode(), value)
        return Kernel(self, self._keep(objfile.Kernel(name, (), "AICPU"), value), signature, "auto")

    def _keep(self, info: objfile.Kernel, value: types.aclrtFuncHandle) -> _Function:
        """The function behind a C handle; of two threads that come here at once, the first one's stays."""
        handle = Handle(f"kernel {info.name} of device {self.device.id}", value, None, self._handle)
        return self._functions.setdefault(info.name, _Function(self.device, info, handle))

    def _find(self, name: str) -> objfile.Kernel:
        if not isinstance(name, str):
            raise TypeError(f"name: the name of a kernel, not {type(name).__name__}")
        self._handle.get()
        if name in self._functions:
            return self._functions[name].info
        try:
            return self.object.kernel(name)
        except KeyError:
            pass
        names = self.names
        close = difflib.get_close_matches(name, names[:1000], 3)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        more = f" and {len(names) - 20} more" if len(names) > 20 else ""
        raise KernelNotFoundError(
            f"no kernel {name!r} in {_label(self.object)}.{hint} It has {', '.join(names[:20]) or 'none'}{more}."
        )


class Kernel:
    """A kernel of a binary. ``kernel[blocks, stream](*args)`` launches it.

    Made by ``binary[name]`` and `KernelBinary.kernel`. Threads may share it.
    """

    def __init__(
        self, binary: KernelBinary, function: _Function, signature: Optional[SignatureLike], route: str
    ) -> None:
        #: the binary it is in
        self.binary = binary
        #: the device it is on
        self.device = binary.device
        #: what the object file says about it: core type, argument sizes and roles, hidden slots
        self.info = function.info
        self._function = function
        self._route = route
        self._packer = Packer(self.info.name, _recorded_signature(self.info) if signature is None else signature)
        self._declared = signature is not None
        # layouts that were compared with the object file
        self._checked: set[Layout] = set()
        declared = self._packer.declared_layout
        if self._declared and declared is not None:
            self._check(declared, ())  # a wrong declaration shows at once, not at the first launch

    def __repr__(self) -> str:
        declared = self._packer.declared
        takes = "" if declared is None else f"({' '.join(p.text for p in declared)})"
        return f"<Kernel {self.name}{takes} of device {self.device.id}>"

    @property
    def name(self) -> str:
        """The name the library knows it by."""
        return self.info.name

    @property
    def _as_parameter_(self) -> types.aclrtFuncHandle:
        handle: types.aclrtFuncHandle = self._function.handle.get()
        return handle

    def __call__(self, *args: object) -> None:
        raise TypeError(f"{self.name}: on how many blocks? {self.name}[blocks, stream](...)")

    def __getitem__(self, where: Any) -> BoundKernel:
        """``kernel[blocks]``, ``kernel[blocks, stream]`` or ``kernel[blocks, stream, config]``; see `bind`."""
        if not isinstance(where, tuple):
            return self.bind(where)
        if not 1 <= len(where) <= 3:
            raise TypeError(f"{self.name}[blocks, stream, config] takes up to three, not {len(where)}")
        return self.bind(*where)

    def bind(
        self,
        blocks: int,
        stream: Optional[Stream] = None,
        config: Union[LaunchConfig, Mapping[str, Any], None] = None,
    ) -> BoundKernel:
        """The kernel with everything but the arguments decided; calling it launches.

        Parameters
        ----------
        blocks : int
            Number of blocks, 1 to 65535 (numBlocks, ``<<<blocks, ...>>>``).
        stream : Stream, optional
            The device's default stream where it is left out.
        config : LaunchConfig or mapping, optional
            Launch attributes.

        Raises
        ------
        ValueError
            For a number of blocks out of range (the library would cut it to 16 bits), or a stream of another device.
        """
        return BoundKernel(self, blocks, stream, config)

    def launch(
        self,
        *args: Any,
        blocks: int,
        stream: Optional[Stream] = None,
        config: Union[LaunchConfig, Mapping[str, Any], None] = None,
    ) -> None:
        """Launch it once: ``kernel.launch(x, y, z, blocks=8, stream=stream)``. See `bind` and `BoundKernel`."""
        BoundKernel(self, blocks, stream, config)(*args)

    # -- arguments ----------------------------------------------------------------------------------------------------

    def _pack(self, args: Sequence[Any]) -> Packed:
        """The packed arguments, checked against the object file and the device."""
        packed = self._packer.pack(args)
        if packed.layout not in self._checked:
            self._check(packed.layout, args)
            self._checked.add(packed.layout)
        here = self.device
        for value in args:
            if isinstance(value, DeviceBuffer) and value.device is not here and value.device.id != here.id:
                raise ValueError(
                    f"{self._packer.name_of(_position(value, args), args)}: the buffer belongs to device "
                    f"{value.device.id}, the kernel to device {here.id}; copy it with copy_to or through the host"
                )
        return packed

    def _check(self, layout: Layout, args: Sequence[Any]) -> None:
        """Compare a layout with the size of the argument block that the object file records."""
        info = self.info
        count = len(layout.parameters)
        known = info.user_arguments
        if known is not None and count != len(known):
            roles = [argument.role for argument in known]
            said = f" ({', '.join(roles)})" if set(roles) - {"general"} else ""
            raise TypeError(f"{self.name} takes {len(known)} arguments{said}, not {count}")
        places = self._function.places
        if places is not None:
            self._compare(places, layout, args)
        if not info.user_sizes or layout.size == info.user_sizes[0]:
            return
        expected = max(info.user_sizes)
        if layout.size in info.user_sizes:
            if not self._declared:
                warnings.warn(
                    f"{self.name} reads {expected} bytes of arguments and was given {layout.size}. That is right where "
                    f"the kernel declares the overflow status as its last argument, as the wrapper of AscendC does in "
                    f"builds up to CANN 8.5; otherwise the last argument is missing. A declared signature says that "
                    f"it is right: binary.kernel({self.name!r}, signature)",
                    RuntimeWarning,
                    stacklevel=4,
                )
            return
        takes = f"{self.name} takes {expected} bytes of arguments"
        if known is not None and 8 * len(known) == expected:
            takes = f"{self.name} takes {len(known)} arguments of 8 bytes each"
            for position, parameter in enumerate(layout.parameters):
                if parameter.size != 8:
                    raise TypeError(
                        f"{self._packer.name_of(position, args)}: {parameter.text} has {parameter.size} bytes; {takes}"
                    )
        for position, (parameter, offset) in enumerate(zip(layout.parameters, layout.offsets)):
            if offset + parameter.size > expected:
                raise TypeError(
                    f"{self._packer.name_of(position, args)}: {parameter.text} would lie at byte {offset}, but "
                    f"{takes}: too many arguments, or too wide ones before it"
                )
        raise TypeError(
            f"{takes}; these {count} make {layout.size}: something is missing after argument {count}, or too narrow"
        )

    def _compare(self, places: Sequence[tuple[int, int]], layout: Layout, args: Sequence[Any]) -> None:
        """Compare a layout with where the parameters lie, argument by argument."""
        count = len(layout.parameters)
        if count != len(places) and not (self.info.overflow is not False and count == len(places) - 1):
            sizes = ", ".join(str(size) for _, size in places) or "none"
            raise TypeError(f"{self.name} takes {len(places)} arguments (bytes: {sizes}), not {count}")
        for position, (parameter, offset, place) in enumerate(zip(layout.parameters, layout.offsets, places)):
            if (offset, parameter.size) != place:
                raise TypeError(
                    f"{self._packer.name_of(position, args)}: {parameter.text} has {parameter.size} bytes and would "
                    f"lie at byte {offset}; the kernel reads {place[1]} bytes at byte {place[0]}"
                )


def _recorded_signature(info: objfile.Kernel) -> Optional[SignatureLike]:
    """What the object says of a kernel's parameters, None where it leaves that open.

    The kernels of operator packages take pointers, which their metadata calls by their roles. A C++ name has the types.
    """
    known = info.user_arguments
    if known is not None and info.arguments is not None and info.arg_size == 8 * len(info.arguments):
        vague = any(argument.role == "general" or "unknown" in argument.role + argument.pointer for argument in known)
        if not vague:
            return [f"{argument.role}:ptr" for argument in known]
    codes = mangled.split(info.name)[1]
    words = None if codes is None else mangled.parameter_words(codes)
    for given in () if words is None else (words, words[1:] if info.ffts else words):  # CCE declares the FFTS address
        if info.arg_size is None or Layout(parse_signature(given)).size == info.user_sizes[0]:
            return given
    return None


def _position(value: object, args: Sequence[object]) -> int:
    return next(position for position, other in enumerate(args) if other is value)


class BoundKernel:
    """A kernel with blocks, stream and attributes decided: ``bound(*args)`` launches it.

    A launch only queues; ``stream.synchronize()`` waits. Arguments:

    - a `DeviceBuffer` is a pointer (and is kept alive until the stream has passed the launch);
    - a numpy scalar or ctypes value has its own width; a structured numpy scalar, a ctypes structure, a dataclass of
      such values and bytes go by value;
    - a plain Python number needs a kernel with a declared signature;
    - a `Placeholder` sends a small block of data along and is a pointer to it;
    - a `Workspace` is a pointer to memory that the launch allocates;
    - `In`, `Out` and `InOut` of a numpy array copy it to and from the device; such a launch waits for its stream.

    Raises
    ------
    TypeError
        For an argument of no or the wrong width, or the wrong number of them; it names the argument. Nothing was
        launched.
    ValueError
        For a number that does not fit, or a buffer of another device. Nothing was launched.
    ClosedError
        When a buffer, the stream, or the binary is closed.

    Notes
    -----
    aclrtLaunchKernelWithConfig; aclrtLaunchKernelWithHostArgs on the "host" route.
    """

    def __init__(
        self,
        kernel: Kernel,
        blocks: int,
        stream: Optional[Stream] = None,
        config: Union[LaunchConfig, Mapping[str, Any], None] = None,
    ) -> None:
        #: the kernel
        self.kernel = kernel
        #: number of blocks
        self.blocks = checked_blocks(blocks)
        if stream is None:
            stream = kernel.device.default_stream
        same_device("stream", kernel.device, stream, Stream)
        #: the stream
        self.stream = stream
        if config is not None and not isinstance(config, LaunchConfig):
            if not isinstance(config, Mapping):
                raise TypeError(
                    f"config: a LaunchConfig or a mapping, not {type(config).__name__}; the order is "
                    f"{kernel.name}[blocks, stream, config]"
                )
            config = LaunchConfig(**config)
        #: the launch attributes
        self.config = config
        self._c_config = None
        if config is not None:
            config._check_for(kernel)
            self._c_config = config._c_config()
        self._stream_handle = stream._handle

    def __repr__(self) -> str:
        return f"<{self.kernel.name}[{self.blocks}, {self.stream!r}]>"

    def __call__(self, *args: Any) -> None:
        if any(isinstance(value, MADE_AT_LAUNCH) for value in args):
            launch_with_buffers(self.stream, args, self.kernel._pack, self)
            return
        kernel = self.kernel
        stream = self._stream_handle
        kernel._function.launch(kernel._route, self.blocks, stream, self._c_config, kernel._pack(args))
        # after the launch: what is kept before it could be let go by another thread's wait. Not the bound kernel: it
        # holds the stream, which then could not be collected
        stream.keep(kernel, args)


def launch_with_buffers(
    stream: Stream, args: Sequence[Any], check: Callable[[Sequence[Any]], object], launch: Callable[..., None]
) -> None:
    """A launch with `In`, `Out`, `InOut` and `Workspace`: they get buffers, and the copies they ask for."""
    device = stream.device
    buffers: list[tuple[DeviceBuffer, Union[In, Out, InOut]]] = []
    ready = []
    for value in args:
        if isinstance(value, Workspace):
            value = device.allocate(value.nbytes)
        elif isinstance(value, _HOST_ARRAYS):
            buffers.append((device.empty_like(value.array), value))
            value = buffers[-1][0]
        ready.append(value)
    check(ready)  # the arguments are right before anything is copied
    for buffer, host in buffers:
        if host.reads:
            buffer.copy_from(host.array)
    launch(*ready)
    if not buffers:
        return
    stream.synchronize()
    for buffer, host in buffers:
        if host.writes:
            buffer.copy_to(host.array)


# -- launch attributes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaunchConfig:
    """Attributes of a launch. What is left out is as the library has it. Can be used for any number of launches.

    Parameters
    ----------
    schem_mode : {"normal", "batch"} or int
        In batch mode all blocks start together, which kernels need whose blocks wait for each other; it wants no more
        blocks than cores. Overrides what the binary says.
    dyn_ubuf_size : int
        Bytes of unified buffer for the kernel's own use, on Ascend 950: with what the compiler took (``kernel.info.
        ub_size``) up to 256 KiB, or 224 KiB for SIMT, whose cache has the rest.
    engine_type : {"aic", "aiv"} or int
        Which cores run it, on 310P.
    block_dim_offset : int
        Offset of the block number, on 310P, together with `engine_type`.
    block_task_prefetch : bool
        True keeps the hardware from fetching the task ahead of time.
    data_dump : bool
        Whether operator dump covers this launch.
    timeout : float
        Seconds after which the device gives the kernel up; 0 never does.
    timeout_us : int
        The same in microseconds, instead of `timeout`.

    Notes
    -----
    aclrtLaunchKernelCfg. Before CANN 8.5 only `schem_mode` exists. A launch with an attribute that its product or its
    CANN does not have is refused with a ValueError.
    """

    schem_mode: Union[str, int, None] = None
    dyn_ubuf_size: Optional[int] = None
    engine_type: Union[str, int, None] = None
    block_dim_offset: Optional[int] = None
    block_task_prefetch: Optional[bool] = None
    data_dump: Optional[bool] = None
    timeout: Optional[float] = None
    timeout_us: Optional[int] = None

    def __post_init__(self) -> None:
        if self.timeout is not None and self.timeout_us is not None:
            raise ValueError("timeout and timeout_us: the library takes one of them")
        # what is wrong shows here, not at the launch
        object.__setattr__(self, "_attributes", tuple(self._checked()))

    def _checked(self) -> Iterator[tuple[int, str, Any]]:
        """The attributes that were given: id, member of the union, value."""
        ids = constants.aclrtLaunchKernelAttrId
        if self.schem_mode is not None:
            mode = _choice("schem_mode", self.schem_mode, ("normal", "batch"))
            yield ids.ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE, "schemMode", mode
        if self.dyn_ubuf_size is not None:
            size = checked_number("dyn_ubuf_size", self.dyn_ubuf_size, 0, (1 << 32) - 1)
            yield ids.ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE, "dynUBufSize", size
        if self.engine_type is not None:
            engine = _choice("engine_type", self.engine_type, ("aic", "aiv"))
            yield ids.ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE, "engineType", engine
        if self.block_dim_offset is not None:
            offset = checked_number("block_dim_offset", self.block_dim_offset, 0, (1 << 32) - 1)
            yield ids.ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET, "blockDimOffset", offset
        if self.block_task_prefetch is not None:
            prefetch = _flag("block_task_prefetch", self.block_task_prefetch)
            yield ids.ACL_RT_LAUNCH_KERNEL_ATTR_BLOCK_TASK_PREFETCH, "isBlockTaskPrefetch", prefetch
        if self.data_dump is not None:
            yield ids.ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP, "isDataDump", _flag("data_dump", self.data_dump)
        microseconds = self.timeout_us
        if self.timeout is not None:
            seconds = self.timeout
            if isinstance(seconds, bool) or not isinstance(seconds, numbers.Real) or not 0 <= seconds < math.inf:
                raise ValueError(f"timeout: {seconds!r} is no number of seconds; 0 waits without an end")
            if seconds == int(seconds) and seconds <= 0xFFFF:
                yield ids.ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT, "timeout", int(seconds)
            else:
                microseconds = math.ceil(seconds * 1_000_000)
        if microseconds is not None:
            us = checked_number("timeout_us", microseconds, 0, (1 << 64) - 1)
            value = types.aclrtTimeoutUs(us & 0xFFFFFFFF, us >> 32)
            yield ids.ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US, "timeoutUs", value

    def _check_for(self, kernel: Kernel) -> None:
        """Refuse what the library would pass over without a word, and what it refuses without saying why."""
        soc, info, api = kernel.device.name, kernel.info, kernel.device._handle.api
        given = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        later = [name for name in given if name != "schem_mode"]
        if later and not api.has("aclrtBinaryLoadFromData"):
            raise ValueError(f"{later[0]} needs CANN 8.5; this is {api.version}, which has schem_mode alone")
        for name in ("engine_type", "block_dim_offset"):
            if name in given and not soc.startswith("Ascend310P"):
                raise ValueError(f"{name} is for 310P; this device is {soc}, whose library takes it for nothing")
        size, npu_arch = self.dyn_ubuf_size, npu_arch_of(soc)
        if not size or npu_arch is None:
            return
        if npu_arch != "dav-3510":
            raise ValueError(
                f"dyn_ubuf_size is for Ascend 950; this device is {soc}, whose library takes it for nothing"
            )
        simt = info.vector_type is not None and "SIMT" in info.vector_type
        own, room = info.ub_size or 0, (224 if simt else 256) << 10
        if info.vector_type is None:
            raise ValueError(
                f"dyn_ubuf_size: {info.name} says nothing of vector code, so that it gets no unified buffer"
            )
        if own + size > room:  # a multiple of the 128 to which the library rounds up the sum for SIMT
            raise ValueError(
                f"dyn_ubuf_size: {size} bytes and the {own} that {info.name} has itself are more than {room}"
            )

    def _c_config(self) -> Any:
        """The C structure; None without an attribute."""
        attributes: tuple[tuple[int, str, Any], ...] = self._attributes  # type: ignore[attr-defined]
        if not attributes:
            return None
        array = (types.aclrtLaunchKernelAttr * len(attributes))()
        for entry, (number, member, value) in zip(array, attributes):
            entry.id = number
            setattr(entry.value, member, value)
        config = types.aclrtLaunchKernelCfg(ctypes.addressof(array), len(attributes))
        config._keep = array  # C has only the address
        return config


def _choice(name: str, value: Union[str, int], words: tuple[str, ...]) -> int:
    if isinstance(value, str) and value in words:
        return words.index(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(words):
        return int(value)
    shown = ", ".join(f"{word!r} ({number})" for number, word in enumerate(words))
    raise ValueError(f"{name}: {value!r} is none of {shown}")


def _flag(name: str, value: Any) -> int:
    if value not in (True, False):
        raise TypeError(f"{name}: True or False, not {value!r}")
    return int(value)


def checked_blocks(blocks: Any) -> int:
    try:
        return checked_number("blocks", blocks, 1, 65535)
    except ValueError as error:
        why = " (the library would cut it to 16 bits, without a word)" if blocks > 65535 else ""
        raise ValueError(f"{error}{why}") from None


# -- where arguments lie -------------------------------------------------------------------------------------------


class _Function:
    """A function of a binary, once for all `Kernel` objects of its name: its handle and its argument memory."""

    def __init__(self, device: Device, info: objfile.Kernel, handle: Handle) -> None:
        self.device = device
        self.info = info
        self.handle = handle
        self._auto = "user"
        self._routes: dict[str, _Route] = {}
        #: offset and size of each argument that a caller gives, where the object says so
        self.places = None if info.parameters is None else self._user_places(info.parameters)

    def _user_places(self, places: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        """The parameters without the FFTS address; the library's word counts where it has one (CANN 9.1)."""
        api, function = self.device._handle.api, self.handle.get()
        if api.has("aclrtFunctionGetParamInfo"):
            count, offset, size = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
            api.aclrtFunctionGetParamCount(function, count)
            asked = []
            for index in range(count.value):
                api.aclrtFunctionGetParamInfo(function, index, offset, size)
                asked.append((offset.value, size.value))
            places = asked
        end = max((offset + size for offset, size in places), default=0)
        if self.info.ffts and -(-end // 8) * 8 == self.info.arg_size:  # the FFTS address is counted
            places = [(offset - 8, size) for offset, size in places[1:]]
        return places

    def launch(self, route: str, blocks: int, stream: StreamHandle, config: Any, packed: Packed) -> None:
        """Launch on a route; "auto" goes over to the thread's buffer for good where user memory is refused."""
        auto = route == "auto"
        try:
            self._on(self._auto if auto else route).launch(blocks, stream, config, packed)
        except _Refused as refusal:
            if not auto:
                raise refusal.error from None
            self._auto = "thread"
            self._on("thread").launch(blocks, stream, config, packed)

    def _on(self, route: str) -> _Route:
        found = self._routes.get(route)
        if found is None:
            found = self._routes.setdefault(route, _ROUTES[route](self))
        return found


class _Refused(Exception):
    """The library does not take the arguments of this kernel in this way."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Route:
    """One way to hand the arguments of a kernel to the library. Threads may use it at the same time."""

    def __init__(self, function: _Function) -> None:
        self.core = function.device._handle
        self.info = function.info
        self.function = function.handle
        self._with_config = self.core.api.unchecked.aclrtLaunchKernelWithConfig

    def launch(self, blocks: int, stream: StreamHandle, config: Any, packed: Packed) -> None:
        """Launch with these arguments."""
        raise NotImplementedError

    def _launch_handle(self, blocks: int, stream: StreamHandle, config: Any, args: types.aclrtArgsHandle) -> None:
        launch = self._with_config
        try:
            code = launch(self.function.ptr, blocks, stream.ptr, config, args, None)
        except ctypes.ArgumentError:
            # a closed handle refuses to become an argument; say so in its own words
            self.function.get()
            stream.get()
            raise
        if code:
            self.core.again(
                code,
                "aclrtLaunchKernelWithConfig",
                launch,
                *(self.function.get(), blocks, stream.get(), config, args, None),
            )

    def _append(self, args: types.aclrtArgsHandle, packed: Packed, pieces: Sequence[bytes]) -> list[int]:
        """Put the arguments into a fresh handle and finalize it; returns where the placeholders' data lie.

        Every append starts at a multiple of 8 whatever is appended, so that the kernel's own alignment is only kept
        where a whole piece goes in one append.
        """
        api, layout = self.core.api, packed.layout
        todo: list[tuple[int, Optional[bytes]]] = [
            *((piece.first, data) for piece, data in zip(layout.pieces, pieces)),
            *((position, None) for position in layout.placeholders),
        ]
        holders = []
        for _, data in sorted(todo, key=lambda entry: entry[0]):
            parameter = types.aclrtParamHandle()
            if data is None:
                api.aclrtKernelArgsAppendPlaceHolder(args, parameter)
                holders.append(parameter)
            else:
                api.aclrtKernelArgsAppend(args, data, len(data), parameter)
        addresses = []
        for parameter, content in zip(holders, packed.placeholders):
            area = ctypes.c_void_p()
            api.aclrtKernelArgsGetPlaceHolderBuffer(args, parameter, len(content), area)
            ctypes.memmove(area.value or 0, content, len(content))
            addresses.append(area.value or 0)
        api.aclrtKernelArgsFinalize(args)
        return addresses


class _Slot:
    """Argument memory of a kernel, ready for a launch: the values are written into it and nothing else is done."""

    __slots__ = ("args", "keep", "memory", "offsets", "placeholders")

    def __init__(
        self,
        args: types.aclrtArgsHandle,
        memory: bytearray,
        offsets: Sequence[int],
        placeholders: Sequence[int],
        keep: object,
    ) -> None:
        self.args = args
        self.memory = memory
        #: where each piece of the layout lies in the memory
        self.offsets = offsets
        #: addresses of the placeholders' data
        self.placeholders = placeholders
        self.keep = keep

    def write(self, packed: Packed) -> None:
        values = packed.values
        for piece, offset in zip(packed.layout.pieces, self.offsets):
            piece.packer.pack_into(self.memory, offset, *values[piece.first : piece.end])
        for address, content in zip(self.placeholders, packed.placeholders):
            ctypes.memmove(address, content, len(content))


class _UserMemory(_Route):
    """The kernel owns its argument memory (aclrtKernelArgsInitByUserMem): prepared once, then one C call a launch.

    The library keeps the hidden slots right. A thread takes a piece of memory for the time of a launch, so no two share
    one; the launch has copied it when it returns.
    """

    def __init__(self, function: _Function) -> None:
        super().__init__(function)
        self._free: dict[Any, list[_Slot]] = {}

    def launch(self, blocks: int, stream: StreamHandle, config: Any, packed: Packed) -> None:
        key: Any = packed.layout.key
        if packed.placeholders:
            key = (key, *map(len, packed.placeholders))
        free = self._free.get(key)
        if free is None:
            free = self._free.setdefault(key, [])
        try:
            slot = free.pop()
        except IndexError:
            slot = self._prepare(packed)
        try:
            slot.write(packed)
            self._launch_handle(blocks, stream, config, slot.args)
        finally:
            free.append(slot)

    def _prepare(self, packed: Packed) -> _Slot:
        core = self.core
        core.get()
        api, function = core.api, self.function.get()
        size = ctypes.c_size_t()
        with core.current():  # finalizing writes addresses of the current context
            api.aclrtKernelArgsGetHandleMemSize(function, size)
            handle_memory = bytearray(max(8, size.value))
            handle_pin = (ctypes.c_char * len(handle_memory)).from_buffer(handle_memory)
            args = types.aclrtArgsHandle(ctypes.addressof(handle_pin))
            _, needed = packed.layout.place([len(content) for content in packed.placeholders], lead=8)
            api.aclrtKernelArgsGetMemSize(function, needed, size)
            memory = bytearray(size.value)
            pin = (ctypes.c_char * len(memory)).from_buffer(memory)
            api.aclrtKernelArgsInitByUserMem(function, args, pin, len(memory))
            # the values of the first launch are not in there yet; something that can be found is
            marks = [os.urandom(piece.packer.size) for piece in packed.layout.pieces]
            try:
                placeholders = self._append(args, packed, marks)
            except AclInvalidArgumentError as error:
                raise _Refused(error) from None
        offsets = [memory.find(mark) for mark in marks]
        if -1 in offsets:
            raise _Refused(RuntimeError("the library does not keep the arguments in the memory it was given"))
        return _Slot(args, memory, offsets, placeholders, (handle_memory, handle_pin, pin))


class _ThreadBuffer(_Route):
    """The library's buffer of the calling thread (aclrtKernelArgsInit), filled and launched without a break.

    For kernels whose metadata allows no argument in user memory.
    """

    def launch(self, blocks: int, stream: StreamHandle, config: Any, packed: Packed) -> None:
        core = self.core
        core.get()
        args = types.aclrtArgsHandle()
        pieces = [piece.packer.pack(*packed.values[piece.first : piece.end]) for piece in packed.layout.pieces]
        with core.current():
            core.api.aclrtKernelArgsInit(self.function.get(), args)
            self._append(args, packed, pieces)
            self._launch_handle(blocks, stream, config, args)


class _HostMemory(_Route):
    """The block is handed over at the launch (aclrtLaunchKernelWithHostArgs); the hidden slots are ours to fill."""

    def __init__(self, function: _Function) -> None:
        super().__init__(function)
        self._launch = self.core.api.unchecked.aclrtLaunchKernelWithHostArgs
        self._lead = b""
        if self.info.ffts:
            address = ctypes.c_void_p()
            self.core.call("aclrtGetHardwareSyncAddr", address)
            self._lead = (address.value or 0).to_bytes(8, "little")
        self._overflow: Optional[DeviceBuffer] = None
        self._device = function.device

    def launch(self, blocks: int, stream: StreamHandle, config: Any, packed: Packed) -> None:
        layout, sizes = packed.layout, [len(content) for content in packed.placeholders]
        block = self._lead + packed.block
        trail = self._trail(layout.size)
        # 0 bytes are refused, for a kernel without parameters too
        block = block + trail or bytes(8)
        data: Any = block
        infos = None
        if sizes:
            # the library writes the pointers into it
            offsets, total = layout.place(sizes, len(self._lead), len(trail))
            buffer = bytearray(total)
            buffer[: len(block)] = block
            infos = (types.aclrtPlaceHolderInfo * len(sizes))()
            for info, position, offset, content in zip(infos, layout.placeholders, offsets, packed.placeholders):
                info.addrOffset = len(self._lead) + layout.offsets[position]
                info.dataOffset = offset
                buffer[offset : offset + len(content)] = content
            data = (ctypes.c_char * total).from_buffer(buffer)
        function, launch = self.function.get(), self._launch
        arguments = (function, blocks, stream.get(), config, data, len(data), infos, len(sizes))
        code = launch(*arguments)
        if code:
            self.core.again(code, "aclrtLaunchKernelWithHostArgs", launch, *arguments)

    def _trail(self, size: int) -> bytes:
        """The overflow pointer where the kernel declares one; there is no getter, so it gets 8 bytes of zeros."""
        info = self.info
        if info.arg_size is None or size + len(self._lead) + 8 != info.arg_size:
            return b""
        if self._overflow is None or self._overflow.closed:
            self._overflow = self._device.zeros(8, "uint8")
        return self._overflow.address.to_bytes(8, "little")


_ROUTES: dict[str, type[_Route]] = {"user": _UserMemory, "thread": _ThreadBuffer, "host": _HostMemory}


# -- loading -----------------------------------------------------------------------------------------------------------


def _inspect(source: Source, soc: str, cpu_mode: Optional[int] = None) -> tuple[objfile.KernelObject, objfile.Verdict]:
    """Read a file and decide how to load it on this SoC; KernelObjectError says why it cannot be."""
    try:
        content = objfile.read(source)
    except FileNotFoundError as error:
        text = (
            f"no such kernel object, seen from {os.getcwd()}; bisheng makes them (pyacl compile), for the "
            f"simulator pyacl.testing.make_kernel_object too"
        )
        raise FileNotFoundError(error.errno, text, error.filename) from None
    except OSError as error:
        text = f"{error.strerror}: a kernel object is a file that can be read, such as add_custom.o"
        raise type(error)(error.errno, text, error.filename) from None
    except objfile.KernelObjectError as error:
        path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "source"
        where = "" if str(path) in str(error) else f"{path}: "
        raise objfile.KernelObjectError(
            f"{where}{error}. Next step: give the whole .o that bisheng made; pyacl inspect shows what a file holds."
        ) from None
    if cpu_mode is not None:
        return content, _cpu_verdict(content, cpu_mode)
    verdict = content.verdict(soc)
    if not verdict.loadable and any(part.fits(soc) is not False for part in content.device_parts()):
        inner = objfile.read(content.extract(soc))
        inner_verdict = inner.verdict(soc)
        if inner_verdict.loadable:
            return inner, inner_verdict
    if not verdict.loadable:
        raise objfile.KernelObjectError(
            f"{_label(content)} cannot be loaded on {soc}: {'; '.join(verdict.reasons)}. {_sentence(verdict.advice)}"
        )
    return content, verdict


def _cpu_verdict(content: objfile.KernelObject, mode: int) -> objfile.Verdict:
    """How AI CPU kernels are loaded in the mode that was asked for."""
    if mode not in (0, 1, 2):
        raise ValueError(f"cpu_mode: {mode!r} is none of 0 (JSON alone), 1 (JSON and library), 2 (library alone)")
    declared = content.container is objfile.Container.AICPU
    if mode < 2 and (not declared or content.path is None):
        raise objfile.KernelObjectError(
            f"{_label(content)} is a {content.container}, and cpu_mode={mode} takes the path of a JSON that declares "
            f"AI CPU kernels (opInfo), or of the library (.so) beside it. Next step: give that path, or cpu_mode=2 "
            f"and register the kernels"
        )
    if mode == 2 and not (declared or content.container is objfile.Container.HOST):
        raise objfile.KernelObjectError(
            f"{_label(content)} is a {content.container}, and cpu_mode=2 takes a library (.so) of AI CPU kernels"
        )
    return objfile.Verdict(from_file=mode < 2, from_data=mode == 2, magic=None, socs=(), cpu_kernel_mode=mode)


def _load_from_file(
    device: Device, path: str, options: Mapping[int, Optional[int]], binary: types.aclrtBinHandle
) -> None:
    path = os.path.abspath(path)
    device._handle.call("aclrtBinaryLoadFromFile", os.fsencode(path), _load_options(options), binary)


def _load_options(wanted: Mapping[int, Optional[int]]) -> Optional[types.aclrtBinaryLoadOptions]:
    given = [(number, value) for number, value in wanted.items() if value is not None]
    if not given:
        return None
    array = (types.aclrtBinaryLoadOption * len(given))()
    for entry, (number, value) in zip(array, given):
        entry.type = number
        entry.value.rsv[0] = value  # all members of the union start there and have 32 bits
    options = types.aclrtBinaryLoadOptions(ctypes.addressof(array), len(given))
    options._keep = array
    return options


def _label(content: objfile.KernelObject) -> str:
    return content.path or "the kernel object"


def _sentence(advice: Sequence[str]) -> str:
    return f"Next step: {'; '.join(advice)}." if advice else ""
