"""Entry points: event."""
from __future__ import annotations

