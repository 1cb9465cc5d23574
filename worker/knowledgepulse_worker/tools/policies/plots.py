"""Plots of the reports: PNG or SVG, by the file's suffix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.terminal.printable import time_text
from knowledgepulse_worker.tools.policies.estimates import CHANCE_AUC, Array, Estimate
from knowledgepulse_worker.tools.policies.evaluate import DomainEvaluation, Evaluation
from knowledgepulse_worker.tools.policies.fit import DomainFit, Fit
from knowledgepulse_worker.tools.policies.labelled_traces import LabelCounts
from knowledgepulse_worker.tools.policies.tune import (
    THRESHOLD_GRID,
    DomainTuning,
    Tuning,
    described,
    embedders_of,
)
from knowledgepulse_worker.tools.terminal.lines import file_errors

with extra("policy"):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREY, _SOFT = "#2f6fde", "#d9662b", "#6b717a", "#4a4f57"
_WIDTH, _ROW, _FOOT = 9.6, 3.6, 0.5
_DPI = 220


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file; raise an InputError if that fails."""
    with file_errors(path, "written"):
        figure.savefig(path, dpi=_DPI)


def plot_tuning(tuning: Tuning, records: Sequence[ScoredRecord]) -> Figure:
    """Plot one row per domain, under its finding: the scores, and the share that passes."""
    left_out = f"{counted(tuning.withheld, 'trace')} that the policy withholds" if tuning.withheld else ""
    titles = [_tuning_title(domain, tuning.target) for domain in tuning.domains.values()]
    figure, rows = _figure(titles, _about(tuning.policy, records, left_out))
    for axes, domain in zip(rows, tuning.domains.values(), strict=True):
        _plot_scores(axes[0], domain)
        _plot_shares(axes[1], domain, tuning.target)
    return figure


def plot_evaluation(evaluation: Evaluation, records: Sequence[ScoredRecord]) -> Figure:
    """Plot one row per comparable domain, under its verdict: AUCs, and precision and recall by threshold."""
    domains = [(domain, domain.score) for domain in evaluation.domains.values() if domain.score is not None]
    equal = (
        f"{domain.domain}, where all {domain.traces:,} labels are equal"
        for domain in evaluation.domains.values()
        if domain.score is None
    )
    fitted = (
        f"{name}, {counted(domain.labels, 'label')} to which the learned value was fitted"
        for name, domain in evaluation.fitted.items()
        if domain.labels
    )
    left_out = "; ".join((*equal, *fitted))
    titles = [_evaluation_title(domain) for domain, _ in domains]
    figure, rows = _figure(titles, _about(evaluation.policy, records, left_out))
    for axes, (domain, score) in zip(rows, domains, strict=True):
        _plot_aucs(axes[0], domain, score)
        _plot_operating(axes[1], domain)
    return figure


def plot_fit(fit: Fit, records: Sequence[ScoredRecord]) -> Figure:
    """Plot one row per domain with enough labels, under its verdict: AUCs, and reliability."""
    domains = [domain for domain in fit.domains.values() if domain.appraisals]
    left_out = "; ".join(
        f"{domain.domain}, with too few labels" for domain in fit.domains.values() if not domain.appraisals
    )
    titles = [_fit_title(domain) for domain in domains]
    figure, rows = _figure(titles, _about(fit.policy, records, left_out))
    for axes, domain in zip(rows, domains, strict=True):
        _plot_estimates(
            axes[0], domain, {name: appraisal.auc for name, appraisal in domain.appraisals.items()}
        )
        axes[1].plot([0, 1], [0, 1], color=_GREY, linestyle="--", linewidth=1, label="perfectly calibrated")
        axes[1].plot(*zip(*domain.reliability, strict=True), "o-", color=_BLUE, label="tenths of the traces")
        _finish(axes[1], "reliability", xlabel="learned value", ylabel="worth keeping", ylim=(0, 1))
    return figure


def _fit_title(domain: DomainFit) -> str:
    verdict = "support" if domain.outcome == "supported" else "do not support"
    return f"{domain.domain}: the labels {verdict} the learned value"


def _tuning_title(domain: DomainTuning, target: float) -> str:
    passing = f"{domain.current.share.value:.1%} pass at {domain.current.threshold}"
    if domain.proposal is None:
        return f"{domain.domain}: {passing}, and no threshold lets only {target:.0%} pass"
    return f"{domain.domain}: {passing}; at most {target:.0%} at {domain.proposal.passing.threshold}"


def _evaluation_title(domain: DomainEvaluation) -> str:
    told = {
        "tells apart": "the score tells these labels apart",
        "does not tell apart": "the score is no better than chance",
        "points the wrong way": "traces worth keeping score lower",
        "too few labels": "too few labels for a verdict",
    }[domain.verdict]
    without = "without what contains the label, " if domain.fair not in (None, domain.score) else ""
    return f"{domain.domain}: {without}{told}"


def _about(policy: str, records: Sequence[ScoredRecord], left_out: str) -> str:
    """Say what the figures are of: a plot is read without its report."""
    stamps = [record.timestamp_ms for record in records if record.timestamp_ms is not None]
    first, last = (time_text(end(stamps, default=0)).partition("T")[0] for end in (min, max))
    period = f"; {first} to {last}" if stamps else ""
    about = f"policy {policy}; {described(embedders_of(records))}{period}"
    return f"{about}\nleft out: {left_out}" if left_out else about


