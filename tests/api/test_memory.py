"""Memory: dtypes, shapes, views, copies of every kind, fills, pinned memory, what is refused, what is given back."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyacl_api import SOC, forget, use

import pyacl
from pyacl import memory, sim
from pyacl.raw import constants

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES = ["bool", *INTEGERS, "float16", "float32", "float64", "complex64", "complex128", "S5", "M8[s]"]


@pytest.fixture
def device(machine):
    with pyacl.Device(0) as device:
        yield device


@pytest.fixture
def stream(device):
    return device.create_stream()


def sample(dtype: object, count: int = 24) -> np.ndarray:
    raw = np.random.default_rng(7).integers(0, 2, count * np.dtype(dtype).itemsize, np.uint8)
    return raw.view(dtype) if np.dtype(dtype).kind != "S" else np.array([b"ab%d" % n for n in range(count)], dtype)


class TestThereAndBack:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("shape", [(24,), (2, 3, 4), (24, 1)])
    def test_every_dtype(self, device, stream, dtype: str, shape: tuple[int, ...]) -> None:
        array = sample(dtype).reshape(shape)
        for on in (None, stream):
            buffer = device.to_device(array, on)
            assert (buffer.shape, buffer.dtype, buffer.nbytes) == (array.shape, array.dtype, array.nbytes)
            back = buffer.to_host(on)
            assert back.dtype == array.dtype and back.shape == array.shape
            np.testing.assert_array_equal(back, array)

    def test_structured_and_bfloat16(self, device) -> None:
        record = np.zeros(3, np.dtype([("a", "u1"), ("b", "f8")], align=True))
        record["a"], record["b"] = [1, 2, 3], [0.5, 1.5, 2.5]
        np.testing.assert_array_equal(device.to_device(record).to_host(), record)
        ml_dtypes = pytest.importorskip("ml_dtypes")
        half = np.arange(5).astype(ml_dtypes.bfloat16)
        back = device.to_device(half).to_host()
        assert back.dtype == ml_dtypes.bfloat16 and back.tolist() == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("shape", [0, (0,), (3, 0, 2), ()])
    def test_no_elements_and_no_dimensions(self, machine, device, stream, shape: object) -> None:
        """A copy of 0 bytes is an error of the library: it is not asked."""
        array = np.ones(shape, np.float16)
        buffer = device.to_device(array, stream)
        back = buffer.to_host(stream)
        assert back.shape == array.shape and back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
        buffer.copy_from(array, stream).fill(0, stream)
        buffer.copy_to(np.empty_like(array), stream)
        buffer.copy_from(device.empty_like(buffer))
        assert buffer.address and buffer.size == array.size
        if machine.stub and not array.size:
            called = {c.function for c in machine.stub.calls()}
            assert not called & {"aclrtMemcpy", "aclrtMemcpyAsync", "aclrtMemset", "aclrtMemsetAsync"}

    @pytest.mark.parametrize(
        "layout",
        [lambda a: a[::2], lambda a: a.T, lambda a: a[:, 1:3], lambda a: a[::-1], lambda a: np.asfortranarray(a)],
    )
    def test_any_layout(self, device, stream, layout) -> None:
        array = layout(np.arange(48, dtype=np.int32).reshape(6, 8))
        for on in (None, stream):
            buffer = device.to_device(array, on)
            np.testing.assert_array_equal(buffer.to_host(on), array)
            target = layout(np.zeros((6, 8), np.int32))
            assert buffer.copy_to(target, on) is target
            np.testing.assert_array_equal(target, array)

    def test_lists_become_arrays(self, device) -> None:
        assert device.to_device([1.5, 2.5]).to_host().tolist() == [1.5, 2.5]

    def test_factories(self, device) -> None:
        like = np.zeros((2, 3), np.int8)
        assert device.empty((2, 3), np.int8).shape == device.empty_like(like).shape == (2, 3)
        assert device.empty(3).dtype == np.float32
        assert device.zeros((2, 2), "int16").to_host().tolist() == [[0, 0], [0, 0]]
        assert device.full(3, -7, "int64").to_host().tolist() == [-7, -7, -7]
        raw = device.allocate(10)
        assert (raw.shape, raw.dtype, len(raw), raw.ndim) == ((10,), np.uint8, 10, 1)

    @pytest.mark.parametrize(
        ("make", "error", "text"),
        [
            (lambda d: d.empty(-1), ValueError, "shape: .* negative length"),
            (lambda d: d.allocate(-1), ValueError, "nbytes: -1 is negative"),
            (lambda d: d.allocate_host((2, 3)), TypeError, "nbytes: a whole number, not tuple"),
            (lambda d: d.empty(1, "real16"), TypeError, "dtype: .*real16.* not understood; give what numpy knows"),
            (lambda d: d.empty((2, 1.5)), TypeError, "shape: a whole number or a tuple"),
            (lambda d: d.empty("3"), TypeError, "shape: a whole number or a tuple"),
            (lambda d: d.empty(True), TypeError, "shape"),
            (lambda d: d.empty(2**62), ValueError, "shape: .* bytes"),
            (lambda d: d.empty(1, object), TypeError, "dtype: object holds Python objects"),
            (lambda d: d.empty(1, "V0"), TypeError, "dtype: .* no size"),
            (lambda d: d.empty(1, ">f4"), TypeError, "big-endian"),
            (lambda d: d.empty(1, "(2,)f4"), TypeError, "is an array; put its lengths into the shape"),
            (lambda d: d.to_device(np.array([None])), TypeError, "Python objects"),
            (lambda d: d.to_device(np.zeros(2, ">i4")), TypeError, "big-endian"),
            (lambda d: d.to_device(d.empty(3)), TypeError, "is on a device already"),
        ],
    )
    def test_refused(self, machine, device, make, error: type[Exception], text: str) -> None:
        before = list(machine.alive())
        with pytest.raises(error, match=text):
            make(device)
        gc.collect()
        assert list(machine.alive()) == before

    def test_a_failed_copy_leaves_no_memory(self, stub) -> None:
        with pyacl.Device(0) as device:
            before = stub.alive()
            stub.stub.fail("aclrtMemcpy", 507899)
            with pytest.raises(pyacl.AclError) as caught:
                device.to_device(np.zeros(4))
            assert stub.alive() == before and caught.value.code == 507899
            stub.stub.restore("aclrtMemcpy")


class TestOutOfMemory:
    def test_says_how_much_there_is(self) -> None:
        forget()
        pyacl.use_backend(sim.Backend(memory=1 << 20))
        with pyacl.Device(0) as device:
            keep = device.allocate(1 << 19)
            with pytest.raises(MemoryError) as caught:
                device.empty((1 << 20,), np.float32)
            error = caught.value
            assert isinstance(error, pyacl.AclMemoryError) and error.code == 207001
            assert error.requested == 4 << 20 and error.total == 1 << 20 and 0 < error.free <= 1 << 19
            assert f"requested {4 << 20} bytes" in str(error) and "free" in str(error)
            del keep
        forget()

    def test_pinned(self, stub) -> None:
        with pyacl.Device(0) as device:
            stub.stub.fail("aclrtMallocHost", 207001)
            with pytest.raises(pyacl.AclMemoryError) as caught:
                device.allocate_host(77)
            assert caught.value.requested == 77


class TestViews:
    @pytest.mark.parametrize(
        "index",
        [3, -1, slice(1, 3), slice(None), slice(2, None), slice(-2, None), (1, 2), (1, slice(1, 3)), (slice(1, 3), ...),
         ..., (0, 1, 2), (1, slice(None), slice(None)), slice(3, 3), np.int64(2), (slice(0, 1), slice(1, 3))],
    )  # fmt: skip
    def test_as_numpy_does(self, device, index: object) -> None:
        array = np.arange(60, dtype=np.int16).reshape(4, 5, 3)
        view = device.to_device(array)[index]
        expected = array[index]
        assert view.shape == expected.shape
        np.testing.assert_array_equal(view.to_host(), expected)

    def test_writing_through_a_view(self, device, stream) -> None:
        buffer = device.zeros((4, 8), np.int32)
        buffer[1].fill(7)
        buffer[2, 3:5].copy_from(np.array([1, 2], np.int32), stream)
        buffer[3].copy_from(buffer[1])
        expected = np.zeros((4, 8), np.int32)
        expected[1], expected[2, 3:5], expected[3] = 7, [1, 2], 7
        np.testing.assert_array_equal(buffer.to_host(stream), expected)

    @pytest.mark.parametrize(
        "index", [slice(None, None, 2), slice(None, None, -1), (slice(None), 1), (slice(None), slice(0, 2))]
    )
    def test_only_what_is_contiguous(self, device, index: object) -> None:
        with pytest.raises(ValueError, match="is not contiguous.*copy_2d_to"):
            device.empty((4, 5))[index]

    @pytest.mark.parametrize("index", ["a", 1.5, [0, 1], np.array([True, False]), None, (0, None), True])
    def test_only_numbers_and_slices(self, device, index: object) -> None:
        with pytest.raises(TypeError, match="a buffer is indexed by whole numbers and slices"):
            device.empty((4, 5))[index]

    def test_assignment_says_how_to_copy(self, device) -> None:
        with pytest.raises(TypeError, match=r"cannot be assigned to: .*copy_from\(array\).*fill\(number\)"):
            device.empty((4, 5))[0] = 1

    @pytest.mark.parametrize("index", [4, -5, (0, 5), (0, 0, 0)])
    def test_out_of_bounds(self, device, index: object) -> None:
        with pytest.raises(IndexError):
            device.empty((4, 5))[index]

    def test_reshape(self, device) -> None:
        array = np.arange(24, dtype=np.int8)
        buffer = device.to_device(array)
        for shape in ((2, 12), (-1, 6), (2, 3, 4), (24,)):
            np.testing.assert_array_equal(buffer.reshape(shape).to_host(), array.reshape(shape))
            np.testing.assert_array_equal(buffer.reshape(*shape).to_host(), array.reshape(shape))
        assert buffer[5].reshape(1, 1).to_host().tolist() == [[5]]
        with pytest.raises(ValueError, match="reshape"):
            buffer.reshape(5, 5)

    def test_view_as_another_dtype(self, device) -> None:
        array = np.arange(12, dtype=np.float32).reshape(3, 4)
        buffer = device.to_device(array)
        for dtype in (np.uint8, np.int16, np.uint32, np.float64):
            np.testing.assert_array_equal(buffer.view(dtype).to_host(), array.view(dtype))
        assert buffer[0, 0].view(np.int32).shape == ()
        with pytest.raises(ValueError, match="rows of 16 bytes are no whole number of"):
            buffer.view("S5")
        with pytest.raises(ValueError, match="no whole number"):
            buffer[0, 0].view(np.int8)

    def test_a_view_keeps_the_memory(self, machine, device) -> None:
        view = device.to_device(np.arange(10, dtype=np.int32))[2:5][1:]
        gc.collect()
        assert view.to_host().tolist() == [3, 4]
        before = len(machine.alive())
        del view
        gc.collect()
        assert len(machine.alive()) == before - 1

    def test_closing_closes_the_memory_of_all(self, device) -> None:
        buffer = device.empty(10)
        view = buffer[2:4]
        view.close()
        view.close()
        assert buffer.closed and view.closed
        assert repr(view) == "<DeviceBuffer float32[2] of device 0, closed>"
        for use_it in (
            buffer.to_host,
            lambda: view.fill(1),
            lambda: buffer.address,
            lambda: buffer[1],
            lambda: view.reshape(-1),
        ):
            with pytest.raises(pyacl.ClosedError, match="the buffer of 40 bytes of device 0 is closed"):
                use_it()

    @settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(data=st.data())
    def test_any_index_is_numpys_or_refused(self, lazy, data) -> None:
        array = data.draw(hnp.arrays(np.int16, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)))
        index = data.draw(hnp.basic_indices(array.shape, allow_newaxis=False))
        with pyacl.Device(0) as device:
            buffer = device.to_device(array)
            expected = array[index]
            if isinstance(expected, np.ndarray) and not expected.flags.c_contiguous:
                with pytest.raises(ValueError, match="not contiguous"):
                    buffer[index]
                return
            view = buffer[index]
            assert view.shape == np.shape(expected)
            np.testing.assert_array_equal(view.to_host(), expected)


class TestCopies:
    def test_from_and_to(self, device, stream) -> None:
        array = np.arange(100, dtype=np.float32)
        buffer = device.empty_like(array)
        for on in (None, stream):
            assert buffer.copy_from(array, on) is buffer
            target = np.empty_like(array)
            buffer.copy_to(target, on)
            np.testing.assert_array_equal(target, array)
            other = device.empty_like(buffer)
            assert buffer.copy_to(other, on) is other
            np.testing.assert_array_equal(other.to_host(on), array)

    def test_a_kind_for_each_direction(self, stub) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            host, pinned = np.zeros(64, np.uint8), device.empty_host(64, "uint8")
            a, b = device.empty(64, "uint8"), device.empty(64, "uint8")
            a.copy_from(host)
            a.copy_from(host, stream)  # pageable: the stream is waited for, then copied at once
            a.copy_to(host)
            a.copy_from(b)
            assert [c.arguments[4] for c in stub.stub.calls("aclrtMemcpy")] == [1, 1, 2, 3]
            a.copy_from(pinned, stream)
            a.copy_to(pinned, stream)
            a.copy_from(b, stream)
            assert [c.arguments[4] for c in stub.stub.calls("aclrtMemcpyAsync")] == [1, 2, 3]
            # the target's real size goes along, so that the library can refuse what does not fit
            assert {c.arguments[1] for c in stub.stub.calls("aclrtMemcpyAsync")} == {64}

    def test_pageable_memory_waits_for_the_stream(self, lazy) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            buffer = device.zeros(64, "uint8", stream)
            ran: list[int] = []
            stream.launch_host_func(ran.append, 1)
            buffer.copy_from(np.full(64, 9, np.uint8), stream)
            assert ran == [1]
            assert buffer.to_host().tolist() == [9] * 64

    def test_new_memory_need_not_wait(self, lazy) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            ran: list[int] = []
            stream.launch_host_func(ran.append, 1)
            buffer = device.to_device(np.full(64, 9, np.uint8), stream)
            assert ran == [] and buffer.to_host().tolist() == [9] * 64

    def test_pinned_memory_goes_on(self, lazy) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            pinned = device.empty_host(64, "uint8")
            pinned.array[:] = 5
            buffer = device.zeros(64, "uint8")
            buffer.copy_from(pinned, stream)
            assert buffer.to_host().tolist() == [0] * 64, "the copy is late"
            stream.synchronize()
            assert buffer.to_host().tolist() == [5] * 64
            pinned.array[:] = 0
            buffer.copy_to(pinned.array, stream)
            assert pinned.array.tolist() == [0] * 64
            stream.synchronize()
            assert pinned.array.tolist() == [5] * 64
            late = device.to_device(pinned, stream)
            assert late.to_host(stream).tolist() == [5] * 64

    def test_any_array_on_pinned_memory_is_pinned(self, stub) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            pinned = device.empty_host((4, 64), "uint8")
            array = pinned.array
            buffer = device.empty(64, "uint8")
            for view in (array[2], array[1:2], array.reshape(-1)[:64], array[3].view(np.int8).view(np.uint8)):
                buffer.copy_from(view.reshape(-1), stream)
            assert len(stub.stub.calls("aclrtMemcpyAsync")) == 4
            buffer.copy_from(array[:, 3].repeat(16), stream)  # a copy on the ordinary heap
            buffer.copy_from(np.zeros(64, np.uint8), stream)
            assert len(stub.stub.calls("aclrtMemcpyAsync")) == 4

    def test_addresses_that_are_no_multiple_of_64_wait(self, stub) -> None:
        """The documentation asks for 64; the copy is made, but not behind the program's back."""
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            pinned, buffer = device.empty_host(128, "uint8"), device.empty(128, "uint8")
            buffer[8:72].copy_from(pinned.array[:64], stream)
            buffer[:64].copy_from(pinned.array[8:72], stream)
            buffer[1:65].copy_from(device.empty(64, "uint8"), stream)
            assert stub.stub.calls("aclrtMemcpyAsync") == [] and len(stub.stub.calls("aclrtMemcpy")) == 3
            assert len(stub.stub.calls("aclrtSynchronizeStream")) == 3

    def test_both_ends_are_kept(self, lazy) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            pinned, buffer = device.empty_host(64, "uint8"), device.empty(64, "uint8")
            alive = [weakref.ref(pinned), weakref.ref(buffer)]
            buffer.copy_from(pinned, stream)
            del pinned, buffer
            gc.collect()
            assert None not in [ref() for ref in alive]
            stream.synchronize()
            gc.collect()
            assert [ref() for ref in alive] == [None, None]

    @pytest.mark.parametrize(
        ("source", "error", "text"),
        [
            (
                np.zeros(9, np.float32),
                ValueError,
                r"9 elements \[9\] here, 10 elements \[10\] in the buffer: a part of it is buffer\[:9\], or",
            ),
            (np.zeros(11, np.float32), ValueError, "11 elements .*: take a part of the (source|target), or make an"),
            (np.zeros(10, np.float64), TypeError, r"float64 here, float32 in the buffer: convert with array.astype"),
            (np.zeros(20, np.float16), TypeError, "float16 here"),
        ],
    )
    def test_sizes_and_dtypes_that_do_not_fit(self, device, stream, source, error, text: str) -> None:
        buffer = device.empty(10)
        for on in (None, stream):
            with pytest.raises(error, match=f"^source: .*{text}"):
                buffer.copy_from(source, on)
            with pytest.raises(error, match=f"^target: .*{text}"):
                buffer.copy_to(source, on)
            with pytest.raises(error, match=text):
                buffer.copy_from(device.to_device(source), on)

    def test_shapes_of_as_many_elements_fit(self, device) -> None:
        buffer = device.empty((2, 5)).copy_from(np.arange(10, dtype=np.float32))
        assert buffer.to_host().tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]

    @pytest.mark.parametrize("stream", [1, "stream", 0])
    def test_a_stream_that_is_none(self, device, stream: object) -> None:
        buffer = device.empty(4)
        for use_it in (
            lambda: buffer.copy_from(np.zeros(4, np.float32), stream),
            lambda: buffer.copy_to(np.zeros(4, np.float32), stream),
            lambda: buffer.copy_2d_from(np.zeros((2, 2), np.float32), stream),
            lambda: buffer.fill(0, stream),
            lambda: buffer.to_host(stream),
            lambda: device.to_device(np.zeros(4), stream),
        ):
            with pytest.raises(TypeError, match=r"stream: a Stream, not (int|str); Stream\.borrow\(address\)"):
                use_it()

    def test_numpy_is_told_that_it_cannot_read(self, device) -> None:
        buffer = device.zeros(4)
        for use_it in (np.asarray, np.array, np.sum, lambda b: np.add(b, 1), lambda b: np.zeros(4) + b):
            with pytest.raises(TypeError, match=r"is device memory, which numpy cannot read: copy it with to_host\(\)"):
                use_it(buffer)

    @pytest.mark.parametrize("target", [[1, 2], (1, 2), b"ab", None])
    def test_targets_must_be_memory(self, device, target: object) -> None:
        with pytest.raises(TypeError, match="target: a numpy array, a HostBuffer or a DeviceBuffer"):
            device.empty(2).copy_to(target)

    def test_a_read_only_target(self, device) -> None:
        array = np.zeros(2, np.float32)
        array.flags.writeable = False
        with pytest.raises(ValueError, match="target: the array is read-only"):
            device.empty(2).copy_to(array)

    def test_closed_ends(self, device, stream) -> None:
        a, b = device.empty(4), device.empty(4)
        b.close()
        for use_it in (
            lambda: a.copy_from(b),
            lambda: b.copy_from(a),
            lambda: a.copy_to(b),
            lambda: a.copy_from(b, stream),
        ):
            with pytest.raises(pyacl.ClosedError):
                use_it()
        stream.close()
        with pytest.raises(pyacl.ClosedError):
            a.copy_from(device.empty(4), stream)
        with pytest.raises(pyacl.ClosedError):
            device.to_device(np.zeros(4), stream)

    def test_raw_calls_take_a_buffer(self, device) -> None:
        buffer = device.zeros(4, "uint8")
        pyacl.raw.aclrtMemset(buffer, 4, 7, 4)
        assert buffer.to_host().tolist() == [7] * 4


