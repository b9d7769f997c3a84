#!/usr/bin/env python3
"""Replay recorded sequences of AscendCL calls and compare the answers.

A *case* is a JSON object: a list of C calls ("steps") with the return code and the out values that the
real library gave.  This file runs a case against any object with ``ctypes.CDLL`` semantics (attribute access
gives a callable) and lists the differences.  See README.md for the format.

Command line::

    runner.py --lib libascendcl.so CASES...             # each case in its own process
    runner.py --factory module:callable CASES...        # any other implementation of the functions
    runner.py --record --lib libascendcl.so CASES...    # write the answers of this library into the files

In a program::

    from runner import load_cases, run_case
    for case in load_cases("cases/memory.json"):
        for mismatch in run_case(case, lib):
            print(mismatch)

``run_case`` runs in the current process; a case expects a library that is not initialised yet, so give it a
fresh ``lib`` (or a fresh process, as the command line does).

Python >= 3.9, standard library only.
"""
# ruff: noqa: UP031, SIM105, B023, UP022, E501
import argparse
import concurrent.futures
import copy
import ctypes
import importlib
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
API_FILE = os.path.join(HERE, os.pardir, os.pardir, "tools", "api", "acl_api.json")
KERNEL_DIR = os.path.join(HERE, os.pardir, os.pardir, ".cache", "kernels")

# every out parameter starts with this byte, so that "the function did not write it" can be told from a zero
POISON = 0xA5

CTYPES = {
    "ptr": ctypes.c_void_p, "fnptr": ctypes.c_void_p, "u64": ctypes.c_uint64, "i64": ctypes.c_int64,
    "u32": ctypes.c_uint32, "i32": ctypes.c_int32, "u16": ctypes.c_uint16, "i16": ctypes.c_int16,
    "u8": ctypes.c_uint8, "i8": ctypes.c_int8, "f32": ctypes.c_float, "f64": ctypes.c_double,
    "char": ctypes.c_uint8, "void": None,
}

# C types of out parameters whose ABI cannot be looked up in the typedef, enum or handle tables
BASE_TYPES = {
    "uint64_t": "u64", "int64_t": "i64", "uint32_t": "u32", "int32_t": "i32", "uint16_t": "u16", "int": "i32",
    "int16_t": "i16", "uint8_t": "u8", "int8_t": "i8", "size_t": "u64", "float": "f32", "double": "f64",
    "bool": "u8", "char": "u8", "aclFloat16": "u16",
}

# out values that differ from run to run or are an answer of the hardware; --record writes the matcher instead
VARYING = {
    "aclrtStreamGetId.streamId": ">=0", "aclrtGetEventId.eventId": ">=0", "aclrtGetNotifyId.notifyId": ">=0",
    "aclrtCntNotifyGetId.notifyId": ">=0", "aclrtEventGetTimestamp.timestamp": ">=0",
    "aclrtEventElapsedTime.ms": "any", "aclrtGetMemInfo.free": ">=0", "aclrtGetMemInfo.total": ">=0",
    "aclrtGetEventAvailNum.eventCount": ">=0", "aclrtGetStreamAvailableNum.streamCount": ">=0",
    "aclrtGetThreadLastTaskId.taskId": ">=0", "aclrtDeviceGetBareTgid.pid": ">=0",
    "aclrtBinaryGetDevAddress.binSize": ">=0", "aclrtMemGetAddressRange.psize": ">=0",
    "aclrtGetHardwareSyncAddr.addr": "any", "aclrtGetDeviceInfo.value": "any",
    "aclrtDevicePeerAccessStatus.status": "any", "aclrtGetDevicesTopo.value": "any",
}


class Api:
    """The function table: parameter and return ABIs, struct layouts, out parameter types."""

    def __init__(self, path=API_FILE):
        with open(path, encoding="utf-8") as f:
            data = json.load(f)
        self.functions = data["functions"]
        self.structs = data["structs"]
        self.typedefs = data["typedefs"]
        self.enums = data["enums"]
        self.handles = data["handles"]
        self.callbacks = data["callbacks"]
        self.constants = data.get("constants", {})

    def pointee(self, ctype):
        """ABI code of what a pointer parameter points to: 'aclrtStream *' -> 'ptr'."""
        t = re.sub(r"\bconst\b", " ", ctype).strip()
        t = " ".join(t.split())
        if not t.endswith("*"):
            return None
        t = t[:-1].strip()
        if t.endswith("*"):
            return "ptr"
        if t in BASE_TYPES:
            return BASE_TYPES[t]
        if t in self.typedefs:
            return self.typedefs[t]["abi"]
        if t in self.enums:
            return self.enums[t]["abi"]
        if t in self.handles:
            return "ptr"
        if t in self.callbacks:
            return "ptr"
        if t in self.structs:
            return "struct:" + t
        return "u64"

    def struct_size(self, name):
        return self.structs[name]["size"]


