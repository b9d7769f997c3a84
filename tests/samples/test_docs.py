"""What the documentation shows is true: its Python runs on the simulator, its links lead somewhere."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest

import pyacl
from pyacl import raw, sim
from pyacl.raw import types

DOCS = sorted((pages.ROOT / "docs").rglob("*.md"))
WITH_PYTHON = [page for page in DOCS if any(b.language == "python" and not b.needs for b in pages.blocks(page))]
TEXTS = [*DOCS, *sorted(pages.ROOT.glob("*.md")), *sorted((pages.ROOT / "samples").rglob("*.md"))]
COMMANDS = [(page.name, c) for page in DOCS for c in pages.pyacl_commands(page)]
#: what the text calls an object of which class; attributes that are set when an object is made
SET = {"object", "shape", "dtype", "device", "raw_text", "code", "function"}
OBJECTS = {
    "device": pyacl.Device,
    "stream": pyacl.Stream,
    "event": pyacl.Event,
    "buffer": pyacl.DeviceBuffer,
    "host_buffer": pyacl.HostBuffer,
    "binary": pyacl.KernelBinary,
    "kernel": pyacl.Kernel,
    "error": pyacl.AclError,
}


def name(page: Path) -> str:
    return page.relative_to(pages.ROOT).as_posix()


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_python_blocks_run(page, tmp_path):
    pages.run_apart(page, tmp_path)


def test_tests_on_the_testing_page_pass(tmp_path):
    pages.prepare(tmp_path)
    page = pages.ROOT / "docs" / "testing.md"
    code = "\n".join(block.text for block in pages.blocks(page) if block.language == "python" and not block.needs)
    (tmp_path / "test_page.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_page.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=pages.environment(), capture_output=True, encoding="utf-8", timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # test_any_order counts once for each of its 12 orders
    assert f"{code.count('def test_') + 11} passed" in done.stdout


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_run(page, command, tmp_path):
    done = pages.run_command(command, tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), f"{page}: {command}\n{done.stdout}"


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_names_in_the_text_exist(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    code = " ".join(re.findall(r"`([^`\n]+)`", text))
    missing = [
        f"{thing}.{attribute}"
        for thing, attribute in re.findall(r"(?<![\w./])([a-z_]+)\.([a-z_]\w*)", code)
        if thing in OBJECTS and attribute not in SET and not hasattr(OBJECTS[thing], attribute)
    ]
    missing += [
        n for n in re.findall(r"\braw\.(acl\w+[a-z])\b", code) if n not in raw.FUNCTIONS and not hasattr(types, n)
    ]
    missing += [n for n in re.findall(r"\bpyacl\.([A-Za-z]\w*)", code) if not hasattr(pyacl, n)]
    missing += [
        n
        for n in re.findall(r"\b(Acl\w+|[A-Z]\w+Error)\b", code)
        if not hasattr(pyacl, n) and not hasattr(sim, n) and n not in vars(builtins)
    ]
    assert missing == []


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_links_lead_to_files(page):
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    links = re.findall(r"\]\(([^)#\s]+)", text)
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []
