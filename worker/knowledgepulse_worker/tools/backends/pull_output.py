"""Where pulled traces go: a file, or standard output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import click

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.tools.backends.pull_state import FILE, cut
from knowledgepulse_worker.tools.common.durable_files import write
from knowledgepulse_worker.tools.terminal.lines import file_errors

_FILE_MODE = 0o600
"""The mode of a new file, which may hold traces that are private, as a dataset's."""

PageRecorder = Callable[[int], None]
"""Records in the state of the pull that a page was taken, with the output's mark after it."""


class PullOutput(Protocol):
    """Takes traces, and keeps them safe."""

    @property
    def name(self) -> str:
        """Tells this output from others."""

    @property
    def mark(self) -> int:
        """A number that grows with each page, unless nothing can be completed in this output."""

    async def write(self, traces: Sequence[ReasoningTrace], take: PageRecorder) -> None:
        """Write the traces of a page, and record that it was taken.

        The state and the output say the same after a crash at any time, in the order that the output needs.
        """


class FileOutput:
    """A file to which traces are appended, one per line; its mark is its size.

    Args:
        path: the file.
        mark: the mark after the last page of a pull that was interrupted, whose rest is written again. None
            if none was interrupted.
    """

    def __init__(self, path: Path, mark: int | None) -> None:
        self._path = path
        self.name = file_name(path)
        with file_errors(path, "written"):
            path.touch(mode=_FILE_MODE)
            if mark is not None:
                cut(path, mark)

    @property
    def mark(self) -> int:
        """The file's size."""
        return self._path.stat().st_size

    async def write(self, traces: Sequence[ReasoningTrace], take: PageRecorder) -> None:
        """Append traces, wait until they are on the disk, and record the page."""
        with file_errors(self._path, "written"):
            write(self._path, (trace.to_json() + b"\n" for trace in traces), append=True)
        take(self.mark)


def file_name(path: Path) -> str:
    """Return the name of the output to a file."""
    return f"{FILE}{path.resolve()}"


class StandardOutput:
    """Standard output, one trace per line."""

    name, mark = "standard output", 0

    async def write(self, traces: Sequence[ReasoningTrace], take: PageRecorder) -> None:
        """Print traces, and record the page."""
        for trace in traces:
            click.echo(trace.to_json())
        take(0)
