"""An event loop in virtual time, whose callbacks belong to processes that can be killed or suspended.

Packages for virtual time (looptime and others) only move a loop's clock. In this loop, each callback also has
an owner. A killed process runs no more callbacks; a suspended process runs its pending callbacks when it
resumes.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import sys
import time
from collections import deque
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import cache

from knowledgepulse_worker.records import suspects

EPOCH = 1_700_000_000.0
"""The wall clock's time at virtual time 0."""

OWNER: ContextVar[Process | None] = ContextVar("owner", default=None)
"""The process that runs; None for brokers, the network and the history itself."""


class NothingLeftError(Exception):
    """A history cannot end, because nothing is scheduled any more or because the callbacks never stop."""


class Process:
    """The process that owns a callback.

    Attributes:
        skew: the error of the process's wall clock in seconds.
    """

    def __init__(self, name):
        self.name = name
        self.skew = 0.0
        self.is_dead = False
        self.is_suspended = False
        self._held = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.processes.append(self)

    def hold(self, handle):
        self._held.append(handle)

    def suspend(self):
        self.is_suspended = True

    def resume(self):
        self.is_suspended = False
        self._loop.ready_again(self._held)
        self._held = deque()

    def start(self, coroutine):
        """Run a coroutine and all tasks that it starts in this process."""
        context = copy_context()
        context.run(OWNER.set, self)
        return self._loop.create_task(coroutine, context=context)


class _Handle:
    """A callback; asyncio's own handles would take a third of a history's time."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "time")

    def __init__(self, callback, args, context, time=0.0):
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.is_cancelled = False
        self.time = time

    def cancel(self):
        self.is_cancelled = True
        self.callback = self.args = None

    def cancelled(self):
        return self.is_cancelled

    def when(self):
        return self.time


class VirtualLoop(asyncio.BaseEventLoop):
    """Advances its clock to the next timer whenever nothing is ready; it has no input or output."""

    def __init__(self, limit=300_000):
        super().__init__()
        self.steps = 0
        self._limit = limit
        self._now = 0.0
        self._timers = 0
        self._ending = False
        self.processes = []

    def time(self):
        return self._now

    def call_soon(self, callback, *args, context=None):
        handle = _Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        handle = _Handle(callback, args, context, when)
        self._timers += 1
        heapq.heappush(self._scheduled, (when, self._timers, handle))
        return handle

    def ready_again(self, handles):
        self._ready.extend(handles)

    def end_processes(self):
        """Let killed and suspended processes run again, so that their tasks can be cancelled."""
        self._ending = True
        for process in self.processes:
            process.resume()

    def run_in_executor(self, executor, func, *args):
        """Run a thread's work inline at once."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # the caller gets the thread's error
            done.set_exception(error)
        return done

    def _write_to_self(self):
        """Do nothing, since there is no selector to wake."""

    def _process_events(self, events):
        """Do nothing, since there are no input or output events."""

    def _run_once(self):
        """Run all rounds until the loop is stopped; most rounds have a single callback."""
        ready, scheduled = self._ready, self._scheduled
        while not self._stopping:
            if not ready:
                while scheduled and scheduled[0][2].is_cancelled:
                    heapq.heappop(scheduled)
                if not scheduled:
                    raise NothingLeftError("no task is ready and no timer runs")
                self._now = max(self._now, scheduled[0][0])
            while scheduled and scheduled[0][0] <= self._now:
                ready.append(heapq.heappop(scheduled)[2])
            self.steps += len(ready)
            if self.steps > self._limit:
                raise NothingLeftError(f"{self._limit} callbacks, and no end")
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle.is_cancelled:
                    continue
                owner = handle.context.get(OWNER)
                if owner is not None and not self._ending and (owner.is_dead or owner.is_suspended):
                    owner.hold(handle)
                    continue
                try:
                    handle.context.run(handle.callback, *handle.args)
                except (Exception, asyncio.CancelledError):
                    if owner is None and not self._ending:
                        raise  # an error of the simulator's own
                    continue  # as in asyncio's own loop, it ends nothing


class _Clock:
    """Replaces the module ``time`` in the worker's modules."""

    def monotonic(self):
        return asyncio.get_running_loop().time()

    perf_counter = monotonic

    def time(self):
        owner = OWNER.get()
        return EPOCH + self.monotonic() + (0.0 if owner is None else owner.skew)

    def time_ns(self):
        return int(self.time() * 1e9)

    def __getattr__(self, name):
        return getattr(time, name)


@cache
def _freeze():
    """Exclude imported objects from later garbage collections, which would take as long as a history."""
    gc.collect()
    gc.freeze()


@cache
def _with_time(_modules):
    """Return the worker's modules that import ``time``; the number of all modules is the cache's key."""
    worker = [module for name, module in sys.modules.items() if name.startswith("knowledgepulse_worker.")]
    return [module for module in worker if getattr(module, "time", None) is time]


@contextmanager
def simulated_process():
    """Let the worker's modules read the running loop's clock, and announce few records at once.

    Garbage collection is off meanwhile, since the effects of closing a forgotten task would depend on the
    time of the collection.
    """
    _freeze()
    clock = _Clock()
    changed = _with_time(len(sys.modules))
    for module in changed:
        module.time = clock
    step, suspects.ANNOUNCED_RECORDS = suspects.ANNOUNCED_RECORDS, 3
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.enable()
        suspects.ANNOUNCED_RECORDS = step
        for module in changed:
            module.time = time


def run(main, limit=300_000):
    """Run a coroutine function in a virtual loop, then cancel all remaining tasks."""
    loop = VirtualLoop(limit)
    asyncio.set_event_loop(None)
    try:
        return loop.run_until_complete(main())
    finally:
        loop.end_processes()
        loop._limit = loop.steps + 200_000
        for _ in range(5):
            if not (left := asyncio.all_tasks(loop)):
                break
            for task in left:
                task.cancel()
            with suppress(NothingLeftError, RuntimeError):
                loop.run_until_complete(asyncio.wait(left, timeout=60))
        loop.close()
