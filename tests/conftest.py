"""What all tests share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture(scope="session")
def real_kernels() -> dict[str, Path]:
    """Real kernel objects by case (`910b_aiv_nometa`, ...); see tests/support/kernels.py. CI must have them."""
    import kernels

    try:
        return kernels.fetch()
    except kernels.RegistryUnreachable as error:
        if os.environ.get("CI", "").lower() in ("true", "1"):
            raise
        pytest.skip(f"the package registry that has the real kernel objects cannot be reached: {error}")
