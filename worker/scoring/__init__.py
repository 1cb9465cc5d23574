"""The KnowledgePulse score, pure: no Kafka, no torch, no clock but the one that is handed in.

Score traces in a process of your own, with or without an embedder::

    from schemas import ReasoningTrace
    from worker.scoring import Scorer

    scorer = Scorer()                        # no embedder: novelty is 0.5
    score = scorer.evaluate(ReasoningTrace.model_validate_json(line))
    print(score.quality_score, score.decision)

The formula's reference is the KnowledgePulse SDK 0.1.1.
"""

from worker.scoring.cache import Nearest, VectorCache
from worker.scoring.dimensions import complexity, novelty, outcome_confidence, tool_diversity
from worker.scoring.overrides import apply_overrides
from worker.scoring.score import Decision, Score, score_trace
from worker.scoring.scorer import Embed, Scorer
from worker.scoring.text import embedding_text

__all__ = [
    "Decision",
    "Embed",
    "Nearest",
    "Score",
    "Scorer",
    "VectorCache",
    "apply_overrides",
    "complexity",
    "embedding_text",
    "novelty",
    "outcome_confidence",
    "score_trace",
    "tool_diversity",
]
