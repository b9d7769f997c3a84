"""Copies beside work: a vector goes through the device in pieces, on two streams, from and to pinned memory.

While one stream computes, the other one copies.

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
BLOCKS, PIECES, PIECE = 8, 6, 16384


@sim.kernel
def scale_add(x: sim.In[np.float32], y: sim.In[np.float32], z: sim.Out[np.float32], total: np.uint32):
    z[:total] = x[:total] * y[:total] + x[:total]


def load(device):
    """The kernel, compiled for the device; for the simulator, an object without code."""
    if SIMULATED:
        return device.load(make_kernel_object("scale_add", arch=device.name, args=[8, 8, 8, 4]))
    return device.load(pyacl.compile(HERE / "scale_add.cpp", soc=device.name))


with pyacl.Device(0) as device:
    kernel = load(device).kernel("scale_add", "x:ptr y:ptr z:ptr total:u32")
    # pinned memory: only from there does a copy go on while the program does
    x, y, z = (device.empty_host((PIECES, PIECE), np.float32) for _ in range(3))
    x.array[:] = np.arange(x.size).reshape(x.shape) % 100
    y.array[:] = np.arange(PIECES)[:, np.newaxis]

    # each stream has buffers of its own, so that it never waits for the other one
    lanes = [(device.create_stream(), *(device.empty(PIECE, np.float32) for _ in range(3))) for _ in range(2)]
    for piece in range(PIECES):
        stream, x_device, y_device, z_device = lanes[piece % 2]
        x_device.copy_from(x.array[piece], stream)
        y_device.copy_from(y.array[piece], stream)
        kernel[BLOCKS, stream](x_device, y_device, z_device, PIECE)
        z_device.copy_to(z.array[piece], stream)
    print(f"{PIECES} pieces of {PIECE} numbers are queued")
    for stream, *_ in lanes:
        stream.synchronize()

    print("z == x * y + x:", bool((z.array == x.array * y.array + x.array).all()))
    print("sums of the pieces:", *z.array.sum(axis=1, dtype=np.float64).astype(int))
