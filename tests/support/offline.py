"""Score values offline, to compare with the stream."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.embedding import load_embedder
from knowledgepulse_worker.scoring import Score
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.score.offline import make_scorer

_loaded = cache(load_embedder)
"""Tests with equal settings share an embedder and the vectors that it has cached."""


def offline(settings: Settings, values: Iterable[bytes]) -> list[Score]:
    """Score a partition's values one after another, without a broker."""
    scorer = make_scorer(settings, _loaded(settings.embedding, settings.cache))
    return [scorer.evaluate(ReasoningTrace.model_validate_json(value)) for value in values]
