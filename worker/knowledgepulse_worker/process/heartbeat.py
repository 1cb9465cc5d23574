"""The heartbeat of the worker process: its event loop writes a line per second to a pipe to the parent.

The line has the reasons why the process is not ready, so that the parent can answer the probes for it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence

from knowledgepulse_worker.errors import WorkerError

INTERVAL = 1.0
"""Seconds between two beats."""

_PIPE_BYTES = 65_536


async def beat(descriptor: int, reasons: Callable[[], Sequence[str]]) -> None:
    """Write to the pipe until the parent is gone.

    Args:
        descriptor: the pipe's write end.
        reasons: returns why the process is not ready, in a few hundred bytes; empty if it is ready.

    Raises:
        WorkerError: the parent is gone.
    """
    os.set_blocking(descriptor, False)
    while True:
        try:
            os.write(descriptor, json.dumps(reasons()).encode() + b"\n")
        except BlockingIOError:
            pass  # the parent is suspended, and has unread beats waiting
        except BrokenPipeError:
            raise WorkerError("the parent process is gone") from None
        await asyncio.sleep(INTERVAL)


def read_beat(descriptor: int) -> list[str] | None:
    """Return the reasons in the last beat; None without a beat since the last call.

    Args:
        descriptor: the pipe's non-blocking read end.
    """
    try:
        lines = os.read(descriptor, _PIPE_BYTES).splitlines()
    except BlockingIOError:
        return None
    return json.loads(lines[-1]) if lines else None
