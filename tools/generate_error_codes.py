"""Writes src/pyacl/error_codes.json: every error code, with its names (API table) and its texts (error_texts.json).

    python tools/generate_error_codes.py            # write
    python tools/generate_error_codes.py --check    # exit 1 when the file is not what would be written

A code that is in the table but has no text, or the other way round, is an error: a new CANN version brings new codes,
and each one deserves a sentence.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tools" / "api" / "acl_api.json"
TEXTS = ROOT / "tools" / "api" / "error_texts.json"
OUTPUT = ROOT / "src" / "pyacl" / "error_codes.json"


def build() -> str:
    """The text of error_codes.json, one code a line so that a change shows as one line."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    texts = json.loads(TEXTS.read_text(encoding="utf-8"))
    names: dict[str, list[str]] = {}
    for name, code in table["error_codes"].items():
        names.setdefault(str(code), []).append(name)
    if set(names) != set(texts):
        raise SystemExit(f"codes in only one of {TABLE.name} and {TEXTS.name}: {sorted(set(names) ^ set(texts))}")
    lines = []
    for code in sorted(texts, key=int):
        entry = dict(texts[code])
        aliases = sorted(set(names[code]) - {entry["name"]})
        if entry["name"] not in names[code]:
            raise SystemExit(f"{code} is called {names[code]} in {TABLE.name}, not {entry['name']}")
        if aliases:
            entry["aliases"] = aliases
        versions = [table["error_code_info"][name]["since"] for name in names[code]]
        entry["since"] = min(versions, key=table["versions"].index)
        lines.append(f" {json.dumps(code)}: {json.dumps(entry, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(arguments: list[str]) -> int:
    text = build()
    if "--check" in arguments:
        if not OUTPUT.exists() or OUTPUT.read_text(encoding="utf-8") != text:
            where = OUTPUT.relative_to(ROOT)
            print(f"{where} is out of date: run python tools/generate_error_codes.py", file=sys.stderr)
            return 1
        return 0
    OUTPUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
