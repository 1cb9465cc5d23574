"""The heartbeat of the worker process: its event loop writes a line per second to a pipe to the parent.

The line says why the process is not ready, and what its verdict on itself is:
the parent answers the probes with both.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any, TypedDict

from knowledgepulse_worker.errors import WorkerError

INTERVAL = 1.0
"""Seconds between two beats."""

_PIPE_BYTES = 65_536


class Report(TypedDict):
    """What a beat says, in a few hundred bytes.

    Attributes:
        reasons: why the process is not ready; empty if it is.
        verdict: the process's verdict on itself.
    """

    reasons: list[str]
    verdict: dict[str, Any]


async def beat(descriptor: int, report: Callable[[], Report]) -> None:
    """Write to the pipe until the parent is gone.

    Args:
        descriptor: the pipe's write end.
        report: returns what to say.

    Raises:
        WorkerError: the parent is gone.
    """
    os.set_blocking(descriptor, False)
    while True:
        try:
            os.write(descriptor, json.dumps(report()).encode() + b"\n")
        except BlockingIOError:
            pass  # the parent is suspended, and has unread beats waiting
        except BrokenPipeError:
            raise WorkerError("the parent process is gone") from None
        await asyncio.sleep(INTERVAL)


def read_beat(descriptor: int) -> Report | None:
    """Return what the last beat said; None without a beat since the last call.

    Args:
        descriptor: the pipe's non-blocking read end.
    """
    try:
        lines = os.read(descriptor, _PIPE_BYTES).splitlines()
    except BlockingIOError:
        return None
    return json.loads(lines[-1]) if lines else None
