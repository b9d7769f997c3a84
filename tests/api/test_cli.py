"""The command's frame, `pyacl info` and `pyacl doctor`, each run as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import cann_trees
import pytest
import stub

import pyacl
from pyacl import cli
from pyacl.backends.library import Places
from pyacl.cli import doctor
from pyacl.testing import make_kernel_object

SOURCE = Path(pyacl.__file__).resolve().parent.parent
NO_RICH = "import sys; sys.modules['rich'] = None; from pyacl.cli import main; sys.exit(main(sys.argv[1:]))"


def command(*arguments, environ=None, code=None):
    """Run ``pyacl`` in a process of its own; (exit code, standard output, standard error)."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ASCEND", "LD_", "PYACL"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", *(["-c", code] if code else ["-m", "pyacl"]), *map(str, arguments)],
        env={**clean, "PYTHONPATH": str(SOURCE), "HOME": "/nowhere", **(environ or {})},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


# -- the frame


def test_help_lists_the_commands_and_imports_none(capsys):
    code = "import sys; from pyacl.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "loaded = {m for m in sys.modules if m.startswith(('pyacl.cli.', 'rich', 'numpy', 'pyacl.raw'))}\n"
    code += "assert not loaded, loaded"
    status, out, err = command(code=code)
    assert (status, err) == (0, "")
    for name in ("info", "doctor", "inspect"):
        assert f"\n    {name} " in out


def test_no_command_shows_the_help(capsys):
    assert cli.main([]) == 0
    assert "usage: pyacl" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as raised:
        cli.main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out == f"pyacl {pyacl.__version__}\n"


def test_an_unknown_command(capsys):
    with pytest.raises(SystemExit) as raised:
        cli.main(["dance"])
    assert raised.value.code == 2
    assert "invalid choice: 'dance'" in capsys.readouterr().err


@pytest.mark.parametrize("name", [n for n in cli.COMMANDS if (Path(cli.__file__).parent / f"{n}.py").exists()])
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as raised:
        cli.main([name, "--help"])
    assert raised.value.code == 0
    assert f"usage: pyacl {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["info", "doctor"])
def test_without_rich_a_command_says_what_to_install(name):
    status, out, err = command(name, code=NO_RICH)
    assert (status, out) == (2, "")
    assert err == f"pyacl {name} needs rich: pip install 'ascend-pyacl[cli]'\n"


@pytest.mark.parametrize(("name", "expected"), [("info", 0), ("doctor", 1)])
def test_json_needs_no_rich(name, expected):
    where = {"info": ["--backend", "sim"], "doctor": ["--folder", "/nowhere"]}[name]
    status, out, _ = command(name, "--json", *where, code=NO_RICH)
    assert status == expected
    assert json.loads(out)


# -- info


def test_info_on_the_simulator():
    status, out, err = command("info", environ={"PYACL_BACKEND": "sim:Ascend910B3"})
    assert (status, err) == (0, "")
    assert "backend  sim:Ascend910B3@9.0.0\n" in out
    assert "devices  1, visible: all\n" in out
    assert "Ascend910B3" in out.splitlines()[-2]


def test_info_as_json():
    status, out, _ = command("info", "--json", "--backend", "sim:Ascend910B1")
    found = json.loads(out)
    assert status == 0
    assert (found["pyacl"], found["cann"]) == (pyacl.__version__, "9.0.0")
    assert [device["name"] for device in found["devices"]] == ["Ascend910B1"]
    assert found["devices"][0]["free_memory"] <= found["devices"][0]["total_memory"] == 64 * 2**30


def test_info_with_a_backend_that_does_not_exist():
    status, out, err = command("info", "--backend", "gpu")
    assert (status, out) == (2, "")
    assert err.startswith("pyacl info: 'gpu' is not a backend")


def test_info_without_cann():
    status, out, err = command("info", "--backend", "library:/nowhere")
    assert (status, out) == (1, "")
    assert "/nowhere (explicit folder): not here: no such folder" in err
    assert "or name the folder that has lib64/libacl_rt.so" in err
    assert "PYACL_BACKEND=sim" in err


# -- doctor


@pytest.fixture
def installation(tmp_path):
    stub.require_gcc()
    root = cann_trees.cann(tmp_path)
    cann_trees.install_driver(tmp_path)
    (tmp_path / "driver" / "version.info").write_text("Version=25.2.0\n")
    return root


def checks_of(*arguments, environ=None):
    status, out, err = command("doctor", "--json", *arguments, environ=environ)
    assert err == ""
    found = json.loads(out)
    assert status == (0 if found["ok"] else 1)
    return found, {check["name"]: check for check in found["checks"]}


def test_doctor_finds_cann(installation):
    found, checks = checks_of(environ={"ASCEND_HOME_PATH": str(installation), "PYACL_STUB_WORKING": "1"})
    assert found["ok"] is True
    assert found["library"] == f"{installation}/lib64/libacl_rt.so"
    assert (found["root"], found["cann"]) == (str(installation), "9.0.0")
    assert found["attempts"][-1]["verdict"] == "loaded"
    assert checks["CANN"]["said"].endswith(f" -> {installation.resolve()}/{cann_trees.CPU}-linux/lib64/libacl_rt.so")
    assert checks["driver"]["said"].startswith("25.2.0, ")
    assert checks["functions"]["status"] == "ok"
    assert checks["devices"]["said"].startswith("2, ")
    assert checks["set_env.sh"]["status"] == "ok"


