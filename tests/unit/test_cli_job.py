"""The job of `pyacl run`: arguments as text, the values they stand for, job files, and refusals that help."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pyacl.cli import job as jobs
from pyacl.cli.job import Argument, Job, JobError, read_job


@pytest.fixture
def x16(tmp_path):
    x = np.arange(12, dtype=np.float16).reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    return x


def values(kind, text, folder, **more):
    return Argument.parse(kind, text, folder).source.array(**more)


# -- inputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, shape",
    [
        ("x.npy", (3, 4)),
        ("x.npy:float16", (3, 4)),
        ("x.npy:f16[3,4]", (3, 4)),
        ("x.bin:float16", (12,)),
        ("x.bin:half[3, 4]", (3, 4)),
        ("x.bin:f16[2,2,3]", (2, 2, 3)),
    ],
)
def test_files(tmp_path, x16, text, shape):
    array = values("in", text, tmp_path)
    assert array.dtype == np.float16 and array.shape == shape
    assert array.tobytes() == x16.tobytes()


def test_generated_values(tmp_path):
    zeros = values("in", "zeros:i32[2,3]", tmp_path)
    assert zeros.dtype == np.int32 and zeros.tolist() == [[0] * 3] * 2
    assert values("in", "arange:float32[4]", tmp_path).tolist() == [0, 1, 2, 3]
    first = values("in", "random:float16[1000]", tmp_path, seed=1)
    assert first.dtype == np.float16 and -1 <= first.min() < -0.9 and 0.9 < first.max() <= 1
    assert (first == values("in", "random:float16[1000]", tmp_path, seed=1)).all()
    assert (first != values("in", "random:float16[1000]", tmp_path, seed=2)).any()
    signed, unsigned = (values("in", f"random:{t}[1000]", tmp_path) for t in ("i8", "u64"))
    assert (signed.min(), signed.max()) == (-100, 100) and (unsigned.min(), unsigned.max()) == (0, 100)
    assert set(values("in", "random:bool[99]", tmp_path).tolist()) == {True, False}


def test_a_missing_dtype_may_come_from_elsewhere(tmp_path, x16):
    like = np.zeros((3, 4), np.float16)
    assert values("in", "x.bin", tmp_path, like=like).tolist() == x16.tolist()
    assert values("in", "zeros", tmp_path, like=like).shape == (3, 4)


@given(
    array=npst.arrays(
        st.sampled_from(
            ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32", "bool"]
        ),
        npst.array_shapes(min_dims=1, max_dims=3, max_side=5),
    )
)
def test_raw_bytes_come_back_as_they_were(tmp_path_factory, array):
    folder = tmp_path_factory.mktemp("raw")
    jobs.save(array, folder / "a.bin")
    jobs.save(array, folder / "a.npy")
    shape = ",".join(map(str, array.shape))
    raw = values("in", f"a.bin:{array.dtype.name}[{shape}]", folder)
    npy = values("in", "a.npy", folder)
    for found in (raw, npy):
        assert found.dtype == array.dtype and found.shape == array.shape and found.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "kind, text, message",
    [
        ("in", "missing.npy", r"--in missing\.npy: there is no file .*missing\.npy"),
        ("in", "randm:float16[4]", r"--in randm:float16\[4\]: there is no file .*randm; did you mean random\?"),
        ("in", "x.bin", r"file of bare bytes .* say what they are, x\.bin:float16"),
        ("in", "x.bin:float32[3,4]", r"holds 6 values of float32, \[3, 4\] are 12"),
        ("in", "odd.bin:f16", r"has 3 bytes, no multiple of 2 \(float16\)"),
        ("in", "empty.bin:f16", "is empty"),
        (
            "in",
            "x.npy:float32",
            r"holds float16, not float32; convert it with .*\.astype\('float32'\)",
        ),
        ("in", "x.npy:float16[12]", r"has the shape \[3, 4\], not \[12\]"),
        ("in", "broken.npy", r"cannot be read as a \.npy file"),
        ("in", "big.npy", r"big\.npy holds float32 in the other byte order, which the device cannot read"),
        ("in", "zeros", r"zeros needs a dtype and a shape: zeros:float16\[16384\]"),
        ("in", "random:f16", "random needs a dtype and a shape"),
    ],
)
def test_values_that_cannot_be_had(tmp_path, x16, kind, text, message):
    (tmp_path / "odd.bin").write_bytes(b"abc")
    (tmp_path / "empty.bin").write_bytes(b"")
    (tmp_path / "broken.npy").write_bytes(b"not numpy's")
    np.save(tmp_path / "big.npy", np.zeros(3, ">f4"))
    with pytest.raises(JobError, match=message):
        values(kind, text, tmp_path)


@pytest.mark.parametrize(
    "kind, text, message",
    [
        ("in", "x.bin:flaot16", r"--in x\.bin:flaot16: 'flaot16' is no dtype; did you mean float16"),
        ("in", "x.bin:complex64[4]", "'complex64' is no dtype; there are float16, float32"),
        ("in", "x.bin:float16[a]", r"\[a\] is no shape; write positive numbers"),
        ("in", "x.bin:float16[0]", r"\[0\] is no shape"),
        ("in", "x.bin:[4]", r"write FILE:DTYPE\[SHAPE\]"),
        ("in", "float16[4]", "where do the values come from"),
        ("out", "z.npy", r"an output needs a dtype and a shape: --out z\.npy:float16\[16384\]"),
        ("out", "z.npy:float16", "an output needs a dtype and a shape"),
        ("inout", "x.npy=", r"after = comes the file for the result: --inout x\.npy=new\.npy"),
        ("scalar", "5", "a scalar needs its type, because the kernel reads exactly so many bytes: u32:5"),
        ("scalar", "u8:256", "256 does not fit uint8: 0 to 255"),
        ("scalar", "u32:-1", "-1 does not fit uint32: 0 to 4294967295"),
        ("scalar", "f16:1e6", "1e6 does not fit float16"),
        ("scalar", "i32:1.5", r"'1\.5' is no int32"),
        ("scalar", "bool:2", "'2' is no bool"),
        ("scalar", "u33:1", "'u33' is no dtype; did you mean u3"),
        ("placeholder", "i32:1,x", "'x' is no int32"),
        ("placeholder", "i33:1", "'i33' is no dtype"),
        ("tiling", "t.bin:struct", ":value .* or :pointer, not :struct"),
        ("tiling", "t.bin@16", "@4 or @8"),
        ("workspace", "much", "give a number of bytes, as 4096, 64K or 16M"),
        ("workspace", "0", "give a number of bytes"),
        ("input", "x.npy", "'input' is no kind of argument; those are in, out, inout, scalar, placeholder"),
    ],
)
def test_texts_that_say_nothing_useful(kind, text, message):
    with pytest.raises(JobError, match=message):
        Argument.parse(kind, text)


def test_bfloat16(tmp_path, monkeypatch):
    import ml_dtypes

    assert values("in", "zeros:bf16[4]", tmp_path).dtype == ml_dtypes.bfloat16
    scalar = Argument.parse("scalar", "bf16:1.5").value
    assert scalar == 1.5 and scalar.dtype == ml_dtypes.bfloat16
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(JobError, match="pip install ml_dtypes"):
        Argument.parse("in", "zeros:bfloat16[4]")


# -- the other kinds -------------------------------------------------------------------------------------------------


def test_outputs(tmp_path):
    out = Argument.parse("out", "z.npy:float16[2,3]", tmp_path)
    assert out.file == tmp_path / "z.npy"
    assert out.target.array().tolist() == [[0] * 3] * 2 and out.target.dtype == np.float16
    assert Argument.parse("out", "i32[4]").file is None
    both = Argument.parse("inout", "zeros:f32[4]=new.bin", tmp_path)
    assert both.file == tmp_path / "new.bin" and both.source.array().shape == (4,)
    assert Argument.parse("inout", "zeros:f32[4]").file is None


def test_outputs_are_written(tmp_path):
    jobs.save(np.arange(3, dtype=np.int32), tmp_path / "z.npy")
    jobs.save(np.arange(3, dtype=np.int32), tmp_path / "z.bin")
    assert np.load(tmp_path / "z.npy").tolist() == [0, 1, 2]
    assert (tmp_path / "z.bin").read_bytes() == bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0])


@pytest.mark.parametrize(
    "text, value",
    [
        ("u32:16384", np.uint32(16384)),
        ("i64:-5", np.int64(-5)),
        ("u8:0xff", np.uint8(255)),
        ("f32:0.1", np.float32(0.1)),
        ("float16:1", np.float16(1)),
        ("f64:-inf", np.float64("-inf")),
        ("f16:inf", np.float16("inf")),
        ("bool:true", np.bool_(True)),
        ("bool:0", np.bool_(False)),
    ],
)
def test_scalars(text, value):
    found = Argument.parse("scalar", text).value
    assert found == value and found.dtype == value.dtype


def test_placeholders(tmp_path):
    assert Argument.parse("placeholder", "i32:8").value.tobytes() == np.int32(8).tobytes()
    several = Argument.parse("placeholder", "u16:1,2,3").value
    assert several.dtype == np.uint16 and several.tolist() == [1, 2, 3]
    (tmp_path / "p.bin").write_bytes(b"abc")
    assert values("placeholder", "p.bin", tmp_path).tobytes() == b"abc"
    assert values("placeholder", "arange:u8[3]", tmp_path).tolist() == [0, 1, 2]


def test_tiling_and_workspace(tmp_path):
    (tmp_path / "t.bin").write_bytes(b"12345678")
    plain = Argument.parse("tiling", "t.bin", tmp_path)
    assert plain.source.array().tobytes() == b"12345678" and plain.by_pointer is None and plain.align == 0
    assert Argument.parse("tiling", "t.bin:pointer").by_pointer is True
    by_value = Argument.parse("tiling", "t.bin@8:value")
    assert by_value.by_pointer is False and by_value.align == 8
    assert [Argument.parse("workspace", t).value for t in ("4096", "64K", "16m")] == [4096, 65536, 16 << 20]


# -- job files -------------------------------------------------------------------------------------------------------

TOML = """\
object = "add_custom.o"
kernel = "add_custom"
blocks = 8
arguments = [{in = "x.npy"}, {in = "/data/y.npy"}, {out = "z.npy:float16[16384]"}, {workspace = 4096}]
check = "expected.npy"
rtol = 1e-3
timeout = 10
emulate = "kernels.py:add_custom"
attribute = "schem_mode=batch"
"""


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_file_can_hold_the_same(tmp_path, suffix):
    if suffix == ".json":
        tables = [{"in": "x.npy"}, {"in": "/data/y.npy"}, {"out": "z.npy:float16[16384]"}, {"workspace": 4096}]
        text = json.dumps(
            {"object": "add_custom.o", "kernel": "add_custom", "blocks": 8, "arguments": tables,
             "check": ["expected.npy"], "rtol": 1e-3, "timeout": 10,
             "emulate": "kernels.py:add_custom", "attribute": ["schem_mode=batch"]}
        )  # fmt: skip
    else:
        text = TOML
    path = tmp_path / f"job{suffix}"
    path.write_text(text)
    found = read_job(path)
    assert found.object == tmp_path / "add_custom.o" and found.kernel == "add_custom" and found.blocks == 8
    assert [(a.kind, a.text) for a in found.arguments] == [
        ("in", "x.npy"), ("in", "/data/y.npy"), ("out", "z.npy:float16[16384]"), ("workspace", "4096"),
    ]  # fmt: skip
    assert found.arguments[0].source.origin == tmp_path / "x.npy"
    assert str(found.arguments[1].source.origin) == "/data/y.npy"
    assert found.arguments[2].file == tmp_path / "z.npy"
    assert found.check[0].origin == tmp_path / "expected.npy"
    assert (found.rtol, found.timeout, type(found.timeout)) == (1e-3, 10.0, float)
    assert found.emulate == f"{tmp_path}/kernels.py:add_custom" and found.attribute == ("schem_mode=batch",)
    assert jobs.anchored("package.module:f", tmp_path) == "package.module:f"
    assert found.repeat is None


def test_the_command_line_goes_over_the_file():
    file = Job(kernel="a", blocks=8, arguments=(Argument.parse("workspace", "8"),), rtol=1e-3)
    merged = Job(blocks=4, repeat=10).over(file)
    assert (merged.kernel, merged.blocks, merged.repeat, merged.rtol) == ("a", 4, 10, 1e-3)
    assert merged.arguments == file.arguments
    assert Job(arguments=(Argument.parse("workspace", "16"),)).over(file).arguments[0].value == 16


@pytest.mark.parametrize(
    "text, message",
    [
        ('kernl = "a"', "there is no option 'kernl'; did you mean kernel"),
        ("xyz = 1", "there is no option 'xyz'; there are object, kernel, blocks"),
        ('blocks = "8"', "blocks = '8' is no int"),
        ("blocks = true", "blocks = True is no int"),
        ("blocks = 8.0", r"blocks = 8\.0 is no int"),
        ("kernel = 3", "kernel = 3 is no str"),
        ("check = [1]", r"check = \[1\] is no str"),
        ('arguments = ["x.npy"]', r'argument 1 is no table with one entry, such as \{in = "x\.npy"\}'),
        ('arguments = [{in = "x.npy", out = "z.npy"}]', "argument 1 is no table with one entry"),
        ('arguments = [{inn = "x.npy"}]', "'inn' is no kind of argument"),
        ("arguments = [{scalar = 5}]", "a scalar needs its type"),
        ("blocks = ", r"job\.toml: "),
    ],
)
def test_files_that_are_wrong(tmp_path, text, message):
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(JobError, match=message):
        read_job(path)


def test_files_that_are_no_jobs(tmp_path):
    with pytest.raises(JobError, match=r"no\.json cannot be read"):
        read_job(tmp_path / "no.json")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(JobError, match="a job is an object with keys, not a list"):
        read_job(tmp_path / "list.json")
    (tmp_path / "half.json").write_text("{")
    with pytest.raises(JobError, match=r"half\.json: Expecting"):
        read_job(tmp_path / "half.json")
