"""A program as users write it, for type checkers: every public object, raw, and mistakes that must be found."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import pyacl
from pyacl import raw, sim
from pyacl.testing import make_kernel_object

if TYPE_CHECKING:
    from typing_extensions import assert_type
else:

    def assert_type(value: object, kind: object) -> object:
        return value


@sim.kernel
def scale(x: sim.In[np.float16], z: sim.Out[np.float16], factor: sim.Scalar[np.float32]) -> None:
    z[:] = x * factor


@sim.kernel("tiled::scale")
def tiled(x: sim.InOut[np.float16], length: np.uint32) -> None:
    x[:length] *= 2


@sim.kernel(backend=None)
def counted(block: sim.Block, x: sim.InOut[np.float32]) -> None:
    x[block.index] += 1


def objects() -> npt.NDArray[Any]:
    pyacl.use_backend("sim:Ascend910B3")
    assert_type(pyacl.device_count(), int)
    with pyacl.Device(0) as device, device.create_stream() as stream:
        assert_type(device, pyacl.Device)
        assert_type(stream, pyacl.Stream)
        assert_type(device.info.name, str)
        assert_type(device.memory_info.free, int)
        binary = device.load(make_kernel_object("scale", args=[8, 8, 4]))
        kernel = binary.kernel("scale", "ptr ptr f32")
        assert_type(binary["scale"], pyacl.Kernel)
        x = device.to_device(np.arange(8, dtype=np.float16), stream)
        z = device.empty_like(x)
        assert_type(x[2:4], pyacl.DeviceBuffer)
        assert_type(x.address, int)
        before = stream.record()
        kernel[8, stream](x, z, 2.0)
        bound = kernel.bind(8, stream, pyacl.LaunchConfig(schem_mode="batch"))
        assert_type(bound, pyacl.BoundKernel)
        bound(x, z, 2.0)
        kernel.launch(x, z, 2.0, blocks=8, stream=stream)
        after = stream.record(device.create_event())
        after.synchronize(timeout=5)
        assert_type(after - before, float)
        assert_type(after.done, bool)
        pinned = device.empty_host(8, "float16")
        z.copy_to(pinned, stream)
        stream.synchronize()
        result = z.to_host(stream)
        assert (result == pinned.array).all()
    try:
        pyacl.Device(99)
    except pyacl.AclError as error:
        assert_type(error.code, "int | None")
        assert_type(error.name, str)
        assert_type(error.next_step, str)
    return result


def c_functions() -> int:
    api = raw.load("sim")
    assert_type(api, raw.Api)
    api.aclInit(None)
    api.aclrtSetDevice(0)
    stream, address = raw.aclrtStream(), ctypes.c_void_p()
    assert_type(api.aclrtCreateStream(stream), int)
    api.aclrtMalloc(address, 1024, raw.ACL_MEM_MALLOC_HUGE_FIRST)
    api.aclrtMalloc(ctypes.byref(address), size=1024, policy=raw.aclrtMemMallocPolicy.ACL_MEM_MALLOC_HUGE_FIRST)
    assert_type(api.aclrtGetSocName(), "bytes | None")
    assert_type(api.has("aclrtMemPoolCreate"), bool)
    assert_type(api.version, "str | None")
    code = api.unchecked.aclrtMemcpy(address, 1024, b"text", 4, raw.ACL_MEMCPY_HOST_TO_DEVICE)
    assert_type(code, int)
    config = raw.aclrtLaunchKernelCfg()
    config.numAttrs = 0
    grid = raw.dim3(1, 2, 3)
    assert_type(grid.x, int)
    assert raw.RT_ERROR_NONE == 0
    api.aclrtSynchronizeStream(stream)
    api.aclrtSynchronizeStream(None)
    api.aclFinalize()
    return code


def mistakes() -> None:
    """Never called: each line is wrong, and the type checker complains where one of them passes."""
    api = raw.load("sim")
    api.aclrtMallok(1, 2)  # type: ignore[attr-defined]
    api.unchecked.aclrtMallok(1, 2)  # type: ignore[attr-defined]
    raw.aclrtMallok(1, 2)  # type: ignore[attr-defined]
    api.aclrtSetDevice()  # type: ignore[call-arg]
    api.aclrtSetDevice("0")  # type: ignore[arg-type]
    api.aclrtSynchronizeStream(raw.aclrtEvent())  # type: ignore[arg-type]
    device = pyacl.Device("0")  # type: ignore[arg-type]
    device.create_steam()  # type: ignore[attr-defined]
    print(pyacl.Devise)  # type: ignore[attr-defined]
    device.default_stream.record(3)  # type: ignore[arg-type]
    device.empty(3).copy_from(3, 3)  # type: ignore[arg-type]


if __name__ == "__main__":
    print(objects(), c_functions())
