"""``kp-worker run``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from worker.logs import configure, errors_logged
from worker.options import config_option
from worker.settings import load_settings
from worker.supervise import Supervisor

PROCESS = (sys.executable, "-m", "worker.cli", "work")
"""What `kp-worker run` keeps running."""


@click.command()
@config_option
def run(config: Path | None) -> None:
    """Run a worker until SIGTERM, SIGHUP or Ctrl-C.

    It then finishes what it sent, commits, and leaves its group. Start as many as the raw topic has
    partitions; Kafka shares them out.

    It waits for a broker that is away, and starts its process again when that ends or hangs. When it cannot
    start as it is configured, it ends with status 78.
    """
    settings = load_settings(config)
    configure(settings.log)
    command = [*PROCESS, *(() if config is None else ("--config", str(config)))]

    async def supervise() -> int:
        return await Supervisor(settings, command).run()

    with errors_logged():
        status = asyncio.run(supervise())
    sys.exit(status)
