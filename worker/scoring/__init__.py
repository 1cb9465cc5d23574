"""The KnowledgePulse score as pure functions: no Kafka, no torch, no clock but the caller's.

Score traces in any process, with or without an embedder::

    from schemas import ReasoningTrace
    from worker.scoring import Scorer

    scorer = Scorer()                        # no embedder: novelty is 0.5
    score = scorer.evaluate(ReasoningTrace.model_validate_json(line))
    print(score.quality_score, score.decision)

The formula's reference is the KnowledgePulse SDK 0.1.1.
"""

from worker.scoring.cache import Nearest, VectorCache
from worker.scoring.dimensions import complexity, novelty, outcome_confidence, tool_diversity
from worker.scoring.explanation import Explanation, explain_score, override_effects, similarity_text
from worker.scoring.flips import Flip, Rescored, rescore_all
from worker.scoring.overrides import apply_overrides, overrides_of
from worker.scoring.records import ScoredRecord
from worker.scoring.score import Decision, Dimensions, Score, Withheld, quality_score, rescore, score_trace
from worker.scoring.scorer import Embed, Scorer, score_and_remember
from worker.scoring.text import PART, TraceText, bounded_id, embedding_text

__all__ = [
    "PART",
    "Decision",
    "Dimensions",
    "Embed",
    "Explanation",
    "Flip",
    "Nearest",
    "Rescored",
    "Score",
    "ScoredRecord",
    "Scorer",
    "TraceText",
    "VectorCache",
    "Withheld",
    "apply_overrides",
    "bounded_id",
    "complexity",
    "embedding_text",
    "explain_score",
    "novelty",
    "outcome_confidence",
    "override_effects",
    "overrides_of",
    "quality_score",
    "rescore",
    "rescore_all",
    "score_and_remember",
    "score_trace",
    "similarity_text",
    "tool_diversity",
]
