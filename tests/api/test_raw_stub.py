"""Every C function called through ctypes against libraries that gcc made from the same data; structures likewise."""

from __future__ import annotations

import ctypes
import subprocess
import threading

import pytest
import stub

from pyacl import raw
from pyacl.errors import AclContextError, AclMemoryError, MissingFunctionError
from pyacl.raw import runtime_types, types
from pyacl.raw.functions import FUNCTIONS
from pyacl.raw.prototypes import ctype, parameter_type

SIGNED = (ctypes.c_int8, ctypes.c_int16, ctypes.c_int32, ctypes.c_int64)
UNSIGNED = (ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64)
VARIADIC = [name for name, row in FUNCTIONS.items() if row.variadic]


@pytest.fixture(scope="module")
def libraries():
    stub.require_gcc()
    return stub.libraries()


@pytest.fixture(scope="module")
def api(libraries):
    return raw.load(f"library:{libraries.folder}")


@pytest.fixture(autouse=True)
def fresh(libraries):
    libraries.reset()
    yield
    libraries.reset()


def sample(kind, number):
    """An argument unlike every other one, the bytes C must see for it, and what has to stay alive.

    Integers have their highest bit set, so that a value cut to 32 bits or widened with the wrong sign is seen.
    """
    if kind in SIGNED:
        value = -(2 ** (8 * ctypes.sizeof(kind) - 1)) + 1 + number
        return value, bytes(kind(value)), None
    if kind in UNSIGNED:
        value = 2 ** (8 * ctypes.sizeof(kind) - 1) + 1 + number
        return value, bytes(kind(value)), None
    if kind in (ctypes.c_float, ctypes.c_double):
        value = -1.5 - number
        return value, bytes(kind(value)), None
    if kind is ctypes.c_bool:
        return True, b"\1", None
    if kind is ctypes.c_char_p:
        value = b"text %d" % number
        return value, bytes(kind(value)), value
    if issubclass(kind, ctypes.c_void_p):
        value = 2**63 + 16 * (1 + number)
        return (kind(value) if kind is not ctypes.c_void_p else value), bytes(kind(value)), None
    if hasattr(kind, "argtypes"):  # a function pointer
        callback = kind(lambda *_: 0)
        return callback, bytes(callback), callback
    if issubclass(kind, ctypes.POINTER(ctypes.c_char)):
        target = ctypes.create_string_buffer(8)
        return target, bytes(ctypes.c_void_p(ctypes.addressof(target))), target
    if issubclass(kind, ctypes._Pointer):
        target = kind._type_()
        return target, bytes(ctypes.c_void_p(ctypes.addressof(target))), target
    assert issubclass(kind, (ctypes.Structure, ctypes.Union))
    value = kind.from_buffer_copy(bytes((7 * number + i) % 255 + 1 for i in range(ctypes.sizeof(kind))))
    return value, bytes(value), value


def over(names):
    """A check of many functions as one test: one for each costs more than what it checks. All that fail are named."""

    def decorate(check):
        def test(api, libraries):
            wrong = {}
            for name in names:
                libraries.reset()
                try:
                    check(name, api, libraries)
                except (Exception, pytest.fail.Exception) as error:
                    wrong[name] = f"{type(error).__name__}: {error}"
            assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())

        test.__name__ = test.__qualname__ = check.__name__
        return test

    return decorate


def call_with_samples(api, name):
    row = FUNCTIONS[name]
    return getattr(api, name)(*(sample(parameter_type(row, p), i)[0] for i, p in enumerate(row.params)))


def test_every_function_of_the_table_is_there(api):
    assert len(FUNCTIONS) == 516 + 748
    assert set(FUNCTIONS) == set(stub.all_functions())
    assert [name for name in FUNCTIONS if not api.has(name)] == []


@over(FUNCTIONS)
def test_every_argument_arrives(name, api, libraries):
    row = FUNCTIONS[name]
    made = [sample(parameter_type(row, p), i) for i, p in enumerate(row.params)]
    distinct = [expected for (_, expected, _), p in zip(made, row.params) if p.type != "bool"]
    assert len(set(distinct)) == len(distinct)

    getattr(api.unchecked, name)(*(argument for argument, _, _ in made))

    (call,) = libraries.calls(name)
    assert call.raw == tuple(expected for _, expected, _ in made)


@over(FUNCTIONS)
def test_every_result_arrives(name, api, libraries):
    row = FUNCTIONS[name]
    arguments = [sample(parameter_type(row, p), i)[0] for i, p in enumerate(row.params)]
    abi = stub.all_functions()[name]["returns_abi"]
    if abi == "void":
        assert getattr(api.unchecked, name)(*arguments) is None
        return
    text = ctypes.create_string_buffer(b"a text of C")
    if ctype(row.returns) is ctypes.c_char_p:
        told, expected = ctypes.addressof(text), b"a text of C"
    else:
        unsigned = {"u16": 2**15 + 5, "u32": 2**31 + 5, "u64": 2**63 + 5, "ptr": 2**63 + 16}
        expected = told = {"i32": -5, "f32": 2.5, **unsigned}[abi]
    libraries.set_result(name, told)
    result = getattr(api.unchecked, name)(*arguments)
    if isinstance(result, ctypes._Pointer):
        result = ctypes.cast(result, ctypes.c_void_p)
    assert getattr(result, "value", result) == expected


