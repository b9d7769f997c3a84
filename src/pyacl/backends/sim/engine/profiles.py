"""The facts of each SoC, and which CANN versions are known."""

from __future__ import annotations

import functools
import json
import os
from typing import Any

VERSIONS = ("7.0.0", "8.0.RC2", "8.0.RC3", "8.1.RC1", "8.5.0", "9.0.0", "9.1.0", "9.2.0-beta.2")
_FILE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "profiles.json")
_DEFAULT_MEMORY = 32 << 30  # where the facts do not say how much a chip has


class Profile:
    """One SoC; `facts` holds the raw numbers."""

    def __init__(self, soc: str, facts: dict[str, Any]) -> None:
        self.soc = soc
        self.facts = facts
        self.family: str = facts["family"]
        self.cube_cores: int = facts.get("cube_cores", facts["ai_cores"])
        self.vector_cores: int = facts.get("vector_cores", 0)
        self.ai_cpus: int = facts.get("ai_cpus", 0)
        self.memory_bytes: int = facts.get("memory_bytes", _DEFAULT_MEMORY)
        self.streams: int = facts.get("streams", 2048)
        self.stream_depth: int = facts.get("stream_depth", 2048)


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    with open(_FILE, encoding="utf-8") as file:
        table: dict[str, dict[str, Any]] = json.load(file)
    return table


def known_socs() -> list[str]:
    return sorted(_table())


def load(soc: str) -> Profile:
    """The profile of a SoC; ValueError names the nearest ones if there is none."""
    if not isinstance(soc, str):
        raise TypeError(f"soc: the name of a SoC such as 'Ascend910B1', not {type(soc).__name__}")
    table = _table()
    if soc not in table:
        names = sorted(table)
        near = [n for n in names if soc.lower() in n.lower()] or [n for n in names if n.startswith(soc[:9])] or names
        raise ValueError("soc={!r} is not a known SoC; choose one of: {}".format(soc, ", ".join(near)))
    return Profile(soc, table[soc])


def check_version(cann: str) -> str:
    if cann not in VERSIONS:
        raise ValueError("cann={!r} is not a known CANN version; choose one of: {}".format(cann, ", ".join(VERSIONS)))
    return cann
