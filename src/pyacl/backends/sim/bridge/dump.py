"""Entry points: dumps of operators. The calls are checked; there is nothing to dump."""

from __future__ import annotations

import json

from ..engine.machine import Machine
from ..engine.refusals import inner, silent
from . import hostmem
from .registry import answers, null_pointer

_UNINITIALIZED, _REPEATED, _INVALID_FILE, _PARSE_FILE, _NOT_RUN, _BAD_CONFIG, _FAILURE = (
    100001,
    100002,
    100003,
    100006,
    100045,
    100044,
    500001,
)
_AICORE_ARGS = 1
_NOTE = "nothing is dumped"


class Dump:
    """Is dumping switched on, and where to."""

    def __init__(self, machine: Machine) -> None:
        self.running = False
        self.path = ""


def _initialized(sim: Machine) -> None:
    from ..engine.process import Process

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
    try:
        with open(hostmem.read_text(dump_cfg_path), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        raise inner("The dump configuration cannot be read", _INVALID_FILE) from None
    if not text:
        return
    try:
        found = json.loads(text)
    except ValueError:
        raise inner("The dump configuration is not JSON", _PARSE_FILE) from None
    dump = found.get("dump") if isinstance(found, dict) else None
    if not isinstance(dump, dict):
        raise inner("The dump configuration has no dump section", _BAD_CONFIG)
    area.path = str(dump.get("dump_path", ""))


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
