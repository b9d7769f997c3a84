"""`pyacl run` on the simulator: what it computes, writes, checks, times and refuses, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyacl
from pyacl import sim
from pyacl.cli import main
from pyacl.testing import make_kernel_object

KERNELS = """\
import numpy as np
from pathlib import Path
from pyacl import sim

SHARES = np.dtype([("length", "u4"), ("scale", "f4")])

def add_custom(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]):
    z[:] = x + y

def wrong_place(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]):
    z[:] = x / undefined

def scaled(x: sim.In[np.float32], y: sim.InOut[np.float32], n: np.uint32, factor: np.float32):
    y[:n] += x[:n] * factor

def counted(x: sim.In[np.int32], length: sim.In[np.int32], tiles: sim.In[np.uint16], z: sim.Out[np.int32]):
    z[: length[0]] = x[: length[0]] * int(tiles.sum())

def tiled(x: sim.In[np.float32], work: sim.InOut[np.uint8], z: sim.Out[np.float32], shares: sim.Struct[SHARES]):
    assert not work.any()
    z[: shares["length"]] = x[: shares["length"]] * shares["scale"]

def tiled_by_pointer(x: sim.In[np.float32], z: sim.Out[np.float32], shares: sim.In[SHARES]):
    z[: shares[0]["length"]] = x[: shares[0]["length"]] * shares[0]["scale"]

def no_annotations(x, y, z):
    pass
"""
N = 256
OUT = f"z.npy:float16[{N}]"
ADD = ["add_custom.o", "--kernel", "add_custom", "--blocks", "8", "--in", "x.npy", "--in", "y.npy", "--out", OUT]
EMULATED = [*ADD, "--emulate", "kernels.py:add_custom"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where one stands: a kernel object, inputs, what is expected, the emulations."""
    from pyacl.backends.sim.engine.kernels import EMULATIONS

    registered = dict(EMULATIONS)
    EMULATIONS.clear()
    monkeypatch.chdir(tmp_path)
    pyacl.use_backend("sim")
    x, y = np.arange(N, dtype=np.float16), np.linspace(-1, 1, N).astype(np.float16)
    np.save("x.npy", x)
    np.save("y.npy", y)
    np.save("expected.npy", x + y)
    (tmp_path / "add_custom.o").write_bytes(make_kernel_object("add_custom"))
    (tmp_path / "kernels.py").write_text(KERNELS)
    yield tmp_path
    sys.modules.pop("kernels", None)
    EMULATIONS.clear()
    EMULATIONS.update(registered)


@pytest.fixture
def run(capsys):
    def call(*words):
        code = main(["run", *words])
        return (code, *capsys.readouterr())

    return call


# -- what it does ----------------------------------------------------------------------------------------------------


def test_the_command_of_the_documentation(run):
    code, out, err = run(
        *EMULATED, "--repeat", "100", "--warmup", "10", "--device", "0", "--timeout", "10", "--check", "expected.npy",
        "--rtol", "1e-3",
    )  # fmt: skip
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "add_custom[8] on device 0 (Ascend910B1, simulated)"
    assert lines[3].split() == [
        "out", OUT, "float16[256]", "as", "expected", "(rtol", "0.001,", "atol", "0;", "largest", "difference", "0)",
    ]  # fmt: skip
    assert lines[4].startswith("  100 launches: min ") and lines[4].endswith("GB/s (simulated time)")
    assert (np.load("z.npy") == np.load("expected.npy")).all()


def test_the_same_as_json(run):
    code, out, _ = run(*EMULATED, "--repeat", "300", "--check", "expected.npy", "--json")
    report = json.loads(out)
    assert code == 0 and report["ok"] is True and report["exit_code"] == 0
    assert report["device"] == {"id": 0, "name": "Ascend910B1"} and report["kernel"] == "add_custom"
    assert report["backend"].startswith("sim") and report["blocks"] == 8
    assert [a["kind"] for a in report["arguments"]] == ["in", "in", "out"]
    assert report["arguments"][2] == {
        "kind": "out", "text": OUT, "dtype": "float16", "shape": [N], "file": "z.npy",
    }  # fmt: skip
    (check,) = report["check"]
    assert check == {"ok": True, "values": N, "different": 0, "largest_difference": 0, "rtol": 0, "atol": 0}
    time = report["time"]
    assert time["launches"] == 300 and time["warmup"] == 0
    assert 0 < time["min_us"] <= time["median_us"] <= time["max_us"]
    assert time["bytes"] == 3 * 2 * N and time["gb_per_s"] == time["bytes"] / time["median_us"] / 1000


