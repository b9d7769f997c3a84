"""``pyacl run``: one kernel, its arguments from files and numbers, its results to files; checked and timed when asked.

Exit codes: 0 done, and as expected; 1 the result is not as expected; 2 wrong arguments, or something is not installed;
3 the library or the device failed; 4 the time was up.
"""

from __future__ import annotations

import argparse
import ctypes
import difflib
import json
import statistics
import sys
import traceback
from dataclasses import fields
from pathlib import Path
from typing import Any, Optional

import numpy as np

from pyacl.arguments import Placeholder
from pyacl.backends.sim.engine.kernels import EMULATIONS
from pyacl.cli import in_words
from pyacl.cli.emulation import EmulationError, find_emulation, register_emulation
from pyacl.cli.job import ARGUMENT_KINDS, Argument, Array, Job, JobError, anchored, expected, read_job, save
from pyacl.device import Device
from pyacl.errors import AclError, AclInvalidDeviceError, AclTimeoutError, LibraryNotFoundError
from pyacl.kernel import BoundKernel, Kernel, KernelNotFoundError, LaunchConfig
from pyacl.objfile import KernelObjectError
from pyacl.session import current_session, use_backend
from pyacl.sim import UnregisteredKernel

EXIT_OK, EXIT_DIFFERENT, EXIT_USAGE, EXIT_FAILED, EXIT_TIMEOUT = range(5)

#: what the user can mend
_USAGE = (JobError, EmulationError, KernelObjectError, KernelNotFoundError, LibraryNotFoundError, AclInvalidDeviceError)
_ATTRIBUTES = tuple(field.name for field in fields(LaunchConfig))
#: events in use at a time while launches are timed
_TIMED_AT_ONCE = 256

_EPILOG = """\
arguments, in the order of the kernel's parameters:
  --in x.npy                          a file of numpy's, or of bare bytes with a dtype: x.bin:float16[128,64]
  --in random:float16[16384]          or random, zeros, arange (random: -1 to 1; -100 to 100 for integers)
  --out z.npy:float16[16384]          zeros before the launch; a name that does not end in .npy gets bare bytes;
                                      without a name (float16[16384]) it is only checked
  --inout acc.npy=new.npy             read, then written to a file (the file may be left out)
  --scalar u32:16384                  i8 to i64, u8 to u64, f16, bf16, f32, f64, bool
  --placeholder i32:8                 a pointer to numbers (i32:1,2,3) or to a file's bytes, sent along with the launch
  --tiling tiling.bin                 a struct: by value, or by pointer where the object says that all its arguments are
                                      pointers; tiling.bin:value, :pointer decide, tiling.bin@8 says its alignment
  --workspace 16M                     zeroed device memory

examples:
  pyacl run add_custom.o --kernel add_custom --blocks 8 --in x.npy --in y.npy --out "z.npy:float16[16384]" \\
        --check expected.npy --rtol 1e-3 --repeat 100 --warmup 10
  pyacl run job.toml --json           the same from a file: keys as the options, arguments = [{in = "x.npy"}, ...]
  PYACL_BACKEND=sim pyacl run add_custom.o ... --emulate kernels.py:add_custom

exit codes: 0 done, and as expected; 1 the result is not as expected; 2 wrong arguments, or something is not installed;
            3 the library or the device failed; 4 the time was up
"""


