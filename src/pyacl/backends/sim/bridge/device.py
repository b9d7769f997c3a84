"""Entry points: device."""
from __future__ import annotations

