"""``kp-worker run``."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import click

from knowledgepulse_worker.extras import require_worker
from knowledgepulse_worker.logs import configure, errors_logged
from knowledgepulse_worker.process.supervisor import Supervisor
from knowledgepulse_worker.settings import doubts_about, load_settings
from knowledgepulse_worker.terminal.config_option import config_option

logger = logging.getLogger(__name__)

PROCESS = (sys.executable, "-m", "knowledgepulse_worker.cli.entry", "work")
"""The child process of `kp-worker run`."""


@click.command()
@config_option
def run(config: Path | None) -> None:
    """Run a worker until SIGTERM, SIGHUP or Ctrl-C.

    On a signal, the worker commits what it has scored (for at most `limits.drain` seconds), leaves the rest
    to the next owner, and leaves its group. Run at most as many workers as the raw topic has partitions;
    Kafka assigns the partitions to them.

    If no broker can be reached, the worker waits. If its child process exits or hangs, the worker restarts
    it. If the configuration is invalid, the worker exits with status 78.
    """
    require_worker()
    settings = load_settings(config)
    configure(settings.log)
    for doubt in doubts_about(settings):
        logger.warning("%s", doubt)
    command = [*PROCESS, *(() if config is None else ("--config", str(config)))]

    async def supervise() -> int:
        return await Supervisor(settings, command).run()

    with errors_logged():
        status = asyncio.run(supervise())
    sys.exit(status)