@over([name for name, row in FUNCTIONS.items() if not row.variadic])
def test_the_checked_call_takes_the_arguments_by_name(name, api, libraries):
    row = FUNCTIONS[name]
    names = [f"{p.name}_" if p.name == "in" else p.name for p in row.params]
    made = {name: sample(parameter_type(row, p), i) for i, (name, p) in enumerate(zip(names, row.params))}
    getattr(api, name)(**{key: argument for key, (argument, _, _) in made.items()})
    (call,) = libraries.calls(name)
    assert call.raw == tuple(expected for _, expected, _ in made.values())


@over([name for name, row in FUNCTIONS.items() if row.params])
def test_too_few_arguments_are_refused(name, api, libraries):
    with pytest.raises(TypeError):
        getattr(api, name)()
    assert libraries.calls(name) == []


@pytest.mark.parametrize("name", VARIADIC)
@pytest.mark.parametrize("checked", [True, False])
def test_variadic_arguments(name, checked, api, libraries):
    row = FUNCTIONS[name]
    arguments = [sample(parameter_type(row, p), i)[0] for i, p in enumerate(row.params)]
    arguments[-1] = b"%d %s %llu %.2f"
    more = (-7, b"text", ctypes.c_uint64(2**63 + 1), ctypes.c_double(2.5))
    getattr(api if checked else api.unchecked, name)(*arguments, *more)
    (call,) = libraries.calls(name)
    assert call.text == "-7 text 9223372036854775809 2.50"
    assert VARIADIC == ["aclAppLog", "acllogRecord"]


def test_out_parameters(api, libraries):
    libraries.set_output("aclrtMalloc", "devPtr", ctypes.c_uint64(0x12C0_4000_0000))
    libraries.set_output("aclrtGetMemInfo", "total", ctypes.c_uint64(2**40))
    address, total = ctypes.c_void_p(), ctypes.c_size_t()
    api.aclrtMalloc(address, 2**40, 0)
    api.aclrtGetMemInfo(0, ctypes.c_size_t(), total)
    assert (address.value, total.value) == (0x12C0_4000_0000, 2**40)


def test_a_failure_carries_the_librarys_text(api, libraries):
    libraries.fail("aclrtMalloc", 207001, "EL0004: [PID: 1] 2026-01-01-00:00:00.000.001 Failed to allocate memory.")
    libraries.work()
    with pytest.raises(AclMemoryError, match="Failed to allocate memory") as raised:
        api.aclrtMalloc(ctypes.c_void_p(), 2**40, 0)
    assert (raised.value.code, raised.value.function) == (207001, "aclrtMalloc")
    assert raised.value.raw_text.startswith("EL0004: [PID: 1]")


def test_the_working_stub_allocates_and_copies(api, libraries):
    libraries.work()
    api.aclInit(None)
    with pytest.raises(AclContextError):
        api.aclrtMalloc(ctypes.c_void_p(), 64, 0)
    api.aclrtSetDevice(1)
    device, stream, other = ctypes.c_void_p(), types.aclrtStream(), types.aclrtStream()
    api.aclrtMalloc(device, 64, 0)
    api.aclrtCreateStream(stream)
    api.aclrtCreateStreamWithConfig(other, 0, 1)
    assert stream.value and other.value and stream.value != other.value
    api.aclrtMemcpyAsync(device, 64, b"0123456789", 10, 1, stream)
    back = ctypes.create_string_buffer(10)
    api.aclrtMemcpy(back, 10, device, 10, 2)
    assert back.raw == b"0123456789"
    assert libraries.live() == ["aclrtMalloc", "aclrtCreateStream", "aclrtCreateStreamWithConfig"]
    api.aclrtDestroyStream(stream)
    api.aclrtDestroyStreamForce(other)
    api.aclrtFree(device)
    assert libraries.live() == []
    assert api.unchecked.aclrtFree(device) == 107000
    libraries.set_result("aclrtFree", 507899)
    assert api.unchecked.aclrtFree(None) == 507899


def test_the_log_keeps_the_order_and_the_thread(api, libraries):
    for i in range(200):
        api.aclrtSetDevice(i)
    thread = threading.Thread(target=api.aclrtSetDevice, args=(200,))
    thread.start()
    thread.join()
    calls = libraries.calls()
    assert [call.arguments for call in calls] == [(i,) for i in range(201)]
    assert calls[0].thread == calls[199].thread != calls[200].thread
    assert libraries.count() == 201


# -- an older version: other declarations, and functions that the library does not export


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    stub.require_gcc()
    library = stub.build("acl_rt", stub.names_in("acl_rt", "9.0.0"), "9.0.0")
    opened = stub.Stub(library.parent, "9.0.0")
    return opened, raw.load(f"library:{library.parent}")


