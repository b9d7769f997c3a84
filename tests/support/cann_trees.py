"""Fake CANN installations made of stub libraries, one function a kind."""

from __future__ import annotations

import functools
import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

import stub

CPU = "aarch64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
STUB_TEXT = "[ERROR]: stub library cannot be used for execution, please check your environment variables"


def named(name: str, needed: Sequence[Path] = ()) -> list[str]:
    """Linker flags that give a library its SONAME and let it need others, as the real ones do."""
    return [f"-Wl,-soname,{name}", "-Wl,--no-as-needed", *map(str, needed)]


@functools.cache
def driver() -> list[Path]:
    """The driver's libascend_hal.so, and a library of the driver that it needs."""
    common = stub.compile_library("int drvCommon(void) { return 0; }\n", "libdrv_common.so", named("libdrv_common.so"))
    hal = "int drvGetDevNum(unsigned *n) { *n = 2; return 0; }\n"
    return [stub.compile_library(hal, "libascend_hal.so", named("libascend_hal.so", [common])), common]


@functools.cache
def toolkit(version: str) -> list[Path]:
    """The libraries of a CANN version: libacl_rt.so from 8.5.0 on, libascendcl.so before. They need the driver."""
    runtime = stub.build("runtime", stub.names_in("runtime", version), version, named("libruntime.so", driver()[:1]))
    main = stub.library_of("aclrtMalloc", version)
    found = [runtime, stub.build(main, stub.names_in(main, version), version, named(f"lib{main}.so", [runtime]))]
    for stem in ("msprofiler", "acl_tdt_channel", "acl_tdt_queue", "ascend_dump", "platform", "ascendalog"):
        names = stub.names_in(stem, version)
        if names:
            found.append(stub.build(stem, names, version, named(f"lib{stem}.so", [runtime])))
    return found


def put(folder: Path, files: Sequence[Path]) -> Path:
    """Copy libraries into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, folder / file.name)
    return folder


def install_driver(base: Path) -> None:
    """The driver package below a base: the HAL in one folder, what it needs in another."""
    hal, common = driver()
    put(base / "driver" / "lib64" / "driver", [hal])
    put(base / "driver" / "lib64" / "common", [common])


def cann(base: Path, version: str = "9.0.0") -> Path:
    """The layout of CANN 8.5 and later: <base>/cann-<version> and the link <base>/cann."""
    root = base / f"cann-{version}"
    put(root / f"{CPU}-linux" / "lib64", toolkit(version))
    (root / "lib64").symlink_to(f"{CPU}-linux/lib64")
    (base / "cann").symlink_to(root.name)
    return base / "cann"


def ascend_toolkit(base: Path, version: str = "8.1.RC1") -> Path:
    """The layout up to CANN 8.3: <base>/ascend-toolkit/<version> and the link latest; runtime/version.info."""
    root = base / "ascend-toolkit" / version
    put(root / f"{CPU}-linux" / "lib64", toolkit(version))
    (root / "lib64").symlink_to(f"{CPU}-linux/lib64")
    (root / "runtime").mkdir()
    # the runtime's own number, and behind it the release
    (root / "runtime" / "version.info").write_text(f"Version=7.7.0.1.238\nversion_dir={version}\ntimestamp=2025\n")
    (root.parent / "latest").symlink_to(version)
    return root.parent / "latest"


def nnrt(base: Path, version: str = "8.1.RC1") -> Path:
    """The run-time-only package: libraries in runtime/lib64."""
    root = base / "nnrt" / version
    put(root / "runtime" / "lib64", toolkit(version))
    (root.parent / "latest").symlink_to(version)
    return root.parent / "latest"


def devlib(root: Path) -> Path:
    """An installation that has nothing but the library to link against, which prints and fails."""
    main = f'#include <stdio.h>\nint aclInit(const char *p) {{ puts("{STUB_TEXT}"); return 100039; }}\n'
    hal = "int drvGetDevNum(unsigned *n) { return 100039; }\n"
    names = {"libascendcl.so": main, "libascend_hal.so": hal}
    files = [stub.compile_library(text, name, named(name)) for name, text in names.items()]
    return put(root / f"{CPU}-linux" / "devlib", files)


def other_architecture(library: Path) -> None:
    """Turn a library into one for the other kind of host, by the number in its header."""
    data = bytearray(library.read_bytes())
    data[18:20] = (62 if CPU == "aarch64" else 183).to_bytes(2, "little")
    os.unlink(library)
    library.write_bytes(data)
