"""Entry points: overflow."""
from __future__ import annotations

