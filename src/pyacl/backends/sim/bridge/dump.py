"""Entry points: dumps of operators. The calls are checked; there is nothing to dump."""

from __future__ import annotations

from ..engine import configuration
from ..engine.machine import Machine
from ..engine.process import Process
from ..engine.refusals import inner, silent
from . import hostmem
from .registry import answers, null_pointer

_UNINITIALIZED, _REPEATED, _NOT_RUN, _FAILURE = 100001, 100002, 100045, 500001
_AICORE_ARGS = 1
_NOTE = "nothing is dumped, and the dump settings are not checked"


class Dump:
    """Is dumping switched on, and where to."""

    def __init__(self, machine: Machine) -> None:
        self.running = False
        self.path = ""


def _initialized(sim: Machine) -> None:
    if not sim.area(Process).count:
        raise inner("The call is not supported because aclInit was not executed", _UNINITIALIZED)


def _running(sim: Machine) -> Dump:
    _initialized(sim)
    area = sim.area(Dump)
    if not area.running:
        raise inner("dump is not initialized in aclmdlInitDump", _NOT_RUN)
    return area


@answers("aclmdlInitDump", partly=_NOTE)
def init_dump(sim: Machine) -> None:
    _initialized(sim)
    area = sim.area(Dump)
    if area.running:
        raise inner("repeatedly initialized dump in aclmdlInitDump", _REPEATED)
    area.running = True


@answers("aclmdlSetDump", partly=_NOTE)
def set_dump(sim: Machine, dump_cfg_path: int) -> None:
    area = _running(sim)
    if not dump_cfg_path:
        raise null_pointer("dumpCfgPath")
    path = hostmem.read_text(dump_cfg_path)
    text = configuration.read(path)
    configuration.check(text, path)
    area.path = configuration.dump_path(text)


@answers("aclmdlFinalizeDump", partly=_NOTE)
def finalize_dump(sim: Machine) -> None:
    _running(sim).running = False


@answers("aclopStartDumpArgs", partly=_NOTE)
def start_dump_args(sim: Machine, dump_type: int, path: int) -> None:
    if dump_type & _AICORE_ARGS and not path:
        raise silent(_FAILURE)


@answers("aclopStopDumpArgs", partly=_NOTE)
def stop_dump_args(sim: Machine, dump_type: int) -> None:
    pass


@answers("acldumpRegCallback", partly=_NOTE)
def reg_callback(sim: Machine, message_callback: int, flag: int) -> None:
    if flag or not message_callback:
        raise silent(_FAILURE)


@answers("acldumpUnregCallback", partly=_NOTE)
def unreg_callback(sim: Machine) -> None:
    pass


@answers("acldumpGetPath", partly=_NOTE)
def get_path(sim: Machine, dump_type: int) -> int:
    path = sim.area(Dump).path
    return hostmem.keep_text(sim.thread.kept, "acldumpGetPath", path or None)
