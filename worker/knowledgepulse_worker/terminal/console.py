"""Messages and progress bars on standard error."""

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

TopicProgressCallback = Callable[[str, int, int], None]
"""Called with a topic, the number of offsets read, and their total."""


@contextmanager
def progress_bars(done: ProgressColumn) -> Iterator[Progress]:
    """Show progress bars if standard error is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        yield progress


@contextmanager
def topic_progress() -> Iterator[TopicProgressCallback]:
    """Yield a callback that shows the reading progress of topics if standard error is a terminal."""
    with progress_bars(MofNCompleteColumn()) as progress:
        tasks: dict[str, TaskID] = {}

        def show(topic: str, done: int, total: int) -> None:
            if topic not in tasks:
                tasks[topic] = progress.add_task(topic)
            progress.update(tasks[topic], completed=done, total=total)

        yield show
