"""The simulated NPU itself, in plain Python: devices, contexts, streams, events, memory, kernels. Nothing here knows C.

Where things go
---------------
machine.py     the state of one process as the runtime library holds it; the engine lock; the areas' state
threads.py     what the library keeps per host thread: current context, last error, messages
failures.py    how a call fails (two layers), and what has no answer at all: UndefinedBehavior, Deadlock
refusals.py    the usual failures, each with its code and message code
handles.py     opaque handles: never null, never used twice
places.py      the file and line of the program that made a call
clock.py       device time, which a test can drive
profiles.py    the facts of each SoC, and which CANN versions there are
observers.py   functions of the program that are told when devices and streams come and go
device.py context.py stream.py event.py notify.py    the objects
operation.py   one piece of work on a stream, and what it reads and writes
scheduler.py   when operations run: lazy, eager, random(seed); waiting; deadlocks
waiting.py     how a host thread waits for streams and learns of failures
callbacks.py   functions of the program in the order of a stream
hazards.py     the hazard checker, loaded when asked for; `machine.hazards` is told what happens
clocks.py ranges.py shadows.py tracking.py pinned.py prepared.py findings.py    its parts
faults.py       faults that a test asked for
process.py configuration.py    aclInit and its file
(memory, kernels, models, ...: modules of the same kind)

An area keeps its state in a class of its own, made on first use for one machine::

    class Memory:
        def __init__(self, machine: Machine) -> None: ...
    memory = machine.area(Memory)          # always the same object for the same machine

Queue an operation::

    stream.submit(Work("aclrtMemcpyAsync", function, Access(reads=((src, n),), writes=((dst, n),))))

`function()` is called later, once, *without* the engine lock (with `Work(..., locked=True)`: with it, for short
book-keeping). The stream notes the place of the call and hands the operation to the scheduler. Everything that an
operation touches is declared in its `Access`, device addresses and host addresses alike: the hazard checker knows
nothing else. An operation that has to wait overrides `blocked_by`; one that finishes later, on another thread,
returns False from `start` and is ended with `machine.scheduler.finish(operation)`.

Wait for something: `machine.scheduler.wait(goal, [streams], timeout)`; the lock is given back meanwhile.

Fail::

    raise AclLayerError(100000, "EH0002", "Argument [stream] must not be null")   # acl layer: not a "last error"
    raise RuntimeLayerError(107000, "EE1003", "...")                              # runtime layer: the last error

Add an entry point: in bridge/<area>.py, `@answers("aclrtX")`; see bridge/__init__.py.

Every entry point runs under the engine lock (one plain lock, not re-entrant). Code that may take long, or that calls
into the program (a kernel emulation, a callback), gives it back meanwhile: `with machine.unlocked():`.
"""
