"""pyacl: drive Ascend NPUs from Python through CANN's Runtime API."""

from pyacl._version import __version__

__all__ = ["__version__"]
