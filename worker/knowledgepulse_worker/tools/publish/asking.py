"""What a folder holds is shown before it is published, since nobody named each of its runs."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from tempfile import SpooledTemporaryFile
from typing import Self

import click
import msgspec

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.terminal.console import tell

_MEGABYTE = 1e6
_IN_MEMORY = 16 * 2**20
"""Bytes of traces that need no file."""


class _Metadata(msgspec.Struct):
    created_at: str
    framework: str = "agents without a name"


class _Trace(msgspec.Struct):
    metadata: _Metadata


def has_terminal() -> bool:
    """Return whether there is somebody to ask."""
    return sys.stdin.isatty()


class Gathered:
    """Traces that wait in a temporary file for the answer; exactly these are published."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed with this
        self._days = defaultdict[str, list[str]](list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, lines: Iterable[bytes]) -> None:
        """Add traces."""
        for line in lines:
            metadata = msgspec.json.decode(line, type=_Trace).metadata
            self._days[metadata.framework].append(metadata.created_at[:10])
            self._file.write(line.strip() + b"\n")

    def lines(self) -> Iterator[bytes]:
        """Yield the traces."""
        self._file.seek(0)
        yield from self._file

    def ask(self, settings: Settings) -> None:
        """Show what traces there are and where they would go, and ask, unless there is none.

        Raises:
            InputError: there is no terminal to ask on.
            click.Abort: the answer is no.
        """
        if not self._days:
            return
        traces = counted(sum(map(len, self._days.values())), "trace")
        where = f"{settings.topics.raw} at {settings.kafka.bootstrap_servers}"
        tell(f"{traces} would be published to {where}, {self._file.tell() / _MEGABYTE:.1f} MB:")
        for framework, days in sorted(self._days.items(), key=lambda item: -len(item[1])):
            period = min(days) if min(days) == max(days) else f"{min(days)} to {max(days)}"
            tell(f"  {framework}: {len(days):,}, {period}")
        tell("They hold what people asked and what tools returned; `kp-worker convert` prints them.")
        if not has_terminal():
            raise InputError("without a terminal to ask on, the runs of a folder or a database need --yes")
        click.confirm("Publish them?", abort=True, err=True)