class TestRows:
    def matrix(self) -> np.ndarray:
        return np.arange(48, dtype=np.int16).reshape(6, 8)

    def test_rows_of_a_wider_host_matrix(self, device, stream) -> None:
        matrix = self.matrix()
        for on in (None, stream):
            buffer = device.zeros((6, 3), np.int16)
            buffer.copy_2d_from(matrix[:, 2:5], on)
            np.testing.assert_array_equal(buffer.to_host(on), matrix[:, 2:5])
            target = np.zeros((6, 8), np.int16)
            buffer.copy_2d_to(target[:, 4:7], on)
            stream.synchronize()
            np.testing.assert_array_equal(target[:, 4:7], matrix[:, 2:5])
            assert target[:, :4].sum() == 0

    def test_rows_of_a_wider_buffer(self, device) -> None:
        buffer = device.zeros((4, 10), np.int16)
        buffer.copy_2d_from(self.matrix()[:4, :3])
        expected = np.zeros((4, 10), np.int16)
        expected[:, :3] = self.matrix()[:4, :3]
        np.testing.assert_array_equal(buffer.to_host(), expected)

    def test_a_pitch_in_flat_memory(self, device) -> None:
        buffer = device.zeros(40, np.int16)
        buffer[4:].copy_2d_from(self.matrix()[:3], pitch=24)
        back = np.zeros((3, 8), np.int16)
        buffer[4:].copy_2d_to(back, pitch=24)
        np.testing.assert_array_equal(back, self.matrix()[:3])
        assert buffer[4 + 8 : 4 + 12].to_host().tolist() == [0] * 4

    def test_pinned_rows_go_on(self, stub) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            pinned, buffer = device.empty_host((4, 64), "uint8"), device.empty((4, 32), "uint8")
            buffer.copy_2d_from(pinned.array[:, :32], stream)
            assert len(stub.stub.calls("aclrtMemcpy2dAsync")) == 1
            buffer.copy_2d_to(pinned.array[:, :32])
            assert stub.stub.calls("aclrtMemcpy2d")[0].arguments[6] == constants.ACL_MEMCPY_DEVICE_TO_HOST

    def test_no_rows(self, device) -> None:
        device.empty((4, 8), np.int16).copy_2d_from(np.zeros((0, 8), np.int16))
        device.empty((4, 8), np.int16).copy_2d_from(np.zeros((4, 0), np.int16))

    @pytest.mark.parametrize(
        ("array", "pitch", "error", "text"),
        [
            (np.zeros(8, np.int16), None, ValueError, "of two dimensions"),
            (np.zeros((2, 8), np.int16)[:, ::2], None, ValueError, "next to each other"),
            (np.zeros((2, 8), np.int16)[::-1], None, ValueError, "backwards"),
            (np.zeros((2, 8), np.int32), None, TypeError, "int32 here"),
            (np.zeros((2, 9), np.int16), None, ValueError, "pitch: 16 bytes is less than a row of 18"),
            (np.zeros((5, 8), np.int16), None, ValueError, "5 rows of 16 bytes, 16 apart, need 80 bytes, not 64"),
            (np.zeros((4, 4), np.int16), 20, ValueError, "need 68 bytes, not 64"),
            (np.zeros((4, 4), np.int16), 1.5, TypeError, "pitch: a whole number"),
        ],
    )
    def test_refused(self, device, array, pitch, error, text: str) -> None:
        with pytest.raises(error, match=text):
            device.empty((4, 8), np.int16).copy_2d_from(array, pitch=pitch)


