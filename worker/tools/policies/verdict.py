"""The end of an evaluation, in sentences that one can act on."""

from __future__ import annotations

from collections.abc import Iterator

from knowledgepulse_worker.tools.policies.coverage import Coverage
from knowledgepulse_worker.tools.policies.evaluate import DomainEvaluation
from knowledgepulse_worker.tools.policies.intervals import with_interval
from knowledgepulse_worker.tools.policies.operating import SUPPORT, OperatingPoint


def verdict(one: DomainEvaluation, precision: float) -> Iterator[str]:
    """Yield what a domain's labels say of its score, of thresholds and of the groups that pass."""
    yield f"verdict: {one.domain}: {_score(one)}{_proposals(one, precision)}"
    current = one.current
    if current and current.coverage:
        yield f"coverage: {one.domain}: {_coverage(current.threshold, current.coverage)}"


def _score(one: DomainEvaluation) -> str:
    if one.fair is None or one.verdict == "too few labels":
        return (
            f"too few labels: {one.kept} of {one.traces} traces are worth keeping; "
            f"it takes {SUPPORT} of each kind to judge"
        )
    subject = "the score" if one.fair == one.score else "the score contains the label; without it, the score"
    meaning = {
        "tells apart": "tells these labels apart",
        "does not tell apart": "does not tell these labels apart",
        "points the wrong way": "points the wrong way, as traces worth keeping score lower",
    }[one.verdict]
    return f"{subject} {meaning}: AUC {with_interval(one.fair)}, where chance is 0.50"


def _proposals(one: DomainEvaluation, precision: float) -> str:
    if one.verdict != "tells apart":
        return "; no threshold is proposed"
    base = one.kept / one.traces
    points = {f"precision {precision:g}": one.precise, "the best F1": one.best_f1}
    sentences = [
        f"; for {aim}, {_worth(point, one.traces)}"
        if point
        else f"; no threshold with {SUPPORT} traces on each side has {aim}"
        for aim, point in points.items()
    ]
    return f"{''.join(sentences)}; of all traces, {base:.2f} are"


def _worth(point: OperatingPoint, traces: int) -> str:
    good = with_interval(point.precision)
    return f"{point.threshold!r} passes {point.passing} of {traces}, of which {good} are worth keeping"


def _coverage(threshold: float, covered: Coverage) -> str:
    if covered.gain is None:
        return f"no trace reaches {threshold!r}, so none of {covered.groups} groups is covered"
    return (
        f"the {covered.passing} traces that reach {threshold!r} are of {covered.covered} of {covered.groups} "
        f"groups, {with_interval(covered.gain)} times as many as at random ({covered.random:.1f})"
    )
