"""Which module may import which: dependencies point downwards, and the simulator's engine knows no C."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pyacl

PACKAGE = Path(pyacl.__file__).parent
# a module may import its own layer and those below
LAYERS = {
    "__main__": 7, "cli": 7, "testing": 7,
    "__init__": 6,
    "kernel_library": 5, "compiler": 5, "sim": 5, "kernel": 5, "memory": 5, "stream": 5, "device": 5,
    "session": 4, "_handle": 4,
    "backends": 3,
    "raw": 2,
    "errors": 1, "arguments": 1, "objfile": 1,
}  # fmt: skip
ALONE = {"errors", "arguments", "objfile"}  # these know nobody but the names of constants


def modules():
    return sorted(p for p in PACKAGE.rglob("*.py") if "__pycache__" not in p.parts)


def name_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(p for p in parts if p != "__init__") or "__init__"


def layer(name):
    first = name.split(".")[0]
    if first in LAYERS:
        return LAYERS[first]
    assert first.startswith("_"), f"{name} is not in the table of layers: put it there"
    return 0  # data and helpers that know nobody


def imports(path, everywhere):
    """The modules of pyacl and others that a file imports: when it is opened itself, or anywhere in it."""
    tree = ast.parse(path.read_text("utf-8"))
    package = (
        ("pyacl." + name_of(path)).split(".")
        if path.name == "__init__.py"
        else ("pyacl." + name_of(path)).split(".")[:-1]
    )
    if name_of(path) == "__init__":
        package = ["pyacl"]

    def visit(node, runs):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for other in child.orelse:
                    yield from visit(other, runs)
                continue
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and not everywhere:
                continue
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else []
                module = ".".join([*base, *([child.module] if child.module else [])])
                yield module
                yield from (f"{module}.{alias.name}" for alias in child.names)
            yield from visit(child, runs)

    return set(visit(tree, True))


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_downwards(path):
    me = name_of(path)
    known = {name_of(p) for p in modules()}
    for target in imports(path, everywhere=False):
        if not target.startswith("pyacl."):
            continue
        other = target[len("pyacl.") :]
        while other and other not in known:  # a name inside a module
            other = other.rpartition(".")[0]
        if not other or other.split(".")[0] == me.split(".")[0] or other == "_version":
            continue
        assert layer(other) <= layer(me), f"{me} imports {other} from a layer above"
        if me.split(".")[0] in ALONE:
            assert other == "raw.constants" or other.startswith("_"), f"{me} is to know nobody, but imports {other}"


@pytest.mark.parametrize("path", [p for p in modules() if "engine" in p.parts], ids=name_of)
def test_the_engine_knows_no_c(path):
    assert not any(m.split(".")[0] in ("ctypes", "_ctypes") for m in imports(path, everywhere=True))
    assert not any(
        m.startswith(("pyacl.raw.types", "pyacl.backends.sim.bridge")) for m in imports(path, everywhere=True)
    )
