"""A folder that looks like a CANN toolkit, with a bisheng and a device linker that understand what the tests write.

The stand-in bisheng reads a source for its ``__global__`` functions, includes and ``#error`` lines, and writes a note
of what it was asked for; the stand-in linker makes a loadable object of such notes. Every call is noted in ``calls``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

_BISHENG = """#!{python}
import json, os, re, sys

args = sys.argv[1:]
root = {root!r}
with open(os.path.join(root, "calls"), "a") as file:
    file.write(json.dumps(["bisheng", *args]) + "\\n")
if args == ["--version"]:
    print(open(os.path.join(root, "version")).read(), end="")
    sys.exit(0)
taking_value = {{"-o", "-MF", "-x", "-mllvm"}}
values, defines, folders, sources, flags = {{}}, {{}}, [], [], []
rest = iter(args)
for arg in rest:
    if arg in taking_value:
        values[arg] = next(rest)
    elif arg.startswith("-D"):
        name, _, value = arg[2:].partition("=")
        defines[name] = value
    elif arg.startswith("-I"):
        folders.append(arg[2:])
    elif arg.startswith("-"):
        flags.append(arg)
    else:
        sources.append(arg)
(source,) = sources
read = [source]

def text_of(path):
    text = open(path).read()
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#error"):
            print(f"{{path}}:{{number}}:2: error: {{line[7:]}}")
            print(f"    {{number}} | {{line}}")
            print("      |  ^")
            print("1 error generated.")
            sys.exit(1)
        if line.startswith("#warning"):
            print(f"{{path}}:{{number}}:2: warning: {{line[9:]}}", file=sys.stderr)
        if line.startswith("#pragma crash"):
            os.kill(os.getpid(), 11)
        if line.startswith("#pragma hang"):
            import time
            print("thinking", flush=True)
            time.sleep(60)
        included = re.match(r'#include "(.*)"', line)
        if included:
            for folder in [os.path.dirname(path), *folders]:
                found = os.path.join(folder, included[1])
                if os.path.exists(found):
                    read.append(found)
                    text += text_of(found)
                    break
    return text

text = text_of(source)
widths = {{"half": 2, "float": 4, "uint32_t": 4, "int32_t": 4, "uint64_t": 8}}

def width_of(parameter):
    kind = parameter.replace("const", "").split()[0]
    if "*" in parameter or kind == "GM_ADDR":
        return 8
    if kind in widths:
        return widths[kind]
    members = re.search(r"struct " + kind + r" \\{{(.*?)\\}}", text, re.S)[1]
    return sum(widths[member.split()[0]] for member in members.split(";") if member.strip())

kernels, arguments = [], []
for name, parameters in re.findall(r"__global__.*?void (\\w+)\\((.*?)\\)", text, re.S):
    kernels.append(defines.get(name, name))
    arguments.append([width_of(p) for p in parameters.split(",") if p.strip()])
if "-MF" in values and not os.path.exists(os.path.join(root, "no-dependency-files")):
    with open(values["-MF"], "w") as file:
        quoted = [path.replace(" ", "\\\\ ") for path in read]
        file.write(values["-o"] + ": " + " \\\\\\n  ".join(quoted) + "\\n")
archs = [flag.partition("=")[2] for flag in flags if "arch=" in flag]
note = dict(kernels=kernels, arguments=arguments, arch=archs[0], metadata="--asc-aicore-lang" in flags, source=text)
if "-shared" in flags:
    note = dict(note, library=True)
with open(values["-o"], "w") as file:
    json.dump(note, file)
"""

_LINKER = """#!{python}
import json, sys

args = sys.argv[1:]
with open({root!r} + "/calls", "a") as file:
    file.write(json.dumps(["ld.lld", *args]) + "\\n")
from pyacl.testing import KernelSpec, make_kernel_object
notes = [json.load(open(arg)) for arg in args if arg.endswith(".obj")]
names = [name for note in notes for name in note["kernels"]]
widths = dict(pair for note in notes for pair in zip(note["kernels"], note["arguments"]))
if any("undefined_symbol" in note["source"] for note in notes):
    print("ld.lld: error: undefined symbol: undefined_symbol", file=sys.stderr)
    sys.exit(1)
out = args[args.index("-o") + 1]
if any("forget_output" in note["source"] for note in notes):
    sys.exit(0)
specs = []
for name in dict.fromkeys(name.replace("_mix_aic", "").replace("_mix_aiv", "") for name in names):
    # compiled as Ascend C, a mixed kernel is one source with one name
    mixed = name + "_mix_aic" in names or "KERNEL_TYPE_MIX" in notes[0]["source"]
    core = "mix" if mixed else "aic" if notes[0]["arch"].endswith("cube") else "aiv"
    args = widths.get(name, widths.get(name + "_mix_aiv"))
    specs.append(KernelSpec(name, core=core, args=args))
with open(out, "wb") as file:
    if not specs:
        file.write(b"not an object" * 100)
    else:
        arch = notes[0]["arch"]
        single = arch in ("dav-2002", "dav-1001", "dav-m200", "dav-c100")
        if single:
            specs = [KernelSpec(spec.name, core="aicore", args=spec.args) for spec in specs]
        arch = {{"dav-m200": "dav-2002", "dav-c100": "dav-1001"}}.get(arch, arch)
        file.write(make_kernel_object(specs, arch=arch, metadata=notes[0]["metadata"]))
"""


class Standin:
    """The toolkit's root and what was called."""

    def __init__(self, root: Path, layout: str = "tools/bisheng_compiler/bin") -> None:
        self.root = root
        self.folder = root / layout
        self.folder.mkdir(parents=True)
        self.set_version("bisheng version 1.0 (stand-in)")
        for name, text in (("bisheng", _BISHENG), ("ld.lld", _LINKER)):
            program = self.folder / name
            program.write_text(text.format(python=sys.executable, root=str(root)))
            program.chmod(0o755)

    @property
    def bisheng(self) -> Path:
        return self.folder / "bisheng"

    def set_version(self, text: str) -> None:
        (self.root / "version").write_text(text + "\n")

    def without_dependency_files(self) -> None:
        (self.root / "no-dependency-files").touch()

    def calls(self) -> list[list[str]]:
        """What was run so far, without the questions for the version."""
        file = self.root / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [call for call in map(json.loads, lines) if call[1:] != ["--version"]]
