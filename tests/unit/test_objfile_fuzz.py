"""Whatever the bytes are, the inspector answers or raises KernelObjectError; where pyelftools answers, they agree."""

from __future__ import annotations

import random
from io import BytesIO

import pytest
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import mutate

from pyacl.objfile import KernelObjectError, read
from pyacl.objfile.elf import SHT_NOBITS, Elf
from pyacl.testing import KernelSpec, make_archive, make_host_object, make_kernel_object, make_sidecar

SEEDS = [
    make_kernel_object("add_custom", code_size=64),
    make_kernel_object("mm", core="mix", roles=["input", "output", "tiling"], tiling_key=3, code_size=64),
    make_kernel_object(["a", KernelSpec("b", core="mix", sync=True)], arch="dav-3510", debug=["printf"], code_size=64),
    make_kernel_object("k", arch="dav-2002", metadata=False, data=b"data" * 9, code_size=64),
    make_kernel_object("k", arch="dav-3510", relocatable=True, implicit=(2, 4), code_size=64),
]
SEEDS += [
    make_host_object(SEEDS[0], ".aicore_binary"),
    make_host_object(SEEDS[1] + bytes(5) + SEEDS[2], ".data"),
    make_archive({"one.o": make_host_object(SEEDS[4]), "a_name_too_long_for_the_header.o": SEEDS[0]}),
]


def inspect(data: bytes) -> bool:
    """Read everything there is to read; whether it was accepted."""
    try:
        obj = read(data)
    except KernelObjectError as error:
        assert str(error)
        return False
    obj.to_dict()
    obj.verdict("Ascend910B1")
    try:
        obj.extract()
    except KernelObjectError as error:
        assert str(error)
    return True


@pytest.mark.parametrize("seed", range(20))
def test_mutated_objects(seed: int) -> None:
    rng = random.Random(seed)
    accepted = sum(inspect(mutate(rng, rng.choice(SEEDS), SEEDS)) for _ in range(100))
    # the mutations must neither break everything nor nothing
    assert 10 <= accepted <= 90


@pytest.mark.parametrize("seed", range(10))
def test_pyelftools_agrees_on_what_both_accept(seed: int) -> None:
    rng = random.Random(1000 + seed)
    compared = 0
    for _ in range(100):
        data = mutate(rng, rng.choice(SEEDS[:6]), SEEDS)
        try:
            ours = Elf(data)
            symbols = ours.symbols()
        except KernelObjectError:
            continue
        if not ours.header.shnum:
            continue  # pyelftools then looks for an extended count, the runtime refuses the file
        try:
            theirs = ELFFile(BytesIO(data))
            sections = list(theirs.iter_sections())
            table = next(
                (s for s in sections if s["sh_type"] == "SHT_SYMTAB" and s["sh_entsize"] and s["sh_size"]), None
            )
            their_symbols = [] if table is None else list(table.iter_symbols())
        except (ELFError, ValueError, TypeError, AttributeError, LookupError, AssertionError, ArithmeticError):
            continue
        compared += 1
        assert (ours.header.flags, ours.header.machine) == (theirs["e_flags"], _machine(theirs))
        assert len(ours.sections) == len(sections)
        for section, other in zip(ours.sections, sections):
            fields = (section.offset, section.size, section.flags, section.addr, section.link, section.entsize)
            assert fields == tuple(other["sh_" + key] for key in ("offset", "size", "flags", "addr", "link", "entsize"))
            if _comparable(section.name, other.name) and section.type != 0:
                assert section.name == other.name
            if section.type not in (0, SHT_NOBITS) and not section.flags & 0x800:  # 0x800: compressed
                assert ours.content(section) == other.data()
        assert [(s.value, s.size) for s in symbols] == [(s["st_value"], s["st_size"]) for s in their_symbols]
        for symbol, other in zip(symbols, their_symbols):
            if _comparable(symbol.name, other.name):
                assert symbol.name == other.name
    assert compared >= 20


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_behind_an_elf_header(tail: bytes) -> None:
    inspect(SEEDS[0][:64] + tail)
    inspect(b"!<arch>\n" + tail)
    inspect(tail)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_metadata(data: st.DataObject) -> None:
    """The sections the runtime reads, filled with anything."""
    out = bytearray(SEEDS[2])
    for section in Elf(SEEDS[2]).sections:
        if section.name.startswith((".ascend", "__CCE")):
            out[section.offset : section.offset + section.size] = data.draw(
                st.binary(min_size=section.size, max_size=section.size)
            )
    assert inspect(bytes(out))


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_sidecar(value: object) -> None:
    data = make_kernel_object("k", metadata=False)
    for key in ("magic", "intercoreSync", "debugOptions", "coreType", "taskRation", "opParaSize", "Cpu"):
        obj = read(data, sidecar={key: value})
        obj.verdict()
        obj.to_dict()
    read(data, sidecar=make_sidecar(debugOptions=str(value))).verdict()


def _comparable(ours: str, theirs: str) -> bool:
    """Not when the name is not UTF-8 (shown in two ways), and not when it is name 0 (none for ELF and for us)."""
    return "\ufffd" not in theirs and ours != ""


def _machine(elf: ELFFile) -> int:
    names = {"EM_X86_64": 62, "EM_AARCH64": 183}
    machine = elf["e_machine"]
    if isinstance(machine, int):
        return machine
    from elftools.elf.enums import ENUM_E_MACHINE

    return int(names.get(machine, ENUM_E_MACHINE.get(machine, -1)))
