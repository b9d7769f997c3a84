"""Kernels: loading, finding, launching on every route, launch attributes, and everything that is refused before it."""

from __future__ import annotations

import ctypes
import gc
import io
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from pyacl_api import ADD, SCALE, SOC, forget, use

import pyacl
from pyacl import kernel as kernel_module
from pyacl import sim
from pyacl.testing import KernelSpec, make_archive, make_host_object, make_kernel_object, make_sidecar

ROUTES = ["user", "thread", "host"]


@pytest.fixture
def device(machine):
    with pyacl.Device(0) as device:
        yield device


@pytest.fixture
def sim_device(simulator):
    with pyacl.Device(0) as device:
        yield device


@sim.kernel
def packed_custom(
    a: sim.Scalar[np.int8], b: sim.Scalar[np.int32], x: sim.In[np.float32], z: sim.Out[np.float32],
    c: sim.Scalar[np.float16], d: sim.Scalar[np.uint16], e: sim.Scalar[np.int64],
) -> None:  # fmt: skip
    z[:] = x + a + b + c + d + e


PACKED = make_kernel_object("packed_custom", args=[1, 4, 8, 8, 2, 2, 8])


@sim.kernel
def tiled_custom(
    x: sim.In[np.float16], z: sim.Out[np.float16], length: sim.In[np.int32], tiles: sim.In[np.int32]
) -> None:
    z[:] = x * np.float16(tiles[0])
    assert length[0] == len(x)


TILED = make_kernel_object("tiled_custom", args=4)


class Tiling(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_uint16), ("scale", ctypes.c_double), ("bias", ctypes.c_int8)]


TILING = np.dtype([("rows", np.uint16), ("scale", np.float64), ("bias", np.int8)], align=True)


@sim.kernel
def struct_custom(z: sim.Out[np.float64], tiling: sim.Struct[TILING]) -> None:
    z[:] = [tiling["rows"], tiling["scale"], tiling["bias"]]


STRUCT = make_kernel_object("struct_custom", args=[8, 24])


