"""The life of a handle: closed once, children first, refused afterwards, forbidden and allowed, kept while in use."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import sys
import threading
import warnings
import weakref

import pytest

from pyacl import _handle
from pyacl._handle import Handle, Unusable, drain
from pyacl.errors import ClosedError, ForkedError


class Stream(ctypes.c_void_p):
    pass


class Owner:
    """Stands for a public object."""


@pytest.fixture
def freed() -> list[object]:
    return []


def make(freed: list[object], value: object = 1, parent: Handle | None = None, rank: int = 0, what: str = "stream"):
    return Handle(what, value, freed.append, parent, rank)


class TestClose:
    def test_frees_once(self, freed: list[object]) -> None:
        handle = make(freed, 0x1000)
        assert handle.get() == 0x1000 and not handle.closed
        handle.close()
        handle.close()
        assert freed == [0x1000] and handle.closed

    def test_use_afterwards_raises(self, freed: list[object]) -> None:
        handle = make(freed, what="stream of device 0")
        handle.close()
        with pytest.raises(ClosedError, match="the stream of device 0 is closed"):
            handle.get()
        for use in (lambda p: p + 8, lambda p: 8 + p, int, bool, lambda p: [][p]):
            with pytest.raises(ClosedError, match="is closed"):
                use(handle.ptr)

    def test_a_closed_handle_never_becomes_null(self, freed: list[object]) -> None:
        """On the typed and on the untyped path of ctypes, the call is not made."""
        called = []
        thunk = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda value: called.append(value) or 0)
        address = ctypes.cast(thunk, ctypes.c_void_p).value
        typed = ctypes.CFUNCTYPE(ctypes.c_int, Stream)(address)
        untyped = ctypes.CFUNCTYPE(ctypes.c_int)(address)
        handle = make(freed, Stream(0x1000))
        typed(handle.ptr)
        untyped(handle.ptr)
        assert called == [0x1000, 0x1000]
        handle.close()
        for function in (typed, untyped):
            with pytest.raises((ctypes.ArgumentError, ClosedError), match="is closed"):
                function(handle.ptr)
        assert called == [0x1000, 0x1000]

    def test_borrowed_handles_are_not_freed(self) -> None:
        handle = Handle("stream", 7, None)
        handle.close()
        assert handle.closed

    def test_children_first_by_rank_and_newest_first(self, freed: list[object]) -> None:
        device = make(freed, "device")
        make(freed, "memory 1", device, rank=2)
        stream = make(freed, "stream 1", device, rank=0)
        make(freed, "event on stream 1", stream)
        make(freed, "memory 2", device, rank=2)
        make(freed, "stream 2", device, rank=0)
        make(freed, "event", device, rank=1)
        device.close()
        assert freed == [
            "stream 2", "event on stream 1", "stream 1", "event", "memory 2", "memory 1", "device"
        ]  # fmt: skip
        assert device.children == ()

    def test_a_closed_child_leaves_its_parent(self, freed: list[object]) -> None:
        device = make(freed, "device")
        child = make(freed, "child", device)
        child.close()
        assert device.children == ()
        device.close()
        assert freed == ["child", "device"]

    def test_an_interrupted_child_is_closed_all_the_same(self, freed: list[object]) -> None:
        class Interrupted(Handle):
            """Ctrl-C comes where its close begins."""

            def close(self) -> None:
                if not self.closed:
                    self._open.clear()
                    raise KeyboardInterrupt
                super().close()

        device = make(freed, "device")
        Interrupted("child", "child", freed.append, device)
        with pytest.raises(KeyboardInterrupt):
            device.close()
        assert freed == ["child", "device"] and device.children == ()

    def test_every_child_is_tried_and_the_first_error_raised(self, freed: list[object]) -> None:
        def fail(value: object) -> None:
            freed.append(value)
            raise RuntimeError(f"cannot free {value}")

        device = make(freed, "device")
        Handle("a", "a", fail, device)
        Handle("b", "b", fail, device)
        with pytest.raises(RuntimeError, match="cannot free b"):
            device.close()
        assert freed == ["b", "a", "device"]
        device.close()
        assert freed == ["b", "a", "device"]

    @pytest.mark.parametrize("which", ["device", "stream", "event"])
    def test_a_close_that_is_broken_off_is_completed_later(self, which: str) -> None:
        """Ctrl-C at any line of `close`: the next close, its own or that of what it hangs on, frees the rest."""
        for at in range(1, 100):
            freed: list[object] = []
            handles = {"device": make(freed, "device")}
            handles["stream"] = make(freed, "stream", handles["device"])
            handles["event"] = make(freed, "event", handles["stream"])
            lines = 0

            def trace(frame, event, _, at=at, target=handles[which]):
                nonlocal lines
                if frame.f_code is not Handle.close.__code__ or frame.f_locals["self"] is not target:
                    return None
                if event == "line":
                    lines += 1
                    if lines == at:
                        raise KeyboardInterrupt
                return trace

            before = sys.gettrace()
            sys.settrace(trace)
            try:
                handles[which].close()
                broken_off = False
            except KeyboardInterrupt:
                broken_off = True
            finally:
                sys.settrace(before)
            handles["device"].close()
            assert freed == ["event", "stream", "device"], at
            if not broken_off:
                break
        assert at > 10 and not broken_off

    def test_two_threads_free_it_once(self) -> None:
        for _ in range(200):
            freed: list[object] = []
            handle = make(freed)
            start = threading.Barrier(4)

            def close(start: threading.Barrier = start, handle: Handle = handle) -> None:
                start.wait()
                handle.close()

            threads = [threading.Thread(target=close) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert freed == [1]


class TestCollect:
    def test_the_owner_goes_the_handle_is_freed(self, freed: list[object]) -> None:
        owner = Owner()
        handle = make(freed, 5)
        handle.own(owner)
        del owner
        assert freed == [5] and handle.closed

    def test_closing_before_leaves_nothing_to_the_collector(self, freed: list[object]) -> None:
        owner = Owner()
        handle = make(freed, 5)
        handle.own(owner)
        handle.close()
        del owner
        assert freed == [5]

    @pytest.mark.parametrize("made", [("memory", "stream", "device"), ("memory", "device", "stream")])
    def test_in_a_cycle_the_tree_is_freed_in_its_order(self, freed: list[object], made: tuple[str, ...]) -> None:
        """Whichever owner the collector comes to first."""
        owners = {name: Owner() for name in made}
        device = make(freed, "device")
        device.own(owners["device"])
        make(freed, "memory", device, rank=3).own(owners["memory"])
        make(freed, "stream", device, rank=0).own(owners["stream"])
        del device
        for owner in owners.values():
            owner.others = owners
        del owner, owners
        gc.collect()
        assert freed == ["stream", "memory", "device"]

    def test_in_a_cycle_children_still_go_first(self, freed: list[object]) -> None:
        """The collector runs the finalizers of a cycle in order of creation: the parent's first."""
        device, stream = Owner(), Owner()
        device_handle = make(freed, "device")
        device_handle.own(device)
        make(freed, "stream", device_handle).own(stream)
        device.stream, stream.device = stream, device
        gc.collect()
        assert freed == []
        del device, stream
        gc.collect()
        assert freed == ["stream", "device"]

    def test_an_error_becomes_a_warning(self) -> None:
        def fail(value: object) -> None:
            raise RuntimeError("the device is gone")

        owner = Owner()
        Handle("stream of device 0", 1, fail).own(owner)
        with pytest.warns(ResourceWarning, match="freeing the stream of device 0: the device is gone"):
            del owner

    @pytest.mark.parametrize("chance", [drain, lambda: make([], 6).close()], ids=["drain", "next handle"])
    def test_nothing_is_freed_inside_a_callback(self, freed: list[object], chance) -> None:
        """The library forbids it there; it is freed at the next chance."""
        owners = [Owner()]
        make(freed, 5).own(owners[0])

        def callback() -> None:
            owners.clear()

        _handle.CALLBACK_CODES.add(callback.__code__)
        try:
            callback()
        finally:
            _handle.CALLBACK_CODES.discard(callback.__code__)
        assert freed == []
        chance()
        assert freed == [5]

    def test_nothing_is_freed_inside_a_backend(self, freed: list[object]) -> None:
        """The collector runs anywhere, also where a backend holds a lock that freeing needs."""
        owner, view = Owner(), Owner()
        make(freed, 5).own(owner)
        used = make(freed, 6)
        used.use(view)
        used.close()
        things = [owner, view]
        del owner, view
        exec("things.clear()", {"__name__": "pyacl.backends.somewhere", "things": things})
        assert freed == []
        drain()
        assert sorted(freed) == [5, 6]


