"""Write the scores of scored records into a backend, each in the place of an earlier one of its run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.records.output_headers import trace_of
from knowledgepulse_worker.tools.backends.backend import (
    FAULTS,
    SCORES_TOGETHER,
    Backend,
    RunScore,
    batches,
    fault_text,
)
from knowledgepulse_worker.tools.backends.run_scores import read_scored, run_score
from knowledgepulse_worker.tools.common.retries import sleep_until_stopped
from knowledgepulse_worker.tools.common.scored_records import read_scored_record
from knowledgepulse_worker.tools.evaluations.evaluation_metrics import EvaluationMetrics

logger = logging.getLogger(__name__)


async def wait_for_backend(
    metrics: EvaluationMetrics, stop: asyncio.Event, seconds: float, problem: Exception
) -> None:
    """Wait for a backend that is away, which the metrics show; raise a StoppedError once told to stop."""
    metrics.backend_up.set(0)
    metrics.retries.inc()
    logger.warning("the backend does not take scores: %s; trying again in %.0f s", str(problem), seconds)
    await sleep_until_stopped(seconds, stop)


async def write_scores(
    backend: Backend, metrics: EvaluationMetrics, records: Sequence[Record]
) -> Sequence[OutputRecord]:
    """Write the scores of records, until the backend has taken or refused each; nothing is to be published.

    Raises:
        SecurityError: the backend refuses the key.
        StoppedError: the command was told to stop.
    """
    scores: dict[str, RunScore] = {}
    for record in records:
        made = _score_of(backend, record, metrics)
        if made is not None:
            scores[made.trace_id] = made  # a later score of the same trace replaces it
    for batch in batches([*scores.values()], SCORES_TOGETHER):
        refusals = await backend.send(batch)
        metrics.backend_up.set(1)
        metrics.results["sent"].inc(len(batch) - len(refusals))
        for refusal in refusals:
            metrics.results["failed" if refusal.is_fault else "refused"].inc()
            logger.warning(
                "%s: score of run %s %s: %s",
                printable(refusal.score.trace_id), printable(refusal.score.run),
                "could not be sent" if refusal.is_fault else "refused", refusal.reason,
            )  # fmt: skip
    return ()


def _score_of(backend: Backend, record: Record, metrics: EvaluationMetrics) -> RunScore | None:
    """Return the score of a record for its run; count and name a record without one."""
    scored = read_scored_record(record)
    if scored is None:
        metrics.skip_foreign(record)
        return None
    details = {"policy": scored.policy, "source": scored.source}
    try:
        made = run_score(backend, read_scored(trace_of(record)), scored.score, details)
    except (InvalidRecordError, *FAULTS) as fault:
        metrics.results["failed"].inc()
        logger.warning("%s: no score could be made: %s", printable(scored.source), fault_text(fault))
        return None
    if made is None:
        metrics.results["without_span"].inc()
    return made
