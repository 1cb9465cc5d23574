"""A trace's score as a backend gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from knowledgepulse_schemas.trace import parse_date_time
from knowledgepulse_worker.records.decode import decode_members
from knowledgepulse_worker.scoring import Score
from knowledgepulse_worker.tools.backends.backend import PULLED_FROM, Backend, RunScore, milliseconds_of


class _Metadata(msgspec.Struct):
    created_at: str
    pulled_from: Any = None
    span_context: Any = None


class ScoredTrace(msgspec.Struct):
    """The members of a trace that say where its score belongs."""

    id: str
    metadata: _Metadata


def read_scored(value: bytes) -> ScoredTrace:
    """Read these members of a trace; raise an InvalidRecordError if they have another form."""
    return decode_members(value, ScoredTrace)


def run_in(backend: Backend, trace: ScoredTrace) -> str | None:
    """Return the id of a trace's run in a backend: of the run it was pulled from, or else of its span.

    Producers write what it says. So it has to name the project, unless an earlier release pulled it, which
    wrote none, and the id has to have the form of the backend's.
    """
    run = None
    match trace.metadata.pulled_from:
        case {"backend": backend.name, "project": str(project)} if project != backend.project:
            pass
        case {"backend": backend.name, "run": str(pulled)}:
            run = pulled
    match trace.metadata.span_context:
        case {"trace_id": str(trace_id)} if trace_id and not run:
            run = backend.run_of(trace_id)
    return None if run is None or backend.run_id.fullmatch(run) is None else run


def pulled_from(backend: Backend, run: str) -> dict[str, dict[str, str]]:
    """Return the member of a trace's metadata by which its score finds the run."""
    return {PULLED_FROM: {"backend": backend.name, "project": backend.project, "run": run}}


def run_score(
    backend: Backend, trace: ScoredTrace, score: Score, details: Mapping[str, str | None]
) -> RunScore | None:
    """Return the score for a trace's run in a backend; None if the trace names no run there.

    Args:
        backend: the backend.
        trace: the trace.
        score: its score.
        details: further facts by name; those that are None are left out.
    """
    run = run_in(backend, trace)
    if run is None:
        return None
    known = {"nearest": score.nearest, **details}
    return RunScore(
        run=run,
        trace_id=trace.id,
        value=score.quality_score,
        label=score.decision,
        explanation=explanation_of(score),
        time_ms=milliseconds_of(parse_date_time(trace.metadata.created_at)),
        details={f"kp.{name}": value for name, value in known.items() if value},
    )


def explanation_of(score: Score) -> str:
    """Return the dimensions, the overrides and the threshold of a score in words."""
    dimensions = (f"{name.replace('_', ' ')} {value:.4f}" for name, value in asdict(score.dimensions).items())
    rule = f"threshold {score.threshold:g} of {score.domain}"
    if score.rank is not None:
        rule = f"rank {score.rank} of {score.of} at share {score.share:g} of {score.domain}"
    parts = [
        ", ".join(dimensions),
        *(f"override {name}" for name in score.overrides),
        rule,
        *([] if score.withheld is None else [f"withheld for its {score.withheld}"]),
    ]
    return "; ".join(parts)