class TestFill:
    @pytest.mark.parametrize(
        "dtype", ["uint8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64"]
    )
    @pytest.mark.parametrize("value", [0, 1, 7])
    def test_numbers(self, device, stream, dtype: str, value: int) -> None:
        for count in (1, 3, 64, 1000):
            for on in (None, stream):
                buffer = device.empty(count, dtype).fill(value, on)
                np.testing.assert_array_equal(buffer.to_host(on), np.full(count, value, dtype))

    def test_large_patterns(self, device) -> None:
        for count in (1 << 18, (1 << 18) + 5, 3_000_001):
            host = device.full(count, 1.25, np.float32).to_host()
            assert (host == 1.25).all()

    def test_a_pattern_of_an_odd_size(self, device) -> None:
        record = np.zeros((), np.dtype([("a", "u1", (3,)), ("b", "u2")]))[()]
        record["a"], record["b"] = [1, 2, 3], 500
        buffer = device.empty(1001, record.dtype).fill(record)
        assert (buffer.to_host() == record).all()
        back = buffer.fill(([4, 5, 6], 7)).to_host()
        assert (back["a"] == [4, 5, 6]).all() and (back["b"] == 7).all()

    def test_the_bytes_around_stay(self, device) -> None:
        buffer = device.zeros(100, np.uint16)
        buffer[33:66].fill(0xABCD)
        expected = np.zeros(100, np.uint16)
        expected[33:66] = 0xABCD
        np.testing.assert_array_equal(buffer.to_host(), expected)

    def test_one_call_where_the_bytes_are_the_same(self, stub) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            buffer = device.empty(100, np.int32)
            buffer.fill(-1)
            buffer.fill(0x05050505, stream)
            assert stub.stub.calls("aclrtMemset")[0].arguments[1:] == (400, 255, 400)
            assert stub.stub.calls("aclrtMemsetAsync")[0].arguments[1:4] == (400, 5, 400)
            assert stub.stub.calls("aclrtMemcpy") == []

    def test_negative_zero_is_not_zero(self, device) -> None:
        assert np.signbit(device.full(4, -0.0, np.float32).to_host()).all()

    @pytest.mark.parametrize(
        ("dtype", "value", "error"),
        [
            ("uint8", 256, ValueError),
            ("uint8", -1, ValueError),
            ("int8", 1.5, ValueError),
            ("int32", float("nan"), ValueError),
            ("int32", float("inf"), ValueError),
            ("float16", 1e6, ValueError),
            ("float16", 70000, ValueError),
            ("float32", -1e300, ValueError),
            ("float32", "x", TypeError),
            ("float32", 1 + 2j, TypeError),
            ("int32", [1, 2], TypeError),
            ("u1,u1", (1, 2, 3), TypeError),
        ],
    )
    def test_what_does_not_fit(self, device, dtype: str, value: object, error: type[Exception]) -> None:
        with pytest.raises(error, match="value: "):
            device.empty(4, dtype).fill(value)


