"""Scoring lines without a broker."""

from __future__ import annotations

import pytest

from schemas import ReasoningTrace
from worker.settings import Settings
from worker.tools.score.offline import make_scorer, score_line


@pytest.mark.parametrize(
    "created_at",
    ["2026-01-31T12:00:00Z", "2026-01-31t12:00:00,5z", "2026-01-31 12:00", "2026-01-31T12:00:00+0530"],
)
def test_scores_traces_with_every_valid_created_at(created_at):
    trace = ReasoningTrace.new(
        objective="Fix the failing build",
        steps=[{"type": "thought"}],
        result_summary="done",
        confidence=0.9,
        success=True,
        task_domain="code",
        created_at=created_at,
    )
    scored = score_line(trace.to_json(), make_scorer(Settings(), None), 10_000)

    assert scored.trace.metadata == trace.metadata
