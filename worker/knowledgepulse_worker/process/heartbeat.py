"""The worker process's heartbeat: twice a second, its event loop writes a line to a pipe to the parent.

The line holds the reasons why the process is not ready and its verdict. The parent answers the probes with
both.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any, TypedDict

from knowledgepulse_worker.errors import WorkerError

INTERVAL = 0.5
"""Seconds between two heartbeats."""

_PIPE_BYTES = 65_536


class Report(TypedDict):
    """The content of a heartbeat, a few hundred bytes.

    Attributes:
        reasons: the reasons why the process is not ready; empty if it is.
        verdict: the process's verdict on its own state.
    """

    reasons: list[str]
    verdict: dict[str, Any]


async def beat(descriptor: int, report: Callable[[], Report]) -> None:
    """Write to the pipe until the parent is gone.

    Args:
        descriptor: the pipe's write end.
        report: returns the content of the next heartbeat.

    Raises:
        WorkerError: the parent is gone.
    """
    os.set_blocking(descriptor, False)
    while True:
        try:
            os.write(descriptor, json.dumps(report()).encode() + b"\n")
        except BlockingIOError:
            pass  # the parent is suspended and has not read earlier heartbeats
        except BrokenPipeError:
            raise WorkerError("the parent process is gone") from None
        await asyncio.sleep(INTERVAL)


def read_beat(descriptor: int) -> Report | None:
    """Return the report of the last heartbeat; None if there was none since the last call.

    Args:
        descriptor: the pipe's non-blocking read end.
    """
    try:
        lines = os.read(descriptor, _PIPE_BYTES).splitlines()
    except BlockingIOError:
        return None
    return json.loads(lines[-1]) if lines else None
