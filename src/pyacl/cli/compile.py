"""``pyacl compile``: kernel sources to a device binary, with bisheng.

Exit codes: 0 compiled (or shown), 1 the compiler or the linker failed, 2 wrong arguments or no compiler.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from pyacl import objfile
from pyacl.cli import in_words
from pyacl.compiler import (
    CompileError,
    CompilerNotFoundError,
    Plan,
    Toolchain,
    cache_folder,
    check_target,
    make_plan,
    run_plan,
)

_EPILOG = """\
examples:
  pyacl compile add.cpp --soc Ascend910B1                  writes add.o
  pyacl compile add.cpp --arch dav-3510 --simt -o simt.o   a SIMT kernel for Ascend 950
  pyacl compile add.asc --soc Ascend910B1 --shared         writes libadd.so, with <<<>>> inside
  pyacl compile add.cpp --soc Ascend910B1 --dry-run        shows the command lines

exit codes: 0 compiled (or shown), 1 the compiler or the linker failed, 2 wrong arguments or no compiler
"""


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of ``pyacl``."""
    parser = subparsers.add_parser(
        "compile",
        help="compile kernels with bisheng",
        description="Compile kernel sources to a device binary that pyacl (and aclrtBinaryLoadFromFile) loads.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("sources", nargs="+", metavar="SOURCE", help="Ascend C sources (.cpp, .asc), linked into one object")
    add("--soc", help="the SoC, as `pyacl info` names it: Ascend910B1")
    add("--arch", help="or the generation: dav-2201 (Atlas A2, A3), dav-3510 (950), dav-2002 (310P)")
    add("-o", "--output", metavar="FILE", help="where it goes (default: the first source's name with .o, here)")
    add("--simt", action="store_true", help="the sources have SIMT kernels")
    add("--shared", action="store_true", help="make a host library of a source with <<<>>> in it")
    add("--core", choices=("vector", "cube", "mix", "aicore"), help="CCE only: the cores to compile for")
    add("--kernel", action="append", default=[], metavar="NAME", help="CCE only: a mixed kernel's name (repeatable)")
    add("--language", choices=("asc", "cce"), help="Ascend C as a language (CANN 9 and later), or CCE (up to 8.5)")
    add("-I", dest="include", action="append", default=[], metavar="FOLDER", help="look for headers here")
    add("-D", dest="define", action="append", default=[], metavar="NAME[=VALUE]", help="define a macro")
    add("-O", dest="optimize", type=int, default=3, metavar="LEVEL", help="0, 2 or 3 (the default)")
    add("-g", dest="debug", action="store_true", help="keep debug information")
    add("--std", default="c++17", help="the C++ standard (default: c++17)")
    add("--option", action="append", default=[], metavar="OPTION", help="one more for bisheng: --option=-Wall")
    add("--link-option", action="append", default=[], metavar="OPTION", help="one more for the linker")
    add("--compiler", metavar="PATH", help="bisheng, or the CANN toolkit to use (default: the one that is found)")
    add("--no-cache", action="store_true", help=f"compile again, whatever {cache_folder()} has")
    add("--timeout", type=float, metavar="SECONDS", help="how long one command may take")
    add("--dry-run", action="store_true", help="show the command lines and run nothing")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    if args.soc is None and args.arch is None:
        print(
            "pyacl compile: for which NPU? Give --soc Ascend910B1 (`pyacl info` names it) or --arch dav-2201",
            file=sys.stderr,
        )
        return 2
    try:
        check_target(args.sources, args.soc, args.arch)
        toolchain = _toolchain(args)
        plan = make_plan(
            args.sources, soc=args.soc, arch=args.arch, core=args.core, simt=args.simt, shared=args.shared,
            kernels=args.kernel, include=args.include, define=args.define, options=args.option,
            link_options=args.link_option, optimize=args.optimize, debug=args.debug, std=args.std,
            language=args.language, toolchain=toolchain,
        )  # fmt: skip
        if args.dry_run:
            _show(plan, args.output or plan.product, args.json)
            return 0
        made = run_plan(plan, output=args.output or plan.product, cache=not args.no_cache, timeout=args.timeout)
    except CompilerNotFoundError as error:
        return _fail(error, 2)
    except CompileError as error:
        return _fail(error, 1)
    except (OSError, ValueError) as error:
        return _fail(error, 2)
    kernels = [] if args.shared else [kernel.name for kernel in objfile.read(made).kernels]
    if args.json:
        result = {
            "path": str(made.path),
            "cached": made.cached,
            "kernels": kernels,
            "commands": [list(command) for command in plan.commands],
            "log": made.log,
        }
        print(json.dumps(result, indent=2))
        return 0
    sys.stderr.write(made.log)
    what = f"kernels {', '.join(kernels)}" if kernels else "host library"
    print(f"{made.path}: {what}{', as compiled before' if made.cached else ''}")
    return 0


def _toolchain(args: argparse.Namespace) -> Toolchain | None:
    """The compiler; None where there is none and command lines are all that is wanted."""
    try:
        return Toolchain.find(args.compiler)
    except CompilerNotFoundError as error:
        if not args.dry_run:
            raise
        language = "" if args.language else " The commands are those for CANN 9 and later."
        print(f"note: {str(error).splitlines()[0]}{language}", file=sys.stderr)
        return None


def _show(plan: Plan, output: str, as_json: bool) -> None:
    if as_json:
        shown = {"commands": [list(command) for command in plan.commands], "sidecar": plan.sidecar, "output": output}
        print(json.dumps(shown, indent=2))
        return
    print("\n".join(shlex.join(command) for command in plan.commands))
    print(f"# in a folder of their own; then {plan.product} becomes {output}")
    if plan.sidecar is not None:
        beside = Path(output).with_suffix(".json")
        print(f"# where it says nothing about itself, with {beside} beside it: {json.dumps(plan.sidecar)}")


def _fail(error: Exception, code: int) -> int:
    print(f"pyacl compile: {in_words(error)}", file=sys.stderr)
    return code