class TestPinned:
    def test_array(self, device) -> None:
        buffer = device.empty_host((3, 4), np.int32)
        buffer.array[:] = 7
        assert buffer.array.sum() == 84
        assert np.asarray(buffer).ctypes.data == buffer.address == buffer.array.ctypes.data
        assert np.array(buffer, dtype=np.float64).dtype == np.float64
        assert np.array(buffer).ctypes.data != buffer.address
        assert (buffer.shape, buffer.nbytes, len(buffer)) == ((3, 4), 48, 3)

    def test_an_array_outlives_close(self, machine, device) -> None:
        """Closing while an array looks into the memory must not pull it away."""
        buffer = device.empty_host(1000, np.int32)
        array = buffer.array[10:20]
        array[:] = 5
        before = len(machine.alive())
        buffer.close()
        assert buffer.closed and len(machine.alive()) == before
        array[:] += 1
        assert array.tolist() == [6] * 10
        with pytest.raises(pyacl.ClosedError, match="pinned buffer of 4000 bytes"):
            buffer.array  # noqa: B018
        del array
        gc.collect()
        assert len(machine.alive()) == before - 1

    def test_an_array_outlives_the_device(self, machine) -> None:
        with pyacl.Device(0) as device:
            array = device.empty_host(1000, np.int32).array
            array[:] = 3
        assert device.closed and len(machine.alive()) == 1
        assert array.sum() == 3000
        del array
        gc.collect()
        assert list(machine.alive()) == []

    def test_dropped(self, machine, device) -> None:
        before = len(machine.alive())
        buffer = device.empty_host(10)
        assert len(machine.alive()) == before + 1
        del buffer
        gc.collect()
        assert len(machine.alive()) == before

    def test_no_elements(self, device) -> None:
        assert device.empty_host(0).array.shape == (0,)
        assert device.empty_host((2, 0), "int8").array.shape == (2, 0)

    def test_pieces_freed_in_the_middle_of_a_look_up(self, device) -> None:
        """The collector may free a buffer at any time, so in the middle of asking for another one."""
        first, second = device.empty_host(64, "uint8"), device.empty_host(64, "uint8")

        class Address(int):
            def __radd__(self, other: int) -> int:
                first.close()
                second.close()
                return int(self) + other

        ranges = memory._pinned
        assert ranges.has(second.address, 64)
        where = max(first.address, second.address)
        assert not ranges.has(where, Address(64))
        assert not ranges.has(where, 1)

    def test_what_is_freed_is_no_longer_pinned(self, device) -> None:
        buffer = device.empty_host(64, "uint8")
        address = buffer.address
        assert memory._pinned.has(address, 64) and memory._pinned.has(address + 8, 8)
        assert not memory._pinned.has(address, 65) and not memory._pinned.has(address - 1, 2)
        buffer.close()
        assert not memory._pinned.has(address, 1)


