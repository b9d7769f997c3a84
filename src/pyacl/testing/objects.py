"""Kernel objects made from nothing: minimal, valid, loadable by the real loader; for tests and people without bisheng.

What they hold is what the loader reads: the ELF tables, entry symbols, argument sizes and metadata. The code is filler:
an NPU that ran it would fault, the simulator runs the emulation that is registered under the kernel's name.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Union

from pyacl.objfile import metadata as meta
from pyacl.objfile.arch import ARCHITECTURES, npu_arch_of
from pyacl.objfile.container import AR_MAGIC
from pyacl.objfile.elf import (
    ELF_MAGIC,
    EM_ASCEND,
    EM_X86_64,
    ET_EXEC,
    ET_REL,
    HEADER_DTYPE,
    SECTION_DTYPE,
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHT_NOTE,
    SHT_PROGBITS,
    SHT_STRTAB,
    SHT_SYMTAB,
    STB_GLOBAL,
    STB_WEAK,
    STT_FUNC,
    STT_OBJECT,
    SYMBOL_DTYPE,
)
from pyacl.objfile.kernels import ARG_SIZE_SECTION, HALF_SUFFIXES, KERNEL_META_PREFIX
from pyacl.objfile.reader import BINARY_META_SECTION, STACK_SECTION

#: e_flags of a generation: vector code only, cube code too.
_FLAGS = {
    "dav-1001": (0x860000, 0x860000),
    "dav-2002": (0x8A0000, 0x8A0000),
    "dav-2201": (0x930000, 0x940000),
    "dav-3510": (0x990000, 0x9A0000),
}
_CORES = {"aicore": 1, "aic": 2, "aiv": 3, "mix": 4}
_MIX_TYPES = {(1, 2): 4, (2, 1): 5, (1, 1): 4, (1, 0): 4, (0, 1): 5}
_ROLES = {name: number for number, name in meta.ROLE_NAMES.items()}
_VECTOR_TYPES = {"none": 1, "simd": 2, "simt": 3, "both": 4}
_COMMENT = b"Linker: pyacl.testing\0pyacl.testing.make_kernel_object\0"


@dataclass(frozen=True)
class KernelSpec:
    """One kernel to put into an object; the fields are the arguments of :func:`make_kernel_object`."""

    name: str
    core: str = "aiv"
    ratio: tuple[int, int] | None = None
    args: int | Sequence[int] = 3
    arg_size: int | None = None
    roles: Sequence[str] | None = None
    tiling_key: int | None = None
    entry: int | bool | None = None
    ktype: int | bool | None = None
    sync: bool = False
    min_stack: int | None = None
    ub_size: int | None = None
    vector: str | None = None
    sched_mode: int | None = None
    deterministic: bool | None = None
    param_info: bool = False
    code_size: int = 256


def make_kernel_object(
    name: str | KernelSpec | Sequence[str | KernelSpec],
    arch: str = "dav-2201",
    core: str = "aiv",
    *,
    ratio: tuple[int, int] | None = None,
    args: int | Sequence[int] = 3,
    arg_size: int | None = None,
    roles: Sequence[str] | None = None,
    tiling_key: int | None = None,
    entry: int | bool | None = None,
    metadata: bool = True,
    ktype: int | bool | None = None,
    sync: bool = False,
    stack: int | None = 32768,
    min_stack: int | None = None,
    ub_size: int | None = None,
    vector: str | None = None,
    sched_mode: int | None = None,
    deterministic: bool | None = None,
    param_info: bool = False,
    implicit: Iterable[int] = (),
    debug: Iterable[str] = (),
    debug_buffer: int = 0,
    code_size: int = 256,
    data: bytes = b"",
    relocatable: bool = False,
) -> bytes:
    """Make a device object that `aclrtBinaryLoadFromFile` and `aclrtBinaryLoadFromData` take.

    Parameters
    ----------
    name : str, KernelSpec or a sequence of them
        The kernel's name, without the suffixes of halves. Several make an object with several kernels; strings take
        the other arguments, a :class:`KernelSpec` brings its own.
    arch : str
        A generation (``"dav-2201"``), a core (``"dav-c220-vec"``) or a SoC (``"Ascend910B3"``).
    core : str
        ``"aiv"``, ``"aic"`` or ``"mix"``; on Ascend 910 and 310P, whose cores do both, ``"aicore"`` and nothing else
        (the default becomes that).
    ratio : (int, int)
        Cube and vector cores in a block of a mixed kernel: (1, 2) by default, (1, 1), (2, 1), (1, 0) or (0, 1). A half
        whose number is 0 is left out.
    args : int or sequence of int
        How many 8-byte arguments the kernel declares, or the size of each in bytes, laid out as the kernel ABI does.
    arg_size : int
        Bytes of the argument block, where `args` should not be trusted.
    roles : sequence of str
        What each argument is: input, output, workspace, tiling, overflow, ... By default all are "general"; an empty
        sequence leaves the list out of the metadata. The FFTS argument of mixed kernels is added by itself.
    tiling_key : int
        Appended to the name (``name_7``), as operator kernels have it, and on Ascend 950 also in the metadata.
    entry : int or False
        The function entry in the metadata; False says that there is none.
    metadata : bool
        Whether there are `.ascend.meta.<kernel>` sections. Without them LoadFromFile needs a JSON beside the object:
        :func:`make_sidecar`.
    ktype : int or False
        Kernel type in the metadata; False leaves it out, as some compilers do.
    sync : bool
        The cores of a block synchronize.
    stack : int
        Bytes of stack, recorded for the binary (910B, 910_93); None leaves the record out.
    min_stack, ub_size, sched_mode, deterministic
        Metadata of the same names; see :class:`pyacl.objfile.Kernel`.
    param_info : bool
        Say in the metadata where each parameter lies, as the newest compilers do. That the hidden FFTS argument is
        counted there is an assumption: no such object has been seen.
    vector : str
        ``"simd"``, ``"simt"``, ``"both"`` or ``"none"`` (no vector function): Ascend 950.
    implicit : iterable of int
        Facilities that the binary asks the runtime for; 2 = FFTS address through a symbol, so that no argument is
        taken for it.
    debug, debug_buffer
        Debug options (printf, assert, timestamp, oom) and bytes of the debug buffer.
    code_size : int
        Bytes of filler per function, a multiple of 4.
    data : bytes
        Content of a `.data` section.
    relocatable : bool
        Make it an unlinked object, which no runtime loads.

    Returns
    -------
    bytes
        The whole file.

    Raises
    ------
    ValueError
        For a value that no object has; the message names it.
    """
    npu_arch = _npu_arch(arch)
    single_core = npu_arch in ("dav-1001", "dav-2002")
    default = KernelSpec(
        name="",
        core=core,
        ratio=ratio,
        args=args,
        arg_size=arg_size,
        roles=roles,
        tiling_key=tiling_key,
        entry=entry,
        ktype=ktype,
        sync=sync,
        min_stack=min_stack,
        ub_size=ub_size,
        vector=vector,
        sched_mode=sched_mode,
        deterministic=deterministic,
        param_info=param_info,
        code_size=code_size,
    )
    given: list[Any] = [name] if isinstance(name, str) or not isinstance(name, Sequence) else list(name)
    specs = [item if isinstance(item, KernelSpec) else replace(default, name=item) for item in given]
    if single_core:
        specs = [replace(spec, core="aicore") if spec.core == "aiv" else spec for spec in specs]
    for spec in specs:
        _check(spec, npu_arch)
    implicit, debug = frozenset(implicit), tuple(debug)

    functions = [function for spec in specs for function in _functions(spec, npu_arch, 2 in implicit)]
    text = b"".join(_filler(function.symbol, function.size) for function in functions)
    sections = [_Section(".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, text, 32)]
    symbols = []
    offset = 0
    for function in functions:
        symbols.append(_Symbol(function.symbol, STT_FUNC, STB_GLOBAL, ".text", offset, function.size))
        offset += function.size
    if npu_arch == "dav-3510" or implicit or debug:
        group = _binary_group(implicit, debug, debug_buffer)
        sections.append(_Section(BINARY_META_SECTION, SHT_PROGBITS, 0, group, 4))
    if data:
        sections.append(_Section(".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, data, 32))
    if stack is not None and npu_arch == "dav-2201":
        sections.append(_Section(STACK_SECTION, SHT_PROGBITS, 0, struct.pack("<Q", stack), 8))
    if metadata:
        for function in functions:
            content = _kernel_records(function, npu_arch)
            sections.append(_Section(KERNEL_META_PREFIX + function.symbol, SHT_NOTE, 0, content, 4))
    if not single_core:
        sizes = b"".join(struct.pack("<I", function.arg_size) for function in functions)
        sections.append(_Section(ARG_SIZE_SECTION, SHT_PROGBITS, 0, sizes, 4))
        symbols += [
            _Symbol(function.symbol + "__", STT_OBJECT, STB_WEAK, ARG_SIZE_SECTION, 4 * index, 4)
            for index, function in enumerate(functions)
        ]
    sections.append(_Section(".comment", SHT_PROGBITS, 0, _COMMENT, 1))
    has_cube = any(function.half == "aic" or function.spec.core == "aic" for function in functions)
    return _write_elf(ET_REL if relocatable else ET_EXEC, EM_ASCEND, _FLAGS[npu_arch][has_cube], sections, symbols)


def make_sidecar(magic: str = "RT_DEV_BINARY_MAGIC_ELF_AIVEC", **fields: Any) -> bytes:
    """Make the JSON that belongs beside an object without metadata.

    Parameters
    ----------
    magic : str
        RT_DEV_BINARY_MAGIC_ELF_AIVEC for vector kernels, RT_DEV_BINARY_MAGIC_ELF for the others.
    **fields
        More fields: ``intercoreSync=1``, ``debugOptions="printf"``, ...
    """
    return json.dumps({"magic": magic, **fields}, indent=1).encode()


def make_host_object(device: bytes, section: str = "__aicore_rel_binary", machine: int = EM_X86_64) -> bytes:
    """Make a host object that carries a device binary in a section, as bisheng does without `--cce-aicore-only`.

    Parameters
    ----------
    device : bytes
        The device binary (relocatable in `__aicore_rel_binary`, linked in `.aicore_binary`), or b"" for none.
    section : str
        Where to put it.
    machine : int
        e_machine of the host: 62 x86-64, 183 aarch64.
    """
    sections = [_Section(".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, b"\xc3" * 16, 16)]
    if device:
        sections.append(_Section(section, SHT_PROGBITS, SHF_ALLOC, device, 16))
    symbols = [_Symbol("main", STT_FUNC, STB_GLOBAL, ".text", 0, 16)]
    return _write_elf(ET_REL, machine, 0, sections, symbols)


def make_archive(members: dict[str, bytes]) -> bytes:
    """Make an ar archive (`.a`) of files by name, as GNU ar writes it."""
    long_names, out = b"", [AR_MAGIC]
    heads = []
    for name, content in members.items():
        encoded = name.encode() + b"/"
        if len(encoded) > 16:
            heads.append((f"/{len(long_names)}".encode(), content))
            long_names += encoded + b"\n"
        else:
            heads.append((encoded, content))
    if long_names:
        heads.insert(0, (b"//", long_names))
    for head, content in heads:
        out.append(b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (head, 0, 0, 0, 0o644, len(content)))
        out.append(content + b"\n" * (len(content) & 1))
    return b"".join(out)


class _Section(NamedTuple):
    name: str
    type: int
    flags: int
    content: bytes
    align: int
    link: int = 0
    info: int = 0
    entsize: int = 0


class _Symbol(NamedTuple):
    name: str
    type: int
    bind: int
    section: str
    value: int
    size: int


class _Function(NamedTuple):
    spec: KernelSpec
    symbol: str
    half: str | None
    ratio: tuple[int, int] | None
    #: The hidden FFTS argument comes first.
    ffts: bool
    arg_size: int
    size: int


_ArgSizes = Union[int, Sequence[int]]


def _npu_arch(arch: str) -> str:
    by_core = {known.core_arch: known.npu_arch for known in ARCHITECTURES.values()}
    by_core.update({"dav-c220-cube": "dav-2201", "dav-c310-cube": "dav-3510", "dav-m200-vec": "dav-2002"})
    found = npu_arch_of(arch) or by_core.get(arch, arch)
    if found not in _FLAGS:
        raise ValueError(f"arch: {arch!r} is not one of {', '.join(_FLAGS)}, a core of theirs or a SoC")
    return found


def _check(spec: KernelSpec, npu_arch: str) -> None:
    cores = ("aicore",) if npu_arch in ("dav-1001", "dav-2002") else ("aiv", "aic", "mix")
    if spec.core not in cores:
        raise ValueError(f"core: {spec.core!r} is not one of {', '.join(cores)} for {npu_arch}")
    if spec.ratio is not None and (spec.core != "mix" or spec.ratio not in _MIX_TYPES):
        raise ValueError(f"ratio: {spec.ratio} is for mixed kernels, one of {', '.join(map(str, _MIX_TYPES))}")
    if not isinstance(spec.name, str) or not spec.name or "\0" in spec.name:
        raise ValueError(f"name: {spec.name!r} is no symbol")
    counted = isinstance(spec.args, int) and spec.args >= 0
    listed = isinstance(spec.args, Sequence) and all(isinstance(size, int) and size > 0 for size in spec.args)
    if not counted and not listed:
        raise ValueError(f"args: {spec.args!r} is neither a number of 8-byte arguments nor the size of each in bytes")
    if spec.code_size % 4 or spec.code_size <= 0:
        raise ValueError(f"code_size: {spec.code_size} is not a positive multiple of 4")
    for role in spec.roles or ():
        if role not in _ROLES:
            raise ValueError(f"roles: {role!r} is not one of {', '.join(_ROLES)}")
    if spec.vector is not None and spec.vector not in _VECTOR_TYPES:
        raise ValueError(f"vector: {spec.vector!r} is not one of {', '.join(_VECTOR_TYPES)}")


def _functions(spec: KernelSpec, npu_arch: str, ffts_by_symbol: bool) -> list[_Function]:
    name = spec.name if spec.tiling_key is None else f"{spec.name}_{spec.tiling_key}"
    mixed = spec.core == "mix"
    ratio = (spec.ratio or (1, 2)) if mixed else None
    ffts = npu_arch == "dav-2201" and (mixed or spec.sync) and not ffts_by_symbol
    size = spec.arg_size if spec.arg_size is not None else 8 * ffts + _block_size(spec.args)
    if ratio is None:
        return [_Function(spec, name, None, None, ffts, size, spec.code_size)]
    return [
        _Function(spec, name + HALF_SUFFIXES[half], half, ratio, ffts, size, spec.code_size)
        for half, cores in zip(("aic", "aiv"), ratio)
        if cores
    ]


def _places(args: _ArgSizes, start: int = 0) -> list[tuple[int, int]]:
    """Offset and size of each argument in its block: natural alignment, at least 4 and at most 8."""
    places, end = [], start
    for size in [8] * args if isinstance(args, int) else args:
        natural = size & -size  # the largest power of two in the size, as for an array of such elements
        align = min(max(natural, 4), 8)
        offset = -(-end // align) * align
        places.append((offset, size))
        end = offset + size
    return places


def _block_size(args: _ArgSizes) -> int:
    """Bytes of an argument block, which is padded to 8 at the end."""
    end = max((offset + size for offset, size in _places(args)), default=0)
    return -(-end // 8) * 8


def _kernel_records(function: _Function, npu_arch: str) -> bytes:
    spec = function.spec
    records = []

    def add(type_: int, payload: bytes) -> None:
        records.append(struct.pack("<HH", type_, len(payload)) + payload)

    def number(type_: int, value: int | None) -> None:
        if value is not None:
            add(type_, struct.pack("<I", value))

    ktype = _CORES[spec.core] if function.ratio is None else _MIX_TYPES[function.ratio]
    if spec.ktype is None or spec.ktype is True:
        number(meta.KTYPE, ktype)
    elif spec.ktype is not False:
        number(meta.KTYPE, spec.ktype)
    if spec.sync:
        number(meta.SYNC, 1)
    if function.ratio is not None:
        add(meta.RATIO, struct.pack("<HH", *function.ratio))
    arguments = _argument_records(function)
    if arguments:
        add(meta.ARGUMENTS, arguments)
    number(meta.DETERMINISTIC, None if spec.deterministic is None else int(spec.deterministic))
    if spec.entry is not None and spec.entry is not True:
        flag = meta.ENTRY_DISABLED if spec.entry is False else 0
        add(meta.ENTRY, struct.pack("<BBHQ", flag, 0, 0, int(spec.entry)))
    elif spec.tiling_key is not None and npu_arch == "dav-3510":
        add(meta.ENTRY, struct.pack("<BBHQ", 0, 0, 0, spec.tiling_key))
    vector = spec.vector
    if vector is None and npu_arch == "dav-3510" and (spec.core == "aiv" or function.half == "aiv"):
        vector = "simd"
    number(meta.VECTOR_TYPE, None if vector is None else _VECTOR_TYPES[vector])
    number(meta.UB_SIZE, spec.ub_size)
    number(meta.MIN_STACK, spec.min_stack)
    number(meta.SCHED_MODE, spec.sched_mode)
    if spec.param_info:
        places = [(0, 8)] * function.ffts + _places(spec.args, 8 * function.ffts)
        add(meta.PARAM_SUMMARY, struct.pack("<IQ", len(places), sum(size for _, size in places)))
        for index, (offset, size) in enumerate(places):
            align = min(max(size & -size, 4), 8)
            add(meta.PARAM_INFO, struct.pack("<IIIIHHIIII", index, index, offset, size, align, 0, 0, 0, 0, 0))
    return b"".join(records)


def _argument_records(function: _Function) -> bytes:
    """TLV 4: big-endian, one record of 8-byte words for each argument."""
    spec = function.spec
    roles = spec.roles
    if roles is None:
        roles = ["general"] * (spec.args if isinstance(spec.args, int) else len(spec.args))
    if not roles:
        return b""
    if function.ffts:
        roles = ["ffts", *roles]
    out = []
    for role in roles:
        words = [1 << 16 | _ROLES[role]]
        if role in ("input", "output"):
            words.append(-1)  # depends on the shape
        out.append(struct.pack(f">HH{len(words)}q", 5, len(words), *words))
    return b"".join(out)


def _binary_group(implicit: frozenset[int], debug: Sequence[str], debug_buffer: int) -> bytes:
    bits = {name: bit for bit, name in meta.DEBUG_BITS.items()}
    unknown = [name for name in debug if name not in bits]
    if unknown:
        raise ValueError(f"debug: {unknown[0]!r} is not one of {', '.join(bits)}")
    group = struct.pack("<HHI", meta.VERSION, 4, 1)
    group += struct.pack("<HHII", meta.DEBUG, 8, debug_buffer, sum(bits[name] for name in set(debug)))
    group += struct.pack("<HHHH", meta.DYNAMIC_PARAM, 4, 0, 0)
    group += struct.pack("<HHHH", meta.OPTIONAL_IO, 4, 1, 1)
    for facility in sorted(implicit):
        group += struct.pack("<HHI", meta.IMPLICIT, 4, facility)
    return group


def _filler(symbol: str, size: int) -> bytes:
    """Bytes that look like code, the same for the same symbol."""
    return hashlib.shake_256(symbol.encode()).digest(size)


def _write_elf(type_: int, machine: int, flags: int, sections: Sequence[_Section], symbols: Sequence[_Symbol]) -> bytes:
    """Lay out an ELF64 file: header, program header, contents, section headers."""
    numbers = {section.name: number for number, section in enumerate(sections, 1)}
    symbol_names = _Strings()
    table = [struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)]
    for symbol in symbols:
        info = symbol.bind << 4 | symbol.type
        table.append(
            struct.pack(
                "<IBBHQQ",
                symbol_names.add(symbol.name),
                info,
                0,
                numbers[symbol.section],
                symbol.value,
                symbol.size,
            )
        )
    section_names = _Strings()
    count = len(sections)
    tables = [
        _Section(".symtab", SHT_SYMTAB, 0, b"".join(table), 8, count + 3, 1, SYMBOL_DTYPE.itemsize),
        _Section(".shstrtab", SHT_STRTAB, 0, b"", 1),
        _Section(".strtab", SHT_STRTAB, 0, bytes(symbol_names), 1),
    ]
    everything = [*sections, *tables]
    name_offsets = [section_names.add(section.name) for section in everything]

    # A segment for each allocated section; an unlinked object has none.
    loads = [number for number, section in enumerate(everything) if section.flags & SHF_ALLOC]
    if type_ == ET_REL:
        loads = []
    out = bytearray(HEADER_DTYPE.itemsize + 56 * len(loads))
    headers = [bytes(SECTION_DTYPE.itemsize)]
    segments = []
    image_start = None
    for number, (section, name) in enumerate(zip(everything, name_offsets)):
        content = bytes(section_names) if section.name == ".shstrtab" else section.content
        out += bytes(-len(out) % section.align)
        offset, size, address = len(out), len(content), 0
        if number in loads:
            # Addresses are offsets in the image that goes to the device, which starts with the text.
            image_start = offset if image_start is None else image_start
            address = offset - image_start
            access = 5 if section.flags & SHF_EXECINSTR else 6
            segments.append(struct.pack("<IIQQQQQQ", 1, access, offset, address, address, size, size, section.align))
        headers.append(
            struct.pack(
                "<IIQQQQIIQQ",
                name,
                section.type,
                section.flags,
                address,
                offset,
                size,
                section.link,
                section.info,
                section.align,
                section.entsize,
            )
        )
        out += content
    out += bytes(-len(out) % 8)
    shoff = len(out)
    out += b"".join(headers)
    out[: HEADER_DTYPE.itemsize] = struct.pack(
        "<4sBBBB8xHHIQQQIHHHHHH",
        ELF_MAGIC,
        2,  # 64-bit
        1,  # little-endian
        1,
        0,
        type_,
        machine,
        1,
        0,
        HEADER_DTYPE.itemsize if loads else 0,
        shoff,
        flags,
        HEADER_DTYPE.itemsize,
        56 if loads else 0,
        len(loads),
        SECTION_DTYPE.itemsize,
        len(headers),
        count + 2,
    )
    out[HEADER_DTYPE.itemsize : HEADER_DTYPE.itemsize + 56 * len(loads)] = b"".join(segments)
    return bytes(out)


class _Strings:
    """A string table under construction."""

    def __init__(self) -> None:
        self._data = bytearray(b"\0")

    def add(self, text: str) -> int:
        offset = len(self._data)
        self._data += text.encode() + b"\0"
        return offset

    def __bytes__(self) -> bytes:
        return bytes(self._data)
