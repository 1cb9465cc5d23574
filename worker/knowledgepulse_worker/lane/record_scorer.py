"""Score a record against the state of its partition and build its ledger entry."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.embedding.base import Embedder
from knowledgepulse_worker.embedding.batcher import EmbeddedText
from knowledgepulse_worker.lane.stages import DecodedRecord, Scored, TakenRecord, bounded_failure
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import PolicyInForce, Reading
from knowledgepulse_worker.records.ledger_records import Entry, Failure, encode_vector, entry_version
from knowledgepulse_worker.records.score_header import encode_score
from knowledgepulse_worker.scoring import (
    PartitionState,
    Score,
    bounded_id,
    count_trace,
    score_and_add,
    word_buckets,
)

logger = logging.getLogger(__name__)


class RecordScorer:
    """Scores a partition's traces in order.

    Args:
        state: what the partition's next trace is scored against, to which every scored trace is added.
        embedder: the embedder of the vectors; None without one.
        metrics: observes every score.
    """

    def __init__(self, state: PartitionState, embedder: Embedder | None, metrics: Metrics) -> None:
        self._state = state
        self._embedder = embedder
        self._metrics = metrics

    def expect(self, ready: Sequence[TakenRecord]) -> None:
        """Compute at once what the next records to score are compared with."""
        vectors = [
            taken.embedding.result().vector
            for taken in ready
            if isinstance(taken, DecodedRecord) and taken.embedding is not None
        ]
        if len(vectors) > 1:
            self._state.cache.expect(vectors)

    def score(self, taken: DecodedRecord, in_force: PolicyInForce) -> Scored:
        """Score a trace whose embedding is there.

        An unexpected error turns only this record into a dead letter.
        """
        record, trace, policy = taken.record, taken.decoded.scorable, in_force.policy
        embedded = None if taken.embedding is None else taken.embedding.result()
        vector = None if embedded is None else embedded.vector
        started = time.monotonic()
        counts = None
        try:
            if reading := in_force.reading:
                buckets, whole = None if embedded is None else embedded.buckets, taken.trace
                if reading is Reading.WORDS and buckets is None:
                    buckets = word_buckets(whole)
                counts = count_trace(whole, buckets=buckets)
            at = record.timestamp_ms / 1000
            score = score_and_add(trace, vector, self._state, policy, at=at, counts=counts)
        except Exception as error:
            logger.exception("%s: scoring failed", record.source)
            return failed(taken, bounded_failure("scoring_failed", error))
        self._observe(score, trace.id, embedded, started, taken.taken_at)
        entry = Entry(
            record.offset,
            record.timestamp_ms,
            trace_id=bounded_id(trace.id),
            decision=score.decision,
            score=encode_score(score),
            policy=policy.digest,
            vector=None if vector is None else encode_vector(vector),
            model="" if self._embedder is None else self._embedder.identity,
            precision="" if self._embedder is None else self._embedder.precision,
            version=entry_version(score),
            topic_id=record.topic_id,
        )
        added = self._state.scores.added
        return Scored(record, taken.taken_at, entry, trace, None, score, added, embedded, counts)

    def _observe(
        self, score: Score, trace_id: str, embedded: EmbeddedText | None, started: float, taken_at: float
    ) -> None:
        now, traces = time.monotonic(), self._metrics.traces
        traces.stage("score", now - started)
        if embedded is not None:
            traces.admitted(embedded.admitted - taken_at)
            traces.stage("queue", embedded.started - embedded.admitted)
            traces.stage("embed", embedded.finished - embedded.started)
            if embedded.letters is not None:
                self._metrics.embedding.letters(score.domain, *embedded.letters)
                self._metrics.recent.letters[score.domain].append(embedded.letters)
        seconds = now - (started if embedded is None else embedded.admitted)
        traces.scored(trace_id, seconds)
        self._metrics.recent.scored(seconds)


def failed(taken: TakenRecord, failure: Failure) -> Scored:
    """Return the outcome of a record that could not be scored."""
    trace = taken.decoded.scorable if isinstance(taken, DecodedRecord) else None
    return Scored(taken.record, taken.taken_at, failed_entry(taken.record, failure), trace, taken.read.form)


def failed_entry(record: RawRecord, failure: Failure) -> Entry:
    """Return the entry of a record that could not be scored."""
    return Entry(record.offset, record.timestamp_ms, failure=failure, topic_id=record.topic_id)
