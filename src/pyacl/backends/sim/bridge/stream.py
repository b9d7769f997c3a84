"""Entry points: stream."""
from __future__ import annotations

