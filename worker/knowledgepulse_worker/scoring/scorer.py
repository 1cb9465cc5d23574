"""Score traces in order, comparing each with the earlier ones; usable in any process."""

from __future__ import annotations

from collections.abc import Callable

from numpy.typing import ArrayLike

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring.cache import VectorCache
from knowledgepulse_worker.scoring.counts import Counts, count_trace
from knowledgepulse_worker.scoring.dimensions import Scorable
from knowledgepulse_worker.scoring.score import Score, score_trace
from knowledgepulse_worker.scoring.shares import RecentScores
from knowledgepulse_worker.scoring.text import TraceText, bounded_id, embedding_text

EmbedFunction = Callable[[str], ArrayLike]
"""Returns a text's vector, with the cache's dimensions."""


class PartitionState:
    """What the next trace of a partition is scored against.

    Args:
        cache: the vectors of the earlier traces.
        scores: the last scores of the earlier traces; by default, none.
    """

    def __init__(self, cache: VectorCache, scores: RecentScores | None = None) -> None:
        self.cache = cache
        self.scores = RecentScores() if scores is None else scores


def score_and_add(
    trace: ReasoningTrace | Scorable,
    vector: ArrayLike | None,
    state: PartitionState,
    policy: Policy,
    *,
    at: float | None,
    counts: Counts | None = None,
) -> Score:
    """Score a trace against the state of its partition, then add its vector, whatever the decision.

    Args:
        trace: the trace.
        vector: shape (cache.dimensions,). Without an embedder it is None; then novelty is 0.5, and nothing
            is added to the cache.
        state: the earlier traces' vectors and scores.
        policy: weights, thresholds and shares.
        at: the trace's time in seconds since the epoch, for the cache's ttl; None means now.
        counts: the trace's counts, which only a policy with learned values needs.

    Raises:
        ValueError: the vector does not fit the cache.
        NoFactsError: the counts are needed and None.
    """
    nearest = None if vector is None else state.cache.nearest(vector, at=at)
    score = score_trace(trace, nearest, policy, counts)
    if vector is not None:
        state.cache.add(vector, id=bounded_id(trace.id), at=at)
    metadata = trace.metadata
    return state.scores.decide(score, policy.profile(metadata.task_domain), metadata.agent_id)


class Scorer:
    """Scores traces in order, comparing each with the earlier ones, like the SDK's ``evaluateValue``.

    Args:
        embed: returns a text's vector; if it is None, novelty is 0.5 and nothing is added to the cache.
        policy: weights, thresholds and shares; by default, the reference's.
        cache: the vectors to compare with; by default, an empty cache of the default size.
        text: the text of a trace that is embedded.
    """

    def __init__(
        self,
        embed: EmbedFunction | None = None,
        policy: Policy | None = None,
        cache: VectorCache | None = None,
        text: TraceText = "sdk",
    ) -> None:
        self.embed = embed
        self.text = text
        self.policy = policy or Policy()
        self.state = PartitionState(VectorCache() if cache is None else cache)

    def evaluate(self, trace: ReasoningTrace, *, at: float | None = None) -> Score:
        """Embed the trace's text (see :func:`embedding_text`), then call :meth:`evaluate_embedded`."""
        vector = None if self.embed is None else self.embed(embedding_text(trace, self.text))
        reading = self.policy.reading
        counts = count_trace(trace, reading) if reading else None
        return self.evaluate_embedded(trace, vector, at=at, counts=counts)

    def evaluate_embedded(
        self,
        trace: ReasoningTrace,
        vector: ArrayLike | None,
        *,
        at: float | None = None,
        counts: Counts | None = None,
    ) -> Score:
        """Call :func:`score_and_add` with this scorer's state and policy."""
        return score_and_add(trace, vector, self.state, self.policy, at=at, counts=counts)
