"""The commands ``kp-worker contributions``."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

import click

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.logs import configure, errors_logged
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.process.signals import until_stopped
from knowledgepulse_worker.settings import load_settings
from knowledgepulse_worker.terminal.command_group import CommandGroup
from knowledgepulse_worker.terminal.config_option import config_option
from knowledgepulse_worker.tools.terminal.console import errors

logger = logging.getLogger(__name__)


@click.group(cls=CommandGroup)
def contributions() -> None:
    """Send contributed traces to a KnowledgePulse registry, and delete them there."""


@contributions.command()
@config_option
def send(config: Path | None) -> None:
    """Send contributed traces to the registry until SIGTERM, SIGHUP or Ctrl-C.

    Reads the topic `topics.redacted`, or `contribute` if that is not set. The first run starts at the
    beginning of the topic. The result for each trace is written to the topic `<kafka.group>-contributions`.
    If the registry does not answer, the command tries again. If the registry refuses the API key, the command
    ends without losing the trace.

    Run one process; starting a second one stops the first.
    """
    settings = load_settings(config)
    with extra("worker"):
        from knowledgepulse_curator.contributions.send_contributions import run_sender  # noqa: PLC0415 - `--help` needs no extra

    configure(settings.log)
    with errors_logged():
        counts = asyncio.run(until_stopped(partial(run_sender, settings)))
    logger.info("%s", ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "nothing was sent")


@contributions.command()
@click.argument("trace_ids", nargs=-1, required=True, metavar="ID...")
@config_option
def delete(trace_ids: tuple[str, ...], config: Path | None) -> None:
    """Delete traces from the registry by their IDs.

    Prints a line for each trace, and records the deletions in the topic `<kafka.group>-contributions`. This
    does not prevent traces that were not sent yet from being sent.
    """
    settings = load_settings(config)
    with extra("worker"):
        from knowledgepulse_curator.contributions.delete_contributions import delete_contributions  # noqa: PLC0415 - as above

    async def run() -> int:
        count = 0
        async for trace_id, was_there in delete_contributions(settings, trace_ids):
            click.echo(f"{printable(trace_id)}: {'deleted' if was_there else 'not in the registry'}")
            count += was_there
        return count

    errors.print(f"{asyncio.run(run()):,} deleted")