_api = None


def api():
    global _api
    if _api is None:
        _api = Api()
    return _api


# ------------------------------------------------------------------------------------------------------------
# kernel files


def kernel_path(name):
    """'910b_aiv_nometa' -> the kernel file in <kernels>/910b_aiv_nometa/ (CONFORMANCE_KERNELS overrides the root)."""
    root = os.environ.get("CONFORMANCE_KERNELS", KERNEL_DIR)
    folder = os.path.join(root, name)
    if os.path.isdir(folder):
        for entry in sorted(os.listdir(folder)):
            if entry.endswith(".o"):
                return os.path.join(folder, entry)
    raise FileNotFoundError("kernel file %r not found; set CONFORMANCE_KERNELS" % name)


def kernel_bytes(spec):
    """Content for {"kernel": name, "truncate": n, "patch": [[offset, hex], ...]}."""
    with open(kernel_path(spec["kernel"]), "rb") as f:
        data = bytearray(f.read())
    for offset, text in spec.get("patch", []):
        raw = bytes.fromhex(text)
        data[offset:offset + len(raw)] = raw
    if spec.get("truncate") is not None:
        data = data[:spec["truncate"]]
    return bytes(data) + bytes(spec.get("append_zeros", 0))


# ------------------------------------------------------------------------------------------------------------
# running one case


class Crash(Exception):
    """The case has reached a step that ends the process in the real library."""


class Worker:
    """A named thread that executes what it is given, one after the other."""

    def __init__(self, name):
        self.tasks = queue.Queue()
        self.results = queue.Queue()
        self.pending = 0
        self.ident = None
        started = threading.Event()
        self.thread = threading.Thread(target=self._loop, args=(started,), name=name, daemon=True)
        self.thread.start()
        started.wait()

    def _loop(self, started):
        self.ident = threading.get_ident()
        started.set()
        while True:
            task = self.tasks.get()
            if task is None:
                return
            try:
                self.results.put((task(), None))
            except BaseException as e:  # handed to the caller
                self.results.put((None, e))

    def submit(self, task):
        self.tasks.put(task)
        self.pending += 1

    def collect(self):
        value, error = self.results.get()
        self.pending -= 1
        if error is not None:
            raise error
        return value

    def run(self, task):
        while self.pending:
            self.collect()
        self.submit(task)
        return self.collect()

    def stop(self):
        self.tasks.put(None)


