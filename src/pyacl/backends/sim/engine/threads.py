"""What the runtime library keeps for each host thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Context
    from .device import Device


class ThreadState(threading.local):
    """One object a machine; every thread sees its own attributes."""

    def __init__(self) -> None:
        self.context: Context | None = (
            None  # made current by name (aclrtSetCurrentContext, aclrtCreateContext); may have died since
        )
        self.device: Device | None = None  # or: set by aclrtSetDevice, the context is the device's primary one
        self.last_error = 0
        # (code, text) of failures since the last aclGetRecentErrMsg, oldest first
        self.messages: list[tuple[str, str]] = []
        self.recent = ""  # what aclGetRecentErrMsg gave and has not been superseded
        self.last_task = 0xFFFFFFFF  # id and stream of the last operation it queued
        self.last_stream = 0xFFFFFFFF
        # small things an area keeps per thread (the argument handle of the kernel area, buffers that a returned char
        # * points to)
        self.kept: dict[str, Any] = {}
