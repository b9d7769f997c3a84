"""Entry points: notify."""
from __future__ import annotations

