"""Who answers the C calls; this page turns the name of a backend into the backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyacl.backends.base import Backend

__all__ = ["open_backend"]


def open_backend(spec: str | Backend) -> Backend:
    """The backend for ``"library"``, ``"library:/folder"``, ``"sim"``, ``"sim:SOC"``, ``"sim:SOC@CANN"`` or an object.

    Raises
    ------
    ValueError
        For a name that is none of these.
    LibraryNotFoundError
        When the real library cannot be opened.
    """
    if not isinstance(spec, str):
        if not callable(getattr(spec, "address", None)):
            raise TypeError(
                f"a backend is a name or an object with address(name), name and version, not {type(spec).__name__}"
            )
        return spec
    kind, colon, rest = spec.partition(":")
    if kind == "library" and (rest or not colon):
        from pyacl.backends.library import LibraryBackend

        return LibraryBackend(rest or None)
    if kind == "sim" and (rest or not colon):
        from pyacl.backends.sim import Backend as SimBackend

        soc, _, cann = rest.partition("@")
        options: dict[str, Any] = {k: v for k, v in (("soc", soc), ("cann", cann)) if v}
        return SimBackend(**options)
    raise ValueError(
        f"{spec!r} is not a backend: say 'library', 'library:/folder', 'sim', 'sim:Ascend910B3' "
        "or 'sim:Ascend910B1@8.1.RC1'"
    )
