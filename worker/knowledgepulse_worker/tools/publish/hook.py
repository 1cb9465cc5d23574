"""What the hook of a coding agent does at once: agents end a hook that takes its time."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from tempfile import TemporaryFile

import click

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import printable

_MAX_HOOK = 16_777_216
"""Bytes of a hook's input."""


def session_of(file: str) -> str:
    """Return the session's file that a hook's input names; raise an InputError if it names none."""
    try:
        with click.open_file(file, "rb") as opened_file:
            given = json.loads(opened_file.read(_MAX_HOOK))
        path = Path(given.get("agent_transcript_path") or given["transcript_path"]).expanduser()
        is_file = _may_be_file(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, RuntimeError) as error:
        raise InputError(
            f'{printable(file)}: not a hook\'s input: {{"transcript_path": "…"}} is expected'
        ) from error
    if not is_file:
        raise InputError(f"{printable(str(path))}: cannot be read: it is no file")
    return str(path.absolute())  # `-` would be standard input


def _may_be_file(path: Path) -> bool:
    """Return whether a path is that of a file, or of nothing; raise a ValueError if it can be neither's."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # opening it will tell
        return True


def go_on_apart() -> None:
    """Go on in a process of its own, which the end of this one does not end.

    This one waits, prints what the other has printed, and ends as it does.
    """
    printed = TemporaryFile()  # noqa: SIM115 - a pipe would break when the agent ends this process
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        printed.seek(0)
        click.echo(printed.read(), err=True, nl=False)
        sys.exit(abs(os.waitstatus_to_exitcode(status)))
    os.setsid()
    for stream in (sys.stdout, sys.stderr):
        os.dup2(printed.fileno(), stream.fileno())
