"""Groups of commands."""

from __future__ import annotations

import difflib
import re
from typing import Any

import click

from knowledgepulse_worker.terminal.lazy_command import loaded

_SETTINGS_FILE = re.compile(r"unexpected extra argument \((\S+\.toml)\)")


class CommandGroup(click.Group):
    """A group that names the nearest command for a misspelt one, and the place of a misplaced option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the group's own options."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if command := next((arg for arg in args if arg in self.commands), None):
                error.message += f"; the options of {command!r} follow its name"
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; say whose an option is that only others of the group have, and what a file is."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if others := self._commands_with(error.option_name):
                error.message += f"; it is an option of {', '.join(others)}"
                error.possibilities = None
            raise
        except click.UsageError as error:
            if settings := _SETTINGS_FILE.search(error.message):
                error.message += f". Did you mean '--config {settings[1]}'?"
            raise

    def _commands_with(self, option: str) -> list[str]:
        return [
            name
            for name, command in self.commands.items()
            if any(option in parameter.opts for parameter in loaded(command).params)
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments begin with, imported, and its own arguments."""
        name, *_ = args
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            names = [known for known, command in self.commands.items() if not command.hidden]
            if close := difflib.get_close_matches(name, names, n=1):
                ctx.fail(f"No such command {name!r}. Did you mean {close[0]!r}?")
        found, command, rest = super().resolve_command(ctx, args)
        return found, command and loaded(command), rest
