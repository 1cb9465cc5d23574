"""The pipe from the worker process to its parent, and the heartbeat on it.

Twice a second, the process's event loop writes the reasons why it is not ready and what it has found of
itself, with which the parent answers the probes. In between, the pipe carries what the process tells about
records in progress. A pipe keeps what was written when its writer dies.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypedDict

from knowledgepulse_worker.errors import WorkerError

HEARTBEAT_INTERVAL = 0.5
"""Seconds between two heartbeats."""

_PIPE_BYTES = 65_536


class Report(TypedDict):
    """The content of a heartbeat, a few hundred bytes.

    Attributes:
        reasons: the reasons why the process is not ready; empty if it is.
        findings: the findings of the process's verdict on itself, as plain JSON.
    """

    reasons: list[str]
    findings: list[dict[str, Any]]


class PipeWriter:
    """The process's end of the pipe.

    Args:
        descriptor: the pipe's write end.

    Attributes:
        has_reader: whether the parent was there at the last message.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.has_reader = True
        self._descriptor = descriptor
        self._rest = b""

    def send(self, message: Mapping[str, Any]) -> bool:
        """Write a message; return False if the pipe is full, since the parent does not read, or is gone."""
        # A long message may be written in part; nothing may come between the parts.
        if self._rest and not self._write(self._rest):
            return False
        return self._write(json.dumps(message).encode() + b"\n")

    def _write(self, content: bytes) -> bool:
        try:
            written = os.write(self._descriptor, content)
        except BlockingIOError:
            return False
        except BrokenPipeError:  # to be told by the heartbeat alone: an end must not fail on its way
            self.has_reader = False
            return False
        self._rest = content[written:]
        return True


async def beat(pipe: PipeWriter, report: Callable[[], Report]) -> None:
    """Send reports until the parent is gone; leave out those for which the pipe has no room.

    Args:
        pipe: the process's end of the pipe.
        report: returns the content of the next heartbeat.

    Raises:
        WorkerError: the parent is gone.
    """
    while True:
        pipe.send(report())
        if not pipe.has_reader:
            raise WorkerError("the parent process is gone")
        await asyncio.sleep(HEARTBEAT_INTERVAL)


class PipeReader:
    """The parent's end of the pipe.

    Args:
        descriptor: the pipe's non-blocking read end.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages that were written since the last call, also those of a process that is dead."""
        while True:
            try:
                content = os.read(self._descriptor, _PIPE_BYTES)
            except BlockingIOError:
                return
            if not content:
                return
            *lines, self._rest = (self._rest + content).split(b"\n")
            yield from map(json.loads, lines)
