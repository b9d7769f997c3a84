"""The samples under the hazard checker: no alarm, in any order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
NAMES = sorted(path.parent.name for path in SAMPLES.glob("*/main.py"))
PROGRAM = """
import runpy, sys
from pyacl import sim
from pyacl.session import current_session, isolated
for order in sys.argv[2:]:
    sim.Backend.__init__.__kwdefaults__.update(hazards="raise", order=order)
    with isolated("sim"):
        runpy.run_path(sys.argv[1], run_name="__main__")
        backend = current_session().api.backend
        assert backend.hazards == "raise"
        assert backend.hazards_found == [], backend.hazards_found
"""


def run(main, orders, folder):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ASCEND", "PYACL"))}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(main), *orders],
        cwd=folder,
        env={**clean, "PYACL_BACKEND": "sim", "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_raises_no_hazard(name, tmp_path):
    orders = "lazy", "eager", "random(3)"
    done = run(SAMPLES / name / "main.py", orders, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = (SAMPLES / name / "expected.txt").read_text("utf-8")
    assert done.stdout == expected * len(orders)


def test_a_missing_wait_in_a_sample_is_found_with_its_lines(tmp_path):
    text = (SAMPLES / "two_streams" / "main.py").read_text("utf-8").splitlines(True)
    without = [line for line in text if "second.wait(squared)" not in line]
    launches = [number for number, line in enumerate(without, 1) if line.lstrip().startswith("multiply[")]
    main = tmp_path / "main.py"
    main.write_text("".join(without), "utf-8")
    for order in ("lazy", "eager", "random(1)", "random(2)"):
        done = run(main, [order], tmp_path)
        assert done.returncode == 1
        assert "HazardError: nothing orders two streams that use the same memory" in done.stderr
        assert f"{main}:{launches[0]}" in done.stderr and f"{main}:{launches[2]}" in done.stderr
