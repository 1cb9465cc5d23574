"""``kp-worker work``: the child process of ``kp-worker run``."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import click
import msgspec

from knowledgepulse_worker.errors import EXPECTED
from knowledgepulse_worker.logs import configure, errors_logged
from knowledgepulse_worker.process.heartbeat import PipeWriter
from knowledgepulse_worker.process.quarantine import Caution
from knowledgepulse_worker.settings import load_settings
from knowledgepulse_worker.stream.worker import run_worker
from knowledgepulse_worker.terminal.config_option import config_option

_MAX_ERROR = 500
"""The most characters of an error that the parent process is told."""


@click.command()
@config_option
@click.option("--heartbeat", type=int, required=True, help="A pipe to the parent process.")
@click.option("--caution", required=True, help="What the parent process knows from earlier deaths, as JSON.")
@click.option("--history", type=int, required=True, help="The file of this parent's recent events.")
@click.option("--instance", required=True, help="What the processes of this parent alone are called.")
@click.option("--socket", type=int, required=True, help="The socket that hands over connections for pages.")
def work(config: Path | None, heartbeat: int, caution: str, history: int, instance: str, socket: int) -> None:
    """Run as the child process of `kp-worker run`."""
    settings = load_settings(config)
    configure(settings.log)
    status: Any = 0
    try:
        with errors_logged():
            known = msgspec.json.decode(caution, type=Caution)
            pipe = PipeWriter(heartbeat)
            try:
                run_worker(settings, config, pipe, known, history, instance, socket)
            except Exception as error:
                pipe.send({"error": _told(error)})  # what the status page says until the next start
                raise
    except SystemExit as end:
        status = end.code
    # Exit without waiting for other threads: a hung embedder would keep the process alive forever.
    logging.shutdown()
    os._exit(status)


def _told(error: Exception) -> str:
    """Return an error in a line; only expected errors are known to quote no trace."""
    if not isinstance(error, EXPECTED):
        return f"an unexpected error, {type(error).__name__}; see the log"
    text = " ".join(str(error).split())
    return text if len(text) <= _MAX_ERROR else f"{text[:_MAX_ERROR]}…"
