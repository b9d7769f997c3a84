"""The recorded cases in tests/data: those handed out with the specification, and more that were recorded like them."""

from __future__ import annotations

from pathlib import Path

import conformance_runner as runner

DATA = Path(__file__).resolve().parent.parent / "data"
CASES = [
    case
    for folder in ("conformance", "conformance_more")
    for path in sorted((DATA / folder).glob("*.json"))
    for case in runner.load_cases(path)
]
