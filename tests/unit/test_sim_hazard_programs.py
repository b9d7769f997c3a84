"""Random programs under the hazard checker, compared with what comes before what by definition, in every order."""

from __future__ import annotations

import ctypes
import warnings

import pytest
from hazard_programs import Machine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated import D2D, D2H, H2D

from pyacl import sim

PIECES, PIECE = 6, 64
STREAMS, EVENTS = 3, 2

stream = st.integers(0, STREAMS - 1)
event = st.integers(0, EVENTS - 1)
piece = st.integers(0, PIECES - 1)
step = st.one_of(
    st.tuples(st.just("copy"), stream, piece, piece, st.integers(1, 2)),
    st.tuples(st.just("set"), stream, piece, st.integers(1, 3)),
    st.tuples(st.just("launch"), stream, piece, piece),
    st.tuples(st.just("record"), stream, event),
    st.tuples(st.just("wait"), stream, event),
    st.tuples(st.just("notify"), stream, stream),
    st.tuples(st.just("host reads"), piece, st.integers(1, 2)),
    st.tuples(st.just("host writes"), piece),
    st.tuples(st.just("synchronize"), stream),
    st.tuples(st.just("synchronize event"), event),
)
programs = st.lists(step, min_size=2, max_size=18)


def racy(steps):
    """Does a program have two accesses that nothing orders?"""
    accesses = []  # (number, first piece, end, writes)
    after = [set() for _ in range(STREAMS)]
    records, host, count, found = [None] * EVENTS, set(), 0, False

    def access(before, *ranges):
        nonlocal count, found
        count += 1
        for low, high, writes in ranges:
            for number, start, end, wrote in accesses:
                found |= number not in before and low < end and start < high and (writes or wrote)
        accesses.extend((count, low, high, writes) for low, high, writes in ranges)
        return before | {count}

    for kind, *what in steps:
        if kind == "copy":
            on, source, target, size = what
            if source != target:
                size = min(size, PIECES - max(source, target), abs(source - target))
                ranges = (source, source + size, False), (target, target + size, True)
                after[on] = access(after[on] | host, *ranges)
        elif kind == "set":
            on, target, size = what
            after[on] = access(after[on] | host, (target, min(target + size, PIECES), True))
        elif kind == "launch":
            on, source, target = what
            after[on] = access(after[on] | host, (source, source + 1, False), (target, target + 1, True))
        elif kind == "record":
            on, which = what
            after[on] = after[on] | host
            records[which] = after[on]
        elif kind == "wait" and records[what[1]] is not None:
            after[what[0]] = after[what[0]] | records[what[1]]
        elif kind == "notify":
            one, other = what
            after[one] = after[one] | host
            after[other] = after[other] | after[one]
        elif kind == "host reads":
            host = access(host, (what[0], min(what[0] + what[1], PIECES), False))
        elif kind == "host writes":
            host = access(host, (what[0], what[0] + 1, True))
        elif kind == "synchronize":
            host = host | after[what[0]]
        elif kind == "synchronize event" and records[what[0]] is not None:
            host = host | records[what[0]]
    return found


def run(steps, order, mode):
    """The hazards that are found in a program."""
    machine = Machine(order, mode)
    api = machine.api
    streams = [machine.s, machine.t, machine.stream()]
    events = [machine.event() for _ in range(EVENTS)]
    recorded = [False] * EVENTS
    memory = machine.malloc(PIECES * PIECE)
    api.aclrtMemset(memory, PIECES * PIECE, 0, PIECES * PIECE)
    host = (ctypes.c_uint8 * (PIECES * PIECE))()
    for kind, *what in steps:
        if kind == "copy":
            on, source, target, size = what
            if source != target:
                size = min(size, PIECES - max(source, target), abs(source - target)) * PIECE
                target, source = memory + target * PIECE, memory + source * PIECE
                api.aclrtMemcpyAsync(target, size, source, size, D2D, streams[on])
        elif kind == "set":
            on, target, size = what
            size = (min(target + size, PIECES) - target) * PIECE
            api.aclrtMemsetAsync(memory + target * PIECE, size, 1, size, streams[on])
        elif kind == "launch":
            on, source, target = what
            machine.launch(machine.double, streams[on], memory + source * PIECE, memory + target * PIECE, PIECE // 4)
        elif kind == "record":
            api.aclrtRecordEvent(events[what[1]], streams[what[0]])
            recorded[what[1]] = True
        elif kind == "wait" and recorded[what[1]]:
            api.aclrtStreamWaitEvent(streams[what[0]], events[what[1]])
        elif kind == "notify":
            notify = machine.notify()
            api.aclrtRecordNotify(notify, streams[what[0]])
            api.aclrtWaitAndResetNotify(notify, streams[what[1]], 0)
        elif kind == "host reads":
            size = (min(what[0] + what[1], PIECES) - what[0]) * PIECE
            api.aclrtMemcpy(host, size, memory + what[0] * PIECE, size, D2H)
        elif kind == "host writes":
            api.aclrtMemcpy(memory + what[0] * PIECE, PIECE, host, PIECE, H2D)
        elif kind == "synchronize":
            api.aclrtSynchronizeStream(streams[what[0]])
        elif kind == "synchronize event" and recorded[what[0]]:
            api.aclrtSynchronizeEvent(events[what[0]])
    api.aclrtSynchronizeDevice()
    return machine.backend.hazards_found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs, st.sampled_from(["lazy", "eager", "random(1)", "random(2)", "random(3)"]))
def test_a_program_is_reported_if_and_only_if_nothing_orders_two_of_its_accesses(steps, order):
    expected = racy(steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert bool(run(steps, order, "warn")) == expected
    if expected:
        with pytest.raises(sim.HazardError):
            run(steps, order, "raise")
    else:
        assert run(steps, order, "raise") == []
