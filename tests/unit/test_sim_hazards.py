"""The hazard checker: every kind of hazard is found with its two lines, and is silent once the program is mended."""

from __future__ import annotations

import ctypes
import gc
import tracemalloc
import warnings
from pathlib import Path

import hazard_programs
import numpy as np
import pytest
from hazard_programs import BYTES, Machine, N
from simulated import D2D, D2H, H2D

from pyacl import AclError, sim
from pyacl.backends.sim.engine.scheduler import make_scheduler

ORDERS = ["lazy", "eager", "random(1)", "random(2)"]


def names(pair):
    return pair[1].__name__ if isinstance(pair, tuple) else None


def outcome(program, mended, order, mode):
    """(what was raised, what was found) by a program on a machine of its own."""
    machine = Machine(order, mode)
    raised = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            program(machine, mended)
            machine.finish()
        except (sim.HazardError, sim.UndefinedBehavior, AclError) as error:
            raised = error
    assert {w.category for w in caught} <= {sim.HazardWarning}
    assert len(caught) == (len(machine.backend.hazards_found) if mode == "warn" else 0)
    return raised, machine.backend.hazards_found, caught


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("found", hazard_programs.ALL, ids=names)
class TestEveryHazard:
    def test_is_raised_with_its_two_lines(self, found, order):
        kind, program = found
        raised, hazards, _ = outcome(program, False, order, "raise")
        if kind == "out-of-bounds":  # as on hardware: the exception of the core, at the wait
            assert isinstance(raised, AclError) and raised.code == 507035
        else:
            assert isinstance(raised, sim.HazardError)
            assert raised.hazard is hazards[0]
        assert len(hazards) == 1
        hazard, lines = hazards[0], hazard_programs.lines(program)
        assert hazard.kind == kind
        assert {hazard.first.place, hazard.second.place} == set(lines.values())
        assert (hazard.first.place, hazard.second.place) == (lines["first"], lines["then"])
        for file, line in lines.values():
            assert f"{file}:{line}" in str(raised)

    def test_is_warned_of(self, found, order):
        kind, program = found
        _, hazards, caught = outcome(program, False, order, "warn")
        lines = hazard_programs.lines(program)
        assert kind in {hazard.kind for hazard in hazards}
        hazard = next(hazard for hazard in hazards if hazard.kind == kind)
        assert (hazard.first.place, hazard.second.place) == (lines["first"], lines["then"])
        assert caught[0].message.hazard is hazards[0]
        assert caught[0].filename.endswith("hazard_programs.py")

    def test_is_silent_once_the_program_is_mended(self, found, order):
        _, program = found
        raised, hazards, _ = outcome(program, True, order, "raise")
        assert raised is None and hazards == []
        raised, hazards, _ = outcome(program, True, order, "warn")
        assert raised is None and hazards == []

    def test_is_not_looked_for_when_off(self, found, order):
        kind, program = found
        raised, hazards, _ = outcome(program, False, order, "off")
        assert not isinstance(raised, sim.HazardError) and hazards == []