def test_doctor_as_a_table(installation):
    status, out, err = command("doctor", "--folder", installation)
    assert (status, err) == (0, "")
    assert f"explicit folder   {installation}/lib64/libacl_rt.so   loaded" in out
    assert "\nok      CANN: 9.0.0, " in out


def test_doctor_without_cann():
    status, out, err = command("doctor", "--folder", "/nowhere")
    assert (status, err) == (1, "")
    assert "explicit folder   /nowhere   not here: no such folder" in out
    assert "\nbad     CANN: not found\n        Install CANN" in out


def test_doctor_refuses_a_stub(tmp_path):
    stub.require_gcc()
    folder = cann_trees.devlib(tmp_path)
    found, checks = checks_of("--folder", folder)
    assert (found["ok"], found["library"]) == (False, None)
    assert [attempt["verdict"] for attempt in found["attempts"]] == ["stub"]
    assert "devlib" in checks["CANN"]["hint"]


def test_doctor_names_what_is_missing_of_an_incomplete_library(installation):
    names = [n for n in stub.names_in("acl_rt", "9.0.0") if n not in ("aclrtMemset", "aclrtMalloc")]
    runtime = cann_trees.toolkit("9.0.0")[0]
    part = stub.build("acl_rt", names, "9.0.0", cann_trees.named("libacl_rt.so", [runtime]))
    cann_trees.put(installation / "lib64", [part])
    _, checks = checks_of("--folder", installation)
    assert checks["functions"]["status"] == "warning"
    assert checks["functions"]["said"].endswith("; missing: aclrtMalloc, aclrtMemset")


def test_doctor_and_another_home_path(installation, tmp_path):
    _, checks = checks_of("--folder", installation, environ={"ASCEND_HOME_PATH": str(tmp_path / "other")})
    assert checks["ASCEND_HOME_PATH"]["said"] == f"{tmp_path}/other, but {installation} is in use"


def test_doctor_and_stub_folders_in_the_path(installation, tmp_path):
    path = f"{tmp_path}/x/devlib:/lib"
    _, checks = checks_of("--folder", installation, environ={"LD_LIBRARY_PATH": path})
    assert checks["LD_LIBRARY_PATH"]["said"] == f"has folders of link-time stubs: {tmp_path}/x/devlib"


@pytest.mark.parametrize(
    ("value", "count", "status", "said"),
    [
        (None, 2, "ok", "not set"),
        ("1,0", 2, "ok", "device 0 is the first in this list"),
        ("0,1", None, "ok", "0,1: "),
        ("0,0", 2, "warning", "not a list of different device numbers"),
        ("0,x", 2, "warning", "not a list of different device numbers"),
        ("", 0, "warning", "not a list of different device numbers"),
        ("0,7", 1, "warning", "names 2 devices, 1 can be used"),
    ],
)
def test_doctor_and_visible_devices(value, count, status, said):
    check = doctor._visible_devices(value, count)
    assert check.status == status
    assert said in check.said


@pytest.mark.parametrize(
    ("nodes", "managers", "locked", "status", "said"),
    [
        ([], [], [], "warning", "no NPU is visible"),
        (["/dev/davinci0"], [], [], "warning", "1 device, but no /dev/davinci_manager, /dev/devmm_svm, /dev/hisi_hdc"),
        (["/dev/davinci0", "/dev/davinci1"], doctor._MANAGERS, ["/dev/davinci1"], "warning", "for /dev/davinci1"),
        (["/dev/davinci0", "/dev/davinci1"], doctor._MANAGERS, [], "ok", "2 devices"),
    ],
)  # fmt: skip
def test_doctor_and_device_files(monkeypatch, nodes, managers, locked, status, said):
    monkeypatch.setattr(doctor.glob, "glob", lambda _: nodes)
    monkeypatch.setattr(doctor.os, "access", lambda path, _: path not in locked)
    monkeypatch.setattr(doctor.os.path, "exists", lambda path: path in managers)
    check = next(doctor._of_devices(None, {}))
    assert (check.name, check.status) == ("device files", status)
    assert said in check.said


@pytest.mark.parametrize(("machine", "preload", "told"), [
    ("aarch64", "", True), ("aarch64", "/usr/lib/libgomp.so.1", False), ("x86_64", "", False),
])  # fmt: skip
def test_doctor_and_libgomp(monkeypatch, machine, preload, told):
    monkeypatch.setattr(doctor.platform, "machine", lambda: machine)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: object())
    assert len(list(doctor._of_libgomp({"LD_PRELOAD": preload}))) == told


def test_doctor_mentions_a_chosen_backend():
    checks = {check.name: check for check in doctor.examine("/nowhere", Places({"PYACL_BACKEND": "sim"}))[2]}
    assert checks["PYACL_BACKEND"].said.startswith("sim: ")


def test_output_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "add_custom.o").write_bytes(make_kernel_object("add_custom"))
    environment = {**os.environ, "PYACL_BACKEND": "sim"}
    with open("/dev/full", "w") as full:
        for command in (["info"], ["inspect", "add_custom.o", "--json"]):
            done = subprocess.run(
                [sys.executable, "-m", "pyacl", *command],
                stdout=full, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path, check=False,
            )  # fmt: skip
            said = f"pyacl {command[0]}: the output cannot be written: No space left on device\n"
            assert (done.returncode, done.stderr) == (1, said)
