"""Reading a shared library's file: whatever its bytes are, it is described or refused."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyacl.backends import shared_object
from pyacl.backends.shared_object import NotLoadable, SharedObject


def header(machine=62, kind=3, first=64, count=2):
    """An ELF header, up to the program headers."""
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    numbers = [(kind, 2), (machine, 2), (1, 4), (0, 8), (first, 8), (0, 8), (0, 4), (64, 2), (56, 2), (count, 2)]
    return (ident + b"".join(value.to_bytes(size, "little") for value, size in numbers)).ljust(64, b"\0")


def segment(kind, start, virtual, size):
    fields = [(kind, 4), (0, 4), (start, 8), (virtual, 8), (0, 8), (size, 8), (size, 8), (8, 8)]
    return b"".join(value.to_bytes(length, "little") for value, length in fields)


STRINGS = b"\0libx.so\0liby.so.1\0libz.so\0"
DYNAMIC = b"".join(n.to_bytes(8, "little") for n in (14, 1, 1, 9, 1, 19, 5, 0x1000 + 64 + 112, 0, 0))
SEGMENTS = segment(1, 0, 0x1000, 400) + segment(2, 64 + 112 + len(STRINGS), 0x2000, len(DYNAMIC))
LIBRARY = header() + SEGMENTS + STRINGS + DYNAMIC


def describe(path, data):
    path.write_bytes(data)
    return shared_object.read(str(path))


def test_a_library_made_by_hand(tmp_path):
    described = describe(tmp_path / "libx.so", LIBRARY)
    assert described == SharedObject("x86_64", "libx.so", ("liby.so.1", "libz.so"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other libraries")
def test_a_library_of_this_interpreter():
    import _ctypes

    described = shared_object.read(_ctypes.__file__)
    assert described.machine in ("x86_64", "aarch64")
    assert any(name.startswith("libc.so") for name in described.needed)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "too short"),
        (b"!<arch>\n" + bytes(80), "no ELF file"),
        (b"\x7fELF\x01\x01" + bytes(80), "not a 64-bit little-endian library"),
        (b"\x7fELF\x02\x02" + bytes(80), "not a 64-bit little-endian library"),
        (header(kind=2), "an ELF file for x86_64, but no shared library"),
        (header(machine=243), "damaged ELF file"),
        (LIBRARY[:200], "damaged ELF file"),
        (header(first=2**64 - 1), "damaged ELF file"),
    ],
)
def test_what_is_no_library(tmp_path, data, said):
    with pytest.raises(NotLoadable, match=said):
        describe(tmp_path / "libx.so", data)


def test_a_library_for_a_host_that_cann_does_not_know(tmp_path):
    assert describe(tmp_path / "libx.so", header(machine=243, count=0)).machine == "machine 243"


@settings(max_examples=400, deadline=None)
@given(st.integers(0, len(LIBRARY) - 1), st.binary(min_size=1, max_size=9), st.integers(0, len(LIBRARY)))
def test_a_damaged_library_is_described_or_refused(tmp_path_factory, at, damage, length):
    data = (LIBRARY[:at] + damage + LIBRARY[at + len(damage) :])[: max(length, 1)]
    try:
        described = describe(tmp_path_factory.mktemp("x") / "libx.so", data)
    except NotLoadable:
        return
    assert isinstance(described, SharedObject)
    assert len(described.needed) <= len(data)


@pytest.mark.parametrize(
    ("path", "stub"),
    [
        ("/usr/local/Ascend/cann/x86_64-linux/devlib/libascendcl.so", True),
        ("/usr/local/Ascend/ascend-toolkit/latest/runtime/lib64/stub/libascendcl.so", True),
        ("/usr/local/Ascend/cann/runtime/devlib/linux/x86_64/libascendcl.so", True),
        ("/opt/stub/linux/x86_64/libascend_hal.so", True),
        ("/usr/local/Ascend/cann/lib64/libascendcl.so", False),
        ("/home/stub/Ascend/cann/lib64/libascendcl.so", False),
    ],
)
def test_where_stubs_lie(path, stub):
    assert shared_object.is_stub_path(path) is stub


def test_a_stub_by_its_content(tmp_path):
    file = tmp_path / "libascendcl.so"
    file.write_bytes(LIBRARY)
    assert not shared_object.is_stub(str(file))
    file.write_bytes(LIBRARY + b"stub library cannot be used for execution")
    assert shared_object.is_stub(str(file))
    file.write_bytes(b"")
    assert not shared_object.is_stub(str(file))
