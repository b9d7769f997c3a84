"""Every recorded case of the real library, put to the simulator: the same codes, out values, messages and callbacks."""

from __future__ import annotations

from pathlib import Path

import conformance_runner as runner
import pytest

from pyacl import raw, sim
from pyacl.backends.thunks import take_pending

DATA = Path(__file__).resolve().parent.parent / "data"
#: the cases handed out with the specification, and more that were recorded in the same way
CASES = [
    case
    for folder in ("conformance", "conformance_more")
    for path in sorted((DATA / folder).glob("*.json"))
    for case in runner.load_cases(path)
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    backend = sim.Backend(devices=2, order="eager", unregistered="skip")
    differences = runner.run_case(case, raw.load(backend).unchecked)
    # where the library was recorded by luck (it read freed memory), the simulator raises; such steps are not compared
    error = take_pending()
    if differences and error is not None:
        raise AssertionError(differences) from error
    assert differences == []
