"""``pyacl info``: the CANN version, the backend and the devices."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from typing import Any, Optional


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of ``pyacl``."""
    parser = subparsers.add_parser(
        "info",
        help="the CANN version, the backend and the devices",
        description="Show which CANN answers, and its devices. Each device is opened for a moment to ask it.",
        epilog="exit codes: 0 shown, 1 no CANN was found or a device did not answer, 2 wrong arguments",
    )
    parser.add_argument("--backend", help="library, library:/folder, sim, sim:SOC (default: PYACL_BACKEND, or library)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    if not args.json:
        import rich  # noqa: F401  tell that it is missing before a device is opened
    try:
        found = collect(args.backend)
    except ValueError as error:
        print(f"pyacl info: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        _show(found)
    return 1 if any("error" in device for device in found["devices"]) else 0


def collect(backend: Optional[str] = None) -> dict[str, Any]:
    """Everything the command shows, as plain data.

    Raises
    ------
    ValueError
        When `backend`, or PYACL_BACKEND, names none.
    """
    from pyacl._version import __version__
    from pyacl.device import Device, device_count
    from pyacl.errors import AclError
    from pyacl.session import current_session, use_backend

    if backend is not None:
        use_backend(backend)
    api = current_session().api
    count = device_count()
    devices = []
    for number in range(count):
        try:
            with Device(number) as device:
                devices.append({**dataclasses.asdict(device.info), "free_memory": device.memory_info.free})
        except AclError as error:
            devices.append({"id": number, "error": str(error)})
    return {
        "pyacl": __version__,
        "backend": api.backend.name,
        "cann": api.version,
        "ASCEND_RT_VISIBLE_DEVICES": os.environ.get("ASCEND_RT_VISIBLE_DEVICES"),
        "devices": devices,
    }


def _show(found: dict[str, Any]) -> None:
    from rich.text import Text

    from pyacl.cli.console import open_console, plain_table

    console = open_console()
    visible = found["ASCEND_RT_VISIBLE_DEVICES"]
    said = "all" if visible is None else f"{visible} (ASCEND_RT_VISIBLE_DEVICES)"
    for name, value in (
        ("pyacl", found["pyacl"]),
        ("backend", found["backend"]),
        ("CANN", found["cann"] or "unknown"),
        ("devices", f"{len(found['devices'])}, visible: {said}"),
    ):
        console.print(Text(f"{name:8} {value}"), soft_wrap=True)
    headings = ("device", "SoC", "AI cores", "vector cores", "AI CPUs", "free", "memory", "chip")
    table = plain_table(*headings, right=True)
    for device in found["devices"]:
        if "error" not in device:
            table.add_row(
                str(device["id"]),
                device["name"],
                *(_number(device[key]) for key in ("ai_cores", "vector_cores", "ai_cpus")),
                *(_gigabytes(device[key]) for key in ("free_memory", "total_memory")),
                _number(device["physical_id"]),
            )
    if table.row_count:
        console.print(table)
    for device in found["devices"]:
        if "error" in device:
            console.print(Text(f"device {device['id']}: {device['error']}"), soft_wrap=True)


def _number(value: Optional[int]) -> str:
    return "-" if value is None else str(value)


def _gigabytes(value: Optional[int]) -> str:
    return "-" if value is None else f"{value / 2**30:.1f} GiB"
