"""`read`: from a path, bytes or a file object to a :class:`KernelObject`."""

from __future__ import annotations

import difflib
import hashlib
import io
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, BinaryIO, Union

from pyacl.objfile.arch import ARCHITECTURES, SOCS, Architecture, npu_arch_of
from pyacl.objfile.container import AR_MAGIC, Container, Piece, archive_members, classify, embedded
from pyacl.objfile.elf import EM_386, EM_AARCH64, EM_ASCEND, EM_X86_64, SHF_ALLOC, Elf, KernelObjectError, is_elf
from pyacl.objfile.kernels import Code, Entry, Kernel, merge, read_code
from pyacl.objfile.mangled import split
from pyacl.objfile.metadata import IMPLICIT_NAMES, BinaryMeta, binary_meta
from pyacl.objfile.sidecar import Sidecar, parse_sidecar
from pyacl.objfile.verdict import Verdict, judge

Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, BinaryIO]
SidecarSource = Union[str, "os.PathLike[str]", bytes, Mapping[str, Any], None]

BINARY_META_SECTION = ".ascend.meta"
BINARY_META_LIMIT = 1 << 20
#: A file of more bytes is none that holds kernels.
SIZE_LIMIT = 1 << 32
#: So much of a file shows whether it can be one.
_HEAD = 64
STACK_SECTION = ".ascend.stack.size.record"
#: The stack sizes the runtime takes from that section.
_STACK_SIZES = (16384, 32768)

_MACHINES = {EM_386: "x86", EM_X86_64: "x86-64", EM_AARCH64: "aarch64", EM_ASCEND: "Ascend"}
#: Stands for "look beside the file".
_BESIDE = object()


