"""What a backend is: the one question it answers."""

from __future__ import annotations

from typing import Optional, Protocol


class Backend(Protocol):
    """Who answers the C calls: a real library, the simulator, a recorder."""

    @property
    def name(self) -> str:
        """What messages call it, such as ``library:/usr/local/Ascend/cann`` or ``sim:Ascend910B1@9.0.0``."""

    @property
    def version(self) -> Optional[str]:
        """Its CANN version, None where it cannot tell."""

    def address(self, name: str) -> Optional[int]:
        """The address of the C function ``name``, None where the backend lacks it.

        The address stays valid as long as the backend lives; whoever made code for it keeps it alive.
        """

    def close(self) -> None:
        """Give back what the backend holds. No address may be called afterwards."""
