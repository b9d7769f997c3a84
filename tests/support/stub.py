"""Libraries that look like CANN's, compiled with gcc from the API data: each function writes down what it was given.

`libraries()` is the whole API once, for calling every function through ctypes. `build()` makes single libraries for
fake installations. Everything is kept in .cache/stub by the hash of its source.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CORE = Path(__file__).with_name("stub_core.c")
CACHE = ROOT / ".cache" / "stub"
NEWEST = "9.2.0-beta.2"

_INTEGERS = {f"{sign}{bits}": f"{'u' if sign == 'u' else ''}int{bits}" for sign in "iu" for bits in (8, 16, 32, 64)}
#: C types by the table's class of type
C_TYPES = {
    **{abi: f"{name}_t" for abi, name in _INTEGERS.items()},
    **{"f32": "float", "f64": "double", "bool": "_Bool", "char": "char", "ptr": "void *", "fnptr": "void *"},
    "void": "void",
}
_CTYPES = {
    **{abi: getattr(ctypes, f"c_{name}") for abi, name in _INTEGERS.items()},
    **{"f32": ctypes.c_float, "f64": ctypes.c_double, "bool": ctypes.c_bool, "char": ctypes.c_char},
    **{"ptr": ctypes.c_uint64, "fnptr": ctypes.c_uint64},
}

# In the working stub these give out a new handle through a parameter, or take one back.
_MAKERS = {
    "aclrtCreateContext": 0, "aclrtCreateEvent": 0, "aclrtCreateEventWithFlag": 0, "aclrtCreateEventExWithFlag": 0,
    "aclrtCreateLabel": 0, "aclrtCreateNotify": 0, "aclrtCreateStream": 0, "aclrtCreateStreamWithConfig": 0,
    "aclrtBinaryLoad": 1, "aclrtBinaryLoadFromData": 3, "aclrtBinaryLoadFromFile": 2, "aclrtMemPoolCreate": 0,
}  # fmt: skip
_TAKERS = (
    "aclrtDestroyContext", "aclrtDestroyEvent", "aclrtDestroyLabel", "aclrtDestroyNotify", "aclrtDestroyStream",
    "aclrtDestroyStreamForce", "aclrtBinaryUnLoad", "aclrtMemPoolDestroy", "aclrtFreeWithDevSync",
    "aclrtFreeHostWithDevSync",
)  # fmt: skip


def require_gcc() -> str:
    """Path of gcc. Without one the test is skipped, but fails where CI=true."""
    if sys.platform != "linux":
        pytest.skip("the stub libraries stand for CANN's, which exist for Linux")
    gcc = shutil.which("gcc")
    if gcc is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI must have gcc: the stub libraries are compiled with it")
        pytest.skip("no gcc: the stub libraries cannot be compiled")
    return gcc


@functools.cache
def table(family: str) -> dict[str, Any]:
    """The API data: ``acl`` or ``runtime``."""
    data: dict[str, Any] = json.loads((ROOT / "tools" / "api" / f"{family}_api.json").read_text(encoding="utf-8"))
    return data


def all_functions(version: str = NEWEST) -> dict[str, dict[str, Any]]:
    """Every function of the table, the runtime's included, as a CANN version declares it."""
    both = {**table("acl")["functions"], **table("runtime")["functions"]}
    return {name: form(entry, version) for name, entry in both.items()}


def in_version(entry: dict[str, Any], version: str) -> bool:
    """Whether a CANN version declares this entry of the acl table."""
    order = table("acl")["versions"]
    at = order.index(version)
    before_end = entry["until"] is None or at <= order.index(entry["until"])
    return order.index(entry["since"]) <= at and before_end and version not in entry.get("absent_in", ())


def form(entry: dict[str, Any], version: str) -> dict[str, Any]:
    """The declaration of a function, of either table, in a CANN version."""
    order = table("acl")["versions"]
    forms = list(entry.get("changes", ()))
    if "other_versions" in entry:
        forms = [{"version": table("runtime")["version"]}, *entry["other_versions"]]
    forms = [c for c in forms if order.index(c["version"]) <= order.index(version)]
    return {**entry, **max(forms, key=lambda c: order.index(c["version"]))} if forms else entry


