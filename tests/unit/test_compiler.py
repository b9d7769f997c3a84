"""bisheng from Python: the command lines against the documented ones, and the whole path with a stand-in compiler."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from standin_compiler import Standin

from pyacl import compiler, objfile
from pyacl.backends.library import Places
from pyacl.compiler import CompileError, CompilerNotFoundError, Toolchain, make_plan

VECTOR = (
    'extern "C" __global__ __vector__ void add_custom(__gm__ uint8_t* x, __gm__ uint8_t* y, __gm__ uint8_t* z) {}\n'
)
PLAIN = 'extern "C" __global__ __aicore__ void add_custom(GM_ADDR x, GM_ADDR y, GM_ADDR z) {}\n'
MIXED = 'extern "C" __global__ __mix__(1, 2) void matmul(GM_ADDR a, GM_ADDR b, GM_ADDR c) {}\n'
CANN9 = Toolchain("/cann/tools/bisheng_compiler/bin/bisheng", "/cann/tools/bisheng_compiler/bin/ld.lld", "/cann")
CANN8 = Toolchain("/cann/compiler/ccec_compiler/bin/bisheng", "/cann/compiler/ccec_compiler/bin/ld.lld", "/cann")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def source(tmp_path):
    def write(text=VECTOR, name="add.cpp"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def standin(tmp_path):
    return Standin(tmp_path / "cann")


# -- command lines ---------------------------------------------------------------------------------------------------


def test_ascend_c_is_compiled_as_the_toolkits_own_build_files_do(source):
    """ascendc_fatbin_library of asc-devkit: one pass of bisheng, one of the device linker."""
    path = source()
    plan = make_plan(path, soc="Ascend910B1", toolchain=CANN9)
    assert str(plan).splitlines() == [
        f"/cann/tools/bisheng_compiler/bin/bisheng -std=c++17 -O3 --npu-arch=dav-2201 -fPIC --aicore-only -c "
        f"--asc-aicore-lang -MD -MF add.d -o add.obj {path}",
        "/cann/tools/bisheng_compiler/bin/ld.lld -m aicorelinux -Ttext=0 add.obj -static -o add.o",
    ]
    assert (plan.language, plan.core, plan.sidecar, plan.product) == ("asc", "declared", None, "add.o")


def test_simt_sources_get_their_switch(source):
    compile_, link = make_plan(source(), arch="dav-3510", simt=True, toolchain=CANN9).commands
    assert "--enable-simt" in compile_ and "--npu-arch=dav-3510" in compile_ and "--aicore-only" in compile_
    assert link[1:3] == ("-m", "aicorelinux")


def test_cce_for_vector_cores(source):
    path = source()
    plan = make_plan(path, soc="Ascend910_9391", toolchain=CANN8)
    assert str(plan).splitlines() == [
        f"/cann/compiler/ccec_compiler/bin/bisheng -c -x cce -std=c++17 -O3 --cce-aicore-only "
        f"--cce-aicore-arch=dav-c220-vec -mllvm -cce-aicore-stack-size=0x8000 "
        f"-mllvm -cce-aicore-function-stack-size=0x8000 -mllvm -cce-aicore-record-overflow=true "
        f"-mllvm -cce-aicore-addr-transform -mllvm -cce-aicore-dcci-insert-for-scalar=false "
        f"-DASCENDC_DUMP=0 -D__NPU_TILING__ -DTILING_KEY_VAR=0 -I/cann/compiler/tikcpp/tikcfw "
        f"-I/cann/compiler/tikcpp/tikcfw/impl -I/cann/compiler/tikcpp/tikcfw/interface -MD -MF add.d -o add.obj {path}",
        "/cann/compiler/ccec_compiler/bin/ld.lld -m aicorelinux -Ttext=0 add.obj -static -o add.o",
    ]
    assert plan.sidecar["magic"] == "RT_DEV_BINARY_MAGIC_ELF_AIVEC"


def test_a_mixed_kernel_in_cce_takes_two_passes_under_two_names(source):
    path = source(MIXED, "matmul.cpp")
    cube, vector, link = make_plan(path, soc="Ascend910B1", toolchain=CANN8).commands
    assert "--cce-aicore-arch=dav-c220-cube" in cube and "-Dmatmul=matmul_mix_aic" in cube
    assert "--cce-aicore-arch=dav-c220-vec" in vector and "-Dmatmul=matmul_mix_aiv" in vector
    assert "-D__MIX_CORE_MACRO__=1" in cube and "-D__MIX_CORE_MACRO__=1" in vector
    assert shlex.join(link[1:]) == "-m aicorelinux -Ttext=0 matmul_aic.obj matmul_aiv.obj -static -o matmul.o"


@pytest.mark.parametrize(
    "soc, text, core, core_arch, magic",
    [
        ("Ascend310P3", PLAIN, "aicore", "dav-m200", "RT_DEV_BINARY_MAGIC_ELF"),
        ("Ascend910A", PLAIN, "aicore", "dav-c100", "RT_DEV_BINARY_MAGIC_ELF"),
        ("Ascend950PR_9599", VECTOR, "vector", "dav-c310-vec", "RT_DEV_BINARY_MAGIC_ELF_AIVEC"),
        ("Ascend910B2", PLAIN, "vector", "dav-c220-vec", "RT_DEV_BINARY_MAGIC_ELF_AIVEC"),
        ("Ascend910B2", VECTOR.replace("vector", "cube"), "cube", "dav-c220-cube", "RT_DEV_BINARY_MAGIC_ELF_AICUBE"),
        (
            "Ascend910B2",
            PLAIN + "KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);",
            "cube",
            "dav-c220-cube",
            "RT_DEV_BINARY_MAGIC_ELF_AICUBE",
        ),
    ],
)
def test_kind_of_core_in_cce(source, soc, text, core, core_arch, magic):
    plan = make_plan(source(text), soc=soc, language="cce", toolchain=CANN9)
    assert f"--cce-aicore-arch={core_arch}" in plan.commands[0]
    assert (plan.core, plan.sidecar["magic"]) == (core, magic)


def test_the_core_may_be_said(source):
    plan = make_plan(source(PLAIN), soc="Ascend310P3", core="vector", language="cce", toolchain=CANN8)
    assert "--cce-aicore-arch=dav-m200-vec" in plan.commands[0]


def test_a_host_library(source):
    path = source(name="add.asc")
    (command,) = make_plan(path, soc="Ascend910B1", shared=True, toolchain=CANN9).commands
    assert shlex.join(command[1:]) == (
        f"-shared -fPIC -std=c++17 -O3 --npu-arch=dav-2201 -MD -MF add.d {path} -o libadd.so"
    )
    other = make_plan(source(name="add.cpp"), soc="Ascend910B1", shared=True, toolchain=CANN9)
    assert other.commands[0][-5:-3] == ("-x", "asc")


def test_the_language_follows_the_toolkit_and_the_file(source):
    assert make_plan(source(), soc="Ascend910B1", toolchain=CANN9).language == "asc"
    assert make_plan(source(), soc="Ascend910B1", toolchain=CANN8).language == "cce"
    assert make_plan(source(name="a.asc"), soc="Ascend910B1", toolchain=CANN8).language == "asc"
    assert make_plan(source(), soc="Ascend910B1", toolchain=CANN8, language="asc").language == "asc"
    assert make_plan(source(), arch="dav-3510", simt=True, toolchain=CANN8).language == "asc"


def test_more_options_reach_the_command_lines(source, tmp_path):
    compile_, link = make_plan(
        source(), soc="Ascend910B1", toolchain=CANN9, include=[tmp_path / "inc"], define={"N": 8, "FAST": None},
        options="--cce-auto-sync -Wall", link_options=["--no-mmap-output-file"], optimize=2, debug=True, std="c++20",
    ).commands  # fmt: skip
    for option in (f"-I{tmp_path}/inc", "-DN=8", "-DFAST", "--cce-auto-sync", "-Wall", "-O2", "-g", "-std=c++20"):
        assert option in compile_
    assert "--no-mmap-output-file" in link
    assert "-DM=1" in make_plan(source(), soc="Ascend910B1", toolchain=CANN9, define=["M=1"]).commands[0]


def test_several_sources_become_one_object(source):
    first, second = source(), source(PLAIN.replace("add", "sub"), "sub.cpp")
    *compiles, link = make_plan([first, second], soc="Ascend910B1", toolchain=CANN9).commands
    assert [c[-1] for c in compiles] == [str(first), str(second)]
    assert link[4:6] == ("add.obj", "sub.obj") and link[-1] == "add.o"


def test_without_a_toolkit_commands_have_bare_names(source):
    commands = make_plan(source(), soc="Ascend910B1", language="cce").commands
    assert [c[0] for c in commands] == ["bisheng", "ld.lld"]
    assert "-I$ASCEND_HOME_PATH/compiler/tikcpp/tikcfw" in commands[0]


@pytest.mark.parametrize(
    "text, names",
    [
        (MIXED, ["matmul"]),
        ('extern "C" __global__ __aicore__ void one(GM_ADDR x) {}\n/* __global__ void not_me() */', ["one"]),
        ("// __global__ __aicore__ void no(GM_ADDR x)\n__global__ __cube__ void yes ( GM_ADDR x ) {}", ["yes"]),
        ('const char* s = "// no comment"; __global__ __aicore__ void f(){} __global__ void g(){}', ["f", "g"]),
        ('__global__ __aicore__ [[maybe_unused]] __attribute__((aligned)) void h(){}', ["h"]),
    ],
)  # fmt: skip
def test_kernels_are_found_in_the_source(source, text, names):
    path = source(text)
    assert compiler._kernel_names((), path) == names


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (dict(), ValueError, "for which NPU"),
        (dict(soc="Ascend910B"), ValueError, "ambiguous.*Ascend910B1"),
        (dict(soc="Ascend910B11"), ValueError, "did you mean Ascend910B1"),
        (dict(arch="dav-c220"), ValueError, "dav-2201"),
        (dict(soc="Ascend910B1", arch="dav-3510"), ValueError, "is a dav-2201, not the dav-3510"),
        (dict(soc="Ascend910B1", optimize=1), ValueError, "optimize=1"),
        (dict(soc="Ascend910B1", language="c"), ValueError, "neither 'asc' nor 'cce'"),
        (dict(soc="Ascend910B1", language="asc", core="vector"), ValueError, "takes them from the source"),
        (dict(arch="dav-3510", language="cce", simt=True), ValueError, "CCE has no SIMT"),
        (dict(soc="Ascend910B1", simt=True), ValueError, r"for Ascend 950 \(dav-3510\); Ascend910B1 is dav-2201"),
        (dict(soc="Ascend910B1", language="cce", shared=True), ValueError, "<<<>>>"),
        (dict(soc="Ascend910B1", shared=True, core="cube"), ValueError, "source says it all"),
        (dict(soc="Ascend310P3", language="cce", core="mix"), ValueError, "has aicore, vector"),
        (dict(soc="Ascend910B1", define="N=8"), TypeError, "list or a dict"),
        (dict(soc="Ascend910B1", language="cce", core="mix", kernels=["a b"]), ValueError, "no name of a C function"),
    ],
)
def test_contradictions_are_refused(source, arguments, error, message):
    with pytest.raises(error, match=message):
        make_plan(source(), toolchain=CANN9, **arguments)


def test_what_the_caller_can_mend_comes_before_what_must_be_installed(source, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match="for which NPU"):
        compiler.compile(source(), compiler=tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no source"):
        compiler.compile(tmp_path / "missing.cpp", soc="Ascend910B1", compiler=tmp_path)
    with pytest.raises(CompilerNotFoundError):
        compiler.compile(source(), soc="Ascend910B1", compiler=tmp_path)


def test_a_folder_that_is_missing_shows_before_anything_is_run(source, standin, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder .*nowhere for the result"):
        compiler.compile(source(), soc="Ascend910B1", compiler=standin.root, output=tmp_path / "nowhere" / "k.o")
    assert standin.calls() == []


def test_refusals_about_sources(source, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no source .*missing\.cpp"):
        make_plan(tmp_path / "missing.cpp", soc="Ascend910B1")
    with pytest.raises(ValueError, match="sources is empty"):
        make_plan([], soc="Ascend910B1")
    with pytest.raises(ValueError, match="one source"):
        make_plan([source(), source(name="b.cpp")], soc="Ascend910B1", shared=True)
    with pytest.raises(ValueError, match="compile them apart"):
        make_plan(source(VECTOR + VECTOR.replace("vector", "cube")), soc="Ascend910B1", language="cce")
    with pytest.raises(ValueError, match=r"kernels=\['its_name'\]"):
        make_plan(source("TEMPLATE_KERNEL(x)"), soc="Ascend910B1", language="cce", core="mix")


# -- finding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layout, language",
    [
        ("tools/bisheng_compiler/bin", "asc"),
        ("compiler/ccec_compiler/bin", "cce"),
        ("tools/ccec_compiler/bin", "cce"),
        ("x86_64-linux/ccec_compiler/bin", "cce"),
    ],
)
@pytest.mark.parametrize("variable", ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "usual place", "given"])
def test_layouts_and_places(tmp_path, layout, language, variable):
    base = tmp_path / "base"
    made = Standin(base / "cann", layout)
    environ = {variable: str(made.root)} if variable.startswith("ASCEND") else {}
    places = Places(environ, [str(base)] if variable == "usual place" else [], machine="x86_64")
    found = Toolchain.find(made.root if variable == "given" else None, places=places)
    assert found == (str(made.bisheng), str(made.folder / "ld.lld"), str(made.root))
    assert found.language == language


def test_bisheng_itself_may_be_given_and_the_path_is_the_last_resort(tmp_path):
    made = Standin(tmp_path / "cann", "compiler/ccec_compiler/bin")
    assert Toolchain.find(made.bisheng, places=Places({}, [])).root == str(made.root)
    on_path = Toolchain.find(places=Places({"PATH": str(made.folder)}, []))
    assert (on_path.bisheng, on_path.root) == (str(made.bisheng), str(made.root))


def test_a_link_on_the_path_leads_to_the_toolkit(tmp_path):
    made = Standin(tmp_path / "cann")
    (made.root / "bin").mkdir()
    (made.root / "bin" / "bisheng").symlink_to(made.bisheng)
    found = Toolchain.find(made.root / "bin" / "bisheng", places=Places({}, []))
    assert found.linker == str(made.folder / "ld.lld")
    assert found.root == str(made.root) and found.language == "asc"


def test_not_found_says_where_it_looked_and_what_to_do(tmp_path):
    (tmp_path / "nnrt" / "latest").mkdir(parents=True)
    places = Places({"ASCEND_HOME_PATH": str(tmp_path / "old")}, [str(tmp_path)])
    with pytest.raises(CompilerNotFoundError) as caught:
        Toolchain.find(places=places)
    message = str(caught.value)
    assert f"{tmp_path}/old (ASCEND_HOME_PATH): not here" in message
    assert f"{tmp_path}/nnrt/latest (usual place): no bisheng there" in message
    assert "tools/bisheng_compiler/bin" in message and "set ASCEND_HOME_PATH" in message
    assert [attempt.origin for attempt in caught.value.attempts] == ["ASCEND_HOME_PATH", *["usual place"] * 3]
    with pytest.raises(CompilerNotFoundError, match="no bisheng there"):
        Toolchain.find(tmp_path)


def test_half_a_toolkit_is_named(tmp_path):
    made = Standin(tmp_path / "cann")
    (made.folder / "ld.lld").unlink()
    with pytest.raises(CompilerNotFoundError, match=r"no device linker: there is no ld\.lld beside it"):
        Toolchain.find(made.root)
    made.bisheng.chmod(0o644)
    with pytest.raises(CompilerNotFoundError, match="cannot be executed"):
        Toolchain.find(made.root)


# -- the whole path --------------------------------------------------------------------------------------------------


def test_compile_makes_a_loadable_object(source, standin, tmp_path):
    made = compiler.compile(source(), soc="Ascend910B1", compiler=standin.root)
    assert made.path.parent.parent.parent == tmp_path / "cache" / "pyacl" / "kernels" == compiler.cache_folder()
    assert os.fspath(made) == str(made.path) and made.path.name == "add.o"
    obj = objfile.read(made)
    assert [kernel.name for kernel in obj.kernels] == ["add_custom"]
    assert obj.verdict("Ascend910B1").from_file
    assert made.read_bytes() == obj.data
    assert sorted(p.name for p in made.path.parent.iterdir()) == ["add.o", "files.json", "headers.json", "log.txt"]


def test_an_object_without_metadata_gets_a_sidecar(source, standin):
    made = compiler.compile(source(), soc="Ascend910B1", compiler=standin.root, language="cce")
    assert json.loads(made.path.with_suffix(".json").read_text()) == {
        "magic": "RT_DEV_BINARY_MAGIC_ELF_AIVEC", "coreType": "VectorCore", "binFileName": "add", "binFileSuffix": ".o",
    }  # fmt: skip
    assert objfile.read(made).verdict("Ascend910B1").from_file


def test_a_mixed_kernel_in_cce_is_one_kernel_with_two_halves(source, standin):
    made = compiler.compile(source(MIXED), soc="Ascend910B1", compiler=standin.root, language="cce")
    (kernel,) = objfile.read(made).kernels
    assert (kernel.name, kernel.core) == ("matmul", "MIX")
    assert [half.symbol for half in kernel.halves] == ["matmul_mix_aic", "matmul_mix_aiv"]
    assert objfile.read(made).verdict("Ascend910B1").from_file


def test_what_is_run_is_what_is_shown(source, standin):
    path = source(MIXED)
    plan = make_plan(path, soc="Ascend910B1", language="cce", toolchain=Toolchain.find(standin.root))
    compiler.run_plan(plan)
    assert [call[1:] for call in standin.calls()] == [list(command[1:]) for command in plan.commands]


def test_output_gets_object_and_sidecar(source, standin, tmp_path):
    target = tmp_path / "out" / "kernels.o"
    target.parent.mkdir()
    made = compiler.compile(source(), soc="Ascend910B1", compiler=standin.root, language="cce", output=target)
    assert made.path == target
    assert sorted(p.name for p in target.parent.iterdir()) == ["kernels.json", "kernels.o"]
    assert objfile.read(target).verdict("Ascend910B1").from_file


def test_without_the_cache_nothing_is_kept(source, standin, tmp_path):
    with pytest.raises(ValueError, match="cache=False leaves no place"):
        compiler.compile(source(), soc="Ascend910B1", compiler=standin.root, cache=False)
    for _ in range(2):
        made = compiler.compile(
            source(), soc="Ascend910B1", compiler=standin.root, cache=False, output=tmp_path / "a.o"
        )
        assert not made.cached and objfile.read(made).kernels
    assert len(standin.calls()) == 4
    assert not compiler.cache_folder().exists()


def test_a_host_library_is_not_asked_for_kernels(source, standin):
    made = compiler.compile(source(name="add.asc"), soc="Ascend910B1", compiler=standin.root, shared=True)
    assert made.path.name == "libadd.so"
    assert json.loads(made.path.read_text())["library"] is True


# -- the cache -------------------------------------------------------------------------------------------------------


def test_the_second_time_nothing_is_run(source, standin):
    first = compiler.compile(source(), soc="Ascend910B1", compiler=standin.root)
    second = compiler.compile(source(), soc="Ascend910B1", compiler=standin.root)
    assert not first.cached and second.cached and first.path == second.path
    assert len(standin.calls()) == 2


def test_what_counts_is_content(source, standin, tmp_path):
    header = tmp_path / "with space.h"
    header.write_text("int a;")
    text = '#include "with space.h"\n' + VECTOR

    def again(**more):
        return compiler.compile(source(text), soc="Ascend910B1", compiler=standin.root, **more)

    first = again()
    os.utime(header)
    assert again().cached
    header.write_text("int b;")
    changed = again()
    assert not changed.cached and changed.path != first.path
    header.write_text("int a;")
    back = again()
    assert back.cached and back.path == first.path
    assert not again(define=["N=1"]).cached
    assert again(define=["N=1"]).cached
    standin.set_version("bisheng version 1.1 (stand-in)")
    assert not again().cached
    text += "\n"
    assert not again().cached


def test_a_compiler_that_names_no_headers_is_run_every_time(source, standin):
    standin.without_dependency_files()
    made = [compiler.compile(source(), soc="Ascend910B1", compiler=standin.root) for _ in range(3)]
    assert not any(m.cached for m in made)
    assert len(standin.calls()) == 6
    assert objfile.read(made[-1]).kernels


def test_a_failure_leaves_nothing_behind(source, standin):
    with pytest.raises(CompileError):
        compiler.compile(source("#error no\n"), soc="Ascend910B1", compiler=standin.root)
    assert list(compiler.cache_folder().iterdir()) == []


def test_processes_and_threads_may_share_the_cache(source, standin):
    path = source()
    program = (
        "import sys; from pyacl import compiler; "
        f"print(compiler.compile({str(path)!r}, soc='Ascend910B1', compiler={str(standin.root)!r}).path)"
    )
    others = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    made = []
    threads = [
        threading.Thread(
            target=lambda: made.append(compiler.compile(path, soc="Ascend910B1", compiler=standin.root).path)
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    paths = {str(p) for p in made} | {other.communicate()[0].strip() for other in others}
    assert [other.returncode for other in others] == [0, 0]
    assert paths == {str(compiler.compile(path, soc="Ascend910B1", compiler=standin.root).path)}
    (entry_of_key,) = compiler.cache_folder().iterdir()
    assert len(list(entry_of_key.iterdir())) == 1


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.rename("x.o")])
def test_an_entry_that_somebody_has_damaged_is_made_again(source, standin, damage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = source()
    first = compiler.compile(path, soc="Ascend910B1", compiler=standin.root)
    content = first.path.read_bytes()
    damage(first.path)
    again = compiler.compile(path, soc="Ascend910B1", compiler=standin.root)
    assert (again.path, again.cached) == (first.path, False) and again.path.read_bytes() == content
    assert compiler.compile(path, soc="Ascend910B1", compiler=standin.root).cached
    assert list(compiler.cache_folder().glob(".making-*")) == []


def test_the_folder_is_the_documented_one(tmp_path, monkeypatch):
    assert compiler.cache_folder() == tmp_path / "cache" / "pyacl" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/counts/as/unset")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compiler.cache_folder() == tmp_path / ".cache" / "pyacl" / "kernels"


def test_a_cache_that_cannot_be_written_is_named(source, standin, tmp_path, monkeypatch):
    blocked = tmp_path / "a file"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with pytest.raises(OSError, match="set XDG_CACHE_HOME, or give output= and cache=False"):
        compiler.compile(source(), soc="Ascend910B1", compiler=standin.root)


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_compiler_error_shows_the_compilers_own_lines(source, standin):
    path = source("int x;\n#error half is no type here\n")
    with pytest.raises(CompileError) as caught:
        compiler.compile(path, soc="Ascend910B1", compiler=standin.root)
    error = caught.value
    lines = str(error).splitlines()
    assert lines[0] == "bisheng failed (exit code 1)."
    assert lines[1] == f"{path}:2:2: error: half is no type here"
    assert lines[4] == "1 error generated."
    assert lines[5].startswith(f"The command was: {standin.bisheng} -std=c++17")
    assert error.returncode == 1 and error.command[-1] == str(path)
    assert error.output.splitlines() == lines[1:5]


def test_long_output_is_cut_around_the_first_error(source, standin):
    warnings = "".join(f"#warning number {i}\n" for i in range(100))
    with pytest.raises(CompileError) as caught:
        compiler.compile(source(warnings + "#error here\n"), soc="Ascend910B1", compiler=standin.root)
    assert "error: here" in str(caught.value)
    assert "[40 of 104 lines; the exception's `output` has them all]" in str(caught.value)
    assert len(caught.value.output.splitlines()) == 104


def test_warnings_are_kept(source, standin):
    path = source("#warning slow\n" + VECTOR)
    for _ in range(2):
        made = compiler.compile(path, soc="Ascend910B1", compiler=standin.root)
        assert made.log == f"{path}:1:2: warning: slow\n"
    assert made.cached


@pytest.mark.parametrize(
    "text, message",
    [
        ("#pragma crash\n", r"bisheng failed \(killed by SIGSEGV\)\. It printed nothing\."),
        (VECTOR + "undefined_symbol", r"ld\.lld failed \(exit code 1\)\.\nld\.lld: error: undefined symbol"),
        (VECTOR + "forget_output", r"ld\.lld ended well and made no add\.o"),
        ("int nothing;\n", r"bisheng made add\.o, but "),
    ],
)
def test_other_ways_to_fail(source, standin, text, message):
    with pytest.raises(CompileError, match=message):
        compiler.compile(source(text), soc="Ascend910B1", compiler=standin.root)


def test_a_compiler_that_hangs_is_stopped(source, standin):
    with pytest.raises(CompileError, match=r"bisheng did not end within 2 s\.\nthinking") as caught:
        compiler.compile(source("#pragma hang\n"), soc="Ascend910B1", compiler=standin.root, timeout=2)
    assert caught.value.returncode is None


def test_an_object_for_another_generation_is_refused(source, standin):
    tools = Toolchain.find(standin.root)
    plan = make_plan(source(), soc="Ascend910B1", toolchain=tools)
    wrong = tuple(tuple(w.replace("dav-2201", "dav-3510") for w in command) for command in plan.commands)
    with pytest.raises(CompileError, match="it is for dav-3510, not for dav-2201"):
        compiler.run_plan(compiler.Plan(**{**plan.__dict__, "commands": wrong}))


def test_a_compiler_that_cannot_be_run(source, standin):
    standin.bisheng.write_text("#!/nonexistent/interpreter\n")
    with pytest.raises(CompileError, match="cannot be run: No such file"):
        compiler.compile(source(), soc="Ascend910B1", compiler=standin.root)
