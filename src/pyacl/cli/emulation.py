"""``--emulate``: the function in numpy that does a kernel's work on the simulator."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["EmulationError", "find_emulation", "register_emulation"]


class EmulationError(ValueError):
    """What was asked for is no emulation; the message starts with the option."""


def find_emulation(text: str) -> Any:
    """Return the function that ``module:function`` or ``file.py:function`` names.

    Raises
    ------
    EmulationError
        The text is neither, or there is no such module, file or function.
    """
    module_name, colon, name = text.rpartition(":")
    if not colon or not name or not module_name:
        raise EmulationError(f"--emulate {text}: write MODULE:FUNCTION or FILE.py:FUNCTION")
    if module_name.endswith(".py") and not Path(module_name).is_file():
        raise EmulationError(f"--emulate {text}: there is no file {module_name}")
    try:
        module = _import_file(Path(module_name)) if module_name.endswith(".py") else _import(module_name)
    except Exception as error:  # whatever the module does when it is imported
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        raise EmulationError(f"--emulate {text}: {module_name} cannot be imported: {kind}{error}") from None
    function = getattr(module, name, None)
    if not callable(function):
        own = [n for n, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        have = [n for n in own if callable(getattr(module, n)) and not n.startswith("_")]
        raise EmulationError(
            f"--emulate {text}: {module_name} has no function {name}; it has {', '.join(have) or 'none'}"
        )
    return function


def register_emulation(kernel: str, function: Any, text: str) -> None:
    """Let a function stand for a kernel on the simulator.

    Raises
    ------
    EmulationError
        Its annotations do not say what it takes.
    """
    from pyacl import sim

    try:
        sim.kernel(kernel)(function)
    except TypeError as error:
        raise EmulationError(f"--emulate {text}: {error}") from None


def _import(name: str) -> ModuleType:
    sys.path.insert(0, "")  # modules beside where one stands, as `python -m` finds them
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove("")


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
