"""bisheng from Python: find it, build its command lines, run them, keep what they made.

Two documented ways lead from a source to a device binary, and the toolkit decides which one is taken. CANN 9 and later
compile the language of Ascend C as such (``--npu-arch``, one pass, the kernel's type goes into the object). CANN up to
8.5 compile CCE (``--cce-aicore-arch``): a mixed kernel takes two passes, and an object without metadata gets a JSON
beside it that says what it is. Both end with the linker for the device.

bisheng runs as a child process. CANN forbids to start processes while asynchronous copies are under way, so compile
first and work with the device afterwards.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Optional, Union

from pyacl import objfile
from pyacl.backends.library import Attempt, Places
from pyacl.objfile.arch import SOCS, npu_arch_of

__all__ = ["CompileError", "CompiledKernel", "CompilerNotFoundError", "Plan", "Toolchain", "cache_folder", "compile"]

StrPath = Union[str, "os.PathLike[str]"]

#: where bisheng lies below a CANN installation; ``{machine}`` is x86_64 or aarch64
_FOLDERS = (
    "tools/bisheng_compiler/bin",
    "compiler/ccec_compiler/bin",
    "tools/ccec_compiler/bin",
    "{machine}-linux/bisheng_compiler/bin",
    "{machine}-linux/ccec_compiler/bin",
    "bin",
)
#: ``--cce-aicore-arch`` by generation and kind of core
_CORE_ARCHS = {
    "dav-1001": {"aicore": "dav-c100"},
    "dav-2002": {"aicore": "dav-m200", "vector": "dav-m200-vec"},
    "dav-2201": {"vector": "dav-c220-vec", "cube": "dav-c220-cube"},
    "dav-3002": {"aicore": "dav-m300"},
    "dav-3004": {"aicore": "dav-t300"},
    "dav-3505": {"aicore": "dav-n350"},
    "dav-3510": {"vector": "dav-c310-vec", "cube": "dav-c310-cube"},
}
_CCE_OPTIONS = (
    "-mllvm", "-cce-aicore-stack-size=0x8000",
    "-mllvm", "-cce-aicore-function-stack-size=0x8000",
    "-mllvm", "-cce-aicore-record-overflow=true",
    "-mllvm", "-cce-aicore-addr-transform",
    "-mllvm", "-cce-aicore-dcci-insert-for-scalar=false",
)  # fmt: skip
#: Ascend C's headers, which bisheng finds by itself only when it compiles Ascend C as a language
_CCE_INCLUDES = ("compiler/tikcpp/tikcfw", "compiler/tikcpp/tikcfw/impl", "compiler/tikcpp/tikcfw/interface")
#: what the JSON beside an object says about the kind of core
_SIDECARS = {
    "vector": {"magic": "RT_DEV_BINARY_MAGIC_ELF_AIVEC", "coreType": "VectorCore"},
    "cube": {"magic": "RT_DEV_BINARY_MAGIC_ELF_AICUBE", "coreType": "CubeCore"},
    "mix": {"magic": "RT_DEV_BINARY_MAGIC_ELF", "coreType": "MIX"},
    "aicore": {"magic": "RT_DEV_BINARY_MAGIC_ELF", "coreType": "AiCore"},
}
_CACHE_FORMAT = 2
_SHOWN_LINES = 40


class CompileError(RuntimeError):
    """The compiler or the linker failed. The message shows its own lines.

    Attributes
    ----------
    command : tuple of str
        What was run.
    returncode : int or None
        Its exit code; negative for a signal, None when it did not end in time or ended well with a useless result.
    output : str
        Everything it printed.
    """

    def __init__(
        self, message: str, *, command: Sequence[str] = (), returncode: Optional[int] = None, output: str = ""
    ) -> None:
        super().__init__(message)
        self.command = tuple(command)
        self.returncode = returncode
        self.output = output


class CompilerNotFoundError(CompileError):
    """There is no bisheng. The message lists what was looked for and where; `attempts` has the same as a list."""

    def __init__(self, message: str, attempts: Sequence[Attempt] = ()) -> None:
        super().__init__(message)
        self.attempts = tuple(attempts)


class Toolchain(NamedTuple):
    """A bisheng, its device linker, and the installation they belong to."""

    bisheng: str
    linker: str
    root: str

    @property
    def language(self) -> str:
        """What this bisheng compiles by default: "asc" (CANN 9 and later) or "cce" (up to 8.5, by its folder)."""
        return "cce" if "ccec_compiler" in Path(os.path.realpath(self.bisheng)).parts else "asc"

    @classmethod
    def find(cls, where: Optional[StrPath] = None, *, places: Optional[Places] = None) -> Toolchain:
        """Look for bisheng.

        Parameters
        ----------
        where : path, optional
            bisheng itself, or a CANN installation. Otherwise, in this order: ASCEND_HOME_PATH, ASCEND_TOOLKIT_HOME, the
            usual places below /usr/local/Ascend and ~/Ascend, and PATH.

        Raises
        ------
        CompilerNotFoundError
        """
        places = places or Places(os.environ)
        attempts: list[Attempt] = []
        for origin, path in cls._candidates(where, places):
            if not os.path.isfile(path):
                continue
            if not os.access(path, os.X_OK):
                attempts.append(Attempt(origin, path, "cannot be executed"))
                continue
            linker = _beside(path, "ld.lld")
            if linker is None:
                attempts.append(Attempt(origin, path, "no device linker", "there is no ld.lld beside it"))
                continue
            return cls(path, linker, _root_of(path))
        if where is not None:
            attempts = attempts or [Attempt("given", os.fspath(where), "no bisheng there")]
            next_step = "give the path of bisheng itself, or of a CANN toolkit that has one"
        else:
            for origin, root in places.candidates():
                attempts.append(Attempt(origin, root, "no bisheng there" if os.path.isdir(root) else "not here"))
            next_step = "install the CANN toolkit (not only nnrt), or set ASCEND_HOME_PATH to where it is"
        looked = "\n  ".join(map(str, attempts))
        raise CompilerNotFoundError(
            f"bisheng, the compiler for kernels, was not found.\nLooked at:\n  {looked}\n"
            f"Looked for, below each: {', '.join(_folders(places.machine))}\nNext step: {next_step}.",
            attempts,
        )

    @staticmethod
    def _candidates(where: Optional[StrPath], places: Places) -> Iterator[tuple[str, str]]:
        if where is not None:
            path = os.path.abspath(os.path.expanduser(os.fspath(where)))
            roots = [("given", path)]
            yield "given", path
        else:
            roots = list(places.candidates())
        for origin, root in roots:
            for folder in _folders(places.machine):
                yield origin, os.path.join(os.path.abspath(os.path.expanduser(root)), folder, "bisheng")
        if where is None:
            found = shutil.which("bisheng", path=places.environ.get("PATH", ""))
            if found:
                yield "PATH", found

    def version(self) -> str:
        """What ``bisheng --version`` prints.

        Raises
        ------
        CompileError
            When it cannot be run.
        """
        return _run((self.bisheng, "--version"), Path.cwd(), self, 60)


#: stands for a toolchain where there is none, so that commands can be shown
_ABSENT = Toolchain("bisheng", "ld.lld", "$ASCEND_HOME_PATH")


@dataclass(frozen=True)
class Plan:
    """The command lines that make one object, before any of them is run. They are run in a folder of their own.

    Attributes
    ----------
    core : str
        "vector", "cube", "mix", "aicore"; "declared" where bisheng takes it from the source; "host" for a host library.
    commands : tuple of tuple of str
        In order. Sources and includes are absolute, what is made is relative to that folder.
    product : str
        File name of the result.
    sidecar : dict or None
        The JSON that is written beside the result when that carries no metadata of its own; None when it always does.
    objects, dependency_files : tuple of str
        What is made on the way.
    """

    toolchain: Toolchain
    sources: tuple[Path, ...]
    npu_arch: str
    language: str
    core: str
    commands: tuple[tuple[str, ...], ...]
    product: str
    sidecar: Optional[Mapping[str, str]]
    objects: tuple[str, ...] = field(repr=False, default=())
    dependency_files: tuple[str, ...] = field(repr=False, default=())

    def __str__(self) -> str:
        return "\n".join(shlex.join(command) for command in self.commands)


@dataclass(frozen=True)
class CompiledKernel:
    """What `compile` made. It is a path: give it to ``device.load`` or to ``open``."""

    #: the object, absolute
    path: Path
    plan: Plan = field(repr=False)
    #: what the compiler said although it succeeded: its warnings
    log: str = field(repr=False, default="")
    #: whether an earlier result was taken
    cached: bool = False

    def __fspath__(self) -> str:
        return str(self.path)

    def read_bytes(self) -> bytes:
        """Return the object's bytes."""
        return self.path.read_bytes()


