"""What all tests share."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Callable, TypeVar

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> None:
    """Tests ask the collector often: what is there before those of a module, such as the tests themselves and the
    reports of earlier ones, is not looked at."""
    gc.collect()
    gc.freeze()


_T = TypeVar("_T")


@pytest.fixture(scope="session")
def real_kernels() -> dict[str, Path]:
    """Real kernel objects by case (`910b_aiv_nometa`, ...); see tests/support/kernels.py. CI must have them."""
    import kernels

    return _fetched(kernels.fetch)


@pytest.fixture(scope="session")
def real_wheels() -> list[Path]:
    """The packages that hold 1,128 real device objects; see tests/support/kernels.py. CI must have them."""
    import kernels

    return _fetched(kernels.fetch_wheels)


def _fetched(fetch: Callable[[], _T]) -> _T:
    import kernels

    try:
        return fetch()
    except kernels.RegistryUnreachable as error:
        if os.environ.get("CI", "").lower() in ("true", "1"):
            raise
        pytest.skip(f"the package registry that has the real kernel objects cannot be reached: {error}")
