"""Entry points: process."""
from __future__ import annotations

