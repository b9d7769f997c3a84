"""`pyacl inspect`: every kind of argument, both kinds of output, exit codes."""

from __future__ import annotations

import argparse
import builtins
import json
import os
import re
import tarfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pyacl.cli import inspect
from pyacl.objfile.reader import SIZE_LIMIT
from pyacl.testing import KernelSpec, make_archive, make_host_object, make_kernel_object, make_sidecar


def call(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser(prog="pyacl")
    inspect.add_parser(parser.add_subparsers())
    args = parser.parse_args(["inspect", *map(str, arguments)])
    return inspect.run(args)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seven objects of every kind, one with its JSON, in nested folders."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "add.o").write_bytes(make_kernel_object("add_custom"))
    (tmp_path / "a" / "plain.o").write_bytes(make_kernel_object("plain", metadata=False))
    (tmp_path / "a" / "plain.json").write_bytes(make_sidecar())
    (tmp_path / "a" / "b" / "mix.o").write_bytes(make_kernel_object("mm", core="mix", tiling_key=4))
    (tmp_path / "a" / "b" / "a5.npubin").write_bytes(make_kernel_object("k", arch="dav-3510", ktype=False))
    (tmp_path / "a" / "b" / "cpp.o").write_bytes(make_kernel_object("_Z5scalePhj", vector="simt", sched_mode=1))
    (tmp_path / "lib.a").write_bytes(make_archive({"x.o": make_host_object(make_kernel_object("x"))}))
    (tmp_path / "stub.o").write_bytes(b"stub")
    (tmp_path / "readme.txt").write_bytes(b"not looked at")
    return tmp_path


def read_json(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return loaded


def test_one_file_in_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(folder / "a" / "b" / "mix.o") == 0
    out = capsys.readouterr().out
    for text in (
        "mix.o: device ELF, dav-c220 (has cube code)",
        "loads from file",
        "Ascend910B1, Ascend910B2",
        "32,768 bytes",
        "mm_4",
        "MIX 1:2",
        "+ 8 FFTS",
        "ffts, general, general, general",
    ):
        assert text in out


def test_cpp_name_is_demangled(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(folder / "a" / "b" / "cpp.o") == 0
    out = capsys.readouterr().out
    for text in ("scale(unsigned char*, unsigned int)", "_Z5scalePhj", "SIMT", "schedule batch"):
        assert text in out


def test_what_to_do_about_a_file_that_does_not_load(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(folder / "lib.a") == 1
    out = capsys.readouterr().out
    for text in ("ar archive", "cannot be loaded", "member x.o: host object with a device part", "extract"):
        assert text in out
    assert call("--soc", "Ascend310P3", folder / "a" / "add.o") == 1
    out = capsys.readouterr().out
    assert "compiled for dav-c220-vec" in out and "--npu-arch=dav-2002" in out


def test_a_folder_in_one_line_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(folder) == 1
    out = capsys.readouterr().out
    assert "7 files, 5 kernels" in out
    assert "     4 loads from file" in out
    assert "     1 loads from data with MAGIC VECTOR, not from file" in out
    assert "     1 cannot be loaded" in out
    assert "     1 unreadable" in out
    assert "readme" not in out
    assert call("--details", folder / "a") == 0
    assert capsys.readouterr().out.count("verdict") == 5


def test_json_of_folder_zip_wheel_and_tar_is_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--json", folder) == 1
    expected = read_json(capsys)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for name in ("x.zip", "x-1.0-py3-none-any.whl"):
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in files:
                archive.write(path, path.relative_to(folder).as_posix())
    with tarfile.open(folder / "x.tar.gz", "w:gz") as tar:
        for path in files:
            tar.add(path, path.relative_to(folder).as_posix())
    assert len(expected) == 7

    def content(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for entry in entries:
            entry.pop("path", None)
            entry["file"] = Path(entry["file"].split("!")[-1]).name
            if entry.get("sidecar"):
                entry["sidecar"].pop("path")
        return sorted(entries, key=lambda entry: str(entry["file"]))

    expected = content(expected)
    for name in ("x.zip", "x-1.0-py3-none-any.whl", "x.tar.gz"):
        assert call("--json", folder / name) == 1
        found = read_json(capsys)
        assert all(entry["file"].startswith(f"{folder / name}!") for entry in found)
        assert content(found) == expected


def test_json_fields(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--json", folder / "a" / "plain.o", folder / "stub.o") == 1
    plain, stub = read_json(capsys)
    assert plain["error"] is None
    assert plain["container"] == "device ELF"
    assert plain["npu_arch"] == "dav-2201" and "Ascend910B1" in plain["socs"]
    assert plain["sidecar"]["magic"] == "VECTOR"
    assert plain["verdict"]["from_file"] is True
    (kernel,) = plain["kernels"]
    assert (kernel["name"], kernel["core"], kernel["arg_size"], kernel["user_sizes"]) == ("plain", "AIV", 24, [24, 16])
    assert stub == {"file": str(folder / "stub.o"), "error": stub["error"]}
    assert "neither an ELF file" in stub["error"]
    assert call("--json", "--soc", "Ascend910A", folder / "a" / "plain.o") == 1
    assert "Ascend910A is dav-1001" in read_json(capsys)[0]["verdict"]["reasons"][0]


def test_the_documentation_lists_every_key(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--json", folder / "a" / "plain.o") == 0
    (entry,) = read_json(capsys)
    page = Path(__file__).resolve().parents[2] / "docs" / "guide" / "command-line.md"
    text = page.read_text("utf-8")

    def keys(heading: str) -> set[str]:
        rows = text.split(f"| {heading} |")[1].split("\n\n")[0].splitlines()[2:]
        return {key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])}

    assert keys("key of an entry") == set(entry)
    assert keys("key of a kernel") == set(entry["kernels"][0])
    for key in ("sidecar", "verdict"):
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{key}` |")]
        assert set(re.findall(r"`(\w+)`", row.split("|")[2])) == set(entry[key])


def test_on_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """80 columns are enough: long names are cut at their front, long lists go on in their column."""
    deep = folder / ("folder_of_a_long_name_" * 4) / "AddRelu_1907f3e124c32ea4c8637789e310b4df.o"
    deep.parent.mkdir()
    deep.write_bytes(make_kernel_object("k"))
    monkeypatch.setattr(inspect, "open_console", lambda: Console(width=80, force_terminal=True, no_color=True))
    assert call(folder) == 1
    lines = plain(capsys.readouterr().out).splitlines()
    table = lines[: next(i for i, line in enumerate(lines) if line.startswith("8 files"))]
    assert all(len(line) <= 80 for line in table)
    assert any("…" in line for line in table) and len(table) < 8 * 4
    assert call(deep) == 0
    lines = plain(capsys.readouterr().out).splitlines()
    assert all(len(line) <= 80 for line in lines if not line.startswith(str(deep)))
    assert any(line.startswith(" " * 14 + "Ascend910") for line in lines)


def plain(text: str) -> str:
    """Without the codes for colors."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_reasons_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--soc", "Ascend310P3", folder) == 1
    out = capsys.readouterr().out
    assert "     6 cannot be loaded\n" in out
    assert "           3 compiled for dav-c220-vec (Ascend 910B, 910_93 (Atlas A2, A3)); Ascend310P3 is dav-2002" in out


def test_static_libraries_of_the_host_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = tmp_path / "libz.a"
    library.write_bytes(make_archive({f"{n}.o": make_host_object(b"") for n in range(3)}))
    assert call(tmp_path) == 2
    assert "nothing but static libraries for the host in" in capsys.readouterr().err
    assert call(library) == 1  # named, it is shown
    out = capsys.readouterr().out
    assert "none of these holds a device binary" in out and "and         3 host files without kernels" in out
    (tmp_path / "k.o").write_bytes(make_kernel_object("k"))
    assert call("--json", tmp_path) == 0
    assert [entry["file"] for entry in read_json(capsys)] == [str(tmp_path / "k.o")]


def test_ai_cpu_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "libadd.json"
    path.write_text(json.dumps({"AddCpu": {"opInfo": {"functionName": "RunCpuKernel", "kernelSo": "libadd.so"}}}))
    assert call(path) == 0
    out = capsys.readouterr().out
    assert "AI CPU library" in out and "loads from file with CPU_KERNEL_MODE 0" in out
    assert "AddCpu: RunCpuKernel in libadd.so" in out


def test_extract(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "out.o"
    assert call("--extract", out, folder / "lib.a") == 0
    assert out.read_bytes() == make_kernel_object("x")
    assert "loads from file" in capsys.readouterr().out
    assert call(out) == 0
    capsys.readouterr()
    assert call("--extract", out, folder / "a" / "add.o", folder / "a" / "plain.o") == 2
    assert "takes one file" in capsys.readouterr().err
    assert call("--extract", out, folder / "stub.o") == 1
    assert call("--extract", out, out) == 2
    assert "is the file to extract from" in capsys.readouterr().err
    (folder / "host.o").write_bytes(make_host_object(b""))
    assert call("--extract", out, folder / "host.o") == 1
    assert "no device binary" in capsys.readouterr().err
    # an unlinked part is written with what remains to be done
    (folder / "host.o").write_bytes(make_host_object(make_kernel_object("y", relocatable=True)))
    assert call("--extract", out, folder / "host.o") == 0
    assert "link it: ld.lld" in capsys.readouterr().out


def test_wrong_arguments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(folder / "missing.o") == 2
    assert "missing.o" in capsys.readouterr().err
    (folder / "empty").mkdir()
    assert call(folder / "empty") == 2
    said = capsys.readouterr().err
    assert "no kernel objects (.o, .a, .npubin)" in said and "looked into when they are named" in said


def test_damaged_archives(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(folder / "a" / "add.o", "add.o")
    damaged = bytearray(path.read_bytes())
    damaged[200] ^= 0xFF  # the member's checksum no longer fits
    path.write_bytes(damaged)
    assert call(path) == 1
    assert "cannot be unpacked" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["x.zip", "lzma.zip", "x.tar.gz", "x.tar.xz", "x.tar.bz2", "x.tar"])
def test_archives_whose_middle_is_damaged(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = [bytes([i % 251]) * 97 for i in range(300)]
    archive = folder / name
    if name.endswith(".zip"):
        method = zipfile.ZIP_LZMA if name == "lzma.zip" else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(archive, "w", method) as packed:
            packed.writestr("k.o", b"".join(content))
    else:
        with tarfile.open(archive, "w:" + name.partition("tar")[2].lstrip(".")) as tar:
            for file in ("a/add.o", "a/plain.o"):
                tar.add(folder / file, file)
    data = bytearray(archive.read_bytes())
    if name == "x.tar":
        del data[len(data) // 16 :]
    else:
        middle = slice(60, len(data) - 100)
        data[middle] = bytes(value ^ 0x5A for value in data[middle])
    archive.write_bytes(data)
    assert call(archive, folder / "a" / "add.o", "--json") == 1
    damaged, whole = read_json(capsys)
    assert damaged["file"].startswith(str(archive))
    assert damaged["error"].startswith("cannot be unpacked: ")
    assert whole["error"] is None


def test_a_pipe_is_read_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    data = (folder / "a" / "add.o").read_bytes()
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    assert call(pipe, "--json") == 0
    writer.join()
    (entry,) = read_json(capsys)
    assert (entry["file"], entry["size"], entry["kernels"][0]["name"]) == (str(pipe), len(data), "add_custom")


def test_files_without_an_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, start in (("zeros.o", b""), ("elf.o", (folder / "a" / "add.o").read_bytes())):
        with open(folder / name, "wb") as file:
            file.write(start)
            file.truncate(SIZE_LIMIT + 1)
    assert call("/dev/zero", folder / "zeros.o", folder / "elf.o", "--json") == 1
    assert [entry["error"] for entry in read_json(capsys)] == [
        *["neither an ELF file nor an ar archive: it starts with 00 00 00 00 00 00 00 00"] * 2,
        f"{SIZE_LIMIT + 1} bytes are too many for a kernel object",
    ]


def test_without_rich(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def no_rich(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "rich":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_rich)
    assert call(folder / "a" / "add.o") == 2
    assert "pip install 'ascend-pyacl[cli]'" in capsys.readouterr().err
    assert call("--json", folder / "a" / "add.o") == 0
    assert read_json(capsys)[0]["error"] is None


def test_real_objects_are_quick(real_kernels: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """200 objects a second on one core, with room to spare for a busy machine."""
    from pyacl import objfile

    blobs = [path.read_bytes() for path in real_kernels.values()]
    spent = time.process_time()
    for _ in range(20):
        for blob in blobs:
            objfile.read(blob).verdict()
    rate = 20 * len(blobs) / (time.process_time() - spent)
    assert rate > 200
    assert call(*real_kernels.values()) == 1
    assert "11 files, 11 kernels" in capsys.readouterr().out


def test_many_kernels_in_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "many.o"
    path.write_bytes(make_kernel_object([KernelSpec("k", core="mix", tiling_key=key) for key in range(300)]))
    assert call(path) == 0
    assert capsys.readouterr().out.count("MIX 1:2") == 300
