"""Command-line parameter types: times, record locations, numbers, files."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, cast, get_args

import click

from knowledgepulse_worker.errors import InputError

_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*%", re.ASCII)
_TOPIC_PART = re.compile(
    r"(?P<topic>[\w.-]+)(?:/(?P<partition>\d{1,10})(?:/(?P<offset>\d{1,19}))?)?", re.ASCII
)
_LOCATION = re.compile(r"(\d{1,10})/(\d{1,19})", re.ASCII)


class Moment(click.ParamType):
    """A date-time or an age."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse the time; without an offset it is UTC."""
        ago = _AGO.fullmatch(value)
        try:
            if ago:
                return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
            moment = datetime.fromisoformat(value)
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is neither a date-time such as 2026-01-31T12:00Z nor an age such as 2h or 7d"
            )
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def milliseconds(moment: datetime | None) -> int | None:
    """Return a moment in milliseconds since the epoch; None if there is none."""
    return None if moment is None else round(moment.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Period:
    """A range of record timestamps; None is an open bound."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def since_ms(self) -> int | None:
        """Start in milliseconds since the epoch."""
        return milliseconds(self.since)

    def __contains__(self, timestamp_ms: int) -> bool:
        return (self.since_ms is None or timestamp_ms >= self.since_ms) and (
            self.until is None or timestamp_ms < self.until.timestamp() * 1000
        )


class TopicPart(click.ParamType):
    """A topic, one of its partitions, or a record."""

    name = "topic[/partition[/offset]]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str | int, ...]:
        """Parse the parts that are present."""
        match = _TOPIC_PART.fullmatch(value)
        if match is None:
            self.fail(f"{value!r} is not {self.name}, such as raw-traces/0/17")
        topic, *numbers = match.groups()
        return (topic, *(int(number) for number in numbers if number is not None))


class PartitionOffset(click.ParamType):
    """A record's location in the dead-letter topic."""

    name = "partition/offset"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Parse the partition and the offset."""
        match = _LOCATION.fullmatch(value)
        if match is None:
            self.fail(f"{value!r} is not {self.name}, such as 0/17 in the output of `list`")
        return int(match[1]), int(match[2])


class NewFile(click.Path):
    """A file to write in an existing folder, which is checked before minutes are spent on its content."""

    def __init__(self, *suffixes: str) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)
        self._suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path."""
        path = cast("Path", super().convert(value, param, ctx))
        if self._suffixes and path.suffix.lower() not in self._suffixes:
            raise InputError(f"{path}: the suffix must be one of {', '.join(self._suffixes)}")
        if not path.parent.is_dir():
            raise InputError(f"{path}: cannot be written: {os.strerror(errno.ENOENT)}")
        return path


class Number(click.types.FloatParamType):
    """A number except NaN, which cannot be compared."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        if isinstance(value, str) and (percent := _PERCENT.fullmatch(value)):
            self.fail(f"{value!r} is not a number; write {float(percent[1]) / 100:g}.", param, ctx)
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


class NumberInRange(click.FloatRange, Number):
    """A number in a range."""


SHARE = NumberInRange(0, 1, min_open=True)
SCORE = NumberInRange(0, 1)


class LazyChoice(click.Choice[str]):
    """A choice among the values of a ``Literal``, or the names of a table, imported when they are needed.

    Args:
        target: where they are, ``module:attribute``.
        others: further values, which come first.
    """

    def __init__(self, target: str, *others: str) -> None:
        self._target = target
        self._others = others
        self.case_sensitive = True

    @cached_property
    def choices(self) -> Sequence[str]:  # type: ignore[override]
        """All values."""
        module, attribute = self._target.split(":")
        values = getattr(import_module(module), attribute)
        return (*self._others, *(get_args(values) or values))


class InputFile(click.Path):
    """A file to read, or standard input; an address is told apart from a file that is not there."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the file's name."""
        if re.match(r"https?://", str(value)):
            self.fail(
                f"{value} is an address, not a file; `kp-worker score-runs` scores the runs of a backend, "
                "and `kp-worker pull` converts them"
            )
        return super().convert(value, param, ctx)


EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
files_argument = click.argument(
    "files", nargs=-1, required=True, type=InputFile(exists=True, dir_okay=True, allow_dash=True)
)
"""Files to read, or folders of files to convert; `-` is standard input."""


DATABASE = b"SQLite format 3\0"
"""How a database of SQLite begins."""


def is_database(name: str) -> bool:
    """Return whether a file is a database of SQLite; one that cannot be read is none, as its reader tells."""
    if not os.path.isfile(name):  # noqa: PTH113 - of a pipe, nothing may be read ahead
        return False
    try:
        with Path(name).open("rb") as file:
            return file.read(len(DATABASE)) == DATABASE
    except OSError:
        return False


def has_runs(files: Sequence[str]) -> bool:
    """Return whether a folder or a database is among files, whose runs are converted."""
    return any(map(os.path.isdir, files)) or any(map(is_database, files))
