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
from knowledgepulse_worker.terminal.config_option import config_option
from knowledgepulse_worker.tools.backends.backend_options import Destination, backend_options, to_option

logger = logging.getLogger(__name__)


@click.command()
@config_option
@to_option("Write the scores not to the topics, but into this backend")
@backend_options
def evaluations(config: Path | None, to: tuple[str, str] | None, project: str, key_file: Path | None) -> None:
    """Send each score back to its agent's span until SIGTERM, SIGHUP or Ctrl-C.

    Reads the topics of scored traces; the first run starts at their beginning. For each trace, writes a
    `gen_ai.evaluation.result` event to `topics.evaluations`, and a span `evaluate`, a child of the agent's
    span, to `topics.evaluation_spans`, as OTLP JSON for the Kafka receiver of the OpenTelemetry Collector.
    Traces without `metadata.span_context` are skipped and counted; the traces that were converted from spans
    have it.

    Consumers of committed records get each score exactly once, even after a crash. The Collector's receiver
    reads uncommitted records, too, and may get one twice. Run one process; starting a second one stops the
    first.

    With `--to`, each score is written to the run that `metadata.pulled_from` or `metadata.span_context`
    names, in the place of an earlier one, so that a score that is sent again is there once. While the backend
    is away, the command waits. `kp-worker pull` says where the backend's key is read from.
    """
    settings = load_settings(config)
    with extra("worker"):
        from knowledgepulse_worker.tools.evaluations.run_evaluations import run_evaluations  # noqa: PLC0415 - `--help` needs no extra

    configure(settings.log)
    with errors_logged():
        destination = None if to is None else Destination(*to, project, key_file)
        counts = asyncio.run(until_stopped(partial(run_evaluations, settings, destination)))
    logger.info(
        "%d scores sent, %d refused, %d failed; skipped %d traces without a span, %d records of others",
        *counts.values(),
    )
