"""Every recorded case of the real library, put to the simulator: the same codes, out values, messages and callbacks."""

from __future__ import annotations

import conformance_runner as runner
import pytest
from recorded import CASES

from pyacl import raw, sim
from pyacl.backends.thunks import take_pending


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    backend = sim.Backend(devices=2, order="eager", unregistered="skip")
    differences = runner.run_case(case, raw.load(backend).unchecked)
    # where the library was recorded by luck (it read freed memory), the simulator raises; such steps are not compared
    error = take_pending()
    if differences and error is not None:
        raise AssertionError(differences) from error
    assert differences == []
