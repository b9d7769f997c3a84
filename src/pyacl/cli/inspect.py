"""``pyacl inspect``: what is in a kernel file, what it needs, and whether the runtime will load it.

Exit codes: 0 every file can be loaded, 1 one cannot be loaded or read, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Callable, NamedTuple

from pyacl import objfile
from pyacl.cli import in_words
from pyacl.cli.console import open_console, plain_table
from pyacl.objfile import Container, Kernel, KernelObject, KernelObjectError
from pyacl.objfile.reader import SIZE_LIMIT

#: Files looked at inside folders and archives; others are looked at when they are named.
SUFFIXES = (".o", ".a", ".npubin")
#: How compressed tar files begin: gzip, bzip2, xz.
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")
#: More objects than this are shown as one line each.
DETAIL_LIMIT = 5

_EPILOG = """\
examples:
  pyacl inspect add_custom.o                       everything about one object
  pyacl inspect --soc Ascend910B1 build/           whether the objects of a folder load there
  pyacl inspect --json mx_driving-26.2.0.whl       the objects of a wheel, for programs
  pyacl inspect --extract add.o libadd_host.o      take the device binary out of a host object

exit codes: 0 every file can be loaded, 1 one cannot be loaded or read, 2 wrong arguments
"""


#: How much of a name the table shows on a terminal, in lines of its column; in a pipe names are whole.
_NAME_LINES = 2


class Item(NamedTuple):
    """One file to look at, not read yet."""

    name: str
    read: Callable[[], KernelObject]
    #: Whether the user named it; otherwise it was found in a folder or an archive.
    named: bool = False


class Result(NamedTuple):
    """What came of it: an object, or why there is none."""

    name: str
    object: KernelObject | None
    error: str | None


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of ``pyacl``."""
    parser = subparsers.add_parser(
        "inspect",
        help="what is in a kernel object, and whether it will load",
        description="Show what kernel objects (.o), host objects, libraries and archives hold, without loading them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="a file, a folder, an archive (.a, .zip, .tar.gz) or a wheel")
    add("--soc", help="the SoC to load it on, as `pyacl info` names it: Ascend910B1")
    add("--json", action="store_true", help="print JSON: a list with an entry for each object")
    add("--extract", metavar="OUT", help="write the device binary of the one FILE to OUT")
    add("--details", action="store_true", help=f"show everything also of more than {DETAIL_LIMIT} objects")


def run(args: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    with ExitStack() as archives:
        try:
            items = [item for name in args.files for item in find(name, archives)]
        except FileNotFoundError as error:
            return _fail(f"there is no file or folder {error.filename}")
        except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
            return _fail(in_words(error))
        if not items:
            where = f"in {', '.join(args.files)}; archives and wheels in a folder are looked into when they are named"
            return _fail(f"no kernel objects ({', '.join(SUFFIXES)}) {where}")
        if args.extract:
            return _extract(items, args.extract, args.soc)
        if not args.json and not _has_rich():
            return _fail("the tables need rich: pip install 'ascend-pyacl[cli]'; or use --json")
        summary = len(items) > DETAIL_LIMIT and not args.details and not args.json
        results = _results(_with_progress(items) if summary else items)
        first = next(results, None)
        if first is None:
            return _fail(f"nothing but static libraries for the host in {', '.join(args.files)}")
        show = _print_json if args.json else _print_summary if summary else _print_details
        return show(chain([first], results), args.soc)


def _has_rich() -> bool:
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


def find(name: str, archives: ExitStack) -> Iterator[Item]:
    """Yield the files to look at for one argument, in the order of their names.

    Parameters
    ----------
    name : str
        A file, a folder or an archive.
    archives : ExitStack
        Closes the archives that the items are read from.

    Raises
    ------
    OSError
        The argument does not exist or cannot be read.
    """
    path = Path(name)
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                yield Item(str(file), _reader(file))
        return
    if path.is_fifo():  # such as <(a command) of a shell: it can be read only once
        data = path.read_bytes()
        yield Item(name, lambda: objfile.read(data), named=True)
        return
    with path.open("rb") as stream:
        start = stream.read(512)
    if start[:4] == b"\x7fELF" or start[:8] == b"!<arch>\n":
        yield Item(name, _reader(path), named=True)
        return
    opened: tuple[dict[str, int], Callable[[str], bytes]] | None = None
    try:
        with _unpacking():
            if path.is_file() and zipfile.is_zipfile(path):
                opened = _zip(path, archives)
            elif start.startswith(_PACKED) or start[257:262] == b"ustar":  # tarfile takes zeros for a tar file, too
                opened = _tar(path, archives)
    except KernelObjectError as error:
        yield Item(name, _refused(error), named=True)
        return
    if opened is None:
        yield Item(name, _reader(path), named=True)
    else:
        yield from _members(str(path), *opened)


def _reader(path: Path) -> Callable[[], KernelObject]:
    return lambda: objfile.read(path)


def _refused(error: KernelObjectError) -> Callable[[], KernelObject]:
    def read() -> KernelObject:
        raise error

    return read


@contextmanager
def _unpacking() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # zipfile, tarfile, zlib, bz2 and lzma: damage has many names there
        what = str(error).partition("\n")[0].rstrip(":") or type(error).__name__
        raise KernelObjectError(f"cannot be unpacked: {what}") from error


def _zip(path: Path, archives: ExitStack) -> tuple[dict[str, int], Callable[[str], bytes]]:
    """Sizes of the files in an archive by their names, and how to read one."""
    archive = archives.enter_context(zipfile.ZipFile(path))
    return {member.filename: member.file_size for member in archive.infolist()}, archive.read


def _tar(path: Path, archives: ExitStack) -> tuple[dict[str, int], Callable[[str], bytes]]:
    archive = archives.enter_context(tarfile.open(path))  # noqa: SIM115
    members = {member.name: member for member in archive.getmembers() if member.isfile()}

    def content(member: str) -> bytes:
        file = archive.extractfile(members[member])
        return b"" if file is None else file.read()

    return {name: member.size for name, member in members.items()}, content


def _members(archive: str, sizes: dict[str, int], content: Callable[[str], bytes]) -> Iterator[Item]:
    def unpack(member: str) -> bytes:
        if sizes[member] > SIZE_LIMIT:
            raise KernelObjectError(f"{sizes[member]} bytes are too many for a kernel object")
        with _unpacking():
            return content(member)

    def reader(member: str) -> Callable[[], KernelObject]:
        def read() -> KernelObject:
            beside = member.rpartition(".")[0] + ".json"
            return objfile.read(unpack(member), sidecar=unpack(beside) if beside in sizes else None)

        return read

    for member in sorted(sizes):
        if member.endswith(SUFFIXES):
            yield Item(f"{archive}!{member}", reader(member))


def _results(items: Iterable[Item]) -> Iterator[Result]:
    """Read one by one, because thousands of objects need not be in memory together.

    What was found and is no kernel file (static libraries for the host) is passed over.
    """
    for item in items:
        try:
            obj = item.read()
        except (KernelObjectError, OSError) as error:
            yield Result(item.name, None, in_words(error))
            continue
        if item.named or obj.container is not Container.ARCHIVE or obj.device_parts():
            yield Result(item.name, obj, None)


def _with_progress(items: Sequence[Item]) -> Iterable[Item]:
    from rich.console import Console
    from rich.progress import track

    return track(items, "Reading", console=Console(stderr=True), transient=True)


def _fail(message: str) -> int:
    print(f"pyacl inspect: {message}", file=sys.stderr)
    return 2


def _extract(items: Sequence[Item], out: str, soc: str | None) -> int:
    if len(items) != 1:
        return _fail(f"--extract takes one file, these are {len(items)}")
    try:
        data = items[0].read().extract(soc)
        source = items[0].name.split("!")[0]
        if os.path.exists(out) and os.path.samefile(source, out):
            return _fail(f"{out} is the file to extract from")
        Path(out).write_bytes(data)
    except (KernelObjectError, OSError) as error:
        print(f"pyacl inspect: {in_words(error)}", file=sys.stderr)
        return 1
    verdict = objfile.read(data).verdict(soc)
    print(f"{out}: {len(data)} bytes, {verdict.summary}")
    for advice in verdict.advice[:1]:
        print(f"  {advice}")
    return 0


def _print_json(results: Iterable[Result], soc: str | None) -> int:
    entries, code = [], 0
    for name, obj, error in results:
        if obj is None:
            entries.append({"file": name, "error": error})
            code = 1
        else:
            entries.append({"file": name, "error": None, **obj.to_dict(soc)})
            code = code if obj.verdict(soc).loadable else 1
    print(json.dumps(entries, indent=1))
    return code


def _print_summary(results: Iterable[Result], soc: str | None) -> int:
    from rich.markup import escape

    console = open_console()
    rows: list[tuple[str, str, str, str, str, str]] = []
    verdicts: dict[str, Counter[str]] = {}
    kernels = code = 0
    for name, obj, error in results:
        if obj is None:
            verdicts.setdefault("unreadable", Counter())[error or ""] += 1
            code = 1
            rows.append((name, "", "", "", error or "", "red"))
            continue
        verdict = obj.verdict(soc)
        reason = "" if verdict.loadable else verdict.reasons[0]
        verdicts.setdefault(verdict.summary, Counter())[reason] += 1
        kernels += len(obj.kernels)
        code = code if verdict.loadable else 1
        cores = ", ".join(sorted({kernel.core for kernel in obj.kernels}))
        rows.append((name, _architecture(obj), str(len(obj.kernels)), cores, verdict.summary, _color(verdict)))
    table = plain_table("file", "architecture", "kernels", "cores", "verdict")
    room = console.width
    if console.is_terminal:
        room = table.columns[0].max_width = max(24, console.width - 56)
    for name, architecture, count, cores, said, color in rows:
        cut = len(name) - _NAME_LINES * room
        shown = name if cut <= 0 else "…" + name[cut + 1 :]
        table.add_row(escape(shown), escape(architecture), count, cores, f"[{color}]{escape(said)}[/]")
    console.print(table)
    console.print(f"{len(rows)} files, {kernels} kernels")
    for text, reasons in sorted(verdicts.items(), key=lambda item: -sum(item[1].values())):
        console.print(f"{sum(reasons.values()):6} {escape(text)}")
        for reason, times in reasons.most_common(5):
            if reason:
                console.print(f"{times:12} {escape(reason)}", soft_wrap=True)
    return code


def _print_details(results: Iterable[Result], soc: str | None) -> int:
    from rich.markup import escape

    console, code = open_console(), 0
    for name, obj, error in results:
        if obj is None:
            console.print(f"[bold]{escape(name)}[/]: [red]{escape(error or '')}[/]", soft_wrap=True)
            code = 1
        else:
            _print_object(console, name, obj, soc)
            code = code if obj.verdict(soc).loadable else 1
    return code


def _print_object(console: Any, name: str, obj: KernelObject, soc: str | None, indent: int = 0) -> None:
    from rich.markup import escape
    from rich.padding import Padding
    from rich.table import Table

    def line(label: str, text: str, style: str = "") -> None:
        """One line, however long: the terminal wraps it, and it can be copied whole."""
        shown = f"[{style}]{escape(text)}[/]" if style else escape(text)
        console.print(f"{' ' * indent}  {label:<12}{shown}", soft_wrap=True)

    def words(label: str, text: str) -> None:
        """Words that go on in the same column on the next line."""
        grid = Table.grid()
        grid.add_row(f"{' ' * indent}  {label:<12}", escape(text))
        console.print(grid)

    verdict = obj.verdict(soc)
    kind = ", ".join(filter(None, (str(obj.container), _architecture(obj), f"{len(obj.data):,} bytes")))
    console.print(f"{' ' * indent}[bold]{escape(name)}[/]: {escape(kind)}", soft_wrap=True)
    line("verdict", verdict.summary, _color(verdict))
    for text in verdict.reasons:
        words("because", text)
    for text in verdict.advice:
        line("do", text)
    for text in verdict.cautions:
        words("mind", text)
    if obj.socs:
        words("runs on", ", ".join(obj.socs[:14]) + (f" and {len(obj.socs) - 14} more" if len(obj.socs) > 14 else ""))
    if obj.architecture is not None:
        types = "complete" if obj.meta_complete else "incomplete" if obj.code.meta else "none"
        untyped = any(entry.meta is not None and entry.meta.ktype is None for entry in obj.entries)
        line("metadata", f"{types}, without kernel type" if untyped else types)
    if obj.stack_size:
        line("stack", f"{obj.stack_size:,} bytes")
    if obj.binary_meta.debug_options:
        line("debug", f"{', '.join(obj.binary_meta.debug_options)}, buffer of {obj.binary_meta.debug_buffer:,} bytes")
    if obj.sidecar is not None:
        said = [("magic", obj.sidecar.magic), ("coreType", obj.sidecar.core_type)]
        said += [("debugOptions", obj.sidecar.debug_options)]
        said += [
            (f"{kernel.name}:", f"{kernel.function} in {kernel.library}") for kernel in obj.sidecar.cpu_kernels[:10]
        ]
        text = ", ".join(f"{key} {value}" for key, value in said if value)
        line("JSON", obj.sidecar.error or text or "without anything the runtime reads")
    if obj.comment:
        words("built by", "; ".join(obj.comment[:4]))
    if obj.kernels:
        console.print(Padding(_kernel_table(obj.kernels), (0, 0, 0, indent + 2), expand=False))
        if any(len(kernel.user_sizes) > 1 for kernel in obj.kernels):
            words("* 8 less", "where the kernel declares the overflow status: AscendC's wrapper, CANN up to 8.5")
    for note in obj.notes:
        line("passed over", note)
    host = [part for part in obj.parts if part.container is Container.HOST]
    if host:
        line("and", f"{len(host)} host files without kernels")
    for part in obj.parts:
        if part.container is not Container.HOST:
            _print_object(console, part.origin or "part", part, soc, indent + 4)


def _kernel_table(kernels: Sequence[Kernel]) -> Any:
    from rich.markup import escape

    table = plain_table("kernel", "core", "key", "bytes of arguments", "arguments", "needs")
    for kernel in kernels:
        name = escape(kernel.name)
        if kernel.demangled != kernel.name:
            name = f"{escape(kernel.demangled)}\n[dim]{name}[/]"
        core = kernel.core + (f" {kernel.ratio[0]}:{kernel.ratio[1]}" if kernel.ratio else "")
        if kernel.vector_type not in (None, "none"):
            core += f"\n{kernel.vector_type}"
        sizes = str(kernel.user_sizes[0]) if kernel.user_sizes else "?"
        if len(kernel.user_sizes) > 1:
            sizes += f" or {kernel.user_sizes[1]}*"
        hidden = ("\n+ 8 FFTS" if kernel.ffts else "") + ("\n+ 8 overflow" if kernel.overflow else "")
        roles = "?"
        if kernel.arguments is not None:
            roles = ", ".join(
                argument.role + (f" {argument.size}" if (argument.size or -1) > 0 else "")
                for argument in kernel.arguments
            )
        table.add_row(
            name,
            core,
            "" if kernel.tiling_key is None else str(kernel.tiling_key),
            sizes + hidden,
            roles,
            _needs(kernel),
        )
    return table


def _needs(kernel: Kernel) -> str:
    needs = []
    if kernel.min_stack:
        needs.append(f"stack {kernel.min_stack}")
    if kernel.ub_size:
        needs.append(f"UB {kernel.ub_size}")
    if kernel.sched_mode not in (None, "normal"):
        needs.append(f"schedule {kernel.sched_mode}")
    if kernel.sync:
        needs.append("cores synchronize")
    return "\n".join(needs)


def _architecture(obj: KernelObject) -> str:
    if obj.architecture is not None:
        return obj.architecture.label
    return "" if obj.machine == 0 else obj.machine_name if not obj.flags else f"e_flags {obj.flags:#x}"


def _color(verdict: objfile.Verdict) -> str:
    return "green" if verdict.from_file else "yellow" if verdict.from_data else "red"