def compile(
    sources: Union[StrPath, Sequence[StrPath]],
    *,
    soc: Optional[str] = None,
    arch: Optional[str] = None,
    core: Optional[str] = None,
    simt: bool = False,
    shared: bool = False,
    kernels: Sequence[str] = (),
    include: Sequence[StrPath] = (),
    define: Union[Sequence[str], Mapping[str, object]] = (),
    options: Union[str, Sequence[str]] = (),
    link_options: Union[str, Sequence[str]] = (),
    optimize: int = 3,
    debug: bool = False,
    std: str = "c++17",
    language: Optional[str] = None,
    compiler: Optional[StrPath] = None,
    output: Optional[StrPath] = None,
    cache: bool = True,
    timeout: Optional[float] = None,
) -> CompiledKernel:
    """Compile kernels with bisheng to a device binary that ``device.load`` takes.

    Parameters
    ----------
    sources : path or sequence of paths
        One source, or several that are linked into one object.
    soc : str
        The SoC, as `aclrtGetSocName` and ``device.name`` give it: ``Ascend910B1``. Or give `arch`.
    arch : str
        The generation, as ``--npu-arch`` names it: ``dav-2201`` (Atlas A2 and A3), ``dav-3510`` (Ascend 950),
        ``dav-2002`` (310P).
    core : {"vector", "cube", "mix", "aicore"}, optional
        For CCE only: the cores to compile for. By default what the source declares (``__vector__``, ``__cube__``,
        ``__mix__``, ``KERNEL_TASK_TYPE_DEFAULT``), else vector. Ascend C as a language knows by itself. In CCE, a mixed
        kernel for Atlas A2 and A3 takes the synchronization address as its first parameter; the runtime passes it.
    simt : bool
        The source has SIMT kernels (Ascend 950).
    shared : bool
        Make a host library instead, of a source with ``<<<>>>`` in it; `KernelLibrary` takes it.
    kernels : sequence of str
        For mixed kernels in CCE: their names, where they cannot be found in the source (templates, macros).
    include, define, options, link_options
        More for the command lines: folders, macros (``"N=8"`` or ``{"N": 8}``), and options as they are.
    optimize : int
        0, 2 or 3.
    debug : bool
        Keep debug information (``-g``).
    std : str
        The C++ standard.
    language : {"asc", "cce"}, optional
        Which of the two ways to take. By default ``asc`` for ``.asc`` files, SIMT, host libraries and CANN from 9 on.
    compiler : path, optional
        bisheng itself, or a CANN installation. By default it is looked for, see `Toolchain.find`.
    output : path, optional
        Where the object goes. By default it stays in the cache folder.
    cache : bool
        Take the result of an earlier call with the same sources, headers, compiler and options. Without, `output` is
        needed. See `cache_folder`.
    timeout : float, optional
        Seconds that one command may take.

    Returns
    -------
    CompiledKernel
        A path. Where the object says nothing about itself, a JSON of the same name lies beside it.

    Raises
    ------
    CompileError
        With the compiler's own lines.
    CompilerNotFoundError
    FileNotFoundError, IsADirectoryError
        A source, or the folder of the result, is missing; the result is a folder.
    ValueError
        For options that contradict each other.
    """
    check_target(sources, soc, arch)  # what the caller can mend at once, before what must be installed
    plan = make_plan(
        sources, soc=soc, arch=arch, core=core, simt=simt, shared=shared, kernels=kernels, include=include,
        define=define, options=options, link_options=link_options, optimize=optimize, debug=debug, std=std,
        language=language, toolchain=Toolchain.find(compiler),
    )  # fmt: skip
    return run_plan(plan, output=output, cache=cache, timeout=timeout)