class TestUse:
    def test_memory_in_use_outlives_close(self, freed: list[object]) -> None:
        device = make(freed, "device")
        memory = make(freed, "memory", device)
        view = Owner()
        memory.use(view)
        device.close()
        assert freed == [] and memory.closed and device.closed
        with pytest.raises(ClosedError):
            memory.get()
        del view
        assert freed == ["memory", "device"]

    def test_without_close_nothing_happens(self, freed: list[object]) -> None:
        memory = make(freed, "memory")
        view = Owner()
        memory.use(view)
        del view
        assert freed == [] and memory.get() == "memory"


class TestForbid:
    def test_everything_below_is_refused_and_can_be_closed(self, freed: list[object]) -> None:
        device = make(freed, "device")
        stream = make(freed, "stream", device)
        device.forbid(lambda: RuntimeError("the device broke"))
        for handle in (device, stream):
            with pytest.raises(RuntimeError, match="broke"):
                handle.get()
        stream.close()
        with pytest.raises(ClosedError):
            stream.get()
        device.allow()
        assert device.get() == "device"
        with pytest.raises(ClosedError):
            stream.get()
        device.close()
        assert freed == ["stream", "device"]

    def test_tree(self, freed: list[object]) -> None:
        device = make(freed, "device")
        a = make(freed, "a", device)
        b = make(freed, "b", a)
        c = make(freed, "c", device)
        assert list(device.tree()) == [device, a, b, c]
        device.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
