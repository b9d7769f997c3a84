"""The hazard checker and the objects: mistakes that the objects allow, found with the lines of the program."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from pyacl_api import ADD, SCALE, forget, use

import pyacl
from pyacl import sim

N = 1024


@pytest.fixture(params=["lazy", "eager", "random(5)"])
def backend(request):
    forget()
    yield use(request.param, hazards="raise").backend
    forget()


@pytest.fixture
def device(backend):
    with pyacl.Device(0) as device:
        yield device


def result_read_without_waiting(device, stream, mended):
    add = device.load(ADD)["add_custom"]
    x = device.to_device(np.arange(N, dtype=np.float16))
    z = device.empty_like(x)
    add[8, stream](x, x, z)  # first
    return z.to_host(stream) if mended else z.to_host()  # then


def input_filled_too_early(device, stream, mended):
    scale = device.load(SCALE)["scale_custom"]
    x = device.zeros(N, np.float32)
    z = device.empty_like(x)
    scale[8, stream](x, z, np.float32(2))  # first
    if mended:
        device.synchronize()
    x.fill(1)  # then
    stream.synchronize()


def buffer_closed_in_use(device, stream, mended):
    add = device.load(ADD)["add_custom"]
    x, z = device.zeros(N, np.float16), device.empty(N, np.float16)
    add[8, stream](x, x, z)  # first
    if mended:
        stream.record().synchronize()
    z.close()  # then
    stream.synchronize()


def two_streams(device, stream, mended):
    add = device.load(ADD)["add_custom"]
    other = device.create_stream()
    x = device.zeros(N, np.float16)
    y, z = device.empty_like(x), device.empty_like(x)
    add[8, stream](x, x, y)  # first
    if mended:
        other.wait(stream.record())
    add[8, other](y, y, z)  # then
    other.synchronize()
    stream.synchronize()


def two_streams_and_a_copy(device, stream, mended):
    other = device.create_stream()
    x, y = device.zeros(N, np.float16), device.zeros(N, np.float16)
    y.copy_from(x, stream)  # first
    if mended:
        other.wait(stream.record())
    y[N // 2 :].fill(0, other)  # then
    device.synchronize()


def never_written(device, stream, mended):
    add = device.load(ADD)["add_custom"]
    x = device.zeros(N, np.float16) if mended else device.empty(N, np.float16)  # first
    add[8, stream](x, x, device.empty_like(x))  # then
    stream.synchronize()


def pinned_memory_changed(device, stream, mended):
    host = device.empty_host(N, np.float32)
    values = host.array
    values[:] = 1
    x = device.empty(N, np.float32)
    x.copy_from(host, stream)  # first
    if mended:
        stream.synchronize()
    values[0] = 2
    stream.synchronize()  # then


PROGRAMS = {
    result_read_without_waiting: "not-waited-for",
    input_filled_too_early: "not-waited-for",
    buffer_closed_in_use: "freed-in-use",
    two_streams: "unordered",
    two_streams_and_a_copy: "unordered",
    never_written: "uninitialized-read",
    pinned_memory_changed: "pinned-changed",
}


def marked(program):
    source, start = inspect.getsourcelines(program)
    return [
        (__file__, start + offset)
        for mark in ("first", "then")
        for offset, text in enumerate(source)
        if text.rstrip().endswith(f"# {mark}")
    ]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
class TestMistakes:
    def test_found_with_both_lines(self, program, device, backend):
        stream = device.create_stream()
        with pytest.raises(sim.HazardError) as caught:
            program(device, stream, False)
        # what the program left half-done is given back in any order by the collector
        backend.hazards = "off"
        hazard = caught.value.hazard
        assert hazard.kind == PROGRAMS[program]
        assert [hazard.first.place, hazard.second.place] == marked(program)
        assert backend.hazards_found[0] == hazard

    def test_silent_once_mended(self, program, device, backend):
        program(device, device.create_stream(), True)
        device.synchronize()
        assert backend.hazards_found == []


def test_a_kernel_beyond_its_buffer(device, backend):
    @sim.kernel(backend=backend)
    def scale_custom(x: sim.In[np.float32], z: sim.Out[np.float32], factor: np.float32):
        z[: N + 1] = factor

    scale = device.load(SCALE)["scale_custom"]
    here = test_a_kernel_beyond_its_buffer.__code__.co_firstlineno
    x, z = device.zeros(N, np.float32), device.empty(N, np.float32)
    with pytest.raises(pyacl.AclAiCoreError) as caught:
        scale[1, device.default_stream](x, z, np.float32(1))
        device.synchronize()
    (hazard,) = backend.hazards_found
    assert hazard.kind == "out-of-bounds"
    assert (hazard.first.place, hazard.second.place) == ((__file__, here + 7), (__file__, here + 9))
    assert f"{__file__}:{here + 7}" in str(caught.value) and f"{__file__}:{here + 9}" in str(caught.value)
    assert hazard.address == hazard_end(hazard)


def hazard_end(hazard):
    """The first byte behind the memory that a hazard names."""
    base, size = hazard.memory.split(", ")[:2]
    return int(base, 16) + int(size.split()[0])


def test_what_the_objects_do_not_allow(device, backend):
    """An event without a record is refused; pinned memory lives until its copy is done; arguments are taken along."""
    first, second = device.create_stream(), device.create_stream()
    with pytest.raises(pyacl.AclEventError):
        second.wait(device.create_event())
    host = device.empty_host(N, np.float32)
    host.array[:] = 3
    x = device.empty(N, np.float32)
    x.copy_from(host, first)
    host.close()
    assert x.to_host(first).tolist() == [3] * N
    scale = device.load(SCALE)["scale_custom"]
    targets = [device.empty(N, np.float32) for _ in range(3)]
    for number, target in enumerate(targets):
        scale[1, first](x, target, np.float32(number))
    first.synchronize()
    assert [target.to_host()[0] for target in targets] == [0, 3, 6]
    assert backend.hazards_found == []


def test_views_of_one_buffer_on_two_streams(device, backend):
    @sim.kernel(backend=backend)
    def scale_custom(x: sim.In[np.float32], z: sim.Out[np.float32], n: np.uint32):
        z[:n] = x[:n] * 2

    scale = device.load(SCALE)["scale_custom"]
    streams = [device.create_stream() for _ in range(4)]
    x = device.to_device(np.arange(N, dtype=np.float32))
    z = device.empty_like(x)
    part = N // len(streams)
    for i, stream in enumerate(streams):
        here = slice(i * part, (i + 1) * part)
        scale[1, stream](x[here], z[here], np.uint32(part))
    for i, stream in enumerate(streams):
        here = slice(i * part, (i + 1) * part)
        assert (z[here].to_host(stream) == 2 * np.arange(N)[here]).all()
    assert backend.hazards_found == []
