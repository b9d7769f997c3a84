"""Entry points: memory pools, memory in the order of a stream."""

from __future__ import annotations

from ....raw import types as c
from ..engine import mempool, transfer
from ..engine.machine import Machine
from ..engine.mempool import Pools
from ..engine.refusals import driver, inner_null, silent
from . import hostmem
from .registry import answers, runtime_require

_SWITCHES = (mempool.FOLLOW_EVENTS, mempool.OPPORTUNISTIC, mempool.INTERNAL)
_DEVICE = 1


@answers("aclrtMemPoolCreate")
def mem_pool_create(sim: Machine, mem_pool: int, pool_props: int) -> None:
    for pointer, name in ((mem_pool, "memPool"), (pool_props, "poolProps")):
        if not pointer:
            raise inner_null(name)
    props = hostmem.read_struct(c.aclrtMemPoolProps, pool_props)
    if props.allocType or props.location.type != _DEVICE or any(bytes(props.reserved)):
        raise silent()
    if props.location.id >= len(sim.devices):
        raise driver(f"Convert user devId to physical devId failed: userDevId={props.location.id}", 107001)
    sim.current_context()
    hostmem.write_pointer(mem_pool, sim.area(Pools).create(props.location.id, props.maxSize))


@answers("aclrtMemPoolDestroy")
def mem_pool_destroy(sim: Machine, mem_pool: int) -> None:
    if not mem_pool:
        raise inner_null("memPool")
    sim.area(Pools).destroy(mem_pool)


@answers("aclrtMemPoolSetAttr", partly="the switches for the reuse of memory are kept and reported")
def mem_pool_set_attr(sim: Machine, mem_pool: int, attr: int, value: int) -> None:
    if not mem_pool:
        raise inner_null("memPool")
    runtime_require(value, "value")
    if attr in (mempool.RESERVED_NOW, mempool.USED_NOW):
        raise driver("A read-only attribute cannot be set", mempool.INTERNAL_ERROR)
    pool = sim.area(Pools).find(mem_pool)
    pool.set_attribute(attr, hostmem.read_u32(value) if attr in _SWITCHES else hostmem.read_u64(value))


@answers("aclrtMemPoolGetAttr")
def mem_pool_get_attr(sim: Machine, mem_pool: int, attr: int, value: int) -> None:
    if not mem_pool:
        raise inner_null("memPool")
    runtime_require(value, "value")
    found = sim.area(Pools).find(mem_pool).attribute(attr)
    if attr in _SWITCHES:
        hostmem.write_u32(value, found)
    else:
        hostmem.write_u64(value, found)


# Newer than the recorded library: assumption, after the headers and what the pools of the recorded release do.


@answers("aclrtMemPoolMallocAsync", partly="the memory is there at once, not when the stream has come so far")
def mem_pool_malloc_async(sim: Machine, ptr: int, size: int, mem_pool: int, stream: int) -> None:
    for pointer, name in ((ptr, "ptr"), (mem_pool, "memPool")):
        if not pointer:
            raise inner_null(name)
    transfer.own_stream(sim, stream, "aclrtMemPoolMallocAsync", "Memory pool malloc failed")
    hostmem.write_pointer(ptr, sim.area(Pools).allocate(mem_pool, size))


@answers("aclrtMemPoolFreeAsync")
def mem_pool_free_async(sim: Machine, ptr: int, stream: int) -> None:
    if not ptr:
        raise inner_null("ptr")
    target = transfer.own_stream(sim, stream, "aclrtMemPoolFreeAsync", "Memory pool free failed")
    sim.area(Pools).free_later(ptr, target)


@answers("aclrtMemPoolTrimTo")
def mem_pool_trim_to(sim: Machine, mem_pool: int, min_bytes_to_keep: int) -> None:
    if not mem_pool:
        raise inner_null("memPool")
    sim.area(Pools).trim(mem_pool, min_bytes_to_keep)
