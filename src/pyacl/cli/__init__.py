"""The command line: which commands there are, and how one is found and run. Each command is a module of this package.

A command module has ``add_parser(subparsers)`` and ``run(args) -> int``; it is imported when its command is called.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any, Optional

from pyacl._version import __version__

#: name and one line of help; the module of the same name has the rest
COMMANDS = {
    "info": "the CANN version, the backend and the devices",
    "doctor": "where CANN was looked for, what was found, and what to do about it",
    "demo": "run a kernel program from beginning to end",
    "inspect": "what is in a kernel object, and whether it will load",
    "run": "launch a kernel of a kernel object",
    "compile": "compile kernels with bisheng",
    "trace": "run a program and show its C calls",
    "record": "run a program and keep its C calls for a replay",
}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run ``pyacl`` with these arguments (those of the process for None); returns the exit code.

    Codes: 0 success, 1 the command failed, 2 wrong arguments or something the command needs is not installed.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="pyacl", description="Drive Ascend NPUs from Python.", epilog="pyacl COMMAND --help says more."
    )
    parser.add_argument("--version", action="version", version=f"pyacl {__version__}")
    subparsers = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    module: Any = None
    for name, summary in COMMANDS.items():
        if importlib.util.find_spec(f"pyacl.cli.{name}") is None:
            continue
        if name == chosen:
            try:
                module = importlib.import_module(f"pyacl.cli.{name}")
            except ImportError as error:
                return _missing(name, error)
            module.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary, add_help=False)
    args = parser.parse_args(arguments)
    if module is None:
        parser.print_help()
        return 0
    return _run(module, args)


def _run(module: Any, args: argparse.Namespace) -> int:
    from pyacl.errors import AclError

    try:
        code = int(module.run(args))
        if sys.stdout is not None:  # as it is where it is closed
            sys.stdout.flush()
        return code
    except AclError as error:
        print(f"pyacl {args.command}: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        return _missing(args.command, error)
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EFBIG):
            raise
        if not isinstance(error, BrokenPipeError):  # whoever read the output has had enough
            print(f"pyacl {args.command}: the output cannot be written: {error.strerror}", file=sys.stderr)
        # keep the interpreter from writing the rest at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def in_words(error: BaseException) -> str:
    """What an error says; of a file that cannot be read or written, without the number that Python puts before it."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


def _missing(command: str, error: ImportError) -> int:
    package = (error.name or "").partition(".")[0]
    if package == "rich":
        print(f"pyacl {command} needs rich: pip install 'ascend-pyacl[cli]'", file=sys.stderr)
        return 2
    raise error
