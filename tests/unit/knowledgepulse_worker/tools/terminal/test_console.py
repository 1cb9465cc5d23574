"""Progress on a terminal, and in a log."""

import os
import time
from itertools import chain

from rich.progress import DownloadColumn

from knowledgepulse_worker.tools.terminal import console
from knowledgepulse_worker.tools.terminal.console import progress_bars, topic_progress
from knowledgepulse_worker.tools.terminal.files import opened


def printed(capsys, line):
    """Wait until a line is printed on standard error."""
    text = ""
    while line not in text.splitlines():
        text += capsys.readouterr().err
        time.sleep(0.001)


def test_without_a_terminal_the_progress_is_printed_while_a_command_works(capsys, monkeypatch):
    """A command that read for a minute printed nothing, and could not be told from one that hangs."""
    monkeypatch.setattr(console, "PROGRESS_INTERVAL", 0.001)

    with topic_progress() as show:
        show("contribute", 0, 1_301)
        printed(capsys, "contribute: 0 of 1,301")
        show("contribute", 1_301, 1_301)
        show("rejected", 1_000, 2_000)
        printed(capsys, "rejected: 1,000 of 2,000")
        capsys.readouterr()
        printed(capsys, "rejected: 1,000 of 2,000")
        assert "contribute" not in capsys.readouterr().err


def test_the_progress_of_files_is_printed_in_bytes(capsys, monkeypatch):
    monkeypatch.setattr(console, "PROGRESS_INTERVAL", 0.001)

    with progress_bars(DownloadColumn()) as progress:
        progress.update(progress.add_task("-", total=None), completed=1_000)
        progress.update(progress.add_task("a [b]\n", total=3_000_000), completed=1_500_000)
        printed(capsys, "a [b]\\n: 1.5/3.0 MB")
        assert "-" not in capsys.readouterr().err


def test_a_command_that_ends_soon_prints_no_progress(capsys):
    with topic_progress() as show:
        show("contribute", 1, 2)

    assert capsys.readouterr().err == ""


def test_all_files_share_one_bar(tmp_path):
    """With a bar for each, 400 small files drew six megabytes, and took most of the time."""
    files = [tmp_path / f"{number}.jsonl" for number in range(3)]
    for number, file in enumerate(files):
        file.write_text("{}\n" * number)

    with progress_bars(DownloadColumn()) as progress:
        for _, lines in chain(opened(map(str, files[:2]), progress), opened([str(files[2])], progress)):
            list(lines)

        (bar,) = progress.tasks
        assert (bar.description, bar.completed, bar.total) == (str(files[2]), 9, 9)
    with progress_bars(DownloadColumn()) as progress:
        assert [*opened([os.devnull], progress)]
        assert progress.tasks[0].total is None, "nobody knows how much a device has"
