"""``kp-worker evaluations``."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from worker.evaluations.run import log_counts, run_evaluations
from worker.logs import configure, errors_logged
from worker.options import config_option
from worker.settings import Settings, load_settings
from worker.signals import stop_signals


@click.command()
@config_option
def evaluations(config: Path | None) -> None:
    """Send each score back to its agent's span until SIGTERM, SIGHUP or Ctrl-C.

    Reads `contribute` and `rejected`, from their beginning at first, and writes a `gen_ai.evaluation.result`
    event for each trace to `topics.evaluations`, as OTLP JSON for the OpenTelemetry Collector's Kafka
    receiver. Traces without `metadata.span_context`, which converted spans have, are skipped and counted.

    Each score is sent once, also across crashes. Run one process: a second one stops the first.
    """
    settings = load_settings(config)
    configure(settings.log)
    with errors_logged():
        asyncio.run(_evaluations(settings))


async def _evaluations(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (*stop_signals(), signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    log_counts(await run_evaluations(settings, stop))
