"""A process's sign of life to its parent: a byte a second from its event loop, through a pipe.

The byte says whether it is ready, so that the parent can answer for it when it is gone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from worker.errors import WorkerError

INTERVAL = 1.0
"""Seconds between two beats."""


STARTING, READY = b".", b"!"


async def beat(descriptor: int, is_ready: Callable[[], bool]) -> None:
    """Write to the pipe until the parent is gone.

    Args:
        descriptor: the pipe's end for writing.
        is_ready: asked before each beat.

    Raises:
        WorkerError: nobody reads it any more.
    """
    os.set_blocking(descriptor, False)
    while True:
        try:
            os.write(descriptor, READY if is_ready() else STARTING)
        except BlockingIOError:
            pass  # the parent is suspended, and what it has not read yet tells it enough
        except BrokenPipeError:
            raise WorkerError("the parent process is gone") from None
        await asyncio.sleep(INTERVAL)


def heard(descriptor: int) -> bytes:
    """Return the beats since the last time; none when there were none.

    Args:
        descriptor: the pipe's end for reading, which does not block.
    """
    try:
        return os.read(descriptor, 65_536)
    except BlockingIOError:
        return b""