@pytest.mark.parametrize("mode", ["raise", "warn"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("program", hazard_programs.CLEAN, ids=lambda program: program.__name__)
def test_no_alarm_on_a_correct_program(program, order, mode):
    machine = Machine(order, mode)
    program(machine)
    machine.finish()
    assert machine.backend.hazards_found == []


# ---- what a report says ----------------------------------------------------------------------------------------------


def found_in(program, order="lazy"):
    """What a program is told of on a checked machine."""
    machine = Machine(order)
    with pytest.raises(sim.HazardError) as caught:
        program(machine)
        machine.finish()
    return caught.value.hazard


def test_a_report_names_calls_lines_bytes_memory_and_the_next_step():
    def program(m):
        m.launch(m.double, m.s, m.x, m.z + 16, 8)
        m.api.aclrtMemcpy(m.at, BYTES, m.z, BYTES, D2H)

    machine = Machine()
    with pytest.raises(sim.HazardError) as caught:
        program(machine)
    hazard = caught.value.hazard
    assert (hazard.address, hazard.nbytes) == (machine.z + 16, 32)
    assert (hazard.first.call, hazard.first.does) == ("double (aclrtLaunchKernelWithHostArgs)", "writes it")
    assert (hazard.second.call, hazard.second.does) == ("aclrtMemcpy", "reads it")
    assert hazard.first.where.startswith("stream ") and hazard.second.where == "the host"
    text = str(hazard)
    assert str(caught.value) == text
    for part in ("not-waited-for", "32 at", f"0x{machine.z + 16:x}", "of aclrtMalloc at"):
        assert part in text
    for part in ("aclrtSynchronizeStream", "stream.synchronize()", "event.synchronize()"):
        assert part in hazard.advice and part in text


def test_only_the_bytes_in_common_are_reported():
    def program(m):
        m.api.aclrtMemsetAsync(m.z, BYTES, 0, 100, m.s)
        m.api.aclrtMemsetAsync(m.z + 60, BYTES - 60, 0, 100, m.t)

    hazard = found_in(program)
    assert (hazard.kind, hazard.nbytes) == ("unordered", 40)


def test_a_change_of_pinned_memory_is_narrowed_down_to_the_calls_around_it():
    def program(m):
        m.api.aclrtMemcpyAsync(m.y, BYTES, m.pinned, BYTES, H2D, m.s)
        m.api.aclrtMemsetAsync(m.z, BYTES, 0, BYTES, m.s)
        ctypes.memset(m.pinned, 9, BYTES)
        m.api.aclrtMemsetAsync(m.z, BYTES, 1, BYTES, m.s)
        m.api.aclrtMemsetAsync(m.z, BYTES, 2, BYTES, m.s)
        m.api.aclrtSynchronizeStream(m.s)

    start = program.__code__.co_firstlineno
    hazard = found_in(program)
    assert (hazard.first.place[1], hazard.second.place[1]) == (start + 1, start + 4)
    assert f"after {__file__}:{start + 2} and before {__file__}:{start + 4}" in hazard.detail


def test_a_kernel_function_that_reads_too_much_is_named_with_its_line():
    hazard = found_in(lambda m: hazard_programs.half_written(m, False))
    line = hazard_programs.total.__code__.co_firstlineno + 1
    assert f"hazard_programs.py:{line}" in hazard.detail
    assert hazard.nbytes == BYTES // 2


def test_what_is_read_before_another_stream_has_written_it_is_unordered():
    """Whichever of the two runs first: the kernel that reads, too."""

    def program(m):
        m.launch(m.double, m.s, m.x, m.z, N)
        m.launch(m.total, m.t, m.z, m.y)
        m.api.aclrtSynchronizeStream(m.t)

    for order in ORDERS:
        assert found_in(program, order).kind == "unordered"


def test_a_model_that_waits_half_way_is_still_in_use():
    machine = Machine()
    outside = hazard_programs.c.aclrtEvent()
    machine.api.aclrtCreateEventWithFlag(outside, 0x20)
    machine.api.aclmdlRICaptureBegin(machine.s, 0)
    machine.launch(machine.double, machine.s, machine.x, machine.y, N)
    machine.api.aclrtStreamWaitEvent(machine.s, outside)
    machine.launch(machine.double, machine.s, machine.y, machine.z, N)
    model = hazard_programs.c.aclmdlRI()
    machine.api.aclmdlRICaptureEnd(machine.s, model)
    machine.api.aclmdlRIExecuteAsync(model, machine.s)
    status = ctypes.c_uint32()
    for _ in range(3):
        machine.api.aclrtStreamQuery(machine.s, status)
    assert status.value == 1
    with pytest.raises(sim.HazardError) as caught:
        machine.api.aclrtFree(machine.z)
    assert caught.value.hazard.kind == "freed-in-use"
    machine.api.aclrtRecordEvent(outside, machine.t)
    machine.api.aclrtSynchronizeStream(machine.s)
    machine.api.aclrtMemcpy(machine.at, BYTES, machine.z, BYTES, D2H)
    assert machine.host.tolist() == [4 * i for i in range(N)]
    machine.api.aclrtFree(machine.z)


def test_a_freed_buffer_that_a_kernel_still_finds_in_its_arguments():
    """The arguments are on the device and say too late what the kernel uses."""
    machine = Machine(mode="warn")
    block = machine.malloc(24)
    content = np.array([machine.x, machine.z, N], np.uint64)
    ctypes.memmove(machine.pinned, content.ctypes.data, 24)
    machine.api.aclrtMemcpyAsync(block, 24, machine.pinned, 24, H2D, machine.s)
    machine.api.aclrtLaunchKernel(machine.double, 1, block, 24, machine.s)
    machine.api.aclrtFree(machine.z)
    with pytest.warns(sim.HazardWarning), pytest.raises(AclError, match="was freed at") as caught:
        machine.sync()
    assert caught.value.code == 507035
    (hazard,) = machine.backend.hazards_found
    assert (hazard.kind, hazard.first.call) == ("freed-in-use", "aclrtFree")


def test_an_exception_of_a_core_says_where_the_kernel_was_launched():
    machine = Machine(mode="off")
    z = machine.malloc(BYTES)
    machine.api.aclrtLaunchKernelWithHostArgs(machine.fill, 1, machine.s, None, *machine.args(z, N + 1))
    line = test_an_exception_of_a_core_says_where_the_kernel_was_launched.__code__.co_firstlineno + 3
    with pytest.raises(AclError, match=f"Launched at {__file__}:{line}"):
        machine.sync()


# ---- switching it ----------------------------------------------------------------------------------------------------


def test_it_can_be_switched_on_and_off_and_does_not_look_back():
    machine = Machine(mode="off")
    backend = machine.backend
    assert backend.hazards == "off"
    machine.launch(machine.double, machine.s, machine.x, machine.z, N)
    unknown = machine.malloc(BYTES)
    backend.hazards = "raise"
    assert backend.hazards == "raise"
    machine.api.aclrtMemcpy(machine.at, BYTES, machine.z, BYTES, D2H)  # of a launch that nobody noted
    machine.launch(machine.total, machine.s, unknown, machine.y)  # of memory that may have been written
    machine.sync()
    backend.hazards = "warn"
    machine.launch(machine.double, machine.s, machine.x, machine.z, N)
    machine.api.aclrtMemcpy(machine.at, BYTES, machine.z, BYTES, D2H)
    with pytest.warns(sim.HazardWarning, match="not-waited-for"):
        machine.sync()
    backend.hazards = "off"
    machine.launch(machine.double, machine.s, machine.x, machine.z, N)
    machine.api.aclrtMemcpy(machine.at, BYTES, machine.z, BYTES, D2H)
    machine.sync()
    backend.hazards = "raise"
    machine.launch(machine.double, machine.s, machine.x, machine.z, N)
    with pytest.raises(sim.HazardError):
        machine.api.aclrtMemcpy(machine.at, BYTES, machine.z, BYTES, D2H)
    assert [hazard.kind for hazard in backend.hazards_found] == ["not-waited-for"] * 2
    with pytest.raises(ValueError, match="'raise'"):
        backend.hazards = "perhaps"
    assert backend.hazards == "raise"


def test_warnings_change_nothing():
    """With a warning the result is as wrong as without the checker; an error comes before it."""
    results = {}
    for mode in ("off", "warn"):
        machine = Machine(mode=mode)
        machine.api.aclrtMemset(machine.z, BYTES, 0, BYTES)
        machine.launch(machine.double, machine.s, machine.x, machine.z, N)
        machine.api.aclrtMemcpy(machine.at, BYTES, machine.z, BYTES, D2H)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            machine.sync()
        results[mode] = machine.host.tolist(), len(caught)
    assert results == {"off": ([0] * N, 0), "warn": ([0] * N, 1)}


def test_a_warning_made_an_error_reaches_the_program():
    machine = Machine(mode="warn")
    machine.api.aclrtMemcpyAsync(machine.y, BYTES, machine.x, BYTES, D2D, machine.s)
    with pytest.raises(sim.HazardWarning, match="not-waited-for"):
        machine.api.aclrtMemcpy(machine.at, BYTES, machine.y, BYTES, D2H)


def test_a_hazard_is_raised_before_it_does_harm():
    machine = Machine()
    machine.launch(machine.double, machine.s, machine.x, machine.z, N)
    with pytest.raises(sim.HazardError):
        machine.api.aclrtFree(machine.z)
    machine.sync()
    machine.api.aclrtMemcpy(machine.at, BYTES, machine.z, BYTES, D2H)
    assert machine.host.tolist() == [2 * i for i in range(N)]
    machine.api.aclrtFree(machine.z)


def test_what_was_reported_is_not_reported_again():
    machine = Machine(mode="warn")
    machine.api.aclrtMemcpyAsync(machine.y, BYTES, machine.x, BYTES, D2D, machine.s)
    with pytest.warns(sim.HazardWarning):
        machine.api.aclrtMemcpy(machine.at, BYTES, machine.y, BYTES, D2H)
    machine.sync()
    machine.api.aclrtMemcpy(machine.at, BYTES, machine.y, BYTES, D2H)
    assert len(machine.backend.hazards_found) == 1


# ---- orders and waits ------------------------------------------------------------------------------------------------


class Pipeline:
    """Two streams: one copies pieces in, the other computes and copies out; events keep the order."""

    PIECES = 4

    def __init__(self, machine):
        self.m = machine
        self.events = [machine.event() for _ in range(self.PIECES)]
        self.source = machine.pointer("aclrtMallocHost", BYTES * self.PIECES)
        self.target = machine.pointer("aclrtMallocHost", BYTES * self.PIECES)
        self.values = np.arange(N * self.PIECES, dtype=np.int32)
        ctypes.memmove(self.source, self.values.ctypes.data, self.values.nbytes)

    def run(self, ordered=True):
        """Is the result right?"""
        m = self.m
        ctypes.memset(self.target, 0, BYTES * self.PIECES)
        m.api.aclrtMemset(m.x, BYTES, 0, BYTES)
        piece = self.values.nbytes // self.PIECES
        buffers = [m.x, m.y, m.z, m.buffer]
        for i, event in enumerate(self.events):
            x = buffers[i]
            m.api.aclrtMemcpyAsync(x, piece, self.source + i * piece, piece, H2D, m.s)
            m.api.aclrtRecordEvent(event, m.s)
            if ordered or i != 1:
                m.api.aclrtStreamWaitEvent(m.t, event)
            m.launch(m.double, m.t, x, x, N)
            m.api.aclrtMemcpyAsync(self.target + i * piece, piece, x, piece, D2H, m.t)
        m.api.aclrtSynchronizeStream(m.t)
        m.api.aclrtSynchronizeStream(m.s)
        return ctypes.string_at(self.target, self.values.nbytes) == (2 * self.values).tobytes()


SEEDS = 1000


def pipelines(mode):
    """The same pipeline in the order of every seed. (One machine serves for all: it is the order that counts.)"""
    machine = Machine("lazy", mode)
    machine.buffer = machine.upload(np.zeros(N, np.int32))
    found = Pipeline(machine)
    for seed in range(SEEDS):
        machine.backend.machine.scheduler = make_scheduler(machine.backend.machine, f"random({seed})")
        machine.backend.hazards_found.clear()
        yield seed, found, machine.backend.hazards_found


def test_a_correct_pipeline_is_right_in_every_order():
    for seed, pipeline, hazards in pipelines("raise"):
        assert pipeline.run(), seed
        assert hazards == []


def test_a_pipeline_without_one_event_is_wrong_or_reported():
    wrong = reported = either = 0
    for _, pipeline, hazards in pipelines("warn"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            right = pipeline.run(ordered=False)
        assert {hazard.kind for hazard in hazards} <= {"unordered"}
        wrong += not right
        reported += bool(hazards)
        either += bool(hazards) or not right
    assert either >= 0.99 * SEEDS
    assert reported == SEEDS  # the checker does not depend on the order
    assert 0 < wrong < SEEDS  # the result alone does


def test_a_wait_that_cannot_end_is_reported_with_its_cycle():
    machine = Machine()
    first, second = (machine.notify() for _ in range(2))
    machine.api.aclrtWaitAndResetNotify(first, machine.s, 0)
    machine.api.aclrtRecordNotify(second, machine.s)
    machine.api.aclrtWaitAndResetNotify(second, machine.t, 0)
    machine.api.aclrtRecordNotify(first, machine.t)
    with pytest.raises(sim.Deadlock, match="a cycle") as caught:
        machine.api.aclrtSynchronizeStream(machine.s)
    start = test_a_wait_that_cannot_end_is_reported_with_its_cycle.__code__.co_firstlineno
    for line in (3, 4, 5, 6):
        assert f"{__file__}:{start + line}" in str(caught.value)


# ---- what it costs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "tools"))
    import benchmark_hazards

    return benchmark_hazards


def test_it_costs_at_most_five_times_the_unchecked_simulator(benchmark):
    for name, row in benchmark.compare().items():
        assert row["ratio"] <= 5, (name, row)


def test_the_cost_does_not_grow_with_the_length_of_the_program(benchmark):
    found = benchmark.growth(200_000)
    assert found["operations"] == 200_000
    assert found["ratio"] < 1.25, found


def test_the_memory_does_not_grow_with_the_length_of_the_program(benchmark):
    def grown(mode):
        """Bytes by which 200 rounds with a stream of their own grow. (The simulator keeps where each was destroyed.)"""
        program = benchmark.Program(mode)
        sizes = []
        for rounds in (200, 50, 200):
            if len(sizes) == 1:
                tracemalloc.start()
            for _ in range(rounds):
                program.pipeline()
                program.launches()
                made = hazard_programs.c.aclrtStream()
                program.api.aclrtCreateStream(made)
                program.launch(made)
                program.api.aclrtDestroyStream(made)
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert program.backend.hazards_found == []
        return sizes[2] - sizes[1]

    assert grown("raise") < grown("off") + 40_000


@pytest.mark.parametrize("end", ["aclrtDestroyStream", "aclrtResetDevice"])
def test_what_ends_a_stream_ends_it_whatever_hazards_its_work_has(end):
    machine = Machine("lazy")
    fresh = {live.handle for live in machine.backend.report()}
    streams = [machine.stream(), machine.stream()]
    buffers = [machine.malloc(BYTES) for _ in range(2)]
    for value, stream in enumerate(streams):
        for buffer in buffers:
            machine.api.aclrtMemsetAsync(buffer, BYTES, value, BYTES, stream)
    machine.api.aclrtSynchronizeStream(streams[0])
    with pytest.raises(sim.HazardError) as caught:
        getattr(machine.api, end)(streams[1] if end == "aclrtDestroyStream" else 0)
    assert len(machine.backend.hazards_found) == 2 and caught.value.hazard is machine.backend.hazards_found[0]
    if end == "aclrtResetDevice":
        assert not any(live.kind == "stream" for live in machine.backend.report())
        return
    with pytest.raises(sim.UndefinedBehavior, match="was destroyed at"):
        machine.api.aclrtDestroyStream(streams[1])
    machine.api.aclrtDestroyStream(streams[0])
    for buffer in buffers:  # nothing uses them any more
        machine.api.aclrtFree(buffer)
    assert {live.handle for live in machine.backend.report()} == fresh


def test_many_places_of_one_allocation():
    """More places than are kept: what is forgotten is not reported wrongly."""
    machine = Machine()
    large = machine.malloc(1 << 20)
    for i in range(5000):
        at = large + i * 64 % (1 << 20)
        machine.api.aclrtMemsetAsync(at, 64, i & 0xFF, 32 + i % 32, machine.s if i % 2 else machine.t)
    machine.api.aclrtSynchronizeDevice()
    assert machine.backend.hazards_found == []
