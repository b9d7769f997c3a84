"""What the runtime library keeps for each host thread."""
from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    from .context import Context


class ThreadState(threading.local):
    """One object a machine; every thread sees its own attributes."""

    def __init__(self) -> None:
        self.context: Optional[Context] = None
        self.last_error = 0
        # (code, text) of failures since the last aclGetRecentErrMsg, oldest first
        self.messages: List[Tuple[str, str]] = []
        # small things an area keeps per thread (the argument handle of the kernel area, buffers that a returned char * points to)
        self.kept: Dict[str, Any] = {}
