"""The memory that Python takes for some work."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Memory:
    """What work has taken.

    Attributes:
        held: bytes that are left at its end.
        peak: the most bytes at a time.
    """

    held: int = 0
    peak: int = 0


@contextmanager
def traced() -> Iterator[Memory]:
    """Trace the memory of a block, which is known at its end."""
    memory = Memory()
    tracemalloc.start()
    try:
        yield memory
        memory.held, memory.peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
