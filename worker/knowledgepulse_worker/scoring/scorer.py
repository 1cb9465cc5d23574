"""Score traces in order, comparing each with the earlier ones; usable in any process."""

from __future__ import annotations

from collections.abc import Callable

from numpy.typing import ArrayLike

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring.cache import VectorCache
from knowledgepulse_worker.scoring.counts import Counts, count_trace
from knowledgepulse_worker.scoring.score import Score, score_trace
from knowledgepulse_worker.scoring.text import TraceText, bounded_id, embedding_text

Embed = Callable[[str], ArrayLike]
"""Returns a text's vector, with the cache's dimensions."""


def score_and_add(
    trace: ReasoningTrace,
    vector: ArrayLike | None,
    cache: VectorCache,
    policy: Policy,
    *,
    at: float | None,
    counts: Counts | None = None,
) -> Score:
    """Score a trace against a cache, then add its vector, whatever the decision.

    Args:
        trace: the trace.
        vector: shape (cache.dimensions,). Without an embedder it is None; then novelty is 0.5, and nothing
            is added to the cache.
        cache: the earlier traces' vectors.
        policy: weights and thresholds.
        at: the trace's time in seconds since the epoch, for the cache's ttl; None means now.
        counts: the trace's counts, which only a policy with learned values needs.

    Raises:
        ValueError: the vector does not fit the cache.
        NoFactsError: the counts are needed and None.
    """
    if vector is None:
        return score_trace(trace, None, policy, counts)
    score = score_trace(trace, cache.nearest(vector, at=at), policy, counts)
    cache.add(vector, id=bounded_id(trace.id), at=at)
    return score


class Scorer:
    """Scores traces in order, comparing each with the earlier ones, like the SDK's ``evaluateValue``.

    Args:
        embed: returns a text's vector; if it is None, novelty is 0.5 and nothing is added to the cache.
        policy: weights and thresholds; by default, the reference's.
        cache: the vectors to compare with; by default, an empty cache of the default size.
        text: the text of a trace that is embedded.
    """

    def __init__(
        self,
        embed: Embed | None = None,
        policy: Policy | None = None,
        cache: VectorCache | None = None,
        text: TraceText = "sdk",
    ) -> None:
        self.embed = embed
        self.text = text
        self.policy = policy or Policy()
        self.cache = VectorCache() if cache is None else cache

    def evaluate(self, trace: ReasoningTrace, *, at: float | None = None) -> Score:
        """Embed the trace's text (see :func:`embedding_text`), then call :meth:`evaluate_embedded`."""
        vector = None if self.embed is None else self.embed(embedding_text(trace, self.text))
        counts = count_trace(trace) if self.policy.learns else None
        return self.evaluate_embedded(trace, vector, at=at, counts=counts)

    def evaluate_embedded(
        self,
        trace: ReasoningTrace,
        vector: ArrayLike | None,
        *,
        at: float | None = None,
        counts: Counts | None = None,
    ) -> Score:
        """Call :func:`score_and_add` with this scorer's cache and policy."""
        return score_and_add(trace, vector, self.cache, self.policy, at=at, counts=counts)