class TestFork:
    def test_the_child_frees_nothing_and_says_so(self, freed: list[object]) -> None:
        owner = Owner()
        device = make(freed, "device", what="device 0")
        child = make(freed, "child", device)
        child.own(owner)
        parent_pid = os.getpid()
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: a fork with threads around
            pid = os.fork()
        if pid == 0:
            try:
                try:
                    device.get()
                    said = "no error"
                except ForkedError as error:
                    said = str(error)
                device.close()
                del owner
                drain()
                os.write(write, f"{said}|{freed}".encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        said, _, child_freed = os.read(read, 4096).decode().partition("|")
        assert f"the device 0 was made in process {parent_pid}" in said and '"spawn"' in said
        assert child_freed == "[]"
        assert device.get() == "device"
        del owner
        device.close()
        assert freed == ["child", "device"]


def test_any_order_of_events_frees_each_once_and_children_before_parents() -> None:
    rng = random.Random(11)
    for _ in range(200):
        freed: list[object] = []
        handles: list[Handle] = []
        owners: dict[int, Owner] = {}
        for number in range(rng.randint(1, 12)):
            parents = [h for h in handles if not h.closed]
            parent = rng.choice(parents) if parents and rng.random() < 0.8 else None
            handle = Handle(str(number), number, freed.append, parent, rng.randint(0, 2))
            if rng.random() < 0.5:
                owners[number] = Owner()
                handle.own(owners[number])
            handles.append(handle)
            if rng.random() < 0.2:
                rng.choice(handles).close()
            if owners and rng.random() < 0.2:
                del owners[rng.choice(list(owners))]
        for handle in rng.sample(handles, len(handles)):
            handle.close()
        assert sorted(freed) == list(range(len(handles)))  # type: ignore[type-var]
        when = {value: order for order, value in enumerate(freed)}
        for number, handle in enumerate(handles):
            if handle.parent is not None:
                assert when[number] < when[handles.index(handle.parent)]


def test_nothing_stays_behind(freed: list[object]) -> None:
    before = len(_handle._open)
    device = make(freed, "device")
    reference = weakref.ref(device)
    make(freed, "child", device)
    device.close()
    del device
    assert len(_handle._open) == before
    assert reference() is None
    assert sys.getrefcount(freed) < 10


def test_unusable_says_what_it_was_given() -> None:
    marker = Unusable(lambda: KeyError("reason"))
    with pytest.raises(KeyError, match="reason"):
        marker._as_parameter_  # noqa: B018
