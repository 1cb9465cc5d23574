"""Score lines without a broker, using the stream's decoder and scorer."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import count

import msgspec

from knowledgepulse_kafka.partitioner import partition_of
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_schemas.trace import parse_date_time
from knowledgepulse_worker.embedding import Embedder
from knowledgepulse_worker.policy import Reading
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.records.decode_content import content_of
from knowledgepulse_worker.scoring import (
    Content,
    Counts,
    EmbedFunction,
    Score,
    ScoredRecord,
    Scorer,
    VectorCache,
    count_trace,
)
from knowledgepulse_worker.settings import EmbeddingSettings, Settings
from knowledgepulse_worker.tools.common.record_key import KeyBy, key_of


@dataclass(frozen=True)
class OfflineScore:
    """A trace, its score, the content by which a person can judge it, and its partition's number."""

    trace: ReasoningTrace
    score: Score
    content: Content
    counts: Counts
    partition: int = 0

    def record(self, source: str, embedder: str | None = None) -> ScoredRecord:
        """Return the score with what people and policies need of the trace, but not the whole trace."""
        return ScoredRecord.of(source, self.trace, self.score, embedder, self.content, self.counts)

    def to_json(self, embedder: str, policy: str | None = None, value: bytes = b"") -> str:
        """Return a line of JSON with the id, the score, and the members that policies and people need.

        Args:
            embedder: see :func:`embedder_name`.
            policy: the digest of the policy; if given, the line ends with it and the trace.
            value: the trace's JSON.
        """
        line = {
            "id": self.trace.id,
            **self.score.as_dict(),
            "decision": self.score.decision,
            "task_domain": self.trace.metadata.task_domain,
            "visibility": self.trace.metadata.visibility,
            "privacy_level": self.trace.metadata.privacy_level,
            "success": self.trace.metadata.success,
            "confidence": self.trace.outcome.confidence,
            "embedder": embedder,
            "content": asdict(self.content),
            "counts": msgspec.to_builtins(self.counts),
            "agent_id": self.trace.metadata.agent_id,
            "partition": self.partition,
        }
        if policy is None:
            return json.dumps(line)
        return f'{json.dumps(line | {"policy": policy})[:-1]}, "trace": {value.decode()}}}'


def embedder_name(settings: EmbeddingSettings) -> str:
    """Describe the embedder of novelty: the backend, its model unless it is the default, and its input."""
    if settings.backend == "none":
        return settings.backend
    backend = f"{settings.backend} {settings.model}" if settings.model else settings.backend
    name = f"{backend}, text {settings.trace_text}"
    return f"{name}, prefix {json.dumps(settings.prefix)}" if settings.prefix else name


def make_scorer(settings: Settings, embedder: Embedder | None) -> Scorer:
    """Return a scorer with an empty cache."""
    cache = VectorCache(settings.cache.max_elements, settings.cache.dimensions, settings.cache.ttl)
    embed: EmbedFunction | None = None if embedder is None else lambda text: embedder.embed([text]).vectors[0]
    return Scorer(embed, settings.policy, cache, settings.embedding.trace_text)


class Partitions:
    """Scorers of a keyed topic, one for each partition, as a producer would fill it.

    Args:
        total: the number of partitions.
        key_by: the field of the traces that is the key.
        make: returns a scorer with an empty cache, which takes memory, for a partition's first line.
    """

    def __init__(self, total: int, key_by: KeyBy, make: Callable[[], Scorer]) -> None:
        self._total, self._key_by = total, key_by
        self._scorers: defaultdict[int, Scorer] = defaultdict(make)
        self._without_key = count()

    def score(self, line: bytes, max_bytes: int) -> OfflineScore:
        """Score a line against the lines before it in its partition; see :func:`score_line`."""
        partition = self.next_partition(line)
        return replace(score_line(line, self._scorers[partition], max_bytes), partition=partition)

    def next_partition(self, line: bytes) -> int:
        """Return the partition to which a line goes; lines without a key take turns."""
        key = key_of(line, self._key_by) if self._total > 1 else b""
        return next(self._without_key) % self._total if key is None else partition_of(key, self._total)


def score_line(line: bytes, scorer: Scorer, max_bytes: int) -> OfflineScore:
    """Score a line against the lines before it.

    A cache's ttl applies to the traces' ``created_at``, as lines have no record timestamp.

    Raises:
        InvalidRecordError: the line is not a valid trace.
    """
    value = line.strip()
    trace = decode_trace(value, max_bytes)
    created_at = parse_date_time(trace.metadata.created_at).timestamp()
    score = scorer.evaluate(trace, at=created_at)
    return OfflineScore(trace, score, content_of(value), count_trace(trace, Reading.WORDS))
