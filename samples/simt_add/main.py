"""z = x + y with 48 blocks of 256 threads: the official SIMT sample 01_add, on Ascend 950.

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
BLOCKS, THREADS = 48, 256


@sim.kernel
def add_custom(
    x: sim.In[np.float32], y: sim.In[np.float32], z: sim.Out[np.float32], total_length: np.uint64, block: sim.Block
):
    """One block: 256 threads, each with a number of its own."""
    i = block.index * THREADS + np.arange(THREADS)
    i = i[i < total_length]
    z[i] = x[i] + y[i]


def load(device):
    """The kernel, compiled for the device; for the simulator, an object without code."""
    if SIMULATED:
        return device.load(make_kernel_object("add_custom", arch=device.name, args=4, vector="simt"))["add_custom"]
    return device.load(pyacl.compile(HERE / "add_custom.cpp", soc=device.name, simt=True))["add_custom"]


def show(name, tensor):
    print(f"{name}:", *(f"{value:.6g}" for value in tensor[:20]), "...")


i = np.arange(BLOCKS * THREADS, dtype=np.float32)
x, y = np.float32(1.1) * i, i + np.float32(3.4)
golden = x + y

if SIMULATED:
    pyacl.use_backend("sim:Ascend950PR_9599")
with pyacl.Device(0) as device, device.create_stream() as stream:
    add = load(device)
    z_device = device.empty_like(golden)
    add[BLOCKS, stream](device.to_device(x, stream), device.to_device(y, stream), z_device, np.uint64(golden.size))
    output = z_device.to_host(stream)

show("Output", output)
show("Golden", golden)
passed = (output == golden).all()
print("[Success] Case accuracy is verification passed." if passed else "[Failed] Case accuracy is verification failed!")
