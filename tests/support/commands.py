"""Commands as users run them, and their definitions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import click
from click.testing import CliRunner, Result

from knowledgepulse_worker.cli.entry import main


def command(*words: str) -> click.Command:
    """Return the definition of the command that `kp-worker WORDS` runs; options may be among the words."""
    found: click.Command = main
    for word in words:
        if isinstance(found, click.Group) and not word.startswith("-"):
            _, found, _ = found.resolve_command(click.Context(found), [word])
    return found


async def invoked(name: str, *arguments: object) -> Result:
    """Run a command in a thread, as it runs a loop of its own: a process would take most of a test's time."""
    return await asyncio.to_thread(CliRunner().invoke, command(name), [*map(str, arguments)])


async def kp_worker(*arguments: str, **environment: str) -> tuple[int | None, str, str]:
    """Run a command to its end; return status, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "knowledgepulse_worker.cli.entry", *arguments),
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()
