"""Entry points: launches of kernels."""

from __future__ import annotations

from typing import Any

from ..engine import launch, refusals
from ..engine.arguments import Handles
from ..engine.chips import SIMT
from ..engine.failures import UndefinedBehavior
from ..engine.machine import Machine
from ..engine.program import Function, Programs
from . import hostmem
from .kernel import function_of
from .registry import answers

_ATTRIBUTE_BYTES = 20
_MOST_ATTRIBUTES = 1024  # behind the end of a list, the library stops at the first thing that is no attribute


def launch_attributes(cfg: int) -> list[tuple[int, bytes]] | None:
    """(id, value) of the attributes of a launch; None without a configuration."""
    if not cfg:
        return None
    array, count = hostmem.read_pointer(cfg), hostmem.read_u64(cfg + 8)
    if not array:
        raise refusals.null("cfg->attrs")
    if not count:
        return []
    raw = hostmem.read_bytes(array, min(count, _MOST_ATTRIBUTES) * _ATTRIBUTE_BYTES)
    return [
        (int.from_bytes(raw[at : at + 4], "little"), raw[at + 4 : at + _ATTRIBUTE_BYTES])
        for at in range(0, len(raw), _ATTRIBUTE_BYTES)
    ]


@answers("aclrtLaunchKernelWithConfig")
def launch_kernel_with_config(
    sim: Machine, func_handle: int, num_blocks: int, stream: int, cfg: int, args_handle: int, reserve: int
) -> None:
    call = "aclrtLaunchKernelWithConfig"
    if not func_handle:
        raise refusals.inner_null("funcHandle")
    if not num_blocks:
        raise refusals.bad_value(0, "numBlocks", "must be greater than zero")
    if not args_handle:
        raise refusals.inner_null("argsHandle")
    if reserve:
        raise refusals.silent()
    function = function_of(sim, func_handle, call)
    arguments = sim.area(Handles).get(args_handle, call)
    arguments.check_for_launch()
    launch.with_handle(sim, call, function, num_blocks, stream, launch_attributes(cfg), arguments)


@answers("aclrtLaunchKernel", required="func_handle args_data")
def launch_kernel(sim: Machine, func_handle: int, num_blocks: int, args_data: int, args_size: int, stream: int) -> None:
    call = "aclrtLaunchKernel"
    function, size = _device_block(sim, call, func_handle, num_blocks, args_size)
    launch.with_device_block(sim, call, function, num_blocks, stream, launch.DEFAULTS, args_data, size)


@answers("aclrtLaunchKernelV2", required="func_handle args_data")
def launch_kernel_v2(
    sim: Machine, func_handle: int, num_blocks: int, args_data: int, args_size: int, cfg: int, stream: int
) -> None:
    call = "aclrtLaunchKernelV2"
    function, size = _device_block(sim, call, func_handle, num_blocks, args_size)
    attributes = launch.read_attributes(sim, function, launch_attributes(cfg))
    launch.with_device_block(sim, call, function, num_blocks, stream, attributes, args_data, size)


def _device_block(sim: Machine, call: str, func_handle: int, num_blocks: int, args_size: int) -> tuple[Function, int]:
    function = function_of(sim, func_handle, call)
    launch.check_blocks(num_blocks)
    size = args_size & 0xFFFF_FFFF
    launch.check_block_size(size)
    return function, size


@answers("aclrtLaunchKernelWithHostArgs", required="func_handle host_args")
def launch_kernel_with_host_args(
    sim: Machine,
    func_handle: int,
    num_blocks: int,
    stream: int,
    cfg: int,
    host_args: int,
    args_size: int,
    place_holder_array: int,
    place_holder_num: int,
) -> None:
    call = "aclrtLaunchKernelWithHostArgs"
    function = function_of(sim, func_handle, call)
    launch.check_blocks(num_blocks)
    size = args_size & 0xFFFF_FFFF
    launch.check_block_size(size)
    count = place_holder_num & 0xFFFF
    if not count:
        data = hostmem.read_bytes(host_args, size)
        launch.with_bytes(sim, call, function, num_blocks, stream, launch_attributes(cfg), data)
        return
    if not place_holder_array:
        raise refusals.null("argsInfo->hostInputInfoPtr")
    pairs = range(place_holder_array, place_holder_array + 8 * count, 8)
    placeholders = [(hostmem.read_u32(pair), hostmem.read_u32(pair + 4)) for pair in pairs]
    launch.check_placeholders(function, size, placeholders)
    block = hostmem.view(host_args, size)
    launch.with_block(sim, call, function, num_blocks, stream, launch_attributes(cfg), block, placeholders)


@answers("aclrtLaunchKernelWithArgsArray", required="func args")
def launch_kernel_with_args_array(sim: Machine, func: int, num_blocks: int, stream: int, cfg: int, args: int) -> None:
    _with_array(sim, "aclrtLaunchKernelWithArgsArray", func, num_blocks, stream, cfg, args)


def _with_array(sim: Machine, call: str, func: int, num_blocks: int, stream: int, cfg: int, args: int) -> None:
    function = function_of(sim, func, call)
    launch.check_blocks(num_blocks)
    sizes = launch.parameters_for_array(sim, function, call)
    end = max((offset + size for offset, size in sizes), default=0)
    block = bytearray((end + 7) & ~7)
    for index, (offset, size) in enumerate(sizes):
        where = hostmem.read_pointer(args + 8 * index)
        if not where:
            raise UndefinedBehavior(f"{call}: the library reads argument {index} through a null pointer")
        block[offset : offset + size] = hostmem.read_bytes(where, size)
    launch.with_packed(sim, call, function, num_blocks, stream, launch_attributes(cfg), bytes(block))


def _grid(sim: Machine, call: str, grid: Any, block: Any) -> int:
    """The blocks of a SIMT launch."""
    if SIMT not in sim.area(Programs).features:
        raise refusals.unsupported(f"{call}: this chip runs no SIMT kernels")
    blocks, threads = grid.x * grid.y * grid.z, block.x * block.y * block.z
    if not blocks:
        raise refusals.out_of_range(0, "gridDim", "not equal to 0")
    if not 0 < threads <= 2048:
        raise refusals.out_of_range(threads, "blockDim", "(0, 2048]")
    return int(blocks)


@answers(
    "aclrtLaunchSIMTKernelWithHostArgs",
    required="func host_args",
    partly="an emulation runs for the whole grid; it does not learn the threads of a block",
)
def launch_simt_kernel_with_host_args(
    sim: Machine,
    func: int,
    grid_dim: Any,
    block_dim: Any,
    dyn_ubuf_size: int,
    stream: int,
    cfg: int,
    host_args: int,
    args_size: int,
    place_holder_array: int,
    place_holder_num: int,
) -> None:
    blocks = _grid(sim, "aclrtLaunchSIMTKernelWithHostArgs", grid_dim, block_dim)
    launch_kernel_with_host_args(
        sim, func, blocks, stream, cfg, host_args, args_size, place_holder_array, place_holder_num
    )


@answers(
    "aclrtLaunchSIMTKernelWithArgsArray",
    required="func args",
    partly="an emulation runs for the whole grid; it does not learn the threads of a block",
)
def launch_simt_kernel_with_args_array(
    sim: Machine, func: int, grid_dim: Any, block_dim: Any, dyn_ubuf_size: int, stream: int, cfg: int, args: int
) -> None:
    call = "aclrtLaunchSIMTKernelWithArgsArray"
    blocks = _grid(sim, call, grid_dim, block_dim)
    _with_array(sim, call, func, blocks, stream, cfg, args)
