"""The JSON file beside a kernel object: what the runtime reads of it, and what people want to know.

Of an object's JSON the runtime reads `magic`, `intercoreSync` and `debugOptions`, nothing else. The JSON of an AI CPU
library has another shape: one entry per kernel, each with `opInfo`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: What `magic` may say, and the MAGIC option of aclrtBinaryLoadFromData that means the same.
MAGICS = {
    "RT_DEV_BINARY_MAGIC_ELF": "AICORE",
    "RT_DEV_BINARY_MAGIC_ELF_AICUBE": "CUBE",
    "RT_DEV_BINARY_MAGIC_ELF_AIVEC": "VECTOR",
    "FFTS_BINARY_MAGIC_ELF_MIX_AIC": "VECTOR",
    "FFTS_BINARY_MAGIC_ELF_MIX_AIV": "VECTOR",
}

#: Value of the MAGIC option (ACL_RT_BINARY_LOAD_OPT_MAGIC) by name.
MAGIC_VALUES = {"AICORE": 0x43554245, "VECTOR": 0x41415246, "CUBE": 0x41494343}


@dataclass(frozen=True)
class CpuKernel:
    """One AI CPU kernel that a JSON declares."""

    #: The key: the operator type, which is the name `aclrtBinaryGetFunction` takes.
    name: str
    function: str
    library: str


@dataclass(frozen=True)
class Sidecar:
    """A sidecar as it was found. A broken one has `error` set and counts as absent, as it does for the runtime."""

    path: str | None = None
    error: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def magic(self) -> str | None:
        """AICORE, CUBE or VECTOR; None when `magic` is missing or not one the runtime knows."""
        value = self.data.get("magic")
        return MAGICS.get(value) if isinstance(value, str) else None

    @property
    def inter_core_sync(self) -> bool:
        """Whether the kernels get the hidden synchronization slot (`intercoreSync` is the number 1)."""
        value = self.data.get("intercoreSync")
        return value == 1 and not isinstance(value, bool)

    @property
    def debug_options(self) -> str | None:
        """The text of `debugOptions`; None when absent."""
        value = self.data.get("debugOptions")
        return value if isinstance(value, str) else None

    @property
    def core_type(self) -> str | None:
        """`coreType` as written: VectorCore, MIX, AiCore, ..."""
        value = self.data.get("coreType")
        return value if isinstance(value, str) else None

    @property
    def ratio(self) -> tuple[int, int] | None:
        """`taskRation` as numbers, when it holds a ratio and not the word "tilingKey"."""
        value = self.data.get("taskRation")
        parts = value.split(":") if isinstance(value, str) else []
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 5 for part in parts):
            return None
        return int(parts[0]), int(parts[1])

    @property
    def tiling_size(self) -> int | None:
        """`opParaSize`: bytes of the tiling structure."""
        value = self.data.get("opParaSize")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def cpu_kernels(self) -> tuple[CpuKernel, ...]:
        """The AI CPU kernels it declares; none for the sidecar of a device object."""
        kernels = []
        for name, value in self.data.items():
            info = value.get("opInfo") if isinstance(value, Mapping) else None
            if isinstance(info, Mapping):
                function, library = info.get("functionName"), info.get("kernelSo")
                kernels.append(
                    CpuKernel(
                        name,
                        function if isinstance(function, str) else "",
                        library if isinstance(library, str) else "",
                    )
                )
        return tuple(kernels)


def parse_sidecar(text: bytes | str, path: str | None = None) -> Sidecar:
    """Parse a sidecar's text; never raises, what is wrong stands in `error`."""
    try:
        # The runtime's JSON reader takes no NaN or Infinity, Python's does.
        data = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        return Sidecar(path, "nested too deeply")
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, numbers with too many digits
        return Sidecar(path, f"not JSON: {error}")
    if not isinstance(data, dict):
        return Sidecar(path, f"a JSON {type(data).__name__}, not an object")
    return Sidecar(path, None, data)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