def library_of(name: str, version: str) -> str:
    """The library that has a function in a version, without ``lib`` and ``.so``."""
    if name not in table("acl")["functions"]:
        return "runtime"
    header = table("acl")["functions"][name]["header"]
    old = table("acl")["versions"].index(version) <= table("acl")["versions"].index("8.1.RC1")
    said = table("acl")["libraries"][header]["until 8.1.RC1" if old else "from 8.5.0"]
    stems = re.findall(r"lib(\w+)\.so", said)
    return stems[-1] if re.match(r"aclop\w+DumpArgs$", name) else stems[0]


# -- C text from the data


def _structs_of(functions: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The structures that the functions take or return by value; they have plain members only."""
    known = {**table("runtime")["structs"], **table("acl")["structs"]}
    named = [(p["type"], p["abi"]) for f in functions.values() for p in f["params"]]
    named += [(f["returns"], f["returns_abi"]) for f in functions.values()]
    return {t: known[t] for t, abi in named if abi in ("struct", "union")}


def structure_text(structs: dict[str, dict[str, Any]]) -> str:
    """C declarations of structures, those they contain first. Types come from the data's classes, not from headers."""
    known = {**table("runtime")["structs"], **table("acl")["structs"]}
    tags = {s["tag"]: n for n, s in known.items() if "tag" in s}
    done: list[str] = []
    texts: list[str] = []

    def resolve(type_: str) -> str:
        name = re.sub(r"\[.*$", "", type_).replace("struct ", "").replace("union ", "").strip()
        return name if name in known else tags[name]

    def members(entry: dict[str, Any]) -> str:
        lines = []
        for field in entry["fields"]:
            if "anonymous" in field:
                inner = field["anonymous"]
                what = f"{inner['kind']} {{ {members(inner)} }}"
            elif field["abi"] in ("struct", "union"):
                name = resolve(field.get("element", field["type"]))
                declare(name)
                what = f"T_{name}"
            else:
                what = C_TYPES[field["abi"]]
            array = f"[{field['array_len']}]" if "array_len" in field else ""
            bits = f" : {field['bit_width']}" if "bit_width" in field else ""
            lines.append(f"{what} {field['name'] or ''}{array}{bits};")
        return " ".join(lines)

    def natural(entry: dict[str, Any]) -> int:
        """The alignment without ``#pragma pack``."""
        found = 1
        for field in entry["fields"]:
            if "anonymous" in field:
                found = max(found, natural(field["anonymous"]))
            elif field["abi"] in ("struct", "union"):
                found = max(found, known[resolve(field.get("element", field["type"]))]["align"])
            else:
                found = max(found, ctypes.alignment(_CTYPES[field["abi"]]))
        return found

    def declare(name: str) -> None:
        if name in done:
            return
        body = members(known[name])
        done.append(name)
        text = f"typedef {known[name]['kind']} {{ {body} }} T_{name};"
        if known[name]["align"] < natural(known[name]):
            text = f"#pragma pack(push, {known[name]['align']})\n{text}\n#pragma pack(pop)"
        texts.append(text)

    for name in structs:
        declare(name)
    return "\n".join(texts)


def _c_type(type_: str, abi: str) -> str:
    return f"T_{type_}" if abi in ("struct", "union") else C_TYPES[abi]


def source(functions: dict[str, dict[str, Any]]) -> str:
    """The C file of one stub library."""
    hooks = set(re.findall(r"HOOK\((\w+)\)\(", CORE.read_text(encoding="utf-8")))
    lines = ['#include "stub_core.c"', structure_text(_structs_of(functions))]
    count = len(functions)
    lines.append(f"const int32_t stub_functions = {count};")
    lines.append("const char *const stub_names[] = {" + ", ".join(f'"{n}"' for n in functions) + "};")
    lines.append(f"unsigned char stub_results[{count}][RESULT_BYTES]; output *stub_outputs[{count}];")
    lines.append(f"unsigned char stub_told[{count}];")
    lines.extend(_function_text(i, name, f, name in hooks) for i, (name, f) in enumerate(functions.items()))
    return "\n".join(lines) + "\n"


def _function_text(index: int, name: str, function: dict[str, Any], hooked: bool) -> str:
    params = function["params"]
    declared = [f"{_c_type(p['type'], p['abi'])} a{i}" for i, p in enumerate(params)]
    arguments = ", ".join(f"a{i}" for i in range(len(params)))
    body = [f"record *r = begin({index});"]
    body += [f"put(r, &a{i}, sizeof a{i});" for i in range(len(params))]
    if function.get("variadic"):
        declared.append("...")
        body.append(
            f"va_list rest; va_start(rest, a{len(params) - 1}); "
            f"vsnprintf(r->text, TEXT_BYTES, a{len(params) - 1}, rest); va_end(rest);"
        )
    pointers = [f"a{i}" if p["abi"] == "ptr" else "NULL" for i, p in enumerate(params)]
    body.append(f"void *pointers[] = {{{', '.join([*pointers, 'NULL'])}}};")
    body.append(f"end({index}, pointers);")
    result = _c_type(function["returns"], function["returns_abi"])
    work = ""
    if hooked:
        work = f"hook_{name}({arguments})"
    elif name in _MAKERS:
        work = f"give(a{_MAKERS[name]}, {index})"
    elif name in _TAKERS:
        work = "take(a0)"
    if result != "void":
        if work:
            body.append(f"if (working && !stub_told[{index}]) return {work};")
        body.append(f"return *({result} *)stub_results[{index}];")
    return f"{result} {name}({', '.join(declared) or 'void'})\n{{\n    " + "\n    ".join(body) + "\n}"


# -- compiling


def compile_library(text: str, name: str, flags: Sequence[str] = ()) -> Path:
    """Compile C text into a shared library called ``name``; the same text is compiled once."""
    gcc = require_gcc()
    key = hashlib.sha256("\0".join([text, CORE.read_text(encoding="utf-8"), name, *flags]).encode()).hexdigest()[:20]
    target = CACHE / key / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            file = Path(scratch) / "stub.c"
            file.write_text(text, encoding="utf-8")
            made = Path(scratch) / name
            command = [gcc, "-shared", "-fPIC", "-O0", "-w", "-I", str(CORE.parent), "-o", str(made), str(file), *flags]
            done = subprocess.run([*command, "-lpthread"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            os.replace(made, target)  # whole or not at all: other test processes may build the same one
    return target


def build(stem: str, names: Iterable[str], version: str = NEWEST, flags: Sequence[str] = ()) -> Path:
    """A stub of ``lib<stem>.so`` with these functions, as a CANN version declares them."""
    known = all_functions(version)
    functions = {n: known[n] for n in names}
    return compile_library(source(functions), f"lib{stem}.so", flags)


def names_in(stem: str, version: str) -> list[str]:
    """The functions that a library of a CANN version exports."""
    acl = table("acl")["functions"]
    names = [n for n, f in acl.items() if in_version(f, version) and not f.get("not_in_libacl_rt")]
    names += [n for n, f in table("runtime")["functions"].items() if f["exported"]]
    return [n for n in names if library_of(n, version) == stem]


# -- the whole API in one folder, for calling it in this process


class Call(NamedTuple):
    """One recorded call: the arguments as numbers, structures by value as bytes, and the formatted variadic part."""

    function: str
    arguments: tuple[Any, ...]
    raw: tuple[bytes, ...]
    text: str
    thread: int


class _Record(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_int32),
        ("used", ctypes.c_uint32),
        ("thread", ctypes.c_uint64),
        ("bytes", ctypes.c_ubyte * 256),
        ("text", ctypes.c_char * 256),
    ]


class Stub:
    """The stub libraries of one folder, and what they wrote down.

    ``raw.load(f"library:{stub.folder}")`` calls them.
    """

    def __init__(self, folder: Path, version: str = NEWEST) -> None:
        self.folder = folder
        self._functions = all_functions(version)
        self._libraries = {path.name[3:-3]: ctypes.CDLL(str(path)) for path in sorted(folder.glob("lib*.so"))}
        for library in self._libraries.values():
            library.stub_records.restype = ctypes.POINTER(_Record)
            library.stub_name.restype = library.stub_live_maker.restype = ctypes.c_char_p
            library.stub_live.restype = ctypes.c_uint64
            assert library.stub_record_bytes() == ctypes.sizeof(_Record)

    def calls(self, function: str | None = None) -> list[Call]:
        """What was called since the last `reset`, of one function or of all, in order within each library."""
        found = []
        for library in self._libraries.values():
            count, total = ctypes.c_uint64(), ctypes.c_uint64()
            records = library.stub_records(ctypes.byref(count), ctypes.byref(total))
            for i in range(count.value):
                name = library.stub_name(records[i].function).decode()
                if function in (None, name):
                    found.append(self._decode(name, records[i]))
        return found

    def count(self) -> int:
        """How many calls there were, those included that no longer fit into the log."""
        count, total, result = ctypes.c_uint64(), ctypes.c_uint64(), 0
        for library in self._libraries.values():
            library.stub_records(ctypes.byref(count), ctypes.byref(total))
            result += total.value
        return result

    def set_result(self, function: str, value: Any) -> None:
        """What a function returns from now on: a number, or the bytes of a structure."""
        abi = self._functions[function]["returns_abi"]
        data = value if isinstance(value, bytes) else bytes(_CTYPES[abi](value))
        library, index = self._find(function)
        library.stub_set_result(index, data, len(data))

    def set_output(self, function: str, parameter: str, value: Any) -> None:
        """What a function writes where a pointer parameter points: bytes, or a ctypes value."""
        names = [p["name"] for p in self._functions[function]["params"]]
        library, index = self._find(function)
        data = bytes(value)
        library.stub_set_output(index, names.index(parameter), data, len(data))

    def fail(self, function: str, code: int, message: str = "") -> None:
        """Let a function fail; the text is what aclGetRecentErrMsg says next on this thread."""
        self.set_result(function, code)
        library, _ = self._find("aclGetRecentErrMsg")
        library.stub_set_message(message.encode())

    def restore(self, function: str) -> None:
        """Forget what was asked of one function with `set_result`, `set_output` or `fail`."""
        library, index = self._find(function)
        library.stub_restore(index)

    def work(self, on: bool = True) -> None:
        """Let functions do a plausible job: memory is allocated and copied, create functions give out handles."""
        for library in self._libraries.values():
            library.stub_set_working(int(on))

    def live(self) -> list[str]:
        """The functions that gave out what nobody gave back (working stub only)."""
        return [
            library.stub_live_maker(i).decode()
            for library in self._libraries.values()
            for i in range(library.stub_live())
        ]

    def reset(self) -> None:
        """Forget the calls, the results and the handles; return 0 from everything again."""
        for library in self._libraries.values():
            library.stub_reset()

    def _find(self, function: str) -> tuple[ctypes.CDLL, int]:
        for library in self._libraries.values():
            index = library.stub_find(function.encode())
            if index >= 0:
                return library, index
        raise KeyError(function)

    def _decode(self, name: str, record: _Record) -> Call:
        structs = {**table("runtime")["structs"], **table("acl")["structs"]}
        data, at = bytes(record.bytes), 0
        arguments: list[Any] = []
        raw: list[bytes] = []
        for p in self._functions[name]["params"]:
            kind = _CTYPES.get(p["abi"])
            size = ctypes.sizeof(kind) if kind is not None else structs[p["type"]]["size"]
            raw.append(data[at : at + size])
            arguments.append(kind.from_buffer_copy(raw[-1]).value if kind is not None else raw[-1])
            at += size
        assert at == record.used, f"{name}: the stub wrote {record.used} bytes, the data says {at}"
        return Call(name, tuple(arguments), tuple(raw), record.text.decode(), record.thread)


@functools.cache
def libraries() -> Stub:
    """The whole API, every function of the newest declaration, opened in this process.

    The libraries have no SONAME: to the rest of the process no CANN is loaded.
    """
    by_library: dict[str, list[str]] = {}
    for name in all_functions():
        by_library.setdefault(library_of(name, NEWEST), []).append(name)
    built = [build(stem, names) for stem, names in by_library.items()]
    key = hashlib.sha256("".join(map(str, built)).encode()).hexdigest()[:20]
    folder = CACHE / f"api-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    for path in built:
        try:
            os.link(path, folder / path.name)
        except FileExistsError:
            continue
    return Stub(folder)
