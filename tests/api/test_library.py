"""Finding and loading CANN: each kind of installation, and each way in which one can be broken, in its own process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cann_trees
import pytest
import stub

import pyacl
from pyacl.backends import library, shared_object
from pyacl.backends.library import LibraryBackend, Places
from pyacl.errors import LibraryNotFoundError

SOURCE = Path(pyacl.__file__).resolve().parent.parent

SCRIPT = """
import ctypes, json, os, sys
from pyacl.backends.library import LibraryBackend, Places
from pyacl.errors import LibraryNotFoundError
import pyacl.backends.shared_object, pyacl.raw.functions
told = json.loads(sys.argv[1])
for path in told.get("load_first", ()):
    ctypes.CDLL(path)
if told.get("uid"):
    os.setgroups([])
    os.setgid(told["uid"])
    os.setuid(told["uid"])
places = Places(os.environ, **told.get("places", {}))
try:
    backend = LibraryBackend(told.get("folder"), places=places)
except LibraryNotFoundError as error:
    said = {"error": str(error), "attempts": error.attempts}
else:
    said = {
        "name": backend.name, "root": backend.root, "version": backend.version,
        "addresses": {name: backend.address(name) is not None for name in told.get("functions", ())},
        "attempts": backend.attempts,
        "environ": {k: v for k, v in os.environ.items() if k.startswith("ASCEND")},
        "maps": sorted({line.split()[-1] for line in open("/proc/self/maps") if "/lib" in line}),
    }
