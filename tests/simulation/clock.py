"""The wall clock of simulated processes."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from contextlib import contextmanager
from functools import cache

from knowledgepulse_kafka.testing.virtual_time import EPOCH, OWNER
from knowledgepulse_worker.process import quarantine


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
    step, quarantine.ANNOUNCED_RECORDS = quarantine.ANNOUNCED_RECORDS, 3
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.enable()
        quarantine.ANNOUNCED_RECORDS = step
        for module in changed:
            module.time = time
