"""Entry points: context."""
from __future__ import annotations

