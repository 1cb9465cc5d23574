"""What becomes of a record: its score against the partition's cache, and the ledger entry that says so."""

from __future__ import annotations

import logging
import time

import msgspec

from schemas import ReasoningTrace
from worker.embedding.base import Embedder
from worker.embedding.batcher import Embedded
from worker.observe.metrics import Metrics
from worker.policy import PolicyInForce
from worker.scoring import Score, Scorer, VectorCache
from worker.stream.ledger import Entry, Failure, ScoreHeader, encode_vector
from worker.stream.records import RawRecord

logger = logging.getLogger(__name__)

MAX_MESSAGE = 1000
"""Characters of an error's message that a dead letter tells."""


class Judge:
    """Scores a partition's traces, one after another, and writes their entries.

    Args:
        in_force: weights and thresholds, as they are when a trace is scored.
        cache: the partition's vectors; each scored trace's is added.
        embedder: whose vectors these are; None without one.
        metrics: told of each score.
    """

    def __init__(
        self, in_force: PolicyInForce, cache: VectorCache, embedder: Embedder | None, metrics: Metrics
    ) -> None:
        self._in_force = in_force
        self._scorer = Scorer(policy=in_force.policy, cache=cache)
        self._embedder = embedder
        self._metrics = metrics

    def scored(
        self, record: RawRecord, trace: ReasoningTrace, embedded: Embedded | None, taken: float
    ) -> Entry:
        """Return the entry of a trace; an unexpected error makes that one record a dead letter.

        Args:
            record: what the trace was read from.
            trace: what is scored.
            embedded: its vector; None without an embedder.
            taken: when the lane took the record (``time.monotonic``).
        """
        vector = None if embedded is None else embedded.vector
        started = time.monotonic()
        self._scorer.policy = policy = self._in_force.policy
        try:
            score = self._scorer.evaluate_embedded(trace, vector, at=record.timestamp_ms / 1000)
        except Exception as error:
            logger.exception("%s: scoring failed", record.source)
            return failed(record, Failure("scoring_failed", type(error).__name__, str(error)[:MAX_MESSAGE]))
        self._observe(score, trace.id, embedded, started, taken)
        return Entry(
            record.offset,
            record.timestamp_ms,
            record.fingerprint,
            trace_id=trace.id,
            decision=score.decision,
            score=msgspec.json.encode(ScoreHeader.of(score)),
            policy=policy.digest,
            vector=None if vector is None else encode_vector(vector),
            model="" if self._embedder is None else self._embedder.identity,
            precision="" if self._embedder is None else self._embedder.precision,
        )

    def _observe(
        self, score: Score, trace_id: str, embedded: Embedded | None, started: float, taken: float
    ) -> None:
        now = time.monotonic()
        self._metrics.stage("score", now - started)
        if embedded is None:
            self._metrics.scored(score, trace_id, now - started)
            return
        self._metrics.admitted(embedded.admitted - taken)
        self._metrics.stage("queue", embedded.started - embedded.admitted)
        self._metrics.stage("embed", embedded.finished - embedded.started)
        self._metrics.scored(score, trace_id, now - embedded.admitted)


def failed(record: RawRecord, failure: Failure) -> Entry:
    """Return the entry of a record that could not be scored."""
    return Entry(record.offset, record.timestamp_ms, record.fingerprint, failure=failure)
