"""Messages and progress on standard error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TimeRemainingColumn,
)
from rich.text import Text

from knowledgepulse_worker.terminal.printable import printable_line
from knowledgepulse_worker.tools.terminal.fitted import middle_out

_NAME, _BAR = 28, 20
"""Characters of a name and of a bar: with what is done and the time, they fit into 80 columns."""

PROGRESS_INTERVAL = 10.0
"""Seconds between two lines about the progress if standard error is not a terminal."""

errors = Console(stderr=True, highlight=False, soft_wrap=True)


def tell(text: str) -> None:
    """Print a line with text from producers."""
    errors.print(printable_line(text), markup=False, emoji=False)


TopicProgressCallback = Callable[[str, int, int], None]
"""Called with a topic, the number of offsets read, and their total."""


class RecordsColumn(ProgressColumn):
    """Shows the number of completed records and their total."""

    def render(self, task: Task) -> Text:
        """Return the text."""
        total = "?" if task.total is None else f"{task.total:,.0f}"
        return Text(f"{task.completed:,.0f} of {total}")


class _NameColumn(ProgressColumn):
    """Shows what is read, shortened in its middle."""

    def render(self, task: Task) -> Text:
        """Return the text."""
        return Text(middle_out(task.description, _NAME), no_wrap=True)


@contextmanager
def progress_bars(done: ProgressColumn) -> Iterator[Progress]:
    """Show progress bars; if standard error is not a terminal, print a line at long intervals instead."""
    columns = (_NameColumn(), BarColumn(_BAR), done, TimeRemainingColumn())
    is_terminal, ended = errors.is_terminal, threading.Event()
    progress = Progress(*columns, console=errors, transient=True, disable=not is_terminal)
    if is_terminal:
        with progress:
            yield progress
        return
    lines = threading.Thread(target=_print_progress, args=(progress, done, ended), daemon=True)
    lines.start()
    try:
        yield progress
    finally:
        ended.set()
        lines.join()


def _print_progress(progress: Progress, done: ProgressColumn, ended: threading.Event) -> None:
    while not ended.wait(PROGRESS_INTERVAL):
        for task in progress.tasks:
            if not task.finished and task.total is not None:  # a pipe has no total, and may never end
                tell(f"{task.description}: {done.render(task)}")


@contextmanager
def topic_progress() -> Iterator[TopicProgressCallback]:
    """Yield a callback that shows the reading progress of topics."""
    with progress_bars(RecordsColumn()) as progress:
        tasks: dict[str, TaskID] = {}

        def show(topic: str, done: int, total: int) -> None:
            if topic not in tasks:
                tasks[topic] = progress.add_task(topic)
            progress.update(tasks[topic], completed=done, total=total)

        yield show
