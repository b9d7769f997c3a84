"""raw against the data it is generated from, and the binding against Python functions behind C addresses."""

from __future__ import annotations

import ast
import ctypes
import inspect
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import pyacl
from pyacl import errors, raw
from pyacl.backends.thunks import SENTINEL, Thunk, take_pending
from pyacl.raw import constants, prototypes, runtime_constants, runtime_types, types
from pyacl.raw.functions import FUNCTIONS, MISSPELT
from pyacl.raw.table import VERSIONS, version_index, version_key

ROOT = Path(__file__).resolve().parents[2]
TABLES = {name: json.loads((ROOT / "tools/api" / f"{name}_api.json").read_text("utf-8")) for name in ("acl", "runtime")}
TYPES = {"acl": types, "runtime": runtime_types}
CONSTANTS = {"acl": constants, "runtime": runtime_constants}
WIDTHS = {"i8": 1, "u8": 1, "char": 1, "bool": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "f32": 4}
INSTANCE = "give an instance of what it points to"


class FakeBackend:
    """Python functions behind C addresses; what it does not have is absent."""

    def __init__(self, version="9.0.0", **functions):
        self.name, self.version = "fake", version
        self.thunks = {n: Thunk(FUNCTIONS[n].form(version), f) for n, f in functions.items()}

    def address(self, name):
        return self.thunks[name].address if name in self.thunks else None

    def close(self):
        self.thunks.clear()


def in_table(entry, version, versions):
    at = versions.index(version)
    return (
        not entry.get("not_in_libacl_rt")
        and versions.index(entry["since"]) <= at
        and (entry["until"] is None or at <= versions.index(entry["until"]))
        and version not in entry.get("absent_in", ())
    )


# ---------------------------------------------------------------------------------------------------- the table


def test_every_function_of_both_tables_has_a_row():
    assert len(TABLES["acl"]["functions"]) == 516
    assert len(TABLES["runtime"]["functions"]) == 748
    assert set(FUNCTIONS) == {*TABLES["acl"]["functions"], *TABLES["runtime"]["functions"]}
    assert len(FUNCTIONS) == 1264


@pytest.mark.parametrize("kind", TABLES)
def test_prototypes_have_the_widths_of_the_data(kind):
    for name, entry in TABLES[kind]["functions"].items():
        made = prototypes.prototype(FUNCTIONS[name])
        plain = prototypes.thunk_prototype(FUNCTIONS[name])
        abis = [p["abi"] for p in entry["params"]]
        if FUNCTIONS[name].forms:
            assert len(FUNCTIONS[name].forms) > 1
            continue  # the newest form is compared in test_declarations_of_older_versions
        assert len(made._argtypes_) == len(plain._argtypes_) == len(abis), name
        for abi, typed, thunk, param in zip(abis, made._argtypes_, plain._argtypes_, entry["params"]):
            if abi in ("ptr", "fnptr"):
                assert prototypes.is_address(typed) and thunk is ctypes.c_size_t, (name, param)
            elif abi in ("struct", "union"):
                assert typed is thunk and issubclass(typed, (ctypes.Structure, ctypes.Union)), (name, param)
            else:
                assert typed is thunk and ctypes.sizeof(typed) == WIDTHS.get(abi, 8), (name, param)
                code = {"f": "fd", "b": "?"}.get(abi[0])
                assert code is None or typed._type_ in code, (name, param)
                unsigned = typed._type_ in "BHILQ?" if abi[0] in "ui" else None
                assert unsigned is None or unsigned == (abi[0] == "u"), (name, param)
        result = entry["returns_abi"]
        if result == "void":
            assert made._restype_ is None
        elif result == "ptr":
            assert prototypes.is_address(made._restype_), name
        else:
            assert ctypes.sizeof(made._restype_) == WIDTHS.get(result, 8), name


@pytest.mark.parametrize("kind", TABLES)
def test_rows_say_what_the_data_say(kind):
    for name, entry in TABLES[kind]["functions"].items():
        row = FUNCTIONS[name]
        if name == "rtBinaryGetMetaInfo":  # the row is the newest declaration, the data's is that of 9.0.0
            row = row.form("9.0.0")
        assert row.returns == entry["returns"], name
        assert [(p.name, p.type) for p in row.params] == [(p["name"], p["type"]) for p in entry["params"]], name
        assert row.variadic == bool(entry.get("variadic")) and row.sync == entry.get("sync"), name
        assert row.deprecated == bool(entry.get("deprecated")), name