def make_plan(
    sources: Union[StrPath, Sequence[StrPath]],
    *,
    soc: Optional[str] = None,
    arch: Optional[str] = None,
    core: Optional[str] = None,
    simt: bool = False,
    shared: bool = False,
    kernels: Sequence[str] = (),
    include: Sequence[StrPath] = (),
    define: Union[Sequence[str], Mapping[str, object]] = (),
    options: Union[str, Sequence[str]] = (),
    link_options: Union[str, Sequence[str]] = (),
    optimize: int = 3,
    debug: bool = False,
    std: str = "c++17",
    language: Optional[str] = None,
    toolchain: Optional[Toolchain] = None,
) -> Plan:
    """Return the command lines that `compile` runs for the same arguments; without a toolchain, with bare names."""
    paths = _sources(sources)
    npu_arch = _npu_arch(soc, arch)
    tools = toolchain or _ABSENT
    if optimize not in (0, 2, 3):
        raise ValueError(f"optimize={optimize!r}: bisheng documents 0, 2 and 3")
    language = _language(language, paths, simt, shared, tools)
    if simt and npu_arch != "dav-3510":
        raise ValueError(f"simt=True is for Ascend 950 (dav-3510); {soc or arch} is {npu_arch}")
    common = [f"-std={std}", f"-O{optimize}", *(["-g"] if debug else [])]
    macros = [f"-D{name}" for name in _defines(define)]
    folders = [f"-I{os.path.abspath(os.fspath(folder))}" for folder in include]
    extra, link_extra = _words(options), _words(link_options)
    objects: list[str] = []
    commands: list[tuple[str, ...]] = []
    dependencies: list[str] = []

    def add(name: str, command: Sequence[str], source: Path, tail: Sequence[str] = ()) -> None:
        objects.append(f"{name}.obj")
        dependencies.append(f"{name}.d")
        commands.append((*command, *tail, "-MD", "-MF", f"{name}.d", "-o", objects[-1], str(source)))

    names = _unique_stems(paths)
    if shared:
        if len(paths) > 1:
            raise ValueError("shared=True takes one source: include the others in it")
        if core or kernels:
            raise ValueError("core and kernels are for device binaries in CCE; with shared=True the source says it all")
        product = f"lib{names[0]}.so"
        simt_flag = ["--enable-simt"] if simt else []
        as_asc = [] if paths[0].suffix == ".asc" else ["-x", "asc"]
        dependencies.append(f"{names[0]}.d")
        commands.append(
            (tools.bisheng, "-shared", "-fPIC", *common, f"--npu-arch={npu_arch}", *simt_flag, *macros, *folders,
             *extra, "-MD", "-MF", dependencies[0], *as_asc, str(paths[0]), "-o", product, *link_extra)
        )  # fmt: skip
        return Plan(tools, paths, npu_arch, "asc", "host", tuple(commands), product, None, (), tuple(dependencies))
    if language == "asc":
        if core or kernels:
            raise ValueError(
                "core and kernels are for CCE (language='cce'); Ascend C as a language takes them from the source: "
                "__vector__, __cube__ or __mix__(1, 2) in front of the kernel"
            )
        for name, path in zip(names, paths):
            simt_flag = ["--enable-simt"] if simt else []
            asc = [tools.bisheng, *macros, *folders, *simt_flag, *common, f"--npu-arch={npu_arch}", "-fPIC"]
            add(name, [*asc, "--aicore-only", *extra, "-c", "--asc-aicore-lang"], path)
        core = "declared"
    else:
        if simt:
            raise ValueError("simt=True needs language='asc': CCE has no SIMT")
        core = _core(core, paths, npu_arch)
        includes = [f"-I{tools.root}/{folder}" for folder in _CCE_INCLUDES]
        for name, path in zip(names, paths):
            for half, core_arch in _halves(core, npu_arch):
                cce = [tools.bisheng, "-c", "-x", "cce", *common, "--cce-aicore-only", f"--cce-aicore-arch={core_arch}"]
                renamed = [f"-D{k}={k}_mix_{half}" for k in _kernel_names(kernels, path)] if half else []
                mixed = ["-D__MIX_CORE_MACRO__=1"] if half else []
                ascend_c = ["-DASCENDC_DUMP=0", "-D__NPU_TILING__", "-DTILING_KEY_VAR=0"]
                add(
                    f"{name}_{half}" if half else name,
                    [*cce, *_CCE_OPTIONS, *ascend_c, *mixed, *renamed, *macros, *folders, *includes, *extra],
                    path,
                )
    product = f"{names[0]}.o"
    commands.append((tools.linker, "-m", "aicorelinux", "-Ttext=0", *objects, "-static", *link_extra, "-o", product))
    sidecar = _SIDECARS.get(core)
    return Plan(
        tools, paths, npu_arch, language, core, tuple(commands), product, sidecar, tuple(objects), tuple(dependencies)
    )


