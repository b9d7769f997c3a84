"""Kernels of a device binary: which symbols are kernels, under which name they register, what they need at a launch.

Three names must be told apart. A kernel is *compiled* to one ELF symbol, or to two for a mixed kernel, one per half
(`add_0_mix_aic`, `add_0_mix_aiv`). It is *registered*, and found by `aclrtBinaryGetFunction`, under the symbol without
that suffix (`add_0`). And a C++ symbol *reads* better demangled, which the runtime never does.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from pyacl.objfile.arch import VECTOR_FLAGS, Architecture
from pyacl.objfile.elf import (
    NAME_LIMIT,
    SHT_NOTE,
    SHT_PROGBITS,
    STB_GLOBAL,
    STT_FUNC,
    STT_OBJECT,
    STV_HIDDEN,
    Elf,
    KernelObjectError,
    Section,
    Symbol,
)
from pyacl.objfile.metadata import (
    ENTRY_DISABLED,
    SCHED_MODE_NAMES,
    VECTOR_TYPE_NAMES,
    Argument,
    BinaryMeta,
    KernelMeta,
    kernel_meta,
)
from pyacl.objfile.sidecar import Sidecar

ARG_SIZE_SECTION = "__CCE_KernelArgSize"
KERNEL_META_PREFIX = ".ascend.meta."
#: The runtime keeps the size of a kernel's metadata in 16 bits.
KERNEL_META_LIMIT = 0xFFFF
HALF_SUFFIXES = {"aic": "_mix_aic", "aiv": "_mix_aiv"}

#: Parameters of a kernel for which the runtime knows no number.
PARAMETER_LIMIT = 128

_U64_MAX = (1 << 64) - 1
_GLOBAL_MEMORY = re.compile(r"U3AS1(?!\d)")
#: What the operator compiler calls its kernels: operator, hash, tiling key. On Ascend 910B and later they declare no
#: overflow pointer (so it is in all 4,816 kernels of the packages that `tests/support/kernels.py` names).
_OPERATOR_KERNEL = re.compile(r"\w+_[0-9a-f]{32}_\d+(_mix_ai[cv])?")
_CORES = {1: "AICORE", 2: "AIC", 3: "AIV", 4: "MIX", 5: "MIX", 6: "AIC", 7: "AIV"}


@dataclass(frozen=True)
class Entry:
    """One ELF symbol at which a core starts: a whole kernel, or the cube or vector half of a mixed one."""

    symbol: str
    #: Bytes from the start of the device image.
    offset: int
    size: int
    #: Bytes of the argument block the code reads, hidden slots included; None for Ascend 910 and 310P.
    arg_size: int | None
    #: None without a metadata section for this symbol.
    meta: KernelMeta | None

    @property
    def half(self) -> str | None:
        """ "aic" or "aiv" for half of a mixed kernel, else None."""
        for half, suffix in HALF_SUFFIXES.items():
            if self.symbol.endswith(suffix):
                return half
        return None


@dataclass(frozen=True)
class Kernel:
    """One function as `aclrtBinaryGetFunction` knows it."""

    name: str
    #: Its ELF symbols: one, or the cube and the vector half. Empty for an AI CPU kernel.
    halves: tuple[Entry, ...]
    #: AICORE (one kind of core: 910, 310P), AIC (cube), AIV (vector), MIX, or AICPU.
    core: str
    #: ``(cube cores, vector cores)`` that work together in one block of a mixed kernel.
    ratio: tuple[int, int] | None = None
    #: What `aclrtBinaryGetFunctionByEntry` takes; None when there is none.
    tiling_key: int | None = None
    #: Bytes of the argument block, hidden slots included; None when the object does not say.
    arg_size: int | None = None
    #: In order, hidden ones included; None when the object does not say.
    arguments: tuple[Argument, ...] | None = None
    #: ``(offset, size)`` in bytes of each parameter in the argument block, hidden ones included; None when the object
    #: does not say (only the newest compilers do).
    parameters: tuple[tuple[int, int], ...] | None = None
    #: The runtime puts the FFTS address in front of the arguments.
    ffts: bool = False
    #: Bytes of stack a core needs, as far as the object says.
    min_stack: int | None = None
    #: Bytes of the unified buffer that the compiler took for itself (Ascend 950).
    ub_size: int | None = None
    #: none, SIMD, SIMT, "SIMD and SIMT"; None when the object does not say (before Ascend 950: SIMD).
    vector_type: str | None = None
    #: normal or batch; None when the object does not say.
    sched_mode: str | None = None
    #: Whether the cores of a block synchronize with each other.
    sync: bool = False
    deterministic: bool | None = None
    #: How many appends `aclrtKernelArgsInitByUserMem` makes room for: 128, the number of arguments where the metadata
    #: lists them, and 0 where there is metadata without a list (then only `aclrtKernelArgsInit` works).
    parameter_limit: int = 128

    @property
    def demangled(self) -> str:
        """The name as C++ would write it, where it is a C++ name and a demangler is installed."""
        return demangle(self.name)

    @property
    def user_arguments(self) -> tuple[Argument, ...] | None:
        """The arguments a caller passes, without the hidden ones; None when the object does not say."""
        if self.arguments is None:
            return None
        return tuple(argument for argument in self.arguments if not argument.hidden)

    @property
    def overflow(self) -> bool | None:
        """Whether the kernel declares the trailing overflow-status pointer; None when that cannot be seen."""
        if self.arguments is not None:
            return any(argument.role == "overflow" for argument in self.arguments)
        if self.arg_size is not None and _OPERATOR_KERNEL.fullmatch(self.name):
            return False
        return None if self.halves else False

    @property
    def user_sizes(self) -> tuple[int, ...]:
        """The sizes, in bytes, that a caller's packed arguments may have; () when the object does not say.

        The argument block without the FFTS address; and 8 less, where the kernel may declare the overflow pointer.
        """
        if self.arg_size is None:
            return ()
        whole = self.arg_size - (8 if self.ffts else 0)
        sizes = {True: (whole - 8,), False: (whole,), None: (whole, whole - 8)}[self.overflow]
        return tuple(size for size in sizes if size >= 0)


@dataclass(frozen=True)
class Code:
    """What the symbol table and the metadata of a device binary say, before names are merged."""

    entries: tuple[Entry, ...]
    #: All functions the runtime takes for kernels: more than `entries` where device utilities are exported.
    functions: tuple[str, ...]
    #: Kernel metadata by symbol.
    meta: dict[str, KernelMeta]

    @property
    def meta_complete(self) -> bool:
        """As many metadata sections as functions, which is how the runtime decides to believe them."""
        return bool(self.functions) and len(self.meta) == len(self.functions)


def read_code(elf: Elf) -> Code:
    """Collect the functions, kernels and their metadata of a device binary."""
    symbols = elf.symbols(STT_FUNC, STT_OBJECT)
    functions = [symbol for symbol in symbols if _is_function(symbol)]
    meta = _all_kernel_meta(elf)
    # A linked object has one such section, a relocatable one has one for each kernel.
    sections = {section.number: section for section in elf.sections if section.name == ARG_SIZE_SECTION}
    sizes = _arg_sizes(elf, sections, symbols)
    kernels = [symbol for symbol in functions if symbol.name in sizes] if sections else functions
    entries = tuple(
        Entry(symbol.name, symbol.value, symbol.size, sizes.get(symbol.name), meta.get(symbol.name))
        for symbol in kernels
    )
    return Code(entries, tuple(symbol.name for symbol in functions), meta)


def registered_name(symbol: str, ktype: int | None) -> str:
    """Return the name under which a symbol registers: the half's suffix goes, wherever it last occurs.

    A pure cube or vector kernel (by its metadata) keeps its name as it is.
    """
    if ktype in (2, 3):
        return symbol
    suffixes = {6: ("_mix_aic",), 7: ("_mix_aiv",)}.get(ktype or 0, ("_mix_aic", "_mix_aiv"))
    stripped = symbol
    for suffix in suffixes:
        at = stripped.rfind(suffix)
        if at >= 0:
            stripped = stripped[:at] + stripped[at + len(suffix) :]
            # A mixed kernel's metadata names one half; only names without it are searched for both suffixes.
            if ktype in (4, 5):
                break
    return stripped


def halves_stay_apart(code: Code, architecture: Architecture | None) -> bool:
    """Whether every half of a mixed kernel registers by itself, with its suffix and as a pure kernel.

    So it is on Ascend 950 when the metadata has no kernel type: the MAGIC that loads such an object fills in a pure
    type, and pure kernels keep their names. (Read in the runtime's source; no device has confirmed it.)
    """
    return (
        architecture is not None
        and architecture.npu_arch == "dav-3510"
        and any(entry.meta is not None and entry.meta.ktype is None for entry in code.entries)
    )


def tiling_key(name: str, meta: KernelMeta | None) -> int | None:
    """Return the entry number of a registered name: FUNCTION_ENTRY, else the digits after the last underscore."""
    if meta is not None and meta.entry is not None:
        flag, entry = meta.entry
        if flag == 0:
            return entry
        if flag == ENTRY_DISABLED:
            return None
    digits = name.rsplit("_", 1)[-1]
    # 20 digits hold every u64; more than that is never one (and costs time to convert).
    if not digits or not digits.isascii() or not digits.isdigit() or len(digits.lstrip("0")) > 20:
        return None
    key = int(digits)
    return key if key <= _U64_MAX else None


def merge(code: Code, architecture: Architecture | None, binary: BinaryMeta, sidecar: Sidecar) -> tuple[Kernel, ...]:
    """Merge halves into kernels, in the order of the symbol table."""
    apart = halves_stay_apart(code, architecture)
    halves: dict[str, list[Entry]] = {}
    for entry in code.entries:
        ktype = entry.meta.ktype if entry.meta is not None and code.meta_complete else None
        name = entry.symbol if apart else registered_name(entry.symbol, ktype)
        halves.setdefault(name, []).append(entry)
    return tuple(_kernel(name, tuple(entries), architecture, binary, sidecar) for name, entries in halves.items())


def demangle(name: str) -> str:
    """Return a C++ symbol as C++ writes it; anything else, and without the `itanium-demangler` package, unchanged."""
    if not name.startswith("_Z"):
        return name
    try:
        from itanium_demangler import parse  # type: ignore[import-untyped]
    except ImportError:
        return name
    # bisheng marks pointers into device memory with an address space, which the demangler does not know; volatile has
    # the same place in the grammar
    known = _GLOBAL_MEMORY.sub("V", name)
    try:
        tree = parse(known)
        if tree is None:
            return name
        # of several qualifiers the demangler gives any order
        text = str(tree).replace("const volatile", "volatile const")
        return text if known == name else text.replace("volatile", "__gm__")
    except (RecursionError, NotImplementedError, ValueError, LookupError, TypeError, AttributeError):
        return name  # a name the demangler does not know


def _kernel(
    name: str, halves: tuple[Entry, ...], architecture: Architecture | None, binary: BinaryMeta, sidecar: Sidecar
) -> Kernel:
    metas = [half.meta for half in halves if half.meta is not None]
    first = metas[0] if metas else None
    ratio = next((meta.ratio for meta in metas if meta.ratio is not None), None)
    core = _core(halves, architecture, sidecar)
    sync = sidecar.inter_core_sync or any(meta.sync for meta in metas)
    vector_type = next((meta.vector_type for meta in metas if meta.vector_type), None)
    sched_mode = next((meta.sched_mode for meta in metas if meta.sched_mode is not None), None)
    ffts = (
        architecture is not None
        and architecture.npu_arch == "dav-2201"
        and 2 not in binary.implicit_seen
        and (sync or core == "MIX" or any(half.half for half in halves))
    )
    return Kernel(
        name=name,
        halves=halves,
        core=core,
        ratio=(ratio or sidecar.ratio) if core == "MIX" else None,
        tiling_key=tiling_key(name, first),
        arg_size=next((half.arg_size for half in halves if half.arg_size is not None), None),
        arguments=next((meta.arguments for meta in metas if meta.arguments is not None), None),
        parameters=next((meta.parameters for meta in metas if meta.parameters is not None), None),
        ffts=ffts,
        min_stack=max((meta.min_stack for meta in metas if meta.min_stack is not None), default=None),
        ub_size=next((meta.ub_size for meta in reversed(metas) if meta.ub_size is not None), None),
        vector_type=None if vector_type is None else VECTOR_TYPE_NAMES.get(vector_type, f"unknown ({vector_type})"),
        sched_mode=None if sched_mode is None else SCHED_MODE_NAMES.get(sched_mode, f"unknown ({sched_mode})"),
        sync=sync,
        deterministic=next((meta.deterministic for meta in metas if meta.deterministic is not None), None),
        parameter_limit=_parameter_limit(halves[0].meta, architecture),
    )


def _parameter_limit(meta: KernelMeta | None, architecture: Architecture | None) -> int:
    # Metadata without a type is ignored, except on Ascend 950, where MAGIC fills the type in.
    if meta is None or (meta.ktype is None and (architecture is None or architecture.npu_arch != "dav-3510")):
        return PARAMETER_LIMIT
    return 0 if meta.arguments is None else len(meta.arguments)


def _core(halves: tuple[Entry, ...], architecture: Architecture | None, sidecar: Sidecar) -> str:
    for half in halves:
        if half.meta is not None and half.meta.ktype in _CORES:
            return _CORES[half.meta.ktype]
    if any(half.half for half in halves):
        return "MIX"
    single_core = architecture is not None and architecture.npu_arch in ("dav-1001", "dav-2002")
    named = {"VectorCore": "AIV", "AiCore": "AICORE" if single_core else "AIC", "CubeCore": "AIC", "MIX": "MIX"}
    if sidecar.core_type in named:
        return named[sidecar.core_type]
    if architecture is None or single_core:
        return "AICORE"
    return "AIV" if architecture.flags in VECTOR_FLAGS else "AIC"


def _is_function(symbol: Symbol) -> bool:
    """The runtime's own test of what a kernel is."""
    return (
        symbol.type == STT_FUNC
        and symbol.bind == STB_GLOBAL
        and symbol.visibility != STV_HIDDEN
        and 0 < len(symbol.name) < NAME_LIMIT
    )


def _arg_sizes(elf: Elf, sections: dict[int, Section], symbols: list[Symbol]) -> dict[str, int]:
    """Return bytes of the argument block by kernel symbol: a u32 that the object symbol `<kernel>__` points at."""
    sizes = {}
    for symbol in symbols:
        section = sections.get(symbol.section)
        if section is None or symbol.type != STT_OBJECT or not symbol.name.endswith("__"):
            continue
        at = symbol.value - section.addr
        if not section.stored or not 0 <= at <= section.size - 4:
            raise KernelObjectError(
                f"the argument size of {symbol.name[:-2][:80]!r} should lie at byte {at} of {ARG_SIZE_SECTION}, "
                f"which has {section.size} bytes"
            )
        sizes[symbol.name[:-2]] = struct.unpack_from("<I", elf.data, section.offset + at)[0]
    return sizes


def _all_kernel_meta(elf: Elf) -> dict[str, KernelMeta]:
    meta = {}
    budget = len(elf.data)
    for section in elf.sections:
        if section.type not in (SHT_PROGBITS, SHT_NOTE) or not section.name.startswith(KERNEL_META_PREFIX):
            continue
        symbol = section.name[len(KERNEL_META_PREFIX) :]
        if not 0 < len(symbol) < NAME_LIMIT:
            continue
        budget -= section.size
        if section.size > KERNEL_META_LIMIT or budget < 0:
            raise KernelObjectError(f"the metadata of {symbol[:80]!r} is too large or overlaps; the file is damaged")
        meta[symbol] = kernel_meta(elf.content(section))
    return meta
