"""The parts of the hazard checker: sets of bytes, clocks against brute force, arrays that note what is done to them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyacl.backends.sim.engine import clocks
from pyacl.backends.sim.engine.clocks import History, Touch, Track, join
from pyacl.backends.sim.engine.kernels import DeviceArray, KernelFault
from pyacl.backends.sim.engine.memory import DEVICE, Block
from pyacl.backends.sim.engine.pinned import SNAPSHOT, _digest
from pyacl.backends.sim.engine.ranges import Ranges
from pyacl.backends.sim.engine.tracking import TrackedArray, Used, tracked

# ---- ranges ----------------------------------------------------------------------------------------------------------

extents = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(st.tuples(st.booleans(), extents), max_size=30), extents)
def test_ranges_are_sets_of_numbers(changes, asked):
    ranges, model = Ranges(), set()
    for adds, (low, high) in changes:
        if adds:
            ranges.add(low, high)
            model |= set(range(low, high))
        else:
            ranges.remove(low, high)
            model -= set(range(low, high))
    low, high = asked
    inside = set(range(low, high))
    assert {n for start, end in ranges for n in range(start, end)} == model
    assert ranges.covers(low, high) == (inside <= model)
    assert {n for start, end in ranges.within(low, high) for n in range(start, end)} == inside & model
    assert {n for start, end in ranges.missing(low, high) for n in range(start, end)} == inside - model
    assert ranges.edges == sorted(set(ranges.edges))  # rising, and neighbours are one range
    assert len(ranges) == len(list(ranges)) == len(ranges.edges) // 2


# ---- clocks ----------------------------------------------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.tuples(st.just("touch"), st.integers(0, 2), extents, st.booleans()),
        st.tuples(st.just("wait"), st.integers(0, 2), st.integers(0, 2), st.none()),
    ),
    max_size=40,
)


def run(steps, most=None):
    """The number of the first access that conflicts with an earlier one: as the history has it, and by brute force."""
    tracks = [Track(str(i)) for i in range(3)]
    history = History()
    done = []  # (low, high, writes, what it comes after)
    after = [set(), set(), set()]  # of each track: the accesses that its next one comes after
    for number, (kind, who, what, writes) in enumerate(steps):
        track = tracks[who]
        if kind == "wait":
            join(track.clock, tracks[what].clock)
            after[who] |= after[what]
            continue
        low, high = what
        track.count += 1
        track.clock[track] = track.count
        touch = Touch(track, track.count, str(len(done)), None, number)
        found = history.access(low, high, touch, writes, track.clock)
        true = [
            i
            for i, (start, end, wrote) in enumerate(done)
            if i not in after[who] and start < high and low < end and (writes or wrote)
        ]
        if found is not None:
            assert int(found.other.call) in true  # it is a conflict, and in those bytes
            start, end, wrote = done[int(found.other.call)]
            assert max(start, low) <= found.low < found.high <= min(end, high)
            assert found.other_writes == wrote
        assert (found is not None) == bool(true)
        if true:
            return number
        after[who] = after[who] | {len(done)}
        done.append((low, high, writes))
        if most is not None:
            history.trim(track.clock)
    return None


@settings(max_examples=400)
@given(steps)
def test_the_first_conflict_is_found_and_no_other(steps):
    run(steps)


@given(steps)
def test_unordered_is_the_latest_access_that_does_not_come_before(steps):
    tracks = [Track(str(i)) for i in range(3)]
    history = History()
    for number, (kind, who, what, writes) in enumerate(steps):
        track = tracks[who]
        if kind == "wait":
            join(track.clock, tracks[what].clock)
            continue
        track.count += 1
        track.clock[track] = track.count
        history.access(*what, Touch(track, track.count, "", None, number), writes, track.clock)
    everything: dict[Track, int] = {}
    for track in tracks:
        join(everything, track.clock)
    assert history.unordered(0, 60, Track("host"), everything) is None
    anything = any(kind == "touch" for kind, *_ in steps)
    found = history.unordered(0, 60, Track("host"), {})
    assert (found is not None) == anything
    if found is not None:
        assert found.other.serial == max(i for i, step in enumerate(steps) if step[0] == "touch")


def test_what_a_dead_track_did_comes_before_everything():
    one, two, history = Track("1"), Track("2"), History()
    history.access(0, 8, Touch(one, 1, "", None, 1), True, {one: 1})
    one.end()
    assert history.access(0, 8, Touch(two, 1, "", None, 2), True, {two: 1}) is None
    assert one.clock == {}


def test_a_history_forgets_first_what_can_no_longer_conflict(monkeypatch):
    monkeypatch.setattr(clocks, "MOST_CELLS", 8)
    track, history = Track("1"), History()
    for i in range(9):
        history.access(10 * i, 10 * i + 5, Touch(track, i + 1, "", None, i), True, {})
    history.trim({track: 6})
    assert history.lows == [60, 70, 80]
    for i in range(9):
        history.access(10 * i, 10 * i + 5, Touch(track, i + 10, "", None, i), True, {})
    history.trim({})
    assert len(history.lows) == len(history.cells) == 4


# ---- arrays ----------------------------------------------------------------------------------------------------------


def array(shape, dtype=np.int32, known=None, writable=True):
    """A tracked array over a store of its own, and what is noted."""
    values = np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
    block = Block(0x12C000000000, values.nbytes, values.nbytes, DEVICE, 0, 4096, 0, "aclrtMalloc")
    store = block.contents()
    store.array[:] = values.reshape(-1).view(np.uint8)
    used = Used(block, store, known, None)
    found = store.array.view(dtype).reshape(shape).view(DeviceArray)
    found.address, found.block, found.name = block.base, block, "k(x)"
    found.flags.writeable = writable
    return tracked(found, used), used


def elements(ranges):
    """Numbers of the 4-byte elements in ranges."""
    return [n // 4 for low, high in ranges for n in range(low, high, 4)]


def touched(shape, work):
    """(elements that are read, elements that are written)."""
    x, used = array(shape)
    work(x)
    return elements(used.reads), elements(used.writes)


ALL = list(range(12))


@pytest.mark.parametrize(
    ("work", "reads", "writes"),
    [
        (lambda x: x[2:5] + 1, [2, 3, 4], []),
        (lambda x: x[3], [3], []),
        (lambda x: x[-1], [11], []),
        (lambda x: x[::4] * 2, [0, 4, 8], []),
        (lambda x: x[2:8:3].sum(), [2, 5], []),
        (lambda x: x[::-1][:2] + 0, [10, 11], []),
        (lambda x: x[[1, 7]], [1, 7], []),
        (lambda x: x[x < 3], ALL, []),
        (lambda x: x[np.arange(12) > 9], [10, 11], []),
        (lambda x: x + x, ALL, []),
        (lambda x: np.where(np.arange(12) > 3, x, 0), ALL, []),
        (lambda x: np.dot(x, x), ALL, []),
        (lambda x: np.concatenate([x[:2], x[6:8]]), [0, 1, 6, 7], []),
        (lambda x: x.copy(), ALL, []),
        (lambda x: x[4:6].tolist(), [4, 5], []),
        (lambda x: int(x[7:8].item()), [7], []),
        (lambda x: x[1:3].astype(np.float32), [1, 2], []),
        (lambda x: [v for v in x[9:]], [9, 10, 11], []),  # noqa: C416
        (lambda x: x.size + len(x) + x.ndim + np.shape(x)[0], [], []),
        (lambda x: np.empty_like(x), [], []),
        (lambda x: x.reshape(3, 4)[1] + 0, [4, 5, 6, 7], []),
        (lambda x: x.reshape(3, 4)[:, 1] + 0, [1, 5, 9], []),
        (lambda x: x.reshape(3, 4).T[0] + 0, [0, 4, 8], []),
        (lambda x: np.transpose(x.reshape(3, 4))[3] + 0, [3, 7, 11], []),
        (lambda x: x.reshape(3, 4).T.reshape(-1), ALL, []),
        (lambda x: x.view(np.int64)[1] + 0, [2, 3], []),
        (lambda x: x.__setitem__(slice(2, 4), 7), [], [2, 3]),
        (lambda x: x.__setitem__(5, 1), [], [5]),
        (lambda x: x.__setitem__([1, 10], 3), [], [1, 10]),
        (lambda x: x.__setitem__(np.arange(12) > 9, 3), [], [10, 11]),
        (lambda x: x.__setitem__(slice(0, 2), x[4:6]), [4, 5], [0, 1]),
        (lambda x: x[6:8].fill(1), [], [6, 7]),
        (lambda x: x[6:9].sort(), [6, 7, 8], [6, 7, 8]),
        (lambda x: np.copyto(x[:3], 5), [], [0, 1, 2]),
        (lambda x: np.copyto(x[:3], x[3:6]), [3, 4, 5], [0, 1, 2]),
        (lambda x: np.add(x[:2], 1, out=x[8:10]), [0, 1], [8, 9]),
        (lambda x: np.add.at(x[:4], [0, 1], 1), [0, 1, 2, 3], [0, 1, 2, 3]),
        (lambda x: np.add.reduce(x[:4]), [0, 1, 2, 3], []),
        (lambda x: np.cumsum(x[:3], out=x[3:6]), [0, 1, 2], [3, 4, 5]),
        (lambda x: x[:3].cumsum(out=x[3:6]), [0, 1, 2], [3, 4, 5]),
        (lambda x: x.flat.__setitem__(0, 1), ALL, ALL),
        (lambda x: x.reshape(3, 4).__setitem__((slice(None), 0), 1), [], [0, 4, 8]),
        (lambda x: x.reshape(3, 4)[1:, 2:].__iadd__(1), [6, 7, 10, 11], [6, 7, 10, 11]),
    ],
)
def test_what_numpy_reads_and_writes_is_noted(work, reads, writes):
    assert touched(12, work) == (reads, writes)


def test_results_are_what_numpy_gives():
    x, _ = array((3, 4))
    values = np.arange(12, dtype=np.int32).reshape(3, 4)
    part = x[1:, ::2]
    assert isinstance(part, TrackedArray)
    np.testing.assert_array_equal(np.asarray(part), values[1:, ::2])
    assert type(x + 1) is type(x[[0, 1]]) is type(x.copy()) is type(np.sort(x)) is np.ndarray
    assert x[1, 2] == 6 and type(x[1, 2]) is np.int32
    x += 1
    assert isinstance(x, TrackedArray)
    np.testing.assert_array_equal(np.asarray(x), values + 1)
    low, high = np.divmod(x, 5)
    np.testing.assert_array_equal(low * 5 + high, values + 1)
    assert x[0].tolist() == [1, 2, 3, 4] and 12 in x and bool((x > 0).all())
    assert [row.sum() for row in x] == [10, 26, 42]


def test_a_structured_array_by_fields():
    bare, used = array(8)
    x = bare.view(np.dtype([("a", np.int32), ("b", np.int32)]))
    assert x["b"].sum() == 1 + 3 + 5 + 7
    assert elements(used.reads) == [1, 3, 5, 7]
    x[1:]["a"][...] = 0
    assert elements(used.writes) == [2, 4, 6]


def test_accesses_outside_are_faults():
    x, _ = array(12)
    for touch in (lambda: x[12], lambda: x[4:13], lambda: x.__setitem__(12, 0), lambda: x.__setitem__(slice(0, 20), 0)):
        with pytest.raises(KernelFault):
            touch()
    with pytest.raises(IndexError):
        x[2:4][2]


def test_input_stays_read_only():
    x, used = array(12, writable=False)
    with pytest.raises(ValueError, match=r"^k\(x\): sim.In is read-only"):
        x[0] = 1
    for write in (lambda: x[2:].__setitem__(0, 1), lambda: x.fill(0), lambda: np.add(x, 1, out=x)):
        with pytest.raises(ValueError, match="read-only"):
            write()
    assert not used.writable and not used.writes


def test_what_is_not_known_is_missing_once():
    x, used = array(12, known=Ranges([0, 16]))
    used.store.array[:] = 0xFF
    x[0:4].sum()
    assert used.missing == []
    x[2:6].sum()
    x[2:6].sum()
    assert [(low, high) for low, high, _ in used.missing] == [(16, 24)]
    x[8:10] = 1  # what the kernel itself has written is known
    x[8:10].sum()
    assert len(used.missing) == 1
    used.store.array[40:44] = 0  # written by somebody, only that nobody took note
    x[10:11].sum()
    assert len(used.missing) == 1


def test_an_access_in_very_many_pieces_is_left_out():
    x, used = array((10_000, 2))
    x[:, 0].sum()
    assert not used.reads
    x[:4000, 0].sum()
    assert len(used.reads) == 4000


# ---- pinned memory ---------------------------------------------------------------------------------------------------


@given(
    st.sampled_from([1, 63, SNAPSHOT, SNAPSHOT + 1, 5 * SNAPSHOT + 77]), st.integers(0, 1 << 30), st.integers(1, 255)
)
@settings(max_examples=60, deadline=None)
def test_one_changed_byte_changes_the_digest(size, where, by):
    memory = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    before = _digest(memory)
    assert _digest(memory.copy()) == before
    memory[where % size] ^= by
    assert _digest(memory) != before


def test_bytes_that_change_places_change_the_digest():
    memory = np.arange(4 * SNAPSHOT, dtype=np.uint32).view(np.uint8)
    for turned in (memory[::-1].copy(), np.roll(memory, 4), np.roll(memory, 4096), np.roll(memory, 8)):
        assert _digest(turned) != _digest(memory)