def test_a_result_that_is_not_as_expected(run):
    wrong = np.load("expected.npy")
    wrong[5] += 1
    np.save("wrong.npy", wrong)
    code, out, _ = run(*EMULATED, "--check", "wrong.npy")
    assert code == 1
    assert "NOT as expected (exactly): 1 of 256 values differ, the first at [5]: 4.039" in out
    assert run(*EMULATED, "--check", "wrong.npy", "--atol", "1.01")[0] == 0
    assert run(*EMULATED, "--check", "wrong.npy", "--rtol", "0.1")[0] == 1
    report = json.loads(run(*EMULATED, "--check", "wrong.npy", "--json")[1])
    assert report["ok"] is False and report["exit_code"] == 1 and report["check"][0]["first"]["index"] == [5]


def test_expected_values_may_be_bare_bytes_or_made(run):
    np.load("expected.npy").tofile("expected.bin")
    assert run(*EMULATED, "--check", "expected.bin")[0] == 0
    assert run(*EMULATED, "--check", "zeros")[0] == 1


def test_infinities_and_nans_are_compared(run):
    x = np.load("x.npy")
    x[:3] = np.nan, np.inf, -np.inf
    np.save("x.npy", x)
    np.save("expected.npy", x + np.load("y.npy"))
    assert run(*EMULATED, "--check", "expected.npy", "--rtol", "1e-3")[0] == 0
    np.save("expected.npy", -(x + np.load("y.npy")))
    assert run(*EMULATED, "--check", "expected.npy", "--rtol", "1e-3")[0] == 1


def test_large_integers_are_compared_exactly(run, folder):
    (folder / "counted.o").write_bytes(make_kernel_object("counted", args=4))
    words = [
        "counted.o", "--blocks", "1", "--in", "arange:i32[8]", "--placeholder", "i32:8", "--placeholder", "u16:2,3",
        "--out", "z.bin:i32[8]", "--emulate", "kernels.py:counted",
    ]  # fmt: skip
    np.save("expected.npy", np.arange(8, dtype=np.int32) * 5)
    assert run(*words, "--check", "expected.npy")[0] == 0
    assert np.fromfile("z.bin", np.int32).tolist() == [0, 5, 10, 15, 20, 25, 30, 35]


def test_scalars_and_inout(run, folder):
    (folder / "scaled.o").write_bytes(make_kernel_object("scaled", args=[8, 8, 4, 4], roles=[]))
    words = [
        "scaled.o", "--blocks", "2", "--in", "arange:float32[16]", "--inout", "zeros:f32[16]=new.npy", "--scalar",
        "u32:8", "--scalar", "f32:0.5", "--emulate", "kernels.py:scaled",
    ]  # fmt: skip
    # the result is that of the first launch, however often it is repeated
    code, out, _ = run(*words, "--repeat", "3", "--warmup", "2", "--json")
    assert code == 0
    assert np.load("new.npy").tolist() == [*(i / 2 for i in range(8)), *[0] * 8]
    assert json.loads(out)["time"]["bytes"] == 4 * 16 * 3


@pytest.mark.parametrize("text", ["shares.bin", "shares.bin:value", "shares.bin@4", "shares.npy", "words.npy"])
def test_tiling_by_value(run, folder, text):
    (folder / "tiled.o").write_bytes(make_kernel_object("tiled", args=[8, 8, 8, 8], roles=[]))
    shares = np.array((6, 2.0), np.dtype([("length", "u4"), ("scale", "f4")]))
    shares.tofile("shares.bin")
    np.save("shares.npy", shares)
    np.save("words.npy", np.frombuffer(shares.tobytes(), np.uint32))
    code, *_ = run(
        "tiled.o", "--blocks", "1", "--in", "arange:f32[8]", "--workspace", "1K", "--out", "z.npy:f32[8]", "--tiling",
        text, "--emulate", "kernels.py:tiled",
    )  # fmt: skip
    assert code == 0
    assert np.load("z.npy").tolist() == [0, 2, 4, 6, 8, 10, 0, 0]