class TestBorrowed:
    def test_is_used_and_not_freed(self, machine, device) -> None:
        owner = device.to_device(np.arange(16, dtype=np.int32))
        before = len(machine.alive())
        buffer = pyacl.DeviceBuffer.borrow(owner.address, owner.nbytes, owner=owner, device=device, dtype=np.int32)
        assert buffer.to_host().tolist() == list(range(16))
        assert buffer.shape == (16,)
        part = pyacl.DeviceBuffer.borrow(owner.address, 64, shape=(2, 4), dtype="int32", device=device)
        assert part.to_host().tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
        del owner
        gc.collect()
        assert buffer.to_host()[3] == 3, "the owner is kept"
        buffer.close()
        assert len(machine.alive()) == before
        with pytest.raises(pyacl.ClosedError, match="the borrowed buffer of 64 bytes"):
            buffer.to_host()
        del buffer
        gc.collect()
        assert len(machine.alive()) == before - 1

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ({"address": 0}, ValueError, "address: 0x0 is no device address"),
            ({"address": 1.5}, TypeError, "address: a whole number"),
            ({"address": -8}, ValueError, "address: -0x8 is no device address"),
            ({"nbytes": -8}, ValueError, "nbytes: -8 is negative"),
            ({"nbytes": 10, "dtype": "int32"}, ValueError, "nbytes: 10 is no multiple of the 4 bytes"),
            ({"shape": 3, "dtype": "int32"}, ValueError, r"shape: \[3\] of int32 needs 12 bytes, not 8"),
        ],
    )
    def test_refused(self, device, arguments, error, text: str) -> None:
        with pytest.raises(error, match=text):
            pyacl.DeviceBuffer.borrow(**{"address": 0x1000, "nbytes": 8, "device": device, **arguments})


def test_any_object_with_an_address_is_a_pointer() -> None:
    """The protocol of arguments: other packages' arrays can be passed as they are."""
    from pyacl.arguments import Packer

    forget()
    use("lazy")
    with pyacl.Device(0) as device:
        buffer = device.empty(10)
        assert Packer("k").pack((buffer[2:],)).block == bytes(ctypes.c_uint64(buffer.address + 8))
        assert device.name == SOC
    forget()
