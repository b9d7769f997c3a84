"""Entry points: callback."""
from __future__ import annotations