def test_directions():
    assert {p.direction for row in FUNCTIONS.values() for p in row.params} == {"in", "out", "inout", None}
    for name, entry in {**TABLES["acl"]["functions"], **TABLES["runtime"]["functions"]}.items():
        for param, told in zip(FUNCTIONS[name].form("9.0.0").params, entry["params"]):
            if told["abi"] not in ("ptr", "fnptr"):
                assert param.direction == "in", (name, param)  # four pages say that a number comes out
            elif (name, param.name) not in (("aclrtCntNotifyCreate", "cntNotify"), ("aclrtCmoSetDesc", "src")):
                assert param.direction == (told.get("direction") or told.get("header_direction")), (name, param)
    assert FUNCTIONS["aclrtCntNotifyCreate"].params[0].direction == "out"
    assert [p.direction for p in FUNCTIONS["aclrtCmoSetDesc"].params] == ["in", "in", "in"]
    assert FUNCTIONS["aclprofRangeStop"].params[0].direction == "in"


@pytest.mark.parametrize("kind", TABLES)
def test_pointers_point_to_what_the_data_say(kind):
    """Behind ``T *`` stands the very structure or handle, or a number of T's width and sign."""
    abis = {n: e["abi"] for t in TABLES.values() for n, e in {**t["enums"], **t["typedefs"]}.items()}
    abis.update({f"{s}int{b}_t": f"{s[:1] or 'i'}{b}" for s in ("", "u") for b in (8, 16, 32, 64)})
    abis.update({"int": "i32", "unsigned int": "u32", "size_t": "u64", "uintptr_t": "u64", "bool": "bool"})
    abis.update({"float": "f32", "double": "f64"})
    seen = 0
    for name in TABLES[kind]["functions"]:
        row = FUNCTIONS[name].form("9.0.0")
        for param, typed in zip(row.params, prototypes.prototype(row)._argtypes_):
            words = param.type.replace("[]", "*").replace("*", " * ").split()
            base = " ".join(w for w in words if w not in ("const", "*", "struct", "enum"))
            if "(" in param.type or base in ("void", "char", "char_t") or "*" not in words:
                continue
            target = typed
            while issubclass(target, ctypes._Pointer):
                target = target._type_
            if abis.get(base, "ptr") in ("ptr", "struct", "union"):
                assert target.__name__ == base or base in abis, (name, param)
                continue
            assert (ctypes.sizeof(target), sign(target)) == (WIDTHS.get(abis[base], 8), abis[base][0]), (name, param)
            seen += 1
    assert seen > 100


def sign(kind):
    """i, u, f or b: what kind of number a ctypes type is."""
    return {"f": "f", "d": "f", "?": "b", "c": "c"}.get(kind._type_, "u" if kind._type_.isupper() else "i")


def test_statuses_are_told_from_values():
    assert sum(FUNCTIONS[n].returns == "aclError" for n in TABLES["acl"]["functions"]) == 460
    assert sum(not FUNCTIONS[n].returns_status for n in TABLES["acl"]["functions"]) == 56
    assert sum(FUNCTIONS[n].returns_status for n in TABLES["runtime"]["functions"]) == 727


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_have_the_functions_that_the_data_gives_them(version):
    functions = TABLES["acl"]["functions"]
    want = {n for n, e in functions.items() if in_table(e, version, list(VERSIONS))}
    assert {n for n in functions if FUNCTIONS[n].in_version(version)} == want


def test_declared_but_not_exported_functions_are_in_no_version():
    names = [n for n, e in TABLES["acl"]["functions"].items() if e.get("not_in_libacl_rt")]
    assert len(names) == 7
    assert not any(FUNCTIONS[n].in_version(v) for n in names for v in VERSIONS)


def test_declarations_of_older_versions():
    row = FUNCTIONS["aclrtSnapShotProcessLock"]
    assert row.form("8.5.0").declaration == "aclError aclrtSnapShotProcessLock(void)"
    assert row.form("9.0.0").declaration == "aclError aclrtSnapShotProcessLock(void)"
    assert row.form("9.1.0").declaration == "aclError aclrtSnapShotProcessLock(int pid, void *reserve)"
    assert row.form(None) == row.form("9.2.0-beta.2") == row
    changed = {n for n in FUNCTIONS if FUNCTIONS[n].forms}
    assert changed == {
        "aclrtSnapShotProcessLock", "aclrtSnapShotProcessUnlock", "aclrtSnapShotProcessBackup",
        "aclrtSnapShotProcessRestore", "rtBinaryGetMetaInfo", "rtGetXpuDevCount",
    }  # fmt: skip
    assert FUNCTIONS["rtGetXpuDevCount"].form("8.5.0").returns == "uint32_t"
    assert FUNCTIONS["rtGetXpuDevCount"].form("9.0.0").returns == "rtError_t"


