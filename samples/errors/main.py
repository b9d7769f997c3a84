"""What can go wrong, what pyacl says about it, and how a program goes on afterwards.

On an NPU: python main.py. Without one: PYACL_BACKEND=sim python main.py.
"""

import ctypes
import os
from pathlib import Path

import numpy as np

import pyacl
from pyacl import sim
from pyacl.testing import make_kernel_object

HERE = Path(__file__).parent
SIMULATED = os.environ.get("PYACL_BACKEND", "").startswith("sim")
BLOCKS, TOTAL = 8, 2048


@sim.kernel
def double_custom(x: sim.In[np.float32], z: sim.Out[np.float32], total: np.uint32):
    z[:total] = x[:total] + x[:total]


def load(device):
    """The kernel, compiled for the device; for the simulator, an object without code."""
    if SIMULATED:
        return device.load(make_kernel_object("double_custom", arch=device.name, args=[8, 8, 4]))
    return device.load(pyacl.compile(HERE / "double_custom.cpp", soc=device.name))


def attempt(what, action):
    try:
        action()
    except Exception as error:
        code = f" {error.code} {error.name}" if isinstance(error, pyacl.AclError) and error.code is not None else ""
        print(f"{what}: {type(error).__name__}{code}")
    else:
        print(f"{what}: done")


with pyacl.Device(0) as device:
    stream = device.create_stream()
    x, z = device.to_device(np.arange(TOTAL, dtype=np.float32)), device.empty(TOTAL, np.float32)
    binary = load(device)
    double = binary["double_custom"][BLOCKS, stream]

    # refused before anything is launched; the messages name the argument and what to write instead
    attempt("a kernel that is not there", lambda: binary["dubble_custom"])
    attempt("an argument too many", lambda: double(x, z, np.uint32(TOTAL), x))
    attempt("a number without a width", lambda: double(x, z, TOTAL))
    attempt("no blocks", lambda: binary["double_custom"][0, stream])
    attempt("a device that is not there", lambda: pyacl.Device(99))

    # refused by the library
    attempt("more memory than there is", lambda: device.allocate(1 << 50))

    # a kernel reads from address 0: the device breaks, and everything on it is refused from then on
    double(ctypes.c_void_p(0), z, np.uint32(TOTAL))
    attempt("a null pointer", stream.synchronize)
    attempt("the next launch", lambda: double(x, z, np.uint32(TOTAL)))
    print("the fault is remembered:", device.fault and device.fault.code)

    # a reset closes what was made on the device; then it works again
    device.recover()
    print("x is closed:", x.closed)
    stream = device.create_stream()
    x, z = device.to_device(np.arange(TOTAL, dtype=np.float32)), device.empty(TOTAL, np.float32)
    load(device)["double_custom"][BLOCKS, stream](x, z, np.uint32(TOTAL))
    attempt("after the reset", stream.synchronize)
    print("2 * x:", z.to_host()[:4])