def _figure(titles: Sequence[str], about: str) -> tuple[Figure, list[Any]]:
    """Return a figure with a titled row of two axes for each title, and what it is of in a corner."""
    rows = len(titles)
    figure = Figure(figsize=(_WIDTH, _ROW * rows + _FOOT), layout="constrained")
    FigureCanvasAgg(figure)
    *parts, foot = figure.subfigures(rows + 1, 1, squeeze=False, height_ratios=[*[_ROW] * rows, _FOOT]).flat
    foot.text(0.99, 0.2, about, ha="right", va="bottom", fontsize=8, color=_SOFT, parse_math=False)
    for part, title in zip(parts, titles, strict=True):
        part.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold", parse_math=False)
        for axes in part.subplots(1, 2):
            axes.spines[["top", "right"]].set_visible(False)
    return figure, [part.axes for part in parts]


def _finish(axes: Any, title: str, **settings: Any) -> None:
    """Name axes, by default from 0 to 1, and put the legend below them, where there are no data."""
    axes.set(**{"xlim": (0, 1)} | settings)
    axes.set_title(title, fontsize="medium")
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)


def _plot_with_interval(axes: Any, thresholds: Sequence[float], estimates: Array, label: str) -> None:
    """Plot estimates, shape (thresholds, 3), above their intervals."""
    values, low, high = estimates.reshape(-1, 3).T
    axes.plot(thresholds, values, color=_BLUE, label=label)
    axes.fill_between(thresholds, low, high, color=_BLUE, alpha=0.2, linewidth=0, label="its 95% interval")


def _plot_scores(axes: Any, domain: DomainTuning) -> None:
    passing = [domain.traces * point.share.value for point in domain.grid]
    counts = [passing[at] - passing[at + 1] for at in range(len(THRESHOLD_GRID) - 2)] + [passing[-2]]
    axes.stairs(counts, THRESHOLD_GRID, fill=True, color=_BLUE, alpha=0.8)
    axes.axvline(domain.current.threshold, color=_GREY, linestyle="--", label="current threshold")
    if domain.proposal:
        axes.axvline(domain.proposal.passing.threshold, color=_ORANGE, label="proposed")
    _finish(axes, counted(domain.traces, "trace"), xlabel="score", ylabel="traces")


def _plot_shares(axes: Any, domain: DomainTuning, target: float) -> None:
    proposed = [domain.proposal.passing] if domain.proposal else []
    points = sorted([*domain.grid, *proposed], key=lambda point: point.threshold)
    shares = 100 * np.array([point.share for point in points])
    _plot_with_interval(axes, [point.threshold for point in points], shares, "share")
    axes.axhline(100 * target, color=_GREY, linewidth=0.8, linestyle=":", label=f"target {target:.0%}")
    if domain.proposal:
        needed = domain.proposal.needed
        axes.axvline(needed.value, color=_ORANGE, label=f"proposed: {needed.value:.3f}")
        axes.axvspan(
            needed.low, needed.high, color=_ORANGE, alpha=0.25, linewidth=0, label="its 95% interval"
        )
    _finish(axes, "share that passes", xlabel="threshold", ylabel="%", ylim=(0, 101))


def _plot_aucs(axes: Any, domain: DomainEvaluation, score: Estimate) -> None:
    rows = {
        "score": score,
        **{f"{name} alone".replace("_", " "): estimate for name, estimate in domain.alone.items()},
        **{f"score, {name} constant".replace("_", " "): domain.without[name] for name in domain.leaks},
        **({"length alone": domain.length.alone} if domain.length else {}),
    }
    _plot_estimates(axes, domain, rows)


def _plot_estimates(axes: Any, domain: LabelCounts, rows: dict[str, Estimate]) -> None:
    for y, (name, estimate) in enumerate(rows.items()):
        color = _ORANGE if name.endswith("constant") else _BLUE
        axes.plot([estimate.low, estimate.high], [y, y], color=color, linewidth=2)
        axes.plot(estimate.value, y, "o", color=color)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.axvline(CHANCE_AUC, color=_GREY, linestyle="--", linewidth=1, label="chance")
    title = f"{domain.kept:,} of {counted(domain.traces, 'trace')} worth keeping"
    _finish(axes, title, xlabel="AUC, with 95% interval", xlim=(-0.03, 1.03))


def _plot_operating(axes: Any, domain: DomainEvaluation) -> None:
    precise = [point for point in domain.operating if point.precision]
    precisions = np.array([point.precision for point in precise])
    _plot_with_interval(axes, [point.threshold for point in precise], precisions, "precision")
    recalls = [point.recall for point in domain.operating]
    axes.plot([point.threshold for point in domain.operating], recalls, color=_ORANGE, label="recall")
    chance = domain.kept / domain.traces
    axes.axhline(chance, color=_GREY, linestyle=":", linewidth=1, label="precision by chance")
    if domain.current:
        axes.axvline(domain.current.threshold, color=_GREY, linestyle="--", label="current threshold")
    _finish(axes, "precision and recall", xlabel="threshold", ylim=(0, 1.02))
