"""The ``kp-worker`` command: a table of subcommands, each imported when it is invoked."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import warnings
from contextlib import suppress
from importlib.util import find_spec
from types import FrameType
from typing import Any

import click

from knowledgepulse_worker.cli.examples import EXAMPLES, OTHER_WORDS, TASKS
from knowledgepulse_worker.errors import EXPECTED, MissingExtraError, exit_status_of
from knowledgepulse_worker.logs import leave_out_attempts
from knowledgepulse_worker.process.signals import stop_signals
from knowledgepulse_worker.terminal.command_group import CommandGroup
from knowledgepulse_worker.terminal.lazy_command import LazyCommand
from knowledgepulse_worker.terminal.printable import printable_lines

_COMMANDS = (
    LazyCommand(
        "run", "knowledgepulse_worker.cli.run_command:run", "Run a worker until SIGTERM, SIGHUP or Ctrl-C."
    ),
    LazyCommand(
        "work",
        "knowledgepulse_worker.cli.work_command:work",
        "Run as the child process of `kp-worker run`.",
        hidden=True,
    ),
    LazyCommand(
        "check",
        "knowledgepulse_worker.cli.check_command:check",
        "Check that a worker could start, without starting one or, but for `--try`, changing anything.",
    ),
    LazyCommand(
        "topics",
        "knowledgepulse_worker.cli.topics_command:topics",
        "Create missing topics, and report existing ones with other settings.",
    ),
    LazyCommand(
        "convert",
        "knowledgepulse_worker.tools.convert.convert_command:convert",
        "Convert FILES from other formats to traces, one JSON object per line.",
    ),
    LazyCommand(
        "pull",
        "knowledgepulse_worker.tools.backends.pull_command:pull",
        "Pull the runs of BACKEND at URL, and convert them to traces, one JSON object per line.",
    ),
    LazyCommand(
        "publish",
        "knowledgepulse_worker.tools.publish.publish_command:publish",
        "Publish FILES, one JSON trace per line, to the raw topic.",
    ),
    LazyCommand(
        "assemble",
        "knowledgepulse_worker.tools.assemble.assemble_command:assemble",
        "Assemble agent runs from OpenTelemetry spans in Kafka.",
    ),
    LazyCommand(
        "score",
        "knowledgepulse_worker.tools.score.score_command:score",
        "Score FILES, one JSON trace per line, or the sessions that agents keep here, without a broker.",
    ),
    LazyCommand(
        "score-runs",
        "knowledgepulse_worker.tools.backends.score_runs_command:score_runs",
        "Score the runs of BACKEND at URL, without a broker.",
    ),
    LazyCommand(
        "audit",
        "knowledgepulse_worker.tools.audit.audit_command:audit",
        "Check that every record has its output and that every output is right.",
    ),
    LazyCommand(
        "export",
        "knowledgepulse_curator.export.export_command:export",
        "Export contributed traces to a dataset in FOLDER, starting where the last export ended.",
    ),
    LazyCommand(
        "config",
        "knowledgepulse_worker.cli.config_command:config",
        "Print the effective settings as TOML, without secrets.",
    ),
    LazyCommand(
        "dead-letters",
        "knowledgepulse_worker.tools.dead_letters.dead_letters_command:dead_letters",
        "List, show and replay dead letters.",
    ),
    LazyCommand(
        "policy",
        "knowledgepulse_worker.tools.policies.policy_command:policy",
        "Check, compare, tune, fit, rescore and evaluate policies.",
    ),
    LazyCommand(
        "traces",
        "knowledgepulse_worker.tools.traces.traces_command:traces",
        "List scored traces, and explain the score of one.",
    ),
    LazyCommand(
        "evaluations",
        "knowledgepulse_worker.tools.evaluations.evaluations_command:evaluations",
        "Send each score back to its agent's span until SIGTERM, SIGHUP or Ctrl-C.",
    ),
    LazyCommand(
        "contributions",
        "knowledgepulse_curator.contributions.contributions_command:contributions",
        "Send contributed traces to a KnowledgePulse registry, and delete them there.",
    ),
    LazyCommand(
        "sample",
        "knowledgepulse_worker.tools.sample.sample_command:sample",
        "Print a sample file to try the other commands with.",
    ),
    LazyCommand(
        "demo",
        "knowledgepulse_worker.tools.demo.demo_command:demo",
        "Demonstrate the worker on 154 real traces and a real broker.",
    ),
)


def _show_examples(name: str, command: click.Command) -> None:
    if example := EXAMPLES.get(name):
        command.epilog = f"\b\nExample:\n  {example}"
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _show_examples(f"{name} {each.name}", each)


_WARN_THEMSELVES = {"work", "publish"}
"""Commands that others start: a parent has warned, and an agent waits for a hook."""


class _Group(CommandGroup):
    """Import the invoked command, and print the message of an expected error instead of a traceback."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command; an error of standard output is one line, and the exit status 1."""
        for number in stop_signals():  # before the imports: a container's first process ignores others
            signal.signal(number, _exit_on_signal)
        # NumPy's OpenBLAS reads this when it is imported. A look-up in a novelty cache is too small for more
        # threads: where the cores are busy, they wait for each other, and the event loop for them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        _require_streams()
        try:
            try:
                return super().main(*args, **extra)
            finally:
                sys.stdout.flush()
        except OSError as error:
            # Otherwise Python would write the rest at exit, and fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if error.errno != errno.EPIPE:
                name = error.filename or "standard output"
                click.echo(f"Error: {name}: {error.strerror or error}", err=True)
            sys.exit(1)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the program does, and where the demo's extra is installed, recommend the demo."""
        super().format_help_text(ctx, formatter)
        if find_spec("testcontainers"):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text("New here? Try `kp-worker demo`.")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by the tasks that people have."""
        for task, names in TASKS.items():
            with formatter.section(task):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(100)) for name in names.split()]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            if args[1:]:
                self._find_elsewhere(ctx, " ".join(args[:2]), args[1])
            self._find_elsewhere(ctx, args[0], args[0])
        name, command, rest = super().resolve_command(ctx, args)
        if name and command:
            _show_examples(name, command)
        return name, command, rest

    def _commands_with(self, option: str) -> list[str]:
        return []  # of all commands: to import them takes too long

    def _find_elsewhere(self, ctx: click.Context, given: str, name: str) -> None:
        """Fail with the option or the groups' commands that have a name, if there are any."""
        places = [f"--{name}"] if any(f"--{name}" in each.opts for each in self.get_params(ctx)) else []
        for lazy in self.commands.values():
            if isinstance(lazy, LazyCommand) and not lazy.hidden:
                with suppress(MissingExtraError):
                    command = lazy.load()
                    if isinstance(command, click.Group) and name in command.commands:
                        places.append(f"{lazy.name} {name}")
        if not places and name in OTHER_WORDS:
            places.append(OTHER_WORDS[name])
        if places:
            ctx.fail(f"No such command {given!r}. Did you mean {' or '.join(map(repr, places))}?")

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # Ctrl-C cut the work off; commands that end with it return
            click.echo(err=True)  # behind the terminal's ^C
            sys.exit(128 + signal.SIGINT)
        except EXPECTED as error:
            exception = click.ClickException(printable_lines(str(error)))
            exception.exit_code = exit_status_of(error)
            raise exception from error


@click.group(
    cls=_Group,
    commands=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(package_name="knowledgepulse-worker")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Score AI agents' reasoning traces from Kafka and route them by quality."""
    leave_out_attempts()
    if ctx.invoked_subcommand not in _WARN_THEMSELVES:
        _warn_of_ignored_variables()


def _require_streams() -> None:
    """Make standard input and output usable: a shell may have closed them, or a locale lack characters."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - as long as the process
    if sys.stdout is None:
        # Nothing would be printed, and the next file that is opened would take its place.
        click.echo("Error: standard output is closed; redirect it, for example to /dev/null", err=True)
        sys.exit(1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _warn_of_ignored_variables() -> None:
    """Name the variables that begin as settings do and are none, such as those of a Kubernetes Service."""
    if any(name.upper().startswith("KP_") for name in os.environ):
        from knowledgepulse_worker.settings import warning_of_ignored_variables  # noqa: PLC0415 - `--help` need not wait for pydantic

        if warning := warning_of_ignored_variables():
            click.echo(warning, err=True)


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    """Exit in the same way as on Ctrl-C, so that resources are closed."""
    # Python would warn of a coroutine that was called when the signal came, and not yet awaited.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
