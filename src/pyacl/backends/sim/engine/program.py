"""Programs: loaded kernel binaries, their functions, their copies on the devices. How a file is read: elfload.py."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import chips, elfload
from .elfload import AIC, AIC_ROLLBACK, AICORE, AIV, AIV_ROLLBACK, MIX_AIC_MAIN, MIX_AIV_MAIN, LoadFailure, RawKernel
from .failures import RuntimeLayerError, UndefinedBehavior
from .handles import HandleTable
from .memory import Block, Memory

if TYPE_CHECKING:
    from .device import Device
    from .exceptions import Callback as ExceptionCallback
    from .machine import Machine

# kinds of mix functions: one half only, or both with the main half
NO_MIX, CUBE_HALF, VECTOR_HALF, MAIN_CUBE, MAIN_VECTOR = 0, 1, 2, 3, 4
# values of ACL_FUNC_ATTR_KERNEL_TYPE
TYPE_AICORE, TYPE_CUBE, TYPE_VECTOR, TYPE_MIX, TYPE_AICPU = 0, 1, 2, 3, 100
# values of the MAGIC option
MAGIC_AICORE, MAGIC_VECTOR, MAGIC_CUBE = 0x43554245, 0x41415246, 0x41494343
_MAGIC_NAMES = {
    "RT_DEV_BINARY_MAGIC_ELF": MAGIC_AICORE,
    "RT_DEV_BINARY_MAGIC_ELF_AICUBE": MAGIC_CUBE,
    "RT_DEV_BINARY_MAGIC_ELF_AIVEC": MAGIC_VECTOR,
    "FFTS_BINARY_MAGIC_ELF_MIX_AIC": MAGIC_VECTOR,
    "FFTS_BINARY_MAGIC_ELF_MIX_AIV": MAGIC_VECTOR,
}
CODE = "the code of a kernel"  # what its memory on a device is called
_CUBE, _VECTOR = "_mix_aic", "_mix_aiv"
_PATH_LIMIT = 4096
INVALID = 107000
DUPLICATE = 507028


class Function:
    """One function of a program: what a function handle stands for."""

    def __init__(self, program: Program, name: str, raw: RawKernel | None = None) -> None:
        self.program = program
        self.name = name
        self.cpu = raw is None  # runs on the AI CPU
        self.handle = program.table.functions.add(self)
        self.mix = NO_MIX
        self.type: int | None = TYPE_AICPU if raw is None else None
        self.offset = 0 if raw is None else raw.offset
        self.offset2 = 0
        self.length = 0 if raw is None else raw.length
        self.length2 = 0
        self.key: int | None = None  # the number BinaryGetFunctionByEntry takes
        self.ktype = 0 if raw is None else raw.ktype
        self.cores = (0, 0) if raw is None else raw.cores  # cube and vector cores of a block, as the file says
        self.ratio = 0 if raw is None else raw.ratio
        self.sched_mode = 0 if raw is None else raw.sched_mode
        self.ub_size = 0 if raw is None else raw.ub_size
        self.room = elfload.MAX_ARGUMENTS if raw is None else raw.arguments  # arguments a handle has room for
        self.sync_slot = False  # has a hidden first argument: the address for synchronising cores
        self.overflow_slot = raw is not None  # has a hidden last argument: the address of the overflow flag
        self.parameters = None if raw is None else raw.parameters
        # of an AI CPU function
        self.library = ""
        self.symbol = ""

    @property
    def hidden(self) -> int:
        """Number of hidden arguments."""
        return int(self.sync_slot) + int(self.overflow_slot)

    @property
    def vector_only(self) -> bool:
        """Its one address belongs to the vector core."""
        machine = self.program.machine
        own = self.ktype in (AIV, AIV_ROLLBACK)
        return machine == elfload.AI_VECTOR or (machine == elfload.MIX and own) or self.mix == VECTOR_HALF

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


class Program:
    """One loaded binary."""

    def __init__(self, table: Programs, kind: str, place: str) -> None:
        self.table = table
        self.kind = kind  # the C function that loaded it
        self.source = place  # the path, or what to call the data
        self.cpu = False
        self.lazy = False
        self.old = False  # loaded by aclrtBinaryLoad: bound to no device
        self.machine = elfload.MIX
        self.magic = 0
        self.size = 0
        self.data = b""
        self.binary: elfload.Binary | None = None
        self.inter_core_sync = False
        self.functions: dict[str, Function] = {}
        self.keys: dict[int, Function] = {}
        self.valid: dict[int, int] = {}  # devices on which functions may be launched, as they were opened then
        self.images: dict[int, tuple[int, Block]] = {}  # the code on the devices, as they were opened then
        self.library = ""
        self.callback: ExceptionCallback | None = None  # of aclrtBinarySetExceptionCallback
        self.handle = table.programs.add(self)

    def image(self, device: Device, make: bool = True) -> Block | None:
        """The code on a device; copied there when it is not, if `make`."""
        generation, block = self.images.get(device.index, (0, None))
        if block is not None and generation == device.generation:
            return block
        if not make:
            return None
        assert self.binary is not None
        memory = self.table.machine.area(Memory)
        code = self.data[self.binary.text_offset : self.binary.text_offset + self.binary.text_size]
        size = max(len(code), 1)
        block = memory.allocate(device.index, size, size, kind=CODE, free_of_charge=True)
        memory.write(block.base, code, self.kind)
        self.images[device.index] = device.generation, block
        return block

    def bring_to(self, device: Device) -> None:
        """What taking a function does first: from now on it may be launched on this device, until that is reset."""
        if self.old or self.valid.get(device.index) == device.generation:
            return
        if not self.lazy and not self.cpu:
            self.image(device)
        self.valid[device.index] = device.generation

    def may_run_on(self, device: Device) -> bool:
        return self.old or self.valid.get(device.index) == device.generation

    def add_cpu(self, name: str, symbol: str, library: str) -> Function:
        """Register one AI CPU function; a name that exists stays as it is."""
        function = self.functions.get(name)
        if function is None:
            function = self.functions[name] = Function(self, name)
            function.symbol, function.library = symbol, library
        return function

    def __repr__(self) -> str:
        return f"<kernel binary {self.source}>"


class Programs:
    """All kernel binaries of a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.features = chips.features(machine.profile.family)
        self.programs: HandleTable[Program] = HandleTable("kernel binary")
        self.functions: HandleTable[Function] = HandleTable("kernel function")
        self.descriptions: HandleTable[tuple[int, int]] = HandleTable("binary description")
        for device in machine.devices:
            device.when_closed.append(self._closed)

    def _closed(self, device: Device) -> None:
        """The device gives back the memory of the code on it."""
        memory = self.machine.area(Memory)
        for program in self.programs:
            _, block = program.images.pop(device.index, (0, None))
            if block is not None and memory.blocks.at(block.base) is block:
                memory.drop(block)

    # ---- loading ---------------------------------------------------------------------------------------------

    def load_file(self, path: str, lazy: bool) -> Program:
        """aclrtBinaryLoadFromFile for a kernel object."""
        real, data = _read_file(path)
        program = Program(self, "aclrtBinaryLoadFromFile", path)
        try:
            self._read(program, data)
            self._sidecar(program, real)
            self._register(program)
        except LoadFailure as why:
            self._give_up(program, why)
        program.lazy = lazy
        return program

    def load_data(self, data: bytes, magic: int, lazy: bool) -> Program:
        """aclrtBinaryLoadFromData for a kernel object."""
        program = Program(self, "aclrtBinaryLoadFromData", f"data of {len(data)} bytes")
        if magic:
            program.machine = self._machine_of(magic)
        try:
            self._read(program, data)
            assert program.binary is not None
            if not program.binary.complete and not magic:
                raise LoadFailure("it lacks metadata, and no MAGIC option says what kind of kernels it holds")
            if program.binary.complete and chips.CVMIX not in self.features:
                program.machine = elfload.MIX
            program.magic = magic
            self._register(program)
        except LoadFailure as why:
            self._give_up(program, why)
        program.lazy = lazy
        return program

    def load_old(self, data: bytes, device: Device) -> Program:
        """aclrtBinaryLoad: metadata is needed, the code goes to the device at once."""
        program = Program(self, "aclrtBinaryLoad", f"data of {len(data)} bytes")
        program.old = True
        try:
            self._read(program, data)
            self._register(program)
        except LoadFailure as why:
            self._give_up(program, why)
        program.image(device)
        return program

    def load_cpu(self, path: str, mode: int) -> Program:
        """aclrtBinaryLoadFromFile with a CPU kernel mode: 0 reads the json, 1 the library too."""
        library = _with_extension(path, ".so")
        program = Program(self, "aclrtBinaryLoadFromFile", path)
        program.cpu, program.machine = True, elfload.AI_CPU
        program.library = os.path.basename(library)
        try:
            if mode == 1:
                program.data = _read_file(library)[1]
                program.size = len(program.data)
            parsed = _parse_json(_with_extension(library, ".json"))
            if parsed is None:
                raise LoadFailure("the json beside it cannot be read")
            for name, symbol, so_name in _cpu_functions(parsed):
                program.add_cpu(name, symbol, so_name)
        except (LoadFailure, RuntimeLayerError) as why:
            self._give_up(program, why)
        return program

    def load_cpu_data(self, data: bytes) -> Program:
        """aclrtBinaryLoadFromData with a CPU kernel mode."""
        program = Program(self, "aclrtBinaryLoadFromData", f"data of {len(data)} bytes")
        program.cpu, program.machine = True, elfload.AI_CPU
        program.data, program.size = data, len(data)
        program.library = f"{len(data)}.so"
        return program

    def unload(self, program: Program) -> None:
        """Take a program and its functions away."""
        memory = self.machine.area(Memory)
        for _, block in program.images.values():
            if memory.blocks.at(block.base) is block:
                memory.drop(block)
        program.images.clear()
        for function in program.functions.values():
            self.functions.remove(function.handle)
        self.programs.remove(program.handle)

    def _give_up(self, program: Program, why: Exception) -> None:
        for function in program.functions.values():
            self.functions.remove(function.handle)
        self.programs.remove(program.handle)
        if isinstance(why, RuntimeLayerError):
            raise why
        code = why.message_code if isinstance(why, LoadFailure) else "EE1001"
        raise RuntimeLayerError(INVALID, code, f"{program.source} was not loaded: {why}") from None

    def _machine_of(self, magic: int) -> int:
        if magic == MAGIC_AICORE:
            return elfload.CVMIX if chips.CVMIX in self.features else elfload.AI_CORE
        return elfload.AI_VECTOR if magic == MAGIC_VECTOR else elfload.AI_CORE

    def _read(self, program: Program, data: bytes) -> None:
        program.data, program.size = data, len(data)
        program.binary = elfload.read(data, program.machine, self.features)
        if chips.MACHINE_FROM_ELF in self.features:
            program.machine = elfload.AI_CPU if program.binary.machine == 183 else elfload.AI_CORE

    def _sidecar(self, program: Program, path: str) -> None:
        """What the json beside the file says; a file with complete metadata does without."""
        assert program.binary is not None
        content = _parse_json(path[: max(path.rfind("."), 0)] + ".json")
        if content is None:
            if program.binary.complete:
                return
            raise LoadFailure("it lacks metadata, and there is no json beside it that can be read")
        keys = content if isinstance(content, dict) else {}
        sync = keys.get("intercoreSync")
        program.inter_core_sync = sync == 1 and not isinstance(sync, bool)
        if "debugOptions" in keys and "printf" in _text(keys["debugOptions"], "debugOptions"):
            raise LoadFailure("it was built with the debug option printf")
        if not program.binary.complete:
            magic = _MAGIC_NAMES.get(_text(keys["magic"], "magic")) if "magic" in keys else None
            if magic is None:
                raise LoadFailure("it lacks metadata, and the json beside it has no magic that is known")
            program.machine, program.magic = self._machine_of(magic), magic

    # ---- registering the functions ---------------------------------------------------------------------------

    def _register(self, program: Program) -> None:
        assert program.binary is not None
        for raw in program.binary.kernels:
            self._register_one(program, program.binary, raw)

    def _register_one(self, program: Program, binary: elfload.Binary, raw: RawKernel) -> None:
        merged = MAIN_CUBE
        if program.old or program.machine == elfload.MIX:
            self._check_type(raw)
            if raw.ktype == AICORE:
                name, mix = _plain_name(raw.name)
            else:
                name, mix = _typed_name(raw)
                merged = MAIN_CUBE if raw.ktype == MIX_AIC_MAIN else MAIN_VECTOR
        else:
            name, mix = _plain_name(raw.name)
            if chips.DEGENERATE in self.features and binary.degenerate and mix in (CUBE_HALF, VECTOR_HALF):
                mix = NO_MIX
        if not name:
            raise LoadFailure(f"nothing is left of the name {raw.name}")
        other = program.functions.get(name)
        if chips.KERNEL_MIX in self.features and other is not None and other.offset2 == 0 and other.mix != mix:
            _merge(other, raw, merged)
            return
        function = Function(program, name, raw)
        function.mix = mix
        if program.machine != elfload.MIX:
            function.ktype = function.ratio = 0
        self._describe(program, binary, function, raw)
        if other is not None:
            self.functions.remove(function.handle)
            raise RuntimeLayerError(DUPLICATE, "EE9999", f"{program.source} has two functions of the name {name}")
        program.functions[name] = function
        if raw.named_only:
            return
        function.key = raw.entry if raw.entry is not None else _tiling_key(name)
        if function.key is not None:
            program.keys.setdefault(function.key, function)

    def _check_type(self, raw: RawKernel) -> None:
        refused = 0 if chips.TYPE_AICORE not in self.features else AICORE
        only = chips.TYPE_AICORE not in self.features
        if not 0 < raw.ktype < elfload.KTYPE_END or raw.ktype == refused or (only and raw.ktype != AICORE):
            raise LoadFailure(f"{raw.name} has the KTYPE {raw.ktype}, which this chip does not run")

    def _describe(self, program: Program, binary: elfload.Binary, function: Function, raw: RawKernel) -> None:
        _, half = _plain_name(raw.name)
        by_magic = {MAGIC_AICORE: TYPE_AICORE, MAGIC_CUBE: TYPE_CUBE, MAGIC_VECTOR: TYPE_VECTOR}
        by_meta = {
            AICORE: TYPE_AICORE,
            MIX_AIC_MAIN: TYPE_AICORE,
            MIX_AIV_MAIN: TYPE_AICORE,
            AIC: TYPE_CUBE,
            AIC_ROLLBACK: TYPE_CUBE,
            AIV: TYPE_VECTOR,
            AIV_ROLLBACK: TYPE_VECTOR,
        }
        if half in (CUBE_HALF, VECTOR_HALF):
            function.type = TYPE_CUBE if half == CUBE_HALF else TYPE_VECTOR
        elif binary.complete and raw.ktype in by_meta:
            function.type = by_meta[raw.ktype]
        else:
            function.type = by_magic.get(program.magic)
        function.sync_slot = (
            chips.FFTS in self.features
            and elfload.FFTS_THROUGH_SYMBOL not in binary.implicit
            and (program.inter_core_sync or raw.sync == 1 or function.mix != NO_MIX)
        )

    # ---- functions -------------------------------------------------------------------------------------------

    def function_by_name(self, program: Program, name: str) -> Function:
        """aclrtBinaryGetFunction: whatever is wrong is 107000."""
        try:
            device = self.machine.current_context(opens=False).device
        except RuntimeLayerError:
            text = f"No function {name}: the thread has no device or context"
            raise RuntimeLayerError(INVALID, "EE1001", text) from None
        program.bring_to(device)
        function = program.functions.get(name)
        if function is None:
            known = ", ".join(sorted(program.functions)[:8]) or "none"
            raise RuntimeLayerError(INVALID, "EE1001", f"{program.source} has no function {name}; it has: {known}")
        return function

    def function_by_key(self, program: Program, key: int) -> Function:
        """aclrtBinaryGetFunctionByEntry for a program of AI Core kernels."""
        program.bring_to(self.machine.current_context(opens=False).device)
        function = program.keys.get(key)
        if function is None:
            known = ", ".join(map(str, sorted(program.keys)[:8])) or "none"
            raise RuntimeLayerError(INVALID, "EE1001", f"{program.source} has no function entry {key}; it has: {known}")
        return function

    def addresses(self, function: Function) -> tuple[int, int]:
        """The addresses of the cube and the vector half on the current device; 0 for a half that is not there."""
        program = function.program
        block = program.image(self.machine.current_context(opens=False).device, make=program.lazy)
        base = 0 if block is None else block.base
        first = base + function.offset
        second = base + function.offset2 if function.offset2 else 0
        if not second and function.vector_only:
            return 0, first
        return first, second


