"""``pyacl demo`` as a user calls it: its steps, its exit codes, and what it says where there is no NPU."""

from __future__ import annotations

import os
import subprocess
import sys

import cann_trees
import child
import pytest
import stub

from pyacl.testing import make_kernel_object

EMULATIONS = """
import numpy as np
from pyacl import sim
def minus(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]): z[:] = x - y
def last(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]):
    z[:] = x + y
    z[-1] = 0
def broken(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]):
    raise RuntimeError("emulation fell over")
def unsaid(x, y, z): pass
"""


@pytest.fixture
def demo(tmp_path):
    (tmp_path / "emulations.py").write_text(EMULATIONS)

    def run(*arguments, code=None, **variables):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("ASCEND", "PYACL"))}
        # an empty home and no toolkit: whatever the machine has is not found
        environment.update(HOME=str(tmp_path), **variables)
        program = ["-c", code] if code else ["-m", "pyacl"]
        command = [sys.executable, "-W", "error", *program, "demo", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout.splitlines(), done.stderr

    return run


def test_every_step_is_shown_and_the_result_is_checked(demo):
    code, lines, complaint = demo("--backend", "sim")
    assert (code, complaint) == (0, "")
    assert [line.split()[0] for line in lines] == ["device", "load", "copy", "launch", "copy", "check", "time"]
    assert lines[0].startswith("device  0: Ascend910B1, CANN 9.0.0, 64.0 GiB free")
    assert lines[5] == "check   z == x + y: all 16384 values are right"
    assert " ms for the kernel, " in lines[6]


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend310P3", "Ascend910B4", "Ascend910_9392", "Ascend950PR_9599"])
def test_every_generation_runs_it(demo, soc):
    code, lines, complaint = demo(PYACL_BACKEND=f"sim:{soc}")
    assert (code, complaint) == (0, "")
    assert f"0: {soc}" in lines[0]


def test_a_machine_without_an_npu_is_told_in_one_line(demo):
    no_cann = "from child import no_cann; no_cann(); import sys; from pyacl.cli import main; sys.exit(main())"
    code, lines, said = demo(code=no_cann, PYTHONPATH=os.path.dirname(child.__file__))
    assert (code, said) == (0, "")
    assert lines[0] == "No NPU: no CANN was found (pyacl doctor says more). This runs on the simulator."
    assert lines[1].startswith("device  0: Ascend910B1")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("minus", "WRONG: 16384 of 16384 values differ, the first is z[0] = -2.0, not 2.0"),
        ("last", "WRONG: 1 of 16384 values differ, the first is z[16383] = 0.0, not 258.0"),
    ],
)
def test_a_wrong_kernel_is_told_with_what_differs(demo, name, said):
    code, lines, _ = demo("--backend", "sim", "--emulate", f"emulations:{name}")
    assert code == 1
    assert lines[-1] == "check   " + said


def test_a_kernel_that_raises_shows_its_own_line(demo):
    code, lines, complaint = demo("--backend", "sim", "--emulate", "emulations:broken")
    assert code == 1
    assert "in broken" in complaint and "emulation fell over" in complaint
    assert lines[-1].startswith("launch")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--backend", "simulator"), "is not a backend"),
        (("--backend", "sim", "--emulate", "emulations"), "MODULE:FUNCTION"),
        (("--backend", "sim", "--emulate", "emulations:nothing"), "nothing"),
        (("--backend", "sim", "--emulate", "emulations:unsaid"), "'x' has no annotation"),
        (("--backend", "sim:Ascend999"), "Ascend999"),
    ],
)
def test_wrong_arguments_are_exit_code_2(demo, arguments, said):
    code, lines, complaint = demo(*arguments)
    assert (code, lines) == (2, [])
    assert said in complaint


def test_failures_are_exit_code_1(demo, tmp_path):
    code, _, complaint = demo("--backend", "sim", "--device", "3")
    assert code == 1 and "pyacl demo: " in complaint and "3" in complaint
    code, _, complaint = demo("--backend", "sim", "--kernel", "nothing.o")
    assert code == 1 and complaint.startswith("pyacl demo: ") and "nothing.o" in complaint
    (tmp_path / "script.o").write_text("#!/bin/sh")
    (tmp_path / "other.o").write_bytes(make_kernel_object("other"))
    for name, said in (("script.o", "neither an ELF file"), ("other.o", "no kernel 'add_custom'")):
        code, _, complaint = demo("--backend", "sim", "--kernel", str(tmp_path / name))
        assert code == 1 and complaint.startswith("pyacl demo: ") and said in complaint


def test_an_npu_without_a_compiler(demo, tmp_path):
    """One message with what was looked for, and what can be done without."""
    stub.require_gcc()
    cann_trees.cann(tmp_path)
    cann_trees.install_driver(tmp_path)
    code, lines, complaint = demo("--backend", f"library:{tmp_path}/cann", PYACL_STUB_WORKING="1")
    assert code == 1
    assert [line.split()[0] for line in lines] == ["device"]
    assert complaint.startswith("pyacl demo: bisheng, the compiler for kernels, was not found.")
    assert complaint.endswith("Or give an object that has add_custom, --kernel FILE.o, or take --backend sim.\n")