def check_target(sources: Union[StrPath, Sequence[StrPath]], soc: Optional[str], arch: Optional[str]) -> None:
    """Raise what `compile` raises for sources that are not there and for a SoC that it does not know."""
    _sources(sources)
    _npu_arch(soc, arch)


def run_plan(
    plan: Plan, *, output: Optional[StrPath] = None, cache: bool = True, timeout: Optional[float] = None
) -> CompiledKernel:
    """Run the command lines, or take what they made before. Parameters and exceptions are those of `compile`."""
    if not cache and output is None:
        raise ValueError("cache=False leaves no place for the object: give output='add.o'")
    if output is not None:
        target = Path(os.path.abspath(os.fspath(output)))
        if not target.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {target.parent} for the result")
        if target.is_dir():
            raise IsADirectoryError(f"the result {target} is a folder: name the file, such as {target / plan.product}")
    if not cache:
        with tempfile.TemporaryDirectory(prefix="pyacl-") as work:
            log = _build(plan, Path(work), timeout)
            return CompiledKernel(_deliver(plan, Path(work), output), plan, log, False)
    root = cache_folder()
    key = _key(plan)
    entry = _lookup(root / key)
    cached = entry is not None
    if entry is None:
        entry = _store(plan, root, key, timeout)
    try:
        log = (entry / "log.txt").read_text("utf-8", errors="replace")
    except FileNotFoundError:
        log = ""
    path = entry / plan.product if output is None else _deliver(plan, entry, output)
    return CompiledKernel(path, plan, log, cached)


