"""Helpers for tests of programs that use pyacl; importing it needs no pytest."""

from __future__ import annotations

from pyacl.testing.objects import KernelSpec, make_archive, make_host_object, make_kernel_object, make_sidecar

__all__ = ["KernelSpec", "make_archive", "make_host_object", "make_kernel_object", "make_sidecar"]
