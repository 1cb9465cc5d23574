"""What scored records were embedded with: the ledger's vectors, else those of their texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from worker.audit.novelty import Origin, Remembered
from worker.embedding import Embedder
from worker.lane.ledger import Entry, decode_vector
from worker.settings import Settings

REPEATABILITY = {"float32": 1e-6, "bfloat16": 0.002}
"""How exactly novelty can be computed again from the texts, by the precision of the embedding."""

_BATCH = 32


class Texts:
    """Embeds texts again, with an embedder that is made when it is first needed.

    Args:
        make: makes it; None, or a None that it returns, says that nothing is to be embedded.
    """

    def __init__(self, make: Callable[[], Embedder | None] | None) -> None:
        self._make = make

    @cached_property
    def embedder(self) -> Embedder | None:
        """The embedder."""
        return None if self._make is None else self._make()


class Vectors:
    """Finds the vectors of a partition's records.

    Args:
        settings: the worker's.
        oldest: the oldest entry of a scored record that the changelog still has.
        texts: embeds what has no vector there.
        tolerance: see :attr:`tolerance`; None takes the largest that the precisions of the embedder and of
            the entries call for.
    """

    def __init__(
        self, settings: Settings, oldest: Entry | None, texts: Texts, tolerance: float | None
    ) -> None:
        self._dimensions = settings.cache.dimensions
        self._texts = texts
        self._tolerance = tolerance
        self._precisions = set() if oldest is None else {oldest.precision}
        # Entries leave the changelog in the order of their offsets. So a record without one is older than
        # those with one, and is taken to be of the same model as the oldest of these.
        self.oldest_model = oldest.model if oldest is not None else None
        if oldest is None and settings.embedding.backend == "none":
            self.oldest_model = ""

    @property
    def tolerance(self) -> float:
        """How much a novelty may differ that was computed with a text's vector."""
        if self._tolerance is not None:
            return self._tolerance
        worst = max(REPEATABILITY.values())
        return max(REPEATABILITY.get(precision, worst) for precision in self._precisions)

    def recall(self, entry: Entry | None, trace_id: str | None, timestamp_ms: int) -> Remembered:
        """Return a scored record as the ledger has it, the entry being its own."""
        model = self.oldest_model if entry is None else entry.model
        vector = None if entry is None or entry.vector is None else decode_vector(entry.vector)
        if entry is not None:
            self._precisions.add(entry.precision)
        if vector is not None and vector.shape != (self._dimensions,):
            vector = None
        origin: Origin = "no_vector" if vector is None and model != "" else "ledger"
        return Remembered(trace_id, timestamp_ms / 1000, model, vector, origin)

    def complete(self, wanting: Sequence[tuple[Remembered, str | None]]) -> None:
        """Embed records that have no vector, by their texts, so far as the configured model made them."""
        embedder = self._texts.embedder if wanting else None
        if embedder is None:
            return
        self._precisions.add(embedder.precision)
        for record, _ in wanting:
            if record.model not in (None, embedder.identity):
                record.origin = "other_model"
        there = [
            (record, text) for record, text in wanting if record.origin == "no_vector" and text is not None
        ]
        for start in range(0, len(there), _BATCH):
            batch = there[start : start + _BATCH]
            vectors = embedder.embed([text for _, text in batch]).vectors
            for (record, _), vector in zip(batch, vectors, strict=True):
                record.vector, record.origin = vector, "text"
