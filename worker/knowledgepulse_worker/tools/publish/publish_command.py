"""``kp-worker publish``, without what converts and publishes: a hook first brings its session to safety."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knowledgepulse_worker.terminal.config_option import config_option
from knowledgepulse_worker.terminal.lazy_command import imported
from knowledgepulse_worker.terminal.printable import printable_line
from knowledgepulse_worker.tools.common.record_key import KeyBy
from knowledgepulse_worker.tools.convert.conversion_options import (
    FORMAT,
    conversion_options,
    refuse_conversion,
)
from knowledgepulse_worker.tools.publish.hook import go_on_apart, session_of
from knowledgepulse_worker.tools.publish.spool import NotSpooledError, Spool
from knowledgepulse_worker.tools.terminal.arguments import files_argument, has_runs
from knowledgepulse_worker.tools.terminal.options import key_option

if TYPE_CHECKING:
    from knowledgepulse_worker.tools.publish.publication import Publication  # a hook is quick


@click.command()
@files_argument
@config_option
@click.option("--from", "format_name", type=FORMAT, help="Convert the files from this format first.")
@conversion_options
@key_option("Record key. Traces with the same key are compared with each other.")
@click.option(
    "--skip",
    type=click.IntRange(0, sys.maxsize),
    default=0,
    metavar="N",
    help="Skip the first N records, which an earlier run reported as confirmed.",
)
@click.option(
    "--spool",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder where traces wait if no broker can be reached; the next run publishes them.",
)
@click.option(
    "--hook",
    is_flag=True,
    help="FILES contain the input that Claude Code or Codex pass to a hook; publish the sessions that it "
    "names.",
)
@click.option(
    "--yes", is_flag=True, help="Publish the runs of a folder or of an agent's database without asking."
)
@click.option("--dry-run", is_flag=True, help="Print what would be published, without a broker.")
def publish(
    files: tuple[str, ...],
    config: Path | None,
    key: KeyBy,
    format_name: str | None,
    skip: int,
    spool: Path | None,
    hook: bool,
    yes: bool,
    dry_run: bool,
    conversion: dict[str, Any],
) -> None:
    """Publish FILES, one JSON trace per line, to the raw topic.

    Lines are published unchanged; invalid traces will become dead letters. `-` reads standard input. With
    `--from`, the files are first converted, as `kp-worker convert` does, and so are all files if one is a
    folder or an agent's database. Of these, the command shows what it would publish, and asks.

    If no broker can be reached, the command waits; retries publish nothing twice. If it stops early, it
    prints the number of confirmed records, and `--skip` continues after them. With `--spool`, it waits at
    most 15 seconds for the brokers, and a trace may be published twice after a crash or an outage; if the
    folder cannot be written, it publishes all the same. With `--hook`, it prints only errors, and with both,
    a process of its own publishes the sessions, even if the agent ends the hook.
    """
    if hook:
        files = tuple(map(session_of, files))
    elif format_name is None and has_runs(files):
        format_name = "auto"
    elif format_name is None:
        refuse_conversion(conversion, "the traces are published unchanged")
    if spool is not None and (skip or dry_run):
        raise click.UsageError("--spool goes with neither --skip nor --dry-run")
    folder = Spool(spool) if spool else None
    unkept = _keep(files, folder) if hook and folder else files
    made: type[Publication] = imported("knowledgepulse_worker.tools.publish.publication:Publication")
    asks = not yes and not hook and has_runs(files)
    publication = made.of(config, key, format_name, conversion, is_hook=hook, asks=asks)
    if folder:
        publication.publish_spooled(unkept, folder)
    elif dry_run:
        publication.rehearse(files, skip)
    else:
        publication.publish(files, skip)
    sys.exit(publication.exit_status)


def _keep(sessions: tuple[str, ...], spool: Spool) -> tuple[str, ...]:
    """Let sessions wait in a spool, and go on apart from the agent; return those that have no place there."""
    for number, session in enumerate(sessions):
        try:
            spool.keep(Path(session))
        except NotSpooledError as error:
            click.echo(printable_line(str(error)), err=True)
            return sessions[number:]
    go_on_apart()
    return ()
