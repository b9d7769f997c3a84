"""pyacl: drive Ascend NPUs from Python through CANN's Runtime API.

Importing it opens no library and needs no Ascend software; everything below is fetched when it is first asked for.
"""

import importlib
from typing import TYPE_CHECKING

from pyacl._version import __version__

if TYPE_CHECKING:
    from pyacl import objfile as objfile
    from pyacl import raw as raw
    from pyacl import sim as sim
    from pyacl import testing as testing
    from pyacl.arguments import In as In
    from pyacl.arguments import InOut as InOut
    from pyacl.arguments import Out as Out
    from pyacl.arguments import Placeholder as Placeholder
    from pyacl.arguments import Workspace as Workspace
    from pyacl.compiler import CompiledKernel as CompiledKernel
    from pyacl.compiler import CompileError as CompileError
    from pyacl.compiler import CompilerNotFoundError as CompilerNotFoundError
    from pyacl.compiler import compile as compile
    from pyacl.device import Device as Device
    from pyacl.device import DeviceInfo as DeviceInfo
    from pyacl.device import MemoryInfo as MemoryInfo
    from pyacl.device import device_count as device_count
    from pyacl.errors import AclAiCoreError as AclAiCoreError
    from pyacl.errors import AclAiCpuError as AclAiCpuError
    from pyacl.errors import AclCaptureError as AclCaptureError
    from pyacl.errors import AclContextError as AclContextError
    from pyacl.errors import AclDeviceFaultError as AclDeviceFaultError
    from pyacl.errors import AclError as AclError
    from pyacl.errors import AclEventError as AclEventError
    from pyacl.errors import AclInitializationError as AclInitializationError
    from pyacl.errors import AclInvalidArgumentError as AclInvalidArgumentError
    from pyacl.errors import AclInvalidDeviceError as AclInvalidDeviceError
    from pyacl.errors import AclLibraryError as AclLibraryError
    from pyacl.errors import AclMemoryError as AclMemoryError
    from pyacl.errors import AclNotInitializedError as AclNotInitializedError
    from pyacl.errors import AclNotSupportedError as AclNotSupportedError
    from pyacl.errors import AclResourceError as AclResourceError
    from pyacl.errors import AclStreamError as AclStreamError
    from pyacl.errors import AclTimeoutError as AclTimeoutError
    from pyacl.errors import ClosedError as ClosedError
    from pyacl.errors import ForkedError as ForkedError
    from pyacl.errors import LibraryNotFoundError as LibraryNotFoundError
    from pyacl.errors import MissingFunctionError as MissingFunctionError
    from pyacl.kernel import BoundKernel as BoundKernel
    from pyacl.kernel import Kernel as Kernel
    from pyacl.kernel import KernelBinary as KernelBinary
    from pyacl.kernel import KernelNotFoundError as KernelNotFoundError
    from pyacl.kernel import LaunchConfig as LaunchConfig
    from pyacl.kernel_library import KernelLibrary as KernelLibrary
    from pyacl.memory import DeviceBuffer as DeviceBuffer
    from pyacl.memory import HostBuffer as HostBuffer
    from pyacl.objfile import KernelObjectError as KernelObjectError
    from pyacl.session import use_backend as use_backend
    from pyacl.stream import Event as Event
    from pyacl.stream import Stream as Stream

#: where the public names live
_HOMES = {
    "arguments": ("In", "InOut", "Out", "Placeholder", "Workspace"),
    "compiler": ("CompileError", "CompiledKernel", "CompilerNotFoundError", "compile"),
    "device": ("Device", "DeviceInfo", "MemoryInfo", "device_count"),
    "errors": (
        *("AclAiCoreError", "AclAiCpuError", "AclCaptureError", "AclContextError", "AclDeviceFaultError", "AclError"),
        *("AclEventError", "AclInitializationError", "AclInvalidArgumentError", "AclInvalidDeviceError"),
        *("AclLibraryError", "AclMemoryError", "AclNotInitializedError", "AclNotSupportedError", "AclResourceError"),
        *("AclStreamError", "AclTimeoutError", "ClosedError", "ForkedError", "LibraryNotFoundError"),
        "MissingFunctionError",
    ),
    "kernel": ("BoundKernel", "Kernel", "KernelBinary", "KernelNotFoundError", "LaunchConfig"),
    "kernel_library": ("KernelLibrary",),
    "memory": ("DeviceBuffer", "HostBuffer"),
    "objfile": ("KernelObjectError",),
    "session": ("use_backend",),
    "stream": ("Event", "Stream"),
}
_MODULES = ("objfile", "raw", "sim", "testing")
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF, *_MODULES]  # noqa: PLE0604


if not TYPE_CHECKING:  # a type checker has the imports above, and knows that there are no other names

    def __getattr__(name):
        if name in _HOME_OF:
            found = getattr(importlib.import_module(f"pyacl.{_HOME_OF[name]}"), name)
        elif name in _MODULES:
            found = importlib.import_module(f"pyacl.{name}")
        else:
            raise AttributeError(f"module 'pyacl' has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})