def cache_folder() -> Path:
    """Return where compiled objects are kept: ``pyacl/kernels`` below XDG_CACHE_HOME, which is ``~/.cache`` by default.

    A result is found again when the sources (their path and bytes), every header the compiler read, the compiler (its
    version, path and time) and the command lines are the same. What it cannot see: a new header that would be found
    earlier on the include path than the one that was read. A compiler that writes no dependency file (``-MD``) is run
    every time. Entries appear whole or not at all, so any number of processes may share the folder; nothing is ever
    removed, and it may be deleted at any time.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "pyacl" / "kernels"


# -- what the arguments mean -----------------------------------------------------------------------------------------


def _sources(sources: Union[StrPath, Sequence[StrPath]]) -> tuple[Path, ...]:
    given = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    if not given:
        raise ValueError("sources is empty: give at least one file")
    paths = tuple(Path(os.path.abspath(os.fspath(path))) for path in given)
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"there is no source {path}")
    return paths


def _npu_arch(soc: Optional[str], arch: Optional[str]) -> str:
    if arch is not None:
        if arch not in _CORE_ARCHS:
            known = ", ".join(_CORE_ARCHS)
            raise ValueError(f"arch={arch!r} is no generation of NPUs that pyacl knows; those are {known}")
        target = npu_arch_of(soc) if soc is not None else None
        if target is not None and target != arch:
            raise ValueError(f"soc={soc!r} is a {target}, not the {arch} that arch says: give one of the two")
        return arch
    if soc is None:
        raise ValueError("for which NPU? Give soc='Ascend910B1' (device.name has it) or arch='dav-2201'")
    if not isinstance(soc, str):
        raise TypeError(f"soc: the name of an SoC such as 'Ascend910B1', not {type(soc).__name__}")
    if soc == "Ascend910B":
        raise ValueError(
            "soc='Ascend910B' is ambiguous: CANN has a chip of the first generation of that name (arch='dav-1001'); "
            "people mean Atlas A2, whose SoCs have a number (soc='Ascend910B1', or arch='dav-2201')"
        )
    target = npu_arch_of(soc)
    if target is None:
        known_socs = [name for socs in SOCS.values() for name in socs]
        near = difflib.get_close_matches(soc, known_socs, 3) or ["Ascend910B1", "Ascend910_9391", "Ascend950DT_9591"]
        raise ValueError(
            f"soc={soc!r} is no SoC that pyacl knows; did you mean {', '.join(near)}? For a new one give "
            f"arch='dav-…' of its generation"
        )
    return target


def _language(language: Optional[str], paths: Sequence[Path], simt: bool, shared: bool, tools: Toolchain) -> str:
    if language not in (None, "asc", "cce"):
        raise ValueError(f"language={language!r} is neither 'asc' nor 'cce'")
    if shared:
        if language == "cce":
            raise ValueError("shared=True needs language='asc': <<<>>> is part of it")
        return "asc"
    if language is not None:
        return language
    return "asc" if simt or any(path.suffix == ".asc" for path in paths) else tools.language


def _core(core: Optional[str], paths: Sequence[Path], npu_arch: str) -> str:
    archs = _CORE_ARCHS[npu_arch]
    can = [*archs, *(["mix"] if {"vector", "cube"} <= set(archs) else [])]
    if core is None:
        return "aicore" if "aicore" in archs else _declared_core("\n".join(map(_code, paths)))
    if core not in can:
        raise ValueError(f"core={core!r}: {npu_arch} has {', '.join(can)}")
    return core


def _declared_core(code: str) -> str:
    """The cores that the source asks for itself."""
    mixed = re.search(r"\b__mix__\s*\(|\bKERNEL_TYPE_MIX_\w+", code)
    cube = re.search(r"\b__cube__\b|\bKERNEL_TYPE_AIC_ONLY\b", code)
    vector = re.search(r"\b__vector__\b|\bKERNEL_TYPE_AIV_ONLY\b", code)
    if mixed:
        return "mix"
    if cube and vector:
        raise ValueError(
            "the sources declare a cube and a vector kernel: CCE compiles one kind of core a call; compile them apart, "
            "or give core="
        )
    return "cube" if cube else "vector"


def _halves(core: str, npu_arch: str) -> list[tuple[str, str]]:
    archs = _CORE_ARCHS[npu_arch]
    return [("aic", archs["cube"]), ("aiv", archs["vector"])] if core == "mix" else [("", archs[core])]


def _kernel_names(kernels: Sequence[str], path: Path) -> list[str]:
    names = list(dict.fromkeys(kernels or _KERNEL.findall(_code(path))))
    for name in names:
        if not name.isidentifier():
            raise ValueError(f"kernels: {name!r} is no name of a C function")
    if not names:
        raise ValueError(
            f"no __global__ function was found in {path.name}, and a mixed kernel is compiled twice under two names: "
            f"give kernels=['its_name']"
        )
    return names


_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)
_ATTRIBUTE = r"(?:__\w+__|\[\[[^\]]*\]\])(?:\s*\((?:[^()]|\([^()]*\))*\))?"
_KERNEL = re.compile(rf"\b__global__\s+(?:{_ATTRIBUTE}\s+)*void\s+(?:{_ATTRIBUTE}\s+)*(\w+)\s*\(")


def _code(path: Path) -> str:
    """A source without its comments."""
    return _COMMENT.sub(lambda match: match[1] or " ", path.read_text("utf-8", errors="replace"))


def _defines(define: Union[Sequence[str], Mapping[str, object]]) -> list[str]:
    if isinstance(define, str):
        raise TypeError("define takes a list or a dict of macros, not one str")
    if isinstance(define, Mapping):
        return [name if value is None else f"{name}={value}" for name, value in define.items()]
    return list(define)


def _words(options: Union[str, Sequence[str]]) -> list[str]:
    return shlex.split(options) if isinstance(options, str) else list(options)


def _unique_stems(paths: Sequence[Path]) -> list[str]:
    stems = [path.stem for path in paths]
    return [stem if stems.count(stem) == 1 else f"{stem}_{i}" for i, stem in enumerate(stems)]


# -- finding ---------------------------------------------------------------------------------------------------------


def _folders(machine: str) -> list[str]:
    return [f.format(machine="aarch64" if machine in ("aarch64", "arm64") else "x86_64") for f in _FOLDERS]


def _beside(path: str, name: str) -> Optional[str]:
    """A program beside another one, also beside what that one links to."""
    for folder in (os.path.dirname(path), os.path.dirname(os.path.realpath(path))):
        found = os.path.join(folder, name)
        if os.access(found, os.X_OK):
            return found
    return None


def _root_of(bisheng: str) -> str:
    """The installation that a bisheng belongs to: the folder above the layout it was found in."""
    for path in (bisheng, os.path.realpath(bisheng)):
        folder = Path(path).parent
        for layout in _FOLDERS[:-1]:
            parts = layout.split("/")[1:]
            if list(folder.parts[-len(parts) :]) == parts:
                return str(folder.parents[len(parts)])
    return str(Path(bisheng).parent.parent)


# -- running ---------------------------------------------------------------------------------------------------------


def _run(command: Sequence[str], folder: Path, tools: Toolchain, timeout: Optional[float]) -> str:
    """Run one command; what it printed. CompileError when it fails."""
    tool = os.path.basename(command[0])
    environ = {**os.environ, "ASCEND_HOME_PATH": os.environ.get("ASCEND_HOME_PATH") or tools.root}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environ, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode("utf-8", errors="replace")
        raise CompileError(
            f"{tool} did not end within {timeout:g} s.{_shown(output)}\nThe command was: {shlex.join(command)}",
            command=command,
            output=output,
        ) from None
    except OSError as error:
        raise CompileError(f"{command[0]} cannot be run: {error.strerror or error}", command=command) from error
    output = done.stdout.decode("utf-8", errors="replace")
    if done.returncode:
        how = f"exit code {done.returncode}" if done.returncode > 0 else _signal_name(-done.returncode)
        raise CompileError(
            f"{tool} failed ({how}).{_shown(output)}\nThe command was: {shlex.join(command)}",
            command=command,
            returncode=done.returncode,
            output=output,
        )
    return output


def _shown(output: str) -> str:
    """The compiler's lines, as far as a message can hold them: the first ones, which have the first error."""
    lines = output.rstrip().splitlines()
    first_error = next((i for i, line in enumerate(lines) if "error" in line.lower()), 0)
    start = max(0, min(first_error, len(lines) - _SHOWN_LINES))
    shown = lines[start : start + _SHOWN_LINES]
    if len(shown) < len(lines):
        shown.append(f"[{len(shown)} of {len(lines)} lines; the exception's `output` has them all]")
    return "\n" + "\n".join(shown) if lines else " It printed nothing."


