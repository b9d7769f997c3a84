"""Both READMEs: the same commands and programs, and all of them work."""

from __future__ import annotations

import io
import re
import tokenize

import pages
import pytest

READMES = [pages.ROOT / "README.md", pages.ROOT / "README.zh-CN.md"]
COMMANDS = pages.pyacl_commands(READMES[0])
#: commands that need no choice of backend
FREE = ("pyacl doctor", "pyacl demo")


def program(text: str) -> list[str]:
    """The tokens of a program, without its comments."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type not in (tokenize.COMMENT, tokenize.NL)]


def test_both_have_the_same_commands():
    assert pages.commands(READMES[0]) == pages.commands(READMES[1])
    assert COMMANDS


def test_both_have_the_same_programs():
    english, chinese = ([b for b in pages.blocks(page) if b.language == "python"] for page in READMES)
    assert [(b.mark, program(b.text)) for b in english] == [(b.mark, program(b.text)) for b in chinese]


def test_both_have_the_same_sections():
    english, chinese = (re.findall(r"^#+", page.read_text(encoding="utf-8"), re.M) for page in READMES)
    assert english == chinese


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_programs_run(page, tmp_path):
    pages.run_apart(page, tmp_path)


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_line_counts(page):
    """The two programs that stand side by side are as long as the text says."""
    ours, theirs = (
        sum(bool(line.strip()) for line in block.text.splitlines())
        for block in [b for b in pages.blocks(page) if b.language == "python"][:2]
    )
    assert ours <= 20
    said = re.search(r"(\d+)\D+(\d+)\D*\n\n<!-- pyACL -->", page.read_text(encoding="utf-8"))
    assert sorted([ours, theirs]) == sorted(map(int, said.groups()))


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command, tmp_path):
    done = pages.run_command(command, tmp_path, "" if command in FREE else "sim")
    failed = command == "pyacl doctor" and "\nbad     CANN: not found\n" in done.stdout
    assert done.returncode == failed, done.stdout + done.stderr


def test_ci_runs_the_test_command():
    """.ci/run takes the command from the block below the comment."""
    (block,) = [b for b in pages.blocks(READMES[0]) if b.mark == "test command"]
    assert block.text.startswith("pip install '.[test]' && pytest ")
    assert "<!-- test command -->" in (pages.ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_source_distribution_has_what_the_tests_read():
    settings = (pages.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"targets\.sdist]\ninclude = \[(.*)]", settings)
    assert set(re.findall('"([^"]+)"', listed[1])) == {
        *(".ci", "docs", "samples", "src", "tests", "tools"),
        *("*.md", "LICENSE", "pyproject.toml"),
    }
