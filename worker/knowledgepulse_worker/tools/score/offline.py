"""Score lines without a broker, using the stream's decoder and scorer."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from knowledgepulse_schemas.trace import parse_date_time
from knowledgepulse_worker.embedding import Embedder
from knowledgepulse_worker.policy import Reading
from knowledgepulse_worker.records.decode import decode_whole
from knowledgepulse_worker.records.decode_content import content_of, sources_of
from knowledgepulse_worker.scoring import EmbedFunction, ScoredRecord, Scorer, VectorCache, count_trace
from knowledgepulse_worker.settings import EmbeddingSettings, Settings
from knowledgepulse_worker.tools.common.record_key import KeyBy, key_of


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

    def score(self, line: bytes, settings: Settings, embedder: str) -> ScoredRecord:
        """Score a line against the lines before it in its partition; see :func:`score_line`."""
        partition = self.next_partition(line)
        scored = score_line(line, self._scorers[partition], settings, embedder=embedder)
        return replace(scored, partition=partition)

    def next_partition(self, line: bytes) -> int:
        """Return the partition to which a line goes; lines without a key take turns."""
        key = key_of(line, self._key_by) if self._total > 1 else b""
        if key is None:
            return next(self._without_key) % self._total
        from knowledgepulse_kafka.partitioner import partition_of  # noqa: PLC0415 - keeps `--help` fast

        return partition_of(key, self._total)


def score_line(
    line: bytes, scorer: Scorer, settings: Settings, source: str = "", *, embedder: str
) -> ScoredRecord:
    """Score a line against the lines before it.

    A cache's ttl applies to the traces' ``created_at``, as lines have no record timestamp.

    Args:
        line: the trace's JSON.
        scorer: scores it.
        settings: the largest value, and how values are read.
        source: the trace's source, if it is known.
        embedder: see :func:`embedder_name`.

    Raises:
        InvalidRecordError: the line is not a valid trace.
    """
    trace, _, _, value = decode_whole(line.strip(), settings.limits.trace_bytes, settings.records.unwrap)
    created_at = parse_date_time(trace.metadata.created_at).timestamp()
    score = scorer.evaluate(trace, at=created_at)
    counts = count_trace(trace, Reading.WORDS)
    told = content_of(value), counts
    judged, assumed = sources_of(value)
    return ScoredRecord.of(
        *(source, trace, score, embedder, *told),
        judged=judged,
        assumed_confidence=assumed,
    )
