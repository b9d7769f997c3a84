"""Entry points: snapshots of a process."""

from __future__ import annotations

from ..engine.failures import RuntimeLayerError
from ..engine.machine import Machine
from ..engine.refusals import driver, invalid, out_of_range, unsupported
from . import hostcall
from .registry import answers, runtime_require

_LOCK_PRE, _BACKUP_PRE, _BACKUP_POST, _RESTORE_PRE, _RESTORE_POST, _UNLOCK_POST = range(6)
_RUNNING, _LOCKED, _BACKED_UP = range(3)
_LOCK_FAILED, _UNLOCK_FAILED, _BACKUP_FAILED, _RESTORE_FAILED, _CALLBACK_FAILED, _REGISTER_FAILED = (
    507906,
    507907,
    507908,
    507909,
    507912,
    507913,
)
_CHIPS = frozenset(("Ascend910B", "Ascend910_93"))
_NOTE = "nothing is saved: the state and the callbacks only; calls made while locked are not held up"


class Snapshot:
    """Where the process is, and who is told: (callback, argument) by stage."""

    def __init__(self, machine: Machine) -> None:
        self.state = _RUNNING
        self.callbacks: dict[int, list[tuple[int, int]]] = {}


def _area(sim: Machine) -> Snapshot:
    if sim.profile.family not in _CHIPS:
        raise unsupported("This chip does not support snapshots", "EH9999")
    return sim.area(Snapshot)


def _tell(sim: Machine, area: Snapshot, stage: int) -> None:
    """Every callback of a stage, once for each open device."""
    for address, argument in list(area.callbacks.get(stage, ())):
        function = hostcall.function(address, "u32", "i32", "p")
        for device in sim.devices:
            if not device.open_count:
                continue
            with sim.unlocked():
                code = function(device.index, argument)
            if code:
                raise driver(f"A snapshot callback returned {code}", _CALLBACK_FAILED)


def _expect(area: Snapshot, states: tuple[int, ...], code: int) -> None:
    if area.state not in states:
        raise driver("The process is not in the state that this call wants", code)


@answers("aclrtSnapShotProcessLock", "rtSnapShotProcessLock", partly=_NOTE)
def process_lock(sim: Machine, *arguments: int) -> None:
    area = _area(sim)
    _tell(sim, area, _LOCK_PRE)
    _expect(area, (_RUNNING,), _LOCK_FAILED)
    area.state = _LOCKED


@answers("aclrtSnapShotProcessUnlock", "rtSnapShotProcessUnlock", partly=_NOTE)
def process_unlock(sim: Machine, *arguments: int) -> None:
    area = _area(sim)
    _expect(area, (_LOCKED, _BACKED_UP), _UNLOCK_FAILED)
    area.state = _RUNNING
    _tell(sim, area, _UNLOCK_POST)


@answers("aclrtSnapShotProcessBackup", "rtSnapShotProcessBackup", partly=_NOTE)
def process_backup(sim: Machine, *arguments: int) -> None:
    area = _area(sim)
    _expect(area, (_LOCKED,), _BACKUP_FAILED)
    _tell(sim, area, _BACKUP_PRE)
    _tell(sim, area, _BACKUP_POST)
    area.state = _BACKED_UP


@answers("aclrtSnapShotProcessRestore", "rtSnapShotProcessRestore", partly=_NOTE)
def process_restore(sim: Machine, *arguments: int) -> None:
    area = _area(sim)
    _expect(area, (_BACKED_UP,), _RESTORE_FAILED)
    _tell(sim, area, _RESTORE_PRE)
    _tell(sim, area, _RESTORE_POST)
    area.state = _LOCKED


def _stage(stage: int, callback: int) -> None:
    if not 0 <= stage <= _UNLOCK_POST:
        raise out_of_range(stage, "stage", f"[0, {_UNLOCK_POST}]")
    runtime_require(callback, "callback")


@answers("aclrtSnapShotCallbackRegister", "rtSnapShotCallbackRegister")
def callback_register(sim: Machine, stage: int, callback: int, args: int) -> None:
    area = _area(sim)
    _stage(stage, callback)
    registered = area.callbacks.setdefault(stage, [])
    if any(known == callback for known, _ in registered):
        raise RuntimeLayerError(_REGISTER_FAILED, "EE1001", "The callback has been registered for this stage")
    registered.append((callback, args))


@answers("aclrtSnapShotCallbackUnregister", "rtSnapShotCallbackUnregister")
def callback_unregister(sim: Machine, stage: int, callback: int) -> None:
    area = _area(sim)
    _stage(stage, callback)
    registered = area.callbacks.get(stage, [])
    for entry in registered:
        if entry[0] == callback:
            registered.remove(entry)
            return
    raise invalid("The callback has not been registered for this stage")