def test_version_names_sort():
    names = [
        "7.0.0",
        "8.0.RC2",
        "8.0.RC3",
        "8.0.0",
        "8.1.RC1",
        "8.5.0",
        "9.0.0-beta.1",
        "9.0.0",
        "9.0.1",
        "9.2.0-beta.2",
        "9.2.0",
    ]
    assert sorted(reversed(names), key=version_key) == names
    assert [version_index(v) for v in ("6.3.0", "8.0.0", "8.3.RC1", "9.0.1", "9.2.0", "10.0.0")] == [0, 2, 3, 5, 7, 7]
    with pytest.raises(ValueError, match="not a CANN version"):
        version_key("latest")


# --------------------------------------------------------------------------------------------- types and constants


def compare_layout(cls, entry, path):
    assert ctypes.sizeof(cls) == entry["size"], path
    assert ctypes.alignment(cls) == entry["align"], path
    kinds = {f[0]: f[1] for f in cls._fields_}
    for i, field in enumerate(entry["fields"]):
        if field.get("anonymous"):
            kind = kinds[field["name"] or f"_{i}"]
            while hasattr(kind, "_length_"):
                kind = kind._type_
            inner = {"size": ctypes.sizeof(kind), "align": ctypes.alignment(kind), **field["anonymous"]}
            compare_layout(kind, inner, f"{path}.{field['name']}")
            continue
        found = getattr(cls, field["name"])
        abi = field.get("abi", "ptr")
        if abi in ("bool", "f32", "f64") or re.fullmatch(r"[iu]\d+", abi):
            number = kinds[field["name"]]
            while hasattr(number, "_length_"):
                number = number._type_
            assert sign(number) == abi[0], (path, field)
        if "bit_width" in field:
            start = found.offset * 8 + (found.size & 0xFFFF)
            assert (start, found.size >> 16) == (field["bit_offset"], field["bit_width"]), (path, field)
        else:
            assert (found.offset, found.size) == (field["offset"], field["size"]), (path, field)


@pytest.mark.parametrize("kind", TABLES)
def test_structures_are_laid_out_as_in_the_data(kind):
    structs = TABLES[kind]["structs"]
    assert len(structs) == {"acl": 62, "runtime": 267}[kind]
    for name, entry in structs.items():
        compare_layout(
            getattr(TYPES[kind], name), {"align": ctypes.alignment(getattr(TYPES[kind], name)), **entry}, name
        )


@pytest.mark.parametrize("kind", TABLES)
def test_enums_constants_and_error_codes_have_the_values_of_the_data(kind):
    table, module = TABLES[kind], CONSTANTS[kind]
    for name, entry in table["enums"].items():
        enum = getattr(module, name)
        assert {m: int(v) for m, v in enum.__members__.items()} == entry["members"], name
    for name, value in {**table["constants"], **table.get("error_codes", {})}.items():
        assert getattr(module, name) == value, name
    assert raw.ACL_MEMCPY_HOST_TO_DEVICE == 1 and raw.aclrtMemcpyKind(1) is constants.ACL_MEMCPY_HOST_TO_DEVICE


def test_handles_of_different_kinds_are_told_apart():
    seen = []
    fake = FakeBackend(aclrtSynchronizeStream=lambda stream: seen.append(stream) or 0)
    api = raw.load(fake)
    api.aclrtSynchronizeStream(types.aclrtStream(2**63 + 5))
    api.aclrtSynchronizeStream(None)
    assert seen == [2**63 + 5, 0]
    for wrong in (types.aclrtEvent(1), ctypes.c_void_p(1)):
        with pytest.raises(ctypes.ArgumentError):
            api.aclrtSynchronizeStream(wrong)


