"""Several devices: each takes its share of a vector, all at the same time; then one hands its result to another.

On NPUs: python main.py. Without any: PYACL_BACKEND=sim python main.py.
"""

import os
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import pyacl
from pyacl import sim
from pyacl.testing import make_kernel_object

HERE = Path(__file__).parent
SIMULATED = os.environ.get("PYACL_BACKEND", "").startswith("sim")
BLOCKS, SHARE = 8, 8192


@sim.kernel
def add_custom(x: sim.In[np.float32], y: sim.In[np.float32], z: sim.Out[np.float32], total: np.uint32):
    z[:total] = x[:total] + y[:total]


def load(device):
    """The kernel, compiled for the device; for the simulator, an object without code."""
    if SIMULATED:
        return device.load(make_kernel_object("add_custom", arch=device.name, args=[8, 8, 8, 4]))
    return device.load(pyacl.compile(HERE / "add_custom.cpp", soc=device.name))


if SIMULATED:
    pyacl.use_backend(sim.Backend(devices=2))
count = min(2, pyacl.device_count())
x = np.arange(count * SHARE, dtype=np.float32)
y = np.ones_like(x)

with ExitStack() as stack:
    devices = [stack.enter_context(pyacl.Device(number)) for number in range(count)]
    results = []
    for device, x_share, y_share in zip(devices, np.split(x, count), np.split(y, count)):
        add = load(device).kernel("add_custom", "ptr ptr ptr u32")  # a binary belongs to the device it was loaded on
        z = device.empty_like(x_share)
        add[BLOCKS, device.default_stream](device.to_device(x_share), device.to_device(y_share), z, SHARE)
        results.append(z)
    for device, z in zip(devices, results):
        device.synchronize()
        print(f"device {device.id}:", z.to_host()[:3], "...")
    total = np.concatenate([z.to_host() for z in results])
    print("z == x + y:", bool((total == x + y).all()))

    # a buffer of one device is no argument on another one; a copy of it is
    first, last = devices[0], devices[-1]
    last.enable_peer_access(first)
    there = last.empty_like(results[0])
    there.copy_from(results[0])
    print(f"device {last.id} has the result of device {first.id}:", bool((there.to_host() == (x + y)[:SHARE]).all()))
