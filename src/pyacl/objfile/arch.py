"""Architectures: what the ELF flags of a device binary say, and which SoCs run it.

The runtime checks neither: an object for another SoC loads without an error and fails on the device. So this table is
the only thing between a user and a fault. The SoC names are those `aclrtGetSocName` gives.
"""

from __future__ import annotations

from typing import NamedTuple


class Architecture(NamedTuple):
    """One value of ``e_flags``."""

    flags: int
    #: ``--npu-arch`` of bisheng, which names a generation: ``dav-2201``.
    npu_arch: str
    #: ``--cce-aicore-arch`` of bisheng, which names a core of it: ``dav-c220-vec``.
    core_arch: str
    #: ``core_arch`` as it is shown, with what the flags add.
    label: str
    #: Products, for people.
    products: str


#: Vector-only objects have the lower flag of a generation; cube code anywhere in the file gives the higher.
ARCHITECTURES = {
    arch.flags: arch
    for arch in (
        Architecture(0x860000, "dav-1001", "dav-c100", "dav-c100 (Ascend910)", "Ascend 910"),
        Architecture(0x8A0000, "dav-2002", "dav-m200", "dav-m200 (310P)", "Ascend 310P"),
        Architecture(0x930000, "dav-2201", "dav-c220-vec", "dav-c220-vec", "Ascend 910B, 910_93 (Atlas A2, A3)"),
        Architecture(
            0x940000, "dav-2201", "dav-c220", "dav-c220 (has cube code)", "Ascend 910B, 910_93 (Atlas A2, A3)"
        ),
        Architecture(0x990000, "dav-3510", "dav-c310-vec", "dav-c310-vec", "Ascend 950, 350"),
        Architecture(0x9A0000, "dav-3510", "dav-c310", "dav-c310 (has cube code)", "Ascend 950, 350"),
    )
}

#: Flags of the vector-only objects.
VECTOR_FLAGS = frozenset({0x930000, 0x990000})

# The variants of Ascend 950: DT, then PR.
_950DT = (
    "950x 950y 9571 9572 9573 9574 9575 9576 9577 9578 9581 9581x 9582 9582x 9583 9584 9585 9586 9587 9588 "
    "9591 9592 9595 9596 95A1 95A2"
)
_950PR = "950z 9579 957b 957bx 957c 957d 9589 958b 9599"

#: SoCs by generation. A SoC missing here (a new one) is not judged.
SOCS: dict[str, tuple[str, ...]] = {
    "dav-1001": ("Ascend910A", "Ascend910B", "Ascend910PremiumA", "Ascend910ProA", "Ascend910ProB"),
    "dav-2002": ("Ascend310P1", "Ascend310P3", "Ascend310P5", "Ascend310P7"),
    "dav-2201": (
        *(f"Ascend910B{variant}" for variant in ("1", "2", "2C", "3", "4", "4-1")),
        *(f"Ascend910_{variant}" for variant in ("9362", "9363", "9372", "9381", "9382", "9391", "9392")),
    ),
    "dav-3002": ("Ascend310B1", "Ascend310B2", "Ascend310B3", "Ascend310B4"),
    "dav-3004": ("Ascend031",),
    "dav-3505": ("Ascend035", "Ascend035A", "Ascend035B"),
    "dav-3510": (
        "Ascend350_354f",
        "Ascend350_355e",
        *(f"Ascend950DT_{variant}" for variant in _950DT.split()),
        *(f"Ascend950PR_{variant}" for variant in _950PR.split()),
    ),
}

_NPU_ARCH = {soc: npu_arch for npu_arch, socs in SOCS.items() for soc in socs}


def npu_arch_of(soc: str) -> str | None:
    """Return the generation (``dav-2201``) of a SoC name, None for one that is not in the table."""
    return _NPU_ARCH.get(soc)


class LoadRules(NamedTuple):
    """How the runtime of a generation treats the metadata of kernels."""

    #: KTYPE 1 (AICORE): the only one accepted ("only"), or refused ("refused").
    aicore: str
    #: The ratio of a mixed kernel must be one of the known ones, even when the metadata has none.
    checks_ratio: bool
    #: A kernel's minimum stack (TLV 8) is compared with the process's stack size.
    checks_stack: bool
    #: A metadata section without KTYPE takes the type from MAGIC (otherwise the section is ignored).
    fills_type: bool
    #: A mixed kernel's first argument is the address for the synchronization between its cores.
    ffts: bool


#: Rules by generation; 310B and the small ones are left out, because no object of theirs has been seen.
RULES = {
    "dav-1001": LoadRules("only", False, False, False, False),
    "dav-2002": LoadRules("only", False, False, True, False),
    "dav-2201": LoadRules("refused", True, True, False, True),
    "dav-3510": LoadRules("refused", True, True, True, False),
}
