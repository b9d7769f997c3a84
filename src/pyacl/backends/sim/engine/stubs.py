"""Kernels by the address of a host function that stands for them: how compilers registered kernels before handles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import refusals
from .failures import AclLayerError, RuntimeLayerError
from .program import MAGIC_AICORE, MAGIC_CUBE, MAGIC_VECTOR, Function, Program, Programs

if TYPE_CHECKING:
    from .machine import Machine

INTERNAL, LOOKUP, DUPLICATE = 507000, 507027, 507028
MAGICS = (MAGIC_AICORE, MAGIC_CUBE, MAGIC_VECTOR)
NO_KEY = (1 << 64) - 1


class Stubs:
    """The table of a process: address of the host function -> function of a program."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.functions: dict[int, Function] = {}
        self.names: dict[str, int] = {}  # the name a stub was registered under -> its address

    def register_binary(self, data: bytes, magic: int) -> Program:
        """rtDevBinaryRegister."""
        if magic not in MAGICS:
            raise refusals.invalid(f"Program register failed, magic error, magic: 0x{magic:x}")
        return self.machine.area(Programs).load_data(data, magic, lazy=False)

    def register(self, program: Program, stub: int, name: str, kernel: str) -> None:
        """rtFunctionRegister."""
        if stub in self.functions:
            raise AclLayerError(DUPLICATE)  # neither a message nor the last error
        function = program.functions.get(kernel) if kernel else next(iter(program.functions.values()), None)
        if function is None:
            known = ", ".join(sorted(program.functions)[:8]) or "none"
            raise RuntimeLayerError(
                INTERNAL, "EE9999", f"Kernel register failed: no kernel {kernel} in {program.source}; it has: {known}"
            )
        self.functions[stub] = function
        self.names[name] = stub

    def find(self, stub: int) -> Function:
        """The function of a launch."""
        function = self.functions.get(stub)
        if function is None:
            raise RuntimeLayerError(INTERNAL, "EE9999", f"Can not find kernel by function[0x{stub:x}]")
        return function

    def by_name(self, name: str) -> int | None:
        return self.names.get(name)

    def by_key(self, program: Program, key: int) -> Function:
        """The function of a launch with a binary and a tiling key."""
        function = program.keys.get(key)
        if function is None:
            raise RuntimeLayerError(INTERNAL, "EE9999", f"Can not find kernel by tilingKey={key}")
        return function

    def forget(self, program: Program) -> None:
        """The stubs of a binary that is unregistered."""
        gone = {stub for stub, function in self.functions.items() if function.program is program}
        self.functions = {stub: function for stub, function in self.functions.items() if stub not in gone}
        self.names = {name: stub for name, stub in self.names.items() if stub not in gone}
