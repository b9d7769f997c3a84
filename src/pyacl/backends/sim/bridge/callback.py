"""Entry points: host functions and callbacks on streams."""

from __future__ import annotations

from typing import Callable

from ..engine.callbacks import LIBRARY, HostFunction, ReportedCallback, Reports
from ..engine.failures import AclLayerError, RuntimeLayerError
from ..engine.machine import Machine
from ..engine.refusals import out_of_range
from ..engine.stream import Stream
from . import hostcall
from .registry import answers, runtime_require

NO_BLOCK, BLOCK = 0, 1


def _function(callback: int, argument: int) -> Callable[[], object]:
    function = hostcall.function(callback, "void", "p")
    return lambda: function(argument or None)


def _refuse_mixture(sim: Machine, handle: int, host_functions: bool) -> None:
    """A stream has either host functions or subscribed callbacks, never both. (The null stream is not looked at.)"""
    stream = sim.streams.find(handle) if handle else None
    if stream is None:
        return
    if stream.report_thread is not None and (stream.report_thread == LIBRARY) != host_functions:
        raise RuntimeLayerError(
            107011,
            "EE1001",
            f"The stream has {'reported callbacks' if host_functions else 'host functions'}, stream_id={stream.number}",
        )


def _any_stream(sim: Machine, handle: int, call: str) -> Stream:
    return sim.streams.get(handle, call) if handle else sim.current_context().default_stream


@answers("aclrtLaunchHostFunc", "rtsLaunchHostFunc")
def launch_host_func(sim: Machine, stream: int, function: int, argument: int) -> None:
    runtime_require(function, "callBackFunc")
    _refuse_mixture(sim, stream, host_functions=True)
    target = sim.own_stream(stream, "aclrtLaunchHostFunc")
    if target.recorder is None and target.report_thread is None:
        target.report_thread = LIBRARY
    target.submit(HostFunction(_function(function, argument)))


@answers("aclrtLaunchCallback")
def launch_callback(sim: Machine, function: int, argument: int, block: int, stream: int) -> None:
    if block not in (NO_BLOCK, BLOCK):
        raise AclLayerError(100000, "EH9999", f"invalid block type, the current blockType = {block}")
    runtime_launch_callback(sim, function, argument, stream, bool(block))


@answers("rtCallbackLaunch", "rtsCallbackLaunch")
def runtime_launch_callback(sim: Machine, function: int, argument: int, stream: int, block: bool) -> None:
    runtime_require(function, "callBackFunc")
    _refuse_mixture(sim, stream, host_functions=False)
    target = sim.own_stream(stream, "aclrtLaunchCallback")
    if target.report_thread is None:
        raise RuntimeLayerError(
            107015, "EE9999", "The stream used by this user's callback function is not registered to any thread"
        )
    if target.report_thread == LIBRARY:
        target.submit(HostFunction(_function(function, argument)))
    else:
        target.submit(ReportedCallback(_function(function, argument), block))


@answers("aclrtSubscribeReport", "rtSubscribeReport", "rtsSubscribeReport")
def subscribe_report(sim: Machine, thread: int, stream: int) -> None:
    _refuse_mixture(sim, stream, host_functions=False)
    sim.current_context()
    sim.area(Reports).subscribe(thread, _any_stream(sim, stream, "aclrtSubscribeReport"))


@answers("aclrtUnSubscribeReport", "rtUnSubscribeReport", "rtsUnSubscribeReport")
def unsubscribe_report(sim: Machine, thread: int, stream: int) -> None:
    _refuse_mixture(sim, stream, host_functions=False)
    sim.area(Reports).unsubscribe(thread, _any_stream(sim, stream, "aclrtUnSubscribeReport"))


@answers("aclrtProcessReport")
def process_report(sim: Machine, timeout: int) -> None:
    if timeout < -1 or timeout == 0:
        raise AclLayerError(
            100000,
            "EH0001",
            f"Value [{timeout}ms] for [timeout] is invalid. Reason: -1 represents infinite wait, timeout value "
            "greater than 0 represents waiting for a fixed time",
        )
    sim.area(Reports).process(None if timeout == -1 else timeout)


@answers("rtProcessReport", "rtsProcessReport")
def runtime_process_report(sim: Machine, timeout: int) -> None:
    if timeout < -1 or timeout == 0:
        raise out_of_range(timeout, "timeout", "-1 or (0, 2147483647]")
    sim.area(Reports).process(None if timeout == -1 else timeout)
