"""How arguments become bytes: which values are taken, how wide they are, where they lie, and what is refused."""

from __future__ import annotations

import ctypes
import dataclasses
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyacl.arguments import In, InOut, Layout, Out, Packer, Placeholder, parse_signature


class Buffer:
    """Stands for a DeviceBuffer: whatever has an address on the device is a pointer."""

    def __init__(self, address: int) -> None:
        self.address = address

    @property
    def __npu_address__(self) -> int:
        return self.address


class Tiling(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_uint16), ("scale", ctypes.c_double), ("tail", ctypes.c_uint8)]


def block(*args: object, signature: object = None) -> bytes:
    return Packer("add_custom", signature).pack(args).block


X, Y, Z = Buffer(0x12C0_0000_1000), Buffer(0x12C0_0000_2000), Buffer(0x12C0_0000_3000)
ADDRESSES = struct.pack("<3Q", 0x12C0_0000_1000, 0x12C0_0000_2000, 0x12C0_0000_3000)


@dataclasses.dataclass
class Inside:
    """Annotations are text here, as they are in every module that has them so."""

    on: np.bool_
    half: np.float16


@dataclasses.dataclass
class TilingFields:
    length: np.uint32
    tiles: np.int16
    scale: ctypes.c_float
    inside: Inside
    last: np.uint64 = 77


class TestLayout:
    def test_pointers(self) -> None:
        assert block(X, Y, Z) == ADDRESSES

    def test_two_32_bit_scalars_share_8_bytes(self) -> None:
        # the documented trap: one append for each argument would put the second at 16
        packed = Packer("k").pack((X, np.int32(-2), np.int32(7)))
        assert packed.layout.offsets == (0, 8, 12)
        assert packed.block == struct.pack("<Qii", 0x12C0_0000_1000, -2, 7)

    def test_narrow_scalars_take_4_bytes(self) -> None:
        packed = Packer("k").pack((X, np.int8(-1), np.int8(2)))
        assert packed.layout.offsets == (0, 8, 12)
        assert packed.block == struct.pack("<Qb3xb3x", 0x12C0_0000_1000, -1, 2)

    def test_a_pointer_after_a_scalar_is_aligned(self) -> None:
        assert Packer("k").pack((X, np.int32(1), Y)).layout.offsets == (0, 8, 16)

    def test_the_tail_is_padded_to_8(self) -> None:
        assert block(np.uint32(5)) == b"\5\0\0\0\0\0\0\0"

    def test_no_arguments(self) -> None:
        assert block() == b""
        assert block(signature="") == b""

    def test_a_layout_is_made_once_for_a_kind_of_arguments(self) -> None:
        packer = Packer("k")
        first = packer.pack((X, np.float16(1))).layout
        assert packer.pack((Y, np.float16(2))).layout is first
        assert packer.pack((Y, np.float32(2))).layout is not first


