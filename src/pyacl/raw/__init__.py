"""The C API one to one: functions, types and constants under their C names, no objects and no policy."""

import importlib

from pyacl.raw.table import REFERENCE_VERSION, VERSIONS, Function, Param

__all__ = ["FUNCTIONS", "REFERENCE_VERSION", "VERSIONS", "Api", "Function", "Param", "load"]

# where a name lives; modules are opened when first needed, because constants and libruntime's structures are many
_LAZY = {"Api": "pyacl.raw.api", "FUNCTIONS": "pyacl.raw.functions"}
_MODULES = ("types", "constants", "runtime_types", "runtime_constants")


def load(backend="library"):
    """The C functions of a backend.

    Parameters
    ----------
    backend : str or Backend
        ``"library"`` (the installed CANN), ``"library:/a/folder"``, ``"sim"``, ``"sim:Ascend910B3"``,
        ``"sim:Ascend910B1@8.1.RC1"``, or any object with ``name``, ``version`` and ``address(name)``.

    Returns
    -------
    Api
        ``api.aclrtX(...)`` is checked, ``api.unchecked.aclrtX(...)`` returns the code.

    Raises
    ------
    LibraryNotFoundError
        When no real library can be opened; the message says where it was looked for.
    ValueError
        For a backend that does not exist.
    """
    # backends stand above raw; only this call looks up, so that importing raw opens nothing
    from pyacl.backends import open_backend
    from pyacl.raw.api import Api

    return Api(open_backend(backend))


def __getattr__(name):
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"pyacl.raw.{name}")
    if not name.startswith("_"):
        from pyacl.raw.functions import FUNCTIONS, MISSPELT

        if name in FUNCTIONS or name in MISSPELT:
            # the session's functions are not kept here: the session may change
            from pyacl.session import current_session

            return getattr(current_session().api, name)
        for module in _MODULES:
            found = getattr(importlib.import_module(f"pyacl.raw.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_nearest(name)}")


def _nearest(name):
    if name.startswith("_"):
        return ""
    import difflib

    from pyacl.raw import constants
    from pyacl.raw.functions import FUNCTIONS

    close = difflib.get_close_matches(name, [*FUNCTIONS, *vars(constants)], 3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
