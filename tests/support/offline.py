"""Score values offline, to compare with the stream."""

from __future__ import annotations

from collections.abc import Iterable

from schemas import ReasoningTrace
from worker.embedding import load_embedder
from worker.scoring import Score
from worker.settings import Settings
from worker.tools.score.offline import make_scorer


def offline(settings: Settings, values: Iterable[bytes]) -> list[Score]:
    """Score a partition's values one after another, without a broker."""
    scorer = make_scorer(settings, load_embedder(settings.embedding, settings.cache))
    return [scorer.evaluate(ReasoningTrace.model_validate_json(value)) for value in values]
