"""Python programs in processes of their own: what happens at exit, after a fork, at import."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

SUPPORT = Path(__file__).parent


class Ended(NamedTuple):
    """How a program ended."""

    code: int
    out: str
    err: str


def run(program: str, *arguments: str, timeout: float = 120, **environment: str) -> Ended:
    """Run a program with all warnings as errors; tests/support is on its path."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYACL_", "ASCEND_", "PYTHON"))}
    env.update(PYTHONPATH=str(SUPPORT), **environment)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        env=env,
        timeout=timeout,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def no_cann() -> None:
    """In a child: let pyacl find no CANN, whatever this machine has."""
    from pyacl.backends import library

    places = library.Places
    library.Places = lambda environ: places({}, [], "", loader=False)


def silent(ended: Ended) -> str:
    """What a program printed; it must have ended well, without a word on standard error."""
    assert (ended.code, ended.err) == (0, ""), f"ended with {ended.code}\n{ended.out}\n{ended.err}"
    return ended.out
