"""A struct by value: y = x * factor, with the tiling as a numpy record, a ctypes structure and a dataclass.

On an NPU: python main.py. Without one: PYACL_BACKEND=sim python main.py.
"""

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pyacl
from pyacl import sim
from pyacl.testing import make_kernel_object

HERE = Path(__file__).parent
SIMULATED = os.environ.get("PYACL_BACKEND", "").startswith("sim")
BLOCKS, TOTAL, TILE = 4, 4096, 256

# struct Tiling { uint32_t total; uint32_t tile; float factor; }, three times
RECORD = np.dtype([("total", np.uint32), ("tile", np.uint32), ("factor", np.float32)], align=True)


class Structure(ctypes.Structure):
    _fields_ = [("total", ctypes.c_uint32), ("tile", ctypes.c_uint32), ("factor", ctypes.c_float)]


@dataclass
class Tiling:
    total: np.uint32
    tile: np.uint32
    factor: np.float32


@sim.kernel
def scale_custom(x: sim.In[np.float32], y: sim.Out[np.float32], tiling: sim.Struct[RECORD]):
    y[: tiling["total"]] = x[: tiling["total"]] * tiling["factor"]


def load(device):
    """The kernel, compiled for the device; for the simulator, an object without code."""
    if SIMULATED:
        return device.load(make_kernel_object("scale_custom", arch=device.name, args=[8, 8, RECORD.itemsize]))
    return device.load(pyacl.compile(HERE / "scale_custom.cpp", soc=device.name))


with pyacl.Device(0) as device, device.create_stream() as stream:
    scale = load(device)["scale_custom"][BLOCKS, stream]
    x = np.arange(TOTAL, dtype=np.float32)
    x_device, y_device = device.to_device(x), device.empty_like(x)
    for kind, factor, tiling in (
        ("numpy record", 0.5, np.array((TOTAL, TILE, 0.5), RECORD)[()]),
        ("ctypes structure", 2.0, Structure(TOTAL, TILE, 2.0)),
        ("dataclass", -1.0, Tiling(np.uint32(TOTAL), np.uint32(TILE), np.float32(-1.0))),
    ):
        scale(x_device, y_device, tiling)
        y = y_device.to_host(stream)
        print(f"{kind}: {y[1:4]}", "right" if (y == x * factor).all() else "WRONG")

    try:
        scale(x_device, y_device)
    except TypeError:
        print("without the struct: refused, because the kernel reads more bytes than that")
