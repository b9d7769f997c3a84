"""The shape of one row of the API table: a C function, its parameters, and which CANN versions have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Optional

#: the CANN versions the table distinguishes, oldest first; "7.0.0" as a first version means 7.0.0 or earlier
VERSIONS = ("7.0.0", "8.0.RC2", "8.0.RC3", "8.1.RC1", "8.5.0", "9.0.0", "9.1.0", "9.2.0-beta.2")

#: the version whose recorded behaviour and documentation pyacl follows
REFERENCE_VERSION = "9.0.0"


class Param(NamedTuple):
    """One parameter: its C name, its exact C type, and ``in``, ``out``, ``inout`` or None where no page says."""

    name: str
    type: str
    direction: Optional[str] = None


class Form(NamedTuple):
    """How a function is declared from ``version`` on, where that differs from its newest declaration."""

    version: str
    returns: str
    params: tuple[Param, ...]


class Function(NamedTuple):
    """One C function in its newest declaration.

    ``library`` names the shared library without ``lib`` and ``.so`` (``acl_rt`` also means the older
    ``ascendcl``). ``forms`` lists every incompatible declaration, oldest first; it is empty for a function that
    never changed. ``absent_in`` are versions between ``since`` and ``until`` that lack the function.
    ``exported`` is false for a function that the headers declare and the library does not export.
    """

    name: str
    returns: str
    params: tuple[Param, ...]
    library: str
    header: str
    group: str
    since: str
    until: Optional[str] = None
    variadic: bool = False
    sync: Optional[str] = None
    exported: bool = True
    deprecated: bool = False
    replaced_by: tuple[str, ...] = ()
    absent_in: tuple[str, ...] = ()
    forms: tuple[Form, ...] = ()

    @property
    def returns_status(self) -> bool:
        """Whether the result is an error code: ``aclError``, or ``rtError_t`` of libruntime."""
        return self.returns in ("aclError", "rtError_t")

    def in_version(self, version: str) -> bool:
        """Whether the CANN of this version exports the function."""
        at = version_index(version)
        return (
            self.exported
            and VERSIONS.index(self.since) <= at
            and (self.until is None or at <= VERSIONS.index(self.until))
            and VERSIONS[at] not in self.absent_in
        )

    def form(self, version: str | None) -> Function:
        """The function as the CANN of this version declares it (the newest declaration for None)."""
        if not self.forms or version is None:
            return self
        at = version_index(version)
        chosen = self.forms[0]
        for form in self.forms:
            if VERSIONS.index(form.version) <= at:
                chosen = form
        return self._replace(returns=chosen.returns, params=chosen.params)

    @property
    def declaration(self) -> str:
        """The C declaration."""
        params = [f"{p.type}{'' if p.type.endswith('*') else ' '}{p.name}" for p in self.params]
        if self.variadic:
            params.append("...")
        space = "" if self.returns.endswith("*") else " "
        return f"{self.returns}{space}{self.name}({', '.join(params) or 'void'})"


class Table(Mapping[str, Function]):
    """Rows by name, from the text that tools/generate_raw.py writes; a row is read when it is first asked for."""

    def __init__(self, text: str) -> None:
        self._rows: dict[str, list[str]] = {}
        self._made: dict[str, Function] = {}
        lines: list[str] = []  # of the row being read
        for line in text.splitlines():
            if line[0] == "@":
                lines.append(line[2:])
            else:
                lines = self._rows[line[: line.index(" ")]] = [line]

    def __getitem__(self, name: str) -> Function:
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = _read_row(*self._rows[name])
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _read_row(line: str, *forms: str) -> Function:
    name, returns, params, library, header, group, since, *columns = line.split(" | ")
    further = {key: value for key, _, value in (column.partition("=") for column in columns)}
    return Function(
        name, returns, _read_params(params), library, header, group, since,
        until=further.get("until"),
        variadic="variadic" in further,
        sync=further.get("sync"),
        exported="not exported" not in further,
        deprecated="deprecated" in further,
        replaced_by=_names(further.get("deprecated", "")),
        absent_in=_names(further.get("absent_in", "")),
        forms=tuple(Form(v, r, _read_params(p)) for v, r, p in (form.split(" | ") for form in forms)),
    )  # fmt: skip


def _read_params(text: str) -> tuple[Param, ...]:
    rows = []
    for param in text.split("; ") if text != "void" else ():
        words = param.split(" ")
        rows.append(Param(words[-1], " ".join(words[1:-1]), None if words[0] == "-" else words[0]))
    return tuple(rows)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def version_key(version: str) -> tuple[int, ...]:
    """A sort key for CANN version names: ``8.1.RC1`` before ``8.1.0``, ``9.2.0-beta.2`` before ``9.2.0``.

    Raises
    ------
    ValueError
        When the text does not start with two numbers.
    """
    import re  # here, because nothing else on the way to `raw.load` needs it

    match = re.match(r"(\d+)\.(\d+)\.?(?:RC(\d+)|(\d+))?(?:[-.]?(alpha|beta|rc)[-.]?(\d+))?", version, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{version!r} is not a CANN version such as {', '.join(VERSIONS)}")
    major, minor, early, patch, stage, number = match.groups()
    # a release candidate comes before the release of the same number
    last = (-1, int(early)) if early else (int(patch or 0), 0)
    rank = ("alpha", "beta", "rc").index(stage.lower()) if stage else 3
    return (int(major), int(minor), *last, rank, int(number or 0))


def version_index(version: str) -> int:
    """The position in `VERSIONS` of the newest version that is not newer than this one (0 for an older one)."""
    if version in VERSIONS:
        return VERSIONS.index(version)
    key = version_key(version)
    known = [i for i, name in enumerate(VERSIONS) if version_key(name) <= key]
    return known[-1] if known else 0