@dataclass(frozen=True)
class KernelObject:
    """Everything that can be known about a kernel file without loading it."""

    #: Where it came from; None for bytes.
    path: str | None
    container: Container
    data: bytes = field(repr=False)
    #: ELF header values; 0 for an archive.
    type: int = 0
    machine: int = 0
    flags: int = 0
    #: Section names in file order, without the null section.
    sections: tuple[str, ...] = ()
    #: Symbols and their metadata, unmerged.
    code: Code = field(default=Code((), (), {}), repr=False)
    #: What `aclrtBinaryGetFunction` can find, halves merged.
    kernels: tuple[Kernel, ...] = ()
    binary_meta: BinaryMeta = BinaryMeta()
    #: Values of `.ascend.stack.size.record`, one per linked object.
    stack_records: tuple[int, ...] = ()
    #: Who compiled and linked it, and when.
    comment: tuple[str, ...] = ()
    #: The part of the file that is copied to the device: (offset, bytes).
    image: tuple[int, int] = (0, 0)
    #: The JSON beside it; None when there is none.
    sidecar: Sidecar | None = None
    #: For AI CPU kernels, the CPU_KERNEL_MODE that loads them from a file: 1 JSON and library, 0 the JSON alone.
    cpu_kernel_mode: int | None = None
    #: Files inside: members of an archive, device binaries inside a host file.
    parts: tuple[KernelObject, ...] = ()
    #: For a part, where in the file it lies.
    origin: str | None = None
    #: Things that could not be read inside and were passed over.
    notes: tuple[str, ...] = ()

    @property
    def architecture(self) -> Architecture | None:
        """The architecture it was compiled for; None for host files and unknown flags."""
        return ARCHITECTURES.get(self.flags) if self.machine == EM_ASCEND else None

    @property
    def socs(self) -> tuple[str, ...]:
        """The SoCs that run it, as `aclrtGetSocName` names them. 910B and 910_93 share their binaries."""
        return () if self.architecture is None else SOCS[self.architecture.npu_arch]

    def fits(self, soc: str) -> bool | None:
        """Whether a SoC runs it; None when the object or the SoC is of an unknown kind."""
        target = npu_arch_of(soc)
        if self.architecture is None or target is None:
            return None
        return target == self.architecture.npu_arch

    @property
    def machine_name(self) -> str:
        """The machine of the ELF header: Ascend, x86-64, aarch64, ..."""
        return _MACHINES.get(self.machine, f"machine {self.machine:#x}")

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The ELF symbols that are kernels or halves of kernels."""
        return self.code.entries

    @property
    def meta_complete(self) -> bool:
        """Whether the runtime takes the kernels' types from the object's own metadata."""
        return self.code.meta_complete

    @property
    def stack_size(self) -> int | None:
        """Bytes of stack that the runtime takes from the object: 16 or 32 KiB, said by all parts alike; else None."""
        values = set(self.stack_records)
        return values.pop() if len(values) == 1 and values <= set(_STACK_SIZES) else None

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the whole file, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def sidecar_name(self) -> str:
        """The name of the JSON that the runtime looks for."""
        return "a .json of the same name" if self.path is None else os.path.basename(sidecar_path(self.path))

    def kernel(self, name: str) -> Kernel:
        """Return a kernel by its registered name, by an ELF symbol of it, or by its demangled name.

        Raises
        ------
        KeyError
            There is none; the message names those there are, the likeliest first.
        """
        for kernel in self.kernels:
            if name == kernel.name or any(name == half.symbol for half in kernel.halves):
                return kernel
        known = [kernel.name for kernel in self.kernels]
        named = [
            kernel
            for kernel in self.kernels
            if name in (split(kernel.name)[0], kernel.demangled, kernel.demangled.split("(")[0])
        ]
        if len(named) == 1:
            return named[0]
        close = difflib.get_close_matches(name, known[:1000], 3)
        hint = f"did you mean {', '.join(close)}?" if close else f"there is {', '.join(known[:10]) or 'none'}"
        raise KeyError(f"no kernel {name!r} in {self.path or 'this object'}; {hint}")

    def verdict(self, soc: str | None = None) -> Verdict:
        """Say whether the runtime will load it, and if not, why and what to do.

        Parameters
        ----------
        soc : str, optional
            The SoC to load it on, as `aclrtGetSocName` names it. By default the SoCs it was compiled for.
        """
        return judge(self, soc)

    def device_parts(self) -> tuple[KernelObject, ...]:
        """Return the device binaries inside, also those inside the members of an archive."""
        found: list[KernelObject] = []
        for part in self.parts:
            found += [part] if part.machine == EM_ASCEND else part.device_parts()
        return tuple(found)

    def extract(self, soc: str | None = None) -> bytes:
        """Return the bytes of the device binary: the file itself, or the one inside it.

        Parameters
        ----------
        soc : str, optional
            Choose the one that this SoC runs, where there are several.

        Raises
        ------
        KernelObjectError
            There is none, or more than one.
        """
        candidates = (self,) if self.machine == EM_ASCEND else self.device_parts()
        linked = [part for part in candidates if part.container is Container.DEVICE]
        found = linked or list(candidates)
        if soc is not None:
            found = [part for part in found if part.fits(soc) is not False]
        distinct = {part.data: part for part in found}
        if len(distinct) == 1:
            return next(iter(distinct))
        where = self.path or "this file"
        if not distinct:
            raise KernelObjectError(f"{where} holds no device binary{f' for {soc}' if soc else ''}: {self.container}")
        listed = "; ".join(f"{part.origin} ({_arch_label(part)})" for part in list(distinct.values())[:10])
        raise KernelObjectError(
            f"{where} holds {len(distinct)} device binaries: say for which SoC (soc, --soc), or take one of its parts: "
            f"{listed}"
        )

    def to_dict(self, soc: str | None = None) -> dict[str, Any]:
        """Return everything as plain values that `json` can write (what `pyacl inspect --json` prints).

        Parameters
        ----------
        soc : str, optional
            The SoC to judge it for, as in :meth:`verdict`.
        """
        verdict = self.verdict(soc)
        architecture = self.architecture
        return {
            "path": self.path,
            "origin": self.origin,
            "container": str(self.container),
            "size": len(self.data),
            "sha256": self.sha256,
            "machine": self.machine_name,
            "e_type": self.type,
            "e_flags": f"{self.flags:#x}",
            "arch": None if architecture is None else architecture.label,
            "npu_arch": None if architecture is None else architecture.npu_arch,
            "socs": list(self.socs),
            "sections": list(self.sections),
            "kernels": [_kernel_dict(kernel) for kernel in self.kernels],
            "meta_complete": self.meta_complete,
            "stack_size": self.stack_size,
            "debug_options": list(self.binary_meta.debug_options),
            "debug_buffer": self.binary_meta.debug_buffer,
            "implicit": [IMPLICIT_NAMES.get(number, str(number)) for number in sorted(self.binary_meta.implicit)],
            "comment": list(self.comment),
            "image": list(self.image),
            "sidecar": None if self.sidecar is None else _sidecar_dict(self.sidecar),
            "notes": list(self.notes),
            "verdict": {
                "summary": verdict.summary,
                "from_file": verdict.from_file,
                "from_data": verdict.from_data,
                "magic": verdict.magic,
                "cpu_kernel_mode": verdict.cpu_kernel_mode,
                "reasons": list(verdict.reasons),
                "advice": list(verdict.advice),
                "cautions": list(verdict.cautions),
            },
            "parts": [part.to_dict(soc) for part in self.parts],
        }


def read(source: Source, *, sidecar: SidecarSource | object = _BESIDE) -> KernelObject:
    """Read a kernel file without loading it; no Ascend software is needed.

    Parameters
    ----------
    source : path, bytes-like or binary file object
        A device object (`.o`), or anything it may be wrapped in: a host object or library, an ar archive. Of AI CPU
        kernels, the library (`.so`) or its JSON.
    sidecar : path, bytes, mapping or None, optional
        The JSON that belongs to it. By default the file beside `source` that the runtime would look for (same name,
        `.json`), or none where `source` is no path. None: there is none.

    Returns
    -------
    KernelObject

    Raises
    ------
    KernelObjectError
        It is none of these, or damaged: truncated, tables that point outside, and the like.
    OSError
        `source` is a path that cannot be read.
    """
    path: str | None = None
    data: bytes
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
    elif isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        data = _content(path)
    elif hasattr(source, "read"):
        data = None if isinstance(source, io.TextIOBase) else source.read()  # decoding an object fails
        if not isinstance(data, bytes):
            raise TypeError("source: open the file in binary mode")
    else:
        raise TypeError(f"source: a path, bytes or a file opened in binary mode, not {type(source).__name__}")
    found = _find_sidecar(path) if sidecar is _BESIDE else _given_sidecar(sidecar)
    return _read(data, path, found)


def _content(path: str) -> bytes:
    """What is in a file; of one that is no kernel file the beginning, for it may have no end."""
    with open(path, "rb") as file:
        head = file.peek(_HEAD)[:_HEAD]
        known = is_elf(head) or head.startswith(AR_MAGIC) or head.lstrip()[:1] in (b"", b"{")
        if len(head) == _HEAD and not known:
            return head
        size = os.fstat(file.fileno()).st_size
        if size > SIZE_LIMIT:
            raise KernelObjectError(f"{size} bytes are too many for a kernel object")
        try:
            return file.read()
        except MemoryError:
            raise KernelObjectError(f"{size} bytes do not fit into memory") from None


def sidecar_path(path: str) -> str:
    """Return the JSON path the runtime derives from an object's: up to the last dot, and `.json`."""
    return path.rpartition(".")[0] + ".json"


