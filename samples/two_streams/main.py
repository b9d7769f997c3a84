"""Two streams: what one makes the other one uses, and an event between them keeps the order.

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
BLOCKS, TOTAL = 8, 8192


@sim.kernel
def multiply_custom(x: sim.In[np.float32], y: sim.In[np.float32], z: sim.Out[np.float32], total: np.uint32):
    z[:total] = x[:total] * y[:total]


def load(device):
    """The kernel, compiled for the device; for the simulator, an object without code."""
    if SIMULATED:
        return device.load(make_kernel_object("multiply_custom", arch=device.name, args=[8, 8, 8, 4]))
    return device.load(pyacl.compile(HERE / "multiply_custom.cpp", soc=device.name))


with pyacl.Device(0) as device, device.create_stream() as first, device.create_stream() as second:
    multiply = load(device).kernel("multiply_custom", "x:ptr y:ptr z:ptr total:u32")
    x = np.linspace(0, 1, TOTAL, dtype=np.float32)
    x_device = device.to_device(x)
    squares, cubes, quartics = (device.empty_like(x) for _ in range(3))

    begun = first.record()
    multiply[BLOCKS, first](x_device, x_device, squares, TOTAL)
    squared = first.record()
    multiply[BLOCKS, first](squares, x_device, cubes, TOTAL)

    second.wait(squared)  # without it, the second stream would read squares that may not be there
    multiply[BLOCKS, second](squares, squares, quartics, TOTAL)
    done = second.record()

    second.synchronize()
    first.synchronize()
    print("x**3 is right:", np.allclose(cubes.to_host(), x**3, rtol=1e-6))
    print("x**4 is right:", np.allclose(quartics.to_host(), x**4, rtol=1e-6))
    print("squares were there before the second stream was done:", squared - begun <= done - begun)
