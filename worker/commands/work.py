"""``kp-worker work``: the process that ``kp-worker run`` keeps running."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import click

from worker.journal import Journal
from worker.logs import configure, errors_logged
from worker.options import config_option
from worker.settings import load_settings
from worker.stream.run import run_worker


@click.command()
@config_option
@click.option("--heartbeat", type=int, required=True, help="A pipe to the parent process.")
@click.option("--journal", type=int, required=True, help="Memory shared with the parent process.")
@click.option("--socket", required=True, help="The Unix socket on which the parent process asks for pages.")
def work(config: Path | None, heartbeat: int, journal: int, socket: str) -> None:
    """Be the process that `kp-worker run` watches."""
    settings = load_settings(config)
    configure(settings.log)
    status: Any = 0
    try:
        with errors_logged():
            run_worker(settings, config, heartbeat, Journal(journal), socket)
    except SystemExit as end:
        status = end.code
    # At once, whatever other threads do: an embedder that hangs would keep the process for ever.
    logging.shutdown()
    os._exit(status)
