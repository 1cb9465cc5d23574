"""Messages and progress of commands, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

errors = Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def progress_bars(done: ProgressColumn) -> Iterator[Progress]:
    """Yield progress bars, on standard error when that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        yield progress


@contextmanager
def counting() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows how much of a topic was read; on standard error when that is a terminal."""
    with progress_bars(MofNCompleteColumn()) as progress:
        tasks: dict[str, TaskID] = {}

        def show(topic: str, done: int, total: int) -> None:
            if topic not in tasks:
                tasks[topic] = progress.add_task(topic)
            progress.update(tasks[topic], completed=done, total=total)

        yield show
