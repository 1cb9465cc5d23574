"""A trace's score as a backend gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from knowledgepulse_schemas.trace import parse_date_time
from knowledgepulse_worker.scoring import Score
from knowledgepulse_worker.tools.backends.backend import Backend, RunScore, run_in


def run_score(
    backend: Backend, trace: Mapping[str, Any], score: Score, details: Mapping[str, str | None]
) -> RunScore | None:
    """Return the score for a trace's run in a backend; None if the trace names no run there.

    Args:
        backend: the backend.
        trace: the trace's JSON.
        score: its score.
        details: further facts by name; those that are None are left out.
    """
    run = run_in(backend, trace)
    if run is None:
        return None
    known = {"nearest": score.nearest, **details}
    return RunScore(
        run=run,
        trace_id=trace["id"],
        value=score.quality_score,
        label=score.decision,
        explanation=explanation_of(score),
        time_ms=round(parse_date_time(trace["metadata"]["created_at"]).timestamp() * 1000),
        details={f"kp.{name}": value for name, value in known.items() if value},
    )


def explanation_of(score: Score) -> str:
    """Return the dimensions, the overrides and the threshold of a score in words."""
    dimensions = (f"{name.replace('_', ' ')} {value:.4f}" for name, value in asdict(score.dimensions).items())
    parts = [
        ", ".join(dimensions),
        *(f"override {name}" for name in score.overrides),
        f"threshold {score.threshold:g} of {score.domain}" if score.rank is None else _rank(score),
        *([] if score.withheld is None else [f"withheld for its {score.withheld}"]),
    ]
    return "; ".join(parts)


def _rank(score: Score) -> str:
    return f"rank {score.rank} of {score.of} at share {score.share:g} of {score.domain}"
