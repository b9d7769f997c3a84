"""Every recorded case under the hazard checker: no alarm, but for the cases that really have a hazard."""

from __future__ import annotations

import collections
import warnings

import conformance_runner as runner
import pytest
from recorded import CASES

from pyacl import raw, sim
from pyacl.backends.thunks import take_pending

BEFORE_RECORD = "asks what the library answers to a wait for an event that nobody has recorded"
TWO_STREAMS = "writes the same status or sum from two streams, only to see both calls accepted"

#: case -> (kind of hazard, why it is one)
TRULY = {
    **{f"event.flag_{flag}_behaviour": ("waited-before-record", BEFORE_RECORD) for flag in ("1", "9", "b")},
    **{f"event.ex_flag_{flag}_behaviour": ("waited-before-record", BEFORE_RECORD) for flag in ("1", "4", "9", "b")},
    **{f"event.more_0{number}": ("waited-before-record", BEFORE_RECORD) for number in ("07", "12")},
    "programs.more_011": ("waited-before-record", BEFORE_RECORD),
    "null_pointers.event_0": ("waited-before-record", "passes the null stream, with an event that is not recorded"),
    "null_pointers.event_1": ("waited-before-record", "passes the null stream, with an event that is not recorded"),
    "execution_control.reduce_errors": ("unordered", TWO_STREAMS),
    "overflow.float_overflow": ("unordered", TWO_STREAMS),
    "overflow.overflow_old": ("unordered", TWO_STREAMS),
}


def found_in(case, mode):
    """What differs from the recording, and the kinds of the hazards that were found."""
    backend = sim.Backend(devices=2, order="eager", unregistered="skip", hazards=mode)
    differences = runner.run_case(case, raw.load(backend).unchecked)
    take_pending()  # steps that the library got through by luck raise here, and are not compared
    return differences, collections.Counter(hazard.kind for hazard in backend.hazards_found)


@pytest.mark.parametrize("case", [case for case in CASES if case["name"] not in TRULY], ids=lambda case: case["name"])
def test_a_correct_case_raises_no_hazard(case):
    differences, hazards = found_in(case, "raise")
    assert differences == []
    assert not hazards


@pytest.mark.parametrize("case", [case for case in CASES if case["name"] in TRULY], ids=lambda case: case["name"])
def test_a_case_with_a_hazard_is_warned_of_and_goes_on(case):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        differences, hazards = found_in(case, "warn")
    assert differences == []
    assert set(hazards) == {TRULY[case["name"]][0]}
    assert {warning.category for warning in caught} == {sim.HazardWarning}


def test_the_list_names_cases_that_are_there():
    assert set(TRULY) <= {case["name"] for case in CASES}
