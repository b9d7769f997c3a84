"""What the chips can do, where the runtime library treats them differently: loading and launching kernels, models."""

from __future__ import annotations

# The features, in words of their own.
GRAPH = "streams can be captured into models"
SYNC_ADDRESS = "there is a hardware synchronisation address"
C2C = "there is an address through which cores are controlled"
FFTS = "cores are synchronised through FFTS: some kernels have a hidden first argument"
KERNEL_MIX = "kernels may have a cube and a vector half"
TASK_RATIO = "the ratio of the halves comes from metadata alone"
SINGLE_CORE_TYPE = "metadata of type AICORE stops the merging of halves"
STACK_IN_FILE = "the file may say how much stack it wants"
STACK_CHECK = "the stack a kernel needs is compared with the configured one"
DEGENERATE = "a file may say that its mix kernels have one half only"
CVMIX = "kernels of the general kind run on cube and vector core together"
MACHINE_FROM_ELF = "the machine type in the file tells AI CPU from AI Core"
UPDATE_ALWAYS = "metadata counts for kernels that are no mix kernels too"
TYPE_AICORE = "metadata of type AICORE is refused"
LAUNCH_PAIRED = "mix kernels are launched on both engines by two attributes"
ABORT = "a running model can be aborted"
RANDOM = "there is a random number generator task"
SIMT = "SIMT kernels can be launched"
RETILE = "a recorded launch can be pointed to another tiling key"
END_NOTIFY = "the end of a model is a notify: it may be recorded more than once, and must be before the model is loaded"

_SPLIT = frozenset(
    (
        GRAPH,
        SYNC_ADDRESS,
        C2C,
        FFTS,
        KERNEL_MIX,
        TASK_RATIO,
        SINGLE_CORE_TYPE,
        STACK_IN_FILE,
        STACK_CHECK,
        DEGENERATE,
        TYPE_AICORE,
        ABORT,
        RANDOM,
        RETILE,
        END_NOTIFY,
    )
)
_REGBASE = frozenset(
    (GRAPH, KERNEL_MIX, TASK_RATIO, SINGLE_CORE_TYPE, STACK_CHECK, DEGENERATE, TYPE_AICORE, SIMT, END_NOTIFY)
)

FEATURES: dict[str, frozenset[str]] = {
    "Ascend910B": _SPLIT,
    "Ascend910_93": _SPLIT,
    "Ascend950": _REGBASE,
    "Ascend350": _REGBASE,
    "Ascend310P": frozenset((GRAPH, C2C, KERNEL_MIX, DEGENERATE, LAUNCH_PAIRED, ABORT)),
    "Ascend910": frozenset((C2C, MACHINE_FROM_ELF, ABORT)),
    "Ascend310B": frozenset((C2C, UPDATE_ALWAYS, CVMIX, ABORT)),
}
#: Assumption: small chips that the facts say little about take what the 310B takes.
_OTHERS = FEATURES["Ascend310B"]


def features(family: str) -> frozenset[str]:
    """The features of a chip family."""
    return FEATURES.get(family, _OTHERS)
