"""All 1,128 device objects of the packages on PyPI that have any: every one parses, and fast enough."""

from __future__ import annotations

import json
import time
import zipfile
from collections import Counter
from pathlib import Path

from pyacl import objfile
from pyacl.objfile import Container
from pyacl.objfile.kernels import registered_name


def test_every_object_of_the_packages(real_wheels: list[Path]) -> None:
    verdicts: Counter[str] = Counter()
    flags: Counter[int] = Counter()
    symbols = objects = apart = 0
    spent = 0.0
    for path in real_wheels:
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if not name.endswith(".o"):
                    continue
                data, sidecar = wheel.read(name), wheel.read(name[:-2] + ".json")
                started = time.process_time()
                obj = objfile.read(data, sidecar=sidecar)
                verdict = obj.verdict()
                spent += time.process_time() - started
                objects += 1
                symbols += len(obj.entries)
                flags[obj.flags] += 1
                verdicts[verdict.summary] += 1
                assert obj.container is Container.DEVICE and verdict.loadable
                # the compiler's own list of the kernels: names, and for mixed ones keys and ratios
                listed = {kernel["kernelName"]: kernel for kernel in json.loads(sidecar)["kernelList"]}
                if verdict.cautions:  # the halves register apart, under longer names
                    assert set(listed) == {registered_name(kernel.name, None) for kernel in obj.kernels}
                    apart += 1
                    continue
                assert set(listed) == {kernel.name for kernel in obj.kernels}
                for kernel in obj.kernels:
                    if "tilingKey" in listed[kernel.name]:
                        assert kernel.tiling_key == int(listed[kernel.name]["tilingKey"])
                    if "taskRation" in listed[kernel.name]:
                        assert kernel.ratio is not None
                        assert "{}:{}".format(*kernel.ratio) == listed[kernel.name]["taskRation"]
                    # what the metadata says about arguments and what the compiler says about their size agree
                    if kernel.arguments is not None:
                        assert kernel.arg_size == 8 * len(kernel.arguments)
                        assert kernel.ffts == (kernel.arguments[0].role == "ffts")
    assert (objects, symbols, apart) == (1128, 5119, 4)
    assert flags == {0x860000: 2, 0x8A0000: 5, 0x930000: 576, 0x940000: 65, 0x990000: 403, 0x9A0000: 77}
    assert verdicts == {
        "loads from file": 1040,
        "loads from data with MAGIC VECTOR, not from file": 82,
        "loads from data, not from file": 4,
        "loads from data with MAGIC AICORE, not from file": 2,
    }
    assert objects / spent > 200
