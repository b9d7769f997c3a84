"""Will the runtime load it: the checks of `aclrtBinaryLoadFromFile` and `aclrtBinaryLoadFromData`, made beforehand.

The library answers 107000 and no usable text for nearly everything that can be wrong, and loads objects for another
SoC without a word. So the same questions are asked here, in the runtime's order, and answered in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyacl.objfile.arch import ARCHITECTURES, RULES, SOCS, VECTOR_FLAGS, LoadRules, npu_arch_of
from pyacl.objfile.container import Container
from pyacl.objfile.elf import EM_AARCH64, ET_DYN
from pyacl.objfile.kernels import Entry, halves_stay_apart, registered_name
from pyacl.objfile.metadata import ENTRY_DISABLED, KTYPE_NAMES, SCHED_MODE_NAMES, KernelMeta
from pyacl.objfile.sidecar import MAGIC_VALUES

if TYPE_CHECKING:
    from pyacl.objfile.reader import KernelObject

#: Bytes of stack a core has unless aclInit's JSON says otherwise.
DEFAULT_STACK = 32768

#: KTYPEs that go with a ratio of cube to vector cores.
_RATIO_TYPES = {(1, 2): (4,), (2, 1): (5,), (1, 1): (4, 5), (1, 0): (4,), (0, 1): (5,)}


@dataclass(frozen=True)
class Verdict:
    """Whether and how a file can be loaded."""

    #: `aclrtBinaryLoadFromFile` takes it.
    from_file: bool
    #: `aclrtBinaryLoadFromData` takes it.
    from_data: bool
    #: The MAGIC option that LoadFromData needs: VECTOR, AICORE or CUBE; None when it needs none.
    magic: str | None
    #: The SoCs it was compiled for; () when unknown or none.
    socs: tuple[str, ...]
    #: Why not, or why not from a file.
    reasons: tuple[str, ...] = ()
    #: What to do about it, the best first.
    advice: tuple[str, ...] = ()
    #: Loads, but mind this.
    cautions: tuple[str, ...] = ()
    #: The CPU_KERNEL_MODE option that LoadFromFile needs, for AI CPU kernels.
    cpu_kernel_mode: int | None = None

    @property
    def loadable(self) -> bool:
        """Whether one of the two functions takes it."""
        return self.from_file or self.from_data

    @property
    def magic_value(self) -> int | None:
        """`magic` as the number that the C option takes."""
        return None if self.magic is None else MAGIC_VALUES[self.magic]

    @property
    def summary(self) -> str:
        """The verdict in one line."""
        if self.from_file:
            option = "" if self.cpu_kernel_mode is None else f" with CPU_KERNEL_MODE {self.cpu_kernel_mode}"
            return f"loads from file{option}"
        if self.from_data:
            return f"loads from data{f' with MAGIC {self.magic}' if self.magic else ''}, not from file"
        return "cannot be loaded"


def judge(obj: KernelObject, soc: str | None = None) -> Verdict:
    """Judge an object, for the SoCs it was compiled for, or for the one given (as `aclrtGetSocName` names it)."""
    if obj.container is Container.DEVICE:
        return _judge_device(obj, soc)
    if obj.container is Container.AICPU:
        return Verdict(True, False, None, (), cpu_kernel_mode=obj.cpu_kernel_mode)
    reasons, advice = _not_a_device_elf(obj)
    return Verdict(False, False, None, (), reasons, advice)


def _not_a_device_elf(obj: KernelObject) -> tuple[tuple[str, ...], tuple[str, ...]]:
    device = [part for part in obj.device_parts() if part.container is Container.DEVICE]
    relocatable = [part for part in obj.device_parts() if part.container is Container.RELOCATABLE]
    link = "link it: ld.lld -m aicorelinux -Ttext=0 IN.o -static -o OUT.o"
    if obj.container is Container.RELOCATABLE:
        return ("relocations are not applied yet",), (link,)
    if device:
        inside = device[0].origin if len(device) == 1 else f"{len(device)} device binaries"
        return (
            (f"the runtime does not look inside a {obj.container}; it holds {inside}",),
            ("extract the device binary (KernelObject.extract, pyacl inspect --extract) and load that",),
        )
    if relocatable:
        return (
            (f"the device part ({relocatable[0].origin}) is relocatable",),
            (f"extract it and {link}", "or compile with --cce-aicore-only, which leaves the host part out"),
        )
    if obj.container is Container.HOST and (obj.machine, obj.type) == (EM_AARCH64, ET_DYN):
        return (
            ("a host library (aarch64) without a device binary, and no JSON beside it declares AI CPU kernels",),
            (f"of AI CPU kernels: put {obj.sidecar_name} with their opInfo beside it, or load it with cpu_mode=2",),
        )
    what = {
        Container.ARCHIVE: "an ar archive holds objects for the linker, and none of these holds a device binary",
        Container.HOST: "a host file (" + obj.machine_name + ") without a device binary",
    }.get(obj.container, f"a {obj.container} whose device part could not be read")
    return (what,), ("compile the kernel for the device: bisheng --npu-arch=... --aicore-only, then ld.lld",)


def _judge_device(obj: KernelObject, soc: str | None) -> Verdict:
    architecture = ARCHITECTURES.get(obj.flags)
    npu_arch = None if architecture is None else architecture.npu_arch
    socs = SOCS.get(npu_arch or "", ())
    target = None if soc is None else npu_arch_of(soc)
    cautions = []
    if architecture is None:
        cautions.append(f"e_flags {obj.flags:#x} is of no known architecture: whether it fits cannot be told")
    elif soc is not None and target is None:
        cautions.append(f"{soc} is not in the table of SoCs: whether {architecture.core_arch} fits cannot be told")
    elif target is not None and target != npu_arch:
        return Verdict(
            False,
            False,
            None,
            socs,
            (f"compiled for {architecture.core_arch} ({architecture.products}); {soc} is {target}",),
            (f"compile it with --npu-arch={target}",),
        )
    rules = RULES.get(npu_arch or target or "", RULES["dav-2201"])

    if not obj.code.functions:
        return Verdict(
            False,
            False,
            None,
            socs,
            ("it exports no function (a global, not hidden STT_FUNC symbol)",),
            ('declare the kernel with __global__ and extern "C", and do not strip the object',),
        )
    blocking = _blocking(obj, rules)
    if blocking:
        return Verdict(False, False, None, socs, *_unzip(blocking), cautions=tuple(cautions))

    believed = obj.code.meta_complete
    untyped = [entry for entry in _functions(obj) if entry[1] is not None and entry[1].ktype is None]
    if untyped and _last_is_typed(obj, rules):
        reason = "some kernels have a type (KTYPE) in their metadata, the last one too, and some have none"
        return Verdict(
            False, False, None, socs, (reason,), ("compile all kernels with one compiler",), cautions=tuple(cautions)
        )
    if believed and not untyped:
        wrong = _wrong_metadata(obj, rules)
        if wrong:
            return Verdict(False, False, None, socs, *_unzip(wrong), cautions=tuple(cautions))
    magic = _magic(obj)
    against_file = _against_file(obj, bool(untyped))
    needs_magic = not believed or bool(untyped)
    if against_file or needs_magic:
        wrong = _merge_conflicts(obj, believed=False)
        if wrong and needs_magic:
            return Verdict(False, False, None, socs, *_unzip(wrong), cautions=tuple(cautions))
    if halves_stay_apart(obj.code, architecture) and _has_halves(obj.entries):
        cautions.append(
            f"MAGIC {magic} makes every half a kernel of its own, of one kind of core, under its name with _mix_aic or "
            "_mix_aiv; a mixed kernel needs KTYPE in its metadata to run"
        )
    reasons, advice = _unzip(against_file)
    if against_file:
        route = f"load it from data with MAGIC {magic}" if needs_magic else "load it from data"
        advice = (*advice, f"or {route} (pyacl does so by itself)")
    return Verdict(
        from_file=not against_file,
        from_data=True,
        magic=magic if needs_magic else None,
        socs=socs,
        reasons=reasons,
        advice=advice,
        cautions=tuple(cautions),
    )


def _functions(obj: KernelObject) -> list[tuple[str, KernelMeta | None]]:
    return [(name, obj.code.meta.get(name)) for name in obj.code.functions]


def _last_is_typed(obj: KernelObject, rules: LoadRules) -> bool:
    """Whether the runtime takes all types from the metadata: there the last section decides for the whole file."""
    last = list(obj.code.meta.values())[-1:]
    return rules.checks_ratio and not rules.fills_type and any(meta.ktype is not None for meta in last)


def _blocking(obj: KernelObject, rules: LoadRules) -> list[tuple[str, str]]:
    """What no way of loading gets around."""
    problems = []
    rebuild = "compile it again; the metadata is not what any known compiler writes"
    for name, meta in _functions(obj):
        if meta is None:
            continue
        shown = _shown(name)
        if meta.ktype is not None and meta.ktype not in KTYPE_NAMES:
            problems.append((f"{shown}: kernel type {meta.ktype} is not 1 to 7", rebuild))
        if meta.entry is not None and meta.entry[0] not in (0, ENTRY_DISABLED):
            problems.append((f"{shown}: the flag of its function entry is {meta.entry[0]:#x}", rebuild))
        if meta.sched_mode is not None and meta.sched_mode not in SCHED_MODE_NAMES:
            problems.append((f"{shown}: scheduling mode {meta.sched_mode} is not 0 or 1", rebuild))
        if rules.checks_stack and (meta.min_stack or 0) > DEFAULT_STACK:
            need = -(-(meta.min_stack or 0) // 16384) * 16384
            problems.append(
                (
                    f"{shown}: needs {meta.min_stack} bytes of stack, the default is {DEFAULT_STACK}",
                    f'raise it in the JSON of aclInit: {{"StackSize": {{"aicore_stack_size": {need}}}}}',
                )
            )
        if rules.checks_ratio and meta.ktype in (1, 4, 5):
            problems += _ratio_problem(shown, meta, meta.ktype)
    return problems


def _ratio_problem(shown: str, meta: KernelMeta, ktype: int) -> list[tuple[str, str]]:
    if ktype == 1:
        return [(f"{shown}: kernel type AICORE is for Ascend 910 and 310P", "compile it with the right --npu-arch")]
    ratio = meta.ratio or (0, 0)
    if ktype in _RATIO_TYPES.get(ratio, ()):
        return []
    said = f"{ratio[0]}:{ratio[1]}" if meta.ratio else "no ratio"
    return [(f"{shown}: {said} with kernel type {KTYPE_NAMES[ktype]}", "set the kernel's task ratio (1:2, 1:1, 0:1)")]


def _wrong_metadata(obj: KernelObject, rules: LoadRules) -> list[tuple[str, str]]:
    """What is wrong when the kernels register by their metadata."""
    problems = []
    for name, meta in _functions(obj):
        shown = _shown(name)
        if meta is None:
            problems.append((f"{shown}: no metadata under its name", "compile it again; do not rename symbols"))
            continue
        if rules.aicore == "only" and meta.ktype != 1:
            kind = KTYPE_NAMES.get(meta.ktype or 0, "unknown")
            problems.append((f"{shown}: kernel type {kind}, Ascend 910 and 310P take AICORE", "compile it for them"))
        suffixes = {
            4: ("_mix_aic", "_mix_aiv"),
            5: ("_mix_aic", "_mix_aiv"),
            6: ("_mix_aic",),
            7: ("_mix_aiv",),
        }.get(meta.ktype or 0, ())
        if suffixes and not any(suffix in name for suffix in suffixes):
            problems.append(
                (
                    f"{shown}: {KTYPE_NAMES[meta.ktype or 0]} kernels end in {' or '.join(suffixes)}",
                    "compile the halves with -D<name>=<name>_mix_aic and -D<name>=<name>_mix_aiv",
                )
            )
    return problems or _merge_conflicts(obj, believed=True)


def _merge_conflicts(obj: KernelObject, believed: bool) -> list[tuple[str, str]]:
    """Two functions that would register under one name without being the two halves of a kernel."""
    halves: dict[str, list[str]] = {}
    for name, meta in _functions(obj):
        halves.setdefault(registered_name(name, meta.ktype if believed and meta else None), []).append(name)
    return [
        (f"{len(names)} functions register as {_shown(name)}", "rename one of the kernels")
        for name, names in halves.items()
        if len(set(names)) != len(names) or len(names) > 2
    ]


def _against_file(obj: KernelObject, untyped: bool) -> list[tuple[str, str]]:
    """What aclrtBinaryLoadFromFile minds and LoadFromData does not."""
    problems = []
    believed, sidecar = obj.code.meta_complete, obj.sidecar
    if untyped:
        problems.append(
            (
                "a kernel's metadata has no kernel type (KTYPE)",
                "compile it as AscendC does, which adds the type to section .ascend.meta.<kernel>",
            )
        )
    if not believed and not untyped:
        need = '{"magic": "' + _sidecar_magic(obj) + '"}'
        missing = "no kernel metadata" if not obj.code.meta else "metadata for only some of the kernels"
        if sidecar is None or sidecar.error is not None:
            state = "no JSON beside it" if sidecar is None else f"the JSON beside it is unusable ({sidecar.error})"
            problems.append((f"{missing}, and {state}", f"add {obj.sidecar_name} with {need}"))
        elif sidecar.magic is None:
            problems.append((f"{missing}, and the JSON beside it has no valid magic", f"put {need} into it"))
    if sidecar is not None and sidecar.error is None and "debugOptions" in sidecar.data:
        if sidecar.debug_options is None:
            problems.append(("debugOptions in the JSON is not text", "write it as text, or leave it out"))
        elif "printf" in sidecar.debug_options:
            problems.append(
                ("a printf build: debugOptions in the JSON says so", "compile without printf, or move the JSON away")
            )
    return problems


def _magic(obj: KernelObject) -> str:
    """The MAGIC that gives an object without usable metadata the right kind of core."""
    if halves_stay_apart(obj.code, obj.architecture):
        return "VECTOR" if obj.flags in VECTOR_FLAGS else "AICORE"
    if obj.sidecar is not None and obj.sidecar.magic is not None:
        return obj.sidecar.magic
    return "VECTOR" if obj.flags in VECTOR_FLAGS and not _has_halves(obj.entries) else "AICORE"


def _sidecar_magic(obj: KernelObject) -> str:
    return "RT_DEV_BINARY_MAGIC_ELF_AIVEC" if _magic(obj) == "VECTOR" else "RT_DEV_BINARY_MAGIC_ELF"


def _has_halves(entries: Sequence[Entry]) -> bool:
    return any(entry.half for entry in entries)


def _shown(name: str) -> str:
    return name if len(name) <= 80 else name[:77] + "..."


def _unzip(problems: list[tuple[str, str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split problems into reasons and advice; the same advice once, and no more than ten of each."""
    reasons = tuple(reason for reason, _ in problems[:10])
    if len(problems) > 10:
        reasons = (*reasons, f"and {len(problems) - 10} more like these")
    return reasons, tuple(dict.fromkeys(advice for _, advice in problems[:10]))
