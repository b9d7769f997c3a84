"""Kernel objects (`.o` files of bisheng) read without loading them: pure, numpy and the standard library only."""

from __future__ import annotations

from pyacl.objfile.elf import KernelObjectError

__all__ = ["KernelObjectError"]