def _signal_name(number: int) -> str:
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"


def _build(plan: Plan, folder: Path, timeout: Optional[float]) -> str:
    """Run the commands in a folder and check what they made; the sidecar lies there too, where it is needed."""
    log = "".join(_run(command, folder, plan.toolchain, timeout) for command in plan.commands)
    product = folder / plan.product
    last = plan.commands[-1]
    if not product.is_file():
        raise CompileError(
            f"{os.path.basename(last[0])} ended well and made no {plan.product}.{_shown(log)}\n"
            f"The command was: {shlex.join(last)}",
            command=last,
            output=log,
        )
    if plan.core != "host":
        _check(plan, product, log)
    return log


def _check(plan: Plan, product: Path, log: str) -> None:
    """The object is what was asked for; without metadata of its own it gets a sidecar."""
    problem = ""
    try:
        made = objfile.read(product)
        arch = made.architecture
        if not made.kernels:
            problem = f"there is no kernel in it: is there a __global__ function in {plan.sources[0].name}?"
        elif arch is not None and arch.npu_arch != plan.npu_arch:
            problem = f"it is for {arch.npu_arch}, not for {plan.npu_arch}."
    except objfile.KernelObjectError as error:
        problem = f"{error}."
    if problem:
        raise CompileError(
            f"{os.path.basename(plan.toolchain.bisheng)} made {plan.product}, but {problem}{_shown(log)}",
            command=plan.commands[0],
            output=log,
        )
    if not made.meta_complete and plan.sidecar is not None:
        text = json.dumps({**plan.sidecar, "binFileName": product.stem, "binFileSuffix": ".o"}, indent=2)
        product.with_suffix(".json").write_text(text + "\n", "utf-8")


