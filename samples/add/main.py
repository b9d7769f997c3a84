"""z = x + y: the official sample AddKernelInvocationAcl, with pointers only and with two placeholders.

On an NPU: python main.py. Without one: PYACL_BACKEND=sim python main.py.
"""

import os
from pathlib import Path

import numpy as np

import pyacl
from pyacl import sim
from pyacl.testing import make_kernel_object

HERE = Path(__file__).parent
SIMULATED = os.environ.get("PYACL_BACKEND", "").startswith("sim")
BLOCKS, TILES = 8, 8


@sim.kernel
def add_custom(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]):
    z[:] = x + y


@sim.kernel
def add_custom_tiling(
    x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16], length: sim.In[np.int32],
    count: sim.In[np.int32],
):  # fmt: skip
    z[: length[0]] = x[: length[0]] + y[: length[0]]


def load(device, name, arguments):
    """The kernel, compiled for the device; for the simulator, an object without code."""
    if SIMULATED:
        return device.load(make_kernel_object(name, arch=device.name, args=arguments))[name]
    return device.load(pyacl.compile(HERE / f"{name}.cpp", soc=device.name))[name]


def verify(output, golden):
    """The check of the C sample, and what it prints."""
    error_ratio = np.mean(~np.isclose(output, golden, rtol=1e-3, atol=1e-5, equal_nan=True))
    print(f"error ratio: {error_ratio:.4f}, tolerance: 0.0010")
    print("[SUCCESS] result correct" if error_ratio <= 1e-3 else "[FAILURE] result error")


random = np.random.default_rng(0)
x = random.uniform(1, 100, (8, 2048)).astype(np.float16)
y = random.uniform(1, 100, (8, 2048)).astype(np.float16)

with pyacl.Device(0) as device, device.create_stream() as stream:
    x_device, y_device = device.to_device(x, stream), device.to_device(y, stream)

    print("simple:")
    add = load(device, "add_custom", arguments=3)
    z_device = device.zeros(x.shape, x.dtype, stream)
    add[BLOCKS, stream](x_device, y_device, z_device)
    verify(z_device.to_host(stream), x + y)

    print("placeholder:")
    add = load(device, "add_custom_tiling", arguments=5)
    z_device = device.zeros(x.shape, x.dtype, stream)
    length, tiles = pyacl.Placeholder(np.int32(x.size)), pyacl.Placeholder(np.int32(TILES))
    add[BLOCKS, stream](x_device, y_device, z_device, length, tiles)
    verify(z_device.to_host(stream), x + y)
