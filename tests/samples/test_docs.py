"""What the documentation shows is true: its Python runs on the simulator, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pages
import pytest

DOCS = sorted((pages.ROOT / "docs").rglob("*.md"))
WITH_PYTHON = [page for page in DOCS if any(b.language == "python" and not b.needs for b in pages.blocks(page))]
COMMANDS = [(page.name, c) for page in DOCS for c in pages.commands(page) if c.startswith("pyacl ")]


def name(page: Path) -> str:
    return page.relative_to(pages.ROOT).as_posix()


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_python_blocks_run(page, tmp_path):
    pages.run_apart(page, tmp_path)


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_run(page, command, tmp_path):
    done = pages.run_command(command, tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), f"{page}: {command}\n{done.stdout}"


@pytest.mark.parametrize("page", [*DOCS, *sorted(pages.ROOT.glob("*.md"))], ids=name)
def test_links_lead_to_files(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    links = re.findall(r"\]\(([^)#\s]+)", text)
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []
