"""The fixtures of support/pyacl_api.py, for all tests of the objects."""

from pyacl_api import lazy, machine, simulator, stub

__all__ = ["lazy", "machine", "simulator", "stub"]