@pytest.mark.parametrize(
    ("name", "given", "parameter", "said"),
    [
        ("aclrtMemcpy", (0, 8, np.zeros(1), 8, 1), "src (const void *)", "give its address, array.ctypes.data"),
        ("aclrtMemcpy", (0, 8.0, 0, 8, 1), "destMax (size_t)", "give an int"),
        ("aclrtMemcpy", (0, 8, 0, 8, "1"), "kind (aclrtMemcpyKind)", "give an int"),
        ("aclrtMalloc", (0, 8, 0), "devPtr (void **)", f"{INSTANCE}, ctypes.c_void_p()"),
        ("aclrtCreateStream", (7,), "stream (aclrtStream *)", f"{INSTANCE}, raw.types.aclrtStream()"),
        ("aclInit", ("acl.json",), "configPath (const char *)", "give bytes, such as os.fsencode(path)"),
        ("aclrtSynchronizeStream", (types.aclrtEvent(1),), "stream (aclrtStream)", "give raw.types.aclrtStream"),
    ],
)
def test_an_argument_that_ctypes_refuses_is_named(name, given, parameter, said):
    api = raw.load(FakeBackend(**{name: lambda *_: 0}))
    with pytest.raises(ctypes.ArgumentError) as caught:
        getattr(api, name)(*given)
    assert re.fullmatch(rf"{name}: {re.escape(parameter)}: \w+ does not pass; {re.escape(said)}", str(caught.value))


def test_an_argument_that_refuses_itself_is_named():
    class Closed:
        @property
        def _as_parameter_(self):
            raise ValueError("closed")

    api = raw.load(FakeBackend(aclrtFree=lambda _: 0))
    with pytest.raises(ctypes.ArgumentError, match=r"^aclrtFree: devPtr \(void \*\): ValueError: closed$"):
        api.aclrtFree(Closed())


def test_names_that_do_not_exist_have_neighbours():
    with pytest.raises(AttributeError, match="no attribute 'aclrtMemcopy'; did you mean aclrtMemcpy or"):
        raw.aclrtMemcopy  # noqa: B018  to ask is enough
    with pytest.raises(AttributeError, match="did you mean ACL_MEMCPY_HOST_TO_DEVICE or"):
        raw.ACL_MEMCPY_HOST_DEVICE  # noqa: B018  to ask is enough
    with pytest.raises(AttributeError, match="has no attribute 'nothing_like_it'$"):
        raw.nothing_like_it  # noqa: B018  to ask is enough


# ------------------------------------------------------------------------------------------------------- the calls


def test_checked_calls_return_zero_or_raise():
    codes = iter([0, 107003, -7])
    text = ctypes.create_string_buffer(b"[PID: 1] EE9999: stream is not in current ctx")
    fake = FakeBackend(
        aclrtSynchronizeStream=lambda stream: next(codes),
        aclGetRecentErrMsg=lambda: ctypes.addressof(text),
    )
    api = raw.load(fake)
    assert api.aclrtSynchronizeStream(None) == 0
    with pytest.raises(errors.AclError) as caught:
        api.aclrtSynchronizeStream(None)
    assert (caught.value.code, caught.value.name) == (107003, "ACL_ERROR_RT_STREAM_CONTEXT")
    assert caught.value.function == "aclrtSynchronizeStream"
    assert "stream is not in current ctx" in str(caught.value)
    assert api.unchecked.aclrtSynchronizeStream(None) == -7


def test_functions_that_return_something_else_return_it():
    name = ctypes.create_string_buffer(b"Ascend910B1")
    fake = FakeBackend(
        aclrtGetSocName=lambda: ctypes.addressof(name),
        aclFloat16ToFloat=lambda value: value / 2,
        aclDataTypeSize=lambda kind: 2**40 + kind,
        aclCreateDataBuffer=lambda data, size: data + size,
        aclAppLog=lambda level, func, file, line, fmt: None,
    )
    api = raw.load(fake)
    assert api.aclrtGetSocName() == b"Ascend910B1"
    assert api.aclFloat16ToFloat(3) == 1.5
    assert api.aclDataTypeSize(-1) == 2**40 - 1
    made = api.aclCreateDataBuffer(2**60, 5)
    assert isinstance(made, types.aclDataBuffer) and made.value == 2**60 + 5
    assert api.aclAppLog(1, b"f", b"x.py", 3, b"%d %s", 5, b"text") is None