class TestTheProgramOfTheDesign:
    def test_verbatim(self, simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("add_custom.o").write_bytes(ADD)
        program = """
import numpy as np, pyacl

with pyacl.Device(0) as device, device.create_stream() as stream:
    add = device.load("add_custom.o")["add_custom"]
    x = device.to_device(np.arange(16384, dtype=np.float16), stream)
    y = device.to_device(np.ones(16384, dtype=np.float16), stream)
    z = device.empty_like(x)
    add[8, stream](x, y, z)              # add_custom<<<8, nullptr, stream>>>(x, y, z)
    result = z.to_host(stream)           # waits for the stream, returns an ndarray
"""
        scope: dict[str, object] = {}
        exec(program, scope)
        expected = np.arange(16384, dtype=np.float16) + np.float16(1)
        np.testing.assert_array_equal(scope["result"], expected)
        assert list(simulator.alive()) == []


class TestLaunch:
    @pytest.mark.parametrize("route", ["auto", *ROUTES])
    def test_every_route(self, sim_device, route: str) -> None:
        add = sim_device.load(ADD).kernel("add_custom", route=route)
        stream = sim_device.create_stream()
        x, y = sim_device.full(100, 2, np.float16), sim_device.full(100, 3, np.float16)
        for _ in range(3):
            z = sim_device.zeros(100, np.float16)
            add[8, stream](x, y, z)
            assert z.to_host(stream).tolist() == [5.0] * 100

    @pytest.mark.parametrize("route", ROUTES)
    def test_widths_in_any_order(self, sim_device, route: str) -> None:
        x, z = sim_device.full(10, 1, np.float32), sim_device.zeros(10, np.float32)
        typed = (np.int8(-1), np.int32(100), x, z, np.float16(0.5), np.uint16(7), np.int64(-50))
        sim_device.load(PACKED).kernel("packed_custom", route=route)[1](*typed)
        assert z.to_host(sim_device.default_stream).tolist() == [57.5] * 10
        declared = sim_device.load(PACKED).kernel("packed_custom", "i8 i32 ptr ptr f16 u16 i64", route=route)
        declared[1](-1, 100, x, z, 0.25, 7, -50)
        assert z.to_host(sim_device.default_stream).tolist() == [57.25] * 10

    @pytest.mark.parametrize("route", ROUTES)
    def test_placeholders(self, sim_device, route: str) -> None:
        tiled = sim_device.load(TILED).kernel("tiled_custom", route=route)
        x = sim_device.full(64, 2, np.float16)
        for tiles in (3, 4, 5):  # the same argument memory each time
            z = sim_device.zeros(64, np.float16)
            tiled[1](x, z, pyacl.Placeholder(np.int32(64)), pyacl.Placeholder(np.array([tiles, 0, 0], np.int32)))
            assert z.to_host(sim_device.default_stream).tolist() == [2.0 * tiles] * 64
        length = sim_device.to_device(np.array([64], np.int32))
        z = sim_device.zeros(64, np.float16)
        tiled[1](x, z, length, pyacl.Placeholder(np.int32(7)))
        assert z.to_host(sim_device.default_stream).tolist() == [14.0] * 64

    @pytest.mark.parametrize("route", ROUTES)
    @pytest.mark.parametrize(
        "tiling",
        [Tiling(7, 0.5, -3), np.array((7, 0.5, -3), TILING)[()], struct.pack("<H6xdb7x", 7, 0.5, -3)],
        ids=["ctypes", "numpy", "bytes"],
    )
    def test_structures_by_value(self, sim_device, route: str, tiling: object) -> None:
        z = sim_device.zeros(3, np.float64)
        sim_device.load(STRUCT).kernel("struct_custom", route=route)[1](z, tiling)
        assert z.to_host(sim_device.default_stream).tolist() == [7, 0.5, -3]

    def test_host_arrays(self, sim_device) -> None:
        add = sim_device.load(ADD)["add_custom"]
        x, y = np.arange(32, dtype=np.float16), np.ones(32, np.float16)
        z = np.zeros((32, 2), np.float16)[:, 0]
        add[2, sim_device.create_stream()](pyacl.In(x), pyacl.In(y), pyacl.Out(z))
        np.testing.assert_array_equal(z, x + y)
        add[2](pyacl.In(x), pyacl.InOut(z), pyacl.Out(z))
        np.testing.assert_array_equal(z, x + x + y)
        on_device = sim_device.to_device(x)
        add[2](on_device, on_device, pyacl.Out(z))
        np.testing.assert_array_equal(z, x + x)

    def test_workspace(self, machine, device) -> None:
        """The launch allocates it; it is freed when the stream has passed, without waiting for the stream."""
        work = make_kernel_object("worked", args=3)
        stream = device.create_stream()
        kernel = device.load(work)["worked"]

        def worked(x: sim.In[np.float16], space: sim.InOut[np.uint8], z: sim.Out[np.float16]) -> None:
            space[:64] = 1
            z[:] = x + space[:8]

        if machine.simulated:
            sim.kernel("worked", backend=machine.backend)(worked)
        x, z = device.full(8, 1, np.float16), device.zeros(8, np.float16)
        stream.synchronize()
        before = len(list(machine.alive()))
        kernel[1, stream](x, pyacl.Workspace(64), z)
        assert len(list(machine.alive())) == before + 1
        if machine.simulated:
            assert z.to_host(stream).tolist() == [2] * 8
        stream.synchronize()
        gc.collect()
        assert len(list(machine.alive())) == before
        with pytest.raises(TypeError, match="nbytes: a whole number of bytes, not float"):
            pyacl.Workspace(1.5)
        with pytest.raises(ValueError, match="nbytes: 0 is no size; pass None where the kernel takes no workspace"):
            pyacl.Workspace(0)
        assert repr(pyacl.Workspace(np.int64(64))) == "Workspace(64 bytes)"

    def test_nothing_is_copied_when_an_argument_is_wrong(self, machine, device) -> None:
        add = device.load(ADD)["add_custom"]
        x = pyacl.In(np.zeros(4, np.float16))
        before = list(machine.alive())
        with pytest.raises(TypeError, match="argument 3 of 3"):
            add[1](x, x, 5)
        gc.collect()
        assert list(machine.alive()) == before
        if machine.stub:
            assert machine.stub.calls("aclrtMemcpy") == [] and machine.stub.calls("aclrtLaunchKernelWithConfig") == []

    def test_the_forms_of_a_launch(self, sim_device) -> None:
        add = sim_device.load(ADD)["add_custom"]
        stream = sim_device.create_stream()
        x = sim_device.full(8, 1, np.float16)
        for launch, on in (
            (add[1], sim_device.default_stream),
            (add[1, stream], stream),
            (add[1, stream, None], stream),
            (add[1, stream, pyacl.LaunchConfig(schem_mode="normal")], stream),
            (add[1, stream, {"timeout": 3}], stream),
            (add.bind(1, stream), stream),
            (lambda *a: add.launch(*a, blocks=1, stream=stream), stream),
            (lambda *a: add.launch(*a, blocks=1), sim_device.default_stream),
        ):
            z = sim_device.zeros(8, np.float16)
            launch(x, x, z)
            assert z.to_host(on).tolist() == [2.0] * 8

    def test_a_bound_kernel_says_what_it_is(self, device) -> None:
        stream = device.create_stream()
        config = pyacl.LaunchConfig(timeout=1)
        bound = device.load(ADD)["add_custom"].bind(5, stream, config)
        assert (bound.blocks, bound.stream, bound.config, bound.kernel.name) == (5, stream, config, "add_custom")
        assert repr(bound).startswith("<add_custom[5, <Stream ")

    def test_without_parameters(self, sim_device) -> None:
        ran: list[int] = []

        @sim.kernel
        def nothing_custom() -> None:
            ran.append(1)

        binary = sim_device.load(make_kernel_object("nothing_custom", args=0))
        for route in ROUTES:
            binary.kernel("nothing_custom", route=route)[1]()
        sim_device.synchronize()
        assert ran == [1, 1, 1]

    def test_without_a_size_in_the_object(self) -> None:
        """310P objects do not record the size of the arguments: nothing is compared."""
        forget()
        use("eager", soc="Ascend310P3")
        with pyacl.Device(0) as device:
            add = device.load(make_kernel_object("add_custom", arch="dav-2002"))["add_custom"]
            x, z = device.full(8, 1, np.float16), device.zeros(8, np.float16)
            add[1](x, x, z)
            assert z.to_host(device.default_stream).tolist() == [2.0] * 8
        forget()


class TestClosingWithWorkQueued:
    """Whatever stream it is queued on, work is done before what it needs is freed."""

    @pytest.mark.parametrize("which", ["own", "default", "borrowed"])
    def test_the_work_is_done_first(self, lazy, which: str) -> None:
        ran: list[list[float]] = []

        @sim.kernel("late_custom", backend=lazy.backend)
        def late(x: sim.In[np.float32], z: sim.Out[np.float32]) -> None:
            z[:] = x + 1
            ran.append(z.tolist())

        with pyacl.Device(0) as owner_device, owner_device.create_stream() as owner:
            with pyacl.Device(0) as device:
                stream = {
                    "own": device.create_stream,
                    "default": lambda: device.default_stream,
                    "borrowed": lambda: pyacl.Stream.borrow(owner.address, device=device, owner=owner),
                }[which]()
                x, z = device.full(4, 1, np.float32), device.zeros(4, np.float32)
                device.load(make_kernel_object("late_custom", args=2))["late_custom"][1, stream](x, z)
                assert ran == []
            assert ran == [[2.0] * 4]


class TestArgumentMemory:
    def test_one_c_call_a_launch(self, stub) -> None:
        with pyacl.Device(0) as device:
            stream = device.create_stream()
            add = device.load(ADD)["add_custom"].bind(8, stream)
            x = device.empty(8, np.float16)
            add(x, x, x)
            before = stub.stub.count()
            for _ in range(10):
                add(x, x, x)
            assert stub.stub.count() - before == 10
            assert len(stub.stub.calls("aclrtKernelArgsInitByUserMem")) == 1
            assert len(stub.stub.calls("aclrtLaunchKernelWithConfig")) == 11

    def test_a_launch_that_fails_gives_it_back(self, stub) -> None:
        with pyacl.Device(0) as device:
            x = device.empty(8, np.float16)
            add = device.load(ADD)["add_custom"][1]
            stub.stub.fail("aclrtLaunchKernelWithConfig", 507899)
            for _ in range(3):
                with pytest.raises(pyacl.AclError):
                    add(x, x, x)
            assert len(stub.stub.calls("aclrtKernelArgsInitByUserMem")) == 1

    def test_kernel_objects_of_one_name_share_it(self, stub) -> None:
        with pyacl.Device(0) as device:
            binary = device.load(ADD)
            x = device.empty(8, np.float16)
            for _ in range(5):
                binary["add_custom"][1](x, x, x)
            assert len(stub.stub.calls("aclrtKernelArgsInitByUserMem")) == 1
            assert len(stub.stub.calls("aclrtBinaryGetFunction")) == 1

    def test_one_append_carries_the_block(self, stub) -> None:
        """One append for each argument would put the second of two 32-bit numbers at the wrong place."""
        with pyacl.Device(0) as device:
            x = device.empty(8, np.float32)
            kernel = device.load(PACKED)["packed_custom"]
            kernel[1](np.int8(1), np.int32(2), x, x, np.float16(3), np.uint16(4), np.int64(5))
            assert [c.arguments[2] for c in stub.stub.calls("aclrtKernelArgsAppend")] == [40]

    def test_the_library_reads_the_values_of_each_launch(self, stub) -> None:
        """The memory behind the handle holds the values at the moment of the call."""
        with pyacl.Device(0) as device:
            scale = device.load(SCALE).kernel("scale_custom", "ptr ptr f32")
            x = device.empty(8, np.float32)
            scale[1](x, x, 1.5)
            route = scale._function._routes["user"]
            ((_, slots),) = route._free.items()
            for factor in (2.5, -3.0):
                scale[1](x, x, factor)
                (slot,) = slots
                at = slot.offsets[0]
                assert slot.memory[at : at + 24] == struct.pack("<QQf4x", x.address, x.address, factor)

    @pytest.mark.parametrize("route", ["auto", *ROUTES])
    def test_threads_do_not_share_it(self, sim_device, route: str) -> None:
        scale = sim_device.load(SCALE).kernel("scale_custom", "ptr ptr f32", route=route)
        x = sim_device.full(16, 1, np.float32)
        failures: list[object] = []
        start = threading.Barrier(8)

        def work(number: int) -> None:
            try:
                stream = sim_device.create_stream()
                start.wait()
                for turn in range(30):
                    z = sim_device.empty(16, np.float32)
                    factor = number * 1000 + turn
                    scale[1, stream](x, z, factor)
                    got = set(z.to_host(stream).tolist())
                    if got != {factor}:
                        failures.append((factor, got))
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []

    def test_where_user_memory_is_refused(self) -> None:
        """Metadata without an argument list: the library believes in 0 parameters and refuses every append."""
        data = make_kernel_object("add_custom", arch="dav-3510", roles=[])
        forget()
        machine = use("eager", soc="Ascend950PR_9589")
        with pyacl.Device(0) as device:
            binary = device.load(data)
            x, z = device.full(8, 1, np.float16), device.zeros(8, np.float16)
            binary["add_custom"][1](x, x, z)
            assert z.to_host(device.default_stream).tolist() == [2.0] * 8
            assert binary._functions["add_custom"]._auto == "thread"
            binary["add_custom"][1](x, z, z)
            assert z.to_host(device.default_stream).tolist() == [3.0] * 8
            with pytest.raises(pyacl.AclInvalidArgumentError):
                binary.kernel("add_custom", route="user")[1](x, x, z)
        assert list(machine.alive()) == []
        forget()

    def test_a_library_that_keeps_arguments_elsewhere(self, sim_device, monkeypatch: pytest.MonkeyPatch) -> None:
        append = kernel_module._UserMemory._append

        def others(self, args, packed, pieces):
            return append(self, args, packed, [bytes(len(p)) for p in pieces])

        monkeypatch.setattr(kernel_module._UserMemory, "_append", others)
        binary = sim_device.load(SCALE)
        x, z = sim_device.to_device(np.ones(4, np.float32)), sim_device.zeros(4, np.float32)
        with pytest.raises(RuntimeError, match="does not keep the arguments in the memory it was given"):
            binary.kernel("scale_custom", route="user")[1](x, z, np.float32(2))
        binary["scale_custom"][1](x, z, np.float32(3))  # the thread's buffer does
        sim_device.synchronize()
        assert z.to_host().tolist() == [3] * 4

    @pytest.mark.parametrize("route", ROUTES)
    def test_hidden_slots_of_mixed_kernels(self, sim_device, route: str) -> None:
        """The address for synchronization goes in front of the arguments, and nobody has to know."""
        seen: list[tuple[float, ...]] = []

        @sim.kernel("mixed_custom")
        def mixed(x: sim.In[np.float16], z: sim.Out[np.float16], n: sim.Scalar[np.uint32]) -> None:
            seen.append((len(x), int(n)))
            z[:] = x * 2

        binary = sim_device.load(make_kernel_object("mixed_custom", core="mix", args=[8, 8, 4]))
        x, z = sim_device.full(8, 3, np.float16), sim_device.zeros(8, np.float16)
        kernel = binary.kernel("mixed_custom", "ptr ptr u32", route=route)
        assert kernel.info.ffts
        for n in (5, 6):
            kernel[1](x, z, n)
            assert z.to_host(sim_device.default_stream).tolist() == [6.0] * 8
        assert [entry[1] for entry in seen] == sorted(entry[1] for entry in seen)
        assert {entry[1] for entry in seen} == {5, 6}

    def test_the_host_route_fills_hidden_slots_itself(self, stub) -> None:
        with pyacl.Device(0) as device:
            stub.stub.set_output("aclrtGetHardwareSyncAddr", "addr", np.uint64(0xFF75).tobytes())
            data = make_kernel_object("mixed_custom", core="mix", args=2)
            kernel = device.load(data).kernel("mixed_custom", route="host")
            x = device.empty(4)
            for _ in range(2):
                kernel[3](x, x)
            calls = stub.stub.calls("aclrtLaunchKernelWithHostArgs")
            assert [(c.arguments[1], c.arguments[5], c.arguments[7]) for c in calls] == [(3, 24, 0)] * 2
            assert len(stub.stub.calls("aclrtGetHardwareSyncAddr")) == 1


class TestRefused:
    """Each before anything is launched."""

    @pytest.fixture
    def add(self, device):
        return device.load(ADD)["add_custom"]

    @pytest.fixture(autouse=True)
    def nothing_was_launched(self, machine):
        yield
        if machine.stub:
            assert machine.stub.calls("aclrtLaunchKernelWithConfig") == []

    @pytest.mark.parametrize("blocks", [0, 65536, -1, 1 << 32])
    def test_numbers_of_blocks(self, device, add, blocks: int) -> None:
        for make in (lambda: add[blocks], lambda: add.bind(blocks), lambda: add.launch(blocks=blocks)):
            with pytest.raises(ValueError, match=f"blocks: {blocks} is not in 1 to 65535") as caught:
                make()
            assert ("cut it to 16 bits" in str(caught.value)) == (blocks > 65535)

    @pytest.mark.parametrize("blocks", ["8", 8.0, None, True])
    def test_blocks_that_are_no_number(self, device, add, blocks: object) -> None:
        with pytest.raises(TypeError, match="blocks: a whole number"):
            add[blocks, None]

    def test_the_largest_number_of_blocks(self, add) -> None:
        assert add[65535].blocks == 65535 and add[np.uint16(65535)].blocks == 65535

    def test_no_blocks(self, device, add) -> None:
        x = device.empty(4, np.float16)
        with pytest.raises(TypeError, match=r"add_custom: on how many blocks\? add_custom\[blocks, stream\]"):
            add(x, x, x)
        with pytest.raises(TypeError, match="takes up to three, not 4"):
            add[1, None, None, None]

    def test_streams(self, device, add) -> None:
        with pytest.raises(TypeError, match=r"stream: a Stream, not int; Stream.borrow\(address\)"):
            add[1, 0x1000]
        stream = device.create_stream()
        with pytest.raises(TypeError, match=r"config: .* not Stream; .* add_custom\[blocks, stream, config\]"):
            add[1, None, stream]  # as in <<<1, nullptr, stream>>>
        bound = add[1, stream]
        stream.close()
        x = device.empty(4, np.float16)
        with pytest.raises(pyacl.ClosedError, match="the stream of device 0 is closed"):
            bound(x, x, x)

    @pytest.mark.parametrize("count", [0, 1, 2, 4, 9])
    def test_counts(self, device, add, count: int) -> None:
        x = device.empty(4, np.float16)
        with pytest.raises(TypeError, match=f"add_custom takes 3 arguments, not {count}"):
            add[1](*[x] * count)

    def test_widths(self, device, add) -> None:
        x = device.empty(4, np.float16)
        with pytest.raises(TypeError, match="add_custom takes 3 arguments, not 4"):
            add[1](x, x, np.int32(1), np.int32(2))  # as many bytes, but not as many arguments
        packed = device.load(PACKED)["packed_custom"]
        with pytest.raises(TypeError, match="packed_custom takes 40 bytes of arguments; these 7 make 32"):
            packed[1](np.int8(1), np.int8(1), np.int8(1), np.int8(1), np.int8(1), np.int8(1), x)
        with pytest.raises(
            TypeError, match=r"argument 6 of 7: ptr would lie at byte 40, but packed_custom takes 40 bytes"
        ):
            packed[1](x, x, x, x, x, x, x)

    def test_narrow_arguments_where_pointers_are_due(self, device, add) -> None:
        x = device.empty(4, np.float16)
        data = make_kernel_object("copy_custom", args=3)
        with pytest.raises(
            TypeError, match=r"argument 2 of 3: (int32|float16) has . bytes; copy_custom takes 3 arguments"
        ):
            device.load(data)["copy_custom"][1](x, np.int32(3), np.float16(1))

    def test_a_declaration_that_does_not_fit_shows_at_once(self, device) -> None:
        binary = device.load(SCALE)
        binary.kernel("scale_custom", "ptr ptr f32")
        with pytest.raises(TypeError, match="scale_custom takes 3 arguments, not 2"):
            binary.kernel("scale_custom", "ptr ptr")
        with pytest.raises(
            TypeError, match=r"argument 1 \(f32\): f32 has 4 bytes; scale_custom takes 3 arguments of 8"
        ):
            binary.kernel("scale_custom", "f32 f32 ptr")

    @pytest.mark.parametrize("value", [3, 3.0, True, None, "x", np.zeros(3), [1]])
    def test_arguments_without_a_width(self, device, add, value: object) -> None:
        x = device.empty(4, np.float16)
        with pytest.raises(TypeError, match="add_custom: argument 2 of 3: "):
            add[1](x, value, x)

    def test_closed_buffers(self, device, add) -> None:
        x, y = device.empty(4, np.float16), device.empty(4, np.float16)
        view = y[1:2]
        y.close()
        for closed in (y, view):
            said = "^add_custom: argument 2 of 3: the buffer of 8 bytes of device 0 is closed. Next step: "
            with pytest.raises(pyacl.ClosedError, match=said):
                add[1](x, closed, x)

    def test_an_unloaded_binary(self, machine, device) -> None:
        """The library would take the launch, and run whatever is there by then."""
        x = device.empty(4, np.float16)
        binary = device.load(ADD)
        kernel = binary["add_custom"]
        bound = kernel[1]
        if machine.simulated:
            bound(x, x, x)
            device.synchronize()
        binary.close()
        binary.close()
        for use_it in (lambda: bound(x, x, x), lambda: kernel[1](x, x, x), lambda: binary["add_custom"]):
            with pytest.raises(pyacl.ClosedError, match="(kernel add_custom|binary) .*of device 0 is closed"):
                use_it()


class TestNames:
    def test_which_there_are(self, device) -> None:
        data = make_kernel_object([KernelSpec("first"), KernelSpec("second", tiling_key=7), "third"])
        binary = device.load(data)
        assert binary.names == tuple(binary) == ("first", "second_7", "third") and len(binary) == 3
        assert "first" in binary and "fourth" not in binary
        assert binary["second_7"].name == "second_7"

    def test_one_that_is_not_there(self, device) -> None:
        binary = device.load(make_kernel_object(["add_custom", "mul_custom", "softmax"]))
        with pytest.raises(KeyError) as caught:
            binary["add_custon"]
        assert isinstance(caught.value, pyacl.KernelNotFoundError)
        text = str(caught.value)
        assert "no kernel 'add_custon' in the kernel object. Did you mean add_custom" in text
        assert "It has add_custom, mul_custom, softmax." in text
        with pytest.raises(KeyError, match="It has add_custom, mul_custom, softmax"):
            binary.kernel("xyz")

    def test_of_many_only_the_first_are_listed(self, device) -> None:
        binary = device.load(make_kernel_object([f"kernel_{n:03}" for n in range(50)]))
        with pytest.raises(KeyError, match="kernel_019 and 30 more"):
            binary["x"]

    def test_what_is_no_name(self, device) -> None:
        with pytest.raises(TypeError, match="name: the name of a kernel, not int"):
            device.load(ADD)[3]
        with pytest.raises(ValueError, match="route: 'fast' is none of auto, user, thread, host"):
            device.load(ADD).kernel("add_custom", route="fast")

    def test_reprs(self, device, tmp_path: Path) -> None:
        path = tmp_path / "add_custom.o"
        path.write_bytes(ADD)
        binary = device.load(path)
        assert repr(binary) == f"<KernelBinary {path} of device 0>"
        assert repr(binary["add_custom"]) == "<Kernel add_custom of device 0>"
        assert repr(binary.kernel("add_custom", "ptr ptr ptr")) == "<Kernel add_custom(ptr ptr ptr) of device 0>"
        binary.close()
        assert repr(binary) == f"<KernelBinary {path} of device 0, closed>"


class TestLoad:
    def file(self, folder: Path, data: bytes, sidecar: bytes | None = None) -> Path:
        path = folder / "kernel.o"
        path.write_bytes(data)
        if sidecar is not None:
            path.with_suffix(".json").write_bytes(sidecar)
        return path

    def launched(self, device: pyacl.Device, source: object) -> None:
        x, z = device.full(8, 1, np.float16), device.zeros(8, np.float16)
        device.load(source)["add_custom"][1](x, x, z)
        z.to_host(device.default_stream)

    def test_paths_bytes_and_files(self, device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = self.file(tmp_path, ADD)
        monkeypatch.chdir(tmp_path)
        for source in (path, str(path), "kernel.o", ADD, bytearray(ADD), memoryview(ADD), io.BytesIO(ADD)):
            self.launched(device, source)

    def test_ways_of_the_library(self, stub, tmp_path: Path) -> None:
        """From a file where the library takes the file, else from memory, with MAGIC where it is needed."""
        plain = make_kernel_object("add_custom", metadata=False)
        with pyacl.Device(0) as device:
            device.load(self.file(tmp_path, ADD))
            assert [c.function for c in stub.stub.calls() if "BinaryLoad" in c.function] == ["aclrtBinaryLoadFromFile"]
            device.load(ADD)
            call = stub.stub.calls("aclrtBinaryLoadFromData")[-1]
            assert call.arguments[1:3] == (len(ADD), 0)
            device.load(self.file(tmp_path, plain))  # no metadata, no JSON
            call = stub.stub.calls("aclrtBinaryLoadFromData")[-1]
            assert call.arguments[1] == len(plain) and call.arguments[2]
            device.load(self.file(tmp_path, plain, make_sidecar()))
            assert len(stub.stub.calls("aclrtBinaryLoadFromFile")) == 2

    def test_without_metadata(self, sim_device, tmp_path: Path) -> None:
        plain = make_kernel_object("add_custom", metadata=False)
        for source in (plain, self.file(tmp_path, plain), self.file(tmp_path, plain, make_sidecar())):
            self.launched(sim_device, source)

    def test_from_memory_before_cann_8_5(self, tmp_path: Path) -> None:
        forget()
        machine = use("eager", cann="8.1.RC1")
        with pyacl.Device(0) as device:
            assert not device._handle.api.has("aclrtBinaryLoadFromData")
            device.load(ADD)["add_custom"]
            with pytest.raises(
                pyacl.KernelObjectError, match="cannot be loaded from a file.*CANN 8.1.RC1 cannot load it"
            ):
                device.load(make_kernel_object("add_custom", metadata=False))
        assert list(machine.alive()) == []
        forget()

    def test_the_device_part_of_a_host_object(self, sim_device) -> None:
        self.launched(sim_device, make_host_object(ADD, ".aicore_binary"))

    def test_a_file_that_is_not_there(self, device) -> None:
        with pytest.raises(FileNotFoundError, match=r"seen from .*pyacl compile.*make_kernel_object.*no_such.o"):
            device.load("no_such.o")

    def test_the_library_gets_an_absolute_path(self, sim_device, tmp_path, monkeypatch) -> None:
        (tmp_path / "add_custom.o").write_bytes(ADD)
        monkeypatch.chdir(tmp_path)
        api, given = sim_device._handle.api, []
        load = api.aclrtBinaryLoadFromFile
        monkeypatch.setattr(api, "aclrtBinaryLoadFromFile", lambda path, *rest: given.append(path) or load(path, *rest))
        sim_device.load("add_custom.o")
        assert given == [bytes(tmp_path / "add_custom.o")]

    def test_a_folder(self, device, tmp_path) -> None:
        with pytest.raises(OSError, match=r"Is a directory: a kernel object is a file that can be read.*kernels\.o"):
            (tmp_path / "kernels.o").mkdir()
            device.load(tmp_path / "kernels.o")

    @pytest.mark.parametrize("source", [None, 3, ["add_custom.o"]])
    def test_what_is_no_source(self, device, source: object) -> None:
        with pytest.raises(TypeError, match="source: a path, bytes or a file opened in binary mode, not "):
            device.load(source)

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"", "empty|not an ELF|no ELF"),
            (b"#!/bin/sh\n", "(?i)elf|script"),
            (ADD[:200], "(?i)truncat|outside|past|beyond|end"),
            (ADD[: len(ADD) // 2], "(?i)truncat|outside|past|beyond|end"),
            (make_archive({"a.o": b"hello"}), "archive"),
            (make_host_object(b""), "host"),
            (make_kernel_object("add_custom", relocatable=True), "(?i)relocat|link"),
            (make_kernel_object("add_custom", arch="dav-3510"), f"compiled for .*{SOC} is dav-2201"),
            (make_kernel_object("add_custom", arch="dav-2002"), f"compiled for .*{SOC} is dav-2201"),
        ],
        ids=["empty", "script", "header only", "half", "archive", "host", "unlinked", "950", "310P"],
    )
    def test_what_cannot_be_loaded(self, machine, device, tmp_path: Path, data: bytes, text: str) -> None:
        path = self.file(tmp_path, data)
        before = list(machine.alive())
        for source in (path, data):
            with pytest.raises(pyacl.KernelObjectError, match=text) as caught:
                device.load(source)
            assert "Next step: " in str(caught.value)
            if source is path:
                assert "kernel.o" in str(caught.value)
        assert list(machine.alive()) == before
        if machine.stub:
            assert [c for c in machine.stub.calls() if "BinaryLoad" in c.function] == []

    def test_dropped_binaries_are_unloaded(self, machine, device) -> None:
        before = len(machine.alive())
        device.load(ADD)["add_custom"]
        gc.collect()
        assert len(machine.alive()) == before
        kernel = device.load(ADD)["add_custom"]
        gc.collect()
        assert len(machine.alive()) == before + 1 and not kernel.binary.closed
        del kernel
        gc.collect()
        assert len(machine.alive()) == before


class TestLaunchConfig:
    def attributes(self, config: pyacl.LaunchConfig) -> list[tuple[int, bytes]]:
        built = config._c_config()
        if built is None:
            return []
        raw = ctypes.string_at(built.attrs, 20 * built.numAttrs)
        return [struct.unpack_from("<I16s", raw, 20 * n) for n in range(built.numAttrs)]

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({}, []),
            ({"schem_mode": "normal"}, [(1, b"\0")]),
            ({"schem_mode": "batch"}, [(1, b"\1")]),
            ({"schem_mode": 1}, [(1, b"\1")]),
            ({"dyn_ubuf_size": 0x12345}, [(2, b"\x45\x23\x01")]),
            ({"block_task_prefetch": True}, [(5, b"\1")]),
            ({"data_dump": False}, [(6, b"\0")]),
            ({"timeout": 0}, [(7, b"\0")]),
            ({"timeout": 300}, [(7, b"\x2c\1")]),
            ({"timeout": np.int64(3)}, [(7, b"\3")]),
            ({"timeout": np.float32(0.5)}, [(8, struct.pack("<Q", 500_000))]),
            ({"timeout": 65535}, [(7, b"\xff\xff")]),
            ({"timeout": 65536}, [(8, struct.pack("<Q", 65536_000_000))]),
            ({"timeout": 0.25}, [(8, struct.pack("<Q", 250_000))]),
            ({"timeout_us": (1 << 40) + 7}, [(8, struct.pack("<II", 7, 256))]),
            ({"schem_mode": 0, "timeout": 5, "data_dump": True}, [(1, b"\0"), (6, b"\1"), (7, b"\5")]),
        ],
    )
    def test_what_the_library_gets(self, given: dict[str, object], expected: list[tuple[int, bytes]]) -> None:
        config = pyacl.LaunchConfig(**given)
        assert self.attributes(config) == [(number, value.ljust(16, b"\0")) for number, value in expected]

    def test_for_310p(self) -> None:
        config = pyacl.LaunchConfig(engine_type="aiv", block_dim_offset=3)
        assert self.attributes(config) == [(3, b"\1".ljust(16, b"\0")), (4, b"\3".ljust(16, b"\0"))]
        assert self.bound("Ascend310P3", make_kernel_object("k", arch="dav-2002"), config)

    @pytest.mark.parametrize(
        ("soc", "cann", "made", "given", "text"),
        [
            (SOC, "9.0.0", {}, {"engine_type": "aic"}, f"engine_type is for 310P; this device is {SOC}"),
            (SOC, "9.0.0", {}, {"block_dim_offset": 0}, f"block_dim_offset is for 310P; this device is {SOC}"),
            (SOC, "9.0.0", {}, {"dyn_ubuf_size": 64}, f"dyn_ubuf_size is for Ascend 950; this device is {SOC}"),
            (SOC, "8.1.RC1", {}, {"timeout": 3}, "timeout needs CANN 8.5; this is 8.1.RC1, which has schem_mode alone"),
            (SOC, "8.1.RC1", {}, {"data_dump": True, "schem_mode": 1}, "data_dump needs CANN 8.5"),
            ("950", "9.0.0", {"ub_size": 8192}, {"dyn_ubuf_size": 253953}, "253953 bytes and the 8192 .* than 262144"),
            ("950", "9.0.0", {"vector": "simt"}, {"dyn_ubuf_size": 229377}, "229377 bytes and the 0 .* than 229376"),
            ("950", "9.0.0", {"core": "aic"}, {"dyn_ubuf_size": 1}, "k says nothing of vector code"),
        ],
    )
    def test_what_product_and_cann_do_not_have(self, soc: str, cann: str, made: dict, given: dict, text: str) -> None:
        soc = "Ascend950PR_9589" if soc == "950" else soc
        with pytest.raises(ValueError, match=text):
            self.bound(soc, make_kernel_object("k", arch=soc, **made), pyacl.LaunchConfig(**given), cann)

    @pytest.mark.parametrize(
        ("soc", "cann", "made", "given"),
        [
            (SOC, "9.0.0", {}, {"dyn_ubuf_size": 0}),
            (SOC, "8.1.RC1", {}, {"schem_mode": "batch"}),
            ("950", "9.0.0", {"ub_size": 8192}, {"dyn_ubuf_size": 253952}),
            ("950", "9.0.0", {"vector": "simt"}, {"dyn_ubuf_size": 229376}),
        ],
    )
    def test_what_they_have(self, soc: str, cann: str, made: dict, given: dict) -> None:
        soc = "Ascend950PR_9589" if soc == "950" else soc
        assert self.bound(soc, make_kernel_object("k", arch=soc, **made), pyacl.LaunchConfig(**given), cann)

    def bound(self, soc: str, data: bytes, config: pyacl.LaunchConfig, cann: str = "9.0.0") -> pyacl.BoundKernel:
        forget()
        use("lazy", soc=soc, cann=cann)
        try:
            with pyacl.Device(0) as device:
                return device.load(data)["k"].bind(1, None, config)
        finally:
            forget()

    @pytest.mark.parametrize(
        ("given", "error", "text"),
        [
            ({"schem_mode": "fast"}, ValueError, r"schem_mode: 'fast' is none of 'normal' \(0\), 'batch' \(1\)"),
            ({"schem_mode": 2}, ValueError, "schem_mode: 2"),
            ({"engine_type": "gpu"}, ValueError, "engine_type"),
            ({"dyn_ubuf_size": -1}, ValueError, "dyn_ubuf_size: -1 is not in 0 to"),
            ({"dyn_ubuf_size": 1 << 32}, ValueError, "dyn_ubuf_size"),
            ({"dyn_ubuf_size": 1.5}, TypeError, "dyn_ubuf_size: a whole number, not float"),
            ({"block_dim_offset": True}, TypeError, "block_dim_offset: a whole number, not a bool"),
            ({"block_task_prefetch": 3}, TypeError, "block_task_prefetch: True or False"),
            ({"data_dump": "yes"}, TypeError, "data_dump"),
            ({"timeout": -1}, ValueError, "timeout: -1 is no number of seconds"),
            ({"timeout": float("nan")}, ValueError, "timeout"),
            ({"timeout": "5"}, ValueError, "timeout"),
            ({"timeout_us": -1}, ValueError, "timeout_us"),
            ({"timeout": 1, "timeout_us": 1}, ValueError, "the library takes one of them"),
            ({"blocks": 1}, TypeError, "blocks"),
        ],
    )
    def test_refused(self, given: dict[str, object], error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            pyacl.LaunchConfig(**given)

    def test_is_a_value(self) -> None:
        assert pyacl.LaunchConfig(timeout=1) == pyacl.LaunchConfig(timeout=1) != pyacl.LaunchConfig(timeout=2)
        assert len({pyacl.LaunchConfig(timeout=1), pyacl.LaunchConfig(timeout=1)}) == 1
        with pytest.raises(AttributeError):
            pyacl.LaunchConfig().timeout = 5

    def test_reaches_the_library(self, stub) -> None:
        with pyacl.Device(0) as device:
            x = device.empty(4, np.float16)
            add = device.load(ADD)["add_custom"]
            add[1](x, x, x)
            add[1, None, pyacl.LaunchConfig(timeout=9)](x, x, x)
            add[1, None, {}](x, x, x)
            configs = [c.arguments[3] for c in stub.stub.calls("aclrtLaunchKernelWithConfig")]
            assert configs[0] == 0 and configs[1] != 0 and configs[2] == 0

    def test_the_library_has_a_say_too(self, simulator) -> None:
        with pyacl.Device(0) as device:
            x = device.full(4, 1, np.float16)
            add = device.load(ADD)["add_custom"]
            config = pyacl.LaunchConfig(timeout=1)
            object.__setattr__(config, "_attributes", ((99, "timeout", 1),))
            with pytest.raises(pyacl.AclInvalidArgumentError) as caught:
                add[1, None, config](x, x, x)
            assert caught.value.function == "aclrtLaunchKernelWithConfig" and caught.value.code == 107000


def test_every_route_is_tested() -> None:
    assert list(kernel_module._ROUTES) == ROUTES