class TestValuesOfTheirOwnWidth:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (np.bool_(True), b"\1"),
            (np.int8(-3), b"\xfd"),
            (np.uint16(0xBEEF), b"\xef\xbe"),
            (np.int64(-1), b"\xff" * 8),
            (np.uint64(2**64 - 1), b"\xff" * 8),
            (np.float16(1.5), b"\x00\x3e"),
            (np.float32(1.5), b"\x00\x00\xc0\x3f"),
            (np.float64(1.5), b"\0\0\0\0\0\0\xf8\x3f"),
            (ctypes.c_int8(-3), b"\xfd"),
            (ctypes.c_uint32(7), b"\7\0\0\0"),
            (ctypes.c_double(1.5), b"\0\0\0\0\0\0\xf8\x3f"),
            (ctypes.c_bool(True), b"\1"),
            (ctypes.c_void_p(0x1000), b"\x00\x10" + b"\0" * 6),
            (ctypes.c_void_p(None), b"\0" * 8),
        ],
    )
    def test_scalars(self, value: object, expected: bytes) -> None:
        assert block(value) == expected.ljust(8, b"\0")

    def test_bfloat16_of_ml_dtypes(self) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        assert block(ml_dtypes.bfloat16(1.5)) == b"\xc0\x3f" + b"\0" * 6
        assert block(ml_dtypes.float8_e5m2(1.5)) == b"\x3e" + b"\0" * 7

    def test_nan_payloads_survive(self) -> None:
        nan = np.frombuffer(b"\x01\x7e", np.float16)[0]
        assert block(nan)[:2] == b"\x01\x7e"
        assert block(nan, signature="f16")[:2] == b"\x01\x7e"

    def test_a_structured_scalar_goes_by_value(self) -> None:
        dtype = np.dtype([("n", np.uint16), ("scale", np.float64)], align=True)
        value = np.array((7, 0.5), dtype)[()]
        packed = Packer("k").pack((np.int32(1), value, np.int8(2)))
        assert packed.layout.offsets == (0, 8, 24)
        assert packed.block == struct.pack("<i4xH6xdb7x", 1, 7, 0.5, 2)

    def test_a_structured_scalar_of_4_byte_fields_is_aligned_to_4(self) -> None:
        value = np.array((7, 9, 11), [("a", np.uint32), ("b", np.uint32), ("c", np.uint32)])[()]
        packed = Packer("k").pack((np.int32(1), value))
        assert packed.layout.offsets == (0, 4)
        assert packed.block == struct.pack("<iIII", 1, 7, 9, 11)

    def test_the_bytes_between_fields_are_zero(self) -> None:
        dtype = np.dtype([("a", np.uint8), ("b", np.uint32), ("c", np.uint8, (2,))], align=True)
        value = np.frombuffer(b"\xff" * 12, dtype)[0]
        for signature in (None, [dtype]):
            assert block(value, signature=signature)[:12] == b"\xff\0\0\0\xff\xff\xff\xff\xff\xff\0\0"

    def test_nested_records_and_arrays_inside(self) -> None:
        inner = np.dtype([("a", np.uint8), ("b", np.uint32, (2,))], align=True)
        outer = np.dtype([("x", np.uint8), ("inner", inner, (2,))], align=True)
        packed = Packer("k").pack((np.zeros((), outer)[()],))
        assert packed.layout.size == 32 and packed.layout.parameters[0].align == 4

    def test_a_packed_record_is_refused(self) -> None:
        value = np.array((7, 0.5), [("n", np.uint16), ("scale", np.float64)])[()]
        with pytest.raises(TypeError, match="k: argument 1 of 1: the fields .* do not lie where C puts them.*align"):
            Packer("k").pack((value,))

    def test_a_ctypes_structure_goes_by_value(self) -> None:
        packed = Packer("k").pack((np.int32(1), Tiling(3, 0.25, 9), np.int32(2)))
        assert packed.layout.offsets == (0, 8, 32)
        assert packed.block == struct.pack("<i4xH6xdB7xi4x", 1, 3, 0.25, 9, 2)

    def test_a_dataclass_of_typed_values_is_the_c_struct(self) -> None:
        @dataclasses.dataclass
        class Inner:
            flag: np.uint8
            length: np.uint32

        @dataclasses.dataclass
        class Outer:
            first: np.uint8
            second: np.int8
            inner: Inner
            scale: ctypes.c_double

        value = Outer(np.uint8(1), np.int8(-2), Inner(np.uint8(3), np.uint32(4)), ctypes.c_double(0.5))
        packed = Packer("k").pack((np.int32(9), value))
        assert packed.layout.offsets == (0, 8)
        assert packed.block == struct.pack("<i4xBb2xB3xI4xd", 9, 1, -2, 3, 4, 0.5)

    def test_a_dataclass_with_a_bare_number_names_the_field(self) -> None:
        @dataclasses.dataclass
        class Shape:
            rows: int

        with pytest.raises(TypeError, match="argument 1 of 1: field 'rows' of Shape: a bare Python int has no width"):
            block(Shape(3))

    def test_annotations_give_a_dataclass_its_widths(self) -> None:
        value = TilingFields(16384, -8, 0.5, Inside(True, np.float16(2)))
        packed = Packer("k").pack((np.int32(9), value))
        assert packed.layout.offsets == (0, 8)
        assert packed.block == struct.pack("<i4xIh2xf?xeQ", 9, 16384, -8, 0.5, True, 2.0, 77)
        declared = Packer("k", ["i32", TilingFields])
        assert declared.declared is not None and declared.declared[1].text == "struct TilingFields"
        assert declared.pack((9, value)).block == packed.block
        assert declared.pack((9, packed.block[8:])).block == packed.block
        with pytest.raises(TypeError, match=r"argument 2 of 2 \(struct TilingFields\): a TilingFields of size 24 due"):
            declared.pack((9, 3))
        with pytest.raises(ValueError, match="field 'tiles' of TilingFields: 40000 does not fit: the range"):
            Packer("k").pack((np.int32(9), dataclasses.replace(value, tiles=40000)))
        with pytest.raises(
            TypeError, match="field 'inside' of TilingFields: field 'half' of Inside: a Python float or a"
        ):
            Packer("k").pack((np.int32(9), dataclasses.replace(value, inside=Inside(False, np.float32(1)))))

    def test_a_dataclass_in_a_signature_needs_annotations_with_a_width(self) -> None:
        @dataclasses.dataclass
        class Shape:
            rows: np.uint32
            columns: int

        @dataclasses.dataclass
        class Nothing:
            pass

        with pytest.raises(TypeError, match="Shape in a signature: the annotation of 'columns' has no width"):
            parse_signature([Shape])
        with pytest.raises(TypeError, match="Nothing has no fields"):
            parse_signature([Nothing])
        assert block(Shape(3, np.uint16(4))) == struct.pack("<IH2x", 3, 4)

    @pytest.mark.parametrize(("size", "offset"), [(4, 4), (5, 4), (12, 4), (20, 4)])
    def test_bytes_whose_size_tells_the_alignment(self, size: int, offset: int) -> None:
        assert Packer("k").pack((np.int32(1), b"x" * size)).layout.offsets == (0, offset)

    def test_bytes_of_open_alignment(self) -> None:
        assert Packer("k").pack((X, b"x" * 16)).layout.offsets == (0, 8)
        with pytest.raises(TypeError, match="k: argument 2 of 2: 16 bytes can be aligned to 4 or to 8.*bytes16@4"):
            Packer("k").pack((np.int32(1), b"x" * 16))
        assert Packer("k", "i32 bytes16@4").pack((1, b"x" * 16)).layout.offsets == (0, 4)
        assert Packer("k", "i32 bytes16@8").pack((1, b"x" * 16)).layout.offsets == (0, 8)


