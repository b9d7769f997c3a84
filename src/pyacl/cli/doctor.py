"""``pyacl doctor``: where CANN was looked for, what was found, and what to do about it."""

from __future__ import annotations

import argparse
import ctypes
import glob
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

from pyacl.backends import shared_object
from pyacl.backends.library import Attempt, LibraryBackend, Places, loaded_path, version_above
from pyacl.errors import LibraryNotFoundError

OK, NOTE, WARNING, BAD = "ok", "note", "warning", "bad"
_STYLES = {OK: "green", NOTE: "cyan", WARNING: "yellow", BAD: "bold red"}

#: the device files that a container must be given beside the devices themselves
_MANAGERS = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")


class Check(NamedTuple):
    """One thing that was looked at: how it is, and what to do where it is not well."""

    name: str
    status: str
    said: str
    hint: str = ""


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of ``pyacl``."""
    parser = subparsers.add_parser(
        "doctor",
        help="where CANN was looked for, what was found, and what to do about it",
        description="Look for CANN as a program would, load it, and check the things that go wrong most often.",
        epilog="exit codes: 0 CANN was found and can be loaded, 1 it was not, 2 wrong arguments",
    )
    parser.add_argument("--folder", help="look only here: an installation, or a folder of libraries")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    if not args.json:
        import rich  # noqa: F401  tell that it is missing before the work
    backend, attempts, checks = examine(args.folder, Places(os.environ))
    if args.json:
        result = {
            "ok": backend is not None,
            "library": backend.used.path if backend else None,
            "root": backend.root if backend else None,
            "cann": backend.version if backend else None,
            "attempts": [attempt._asdict() for attempt in attempts],
            "checks": [check._asdict() for check in checks],
        }
        print(json.dumps(result, indent=2))
    else:
        _show(attempts, checks)
    return 0 if backend is not None else 1


def examine(folder: Optional[str], places: Places) -> tuple[Optional[LibraryBackend], list[Attempt], list[Check]]:
    """Look for CANN and check it: the library if there is one, every place looked at, and the checks."""
    # as the user has them: loading sets the ones that are missing
    environ = dict(places.environ)
    backend: Optional[LibraryBackend] = None
    checks = [Check("Python", OK, f"{platform.python_version()} on {platform.machine()}, {sys.executable}")]
    try:
        backend = LibraryBackend(folder, places=places)
    except LibraryNotFoundError as error:
        attempts = list(error.attempts)
        checks.append(Check("CANN", BAD, "not found", error.next_step))
    else:
        attempts = list(backend.attempts)
        checks.extend(_of_library(backend, environ))
    checks.extend(_of_environment(environ))
    checks.extend(_of_devices(backend, environ))
    checks.extend(_of_libgomp(environ))
    return backend, attempts, checks


def _of_library(backend: LibraryBackend, environ: dict[str, str]) -> Iterator[Check]:
    used = backend.used
    real = os.path.realpath(used.path)
    yield Check("CANN", OK, f"{backend.version or 'unknown version'}, {used.path}{_arrow(used.path, real)}")
    driver = loaded_path("libascend_hal.so")
    if driver:
        yield Check("driver", OK, f"{version_above(driver) or 'unknown version'}, {driver}")
    else:
        yield Check("driver", NOTE, "this CANN library does not need libascend_hal.so")
    expected, missing = _coverage(backend)
    said = f"{expected - len(missing)} of the {expected} in the main library of CANN {backend.version}"
    if missing:
        names = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        hint = "Driver, toolkit and libraries of one release belong together; these functions cannot be called here"
        yield Check("functions", WARNING, f"{said}; missing: {names}", hint)
    else:
        yield Check("functions", OK, said)
    home = environ.get("ASCEND_HOME_PATH")
    if home and os.path.realpath(home) != os.path.realpath(backend.root):
        hint = "CANN reads its own files below ASCEND_HOME_PATH: let it name the installation in use, or unset it"
        yield Check("ASCEND_HOME_PATH", WARNING, f"{home}, but {backend.root} is in use", hint)


def _of_environment(environ: dict[str, str]) -> Iterator[Check]:
    if not environ.get("ASCEND_HOME_PATH"):
        yield Check("set_env.sh", NOTE, "not sourced; pyacl does not need it, other programs do")
    else:
        yield Check("set_env.sh", OK, f"ASCEND_HOME_PATH={environ['ASCEND_HOME_PATH']}")
    stubs = [p for p in environ.get("LD_LIBRARY_PATH", "").split(":") if p and shared_object.is_stub_path(f"{p}/")]
    if stubs:
        hint = "Take them out: what loads a library from there gets 100039 from every call. pyacl refuses them"
        yield Check("LD_LIBRARY_PATH", WARNING, f"has folders of link-time stubs: {', '.join(stubs)}", hint)
    if environ.get("PYACL_BACKEND", "library") != "library":
        yield Check("PYACL_BACKEND", NOTE, f"{environ['PYACL_BACKEND']}: programs use that, not what is shown here")


def _of_devices(backend: Optional[LibraryBackend], environ: dict[str, str]) -> Iterator[Check]:
    nodes = sorted(glob.glob("/dev/davinci[0-9]*"))
    hint = "In a container pass the devices: --device /dev/davinci0 " + " ".join(f"--device {m}" for m in _MANAGERS)
    locked = [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    absent = [node for node in _MANAGERS if not os.path.exists(node)]
    if not nodes:
        yield Check("device files", WARNING, "no /dev/davinci*: no NPU is visible here", hint)
    elif locked:
        group = "Join the group that owns them (HwHiAiUser in most installations)"
        yield Check("device files", WARNING, f"no permission for {', '.join(locked)}", group)
    elif absent:
        yield Check("device files", WARNING, f"{_devices(len(nodes))}, but no {', '.join(absent)}", hint)
    else:
        yield Check("device files", OK, _devices(len(nodes)))
    count = _device_count(backend) if backend is not None else None
    if count is not None:
        yield Check("devices", OK if count else WARNING, f"{count}, numbered from 0 in each process")
    yield _visible_devices(environ.get("ASCEND_RT_VISIBLE_DEVICES"), count)


def _visible_devices(value: Optional[str], count: Optional[int]) -> Check:
    name = "ASCEND_RT_VISIBLE_DEVICES"
    if value is None:
        return Check(name, OK, "not set: all devices are visible")
    words = [word.strip() for word in value.split(",")]
    wrong = [word for word in words if not word.isdigit()]
    if wrong or len(set(words)) != len(words):
        hint = "Give each number once, separated by commas. CANN drops what it cannot use without a word"
        return Check(name, WARNING, f"{value!r} is not a list of different device numbers", hint)
    renumbered = "a program's device 0 is the first in this list"
    if count is not None and count < len(words):
        said = f"names {_devices(len(words))}, {count} can be used"
        return Check(name, WARNING, said, f"Correct the list; {renumbered}")
    return Check(name, OK, f"{value}: {renumbered}")


def _of_libgomp(environ: dict[str, str]) -> Iterator[Check]:
    loaded_late = any(importlib.util.find_spec(package) for package in ("torch", "sklearn"))
    if platform.machine() in ("aarch64", "arm64") and loaded_late and "libgomp" not in environ.get("LD_PRELOAD", ""):
        hint = (
            'If an import fails with "cannot allocate memory in static TLS block", start Python with LD_PRELOAD set to '
            "the libgomp that the message names"
        )
        yield Check("libgomp", NOTE, "not preloaded; torch or sklearn bring their own on aarch64", hint)


def _coverage(backend: LibraryBackend) -> tuple[int, list[str]]:
    """How many functions of the main library this CANN version should have, and which it lacks."""
    from pyacl.raw.functions import FUNCTIONS

    version = backend.version
    if version is None:
        return 0, []
    expected = [n for n, row in FUNCTIONS.items() if row.library == "acl_rt" and row.in_version(version)]
    return len(expected), [name for name in expected if backend.address(name) is None]


def _device_count(backend: LibraryBackend) -> Optional[int]:
    address = backend.address("aclrtGetDeviceCount")
    if address is None:
        return None
    count = ctypes.c_uint32()
    ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint32))(address)
    return count.value if ask(count) == 0 else None


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def _arrow(path: str, real: str) -> str:
    return f" -> {real}" if real != path else ""


def _show(attempts: list[Attempt], checks: list[Check]) -> None:
    from rich.text import Text

    from pyacl.cli.console import open_console, plain_table

    console = open_console()
    table = plain_table("why", "place", "found", title="Where CANN was looked for")
    for attempt in attempts:
        found = f"{attempt.verdict}{f': {attempt.detail}' if attempt.detail else ''}"
        style = "green" if attempt.verdict == "loaded" else "dim" if attempt.verdict == "not here" else "red"
        table.add_row(attempt.origin, Text(attempt.path), Text(found, style=style))
    console.print(table)
    for check in checks:
        line = Text.assemble((f"{check.status:8}", _STYLES[check.status]), f"{check.name}: {check.said}")
        console.print(line, soft_wrap=True)
        if check.hint:
            console.print(Text(f"        {check.hint}", style="italic"), soft_wrap=True)
