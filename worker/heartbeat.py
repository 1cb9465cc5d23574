"""A process's sign of life to its parent: a line a second from its event loop, through a pipe.

The line says why the process is not ready, so that the parent can answer for it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence

from worker.errors import WorkerError

INTERVAL = 1.0
"""Seconds between two beats."""

_PIPE_BYTES = 65_536


async def beat(descriptor: int, reasons: Callable[[], Sequence[str]]) -> None:
    """Write to the pipe until the parent is gone.

    Args:
        descriptor: the pipe's end for writing.
        reasons: returns why the process is not ready, in some hundred bytes; nothing when it is.

    Raises:
        WorkerError: nobody reads it any more.
    """
    os.set_blocking(descriptor, False)
    while True:
        try:
            os.write(descriptor, json.dumps(reasons()).encode() + b"\n")
        except BlockingIOError:
            pass  # the parent is suspended, and what it has not read yet tells it enough
        except BrokenPipeError:
            raise WorkerError("the parent process is gone") from None
        await asyncio.sleep(INTERVAL)


def heard(descriptor: int) -> list[str] | None:
    """Return the reasons of the last beat; None when there was none since the last call.

    Args:
        descriptor: the pipe's end for reading, which does not block.
    """
    try:
        lines = os.read(descriptor, _PIPE_BYTES).splitlines()
    except BlockingIOError:
        return None
    return json.loads(lines[-1]) if lines else None
