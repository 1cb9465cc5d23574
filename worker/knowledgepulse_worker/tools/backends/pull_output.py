"""Where pulled traces go: a file, standard output, or the raw topic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import click

from knowledgepulse_worker.tools.publish.trace_publisher import TracePublisher
from knowledgepulse_worker.tools.terminal.lines import file_errors


class PullOutput(Protocol):
    """Takes traces, and keeps them safe."""

    @property
    def size(self) -> int:
        """The size of the output file; 0 if there is none."""

    async def write(self, traces: Sequence[bytes]) -> None:
        """Write traces; return once a crash cannot lose them."""


class FileOutput:
    """A file to which traces are appended, one per line.

    Args:
        path: the file.
        size: the size up to which an interrupted pull has written whole pages; the rest is written again.
            None if none was interrupted.
    """

    def __init__(self, path: Path, size: int | None) -> None:
        self._path = path
        with file_errors(path, "written"):
            path.touch()
            if size is not None and path.stat().st_size > size:
                os.truncate(path, size)

    @property
    def size(self) -> int:
        """The file's size."""
        return self._path.stat().st_size

    async def write(self, traces: Sequence[bytes]) -> None:
        """Append traces, and wait until they are on the disk."""
        with file_errors(self._path, "written"), self._path.open("ab") as file:
            file.writelines(trace + b"\n" for trace in traces)
            file.flush()
            os.fsync(file.fileno())


class StandardOutput:
    """Standard output, one trace per line."""

    size = 0

    async def write(self, traces: Sequence[bytes]) -> None:
        """Print traces."""
        for trace in traces:
            click.echo(trace)


class TopicOutput:
    """The raw topic. A crash may publish a page twice, with the same ids."""

    size = 0

    def __init__(self, publisher: TracePublisher) -> None:
        self._publisher = publisher

    async def write(self, traces: Sequence[bytes]) -> None:
        """Publish traces, and wait until the brokers have confirmed them."""
        for trace in traces:
            await self._publisher.publish(trace)
        await self._publisher.flush()
