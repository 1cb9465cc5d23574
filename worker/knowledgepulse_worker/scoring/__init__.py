"""The KnowledgePulse score as pure functions, without Kafka, torch or a clock other than the caller's.

Score traces in any process, with or without an embedder::

    from knowledgepulse_schemas import ReasoningTrace
    from knowledgepulse_worker.scoring import Scorer

    scorer = Scorer()                        # no embedder: novelty is 0.5
    score = scorer.evaluate(ReasoningTrace.model_validate_json(line))
    print(score.quality_score, score.decision)

The KnowledgePulse SDK 0.1.1 is the reference for the formula.
"""

from knowledgepulse_worker.scoring.cache import LOOK_UPS, Nearest, VectorCache
from knowledgepulse_worker.scoring.content import Content, Graded, StepText, content, shortened, task_of
from knowledgepulse_worker.scoring.counts import Counts, count_steps, count_trace, reading_of
from knowledgepulse_worker.scoring.dimensions import (
    Dimensions,
    Scorable,
    Shape,
    complexity,
    novelty,
    outcome_confidence,
    scorable,
    shape_of,
    tool_diversity,
)
from knowledgepulse_worker.scoring.explanation import (
    Explanation,
    decision_text,
    explain_score,
    override_effects,
    similarity_text,
)
from knowledgepulse_worker.scoring.facts import FACTS
from knowledgepulse_worker.scoring.learned import NoFactsError, learned_value
from knowledgepulse_worker.scoring.overrides import apply_overrides, overrides_of
from knowledgepulse_worker.scoring.rescore_report import RescoreFigures, RescoreReport, rescore_all
from knowledgepulse_worker.scoring.rescorer import Rescorer, scores_under
from knowledgepulse_worker.scoring.routing import decide
from knowledgepulse_worker.scoring.score import (
    Score,
    UnitInterval,
    quality_score,
    rescore,
    score_trace,
)
from knowledgepulse_worker.scoring.scored_record import ScoredRecord
from knowledgepulse_worker.scoring.scorer import EmbedFunction, PartitionState, Scorer, score_and_add
from knowledgepulse_worker.scoring.shares import (
    UNKNOWN_AGENT,
    AddedScore,
    LastScores,
    RecentScores,
    scores_that_count,
)
from knowledgepulse_worker.scoring.text import (
    PART_SEPARATOR,
    TraceText,
    bounded_id,
    embedding_text,
    text_in_parts,
    words_text,
)
from knowledgepulse_worker.scoring.words import word_buckets

__all__ = [
    "FACTS",
    "LOOK_UPS",
    "PART_SEPARATOR",
    "UNKNOWN_AGENT",
    "AddedScore",
    "Content",
    "Counts",
    "Dimensions",
    "EmbedFunction",
    "Explanation",
    "Graded",
    "LastScores",
    "Nearest",
    "NoFactsError",
    "PartitionState",
    "RecentScores",
    "RescoreFigures",
    "RescoreReport",
    "Rescorer",
    "Scorable",
    "Score",
    "ScoredRecord",
    "Scorer",
    "Shape",
    "StepText",
    "TraceText",
    "UnitInterval",
    "VectorCache",
    "apply_overrides",
    "bounded_id",
    "complexity",
    "content",
    "count_steps",
    "count_trace",
    "decide",
    "decision_text",
    "embedding_text",
    "explain_score",
    "learned_value",
    "novelty",
    "outcome_confidence",
    "override_effects",
    "overrides_of",
    "quality_score",
    "reading_of",
    "rescore",
    "rescore_all",
    "scorable",
    "score_and_add",
    "score_trace",
    "scores_that_count",
    "scores_under",
    "shape_of",
    "shortened",
    "similarity_text",
    "task_of",
    "text_in_parts",
    "tool_diversity",
    "word_buckets",
    "words_text",
]