def _read_file(path: str) -> tuple[str, bytes]:
    """(real path, content) of a file that holds something."""
    problem = "cannot be read"
    if path and len(os.fsencode(path)) < _PATH_LIMIT:
        real = os.path.realpath(path)
        try:
            with open(real, "rb") as file:
                data = file.read()
            if data:
                return real, data
            problem = "is empty"
        except (OSError, ValueError) as why:
            problem = f"cannot be read ({why})"
    raise RuntimeLayerError(INVALID, "EE1001", f"The file {path[:200]!r} {problem}")


def _with_extension(path: str, extension: str) -> str:
    dot = path.rfind(".")
    return (path if dot < 0 else path[:dot]) + extension


def _parse_json(path: str) -> Any:
    """The content of a json file; None if there is none or it is broken."""

    def refuse(word: str) -> float:
        raise ValueError(word)

    try:
        if len(os.fsencode(path)) >= _PATH_LIMIT:
            return None
        with open(path, "rb") as file:
            text = file.read().decode("utf-8-sig")
        content = json.loads(text, parse_constant=refuse)
    except (OSError, ValueError, RecursionError):
        return None
    return {} if content is None else content


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise UndefinedBehavior(f"the json beside the kernel has {key}: {value!r}; the library ends the process")
    return value


