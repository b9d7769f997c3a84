"""Host functions in a stream: Python that runs when the work before it is done, here to watch and to hand results on.

On an NPU: python main.py. Without one: PYACL_BACKEND=sim python main.py.
"""

import os
import queue
from pathlib import Path

import numpy as np

import pyacl
from pyacl import sim
from pyacl.testing import make_kernel_object

HERE = Path(__file__).parent
SIMULATED = os.environ.get("PYACL_BACKEND", "").startswith("sim")
BLOCKS, TOTAL, ROUNDS = 8, 2048, 3


@sim.kernel
def add_custom(x: sim.In[np.int32], y: sim.In[np.int32], z: sim.Out[np.int32], total: np.uint32):
    z[:total] = x[:total] + y[:total]


def load(device):
    """The kernel, compiled for the device; for the simulator, an object without code."""
    if SIMULATED:
        return device.load(make_kernel_object("add_custom", arch=device.name, args=[8, 8, 8, 4]))
    return device.load(pyacl.compile(HERE / "add_custom.cpp", soc=device.name))


finished = queue.SimpleQueue()


def watch(number, result):
    """Runs on a thread of the library: it may look at host memory, and must not use the device."""
    finished.put((number, int(result[0])))


def refuse():
    raise RuntimeError("what a host function raises, the wait for its stream raises")


with pyacl.Device(0) as device, device.create_stream() as stream:
    add = load(device).kernel("add_custom", "ptr ptr ptr u32")
    one, value = device.full(TOTAL, 1, np.int32), device.zeros(TOTAL, np.int32)
    copies = [device.empty_host(TOTAL, np.int32) for _ in range(ROUNDS)]
    for number, copy in enumerate(copies):
        add[BLOCKS, stream](value, one, value, TOTAL)
        value.copy_to(copy, stream)
        stream.launch_host_func(watch, number, copy.array)
    stream.synchronize()
    for _ in range(ROUNDS):
        number, first = finished.get()
        print(f"round {number}: value {first}")

    stream.launch_host_func(refuse)
    try:
        stream.synchronize()
    except RuntimeError as error:
        print("RuntimeError:", error)
