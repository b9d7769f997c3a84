"""Reading the text of aclGetRecentErrMsg: which part speaks of this failure, and the facts it carries."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable

# A text starts with "[PID: n] time Title(EE1001): ...", in older releases "EE1001: [PID: n] time ...";
# the runtime's inner errors have an "EZ9999: Inner Error!" line first.
_HEADER = re.compile(
    r"^(?P<before>[EW][A-Z0-9]\d{4})?:?\s*"
    r"(?:\[PID:\s*\d+\]\s*\d[\d:.\-]*\s*(?:[\w/]*\((?P<after>[EW][A-Z0-9]\d{4})\):)?|Inner Error!)\s*"
)
_PLAIN_CODE = re.compile(r"^(?P<before>[EW][A-Z0-9]\d{4}):\s+")
_WHERE_IN_SOURCE = re.compile(r"\s*\[FUNC:[^\]]*\]\[FILE:[^\]]*\]\[LINE:[^\]]*\]")
# The getter itself asks the device for messages; on a thread without a context that fails and is reported too.
_GETTER_NOISE = re.compile(r"rtGetDevMsg|\[FUNC:Get(?:DevErr|Dev)Msg\]")
_BOILERPLATE = ("Possible Cause:", "Solution:", "TraceBack (most recent call last):")


def _hex(text: str) -> int:
    return int(text, 16)


# Name, type and where it stands. A later row wins over an earlier one of the same name.
_FACTS: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("device_id", int, r"\bfrom device\((?:chipId:)?(\d+)"),
    ("device_id", int, r"\b(?:device_id|dev_id)=(\d+)"),
    ("stream_id", int, r"(?<!report_)\bstream_id=(-?\d+)"),
    ("task_id", int, r"\btask_id=(\d+)"),
    ("kernel_name", str, r"\b(?:fault )?kernel_name=(?!none\b)([^\s,;]+)"),
    ("core_type", str, r"\bthere is an? (?:exception of |error of )?([\w ]+?) (?:error|exception)\b|\berror of (\w+),"),
    ("core_id", int, r"\bcore id is (\d+)"),
    ("error_code", str, r"\berror code = (\w+)"),
    ("error_code", str, r"\berrcode:\(([^)]*)\)"),
    ("error_string", str, r"\berrorStr: ?(.+?)(?=[.,]? *(?:fixp_error0 info|subErrType)|\s*\[FUNC|\n|$)"),
    ("pc_start", _hex, r"\bpc start: ?(0x[0-9a-fA-F]+)"),
    ("pc", _hex, r"\bpc start: ?0x[0-9a-fA-F]+, current: ?(0x[0-9a-fA-F]+)"),
    ("ret_code", str, r"\bKernel task happen error, retCode=0x[0-9a-fA-F]+, \[([^\]]+)\]"),
    ("reason", str, r"\breason=\[?([^\[\]\n]+?)\]?(?=\s*\[FUNC|\.?\n|\.?$)"),
    ("parameter", str, r"\bfor parameter (\S+) is invalid|\bArgument \[([^\]]*)\] must not be null"
                       r"|\] for \[([^\]]*)\] is invalid|\bbecause (\w+) cannot be a NULL"),
    ("value", str, r"\bbecause value (\S+) for parameter|\bValue \[([^\]]*)\] for \[|\bValue (\S+) for parameter"),
    ("expected", str, r"\bExpected value: (.+?)\.?(?=\s*\[FUNC|\n|$)"),
)


@dataclass
class ErrorText:
    """What one text of the library says: a short form, its message code and the facts found in it."""

    code: str = ""
    headline: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def parse(text: str) -> ErrorText:
    """Read the newest entry of `text`; entries below it are left over from earlier failures.

    Lines that only report the getter's own failure are dropped; when nothing else is left, the result is empty.
    """
    lines = text.strip().splitlines()
    entry = _first_entry(lines)
    code = ""
    kept: list[str] = []
    for line in entry:
        if _GETTER_NOISE.search(line):
            continue
        line = line.strip()
        header = _HEADER.match(line) or _PLAIN_CODE.match(line)
        if header:
            groups = header.groupdict()
            code = code or groups.get("after") or groups["before"] or ""
            line = line[header.end():]
        if line and not line.startswith(_BOILERPLATE):
            kept.append(line)
    if not kept:
        return ErrorText()
    body = "\n".join(kept)
    facts = {}
    for name, convert, pattern in _FACTS:
        found = re.search(pattern, body)
        if found:
            facts[name] = convert(next(group for group in found.groups() if group is not None).strip())
    return ErrorText(code, _headline(kept, facts), facts)


def _first_entry(lines: list[str]) -> list[str]:
    """The lines up to the next header; an "Inner Error!" line and the header behind it are one."""
    for number in range(1, len(lines)):
        header = _HEADER.match(lines[number])
        if header and not (number == 1 and lines[0].rstrip().endswith("Inner Error!")):
            return lines[:number]
    return lines


def _headline(lines: list[str], facts: dict[str, Any]) -> str:
    if "error_string" in facts:
        return str(facts["error_string"]).strip()
    line = " ".join(_WHERE_IN_SOURCE.sub("", lines[0]).split())
    if "reason" in facts and facts["reason"] not in line:
        line = f"{line.rstrip('.')} ({facts['reason']})"
    return line if len(line) <= 600 else line[:597] + "..."
