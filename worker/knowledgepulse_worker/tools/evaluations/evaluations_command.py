"""``kp-worker evaluations``."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

import click

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.logs import configure, errors_logged
from knowledgepulse_worker.process.signals import until_stopped
from knowledgepulse_worker.settings import load_settings
from knowledgepulse_worker.terminal.options import config_option

logger = logging.getLogger(__name__)


@click.command()
@config_option
def evaluations(config: Path | None) -> None:
    """Send each score back to its agent's span until SIGTERM, SIGHUP or Ctrl-C.

    Reads `contribute` and `rejected`; the first run starts at their beginning. For each trace, writes a
    `gen_ai.evaluation.result` event to `topics.evaluations`, as OTLP JSON for the Kafka receiver of the
    OpenTelemetry Collector. Traces without `metadata.span_context` are skipped and counted; the traces that
    were converted from spans have it.

    Consumers of committed records get each score exactly once, even after a crash. The Collector's receiver
    reads uncommitted records, too, and may get one twice. Run one process; starting a second one stops the
    first.
    """
    settings = load_settings(config)
    with extra("worker"):
        from knowledgepulse_worker.tools.evaluations.run_evaluations import run_evaluations  # noqa: PLC0415 - `--help` needs no extra

    configure(settings.log)
    with errors_logged():
        counts = asyncio.run(until_stopped(partial(run_evaluations, settings)))
    logger.info(
        "%d scores sent; skipped %d traces without a span, %d records not written by a worker",
        *counts.values(),
    )
