"""The vectors of scored records, from the ledger or from their texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from knowledgepulse_worker.embedding import Embedder
from knowledgepulse_worker.records.ledger_records import Entry, decode_vector
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.audit.novelty_audit import CachedRecord, VectorOrigin

REPEATABILITY = {"float32": 1e-6, "bfloat16": 0.005, "int16": 0.002}
"""Tolerance of a novelty recomputed from texts, by the precision of the embedding.

The largest changes against float32 that were seen are 0.0036 and 0.0009 in 500 texts. bfloat16's 8 bits are
the cause: to round nothing but the factors of products to them changes a novelty as much as OpenVINO does.
"""

_BATCH = 32


class VectorSource:
    """Look up or compute the vectors of a partition's records.

    ``oldest``: the oldest remaining entry of a scored record in the changelog.
    """

    def __init__(
        self,
        settings: Settings,
        oldest: Entry | None,
        embedder: Callable[[], Embedder | None],
    ) -> None:
        self._dimensions = settings.cache.dimensions
        self._embedder = embedder
        self._precisions = set() if oldest is None else {oldest.precision}
        # Entries leave the changelog in offset order. A record without an entry is therefore older than those
        # with one, and is assumed to have the model of the oldest entry.
        self.oldest_model = oldest.model if oldest is not None else None
        if oldest is None and settings.embedding.backend == "none":
            self.oldest_model = ""

    @property
    def tolerance(self) -> float:
        """Accepted difference of a novelty that was recomputed from texts.

        It is the largest of the precisions of the embedder and of the partition's entries.
        """
        worst = max(REPEATABILITY.values())
        return max(REPEATABILITY.get(precision, worst) for precision in self._precisions)

    def recall(self, entry: Entry | None, trace_id: str | None, timestamp_ms: int) -> CachedRecord:
        """Return a scored record with the vector in its ledger entry, if there is one."""
        model = self.oldest_model if entry is None else entry.model
        vector = None if entry is None or entry.vector is None else decode_vector(entry.vector)
        if entry is not None:
            self._precisions.add(entry.precision)
        if vector is not None and vector.shape != (self._dimensions,):
            vector = None
        origin: VectorOrigin = "no_vector" if vector is None and model != "" else "ledger"
        return CachedRecord(trace_id, timestamp_ms / 1000, model, vector, origin)

    def complete(self, missing: Sequence[tuple[CachedRecord, str | None]]) -> None:
        """Embed the texts of records without a vector, unless they are from another model."""
        embedder = self._embedder() if missing else None
        if embedder is None:
            return
        self._precisions.add(embedder.precision)
        for record, _ in missing:
            if record.model not in (None, embedder.identity):
                record.origin = "other_model"
        available = [
            (record, text) for record, text in missing if record.origin == "no_vector" and text is not None
        ]
        for start in range(0, len(available), _BATCH):
            batch = available[start : start + _BATCH]
            vectors = embedder.embed([text for _, text in batch]).vectors
            for (record, _), vector in zip(batch, vectors, strict=True):
                record.vector, record.origin = vector, "text"
