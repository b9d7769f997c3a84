"""Many threads on one device, with the collector and closing in between."""

from __future__ import annotations

import gc
import random
import threading

import numpy as np
import pytest
from pyacl_api import ADD, add_custom, forget, use  # noqa: F401  add_custom is the kernel's emulation

import pyacl


@pytest.mark.parametrize("kind", ["lazy", "eager"])
def test_eight_threads_on_one_device(kind: str) -> None:
    forget()
    machine = use(kind)
    device = pyacl.Device(0)
    add = device.load(ADD)["add_custom"]
    shared = device.create_stream()
    ones = device.full(256, 1, np.float16)
    failures: list[object] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            start.wait()
            for turn in range(15):
                stream = shared if rng.random() < 0.3 else device.create_stream()
                value = rng.randint(0, 100)
                x = device.full(256, value, np.float16)
                z = device.empty_like(x)
                add[4, stream](x, ones, z)
                if rng.random() < 0.3:
                    event = stream.record()
                    event.synchronize()
                    assert event.done
                if rng.random() < 0.2:
                    gc.collect()
                result = set(z.to_host(stream).tolist())
                if result != {value + 1.0}:
                    failures.append((seed, turn, value, result))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    device.close()
    assert list(machine.alive()) == []
    forget()


def close_while_others_work() -> list[BaseException]:
    device = pyacl.Device(0)
    stream = device.create_stream()
    buffer = device.full(64, 1, np.int32)
    unexpected: list[BaseException] = []
    ready = threading.Barrier(5)

    def work() -> None:
        ready.wait()
        try:
            while True:
                buffer.fill(3, stream)
                stream.record()
                stream.synchronize()
        except pyacl.ClosedError:
            pass
        except pyacl.AclError as error:
            # the handle was taken just before it was closed, and the library refused it
            if error.code not in (107003, 107002, 107000, 507000):
                unexpected.append(error)
        except BaseException as error:  # noqa: BLE001
            unexpected.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    ready.wait()
    device.close()
    for thread in threads:
        thread.join()
    return unexpected


def test_closing_while_others_work() -> None:
    """They get an error that says so, and nothing is left."""
    forget()
    machine = use("lazy")
    for _ in range(10):
        # what a real library would crash on, the simulator says
        assert {type(error).__name__ for error in close_while_others_work()} <= {"UndefinedBehavior"}
    gc.collect()
    assert list(machine.alive()) == []
    forget()
