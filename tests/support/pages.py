"""Fenced blocks of the Markdown pages, and a runner for their Python.

A block is marked by an HTML comment on the line above it: ``<!-- needs: hardware -->`` (or torch_npu, bisheng) is read
but not run. A ``text`` block that follows a ``python`` block is what it prints; ``...`` in it stands for
anything.

    python pages.py PAGE.md         run the page's Python on the simulator, in the current folder
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import types
import warnings
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
NEEDS = {"hardware", "torch_npu", "bisheng"}


EMULATION = """\
import numpy as np

from pyacl import sim


@sim.kernel
def add_custom(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]):
    z[:] = x + y
"""


class Block(NamedTuple):
    language: str
    text: str
    line: int  # of the first line of text, counted from 1
    mark: str  # the comment above, without its brackets

    @property
    def needs(self) -> str:
        """What the block needs beyond pyacl; empty for one that can be run everywhere."""
        kind, _, what = self.mark.partition(":")
        if kind != "needs":
            return ""
        assert what.strip() in NEEDS, f"line {self.line}: <!-- {self.mark} --> is none of {sorted(NEEDS)}"
        return what.strip()


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = []
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        fence = re.match(r"(```+|:::+)([\w{}-]*)\s*$", lines[at])
        if not fence:
            at += 1
            continue
        end = at + 1
        while lines[end].rstrip() != fence[1]:
            end += 1
        comment = re.fullmatch(r"<!--\s*(.*?)\s*-->", lines[at - 1].strip()) if at else None
        text = "".join(line + "\n" for line in lines[at + 1 : end])
        found.append(Block(fence[2], text, at + 2, comment[1] if comment else ""))
        at = end + 1
    return found


def commands(page: Path) -> list[str]:
    """The commands of the page's `sh` blocks that can be run everywhere, without their comments."""
    texts = [block.text for block in blocks(page) if block.language == "sh" and not block.needs]
    lines = "".join(texts).replace("\\\n", " ").splitlines()
    return [re.sub(r"\s+#.*$", "", line) for line in lines if line and not line.startswith("#")]


def pyacl_commands(page: Path) -> list[str]:
    """The parts of the page's commands that call pyacl."""
    return [part for command in commands(page) for part in command.split(" && ") if part.startswith("pyacl ")]


def prepare(folder: Path) -> None:
    """What the pages take for granted: a kernel object, a function that stands for it, and two input arrays."""
    import numpy as np

    from pyacl.testing import make_kernel_object

    (folder / "add_custom.o").write_bytes(make_kernel_object("add_custom"))
    (folder / "kernels.py").write_text(EMULATION, encoding="utf-8")
    np.save(folder / "x.npy", np.arange(16384, dtype=np.float16))
    np.save(folder / "y.npy", np.ones(16384, dtype=np.float16))


def run(page: Path) -> int:
    """Run the Python blocks of a page, in one namespace; the number of blocks that were run."""
    import pyacl
    from pyacl import sim

    prepare(Path.cwd())
    exec(EMULATION, {"__name__": "kernels"})
    pyacl.use_backend(sim.Backend(devices=2))
    namespace = types.ModuleType("__main__")
    sys.modules["__main__"] = namespace
    done = 0
    found = blocks(page)
    for block, following in zip(found, [*found[1:], None]):
        if block.language != "python":
            continue
        # line numbers of a traceback are those of the page
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
        if block.needs:
            continue
        if block.mark == "pyACL":
            import pyacl_methods

            sys.modules["acl"] = pyacl_methods.module()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace.__dict__)
        if block.mark == "pyACL":
            assert (namespace.result == namespace.x + namespace.y).all()
        if following is not None and following.language == "text":
            same(printed.getvalue(), following.text, f"{page}:{following.line}")
        done += 1
    return done


def same(printed: str, expected: str, where: str) -> None:
    pattern = re.escape(expected).replace(re.escape("..."), ".*?")
    if not re.fullmatch(pattern, printed, re.S):
        raise AssertionError(f"{where}: the page says\n{expected}\nand the block prints\n{printed}")


def run_apart(page: Path, folder: Path) -> None:
    """`run` in a process of its own; nothing may be said on stderr, and every block must have run."""
    done = subprocess.run(
        [sys.executable, __file__, str(page)], cwd=folder, env=environment(), capture_output=True, encoding="utf-8",
        timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout.split()[-1]) == sum(b.language == "python" and not b.needs for b in blocks(page))


def run_command(command: str, folder: Path, backend: str = "sim") -> subprocess.CompletedProcess[str]:
    """Run ``pyacl ...`` as a shell would, in a folder with what the pages take for granted."""
    prepare(folder)
    words = shlex.split(command)
    env = environment(PYACL_BACKEND=backend, COLUMNS="120")
    program = str(Path(sysconfig.get_path("scripts")) / words[0])
    return subprocess.run(
        [program, *words[1:]], cwd=folder, env=env, capture_output=True, encoding="utf-8", timeout=120
    )


def environment(**more: str) -> dict[str, str]:
    """The environment without a choice of backend."""
    return {**{k: v for k, v in os.environ.items() if k != "PYACL_BACKEND"}, "PYTHONIOENCODING": "utf-8", **more}


if __name__ == "__main__":
    warnings.simplefilter("error")
    print(run(Path(sys.argv[1]).resolve()))