class _AppendArgument(argparse.Action):
    """Keeps --in, --out and the others in one list, in the order in which they were written."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: Optional[str] = None) -> None:
        given = [*(namespace.arguments or ()), (self.kind, values)]
        namespace.arguments = given

    @property
    def kind(self) -> str:
        return self.option_strings[0].lstrip("-")


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of ``pyacl``."""
    parser = subparsers.add_parser(
        "run",
        help="launch a kernel of a kernel object",
        description="Launch one kernel with arguments from files and numbers, and keep, check or time what it does.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("object", metavar="OBJECT", help="the kernel object (.o), or a job file (.toml, .json)")
    add("--kernel", metavar="NAME", help="which kernel (default: the only one)")
    add("--blocks", type=int, metavar="N", help="how many blocks it is launched on")
    for kind in ARGUMENT_KINDS:
        add(f"--{kind}", dest="arguments", action=_AppendArgument, metavar="SPEC", help=f"an argument: {_HELP[kind]}")
    add("--signature", metavar="TEXT", help='what the kernel takes, "ptr ptr ptr u32": checked before the launch')
    add("--attribute", action="append", metavar="NAME=VALUE", help="a launch attribute: schem_mode=batch (repeatable)")
    add("--device", type=int, metavar="N", help="number of the device (default: 0)")
    add("--backend", metavar="NAME", help="library, sim, sim:Ascend910B3 (default: PYACL_BACKEND, else library)")
    add("--emulate", metavar="MODULE:FUNCTION", help="what the kernel does, in numpy, for the simulator")
    add("--check", action="append", metavar="SPEC", help="what the outputs should be, in their order (repeatable)")
    add("--rtol", type=float, metavar="X", help="allowed difference relative to the expected value (default: 0)")
    add("--atol", type=float, metavar="X", help="allowed absolute difference (default: 0)")
    add("--repeat", type=int, metavar="N", help="launch N times more and time each launch with events")
    add("--warmup", type=int, metavar="N", help="launches before those that are timed (default: 0)")
    add("--timeout", type=float, metavar="SECONDS", help="how long to wait for the device (default: without an end)")
    add("--seed", type=int, metavar="N", help="for random inputs (default: 0)")
    add("--json", action="store_true", help="print what was done as JSON")


_HELP = {
    "in": "values the kernel reads",
    "out": "values it writes",
    "inout": "values it reads and writes",
    "scalar": "a number",
    "placeholder": "a pointer to data sent along with the launch",
    "tiling": "a struct",
    "workspace": "zeroed device memory",
}


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    report: dict[str, Any] = {"ok": False}
    try:
        code = _run(_job(args), report)
    except _USAGE as error:
        code = _failed(report, error, EXIT_USAGE)
    except AclTimeoutError as error:
        code = _failed(report, error, EXIT_TIMEOUT)
    except AclError as error:
        code = _failed(report, error, EXIT_FAILED)
    except Exception as error:
        traceback.print_exc()  # a bug, in the simulator or here
        code = _failed(report, error, EXIT_FAILED)
    report["ok"] = code == EXIT_OK
    report["exit_code"] = code
    if args.json:
        print(json.dumps(report, indent=2))
    elif "error" in report:
        print(f"pyacl run: {report['error']['message']}", file=sys.stderr)
    else:
        _show(report)
    return code


def _failed(report: dict[str, Any], error: BaseException, code: int) -> int:
    report["error"] = {"type": type(error).__name__, "message": str(error), "code": getattr(error, "code", None)}
    return code


# -- the job ---------------------------------------------------------------------------------------------------------


def _job(args: argparse.Namespace) -> Job:
    """What was asked for: the command line over the job file, if there is one."""
    is_file = Path(args.object).suffix in (".toml", ".json")
    given = Job(
        object=None if is_file else Path(args.object),
        kernel=args.kernel,
        blocks=args.blocks,
        arguments=tuple(Argument.parse(kind, text) for kind, text in args.arguments or ()),
        signature=args.signature,
        device=args.device,
        backend=args.backend,
        emulate=None if args.emulate is None else anchored(args.emulate),
        attribute=tuple(args.attribute or ()),
        repeat=args.repeat,
        warmup=args.warmup,
        timeout=args.timeout,
        seed=args.seed,
        check=tuple(expected(text) for text in args.check or ()),
        rtol=args.rtol,
        atol=args.atol,
    )
    job = given.over(read_job(args.object)) if is_file else given
    if job.object is None:
        raise JobError(f'{args.object} says no object: object = "add_custom.o"')
    if job.blocks is None:
        raise JobError("on how many blocks? Give --blocks 8 (the kernel was written for some number of them)")
    for name, low in (("repeat", 0), ("warmup", 0), ("timeout", 0), ("seed", 0), ("rtol", 0), ("atol", 0)):
        value = getattr(job, name)
        if value is not None and not value >= low:
            raise JobError(f"--{name} {value}: at least {low}")
    outputs = sum(argument.kind in ("out", "inout") for argument in job.arguments)
    if len(job.check) > outputs:
        raise JobError(f"{len(job.check)} --check for {outputs} outputs; each is for one --out or --inout, in order")
    if (job.rtol is not None or job.atol is not None) and not job.check:
        raise JobError("--rtol and --atol are for --check, which is missing")
    return job


def _config(attributes: tuple[str, ...]) -> Optional[LaunchConfig]:
    values: dict[str, Any] = {}
    for text in attributes:
        name, equals, value = text.partition("=")
        if not equals:
            raise JobError(f"--attribute {text}: write NAME=VALUE, such as schem_mode=batch")
        if name not in _ATTRIBUTES:
            close = difflib.get_close_matches(name, _ATTRIBUTES, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(_ATTRIBUTES)}"
            raise JobError(f"--attribute {text}: there is no attribute {name!r}{hint}")
        values[name] = _plain(value)
    try:
        return LaunchConfig(**values) if values else None
    except (TypeError, ValueError) as error:
        raise JobError(f"--attribute {' '.join(attributes)}: {error}") from None


def _plain(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


# -- running it ------------------------------------------------------------------------------------------------------


class _Values:
    """One argument: its values on the host, and what is handed to the launch."""

    def __init__(self, argument: Argument, host: Optional[Array], given: Any) -> None:
        self.argument = argument
        self.host = host
        self.given = given

    @property
    def written(self) -> bool:
        return self.argument.kind in ("out", "inout")

    def describe(self) -> dict[str, Any]:
        argument = self.argument
        entry: dict[str, Any] = {"kind": argument.kind, "text": argument.text}
        if self.host is not None:
            entry.update(dtype=self.host.dtype.name, shape=list(self.host.shape))
        if argument.file is not None:
            entry["file"] = str(argument.file)
        return entry


def _run(job: Job, report: dict[str, Any]) -> int:
    assert job.object is not None and job.blocks is not None
    hosts = [_host_values(argument, (job.seed or 0) + i) for i, argument in enumerate(job.arguments)]
    wanted = _expected_values(job, hosts)
    config = _config(job.attribute)
    if job.backend is not None:
        try:
            use_backend(job.backend)
        except ValueError as error:
            raise JobError(f"--backend {job.backend}: {error}") from None
    simulated = current_session().api.backend.name.startswith("sim")
    # on hardware the kernel itself does the work, so that one command line serves both
    function = find_emulation(job.emulate) if simulated and job.emulate is not None else None
    with Device(job.device or 0) as device:
        kernel = _kernel(device, job)
        if function is not None:
            _emulate(kernel, function, job, hosts)
        stream = device.create_stream()
        values = [_on_device(device, kernel, argument, host) for argument, host in zip(job.arguments, hosts)]
        report.update(
            object=str(job.object),
            kernel=kernel.name,
            blocks=job.blocks,
            device={"id": device.id, "name": device.name},
            backend=current_session().api.backend.name,
            arguments=[value.describe() for value in values],
        )
        try:
            bound = kernel.bind(job.blocks, stream, config)
        except ValueError as error:
            raise JobError(str(error)) from None
        try:
            bound(*(value.given for value in values))
        except AclError:
            raise
        except (TypeError, ValueError) as error:
            raise JobError(f"{error}{_numbered(job.arguments)}") from None
        except UnregisteredKernel:
            raise JobError(
                f"the simulator does not know what {kernel.name} does: say it with --emulate kernels.py:{kernel.name}"
            ) from None
        try:
            stream.synchronize(job.timeout)
        except AclError:
            raise
        except Exception as error:
            if function is None:
                raise
            raise JobError(f"{_blamed(function, error)}{_numbered(job.arguments)}") from None
        results = [value.given.to_host(stream) for value in values if value.written]
        if job.repeat:
            report["time"] = _time(bound, values, job)
    for value, result in zip([value for value in values if value.written], results):
        if value.argument.file is not None:
            _save(result, value.argument)
    report["check"] = [_compare(result, want, job) for result, want in zip(results, wanted)]
    return EXIT_OK if all(check["ok"] for check in report["check"]) else EXIT_DIFFERENT


def _host_values(argument: Argument, seed: int) -> Optional[Array]:
    if argument.file is not None and not argument.file.parent.is_dir():
        raise JobError(f"{argument.option}: there is no folder {argument.file.parent} for the result")
    try:
        if argument.source is not None:
            return argument.source.array(seed)
        if argument.target is not None:
            return argument.target.array()
    except MemoryError as error:
        raise JobError(f"{argument.option}: does not fit into the memory of the host: {error}") from None
    return argument.value if isinstance(argument.value, np.ndarray) else None


def _save(result: Array, argument: Argument) -> None:
    assert argument.file is not None
    try:
        save(result, argument.file)
    except OSError as error:
        raise JobError(f"{argument.option}: {argument.file} cannot be written: {error.strerror}") from None


def _expected_values(job: Job, hosts: list[Optional[Array]]) -> list[Array]:
    """What the outputs are compared with, of their dtype and shape."""
    outputs = [host for argument, host in zip(job.arguments, hosts) if argument.kind in ("out", "inout")]
    found = []
    for source, output in zip(job.check, outputs):
        assert output is not None
        want = source.array(like=output)
        if want.dtype != output.dtype or want.shape != output.shape:
            raise JobError(
                f"{source.option}: holds {want.dtype}{list(want.shape)}, the output is "
                f"{output.dtype}{list(output.shape)}; they must be the same"
            )
        found.append(want)
    return found


def _kernel(device: Device, job: Job) -> Kernel:
    assert job.object is not None
    try:
        binary = device.load(job.object)
    except AclError:
        raise
    except OSError as error:
        raise JobError(in_words(error)) from None
    name = job.kernel
    if name is None:
        if len(binary.names) != 1:
            raise JobError(f"{job.object} has {len(binary.names)} kernels: --kernel {' or '.join(binary.names[:20])}")
        name = binary.names[0]
    try:
        return binary.kernel(name, job.signature)
    except (TypeError, ValueError) as error:
        if isinstance(error, AclError):
            raise
        raise JobError(f"--signature {job.signature!r}: {error}") from None


def _emulate(kernel: Kernel, function: Any, job: Job, hosts: list[Optional[Array]]) -> None:
    """Let a function stand for the kernel; it says what the kernel takes, so that the arguments can be compared."""
    assert job.emulate is not None
    register_emulation(kernel.name, function, job.emulate)
    takes = EMULATIONS[kernel.name].arguments
    if len(takes) != len(job.arguments):
        names = ", ".join(parameter.name for parameter in takes)
        raise JobError(
            f"{kernel.name} takes {len(takes)} arguments ({names}), not {len(job.arguments)}{_numbered(job.arguments)}"
        )
    for parameter, argument, host in zip(takes, job.arguments, hosts):
        _compare_with_parameter(kernel, parameter, argument, host, job.emulate)


def _compare_with_parameter(
    compiled: Kernel, parameter: Any, argument: Argument, host: Optional[Array], said: str
) -> None:
    """One argument is of the kind and the dtype that the emulation takes."""
    kernel = compiled.name
    is_number = argument.kind == "scalar"
    takes_number, takes_struct = parameter.kind == "Scalar", parameter.kind == "Struct"
    if is_number and not takes_number:
        what = "a struct, which --tiling gives" if takes_struct else "a pointer to memory, such as --in or --out give"
        raise JobError(
            f"{argument.option}: {kernel} takes {what}, for {parameter.name}, not a number (by --emulate {said})"
        )
    if takes_number and not is_number:
        raise JobError(
            f"{argument.option}: {kernel} takes a number for {parameter.name}: --scalar {parameter.dtype.name}:5 (by "
            f"--emulate {said})"
        )
    if takes_struct and argument.kind != "tiling":
        raise JobError(
            f"{argument.option}: {kernel} takes a struct by value for {parameter.name}: --tiling {argument.text} (by "
            f"--emulate {said})"
        )
    if argument.kind == "tiling":
        assert host is not None
        if _by_pointer(compiled, argument) == takes_struct:
            ways = [("a pointer to a struct", "pointer"), ("a struct by value", "value")]
            (takes, way), (gives, _) = reversed(ways) if takes_struct else ways
            raise JobError(
                f"{argument.option}: {kernel} takes {takes} for {parameter.name}, this gives {gives}: write "
                f"--tiling {argument.text.partition(':')[0]}:{way} (by --emulate {said})"
            )
        if takes_struct and host.nbytes != parameter.dtype.itemsize:
            raise JobError(
                f"{argument.option}: {kernel} takes a struct of {parameter.dtype.itemsize} bytes for {parameter.name}, "
                f"not {host.nbytes} (by --emulate {said})"
            )
        return
    given = argument.value if is_number else host
    # bytes that stand for a struct are what they are
    if given is None or parameter.dtype.names is not None or given.dtype == parameter.dtype:
        return
    raise JobError(
        f"{argument.option}: {kernel} takes {parameter.dtype} for {parameter.name}, not {given.dtype} (by --emulate "
        f"{said}; on hardware the kernel would read the bytes as {parameter.dtype})"
    )


def _blamed(function: Any, error: Exception) -> str:
    """What an emulation raised, and where in it."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == function.__code__.co_filename:
            place = f" ({frame.filename}:{frame.lineno}: {frame.line})"
    return f"the emulation {function.__name__} raised {type(error).__name__}: {error}{place}"


def _on_device(device: Device, kernel: Kernel, argument: Argument, host: Optional[Array]) -> _Values:
    """The argument as the launch takes it."""
    if argument.kind == "scalar":
        return _Values(argument, None, argument.value)
    if argument.kind == "workspace":
        return _Values(argument, None, device.zeros(argument.value, np.uint8))
    assert host is not None
    if argument.kind == "placeholder":
        return _Values(argument, host, Placeholder(host))
    if argument.kind == "tiling":
        by_pointer = _by_pointer(kernel, argument)
        return _Values(argument, host, Placeholder(host) if by_pointer else _struct(argument, host))
    return _Values(argument, host, device.to_device(host))


def _by_pointer(kernel: Kernel, argument: Argument) -> bool:
    """Whether a struct goes by pointer."""
    return _takes_pointers_only(kernel) if argument.by_pointer is None else bool(argument.by_pointer)


def _takes_pointers_only(kernel: Kernel) -> bool:
    """Whether the object lists its arguments, and each has 8 bytes: then a struct cannot be one of them."""
    arguments, sizes = kernel.info.user_arguments, kernel.info.user_sizes
    return arguments is not None and bool(sizes) and 8 * len(arguments) == max(sizes)


def _struct(argument: Argument, host: Array) -> Any:
    """The struct's bytes, with the alignment that is known."""
    if host.dtype.names is not None:
        return host.reshape(-1)[0]
    raw = host.tobytes()
    align = argument.align or (host.dtype.itemsize if host.dtype.itemsize > 1 else 0)
    word = {4: ctypes.c_uint32, 8: ctypes.c_uint64}.get(align)
    if word is None:
        return raw
    if len(raw) % align:
        raise JobError(f"{argument.option}: {len(raw)} bytes are no multiple of its alignment, {align}")
    return (word * (len(raw) // align)).from_buffer_copy(raw)


def _numbered(arguments: tuple[Argument, ...]) -> str:
    listed = "".join(f"\n  {number}: {argument.option}" for number, argument in enumerate(arguments, 1))
    return f"\nthe arguments are{listed}" if listed else "\nno arguments were given"


def _time(bound: BoundKernel, values: list[_Values], job: Job) -> dict[str, Any]:
    """Time launches, each between two events of its own."""
    stream, device = bound.stream, bound.stream.device
    given = [value.given for value in values]
    for _ in range(job.warmup or 0):
        bound(*given)
    stream.synchronize(job.timeout)
    count = job.repeat or 0
    marks = [(device.create_event(), device.create_event()) for _ in range(min(count, _TIMED_AT_ONCE))]
    microseconds: list[float] = []
    while len(microseconds) < count:
        now = marks[: count - len(microseconds)]
        for begin, end in now:
            stream.record(begin)
            bound(*given)
            stream.record(end)
        stream.synchronize(job.timeout)
        microseconds += [1000 * (end - begin) for begin, end in now]
    moved = 0
    for value in values:
        if value.argument.kind in ("in", "out", "inout") and value.host is not None:
            moved += value.host.nbytes * (2 if value.argument.kind == "inout" else 1)
    median = statistics.median(microseconds)
    return {
        "launches": count,
        "warmup": job.warmup or 0,
        "min_us": min(microseconds),
        "median_us": median,
        "max_us": max(microseconds),
        "bytes": moved,
        "gb_per_s": moved / median / 1000 if median else None,
    }


def _compare(result: Array, want: Array, job: Job) -> dict[str, Any]:
    """How a result differs from what was expected."""
    rtol, atol = job.rtol or 0.0, job.atol or 0.0
    exact = result.dtype.kind in "iub" and not rtol and not atol
    if exact:
        good = result == want
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            good = np.isclose(result.astype(np.float64), want.astype(np.float64), rtol, atol, equal_nan=True)
    with np.errstate(invalid="ignore"):
        differences = np.abs(result.astype(np.float64) - want.astype(np.float64))
    finite = differences[np.isfinite(differences)]
    check: dict[str, Any] = {
        "ok": bool(good.all()),
        "values": int(result.size),
        "different": int(result.size - np.count_nonzero(good)),
        "largest_difference": float(finite.max()) if finite.size else 0.0,
        "rtol": rtol,
        "atol": atol,
    }
    if not check["ok"]:
        place = tuple(int(i) for i in np.argwhere(~good)[0])
        check["first"] = {"index": list(place), "result": result[place].item(), "expected": want[place].item()}
    return check


# -- telling ---------------------------------------------------------------------------------------------------------


def _show(report: dict[str, Any]) -> None:
    device = report["device"]
    simulated = ", simulated" if report["backend"].startswith("sim") else ""
    print(f"{report['kernel']}[{report['blocks']}] on device {device['id']} ({device['name']}{simulated})")
    checks = iter(report["check"])
    rows = [
        (entry["kind"], entry["text"], f"{entry['dtype']}{entry['shape']}" if "dtype" in entry else "")
        for entry in report["arguments"]
    ]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        line = "  ".join(f"{text:{width}}" for text, width in zip(row, widths))
        check = next(checks, None) if row[0] in ("out", "inout") else None
        print(f"  {line}  {_verdict(check) if check else ''}".rstrip())
    if "time" in report:
        time = report["time"]
        speed = "" if time["gb_per_s"] is None else f"; {time['gb_per_s']:.3g} GB/s"
        print(
            f"  {time['launches']} launches: min {time['min_us']:.4g} us, median {time['median_us']:.4g} us, "
            f"max {time['max_us']:.4g} us{speed}{' (simulated time)' if simulated else ''}"
        )


def _verdict(check: dict[str, Any]) -> str:
    how = f"rtol {check['rtol']:g}, atol {check['atol']:g}" if check["rtol"] or check["atol"] else "exactly"
    if check["ok"]:
        return f"as expected ({how}; largest difference {check['largest_difference']:g})"
    first = check["first"]
    return (
        f"NOT as expected ({how}): {check['different']} of {check['values']} values differ, the first at "
        f"{first['index']}: {first['result']}, not {first['expected']}"
    )