@pytest.mark.parametrize("version", ["8.5.0", "9.0.0", "9.1.0", "9.2.0-beta.2"])
def test_text_that_c_only_reads_is_bytes_where_the_header_forgot_const(version):
    """And the functions by which a program tells the versions that aclrtGetVersion does not."""
    api = raw.load(f"sim:Ascend910B1@{version}")
    text, number = ctypes.create_string_buffer(constants.ACL_PKG_VERSION_MAX_SIZE), ctypes.c_int32()
    api.aclsysGetVersionStr(b"runtime", text)
    api.aclsysGetVersionNum(b"runtime", number)
    assert text.value.decode() == version and number.value > 80000000
    kept = b"an object that nothing may change"
    for call in (api, api.unchecked):
        with pytest.raises(ctypes.ArgumentError):
            call.aclsysGetVersionStr(b"runtime", kept)
    assert kept == b"an object that nothing may " + b"change"
    said = r"versionStr \(char \*\): bytes does not pass; C writes to it, give ctypes.create_string_buffer\(size\)"
    with pytest.raises(ctypes.ArgumentError, match=said):
        api.aclsysGetVersionStr(b"runtime", kept)


def test_an_instance_passes_where_c_takes_its_address():
    def create(out):
        ctypes.c_void_p.from_address(out).value = 2**48 + 8
        return 0

    api = raw.load(FakeBackend(aclrtCreateStream=create))
    for argument in (stream := types.aclrtStream(), ctypes.byref(stream), ctypes.pointer(stream)):
        stream.value = None
        api.aclrtCreateStream(argument)
        assert stream.value == 2**48 + 8
    with pytest.raises(TypeError, match="stream"):
        api.aclrtCreateStream()
    with pytest.raises(TypeError):
        api.aclrtCreateStream(stream, 1)
    api.aclrtCreateStream(stream=stream)
    assert str(inspect.signature(api.aclrtCreateStream)) == "(stream)"
    assert "aclError aclrtCreateStream(aclrtStream *stream)" in api.aclrtCreateStream.__doc__


def test_structures_by_value_and_wide_numbers_arrive():
    seen = []
    fake = FakeBackend(
        version="9.2.0-beta.2",
        aclrtLaunchSIMTKernelWithHostArgs=lambda *a: seen.append((a[0], a[1].x, a[1].z, a[2].y, *a[3:])) or 0,
        aclrtSetDevice=lambda device: seen.append(device) or 0,
    )
    api = raw.load(fake)
    grid, block = types.dim3(48, 2, 3), types.dim3(256, 7, 1)
    api.aclrtLaunchSIMTKernelWithHostArgs(2**63, grid, block, 2**40, None, None, 16, 2**33, None, 9)
    api.aclrtSetDevice(-3)
    assert seen == [(2**63, 48, 3, 7, 2**40, 0, 0, 16, 2**33, 0, 9), -3]


def test_older_declarations_are_bound_for_older_versions():
    old = raw.load(FakeBackend(version="8.5.0", aclrtSnapShotProcessLock=lambda: 0))
    new = raw.load(FakeBackend(version="9.1.0", aclrtSnapShotProcessLock=lambda pid, reserve: pid))
    assert old.aclrtSnapShotProcessLock() == 0
    with pytest.raises(TypeError):
        old.aclrtSnapShotProcessLock(7, None)
    assert new.unchecked.aclrtSnapShotProcessLock(7, None) == 7


def test_callbacks_take_none_an_address_or_an_object():
    seen = []
    api = raw.load(FakeBackend(aclrtSetExceptionInfoCallback=lambda address: seen.append(address) or 0))
    callback = types.aclrtExceptionInfoCallback(lambda info: None)
    for value in (None, 4096, callback):
        api.aclrtSetExceptionInfoCallback(value)
    assert seen == [0, 4096, ctypes.cast(callback, ctypes.c_void_p).value]
    with pytest.raises(ctypes.ArgumentError, match="aclrtExceptionInfoCallback"):
        api.aclrtSetExceptionInfoCallback(lambda info: None)


def test_what_a_backend_lacks_raises_when_called():
    api = raw.load(FakeBackend(version="8.1.RC1"))
    assert not api.has("aclrtMemPoolCreate")
    for call in (api.aclrtMemPoolCreate, api.unchecked.aclrtMemPoolCreate):
        with pytest.raises(errors.MissingFunctionError, match=r"CANN from 9\.0\.0 on .* CANN 8\.1\.RC1"):
            call(None, None)
    with pytest.raises(errors.MissingFunctionError, match="no CANN release exports it"):
        api.aclrtCreateStreamV2(None, None)
    for ask in (
        lambda: api.aclrtMallok,
        lambda: api.has("aclrtMallok"),
        lambda: raw.load(api.backend).unchecked.aclrtMallok,
    ):
        with pytest.raises(AttributeError, match="did you mean aclrtMalloc"):
            ask()


