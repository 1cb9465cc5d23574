"""All commands, from their definitions."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import click

from knowledgepulse_worker.cli.entry import main


def page() -> str:
    """Return a section for each command: its help, as the command prints it."""
    return "\n".join(_sections("kp-worker", main, None))


def _sections(name: str, command: click.Command, parent: click.Context | None) -> Iterator[str]:
    command = copy.copy(command)
    command._help_option = None  # noqa: SLF001 - click keeps that of the context in which a command ran first
    settings = command.context_settings | {"max_content_width": 100, "terminal_width": 100}
    context = click.Context(command, parent, info_name=name, **settings)
    yield f"\n## `{context.command_path}`\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for word in command.list_commands(context):
            listed = command.get_command(context, word)
            _, found, _ = command.resolve_command(context, [word])
            if listed is not None and found is not None and not listed.hidden:
                yield from _sections(word, found, context)
