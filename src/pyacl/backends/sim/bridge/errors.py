"""Entry points: errors."""
from __future__ import annotations