@pytest.mark.parametrize("wrong", MISSPELT)
def test_misspelt_names_are_told(wrong):
    assert MISSPELT[wrong] in FUNCTIONS and wrong not in FUNCTIONS
    with pytest.raises(AttributeError, match=MISSPELT[wrong]):
        getattr(raw.load(FakeBackend()), wrong)


def test_an_exception_behind_an_address_reaches_the_caller():
    def broken(*arguments):
        raise KeyError("inside the fake")

    api = raw.load(FakeBackend(aclrtSetDevice=broken, aclDataTypeSize=broken, aclGetRecentErrMsg=lambda: 0))
    assert api.unchecked.aclrtSetDevice(0) == SENTINEL != 0
    assert isinstance(take_pending(), KeyError) and take_pending() is None
    for call in (api.aclrtSetDevice, api.aclDataTypeSize):
        with pytest.raises(KeyError, match="inside the fake") as caught:
            call(0)
        assert caught.traceback[-1].name == "broken"
    # it belongs to the thread that made the call
    api.unchecked.aclrtSetDevice(0)
    others = []
    thread = threading.Thread(target=lambda: others.append(take_pending()))
    thread.start()
    thread.join()
    assert others == [None] and isinstance(take_pending(), KeyError)


def test_an_exception_of_an_unchecked_call_is_not_the_reason_of_a_later_failure():
    def broken(device):
        raise KeyError("of the unchecked call")

    functions = {
        "aclrtSetDevice": broken,
        "aclrtSynchronizeStream": lambda stream: 107003,
        "aclGetRecentErrMsg": lambda: 0,
    }
    api = raw.load(FakeBackend(**functions, aclDataTypeSize=lambda kind: 4))
    api.unchecked.aclrtSetDevice(0)
    with pytest.raises(errors.AclError) as caught:
        api.aclrtSynchronizeStream(None)
    assert caught.value.code == 107003 and caught.value.__context__ is None
    api.unchecked.aclrtSetDevice(0)
    assert api.aclDataTypeSize(0) == 4


def test_binding_from_many_threads_gives_one_function():
    api = raw.load(FakeBackend(aclrtSetDevice=lambda device: 0))
    barrier, found = threading.Barrier(8), []

    def bind():
        barrier.wait()
        found.append(api.aclrtSetDevice)

    threads = [threading.Thread(target=bind) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(found) == 8 and len(set(map(id, found))) == 1


@pytest.mark.parametrize("spec", ["", "simulator", "library:", "sim:", "cuda"])
def test_backends_that_do_not_exist_are_refused(spec):
    with pytest.raises(ValueError, match="say 'library'"):
        raw.load(spec)


def test_something_that_is_no_backend_is_refused():
    with pytest.raises(TypeError, match="address"):
        raw.load(3)


# ------------------------------------------------------------------------------------------------------- the files


def test_generated_files_are_what_the_tool_makes():
    done = subprocess.run(
        [sys.executable, "tools/generate_raw.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_stubs_name_every_function_type_and_constant():
    folder = Path(pyacl.__file__).parent / "raw"
    names = {
        p: {n.name for n in ast.walk(ast.parse((folder / p).read_text("utf-8"))) if isinstance(n, ast.FunctionDef)}
        for p in ("__init__.pyi", "_signatures.pyi")
    }
    for found in names.values():
        assert set(FUNCTIONS) <= found
    for kind, module in TYPES.items():
        text = (folder / f"{module.__name__.rpartition('.')[2]}.pyi").read_text("utf-8")
        for name in (*TABLES[kind]["structs"], *TABLES[kind]["handles"], *TABLES[kind]["callbacks"]):
            assert re.search(rf"^class {name}\(", text, re.MULTILINE), name


def test_importing_raw_opens_nothing():
    code = (
        "import sys; import pyacl.raw as raw; raw.VERSIONS; "
        "print([m for m in sys.modules if m.startswith('pyacl.') and m.split('.')[1] not in ('raw', '_version')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
