"""The configuration file of aclInit: which parts the library looks at, in which order, and what it says to wrong
ones."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Callable

from .failures import AclLayerError, RuntimeLayerError, UndefinedBehavior
from .process import DVPP, MODEL, OP_EXECUTOR, OTHER, Process

if TYPE_CHECKING:
    from .machine import Machine

MAX_DEPTH = 10
BYTE_ORDER_MARK = "\ufeff"
MAX_BYTES = 10 << 20
FAILURE = 500001

Steps = list[tuple[int, Callable[[], None]]]


def _no_constant(text: str) -> Any:
    raise ValueError(f"invalid literal {text}")


def read(path: str) -> str:
    """The text of a file: 100003 for what cannot be opened, nothing for a directory."""
    try:
        if os.path.isdir(path):
            return ""
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "surrogateescape")
    except (OSError, ValueError) as error:
        raise AclLayerError(100003, "EH9999", f"invalid config file [{path}]: {error}") from None


def check(text: str, path: str) -> None:
    """What the library refuses before it looks at the JSON: 100003 for no regular file and for a large one, 100006
    for what nests too deeply."""
    if not os.path.isfile(path):
        raise AclLayerError(100003, "EH9999", f"config file is not a common file, which path is {path}")
    if os.path.getsize(path) > MAX_BYTES:
        raise AclLayerError(100003, "EH9999", f"config file {path} is larger than max config file Bytes[{MAX_BYTES}]")
    for opening, closing in ("{}", "[]"):
        depth = deepest = 0
        for character in text:
            if character == opening:
                depth += 1
                deepest = max(deepest, depth)
            elif character == closing and depth:
                depth -= 1
        if deepest > MAX_DEPTH:
            raise AclLayerError(100006, "EH9999", f"invalid json file, the depth {deepest} is larger than {MAX_DEPTH}")


def parse(text: str, path: str) -> Any:
    """The JSON of a file, up to its first zero byte: nothing at all counts as null, 100006 with EH0004 for what is
    not JSON."""
    text = text.split("\0", 1)[0]
    if not text:
        return None
    try:
        return json.loads(text.removeprefix(BYTE_ORDER_MARK), parse_constant=_no_constant)
    except ValueError as error:
        raise AclLayerError(100006, "EH0004", f"File [{path}] is invalid. Reason: Parse exception: {error}") from None


def _member(value: Any, key: str) -> Any:
    """A member of an object, None where there is none (null members count as there, but nobody asks for one)."""
    return value.get(key) if isinstance(value, dict) else None


def _has(value: Any, key: str) -> bool:
    return isinstance(value, dict) and key in value


def dump_path(text: str) -> str:
    """Where the dump section of a configuration wants its files; "" where it does not say."""
    try:
        path = _member(_member(json.loads(text.removeprefix(BYTE_ORDER_MARK)), "dump"), "dump_path")
    except ValueError:  # the library was recorded over a dump module that takes everything
        return ""
    return path if isinstance(path, str) else ""


def steps(machine: Machine, process: Process, text: str, name: str) -> Steps:
    """What aclInit does with the text of a configuration file, in its order (see `Process.init`)."""
    config: Any = None

    def messages() -> None:
        nonlocal config
        check(text, name)
        config = parse(text, name)
        if not _has(config, "err_msg_mode"):
            shared = False
        elif config["err_msg_mode"] in ("0", "1"):
            shared = config["err_msg_mode"] == "1"
        else:
            raise AclLayerError(
                100000, "EH9999", "err_msg mode config is invalid {}".format(json.dumps(config["err_msg_mode"]))
            )
        machine.shared_messages = [] if shared else None

    def stack_sizes() -> None:
        sizes: Any = _member(config, "StackSize")
        for key in ("aicore_stack_size", "simt_stack_size", "simt_divergence_stack_size"):
            if _has(sizes, key):
                size = sizes[key]
                if isinstance(size, bool) or not isinstance(size, (int, float)):
                    raise AclLayerError(FAILURE, "EH0004", f"File [{name}] is invalid. Reason: {key} is not a number")
                if key == "aicore_stack_size":
                    process.stack_size = int(size) & 0xFFFFFFFF

    def default_device() -> None:
        section: Any = _member(config, "defaultDevice")
        if not _has(section, "default_device"):
            return
        device = section["default_device"]
        if not isinstance(device, str) or not re.fullmatch(r"0|[1-9][0-9]*", device):
            raise AclLayerError(FAILURE, "EH9999", f"default_device in {name} is neither zero nor positive integer")
        index = (int(device) + 0x80000000) % 0x1_0000_0000 - 0x80000000 if len(device) < 19 else -1
        if index != -1:
            machine.default_device = machine.device(index).index

    def print_sizes() -> None:
        for key in ("simd_printf_fifo_size_per_core", "simt_printf_fifo_size"):
            if not _has(config, key):
                continue
            if not re.fullmatch(r"[1-9][0-9]*", json.dumps(config[key])):
                raise AclLayerError(FAILURE, "EH9999", f"{key} in {name} is not a positive integer")
            if key == "simt_printf_fifo_size":
                raise RuntimeLayerError(207000, "EE1001", "limit type not support")
            _simd_fifo_size(config[key])

    def event_mode() -> None:
        section: Any = _member(config, "acl_graph")
        if not _has(section, "event_mode"):
            return
        mode = section["event_mode"]
        if not isinstance(mode, str):
            raise UndefinedBehavior(
                f"aclInit: event_mode in {name} must be a text; anything else ends the process in an uncaught exception"
            )
        if mode not in ("0", "1"):
            raise AclLayerError(
                100000, "EH0001", f"Value [{mode}] for [event_mode] is invalid. Reason: only support [0,1]"
            )
        if process.event_mode is not None:
            raise RuntimeLayerError(107000, "EE1001", "repeatedly set work mode")
        process.event_mode = int(mode)

    def nothing() -> None:
        pass

    if not name:
        return [(MODEL, nothing), (DVPP, nothing), (OTHER, nothing)]
    return [
        (-1, messages),
        (MODEL, nothing),
        (OP_EXECUTOR, nothing),
        (-1, stack_sizes),
        (-1, default_device),
        (-1, print_sizes),
        (-1, event_mode),
        (DVPP, nothing),
        (OTHER, nothing),
    ]


def _simd_fifo_size(size: int) -> None:
    """Assumption: the limits of the runtime for this buffer."""
    if not 1024 <= size <= 64 << 20:
        raise RuntimeLayerError(107000, "EE1003", f"value {size} for the printf buffer is invalid")