@pytest.mark.parametrize("roles", [None, ["input", "output", "tiling"]])
def test_tiling_by_pointer(run, folder, roles):
    (folder / "t.o").write_bytes(make_kernel_object("tiled_by_pointer", args=3, roles=roles))
    np.array((6, 2.0), np.dtype([("length", "u4"), ("scale", "f4")])).tofile("shares.bin")
    words = ["t.o", "--blocks", "1", "--in", "arange:f32[8]", "--out", "z.npy:f32[8]", "--tiling"]
    assert run(*words, "shares.bin", "--emulate", "kernels.py:tiled_by_pointer")[0] == 0
    assert np.load("z.npy").tolist() == [0, 2, 4, 6, 8, 10, 0, 0]
    assert run(*words, "shares.bin:pointer", "--emulate", "kernels.py:tiled_by_pointer")[0] == 0


def test_arguments_keep_the_order_in_which_they_are_written(run, folder):
    (folder / "scaled.o").write_bytes(make_kernel_object("scaled", args=[8, 8, 4, 4], roles=[]))
    code, _, err = run(
        "scaled.o", "--blocks", "2", "--scalar", "u32:8", "--scalar", "f32:0.5", "--in", "arange:f32[16]", "--inout",
        "zeros:f32[16]", "--emulate", "kernels.py:scaled",
    )  # fmt: skip
    assert code == 2
    assert "--scalar u32:8: scaled takes a pointer to memory, such as --in or --out give, for x, not a number" in err


def test_launch_attributes_signature_and_seed(run):
    assert run(*EMULATED, "--attribute", "schem_mode=batch", "--attribute", "timeout=5")[0] == 0
    assert run(*EMULATED, "--signature", "x:ptr y:ptr z:ptr")[0] == 0
    random = [w.replace("x.npy", f"random:float16[{N}]") for w in EMULATED]
    outputs = []
    for seed in ("1", "1", "2"):
        assert run(*random, "--seed", seed)[0] == 0
        outputs.append(np.load("z.npy"))
    assert (outputs[0] == outputs[1]).all() and (outputs[0] != outputs[2]).any()


def test_the_only_kernel_needs_no_name(run, folder):
    assert run(*(w for w in EMULATED if w not in ("--kernel", "add_custom")))[0] == 0
    (folder / "add_custom.o").write_bytes(make_kernel_object(["add_custom", "sub_custom"]))
    code, _, err = run(*(w for w in EMULATED if w not in ("--kernel", "add_custom")))
    assert code == 2 and "has 2 kernels: --kernel add_custom or sub_custom" in err


def test_a_job_file(run, folder):
    elsewhere = folder / "jobs"
    elsewhere.mkdir()
    (elsewhere / "job.toml").write_text(
        'object = "../add_custom.o"\nkernel = "add_custom"\nblocks = 8\n'
        'arguments = [{in = "../x.npy"}, {in = "../y.npy"}, {out = "z.npy:float16[256]"}]\n'
        'emulate = "../kernels.py:add_custom"\ncheck = ["../expected.npy"]\nrtol = 1e-3\n'
    )
    code, out, _ = run("jobs/job.toml", "--blocks", "4")
    assert code == 0 and out.startswith("add_custom[4] on device 0") and "as expected" in out
    assert (elsewhere / "z.npy").exists()
    # arguments on the command line take the place of all those in the file
    code, _, err = run("jobs/job.toml", "--in", "x.npy")
    assert code == 2 and "1 --check for 0 outputs" in err
    (elsewhere / "job.json").write_text('{"blocks": 8}')
    code, _, err = run("jobs/job.json")
    assert code == 2 and 'jobs/job.json says no object: object = "add_custom.o"' in err


def test_an_emulation_from_a_module(run, folder, monkeypatch):
    (folder / "emulated_kernels.py").write_text(KERNELS)
    assert run(*ADD, "--emulate", "emulated_kernels:add_custom")[0] == 0
    sys.modules.pop("emulated_kernels")


def test_kernels_registered_already_need_no_option(run):
    @sim.kernel
    def add_custom(x: sim.In[np.float16], y: sim.In[np.float16], z: sim.Out[np.float16]):
        z[:] = x + y

    assert run(*ADD, "--check", "expected.npy")[0] == 0


def test_another_backend(run):
    code, out, _ = run(*EMULATED, "--backend", "sim:Ascend910B4")
    assert code == 0 and "(Ascend910B4, simulated)" in out


