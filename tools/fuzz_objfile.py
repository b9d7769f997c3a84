"""Throw damaged kernel objects at the inspector: only KernelObjectError may come out, soon and with little memory.

usage: python tools/fuzz_objfile.py [--runs 200000] [--seed 0] [--engine auto|atheris|seeded] [FILE ...]

Starts from objects that pyacl.testing makes, from the real ones in `.cache/kernels` when the tests have fetched them,
and from the FILEs given. With atheris (pip install atheris) the damage is guided by coverage; without it comes from a
seed. Exit code 1 and the offending bytes in `.cache/fuzz/` when something went wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import sys
import time
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from mutations import mutate  # noqa: E402

from pyacl.objfile import KernelObjectError, read  # noqa: E402
from pyacl.objfile.mangled import parameter_words, split  # noqa: E402
from pyacl.testing import KernelSpec, make_archive, make_host_object, make_kernel_object, make_sidecar  # noqa: E402

#: Seconds and bytes one object of at most `SIZE_LIMIT` bytes may cost.
TIME_LIMIT = 2.0
MEMORY_LIMIT = 1 << 30
SIZE_LIMIT = 1 << 17
FOUND = ROOT / ".cache" / "fuzz"
#: Looks at the JSON beside it, because it says nothing itself.
WITHOUT_METADATA = make_kernel_object(["a_mix_aic", "a_mix_aiv"], metadata=False)


class Statistics:
    """What happened so far."""

    def __init__(self) -> None:
        self.runs = self.accepted = 0
        self.slowest = 0.0
        self.started = time.perf_counter()

    def __str__(self) -> str:
        rate = self.runs / max(time.perf_counter() - self.started, 1e-9)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        share = self.accepted / max(self.runs, 1)
        return (
            f"{self.runs} objects, {share:.0%} accepted, {rate:.0f} a second, "
            f"slowest {self.slowest * 1000:.1f} ms, peak memory {peak:.0f} MiB"
        )


def inspect(data: bytes, statistics: Statistics) -> None:
    """Read everything there is to read about one object; anything but KernelObjectError is a find."""
    started = time.process_time()
    try:
        if data[:1] == b"{":
            # as the JSON beside an object, where whatever is wrong with it is said in words
            beside = read(WITHOUT_METADATA, sidecar=data)
            beside.to_dict("Ascend910B1")
        obj = read(data)
        obj.to_dict()
        obj.verdict("Ascend910B1")
        for kernel in obj.kernels[:20]:
            obj.kernel(kernel.name)
            parameter_words(split(kernel.name)[1] or "")
        statistics.accepted += 1
        obj.extract()
    except KernelObjectError:
        pass
    except BaseException:
        _keep(data)
        raise
    took = time.process_time() - started
    statistics.runs += 1
    statistics.slowest = max(statistics.slowest, took)
    if took > TIME_LIMIT:
        _keep(data)
        raise SystemExit(f"an object of {len(data)} bytes took {took:.1f} s")


def seeds(files: list[str]) -> list[bytes]:
    """Return the objects to start from."""
    made = [
        make_kernel_object("add_custom"),
        make_kernel_object("mm", core="mix", roles=["input", "output", "tiling"], tiling_key=3),
        make_kernel_object(["a", KernelSpec("b", core="mix", sync=True)], arch="dav-3510", debug=["printf"]),
        make_kernel_object("_Z5scalePhS_j", arch="dav-2002", metadata=False, data=b"data" * 9),
        make_kernel_object("k", arch="dav-3510", relocatable=True, implicit=(2, 4)),
    ]
    made.append(make_host_object(made[0], ".aicore_binary"))
    made.append(make_host_object(made[1] + bytes(5) + made[2], ".data"))
    made.append(make_archive({"one.o": make_host_object(made[4]), "a_name_too_long_for_the_header.o": made[0]}))
    made.append(make_kernel_object("_Z5scalePU3AS1hPU3AS1KDhS0_S3_j6Tiling", core="mix"))
    made.append(make_kernel_object("placed", arch="dav-3510", args=[8, 4, 2, 8], param_info=True))
    made.append(b'{"AddCpu": {"opInfo": {"functionName": "RunCpuKernel", "kernelSo": "libadd.so"}}, "n": [1, null]}')
    made.append(make_sidecar(intercoreSync=1, coreType="MIX", taskRation="1:2", opParaSize=40, debugOptions="printf"))
    real = [path.read_bytes() for path in sorted((ROOT / ".cache" / "kernels").glob("*/*.o"))]
    given = [Path(file).read_bytes() for file in files]
    return [data for data in made + real + given if len(data) <= SIZE_LIMIT]


def run_seeded(corpus: list[bytes], runs: int, seed: int, statistics: Statistics) -> None:
    """Mutate the corpus at random; accepted finds with a new shape join it."""
    rng = random.Random(seed)
    corpus = list(corpus)
    for number in range(runs):
        inspect(mutate(rng, rng.choice(corpus), corpus), statistics)
        if number % 20_000 == 19_999:
            print(statistics, flush=True)


def run_atheris(corpus: list[bytes], runs: int, seed: int, statistics: Statistics) -> None:
    """Let coverage guide the mutations; half of them are ours, which know the tables."""
    import atheris

    def one_input(data: bytes) -> None:
        inspect(data, statistics)
        if statistics.runs % 20_000 == 0:
            print(statistics, flush=True)
        if statistics.runs >= runs:
            print("atheris:", statistics, flush=True)
            # libFuzzer has no way to stop from inside; what would have failed has failed by now.
            sys.stdout.flush()
            import os

            os._exit(0)

    def mutator(data: bytes, max_size: int, mutation_seed: int) -> bytes:
        rng = random.Random(mutation_seed)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, len(data)))[:max_size]
        return mutate(rng, data, corpus)[:max_size]

    FOUND.mkdir(parents=True, exist_ok=True)
    folder = FOUND / "corpus"
    folder.mkdir(exist_ok=True)
    for data in corpus:
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    for name, module in list(sys.modules.items()):
        if name.startswith("pyacl.objfile"):
            _instrument(atheris.instrument_func, module)
    arguments = [sys.argv[0], str(folder), f"-seed={seed + 1}", f"-max_len={SIZE_LIMIT}", "-verbosity=0"]
    atheris.Setup([*arguments, f"-artifact_prefix={FOUND}/"], one_input, custom_mutator=mutator)
    atheris.Fuzz()


def _instrument(instrument: Callable[[object], object], module: object) -> None:
    """Put coverage counters into a module's functions and methods, in place."""
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) != module.__name__:  # type: ignore[attr-defined]
            continue
        members = vars(thing).values() if isinstance(thing, type) else [thing]
        for member in members:
            function = getattr(member, "fget", None) or getattr(member, "func", None) or member
            if hasattr(function, "__code__"):
                instrument(function)


def _keep(data: bytes) -> None:
    FOUND.mkdir(parents=True, exist_ok=True)
    path = FOUND / f"found-{hashlib.sha256(data).hexdigest()[:16]}.o"
    path.write_bytes(data)
    print(f"kept {path}", flush=True)


def main() -> int:
    """Run the fuzzer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("auto", "atheris", "seeded"), default="auto")
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY_LIMIT, 4 * MEMORY_LIMIT))
    engine = options.engine
    if engine == "auto":
        try:
            import atheris  # noqa: F401

            engine = "atheris"
        except ImportError:
            engine = "seeded"
    corpus = seeds(options.files)
    print(f"{engine}: {len(corpus)} objects to start from", flush=True)
    statistics = Statistics()
    run = run_atheris if engine == "atheris" else run_seeded
    run(corpus, options.runs, options.seed, statistics)
    print(statistics)
    return 0


if __name__ == "__main__":
    sys.exit(main())
