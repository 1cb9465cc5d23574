"""A process's sign of life to its parent: a byte a second from its event loop, through a pipe."""

from __future__ import annotations

import asyncio
import os

from worker.errors import WorkerError

INTERVAL = 1.0
"""Seconds between two beats."""


async def beat(descriptor: int) -> None:
    """Write to the pipe until the parent is gone.

    Args:
        descriptor: the pipe's end for writing.

    Raises:
        WorkerError: nobody reads it any more.
    """
    os.set_blocking(descriptor, False)
    while True:
        try:
            os.write(descriptor, b".")
        except BlockingIOError:
            pass  # the parent is suspended, and what it has not read yet tells it enough
        except BrokenPipeError:
            raise WorkerError("the parent process is gone") from None
        await asyncio.sleep(INTERVAL)


def heard(descriptor: int) -> bool:
    """Return whether anything was written to the pipe since the last time.

    Args:
        descriptor: the pipe's end for reading, which does not block.
    """
    try:
        return bool(os.read(descriptor, 65_536))
    except BlockingIOError:
        return False
