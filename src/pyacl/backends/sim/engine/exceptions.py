"""Exceptions of kernels on a device, as the program is told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

from . import refusals
from .memory import Memory

if TYPE_CHECKING:
    from .launch import KernelLaunch
    from .machine import Machine

ARGUMENTS = "arguments of a kernel that failed"


class KernelException(NamedTuple):
    """What is known of a kernel that failed.

    Attributes
    ----------
    code : 507015, 507018, 507035
    task : number of the launch on its stream
    thread : system id of the thread that launched it
    arguments : (device address, bytes) of the argument block, as long as the callbacks run
    """

    code: int
    task: int
    stream: int
    thread: int
    device: int
    launch: KernelLaunch
    arguments: tuple[int, int]


Callback = Callable[[KernelException], object]


class Listeners:
    """Who is told of the exceptions of a machine: functions by the name they are registered under."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.callbacks: dict[str, Callback] = {}

    def set(self, name: str, callback: Callback | None, replace: bool = True) -> None:
        """Register a function, or take the one with this name away."""
        if callback is None:
            self.callbacks.pop(name, None)
            return
        if name in self.callbacks and not replace:
            raise refusals.invalid(f"regName:{name} has already been registered.")
        self.callbacks[name] = callback


def tell(machine: Machine, launch: KernelLaunch, code: int, data: bytes) -> None:
    """Call the functions of the machine, then that of the kernel's binary. Called without the engine lock.

    data : the whole argument block
    """
    callbacks = list(machine.area(Listeners).callbacks.values())
    if launch.function.program.callback is not None:
        callbacks.append(launch.function.program.callback)
    if not callbacks:
        return
    stream = launch.stream
    assert stream is not None
    memory, block = machine.area(Memory), None
    arguments = launch.source
    if launch.data is not None:
        with machine.lock:
            if launch.copy is not None:
                arguments = (launch.copy.base, len(data))
            elif data:
                block = memory.allocate(
                    stream.context.device.index, len(data), len(data), kind=ARGUMENTS, free_of_charge=True
                )
                memory.write(block.base, data, ARGUMENTS)
                arguments = (block.base, len(data))
    told = KernelException(
        code, launch.number, stream.number, launch.thread, stream.context.device.index, launch, arguments
    )
    try:
        for callback in callbacks:
            callback(told)
    finally:
        if block is not None:
            with machine.lock:
                if memory.blocks.at(block.base) is block:
                    memory.drop(block)
