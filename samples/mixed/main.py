"""A mixed kernel: cube cores multiply matrices, vector cores finish the product, c = max(a @ b, 0).

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
BLOCKS, ROWS, INNER, COLUMNS = 8, 32, 64, 32  # rows are those of one block


@sim.kernel
def matmul_relu(
    a: sim.In[np.float16], b: sim.In[np.float16], product: sim.InOut[np.float32], c: sim.Out[np.float32],
    block: sim.Block,
):  # fmt: skip
    """One core of one block: the cube core comes first, then its two vector cores."""
    if block.core == "aic":
        rows = slice(block.index * ROWS * INNER, (block.index + 1) * ROWS * INNER)
        left, right = a[rows].reshape(ROWS, INNER), b[: INNER * COLUMNS].reshape(INNER, COLUMNS)
        at = block.index * ROWS * COLUMNS
        product[at : at + ROWS * COLUMNS] = (left.astype(np.float32) @ right.astype(np.float32)).ravel()
    else:
        share = ROWS // 2 * COLUMNS
        at = (2 * block.index + block.subblock) * share
        c[at : at + share] = np.maximum(product[at : at + share], 0)


def load(device):
    """The kernel, compiled for the device; for the simulator, an object without code."""
    if SIMULATED:
        return device.load(make_kernel_object("matmul_relu", arch=device.name, core="mix", ratio=(1, 2), args=4))
    return device.load(pyacl.compile(HERE / "matmul_relu.cpp", soc=device.name))


random = np.random.default_rng(0)
a = random.integers(-4, 5, (BLOCKS * ROWS, INNER)).astype(np.float16)
b = random.integers(-4, 5, (INNER, COLUMNS)).astype(np.float16)

with pyacl.Device(0) as device, device.create_stream() as stream:
    binary = load(device)
    info = binary.object.kernel("matmul_relu")
    print(f"{info.name}: {info.core} {info.ratio[0]}:{info.ratio[1]}, {', '.join(half.symbol for half in info.halves)}")

    product = device.empty((BLOCKS * ROWS, COLUMNS), np.float32)
    c_device = device.empty_like(product)
    # the address that lets the cores of a block wait for each other is an argument, too; nobody has to pass it
    binary["matmul_relu"][BLOCKS, stream](device.to_device(a), device.to_device(b), product, c_device)
    c = c_device.to_host(stream)

golden = np.maximum(a.astype(np.float32) @ b.astype(np.float32), 0)
print(f"c is {c.shape[0]} x {c.shape[1]}, {np.count_nonzero(c == 0)} of {c.size} values were cut off at 0")
print("c == max(a @ b, 0):", bool((c == golden).all()))
