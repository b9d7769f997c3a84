"""What editors and type checkers know: annotations hold for a user's program, and the public names are all there."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import typed_program

import pyacl

PROGRAM = Path(typed_program.__file__)


def test_the_program_runs() -> None:
    assert typed_program.objects().tolist() == np.arange(0, 16, 2).tolist()
    assert typed_program.c_functions() == 0
    pyacl.use_backend("sim")


def test_type_checkers_see_every_public_name() -> None:
    tree = ast.parse(Path(pyacl.__file__).read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    names = {alias.asname for line in block.body if isinstance(line, ast.ImportFrom) for alias in line.names}
    assert names | {"__version__"} == set(pyacl.__all__)


def test_the_package_brings_the_marker_and_the_stubs() -> None:
    """As it is installed: without them a type checker takes everything for Any."""
    package = Path(pyacl.__file__).parent
    names = ("py.typed", *(f"raw/{name}.pyi" for name in ("__init__", "_signatures", "types", "constants")))
    assert [name for name in names if not (package / name).is_file()] == []


if importlib.util.find_spec("mypy"):  # of the dev extra, not of the test extra

    def test_mypy_agrees(tmp_path: Path) -> None:
        """With what is installed, as a user's project has it: `py.typed` and the stubs are part of the package."""
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "--config-file=", str(PROGRAM)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