def _cpu_functions(content: Any) -> Iterable[tuple[str, str, str]]:
    """(name, symbol, library) of every AI CPU kernel that a json declares."""
    for name, entry in content.items() if isinstance(content, dict) else ():
        if not isinstance(entry, dict) or "opInfo" not in entry:
            continue
        keys = entry["opInfo"] if isinstance(entry["opInfo"], dict) else {}
        for key in ("opKernelLib", "userDefined"):
            _text(keys.get(key, ""), key)
        yield name, _text(keys.get("functionName", ""), "functionName"), _text(keys.get("kernelSo", ""), "kernelSo")


def _plain_name(name: str) -> tuple[str, int]:
    """A name without its half, and which half the name says."""
    cube, vector = name.rfind(_CUBE), name.rfind(_VECTOR)
    if cube < 0 and vector < 0:
        return name, NO_MIX
    if cube >= 0:
        name = name[:cube] + name[cube + len(_CUBE) :]
        if vector < 0:
            return name, CUBE_HALF
        vector = name.rfind(_VECTOR)
        return name[:vector] + name[vector + len(_VECTOR) :], MAIN_CUBE
    return name[:vector] + name[vector + len(_VECTOR) :], VECTOR_HALF


def _typed_name(raw: RawKernel) -> tuple[str, int]:
    """The same for a function whose metadata says its type."""
    name, ktype = raw.name, raw.ktype
    if ktype in (AIC, AIV):
        return name, (CUBE_HALF if ktype == AIC else VECTOR_HALF) if raw.sync == 1 else NO_MIX
    cube, vector = name.rfind(_CUBE), name.rfind(_VECTOR)
    if ktype in (AIC_ROLLBACK, AIV_ROLLBACK):
        is_cube = ktype == AIC_ROLLBACK
        mix = (CUBE_HALF if is_cube else VECTOR_HALF) if raw.sync == 1 else NO_MIX
    else:
        is_cube = cube >= 0
        mix = CUBE_HALF if is_cube else VECTOR_HALF
    at = cube if is_cube else vector
    if at < 0:
        raise LoadFailure(f"{name} is of KTYPE {ktype}, but its name does not say which half it is")
    return name[:at] + name[at + len(_CUBE) :], mix


def _merge(function: Function, raw: RawKernel, main: int) -> None:
    """The second half of a mix function; the cube half always comes first."""
    if function.mix == VECTOR_HALF:
        function.offset2, function.length2 = function.offset, function.length
        function.offset, function.length = raw.offset, raw.length
    else:
        function.offset2, function.length2 = raw.offset, raw.length
        function.ub_size = raw.ub_size
    function.mix = main
    function.type = TYPE_MIX


def _tiling_key(name: str) -> int | None:
    """The number at the end of a name."""
    digits = name[name.rfind("_") + 1 :]
    if not digits or not digits.isascii() or not digits.isdigit():
        return None
    key = int(digits)
    return key if key < 1 << 64 else None
