"""Cells of tables that a narrow terminal shortens: names in their middle, texts at their end."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from knowledgepulse_worker.message_text import printable

_LEAST = 8
"""Characters of a name that are always shown."""


@dataclass(frozen=True)
class Name:
    """The name of a file, a line or a run, which is shortened in its middle: its end tells it from others."""

    text: str

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(_LEAST, len(self.text)), len(self.text)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(middle_out(self.text, options.max_width), no_wrap=True)


def middle_out(text: str, width: int) -> str:
    """Return a text in at most so many characters, two thirds of them from its end."""
    if len(text) <= width:
        return text
    end = 2 * width // 3
    return f"{text[: width - end - 1]}…{text[len(text) - end :]}"


def one_line(text: str) -> Text:
    """Return a text that a narrow terminal cuts at its end."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def wide_table(*columns: str, figures: Collection[str] = (), fitted: Collection[str] = ()) -> Table:
    """Return a table whose columns keep their width, but for those that are fitted to the terminal.

    Args:
        columns: their heads.
        figures: those that are aligned to the right.
        fitted: those that are shortened, the widest first; their cells are of :class:`Name` or
            :func:`one_line`.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(
            one_line(column),
            justify="right" if column in figures else "left",
            no_wrap=column not in fitted,
        )
    return table


def common_folder(names: Collection[str]) -> str:
    """Return what all names begin with, up to a slash; empty if there is none."""
    prefix = os.path.commonprefix(list(names))  # noqa: RUF071 - sources of runs are no paths
    return "".join(prefix.rpartition("/")[:2])


def shown_folder(folder: str) -> str:
    """Return a folder for people, with ``~`` for their own."""
    home = os.path.expanduser("~/")  # noqa: PTH111 - a text, with its slash
    return printable(f"~/{folder.removeprefix(home)}" if folder.startswith(home) else folder)