def _read(data: bytes, path: str | None, sidecar: Sidecar | None, origin: str | None = None) -> KernelObject:
    if data.startswith(AR_MAGIC):
        pieces, notes = _read_pieces(archive_members(data))
        return KernelObject(path, Container.ARCHIVE, data, parts=pieces, notes=notes, sidecar=sidecar, origin=origin)
    if not is_elf(data):
        declared = parse_sidecar(data, path) if data.lstrip()[:1] == b"{" else Sidecar()
        if declared.cpu_kernels:
            beside = path is not None and os.path.isfile(path.rpartition(".")[0] + ".so")
            return _cpu_object(KernelObject(path, Container.AICPU, data, sidecar=declared), declared, int(beside))
        raise KernelObjectError(_not_elf(data, path))
    elf = Elf(data)
    usable = sidecar if sidecar is not None and sidecar.error is None else Sidecar()
    header = elf.header
    pieces, notes = ((), ()) if header.machine == EM_ASCEND else _read_pieces(embedded(elf))
    container = classify(elf, bool(usable.cpu_kernels), bool(pieces))
    basic = KernelObject(
        path,
        container,
        data,
        type=header.type,
        machine=header.machine,
        flags=header.flags,
        sections=tuple(section.name for section in elf.sections[1:]),
        sidecar=sidecar,
        parts=pieces,
        origin=origin,
        notes=notes,
    )
    if container is Container.AICPU:
        return _cpu_object(basic, usable, 1)
    if header.machine != EM_ASCEND:
        return basic
    if not elf.sections:
        raise KernelObjectError("a device ELF without section headers, which the runtime refuses: stripped?")
    code = read_code(elf)
    meta = _binary_meta(elf)
    return replace(
        basic,
        code=code,
        kernels=merge(code, ARCHITECTURES.get(header.flags), meta, usable),
        binary_meta=meta,
        stack_records=_stack_records(elf),
        comment=_comment(elf),
        image=_image(elf),
    )


def _cpu_object(obj: KernelObject, sidecar: Sidecar, mode: int) -> KernelObject:
    kernels = tuple(Kernel(kernel.name, (), "AICPU") for kernel in sidecar.cpu_kernels)
    return replace(obj, kernels=kernels, cpu_kernel_mode=mode)