class Runner:
    """State of one case: variables, buffers, callbacks, threads, files."""

    def __init__(self, case, lib, record=False, run_crash=False, observer=None, tmp=None):
        self.case = case
        self.lib = lib
        self.record = record
        self.run_crash = run_crash
        self.observer = observer
        self.vars = {}            # name -> integer (handle or address) or number
        self.buffers = {}         # name -> ctypes buffer
        self.keep = []            # objects that must stay alive
        self.callbacks = {}       # name -> {"count", "args", "function"}
        self.workers = {}
        self.mismatches = []
        self.tmp = tmp
        self._tmpdir = None
        self.nfile = 0

    # -- values ----------------------------------------------------------------------------------------------
    def tmpdir(self):
        if self.tmp is None:
            self._tmpdir = tempfile.TemporaryDirectory(prefix="aclconf")
            self.tmp = self._tmpdir.name
        return self.tmp

    def address(self, text):
        """'$name', '$name+16', '$name-8' -> integer."""
        m = re.match(r"^\$([A-Za-z_]\w*)(?:([+-])(\w+))?$", text)
        if not m:
            raise ValueError("bad reference %r" % text)
        name, sign, off = m.groups()
        if name in self.vars:
            value = self.vars[name]
        elif name in self.buffers:
            value = ctypes.addressof(self.buffers[name])
        else:
            raise KeyError("no variable %r" % name)
        if sign:
            value = (value or 0) + (int(off, 0) if sign == "+" else -int(off, 0))
        return value

    def make_buffer(self, size, name=None, align=1, fill=0, hexdata=None, at=0, data=None):
        raw = ctypes.create_string_buffer(size + align)
        base = ctypes.addressof(raw)
        pad = (-base) % align
        buf = (ctypes.c_ubyte * size).from_buffer(raw, pad)
        ctypes.memset(ctypes.addressof(buf), fill & 0xFF, size)
        if fill == "index":
            for i in range(size):
                buf[i] = i & 0xFF
        if hexdata:
            content = bytes.fromhex(hexdata)
            ctypes.memmove(ctypes.addressof(buf) + at, content, len(content))
        if data:
            ctypes.memmove(buf, data, len(data))
        self.keep.append(raw)
        self.keep.append(buf)
        if name:
            self.buffers[name] = buf
            self.vars[name] = ctypes.addressof(buf)
        return ctypes.addressof(buf)

    def file(self, spec):
        """Path of a file made for the case: {"file": text}, {"kernel": name, ...}, optional "json", "dir", "as"."""
        self.nfile += 1
        folder = os.path.join(self.tmpdir(), "f%d" % self.nfile)
        os.makedirs(folder)
        if "kernel" in spec:
            if set(spec) == {"kernel"}:
                return kernel_path(spec["kernel"])
            path = os.path.join(folder, spec.get("as", "kernel.o"))
            with open(path, "wb") as f:
                f.write(kernel_bytes(spec))
            sidecar = spec.get("json")
            if sidecar == "copy":
                with open(os.path.splitext(kernel_path(spec["kernel"]))[0] + ".json", encoding="utf-8") as f:
                    sidecar = f.read()
            if sidecar is not None:
                with open(os.path.splitext(path)[0] + ".json", "w", encoding="utf-8") as f:
                    f.write(sidecar if isinstance(sidecar, str) else json.dumps(sidecar))
        elif spec.get("missing"):
            path = os.path.join(folder, spec["missing"])
        elif spec.get("directory"):
            path = folder
        else:
            path = os.path.join(folder, spec.get("as", "config.json"))
            content = spec["file"]
            with open(path, "w", encoding="utf-8") as f:
                f.write(content if isinstance(content, str) else json.dumps(content))
        return path

    def cstring(self, text):
        raw = ctypes.create_string_buffer(text if isinstance(text, bytes) else text.encode())
        self.keep.append(raw)
        return ctypes.addressof(raw)

    def write_struct(self, name, fields, address):
        st = api().structs[name]
        table = {f["name"]: f for f in st["fields"]}
        for key, value in fields.items():
            f = table[key]
            at = address + f["offset"]
            if f["abi"] in ("struct", "union"):
                inner = f.get("element") or f["type"]
                self.write_struct(inner, value, at)
            elif f.get("array_len"):
                raw = value.encode() if isinstance(value, str) else bytes(value)
                ctypes.memmove(at, raw, min(len(raw), f["size"]))
            else:
                CTYPES[f["abi"]].from_address(at).value = self.number(value)

    def read_struct(self, name, address):
        out = {}
        for f in api().structs[name]["fields"]:
            at = address + f["offset"]
            if f["abi"] in ("struct", "union"):
                inner = f.get("element") or f["type"]
                if inner in api().structs and not f.get("array_len"):
                    for k, v in self.read_struct(inner, at).items():
                        out[f["name"] + "." + k] = v
            elif f.get("array_len"):
                if f["abi"] == "char":
                    out[f["name"]] = ctypes.string_at(at, f["size"]).split(b"\0")[0].decode("latin-1")
                else:
                    out[f["name"]] = ctypes.string_at(at, f["size"]).hex()
            else:
                out[f["name"]] = CTYPES[f["abi"]].from_address(at).value
        return out

    def number(self, value):
        """An integer for a pointer or scalar argument."""
        if value is None:
            return 0
        if isinstance(value, bool):
            return int(value)
        if isinstance(value, (int, float)):
            return value
        if isinstance(value, str):
            if value.startswith("$"):
                return self.address(value)
            if value.startswith("kernel:"):
                return self.cstring(kernel_path(value[7:]))
            raise ValueError("bad value %r" % value)
        return self.object(value)

    def object(self, spec):
        """Address of an object described by a JSON object."""
        if "str" in spec:
            return self.cstring(spec["str"] * spec.get("times", 1))
        if "buf" in spec:
            return self.make_buffer(spec["size"], spec["buf"], spec.get("align", 1), spec.get("fill", 0) if
                                    spec.get("fill") != "index" else 0, spec.get("hex"), spec.get("at", 0))
        if "array" in spec:
            ctype = CTYPES[spec["array"]]
            items = [self.number(x) for x in spec["items"]]
            size = ctypes.sizeof(ctype) * max(1, len(items))
            addr = self.make_buffer(size, spec.get("name"), 16)
            arr = (ctype * max(1, len(items))).from_address(addr)
            for i, x in enumerate(items):
                arr[i] = x
            return addr
        if "struct" in spec:
            addr = self.make_buffer(api().struct_size(spec["struct"]), spec.get("name"), 16, spec.get("fill", 0))
            self.write_struct(spec["struct"], spec.get("fields", {}), addr)
            return addr
        if "structs" in spec:
            size = api().struct_size(spec["structs"])
            addr = self.make_buffer(size * max(1, len(spec["items"])), spec.get("name"), 16)
            for i, fields in enumerate(spec["items"]):
                self.write_struct(spec["structs"], fields, addr + i * size)
            return addr
        if "callback" in spec:
            return self.callback(spec)
        if "data" in spec:          # content of a kernel file in memory
            return self.make_buffer(max(1, len(kernel_bytes(spec["data"]))), spec.get("name"), 16,
                                    data=kernel_bytes(spec["data"]))
        if "size_of" in spec:
            return len(kernel_bytes(spec["size_of"]))
        if "thread_id" in spec:
            return self.worker(spec["thread_id"]).ident
        if "path" in spec:
            return self.cstring(self.file(spec["path"]))
        raise ValueError("bad argument %r" % (spec,))

    def callback(self, spec):
        name = spec["callback"]
        if name in self.callbacks:
            return self.callbacks[name]["address"]
        proto = api().callbacks[spec["type"]]
        entry = {"count": 0, "args": []}
        result = spec.get("returns", 0)

        def body(*args):
            entry["count"] += 1
            entry["args"].append(args)
            return None if proto["returns_abi"] == "void" else result

        ftype = ctypes.CFUNCTYPE(CTYPES[proto["returns_abi"]], *[CTYPES[p["abi"]] for p in proto["params"]])
        entry["function"] = ftype(body)
        entry["address"] = ctypes.cast(entry["function"], ctypes.c_void_p).value
        self.callbacks[name] = entry
        return entry["address"]

    # -- one call --------------------------------------------------------------------------------------------
    def out_buffer(self, text, ctype):
        """'&name', '&name:u32', '&name:struct:X', '&name:bytes64', with '=value' to start from -> name, kind, addr."""
        body, _, initial = text[1:].partition("=")
        name, _, kind = body.partition(":")
        kind = kind or api().pointee(ctype) or "u64"
        if kind.startswith("struct:"):
            size = api().struct_size(kind[7:])
        elif kind.startswith("bytes") or kind.startswith("text"):
            size = int(re.sub(r"\D", "", kind))
        else:
            size = ctypes.sizeof(CTYPES[kind])
        addr = self.make_buffer(size, None, 16, POISON)
        if initial:
            CTYPES[kind].from_address(addr).value = self.number(json.loads(initial) if initial[0] != "$" else initial)
        return name, kind, addr

    def call(self, step):
        """Execute one call step; returns (return value, {out name: value})."""
        name = step["call"]
        proto = api().functions[name]
        args = step.get("args", [])
        params = list(proto["params"])
        if len(args) < len(params) or (len(args) > len(params) and not proto.get("variadic")):
            raise ValueError("%s wants %d arguments" % (name, len(params)))
        values, types, outs = [], [], []
        for i, arg in enumerate(args):
            abi = params[i]["abi"] if i < len(params) else "u64"
            ctype = params[i]["type"] if i < len(params) else "uint64_t"
            if isinstance(arg, str) and arg.startswith("&"):
                out = self.out_buffer(arg, ctype)
                outs.append(out + (params[i]["name"],))
                values.append(ctypes.c_void_p(out[2]))
                types.append(ctypes.c_void_p)
            elif abi == "struct":
                size = api().struct_size(ctype.replace("const", "").strip())
                blob = type("ByValue", (ctypes.Structure,), {"_fields_": [("data", ctypes.c_ubyte * size)]})()
                src = self.number(arg)
                if src:
                    ctypes.memmove(ctypes.addressof(blob), src, size)
                values.append(blob)
                types.append(type(blob))
            else:
                t = CTYPES[abi]
                v = self.number(arg)
                values.append(t(v) if t is not ctypes.c_void_p else t(int(v) & (2 ** 64 - 1) or None))
                types.append(t)
        function = getattr(self.lib, name)
        restype = CTYPES[proto["returns_abi"]]
        saved = None
        try:
            saved = (function.argtypes, function.restype)
            if not proto.get("variadic"):
                function.argtypes = types
            function.restype = restype
        except (AttributeError, TypeError):
            pass                       # a plain function: it gets ctypes values and returns a number
        try:
            ret = function(*values)
        finally:
            if saved is not None:
                try:
                    function.argtypes, function.restype = saved
                except (AttributeError, TypeError):
                    pass
        if hasattr(ret, "value"):
            ret = ret.value
        if proto["returns_abi"] == "ptr":
            ret = ret or 0
            if isinstance(ret, bytes):
                ret = self.cstring(ret)
            if step.get("ret_as"):
                self.vars[step["ret_as"]] = ret
        elif restype is None:
            ret = None
        results = {}
        for var, kind, addr, pname in outs:
            results[var] = (pname, kind, self.read_out(var, kind, addr))
        for key, spec in self.named_structs(args):
            wanted = [a["out"] for a in args if isinstance(a, dict) and a.get("name") == key][0]
            for field, value in self.read_struct(spec, self.vars[key]).items():
                if not isinstance(wanted, list) or field in wanted:     # of a union only the named member
                    results[key + "." + field] = (key, "field", value)
        return ret, results

    def named_structs(self, args):
        for arg in args:
            if isinstance(arg, dict) and "struct" in arg and arg.get("name") and arg.get("out"):
                yield arg["name"], arg["struct"]

    def read_out(self, var, kind, addr):
        if kind.startswith("struct:"):
            self.vars[var] = addr
            size = api().struct_size(kind[7:])
            if ctypes.string_at(addr, size) == bytes([POISON]) * size:
                return "unset"
            return self.read_struct(kind[7:], addr)
        if kind.startswith("bytes") or kind.startswith("text"):
            size = int(re.sub(r"\D", "", kind))
            self.vars[var] = addr
            self.buffers[var] = (ctypes.c_ubyte * size).from_address(addr)
            raw = ctypes.string_at(addr, size)
            if raw == bytes([POISON]) * size:
                return "unset"
            return raw.split(b"\0")[0].decode("latin-1") if kind.startswith("text") else raw.hex()
        size = ctypes.sizeof(CTYPES[kind])
        value = CTYPES[kind].from_address(addr).value
        if kind == "ptr":
            value = value or 0
        self.vars[var] = value
        if ctypes.string_at(addr, size) == bytes([POISON]) * size:
            return "unset"
        if kind == "f32":
            return float(value)
        return value

    # -- comparison ------------------------------------------------------------------------------------------
    def matches(self, want, got, kind="u64"):
        """Is the answer `got` (a number, a string, a dict or 'unset') what was recorded?"""
        if want == "any":
            return True
        if isinstance(want, dict) and isinstance(got, dict):
            return all(self.matches(v, got.get(k)) for k, v in want.items())
        if isinstance(want, dict) and "contains" in want:
            return isinstance(got, str) and all(c in got for c in want["contains"])
        if want == "unset" or got == "unset":
            return want == got
        if want == "nonnull":
            return got not in (0, None)
        if want == "null":
            return got in (0, None)
        if isinstance(want, str) and want in (">=0", ">0"):
            return isinstance(got, (int, float)) and (got >= 0 if want == ">=0" else got > 0)
        if isinstance(want, str) and want.startswith("="):
            return got == self.address("$" + want[1:])
        if isinstance(want, str) and want.startswith("!="):
            return got not in (0, None) and got != self.address("$" + want[2:])
        if isinstance(want, float) or kind == "f32":
            return same_float(want, got)
        return want == got

    def describe(self, value, kind, function, pname):
        """What --record writes for an out value."""
        key = "%s.%s" % (function, pname)
        if VARYING.get(key) == "any":
            return "any"
        if value == "unset":
            return value
        if key in VARYING:
            return VARYING[key]
        if kind == "ptr":
            return "nonnull" if value else "null"
        if kind == "f32":
            return json_float(value)
        return value

    def fail(self, index, what, want, got):
        step = self.case["steps"][index]
        self.mismatches.append("%s step %d %s: %s: recorded %s, got %s" % (
            self.case["name"], index, step.get("call") or step.get("op"), what, json.dumps(want, default=str),
            json.dumps(got, default=str)))

    def check(self, index, step, ret, results):
        if step.get("origin") and not self.record:
            return
        proto = api().functions[step["call"]]
        kind = proto["returns_abi"]
        if kind == "ptr" and proto["returns"].replace("const", "").strip() == "char *":
            text = ctypes.string_at(ret).decode("latin-1") if ret else None
            shown = text
        else:
            shown = ret
        if self.record:
            if "ret" not in step or isinstance(step["ret"], int) or step["ret"] in ("nonnull", "null", "crash", None):
                if kind == "ptr" and shown is not None and not isinstance(shown, str):
                    step["ret"] = "nonnull" if ret else "null"
                elif kind == "f32":
                    step["ret"] = json_float(ret)
                elif isinstance(shown, str) and step["call"] == "aclGetRecentErrMsg":
                    step["ret"] = {"contains": message_codes(shown)}
                elif shown is None and kind == "ptr":
                    step["ret"] = "null"
                else:
                    step["ret"] = shown
            elif not self.matches(step["ret"], shown, kind):
                self.fail(index, "ret", step["ret"], shown)
            out = {}
            for name, (pname, okind, value) in results.items():
                old = step.get("out", {}).get(name)
                if isinstance(old, str) and (old in ("any", ">=0", ">0") or old[0] in "=!"):
                    out[name] = old
                    if not self.matches(old, value, okind):
                        self.fail(index, "out " + name, old, value)
                elif isinstance(value, dict):
                    out[name] = {k: v for k, v in value.items() if not k.startswith(("reserve", "rsv"))}
                    for k, v in (old or {}).items() if isinstance(old, dict) else ():
                        if isinstance(v, str) and v in ("any", ">=0", ">0"):
                            out[name][k] = v
                else:
                    out[name] = self.describe(value, okind, step["call"], pname)
            if out:
                step["out"] = out
            else:
                step.pop("out", None)
            return
        want = step.get("ret")
        if want == "crash":
            self.fail(index, "ret", "crash", shown)
        elif kind == "ptr" and want == "null" and shown in (None, 0):
            pass
        elif kind != "void" and not self.matches(want, shown, kind):
            self.fail(index, "ret", want, shown)
        for name, want in step.get("out", {}).items():
            if name not in results:
                self.fail(index, "out " + name, want, "missing")
                continue
            _, okind, got = results[name]
            if not self.matches(want, got, okind):
                self.fail(index, "out " + name, want, got)

    # -- steps -----------------------------------------------------------------------------------------------
    def worker(self, name):
        if name not in self.workers:
            self.workers[name] = Worker(name)
        return self.workers[name]

    def message(self, index, step):
        """The optional check of the error message: which message codes does aclGetRecentErrMsg report?"""
        function = self.lib.aclGetRecentErrMsg
        try:
            function.restype = ctypes.c_void_p
        except (AttributeError, TypeError):
            pass
        got = function()
        got = getattr(got, "value", got)
        text = ctypes.string_at(got).decode("latin-1") if isinstance(got, int) and got else (
            got.decode("latin-1") if isinstance(got, bytes) else "")
        codes = message_codes(text)
        if self.record:
            step["msg"] = {"contains": codes}
        elif not step.get("origin"):
            for code in step["msg"].get("contains", []):
                if code not in text:
                    self.fail(index, "msg", code, codes)
            if not step["msg"].get("contains") and codes:
                self.fail(index, "msg", [], codes)

    def do_call(self, index, step):
        if self.observer:
            self.observer("before", index, step, None)
        ret, results = self.call(step)
        if self.observer:
            self.observer("after", index, step, (ret, results))
        self.check(index, step, ret, results)
        if "msg" in step:
            self.message(index, step)

    def op(self, index, step):
        kind = step["op"]
        if kind == "buf":               # a host buffer with known content
            self.make_buffer(step["size"], step["name"], step.get("align", 64),
                             0 if step.get("fill") == "index" else step.get("fill", 0), step.get("hex"), step.get("at", 0))
            if step.get("fill") == "index":
                buf = self.buffers[step["name"]]
                for i in range(step["size"]):
                    buf[i] = (i * step.get("factor", 1) + step.get("offset", 0)) & 0xFF
        elif kind == "poke":            # write host memory
            ctypes.memmove(self.address(step["at"]), bytes.fromhex(step["hex"]), len(step["hex"]) // 2)
        elif kind == "set":             # a variable from an expression
            self.vars[step["name"]] = self.number(step["value"])
        elif kind == "mem":             # compare host memory
            raw = ctypes.string_at(self.address(step["at"]), step["size"])
            pattern = step.get("ptrs", {})
            got = self.masked(raw, pattern)
            if self.record:
                step["hex"] = got
            elif not step.get("origin") and step.get("hex") != got:
                self.fail(index, "memory", step.get("hex"), got)
        elif kind == "same":            # compare two pieces of host memory
            a = ctypes.string_at(self.address(step["a"]), step["size"])
            b = ctypes.string_at(self.address(step["b"]), step["size"])
            if self.record:
                step["equal"] = a == b
            elif not step.get("origin") and (a == b) != step["equal"]:
                self.fail(index, "equal", step["equal"], a == b)
        elif kind == "diff":            # compare the distance of two pointers
            got = self.address(step["a"]) - self.address(step["b"])
            if self.record:
                step["value"] = got
            elif not step.get("origin") and got != step["value"]:
                self.fail(index, "difference", step["value"], got)
        elif kind == "calls":           # how often a callback ran, and with which last arguments
            entry = self.callbacks[step["callback"]]
            got = entry["count"]
            raw = list(entry["args"][-1]) if entry["args"] else []
            last = None
            if entry["args"] and step.get("args") is not None:
                if self.record:
                    last = [self.name_of(x) for x in raw]
                else:               # a handle is recorded by the name of its variable
                    last = [w if isinstance(w, str) and self.same_argument(w, x) else x
                            for w, x in zip(step["args"], raw)]
            if self.record:
                step["count"] = got
                if last is not None:
                    step["args"] = last
            elif not step.get("origin"):
                if got != step["count"]:
                    self.fail(index, "callback count", step["count"], got)
                elif last is not None and last != step["args"]:
                    self.fail(index, "callback arguments", step["args"], last)
        elif kind == "start":           # a call that runs on its thread while the case goes on
            worker = self.worker(step["thread"])
            inner = step["step"]
            worker.submit(lambda: (inner, self.call(inner)))
        elif kind == "join":            # its result
            worker = self.worker(step["thread"])
            inner, (ret, results) = worker.collect()
            self.check(index, inner, ret, results)
        elif kind == "sleep":
            threading.Event().wait(step["ms"] / 1000)
        else:
            raise ValueError("unknown op %r" % kind)

    def same_argument(self, want, got):
        if want.startswith("$"):
            return self.address(want) == got
        return bool(got) if want == "nonnull" else False

    def name_of(self, value):
        """A callback argument for the record: a variable's name if it is one of the handles of the case."""
        if isinstance(value, int) and abs(value) > 65535:
            for key in reversed(list(self.vars)):
                if self.vars[key] == value:
                    return "$" + key
            return "nonnull"
        return value

    def masked(self, raw, pointers):
        """Hex text of raw; the 8-byte slots at the offsets in `pointers` are replaced by what they must equal."""
        out = raw.hex()
        for offset, want in pointers.items():
            at = int(offset)
            value = int.from_bytes(raw[at:at + 8], "little")
            text = None
            if want == "any":
                text = "*" * 16
            elif want == "nonnull":
                text = "nonnull_________" if value else "null____________"
            elif value == self.address(want):
                text = "same____________"
            else:
                text = "different_______"
            out = out[:at * 2] + text + out[at * 2 + 16:]
        return out

    def run(self, progress=None):
        try:
            for index, step in enumerate(self.case["steps"]):
                if progress:
                    progress(index)
                if "op" in step:
                    self.op(index, step)
                    continue
                if step.get("ret") == "crash" and not self.run_crash and not self.record:
                    break               # the real library ends the process here: nothing to compare any more
                try:
                    if step.get("thread"):
                        self.worker(step["thread"]).run(lambda: self.do_call(index, step))
                    else:
                        self.do_call(index, step)
                except Exception as e:      # a function that is missing or that raises ends the case
                    if self.record:
                        raise
                    self.fail(index, "raised", step.get("ret"), "%s: %s" % (type(e).__name__, e))
                    break
        finally:
            for w in self.workers.values():
                w.stop()
            if self._tmpdir:
                self._tmpdir.cleanup()
        return self.mismatches


def message_codes(text):
    return sorted(set(re.findall(r"\b[A-Z]{2}\d{4}\b", text or "")))


def same_float(want, got):
    if isinstance(want, str):
        want = float(want)
    if want is None or got is None:
        return want == got
    return want == got or (want != want and got != got)


def json_float(x):
    """JSON has no inf and nan."""
    return x if x == x and abs(x) != float("inf") else repr(x)


def run_case(case, lib, run_crash=False):
    """Run a case in this process; returns the list of mismatches (empty: all answers as recorded)."""
    return Runner(copy.deepcopy(case), lib, run_crash=run_crash).run()


def load_cases(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def dump_cases(cases):
    """JSON text with one step a line."""
    text = ["["]
    for i, case in enumerate(cases):
        head = {k: v for k, v in case.items() if k != "steps"}
        body = json.dumps(head, ensure_ascii=False)[:-1]
        text.append(body + ', "steps": [')
        steps = case["steps"]
        for j, step in enumerate(steps):
            text.append("  " + json.dumps(step, ensure_ascii=False) + ("," if j + 1 < len(steps) else ""))
        text.append("]}" + ("," if i + 1 < len(cases) else ""))
    text.append("]\n")
    return "\n".join(text)


# ------------------------------------------------------------------------------------------------------------
# one process per case


def open_library(lib, factory):
    if factory:
        module, _, name = factory.partition(":")
        sys.path.insert(0, os.getcwd())
        return getattr(importlib.import_module(module), name)()
    return ctypes.CDLL(lib, mode=ctypes.RTLD_GLOBAL)


def child_main(args):
    """Run the case that comes on stdin; progress and result lines go to stdout."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)                       # whatever the library prints does not disturb the protocol
    case = json.load(sys.stdin)
    lib = open_library(args.lib, args.factory)
    observer = None
    if args.observer:
        module, _, name = args.observer.partition(":")
        sys.path.insert(0, os.getcwd())
        observer = getattr(importlib.import_module(module), name)(lib)
    runner = Runner(case, lib, record=args.record, run_crash=args.run_crash, observer=observer)

    def progress(index):
        if args.record and index:       # what is known so far, should the next step end the process
            out.write("#" + json.dumps(case["steps"][index - 1], default=str) + "\n")
        out.write("@%d\n" % index)
        out.flush()

    mismatches = runner.run(progress)
    out.write("=" + json.dumps({"mismatches": mismatches, "case": case if args.record else None}, default=str) + "\n")
    out.flush()
    os._exit(0)                         # the case is over: library destructors are not part of it


def run_in_process(case, options):
    """Returns (mismatches, recorded case or None)."""
    command = [sys.executable, os.path.abspath(__file__), "--child"] + options
    with tempfile.TemporaryDirectory(prefix="aclconf") as work:
        env = dict(os.environ, TMPDIR=work)
        try:
            p = subprocess.run(command, input=json.dumps(case), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               timeout=case.get("timeout", 60), encoding="utf-8", errors="replace", env=env)
            out, code, err = p.stdout, p.returncode, p.stderr
            timed_out = False
        except subprocess.TimeoutExpired as e:
            out = e.stdout.decode() if isinstance(e.stdout, bytes) else (e.stdout or "")
            code, err, timed_out = None, "", True
    at, result, done = -1, None, []
    for line in out.splitlines():
        if line.startswith("@"):
            at = int(line[1:])
        elif line.startswith("#"):
            done.append(json.loads(line[1:]))
        elif line.startswith("="):
            result = json.loads(line[1:])
    if result is not None:
        return result["mismatches"], result["case"]
    record = "--record" in options
    steps = case["steps"]
    step = steps[at] if 0 <= at < len(steps) else {}
    how = "timeout" if timed_out else "crash"
    if not timed_out and (code is None or code >= 0):
        tail = "\n".join(err.strip().splitlines()[-4:])
        return ["%s step %d %s: the case could not be run: %s" % (case["name"], at, step.get("call", step.get("op")), tail)], None
    if record:
        recorded = copy.deepcopy(case)
        recorded["steps"] = done + recorded["steps"][len(done):at + 1]
        recorded["steps"][at]["ret"] = how
        recorded["steps"][at].pop("out", None)
        return [], recorded
    if step.get("ret") == how:
        return [], None
    return ["%s step %d %s: recorded %s, got %s" % (case["name"], at, step.get("call", step.get("op")),
                                                    json.dumps(step.get("ret")), how)], None


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--lib", default="libascendcl.so", help="shared library to load")
    p.add_argument("--factory", help="module:callable that returns an object with the functions as attributes")
    p.add_argument("--record", action="store_true", help="write this library's answers into the case files")
    p.add_argument("--run-crash", action="store_true", help="also run the steps recorded as a crash")
    p.add_argument("--only", help="regular expression on case names")
    p.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("-v", "--verbose", action="store_true")
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--observer", help=argparse.SUPPRESS)
    p.add_argument("cases", nargs="*", help="case files or folders")
    args = p.parse_args(argv)
    if args.child:
        child_main(args)
        return 0
    options = ["--lib", args.lib] + (["--factory", args.factory] if args.factory else [])
    options += ["--record"] if args.record else []
    options += ["--run-crash"] if args.run_crash else []
    options += ["--observer", args.observer] if args.observer else []
    files = []
    for path in args.cases or [os.path.join(HERE, "cases")]:
        if os.path.isdir(path):
            files += [os.path.join(path, n) for n in sorted(os.listdir(path)) if n.endswith(".json")]
        else:
            files.append(path)
    failed = total = steps = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for path in files:
            cases = load_cases(path)
            chosen = [i for i, c in enumerate(cases) if not args.only or re.search(args.only, c["name"])]
            bad = 0
            for i, (mismatches, recorded) in zip(chosen, pool.map(lambda k: run_in_process(cases[k], options), chosen)):
                total += 1
                steps += len(cases[i]["steps"])
                if recorded is not None:
                    cases[i] = recorded
                if mismatches:
                    bad += 1
                    for m in mismatches:
                        print("  " + m)
                elif args.verbose:
                    print("  ok " + cases[i]["name"])
            failed += bad
            print("%s: %d cases, %d failed" % (os.path.basename(path), len(chosen), bad), flush=True)
            if args.record:
                with open(path, "w", encoding="utf-8") as f:
                    f.write(dump_cases(cases))
    print("%d cases, %d steps, %d cases failed" % (total, steps, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
