"""What the embedder's batches count."""

from __future__ import annotations

from collections.abc import Iterable

from knowledgepulse_worker.observe.metric_registry import Makers, children_of


class EmbeddingMetrics:
    """The metrics of the embedder.

    Args:
        make: makes the metrics.
    """

    def __init__(self, make: Makers) -> None:
        self._batch_size = make.histogram(
            "kp_embedding_batch_size", "Texts per embedding batch", buckets=[1, 2, 4, 8, 16, 32, 64]
        )
        self._pass = make.gauge(
            "kp_embedding_pass_seconds",
            "Time that a text that fills the window took at the start; 0 without an embedder",
        )
        self._errors = make.counter("kp_embedding_errors", "Failed embedding batches")
        self._truncated = make.counter("kp_embedding_truncated", "Texts truncated to the model's window")
        self._repeated = make.counter(
            "kp_embedding_repeated", "Texts whose recently computed embedding was reused"
        )
        self._letters_of = children_of(
            make.counter(
                "kp_embedded_letters",
                "Letters of the first text of each embedding batch, up to 1,000 characters, by script: latin "
                "or other",
                ["domain", "script"],
            )
        )

    def start_domains(self, domains: Iterable[str]) -> None:
        """Create the series of the policy's domains."""
        for domain in domains:
            self.letters(domain, 0, 0)

    def set_pass(self, seconds: float) -> None:
        """Set how long a text that fills the window takes to embed."""
        self._pass.set(seconds)

    def embedded(self, batch: int, truncated: int, repeated: int) -> None:
        """Observe an embedded batch."""
        self._batch_size.observe(batch)
        self._truncated.inc(truncated)
        self._repeated.inc(repeated)

    def letters(self, domain: str, latin: int, other: int) -> None:
        """Count the letters of an embedded text by script."""
        self._letters_of(domain, "latin").inc(latin)
        self._letters_of(domain, "other").inc(other)

    def failed(self) -> None:
        """Count a failed batch."""
        self._errors.inc()