class TestRefused:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (5, r"bare Python int has no width: pass numpy.int32\(5\), or declare"),
            (5.0, r"bare Python float has no width: pass numpy.float32\(5.0\), or declare"),
            (True, r"bare Python bool has no width: pass numpy.bool_\(True\), or declare"),
            (None, r"None has no width: pass ctypes.c_void_p\(0\)"),
            (np.zeros(3, np.float16), r"numpy array \(float16\[3\]\) is host memory.*to_device.*pyacl.In"),
            ("text", "str is no argument of a kernel"),
            ([1], "list is no argument of a kernel"),
            (np.complex64(1), "no parameter of dtype complex64"),
            (np.longdouble(1), "no parameter of dtype"),
            (np.datetime64("2024-01-01"), "no parameter of dtype"),
            (ctypes.c_char_p(b"x"), "points into host memory"),
            (ctypes.pointer(ctypes.c_int(1)), "is a host address"),
            (b"", "empty bytes"),
            (np.array((1,), [("a", ">i4")])[()], "big-endian"),
        ],
    )
    def test_undeclared(self, value: object, text: str) -> None:
        with pytest.raises(TypeError, match=f"add_custom: argument 2 of 2: .*{text}"):
            block(X, value)


class TestDeclared:
    def test_python_numbers(self) -> None:
        assert block(X, 5, -1, 1.5, True, signature="ptr u32 i8 f16 bool") == struct.pack(
            "<QIb3xe2x?3x", 0x12C0_0000_1000, 5, -1, 1.5, True
        )

    def test_separators_names_and_spellings(self) -> None:
        for text in ("u32 f16 i64", "u32, f16, i64", "n:uint32 s:half k:int64_t", "uint32_t float16 int64"):
            assert [p.text for p in parse_signature(text)] == ["u32", "f16", "i64"]

    def test_a_list_of_dtypes_and_classes(self) -> None:
        record = np.dtype([("a", np.uint16), ("b", np.uint32)], align=True)
        signature = ["ptr", np.uint32, np.dtype("f2"), ctypes.c_int16, ctypes.c_void_p, record, Tiling, bool]
        assert [(p.text, p.size) for p in parse_signature(signature)] == [
            ("ptr", 8), ("u32", 4), ("f16", 2), ("i16", 2), ("ptr", 8), ("struct of 8 bytes", 8), ("Tiling", 24),
            ("bool", 1),
        ]  # fmt: skip
        packed = Packer("k", signature).pack(
            (X, 1, 2.0, 3, None, np.array((4, 5), record)[()], Tiling(1, 2.0, 3), False)
        )
        assert packed.layout.offsets == (0, 8, 12, 16, 24, 32, 40, 64)

    def test_none_is_a_null_pointer(self) -> None:
        assert block(None, signature="ptr") == b"\0" * 8

    @pytest.mark.parametrize("word", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
    def test_integer_range(self, word: str) -> None:
        bits = int(word[1:])
        low, high = (0, 2**bits - 1) if word[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for value in (low, high):
            raw = block(value, signature=word)
            assert int.from_bytes(raw[: bits // 8], "little", signed=word[0] == "i") == value
        for value in (low - 1, high + 1):
            with pytest.raises(ValueError, match=rf"add_custom: argument 1 of 1 \({word}\): .* the range is {low} to"):
                block(value, signature=word)

    @pytest.mark.parametrize(
        ("word", "value", "text"),
        [
            ("u32", 1.0, "a Python int or a uint32 is due, not the Python float 1.0"),
            ("u32", True, "a Python int or a uint32 is due, not the Python bool True"),
            ("u32", np.int64(5), "due, not int64: pass int\\(value\\) or numpy.uint32\\(value\\)"),
            ("u32", np.int32(5), "a Python int or a uint32 is due, not int32"),
            ("u32", X, "not Buffer"),
            ("f16", np.float32(1), "due, not float32: pass float\\(value\\) or numpy.float16\\("),
            ("f16", True, "a Python float or a float16 is due, not the Python bool True"),
            ("bf16", np.float16(1), "a Python float or an ml_dtypes.bfloat16 is due, not float16"),
            ("bool", 1, "a bool is due, not the Python int 1"),
            ("ptr", 0x1000, "a number .4096. is no pointer.*DeviceBuffer.borrow"),
            ("ptr", np.uint64(0x1000), "is no pointer"),
            ("ptr", np.zeros(2), "a pointer is due, not a numpy array of float64: .*host memory"),
            ("bytes8", b"1234567", "8 bytes are due, not 7"),
            ("bytes8", 5, "bytes of size 8 due, not the Python int 5"),
        ],
    )
    def test_wrong_type(self, word: str, value: object, text: str) -> None:
        with pytest.raises(TypeError, match=rf"add_custom: argument 2 of 2 \({word}\): .*{text}"):
            block(X, value, signature=f"ptr {word}")

    def test_the_declared_name_is_said(self) -> None:
        with pytest.raises(TypeError, match=r"argument 2 of 2 \(count: u32\)"):
            block(X, 1.0, signature="x:ptr count:u32")

    @pytest.mark.parametrize("count", [0, 2, 4])
    def test_wrong_count(self, count: int) -> None:
        with pytest.raises(TypeError, match=r"add_custom takes 3 arguments \(ptr ptr u32\), not"):
            block(*[X] * count, signature="ptr ptr u32")

    @pytest.mark.parametrize("word", ["f16", "f32", "bf16"])
    def test_too_large_for_the_float(self, word: str) -> None:
        with pytest.raises(ValueError, match=r"argument 1 of 1 .*1e\+39 is too large"):
            block(1e39, signature=word)
        limit = {"f16": "e", "f32": "f"}.get(word)
        if limit:
            assert block(float("inf"), signature=word)[: struct.calcsize(limit)] == struct.pack(limit, float("inf"))

    @pytest.mark.parametrize(
        "signature", ["u33", "ptr int32**", "bytes8@3", "bytes12@8", "a-b:u32", "bytes", "bytes0", "bytes0@4"]
    )
    def test_bad_words(self, signature: str) -> None:
        with pytest.raises(ValueError, match="in a signature"):
            parse_signature(signature)

    @pytest.mark.parametrize("entry", [object, 5, [3, "x"], np.dtype("O"), np.dtype("c8"), "U4"])
    def test_bad_entries(self, entry: object) -> None:
        with pytest.raises((TypeError, ValueError)):
            parse_signature([entry])

    @pytest.mark.parametrize(
        "signature, message",
        [
            (5, "signature: text such as 'ptr ptr u32' or a sequence, not int"),
            (["ptr", np.dtype(">u4")], r"dtype\('>u4'\) in a signature is big-endian; .* write uint32"),
        ],
    )
    def test_what_is_no_signature(self, signature: Any, message: str) -> None:
        with pytest.raises(TypeError, match=message):
            parse_signature(signature)

    @given(st.floats(width=32))
    def test_bf16_rounds_as_ml_dtypes_does(self, value: float) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        with np.errstate(all="ignore"):
            expected = np.float32(value).astype(ml_dtypes.bfloat16)
        if np.isfinite(value) and np.isinf(expected):
            with pytest.raises(ValueError, match="too large"):
                block(value, signature="bf16")
        elif np.isnan(value):
            raw = np.frombuffer(block(value, signature="bf16")[:2], ml_dtypes.bfloat16)[0]
            assert np.isnan(raw)
        else:
            assert block(value, signature="bf16")[:2] == expected.tobytes()


class TestPlaceholders:
    def test_a_placeholder_is_a_pointer_and_its_data(self) -> None:
        packed = Packer("k").pack((X, Y, Z, Placeholder(np.int32(16384)), Placeholder(np.int32(8))))
        assert packed.block == ADDRESSES + bytes(16)
        assert packed.placeholders == (struct.pack("<i", 16384), struct.pack("<i", 8))
        # the layout that the official placeholder sample gets from the library: data at 48 and 56, 60 bytes in all
        assert packed.layout.offsets == (0, 8, 16, 24, 32)
        assert packed.layout.place([4, 4]) == ((48, 56), 60)

    def test_hidden_slots_move_the_data(self) -> None:
        layout = Packer("k").pack((X, Placeholder(b"abc"))).layout
        assert layout.place([3, 8, 1], lead=8, trail=8) == ((32, 40, 48), 49)
        assert layout.place([3], lead=0, trail=0) == ((16,), 19)

    def test_the_block_falls_into_pieces_between_placeholders(self) -> None:
        packed = Packer("k").pack((np.int8(1), np.int8(2), Placeholder(b"data"), np.int32(3), np.int32(4), X))
        assert packed.layout.offsets == (0, 4, 8, 16, 20, 24)
        pieces = [(p.offset, p.first, p.end, p.packer.size) for p in packed.layout.pieces]
        assert pieces == [(0, 0, 2, 8), (16, 3, 6, 16)]
        joined = bytearray(packed.layout.size)
        for piece in packed.layout.pieces:
            piece.packer.pack_into(joined, piece.offset, *packed.values[piece.first : piece.end])
        assert bytes(joined) == packed.block

    def test_pieces_are_multiples_of_8(self) -> None:
        # every append starts at a multiple of 8, so a piece must end at one
        layout = Packer("k").pack((np.int32(1), Placeholder(b"1"), Placeholder(b"2"), np.int8(1))).layout
        assert [(p.offset, p.packer.size) for p in layout.pieces] == [(0, 8), (24, 8)]

    @pytest.mark.parametrize(
        "data",
        [np.arange(3, dtype=np.int16), np.uint16(7), ctypes.c_uint16(7), Tiling(1, 2.0, 3), b"abc", bytearray(b"abc")],
    )
    def test_what_it_holds(self, data: object) -> None:
        expected = data.tobytes() if isinstance(data, (np.ndarray, np.generic)) else bytes(data)  # type: ignore[call-overload]
        assert Placeholder(data).data == expected

    def test_the_bytes_between_fields_are_zero(self) -> None:
        dtype = np.dtype([("a", np.uint8), ("b", np.uint16)], align=True)
        assert Placeholder(np.frombuffer(b"\xff" * 8, dtype)).data == b"\xff\0\xff\xff" * 2

    def test_it_copies(self) -> None:
        array = np.array([1, 2], np.int16)
        placeholder = Placeholder(array)
        array[:] = 9
        assert placeholder.data == struct.pack("<2h", 1, 2)

    @pytest.mark.parametrize(
        ("data", "error"), [(5, TypeError), ("x", TypeError), (b"", ValueError), (np.array([object()]), TypeError)]
    )
    def test_refused(self, data: object, error: type[Exception]) -> None:
        with pytest.raises(error, match="placeholder"):
            Placeholder(data)

    def test_in_a_declared_signature_it_is_a_pointer(self) -> None:
        packer = Packer("k", "ptr ptr u32")
        packed = packer.pack((X, Placeholder(b"1234"), 5))
        assert packed.layout.placeholders == (1,)
        assert packer.pack((X, Y, 5)).layout.placeholders == ()
        with pytest.raises(TypeError, match=r"k: argument 3 of 3 \(u32\): a Placeholder is a pointer"):
            packer.pack((X, Y, Placeholder(b"1234")))


class TestHostArrays:
    def test_directions(self) -> None:
        array = np.zeros(4, np.float16)
        assert [(kind.reads, kind.writes) for kind in (In, Out, InOut)] == [(True, False), (False, True), (True, True)]
        assert In(array).array is array
        assert repr(Out(array)) == "Out(float16[4])"

    def test_refused(self) -> None:
        frozen = np.zeros(2)
        frozen.flags.writeable = False
        assert In(frozen).array is frozen
        for kind in (Out, InOut):
            with pytest.raises(ValueError, match="read-only"):
                kind(frozen)
        for kind in (In, Out, InOut):
            with pytest.raises(TypeError, match="takes a numpy array.*not list"):
                kind([1, 2])
            with pytest.raises(TypeError, match="Python objects"):
                kind(np.array([object()]))


def test_a_layout_prints_where_things_are() -> None:
    assert repr(Layout(parse_signature("ptr u8 u16"))) == "<Layout of 16 bytes: ptr at 0, u8 at 8, u16 at 12>"
