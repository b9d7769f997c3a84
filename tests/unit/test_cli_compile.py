"""`pyacl compile`: what it prints, where the object goes, its exit codes."""

from __future__ import annotations

import argparse
import json

import pytest
from standin_compiler import Standin

from pyacl import objfile
from pyacl.cli import compile as command

SOURCE = 'extern "C" __global__ __vector__ void add_custom(GM_ADDR x, GM_ADDR y, GM_ADDR z) {}\n'


@pytest.fixture
def pyacl_compile(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "cann"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "add.cpp").write_text(SOURCE)

    def run(*words):
        parser = argparse.ArgumentParser()
        command.add_parser(parser.add_subparsers())
        code = command.run(parser.parse_args(["compile", *words]))
        return (code, *capsys.readouterr())

    run.folder = work
    return run


@pytest.fixture
def cann(tmp_path):
    return Standin(tmp_path / "cann")


def test_the_object_goes_beside_where_one_stands(pyacl_compile, cann):
    code, out, err = pyacl_compile("add.cpp", "--soc", "Ascend910B1")
    assert (code, err) == (0, "")
    assert out == f"{pyacl_compile.folder}/add.o: kernels add_custom\n"
    assert objfile.read(pyacl_compile.folder / "add.o").kernels[0].name == "add_custom"
    assert pyacl_compile("add.cpp", "--soc", "Ascend910B1")[1].endswith("as compiled before\n")
    assert not pyacl_compile("add.cpp", "--soc", "Ascend910B1", "--no-cache")[1].endswith("before\n")


def test_options_reach_the_compiler(pyacl_compile, cann):
    pyacl_compile(
        "add.cpp", "--arch", "dav-3510", "--simt", "-Iinc", "-DN=8", "-O2", "-g", "--std", "c++20",
        "--option=-Wall", "--link-option=--no-mmap-output-file", "-o", "out.o",
    )  # fmt: skip
    compiled, linked = cann.calls()
    wanted = {"--npu-arch=dav-3510", "--enable-simt", f"-I{pyacl_compile.folder}/inc", "-DN=8", "-O2", "-g", "-Wall"}
    assert wanted <= set(compiled)
    assert "--no-mmap-output-file" in linked
    assert objfile.read(pyacl_compile.folder / "out.o").fits("Ascend950PR_9599")


def test_dry_run_shows_and_runs_nothing(pyacl_compile, cann):
    code, out, _ = pyacl_compile("add.cpp", "--soc", "Ascend910B1", "--dry-run")
    assert code == 0 and cann.calls() == []
    assert out.splitlines()[1] == f"{cann.folder}/ld.lld -m aicorelinux -Ttext=0 add.obj -static -o add.o"
    shown = json.loads(pyacl_compile("add.cpp", "--soc", "Ascend910B1", "--dry-run", "--json")[1])
    assert [command[0] for command in shown["commands"]] == [str(cann.bisheng), f"{cann.folder}/ld.lld"]
    assert shown["sidecar"] is None and shown["output"] == "add.o"


def test_dry_run_shows_what_comes_of_it(pyacl_compile, cann):
    words = ("add.cpp", "--soc", "Ascend910B1", "--language", "cce", "--dry-run", "-o", "out/k.o")
    lines = pyacl_compile(*words)[1].splitlines()
    assert lines[2] == "# in a folder of their own; then add.o becomes out/k.o"
    assert lines[3].startswith('# where it says nothing about itself, with out/k.json beside it: {"magic": "RT_DEV_')
    shown = json.loads(pyacl_compile(*words, "--json")[1])
    assert shown["sidecar"]["magic"] == "RT_DEV_BINARY_MAGIC_ELF_AIVEC" and shown["output"] == "out/k.o"


def test_dry_run_needs_no_compiler(pyacl_compile):
    code, out, err = pyacl_compile("add.cpp", "--soc", "Ascend910B1", "--dry-run")
    assert code == 0
    assert out.startswith("bisheng -std=c++17 -O3 --npu-arch=dav-2201")
    assert "bisheng, the compiler for kernels, was not found" in err


def test_json(pyacl_compile, cann):
    code, out, _ = pyacl_compile("add.cpp", "--soc", "Ascend910B1", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["path"] == f"{pyacl_compile.folder}/add.o" and result["kernels"] == ["add_custom"]
    assert result["cached"] is False and result["log"] == "" and len(result["commands"]) == 2


def test_a_host_library(pyacl_compile, cann):
    code, out, _ = pyacl_compile("add.cpp", "--soc", "Ascend910B1", "--shared")
    assert (code, out) == (0, f"{pyacl_compile.folder}/libadd.so: host library\n")


def test_compiler_errors(pyacl_compile, cann):
    (pyacl_compile.folder / "add.cpp").write_text("#error no half here\n")
    code, out, err = pyacl_compile("add.cpp", "--soc", "Ascend910B1")
    assert (code, out) == (1, "")
    assert "add.cpp:1:2: error: no half here" in err
    assert not (pyacl_compile.folder / "add.o").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        (["add.cpp"], "for which NPU? Give --soc Ascend910B1"),
        (["missing.cpp", "--soc", "Ascend910B1"], "there is no source"),
        (["add.cpp", "--soc", "Ascend999"], "did you mean"),
        (["add.cpp", "--soc", "Ascend910B1", "-o", "."], "/work is a folder: name the file, such as"),
        (["add.cpp", "--soc", "Ascend910B1", "--core", "cube"], "takes them from the source"),
    ],
)
def test_wrong_arguments(pyacl_compile, cann, words, message):
    code, _, err = pyacl_compile(*words)
    assert code == 2 and err.startswith("pyacl compile: ") and message in err


def test_no_compiler(pyacl_compile, tmp_path):
    code, _, err = pyacl_compile("add.cpp", "--soc", "Ascend910B1")
    assert code == 2 and f"{tmp_path}/cann (ASCEND_HOME_PATH): not here" in err


def test_warnings_are_shown(pyacl_compile, cann):
    (pyacl_compile.folder / "add.cpp").write_text("#warning slow\n" + SOURCE)
    code, _, err = pyacl_compile("add.cpp", "--soc", "Ascend910B1")
    assert code == 0 and "warning: slow" in err