def test_the_snapshot_calls_take_no_argument_before_9_1(old, api, libraries):
    opened, old_api = old
    assert (old_api.version, api.version) == ("9.0.0", "9.2.0-beta.2")
    names = [f"aclrtSnapShotProcess{what}" for what in ("Lock", "Unlock", "Backup", "Restore")]
    for name in names:
        assert getattr(old_api, name)() == 0
        assert opened.calls(name)[-1].arguments == ()
        with pytest.raises(TypeError):
            getattr(old_api, name)(1, None)
        call_with_samples(api, name)
        assert len(libraries.calls(name)[0].arguments) == 2


def test_functions_that_only_the_header_has(old):
    _, api = old
    unexported = [name for name, row in FUNCTIONS.items() if row.library == "acl_rt" and not row.exported]
    assert unexported == [
        "aclrtCreateStreamConfigHandle",
        "aclrtCreateStreamV2",
        "aclrtDestroyStreamConfigHandle",
        "aclrtProcessHostFunc",
        "aclrtSetStreamConfigOpt",
        "aclrtSubscribeHostFunc",
        "aclrtUnSubscribeHostFunc",
    ]
    for name in unexported:
        assert not api.has(name)
        with pytest.raises(MissingFunctionError, match=name):
            call_with_samples(api, name)


def test_a_function_of_a_newer_version_says_so(old):
    _, api = old
    newer = [n for n, r in FUNCTIONS.items() if r.library == "acl_rt" and r.since == "9.1.0" and r.exported]
    for name in newer:
        assert not api.has(name)
        with pytest.raises(MissingFunctionError, match=r"from 9\.1\.0 .* CANN 9\.0\.0"):
            call_with_samples(api, name)


# -- structures


def all_structures():
    return {**stub.table("runtime")["structs"], **stub.table("acl")["structs"]}


def paths(fields, prefix=""):
    """Every member of a structure by its C path, members of nested unnamed records included."""
    for field in fields:
        path = f"{prefix}{field['name']}" if field["name"] else ""
        if path:
            yield path, field
        if "anonymous" in field and "array_len" not in field:
            yield from paths(field["anonymous"]["fields"], f"{path}." if path else prefix)


def ctypes_class(name):
    return getattr(types, name, None) or getattr(runtime_types, name)


def member(kind, name):
    """Descriptor and type of a member, also of one that an unnamed record inside brings."""
    for field_name, field_type, *_ in kind._fields_:
        if field_name == name:
            return getattr(kind, name), field_type
    for inner in getattr(kind, "_anonymous_", ()):
        inner_type = dict((f[0], f[1]) for f in kind._fields_)[inner]
        found = member(inner_type, name)
        if found:
            return getattr(kind, name), found[1]
    return None


def ctypes_member(kind, path):
    """Offset and size of a member by its C path."""
    offset = 0
    for part in path.split("."):
        descriptor, kind = member(kind, part)
        offset += descriptor.offset
    return offset, ctypes.sizeof(kind)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What gcc says about every structure: size, alignment, members, and the bytes of each bit-field full of ones."""
    gcc = stub.require_gcc()
    structures = all_structures()
    lines = ["#include <stdint.h>", "#include <stddef.h>", "#include <stdio.h>", "#include <string.h>"]
    lines.append(stub.structure_text(structures))
    lines.append("int main(void) {")
    for name, entry in structures.items():
        kind = f"T_{name}"
        lines.append(f'printf("{name} . %zu %zu\\n", sizeof({kind}), _Alignof({kind}));')
        for path, field in paths(entry["fields"]):
            if "bit_width" in field:
                lines.append(
                    f'{{ {kind} x; memset(&x, 0, sizeof x); x.{path} = -1; printf("{name} {path} "); '
                    f'for (size_t i = 0; i < sizeof x; i++) printf("%02x", ((unsigned char *)&x)[i]); printf("\\n"); }}'
                )
            else:
                lines.append(
                    f'printf("{name} {path} %zu %zu\\n", offsetof({kind}, {path}), sizeof((({kind} *)0)->{path}));'
                )
    lines.append("return 0; }")
    folder = tmp_path_factory.mktemp("layout")
    (folder / "layout.c").write_text("\n".join(lines))
    subprocess.run([gcc, "-o", folder / "layout", folder / "layout.c"], check=True)
    found = {}
    for line in subprocess.run([folder / "layout"], check=True, capture_output=True, text=True).stdout.splitlines():
        name, path, *values = line.split()
        found.setdefault(name, {})[path] = tuple(values)
    return found


@pytest.mark.parametrize("name", all_structures())
def test_every_structure_is_laid_out_as_gcc_does_it(name, measured):
    kind = ctypes_class(name)
    assert (str(ctypes.sizeof(kind)), str(ctypes.alignment(kind))) == measured[name]["."]
    for path, field in paths(all_structures()[name]["fields"]):
        if "bit_width" in field:
            value = kind()
            holder = value
            *outer, last = path.split(".")
            for part in outer:
                holder = getattr(holder, part)
            setattr(holder, last, -1)
            assert (bytes(value).hex(),) == measured[name][path], path
        else:
            offset, size = ctypes_member(kind, path)
            assert (str(offset), str(size)) == measured[name][path], path