def _read_pieces(pieces: Iterable[Piece]) -> tuple[tuple[KernelObject, ...], tuple[str, ...]]:
    """Read the ELF files inside a file; what is damaged becomes a note, archives inside archives are not opened."""
    parts: list[KernelObject] = []
    notes: list[str] = []
    for piece in pieces:
        if not is_elf(piece.data):
            continue
        try:
            parts.append(_read(piece.data, None, None, piece.origin))
        except KernelObjectError as error:
            if len(notes) < 100:
                notes.append(f"{piece.origin}: {error}")
    return tuple(parts), tuple(notes)


def _not_elf(data: bytes, path: str | None) -> str:
    if not data:
        return "the file is empty"
    if data.lstrip()[:1] == b"{":
        return "this is JSON: give the object it belongs to (the .o beside it)"
    if data[:4] == b"PK\x03\x04":
        return "this is a zip archive or wheel: unpack it, or give it to pyacl inspect, which looks inside"
    return f"neither an ELF file nor an ar archive: it starts with {data[:8].hex(' ')}"


def _find_sidecar(path: str | None) -> Sidecar | None:
    # The runtime resolves links first, so the JSON is looked for beside the real file.
    if path is None or "." not in os.path.basename(path):
        return None
    beside = sidecar_path(os.path.realpath(path))
    return _load_sidecar(beside) if os.path.isfile(beside) else None


def _given_sidecar(sidecar: Any) -> Sidecar | None:
    if sidecar is None:
        return None
    if isinstance(sidecar, Mapping):
        return Sidecar(data=sidecar)
    if isinstance(sidecar, (bytes, bytearray)):
        return parse_sidecar(bytes(sidecar))
    return _load_sidecar(os.fspath(sidecar))


def _load_sidecar(path: str) -> Sidecar:
    with open(path, "rb") as file:
        return parse_sidecar(file.read(), path)


def _binary_meta(elf: Elf) -> BinaryMeta:
    section = elf.section(BINARY_META_SECTION)
    if section is None:
        return BinaryMeta()
    if section.size > BINARY_META_LIMIT:
        raise KernelObjectError(f"{BINARY_META_SECTION} has {section.size} bytes; the file is damaged")
    return binary_meta(elf.content(section))


def _stack_records(elf: Elf) -> tuple[int, ...]:
    section = elf.section(STACK_SECTION)
    content = b"" if section is None else elf.content(section)
    return struct.unpack_from(f"<{len(content) // 8}Q", content)


def _comment(elf: Elf) -> tuple[str, ...]:
    section = elf.section(".comment")
    content = b"" if section is None else elf.content(section)
    return tuple(text.decode("utf-8", "backslashreplace") for text in content.split(b"\0") if text)


def _image(elf: Elf) -> tuple[int, int]:
    """Return what the runtime copies: from the first to the end of the last allocated section, in file order."""
    start = end = 0
    for section in elf.sections:
        if section.flags & SHF_ALLOC and section.size:
            start = start or section.offset
            end = section.offset + section.size
    return start, max(end - start, 0)


def _arch_label(part: KernelObject) -> str:
    return f"e_flags {part.flags:#x}" if part.architecture is None else part.architecture.label


def _kernel_dict(kernel: Kernel) -> dict[str, Any]:
    arguments = kernel.arguments
    return {
        "name": kernel.name,
        "demangled": kernel.demangled,
        "symbols": [half.symbol for half in kernel.halves],
        "core": kernel.core,
        "ratio": None if kernel.ratio is None else list(kernel.ratio),
        "tiling_key": kernel.tiling_key,
        "arg_size": kernel.arg_size,
        "user_sizes": list(kernel.user_sizes),
        "arguments": None if arguments is None else [{"role": a.role, "size": a.size} for a in arguments],
        "parameters": None if kernel.parameters is None else [list(place) for place in kernel.parameters],
        "ffts": kernel.ffts,
        "overflow": kernel.overflow,
        "min_stack": kernel.min_stack,
        "ub_size": kernel.ub_size,
        "vector_type": kernel.vector_type,
        "sched_mode": kernel.sched_mode,
        "sync": kernel.sync,
        "deterministic": kernel.deterministic,
    }


def _sidecar_dict(sidecar: Sidecar) -> dict[str, Any]:
    return {
        "path": sidecar.path,
        "error": sidecar.error,
        "magic": sidecar.magic,
        "core_type": sidecar.core_type,
        "inter_core_sync": sidecar.inter_core_sync,
        "debug_options": sidecar.debug_options,
        "tiling_size": sidecar.tiling_size,
    }
