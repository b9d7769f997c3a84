"""The samples: each prints what its folder says, on the simulator; and its kernels go through the compiler's path."""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from standin_compiler import Standin

from pyacl.compiler import make_plan

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
NAMES = sorted(path.parent.name for path in SAMPLES.glob("*/main.py"))

#: what the official samples' own check prints
VERDICTS = {"add": "[SUCCESS] result correct", "simt_add": "[Success] Case accuracy is verification passed."}
BACKENDS = {"simt_add": "'sim:Ascend950PR_9599'", "devices": "pyacl.sim.Backend(devices=2)"}


def run(arguments, folder, **environ):
    """A program in a process and a folder of its own; what it printed."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ASCEND", "PYACL"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**clean, "XDG_CACHE_HOME": str(folder / "cache"), **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def expected(name):
    return (SAMPLES / name / "expected.txt").read_text("utf-8")


def differences(printed, name):
    return "\n".join(difflib.unified_diff(expected(name).splitlines(), printed.splitlines(), "expected", "printed"))


def test_every_sample_asked_for_is_there():
    wanted = {"add", "simt_add", "tiling", "mixed", "two_streams", "overlap", "devices", "callback", "errors"}
    assert wanted <= set(NAMES)
    index = (SAMPLES / "README.md").read_text("utf-8")
    assert all(f"]({name}/README.md)" in index for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_on_the_simulator(name, tmp_path):
    printed = run([SAMPLES / name / "main.py"], tmp_path, PYACL_BACKEND="sim")
    assert printed == expected(name), differences(printed, name)


@pytest.mark.parametrize("name", NAMES)
def test_the_way_of_hardware(name, tmp_path):
    """The program's other way: its kernel is compiled. A stand-in for bisheng makes an object that has no code, which
    is all that the simulator needs, of the kernel names and arguments that the source has."""
    toolkit = Standin(tmp_path / "cann")
    backend = BACKENDS.get(name, "'sim'")
    program = (
        f"import pyacl, runpy; pyacl.use_backend({backend}); "
        f"runpy.run_path({str(SAMPLES / name / 'main.py')!r}, run_name='__main__')"
    )
    printed = run(["-c", program], tmp_path, ASCEND_HOME_PATH=str(toolkit.root))
    assert printed == expected(name), differences(printed, name)
    sources = sorted(str(path) for path in (SAMPLES / name).glob("*.cpp"))
    assert sorted({call[-1] for call in toolkit.calls() if call[0] == "bisheng"}) == sources


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_has_what_its_readme_says(name):
    folder = SAMPLES / name
    readme = (folder / "README.md").read_text("utf-8")
    kernels = sorted(path.name for path in folder.glob("*.cpp"))
    assert kernels
    for file in (*kernels, "main.py", "expected.txt"):
        assert f"]({file})" in readme
    assert f"PYACL_BACKEND=sim python samples/{name}/main.py" in readme


@pytest.mark.parametrize("language", ["asc", "cce"])
@pytest.mark.parametrize("source", sorted(SAMPLES.glob("*/*.cpp")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_command_lines_for_the_kernels(source, language):
    simt = source.parent.name == "simt_add"
    if simt and language == "cce":
        language = "asc"
    plan = make_plan(source, arch="dav-3510" if simt else "dav-2201", simt=simt, language=language)
    assert len(plan.commands) == (3 if language == "cce" and source.parent.name == "mixed" else 2)


@pytest.mark.parametrize("name", VERDICTS)
def test_the_official_samples_come_to_the_same_verdict(name):
    assert VERDICTS[name] in expected(name).splitlines()
    assert VERDICTS[name] in (SAMPLES / name / "README.md").read_text("utf-8")


SIMT_IN_CPP = """
#include <cstdio>
#include <iostream>
#include <vector>
int main(int, char **argv) {
    std::vector<float> x(12288), y(12288), golden(12288);
    for (unsigned i = 0; i < x.size(); i++) { x[i] = i * 1.1f; y[i] = i + 3.4f; golden[i] = x[i] + y[i]; }
    std::cout << "Golden: ";
    for (unsigned i = 0; i < 20; i++) std::cout << golden[i] << " ";
    std::cout << "..." << std::endl;
    std::FILE *file = std::fopen(argv[1], "wb");
    std::fwrite(golden.data(), 4, golden.size(), file);
    return std::fclose(file);
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: the numbers of the C++ program come from it")
def test_the_simt_numbers_are_those_of_the_cpp_program(tmp_path):
    """The arithmetic and the printing of the official sample in C++, number by number."""
    (tmp_path / "golden.cpp").write_text(SIMT_IN_CPP)
    subprocess.run(["g++", "-O1", "-o", tmp_path / "golden", tmp_path / "golden.cpp"], check=True)
    printed = subprocess.run(
        [tmp_path / "golden", tmp_path / "z.bin"], check=True, capture_output=True, text=True
    ).stdout
    lines = expected("simt_add").splitlines()
    assert lines[:2] == [printed.strip().replace("Golden", "Output"), printed.strip()]
    program = runpy_with("z.bin", "simt_add")
    assert run(["-c", program], tmp_path, PYACL_BACKEND="sim").splitlines()[-1] == "equal to C++: 12288 of 12288"


def runpy_with(file, name):
    return (
        f"import runpy, numpy; space = runpy.run_path({str(SAMPLES / name / 'main.py')!r}, run_name='__main__'); "
        f"golden = numpy.fromfile({file!r}, numpy.float32); "
        f"print('equal to C++:', numpy.count_nonzero(space['output'] == golden), 'of', golden.size)"
    )


def test_a_missing_wait_shows(tmp_path):
    """What the README of two_streams says: without the event the simulator's result is wrong, every time."""
    text = (SAMPLES / "two_streams" / "main.py").read_text("utf-8")
    without = "".join(line for line in text.splitlines(True) if "second.wait(squared)" not in line)
    assert without != text
    (tmp_path / "main.py").write_text(without, "utf-8")
    for _ in range(2):
        printed = run(["main.py"], tmp_path, PYACL_BACKEND="sim")
        assert "x**3 is right: True\nx**4 is right: False\n" in printed
