"""Kernel objects (`.o` files of bisheng) read without loading them: pure, numpy and the standard library only."""

from __future__ import annotations

from pyacl.objfile.arch import Architecture
from pyacl.objfile.container import Container
from pyacl.objfile.elf import KernelObjectError
from pyacl.objfile.kernels import Entry, Kernel, demangle
from pyacl.objfile.metadata import Argument, BinaryMeta, KernelMeta
from pyacl.objfile.reader import KernelObject, read
from pyacl.objfile.sidecar import CpuKernel, Sidecar
from pyacl.objfile.verdict import Verdict

__all__ = [
    "Architecture",
    "Argument",
    "BinaryMeta",
    "Container",
    "CpuKernel",
    "Entry",
    "Kernel",
    "KernelMeta",
    "KernelObject",
    "KernelObjectError",
    "Sidecar",
    "Verdict",
    "demangle",
    "read",
]