def _deliver(plan: Plan, folder: Path, output: Optional[StrPath]) -> Path:
    """Copy the object, and its sidecar first, to where the caller wants them; each appears whole."""
    assert output is not None
    target = Path(os.path.abspath(os.fspath(output)))
    product = folder / plan.product
    sidecar = product.with_suffix(".json")
    if sidecar.exists():
        _copy(sidecar, target.with_suffix(".json"))
    _copy(product, target)
    return target


def _copy(source: Path, target: Path) -> None:
    number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(source.read_bytes())
        os.chmod(name, source.stat().st_mode & 0o777)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


# -- the cache -------------------------------------------------------------------------------------------------------
#
# <key of sources, compiler and commands>/<key of the headers read>/ has the object, its sidecar, what the compiler
# said (log.txt), the hashes of these (files.json) and the headers with theirs (headers.json).


def _key(plan: Plan) -> str:
    digest = hashlib.sha256()

    def add(*parts: Union[str, bytes]) -> None:
        for part in parts:
            data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
            digest.update(b"%d:" % len(data) + data)

    add(str(_CACHE_FORMAT), plan.product, json.dumps(plan.sidecar, sort_keys=True), plan.toolchain.version())
    for tool in (plan.toolchain.bisheng, plan.toolchain.linker):
        status = os.stat(tool)
        add(os.path.realpath(tool), str(status.st_size), str(status.st_mtime_ns))
    for command in plan.commands:
        add("command", *command)
    for source in plan.sources:
        add("source", str(source), source.read_bytes())
    return digest.hexdigest()[:32]