print(json.dumps(said))
"""


@pytest.fixture(autouse=True)
def gcc():
    stub.require_gcc()


@pytest.fixture
def base(tmp_path):
    """Stands for /usr/local/Ascend."""
    folder = tmp_path / "Ascend"
    folder.mkdir()
    return folder


def find(base, folder=None, environ=None, functions=("aclInit", "aclrtMalloc", "rtSetDevice"), **told):
    """Look for CANN in a process of its own, where the usual place is `base`."""
    places = {"bases": [str(base)], "install_info": str(base / "ascend_install.info"), **told.pop("places", {})}
    told.update(folder=folder and str(folder), places=places, functions=list(functions))
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ASCEND", "LD_"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, json.dumps(told)],
        env={**clean, "PYTHONPATH": str(SOURCE), **(environ or {})},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def last(found):
    origin, path, verdict, _ = found["attempts"][-1]
    return origin, Path(path), verdict


# -- installations that work


def test_ascend_home_path_without_set_env(base):
    root = cann_trees.cann(base)
    cann_trees.install_driver(base)
    found = find(base / "nowhere", environ={"ASCEND_HOME_PATH": str(root)})
    assert last(found) == ("ASCEND_HOME_PATH", root / "lib64" / "libacl_rt.so", "loaded")
    assert found["name"] == f"library:{root}/lib64"
    assert found["addresses"] == {"aclInit": True, "aclrtMalloc": True, "rtSetDevice": True}
    assert found["version"] == "9.0.0"


def test_ascend_toolkit_home_comes_second(base, tmp_path):
    root = cann_trees.cann(base)
    cann_trees.install_driver(base)
    found = find(
        base / "nowhere", environ={"ASCEND_HOME_PATH": str(tmp_path / "gone"), "ASCEND_TOOLKIT_HOME": str(root)}
    )
    assert found["attempts"][0] == ["ASCEND_HOME_PATH", str(tmp_path / "gone"), "not here", "no such folder"]
    assert last(found) == ("ASCEND_TOOLKIT_HOME", root / "lib64" / "libacl_rt.so", "loaded")


def test_usual_places_in_their_order(base):
    cann_trees.install_driver(base)
    nnrt = cann_trees.nnrt(base)
    assert last(find(base))[1] == nnrt / "runtime" / "lib64" / "libascendcl.so"
    toolkit = cann_trees.ascend_toolkit(base)
    assert last(find(base))[1] == toolkit / "lib64" / "libascendcl.so"
    cann = cann_trees.cann(base)
    assert last(find(base))[1] == cann / "lib64" / "libacl_rt.so"


def test_a_users_installation(base, tmp_path):
    root = cann_trees.cann(base)
    cann_trees.install_driver(base)
    found = find(base, environ={"HOME": str(tmp_path)}, places={"bases": ["~/Ascend"]})
    assert last(found) == ("usual place", root / "lib64" / "libacl_rt.so", "loaded")


@pytest.mark.parametrize("part", ["", "lib64"])
def test_explicit_folder(base, part, tmp_path):
    root = cann_trees.cann(base)
    cann_trees.install_driver(base)
    found = find(tmp_path, root / part, environ={"ASCEND_HOME_PATH": str(tmp_path / "other")})
    assert last(found) == ("explicit folder", root / "lib64" / "libacl_rt.so", "loaded")
    assert len(found["attempts"]) == 1
    assert found["root"] == str(root)


def test_folder_of_ld_library_path(base, tmp_path):
    cann_trees.install_driver(base)
    folder = cann_trees.put(tmp_path / "libraries", cann_trees.toolkit("9.0.0"))
    path = f"{folder}:{base}/driver/lib64/driver:{base}/driver/lib64/common"
    found = find(base, environ={"LD_LIBRARY_PATH": path})
    assert last(found) == ("LD_LIBRARY_PATH", folder / "libacl_rt.so", "loaded")


def test_the_loaders_own_path(base, tmp_path):
    cann_trees.install_driver(base)
    folder = cann_trees.put(tmp_path / "libraries", cann_trees.toolkit("8.1.RC1"))
    told = json.dumps({"places": {"bases": [str(base)]}})
    script = SCRIPT.replace("Places(os.environ,", "Places({},")  # the loader knows the variable, the search does not
    path = f"{folder}:{base}/driver/lib64/driver:{base}/driver/lib64/common"
    done = subprocess.run(
        [sys.executable, "-c", script, told],
        env={**os.environ, "LD_LIBRARY_PATH": path, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert last(json.loads(done.stdout)) == ("the loader's own path", folder / "libascendcl.so", "loaded")


def test_the_driver_is_taken_by_absolute_path(base):
    root = cann_trees.cann(base)
    cann_trees.install_driver(base)
    maps = find(base)["maps"]
    real = root.resolve()
    for path in (
        base / "driver/lib64/driver/libascend_hal.so",
        base / "driver/lib64/common/libdrv_common.so",
        real / f"{cann_trees.CPU}-linux/lib64/libruntime.so",
        real / f"{cann_trees.CPU}-linux/lib64/libacl_rt.so",
    ):
        assert str(path) in maps


def test_the_driver_named_by_the_install_info(base, tmp_path):
    cann_trees.cann(base)
    cann_trees.install_driver(tmp_path / "elsewhere")
    (base / "ascend_install.info").write_text(f"UserName=x\nDriver_Install_Path_Param={tmp_path / 'elsewhere'}\n")
    assert last(find(base))[2] == "loaded"


def test_an_installation_in_a_place_of_its_own_finds_the_driver_beside_it(base, tmp_path):
    cann_trees.ascend_toolkit(base)
    cann_trees.install_driver(base)
    assert last(find(tmp_path, base / "ascend-toolkit" / "latest"))[2] == "loaded"


def test_the_variables_the_runtime_reads_are_set(base):
    root = cann_trees.cann(base)
    (root / "opp").mkdir()
    cann_trees.install_driver(base)
    home = str(root)
    assert find(base)["environ"] == {
        "ASCEND_HOME_PATH": home,
        "ASCEND_AICPU_PATH": home,
        "ASCEND_OPP_PATH": f"{home}/opp",
    }
    assert find(base, environ={"ASCEND_HOME_PATH": "/mine"})["environ"]["ASCEND_HOME_PATH"] == "/mine"


# -- several libraries


def test_functions_of_the_sister_libraries(base):
    names = ["aclprofInit", "acltdtCreateChannel", "acltdtCreateQueue", "acldumpRegCallback", "rtMalloc"]
    names += ["aclplatformGetDeviceInfo", "acllogRecord"]
    absent = ["aclrtCreateStreamV2", "nothing"]  # in the header only, and no function at all
    cann_trees.cann(base, "9.2.0-beta.2")
    cann_trees.install_driver(base)
    found = find(base, functions=(*names, *absent))
    assert found["addresses"] == {**dict.fromkeys(names, True), **dict.fromkeys(absent, False)}


def test_an_absent_library_makes_its_functions_absent_and_nothing_else(base):
    root = cann_trees.cann(base)
    cann_trees.install_driver(base)
    (root / "lib64" / "libmsprofiler.so").unlink()
    found = find(base, functions=("aclprofInit", "aclrtMalloc", "acltdtCreateChannel"))
    assert found["addresses"] == {"aclprofInit": False, "aclrtMalloc": True, "acltdtCreateChannel": True}


def test_a_broken_library_makes_its_functions_absent_and_is_mentioned(base):
    root = cann_trees.cann(base)
    cann_trees.install_driver(base)
    (root / "lib64" / "libmsprofiler.so").write_bytes(b"text")
    found = find(base, functions=("aclprofInit", "aclrtMalloc"))
    assert found["addresses"] == {"aclprofInit": False, "aclrtMalloc": True}
    assert last(found) == ("sister library", root / "lib64" / "libmsprofiler.so", "cannot be loaded")


def test_a_library_is_opened_when_it_is_first_needed(base):
    cann_trees.cann(base)
    cann_trees.install_driver(base)
    assert not any("libmsprofiler" in path for path in find(base)["maps"])
    assert any("libmsprofiler" in path for path in find(base, functions=("aclprofInit",))["maps"])


def test_a_function_that_moved_is_found_where_it_was(base):
    # the dump calls are in libascend_dump.so from 8.5.0 on, aclop*DumpArgs in libascendcl.so before
    cann_trees.ascend_toolkit(base)
    cann_trees.install_driver(base)
    found = find(base, functions=("aclopStartDumpArgs", "acldumpRegCallback", "aclmdlSetDump"))
    assert found["addresses"] == {"aclopStartDumpArgs": True, "acldumpRegCallback": True, "aclmdlSetDump": True}


# -- the version


def test_version_by_the_release_name_in_the_files(base):
    cann_trees.ascend_toolkit(base)
    cann_trees.install_driver(base)
    assert find(base)["version"] == "8.1.RC1"


@pytest.mark.parametrize("version", ["8.5.0", "9.0.0", "9.1.0", "9.2.0-beta.2"])
def test_version_by_symbols(base, version):
    cann_trees.cann(base, version)
    cann_trees.install_driver(base)
    assert find(base)["version"] == version


@pytest.mark.parametrize("told", ["9.0.1", "9.2.0-beta.2", "9.3.0"])
def test_version_that_the_library_tells(base, told):
    # aclrtGetVersion says 1.17.0 for all of these
    cann_trees.cann(base, "9.0.0")
    cann_trees.install_driver(base)
    found = find(base, environ={"PYACL_STUB_WORKING": "1", "PYACL_STUB_VERSION": told})
    assert found["version"] == told


def test_version_that_the_library_tells_before_8_5(base):
    root = cann_trees.ascend_toolkit(base)
    (root / "runtime" / "version.info").unlink()
    cann_trees.install_driver(base)
    found = find(base, environ={"PYACL_STUB_WORKING": "1", "PYACL_STUB_VERSION": "8.2.RC1"})
    assert found["version"] == "8.2.RC1"


def test_the_number_of_the_runtimes_own_package_is_no_cann_version(base):
    root = cann_trees.ascend_toolkit(base)
    (root / "runtime" / "version.info").write_text("Version=7.7.0.1.238\n")
    cann_trees.install_driver(base)
    found = find(base, environ={"PYACL_STUB_WORKING": "1", "PYACL_STUB_VERSION": "7.7.0.1.238"})
    assert found["version"] == "8.1.RC1"


def test_a_version_nobody_can_read_is_left_alone(base):
    cann_trees.cann(base, "9.1.0")
    cann_trees.install_driver(base)
    assert find(base, environ={"PYACL_STUB_WORKING": "1", "PYACL_STUB_VERSION": "nightly"})["version"] == "9.1.0"


def test_another_installations_answer_is_not_taken(base, tmp_path):
    cann_trees.cann(base, "9.0.0")
    cann_trees.install_driver(base)
    environ = {"PYACL_STUB_WORKING": "1", "PYACL_STUB_VERSION": "9.2.0", "ASCEND_HOME_PATH": str(tmp_path / "other")}
    assert find(tmp_path, base / "cann", environ=environ)["version"] == "9.0.0"


# -- what another package has loaded


def test_a_library_that_is_loaded_already_is_used(base, tmp_path):
    cann_trees.cann(base)
    cann_trees.install_driver(base)
    theirs = cann_trees.cann(tmp_path, "9.1.0")
    first = [base / "driver/lib64/common/libdrv_common.so", base / "driver/lib64/driver/libascend_hal.so"]
    first += [theirs / "lib64/libruntime.so", theirs / "lib64/libacl_rt.so"]
    found = find(base, load_first=[str(path) for path in first])
    assert last(found) == ("already loaded", theirs / "lib64" / "libacl_rt.so", "loaded")
    assert found["version"] == "9.1.0"
    assert last(find(base, theirs, load_first=[str(path) for path in first]))[0] == "already loaded"
    error = find(base, base / "cann", load_first=[str(path) for path in first])["error"]
    assert f"already loaded CANN from {theirs}/lib64/libacl_rt.so" in error
    assert "start a new process" in error


# -- what is refused, and how it is told


def test_nothing_anywhere(base):
    found = find(base)
    assert "libacl_rt.so, or libascendcl.so up to CANN 8.1" in found["error"]
    for place in ("cann", "ascend-toolkit/latest", "nnrt/latest"):
        assert f"\n  {base}/{place} (usual place): not here: no such folder\n" in found["error"]
    assert "\n  libacl_rt.so (the loader's own path): not here\n" in found["error"]
    assert found["error"].count("Next step:") == 1
    assert "ASCEND_HOME_PATH=/path/to/cann" in found["error"]
    assert "PYACL_BACKEND=sim" in found["error"]


def test_an_explicit_folder_is_the_only_one(base, tmp_path):
    cann_trees.cann(base)
    cann_trees.install_driver(base)
    found = find(base, tmp_path / "gone", environ={"ASCEND_HOME_PATH": str(base / "cann")})
    assert found["attempts"] == [["explicit folder", str(tmp_path / "gone"), "not here", "no such folder"]]
    assert f"not found in {tmp_path / 'gone'}" in found["error"]


def test_a_folder_without_libraries(base, tmp_path):
    (tmp_path / "empty").mkdir()
    found = find(base, tmp_path / "empty")
    assert "no libacl_rt.so or libascendcl.so in it or in its lib64 folders" in found["error"]


def test_a_file_instead_of_a_folder(base, tmp_path):
    (tmp_path / "file").write_text("")
    assert "not a folder: name the installation" in find(base, tmp_path / "file")["error"]


def test_devlib_is_refused(base, tmp_path):
    folder = cann_trees.devlib(tmp_path / "toolkit")
    found = find(base, folder)
    assert last(found) == ("explicit folder", folder / "libascendcl.so", "stub")
    assert f"{folder}/libascendcl.so only exists to be linked against" in found["error"]
    assert "devlib folder is for the linker only" in found["error"]
    # of an installation without a run-time package too, where it was not named itself
    found = find(base, tmp_path / "toolkit")
    assert found["attempts"] == [["explicit folder", str(folder / "libascendcl.so"), "stub", *found["attempts"][0][3:]]]


@pytest.mark.parametrize("link", [False, True])
def test_a_stub_is_recognised_by_its_content_and_behind_a_link(base, tmp_path, link):
    folder = cann_trees.devlib(tmp_path / "toolkit")
    disguised = tmp_path / "cann" / "lib64"
    disguised.mkdir(parents=True)
    if link:
        (disguised / "libascendcl.so").symlink_to(folder / "libascendcl.so")
    else:
        shutil.copy(folder / "libascendcl.so", disguised)
    assert last(find(base, tmp_path / "cann"))[2] == "stub"


def test_behind_a_refused_stub_the_search_goes_on(base, tmp_path):
    folder = cann_trees.devlib(tmp_path / "toolkit")
    root = cann_trees.cann(base)
    cann_trees.install_driver(base)
    found = find(base, environ={"ASCEND_HOME_PATH": str(folder)})
    assert [a[2] for a in found["attempts"]] == ["stub", "loaded"]
    assert last(found)[1] == root / "lib64" / "libacl_rt.so"


def test_a_stub_on_the_loaders_path_is_refused(base, tmp_path):
    folder = cann_trees.devlib(tmp_path / "toolkit")
    found = find(base, environ={"LD_LIBRARY_PATH": str(folder)})
    assert {a[2] for a in found["attempts"] if "devlib" in a[1]} == {"stub"}
    assert "take devlib and stub folders out of LD_LIBRARY_PATH" in found["error"]


def test_broken_links(base, tmp_path):
    folder = tmp_path / "cann" / "lib64"
    folder.mkdir(parents=True)
    (folder.parent / f"{cann_trees.CPU}-linux").mkdir()
    (folder.parent / f"{cann_trees.CPU}-linux" / "lib64").symlink_to("../lib64")
    (folder / "libacl_rt.so").symlink_to("../gone/libacl_rt.so")
    found = find(base, tmp_path / "cann")
    assert len(found["attempts"]) == 1  # one folder, whatever its names
    assert f"{folder}/libacl_rt.so (explicit folder): broken link: to ../gone/libacl_rt.so" in found["error"]
    assert "Repair the link" in found["error"]
    (base / "cann").symlink_to("cann-9.0.0")
    assert f"{base}/cann (usual place): broken link: to cann-9.0.0" in find(base)["error"]


def test_wrong_architecture(base):
    root = cann_trees.cann(base)
    cann_trees.other_architecture(root / "lib64" / "libacl_rt.so")
    theirs = "x86_64" if cann_trees.CPU == "aarch64" else "aarch64"
    error = find(base)["error"]
    assert f"libacl_rt.so (usual place): wrong architecture: it is for {theirs}, this host is" in error
    assert "Install the CANN package for this host's architecture" in error


def test_a_dependency_of_the_wrong_architecture(base):
    root = cann_trees.cann(base)
    cann_trees.install_driver(base)
    cann_trees.other_architecture(root / "lib64" / "libruntime.so")
    found = find(base)
    assert found["attempts"][0][1:3] == [str(root / "lib64" / "libacl_rt.so"), "cannot be loaded"]
    assert "libruntime.so" in found["attempts"][0][3]


@pytest.mark.parametrize("what", ["file", "folder", "root"])
def test_no_permission(base, what):
    root = cann_trees.cann(base)
    cann_trees.install_driver(base)
    target = {"file": root / "lib64" / "libacl_rt.so", "folder": root / "lib64", "root": root}[what].resolve()
    for folder in (base, *base.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    mode = target.stat().st_mode
    target.chmod(0)
    try:
        # root may read everything, so the process gives up being root
        found = find(base, uid=65534 if os.getuid() == 0 else None)
    finally:
        target.chmod(mode)
    assert found["attempts"][0][2:] == ["not readable", "Permission denied"]
    assert "Get read permission" in found["error"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "too short"),
        (b"INPUT(libacl_rt.so.1)\n" * 8, "no ELF file"),
        (b"\x7fELF\x01\x01" + bytes(200), "not a 64-bit little-endian library"),
        (b"\x7fELF\x02\x01" + bytes(200), "no shared library"),
        ("cut", "damaged ELF file"),
    ],
)
def test_files_that_are_no_libraries(base, content, said):
    root = cann_trees.cann(base)
    target = root / "lib64" / "libacl_rt.so"
    whole = target.read_bytes()
    target.write_bytes(whole[:300] if content == "cut" else content)
    error = find(base)["error"]
    assert "libacl_rt.so (usual place): not a library: " in error
    assert said in error


def test_a_folder_called_like_the_library(base):
    root = cann_trees.cann(base)
    (root / "lib64" / "libacl_rt.so").unlink()
    (root / "lib64" / "libacl_rt.so").mkdir()
    assert "not a library: not a file" in find(base)["error"]


def test_no_driver(base):
    root = cann_trees.cann(base)
    error = find(base)["error"]
    assert f"{root}/lib64/libacl_rt.so (usual place): cannot be loaded: libascend_hal.so: cannot open shared" in error
    assert "The driver's libraries are not visible here" in error
    assert "/usr/local/Ascend/driver" in error


def test_a_load_error_says_what_does_not_fit(base):
    root = cann_trees.ascend_toolkit(base)
    cann_trees.install_driver(base)
    (base / "driver" / "version.info").write_text("Version=24.1.rc3\n")
    (root / "lib64" / "libruntime.so").unlink()
    error = find(base)["error"]
    real = f"{root.resolve()}/{cann_trees.CPU}-linux/lib64/libascendcl.so"
    assert "libruntime.so: cannot open shared object file" in error
    assert f"(real path {real}, CANN 8.1.RC1, driver 24.1.rc3)" in error


def test_only_the_drivers_stub(base, tmp_path):
    root = cann_trees.cann(base)
    folder = cann_trees.devlib(root)
    error = find(base, environ={"LD_LIBRARY_PATH": str(folder)})["error"]
    assert f"only the link-time stub {folder}/libascend_hal.so is here" in error
    assert "The driver's libraries are not visible here" in error


def test_libraries_that_do_not_fit_together(base):
    root = cann_trees.cann(base)
    cann_trees.install_driver(base)
    text = "int newFunctionOfTheDriver(void); int aclInit(void) { return newFunctionOfTheDriver(); }\n"
    broken = stub.compile_library(text, "libacl_rt.so", ["-Wl,-z,now", "-Wl,-soname,libacl_rt.so"])
    cann_trees.put(root / "lib64", [broken])
    error = find(base)["error"]
    assert "undefined symbol: newFunctionOfTheDriver" in error
    assert "Driver, firmware and CANN do not fit together" in error


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ("libgomp-d22.so.1: cannot allocate memory in static TLS block", "LD_PRELOAD"),
        ("/lib64/libc.so.6: version `GLIBC_2.34' not found", "older than CANN"),
        ("libfoo.so: cannot open shared object file: No such file or directory", "missing library"),
    ],
)
def test_advice_for_what_the_loader_says(detail, said):
    assert said in library._loader_advice(detail)


def test_other_systems(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(LibraryNotFoundError, match="Linux, and this is darwin") as raised:
        LibraryBackend()
    assert "PYACL_BACKEND=sim" in str(raised.value)


# -- in this process


def test_close_forgets_the_libraries(tmp_path):
    folder = stub.libraries().folder
    backend = LibraryBackend(str(folder), places=Places({}))
    assert backend.address("aclrtMalloc") is not None
    assert backend.path("acl_rt") == str(folder / "libacl_rt.so")
    backend.close()
    assert backend.address("aclrtMalloc") is None
    assert backend.path("acl_rt") is None


def test_an_address_is_what_the_loader_gives():
    import ctypes

    folder = stub.libraries().folder
    backend = LibraryBackend(str(folder), places=Places({}))
    function = ctypes.CDLL(str(folder / "libruntime.so")).rtSetDevice
    assert backend.address("rtSetDevice") == ctypes.cast(function, ctypes.c_void_p).value
    assert backend.address("printf") is None


def test_a_shared_object_says_what_it_needs():
    described = shared_object.read(str(cann_trees.toolkit("9.0.0")[0]))
    assert (described.machine, described.soname) == (cann_trees.CPU, "libruntime.so")
    assert "libascend_hal.so" in described.needed