def test_from_the_shell(folder):
    environ = {**os.environ, "PYACL_BACKEND": "sim"}
    command = [sys.executable, "-m", "pyacl", "run", *EMULATED, "--check", "expected.npy"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "as expected" in done.stdout
    done = subprocess.run([*command, "--check", "x.npy"], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "pyacl run: 2 --check for 1 outputs; each is for one --out or --inout, in order\n"


# -- what it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, message",
    [
        # name
        (["--kernel", "add_custm"], "no kernel 'add_custm' in add_custom.o. Did you mean add_custom?"),
        # count
        (["--scalar", "u32:1"], "add_custom takes 3 arguments (x, y, z), not 4\nthe arguments are\n  1: --in x.npy"),
        # blocks
        (["--blocks", "0"], "blocks: 0 is not in 1 to 65535"),
        (["--blocks", "70000"], "blocks: 70000 is not in 1 to 65535"),
        (["--check", "f64.npy"], "--check f64.npy: holds float64[256], the output is float16[256]; they must be"),
        (["--check", "short.npy"], "--check short.npy: holds float16[255], the output is float16[256]"),
        (["--rtol", "1e-3"], "--rtol and --atol are for --check, which is missing"),
        (["--check", "x.npy", "--rtol", "-1"], "--rtol -1.0: at least 0"),
        (["--check", "x.npy", "--rtol", "nan"], "--rtol nan: at least 0"),
        (["--attribute", "schem_mode"], "write NAME=VALUE, such as schem_mode=batch"),
        (["--attribute", "schem_mod=1"], "--attribute schem_mod=1: there is no attribute 'schem_mod'; did you mean sc"),
        (["--attribute", "cores=8"], "there is no attribute 'cores'; there are schem_mode, dyn_ubuf_size, engine_type"),
        (["--seed", "-1"], "--seed -1: at least 0"),
        (["--attribute", "schem_mode=fast"], "'fast' is none of 'normal' (0), 'batch' (1)"),
        (["--signature", "ptr ptr"], "--signature 'ptr ptr': add_custom takes 3 arguments"),
        (["--signature", "ptr ptr pointr"], "'pointr' in a signature is none of ptr, i8 to i64"),
        (["--device", "7"], "7"),
        (["--backend", "simulator"], "--backend simulator: "),
        (["--emulate", "kernels.py"], "write MODULE:FUNCTION or FILE.py:FUNCTION"),
        (["--emulate", "broken.py:f"], "broken.py cannot be imported: SyntaxError: "),
        (["--emulate", "dividing:f"], "dividing cannot be imported: ZeroDivisionError: division by zero"),
        (["--emulate", "nowhere.py:f"], "there is no file nowhere.py"),
        (["--emulate", "no_module_of_this_name:f"], "cannot be imported: No module named"),
        (["--emulate", "kernels.py:add"], "kernels.py has no function add; it has add_custom, wrong_place, scaled"),
        (["--emulate", "kernels.py:no_annotations"], "kernels.py:no_annotations: kernel add_custom: the param"),
    ],
)  # fmt: skip
def test_options_that_are_wrong(run, words, message):
    np.save("f64.npy", np.zeros(N))
    np.save("short.npy", np.zeros(N - 1, np.float16))
    Path("broken.py").write_text("def f(:\n")
    Path("dividing.py").write_text("1 / 0\n")
    code, out, err = run(*EMULATED, *words)
    assert (code, out) == (2, "")
    assert err.startswith("pyacl run: ") and message in err


@pytest.mark.parametrize(
    "function, tiling, message",
    [
        (
            "tiled",
            "t.bin",
            "takes a struct by value for shares, this gives a pointer to a struct: write --tiling t.bin:v",
        ),
        (
            "tiled",
            "t.bin@8:pointer",
            "takes a struct by value for shares, this gives a pointer to a struct: write --til",
        ),
        ("tiled", "long.bin:value", "takes a struct of 8 bytes for shares, not 16"),
        (
            "tiled_by_pointer",
            "t.bin:value",
            "takes a pointer to a struct for shares, this gives a struct by value: wri",
        ),
    ],
)
def test_a_struct_on_the_wrong_way(run, function, tiling, message):
    Path("t.bin").write_bytes(bytes(8))
    Path("long.bin").write_bytes(bytes(16))
    count = 4 if function == "tiled" else 3
    Path(f"{function}.o").write_bytes(make_kernel_object(function, args=[8] * count))
    words = [f"{function}.o", "--blocks", "1", "--in", "zeros:float32[4]", "--workspace", "4", "--out", "float32[4]"]
    if function != "tiled":
        words[5:7] = []  # no workspace
    code, out, err = run(*words, "--tiling", tiling, "--emulate", f"kernels.py:{function}")
    assert (code, out) == (2, "")
    assert f"--tiling {tiling}: {function} {message}" in err


def test_more_than_the_host_can_hold(run):
    code, out, err = run(*(word.replace(OUT, "z.npy:float16[9999999999999]") for word in EMULATED))
    assert (code, out) == (2, "")
    assert err.startswith("pyacl run: --out z.npy:float16[9999999999999]: does not fit into the memory of the host")


def test_wrong_dtypes_are_named(run):
    np.save("x.npy", np.load("x.npy").astype(np.float64))
    code, _, err = run(*EMULATED)
    assert code == 2
    assert "--in x.npy: add_custom takes float16 for x, not float64" in err
    code, _, err = run(*(w.replace("x.npy", "x.npy:float16") for w in EMULATED))
    assert code == 2
    assert "x.npy holds float64, not float16; convert it with numpy.load(...).astype('float16')" in err
    code, _, err = run(*(w.replace("float16[", "floot16[") for w in EMULATED))
    assert code == 2 and "'floot16' is no dtype; did you mean float16" in err


@pytest.mark.parametrize(
    ("kernel", "arguments", "message"),
    [
        (
            "scaled",
            ["--in", "zeros:float32[4]", "--inout", "zeros:float32[4]", "--in", "zeros:uint32[4]", "--scalar", "f32:2"],
            "--in zeros:uint32[4]: scaled takes a number for n: --scalar uint32:5",
        ),
        (
            "scaled",
            ["--in", "zeros:float32[4]", "--scalar", "f32:1", "--scalar", "u32:4", "--scalar", "f32:2"],
            "--scalar f32:1: scaled takes a pointer to memory, such as --in or --out give, for y, not a number",
        ),
        (
            "tiled",
            ["--in", "zeros:f32[4]", "--workspace", "64", "--out", "f32[4]", "--scalar", "u64:4"],
            "--scalar u64:4: tiled takes a struct, which --tiling gives, for shares, not a number",
        ),
        (
            "tiled",
            ["--in", "zeros:f32[4]", "--workspace", "64", "--out", "f32[4]", "--in", "zeros:u8[16]"],
            "takes a struct by value for shares: --tiling zeros:u8[16]",
        ),
    ],
)
def test_wrong_kinds_are_named(run, folder, kernel, arguments, message):
    (folder / "k.o").write_bytes(make_kernel_object(kernel, args=4, roles=[]))
    code, _, err = run("k.o", "--kernel", kernel, "--blocks", "1", *arguments, "--emulate", f"kernels.py:{kernel}")
    assert code == 2 and message in err


def test_a_placeholder_of_numbers_may_stand_for_a_struct(run, folder):
    (folder / "k.o").write_bytes(make_kernel_object("tiled_by_pointer", args=3, roles=[]))
    words = ("k.o", "--blocks", "1", "--in", "zeros:f32[4]", "--out", "f32[4]", "--placeholder", "u32:2,0")
    code, _, err = run(*words, "--emulate", "kernels.py:tiled_by_pointer")
    assert (code, err) == (0, "")


def test_folders_that_are_missing_are_named_before_the_launch(run):
    code, _, err = run(*[word if word != OUT else "nowhere/z.npy:float16[64]" for word in EMULATED])
    assert code == 2 and "--out nowhere/z.npy:float16[64]: there is no folder nowhere for the result" in err


def test_a_result_that_cannot_be_written_is_named(run, folder):
    (folder / "z").mkdir()
    code, _, err = run(*[word if word != OUT else "z:float16[256]" for word in EMULATED])
    assert (code, err) == (2, "pyacl run: --out z:float16[256]: z cannot be written: Is a directory\n")


def test_wrong_counts_are_named_without_an_emulation(run):
    code, _, err = run("add_custom.o", "--blocks", "8", "--in", "x.npy", "--out", OUT)
    assert code == 2
    assert "add_custom takes 3 arguments, not 2" in err
    assert err.endswith(f"the arguments are\n  1: --in x.npy\n  2: --out {OUT}\n")
    code, _, err = run("add_custom.o", "--blocks", "8")
    assert code == 2 and "no arguments were given" in err


def test_a_wrong_width_is_named(run, folder):
    (folder / "scaled.o").write_bytes(make_kernel_object("scaled", args=[8, 8, 8], roles=[]))
    code, _, err = run(
        "scaled.o", "--blocks", "2", "--in", "zeros:f32[16]", "--in", "zeros:f32[16]", "--scalar", "u32:8", "--scalar",
        "u32:8", "--scalar", "u32:8",
    )  # fmt: skip
    assert code == 2 and "argument 5 of 5: uint32 would lie at byte 24" in err and "  5: --scalar u32:8" in err


def test_wrong_sizes_are_named(run):
    short = [w.replace("[256]", "[100]") for w in EMULATED]
    code, _, err = run(*short)
    assert code == 2
    assert "the emulation add_custom raised ValueError: could not broadcast" in err
    assert "kernels.py:8: z[:] = x + y)" in err and "3: --out z.npy:float16[100]" in err
    assert not os.path.exists("z.npy")


def test_broken_emulations_say_where(run):
    code, _, err = run(*ADD, "--emulate", "kernels.py:wrong_place")
    assert code == 2
    assert "the emulation wrong_place raised NameError: name 'undefined' is not defined" in err


def test_without_an_emulation(run):
    code, _, err = run(*ADD)
    assert code == 2
    assert "the simulator does not know what add_custom does: say it with --emulate kernels.py:add_custom" in err


def test_files_that_are_missing_or_no_objects(run, folder):
    code, _, err = run("nothing.o", *EMULATED[1:])
    assert code == 2 and err.startswith("pyacl run: nothing.o: no such kernel object, seen from ")
    code, _, err = run(".", *EMULATED[1:])
    assert code == 2 and err.startswith("pyacl run: .: Is a directory: a kernel object is a file")
    code, _, err = run("nothing.toml")
    assert (code, err) == (2, "pyacl run: nothing.toml cannot be read: No such file or directory\n")
    (folder / "text.o").write_text("hello")
    code, _, err = run("text.o", *EMULATED[1:])
    assert code == 2 and "text.o" in err
    (folder / "a5.o").write_bytes(make_kernel_object("add_custom", arch="dav-3510"))
    code, _, err = run("a5.o", *EMULATED[1:])
    assert code == 2 and "Ascend910B1" in err
    code, _, err = run("add_custom.o", "--in", "x.npy")
    assert code == 2 and "on how many blocks?" in err
    code, out, _ = run("add_custom.o", "--in", "x.npy", "--json")
    error = json.loads(out)["error"]
    assert code == 2 and error["type"] == "JobError" and error["code"] is None


def test_no_library(run, monkeypatch, tmp_path):
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "no"))
    code, _, err = run(*EMULATED, "--backend", f"library:{tmp_path}")
    assert code == 2 and "was not found" in err


