"""``kp-worker``: the table of its commands, each imported when it is invoked."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Any, cast

import click

from worker import __version__
from worker.errors import WorkerError
from worker.logs import leave_out_attempts
from worker.signals import stop_signals


class LazyCommand(click.Command):
    """The name and the short help of a command, which is imported when it is invoked.

    `--help` and shell completion need no more, and answer at once.

    Args:
        name: what follows `kp-worker`.
        target: where the command is, as ``module:attribute``, below :mod:`worker.commands`.
        short_help: the first sentence of its help.
    """

    def __init__(self, name: str, target: str, short_help: str, *, hidden: bool = False) -> None:
        super().__init__(name, short_help=short_help, hidden=hidden)
        self._target = target

    def load(self) -> click.Command:
        """Import the command."""
        module, attribute = self._target.split(":")
        return cast("click.Command", getattr(import_module(f"worker.commands.{module}"), attribute))


_COMMANDS = (
    LazyCommand("run", "run:run", "Run a worker until SIGTERM, SIGHUP or Ctrl-C."),
    LazyCommand("work", "work:work", "Be the process that `kp-worker run` watches.", hidden=True),
    LazyCommand("topics", "topics:topics", "Create the topics that are missing, and tell what differs."),
    LazyCommand(
        "convert", "convert:convert", "Convert FILES of other formats to traces, one JSON trace a line."
    ),
    LazyCommand("publish", "publish:publish", "Publish FILES, one JSON trace a line, to the raw topic."),
    LazyCommand("score", "score:score", "Score FILES, one JSON trace a line, without a broker."),
    LazyCommand("audit", "audit:audit", "Check that nothing is missing and nothing differs."),
    LazyCommand("config", "config:config", "Print the effective settings as TOML, without secrets."),
    LazyCommand("licenses", "licenses:list_licenses", "List the licences of what is installed here."),
    LazyCommand(
        "dead-letters", "dead_letters:dead_letters", "List, show and replay what could not be scored."
    ),
    LazyCommand("policy", "policies:policy", "Check, compare, tune, rescore and evaluate policies."),
    LazyCommand("traces", "policies:traces", "List scored traces, and explain the score of one."),
    LazyCommand("demo", "demo:demo", "Show the worker on 154 real traces and a real broker."),
)


class _Group(click.Group):
    """Imports the command that is invoked, and prints what a WorkerError says, instead of a traceback."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WorkerError as error:
            told = click.ClickException(str(error))
            told.exit_code = error.exit_status
            raise told from error


@click.group(cls=_Group, commands=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="knowledgepulse-worker")
def main() -> None:
    """Score AI agents' reasoning traces from Kafka, and route them by quality.

    New here? `kp-worker demo` shows it at work on real traces.
    """
    for number in stop_signals():
        signal.signal(number, _exit_on_signal)
    leave_out_attempts()


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does, so that everything that was opened is closed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