def _lookup(folder: Path) -> Optional[Path]:
    """The entry whose headers still are what they were."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        return None
    hashes: dict[str, Optional[str]] = {}
    for entry in entries:
        try:
            headers: dict[str, str] = json.loads((entry / "headers.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue  # somebody is deleting the folder
        for path in headers:
            if path not in hashes:
                hashes[path] = _hash_of(path)
        if all(hashes[path] == known for path, known in headers.items()) and _intact(entry):
            return entry
    return None


def _intact(entry: Path) -> bool:
    """Whether an entry still has what was put there: programs that clean up delete or empty single files."""
    try:
        files: dict[str, str] = json.loads((entry / "files.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return all(_hash_of(str(entry / name)) == known for name, known in files.items())


def _store(plan: Plan, root: Path, key: str, timeout: Optional[float]) -> Path:
    try:
        root.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".making-", dir=root))
    except OSError as error:
        raise OSError(
            error.errno,
            f"the cache folder {root} cannot be written ({error.strerror}): set XDG_CACHE_HOME, or give output= and "
            f"cache=False",
        ) from error
    try:
        log = _build(plan, work, timeout)
        headers = _headers(plan, work)
        for name in (*plan.objects, *plan.dependency_files):
            (work / name).unlink(missing_ok=True)
        (work / "log.txt").write_text(log, "utf-8")
        if headers is None:
            # the next call does not find this entry and compiles again
            name = _digest((work / plan.product).read_bytes())
        else:
            text = json.dumps(headers, sort_keys=True)
            (work / "headers.json").write_text(text, "utf-8")
            name = _digest(text)
        files = {file.name: _hash_of(str(file)) for file in work.iterdir() if file.name != "headers.json"}
        (work / "files.json").write_text(json.dumps(files, sort_keys=True), "utf-8")
        entry = root / key / name
        entry.parent.mkdir(exist_ok=True)
        work.chmod(0o755)
        try:
            os.rename(work, entry)
        except OSError:
            if not _intact(entry):
                shutil.rmtree(entry, ignore_errors=True)
                with contextlib.suppress(OSError):
                    os.rename(work, entry)
                if not _intact(entry):
                    raise
            shutil.rmtree(work, ignore_errors=True)  # somebody was first, with the same result
        return entry
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _headers(plan: Plan, work: Path) -> Optional[dict[str, str]]:
    """Every file the compiler read, and its hash; None when it did not tell."""
    found: dict[str, str] = {}
    for name in plan.dependency_files:
        try:
            text = (work / name).read_text("utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return None
        for path in _prerequisites(text):
            absolute = os.path.normpath(os.path.join(work, path))
            digest = _hash_of(absolute)
            if digest is None:
                return None
            found[absolute] = digest
    return found


def _prerequisites(text: str) -> list[str]:
    """The files on the right of the first colon of a make rule."""
    rule = text.replace("\\\n", " ").split("\n")[0]
    words = [re.sub(r"\\(.)", r"\1", word) for word in re.findall(r"(?:\\.|[^\s\\])+", rule)]
    ends = [i for i, word in enumerate(words) if word.endswith(":")]
    return words[ends[0] + 1 :] if ends else []


def _hash_of(path: str) -> Optional[str]:
    try:
        return _digest(Path(path).read_bytes())
    except OSError:
        return None


def _digest(data: Union[str, bytes]) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:32]