# -- what fails on the device ----------------------------------------------------------------------------------------


def test_faults_of_the_device_have_a_code_of_their_own(run, folder):
    (folder / "kernels.py").write_text(KERNELS.replace("z[:] = x + y", "z[:] = x[5000] + y", 1))
    code, out, _ = run(*EMULATED, "--json")
    report = json.loads(out)
    assert code == 3 and report["exit_code"] == 3
    assert report["error"]["code"] == 507035 and report["error"]["type"] == "AclAiCoreError"


def test_running_out_of_memory(run):
    pyacl.use_backend(sim.Backend(memory=64 << 20))
    code, _, err = run(*(w.replace("x.npy", "zeros:f16[99999999]") for w in EMULATED[:-2]))
    assert code == 3 and "memory" in err.lower()


def test_the_time_is_up(run, monkeypatch):
    """The simulator has no kernel that hangs; the wait says what the library says of one."""
    waited = []

    def synchronize(stream, timeout=None):
        waited.append(timeout)
        raise pyacl.AclTimeoutError(107020, "aclrtSynchronizeStreamWithTimeout", "stream synchronize timeout")

    monkeypatch.setattr(pyacl.Stream, "synchronize", synchronize)
    code, _, err = run(*EMULATED, "--timeout", "0.5")
    assert (code, waited) == (4, [0.5])
    assert "stream synchronize timeout" in err
    assert not os.path.exists("z.npy")
