"""Commands as a person runs them, and their definitions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import click

from worker.cli import main


def command(*words: str) -> click.Command:
    """The definition of `kp-worker WORDS`; what is no command's name is passed over."""
    found: click.Command = main
    for word in words:
        if isinstance(found, click.Group):
            _, found, _ = found.resolve_command(click.Context(found), [word])
    return found


def every_command() -> dict[str, click.Command]:
    """The definition of each command by its name, those of groups as `group name`."""
    commands = {name: command(name) for name in main.commands}
    of_groups = {
        f"{name} {inner}": one
        for name, group in commands.items()
        if isinstance(group, click.Group)
        for inner, one in group.commands.items()
    }
    return commands | of_groups


async def kp_worker(*arguments: str, **environment: str) -> tuple[int | None, str, str]:
    """Run a command to its end; returns status, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "worker.cli", *arguments),
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()
