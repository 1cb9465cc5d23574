"""Plots of the reports: PNG or SVG, by the file's suffix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.terminal.lines import file_errors
from knowledgepulse_worker.tools.policies.estimates import CHANCE, Estimate
from knowledgepulse_worker.tools.policies.evaluate import DomainEvaluation, Evaluation
from knowledgepulse_worker.tools.policies.tune import GRID, DomainTuning, Tuning

with extra("policy"):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREY = "#2f6fde", "#d9662b", "#8a8f98"


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file; raise an InputError if that fails."""
    with file_errors(path, "written"):
        figure.savefig(path, dpi=110)


def plot_tuning(tuning: Tuning) -> Figure:
    """Plot one row per domain: the scores, and the share that passes."""
    figure, rows = _figure(len(tuning.domains))
    for axes, domain in zip(rows, tuning.domains.values(), strict=True):
        _plot_scores(axes[0], domain)
        _plot_shares(axes[1], domain, tuning.target)
    return figure


def plot_evaluation(evaluation: Evaluation) -> Figure:
    """Plot AUCs, and precision and recall by threshold: one row per comparable domain."""
    domains = [(one, one.score) for one in evaluation.domains.values() if one.score is not None]
    figure, rows = _figure(len(domains))
    for axes, (domain, score) in zip(rows, domains, strict=True):
        _plot_aucs(axes[0], domain, score)
        _plot_operating(axes[1], domain)
    return figure


def _figure(rows: int) -> tuple[Figure, Any]:
    figure = Figure(figsize=(8.4, 3.1 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 2, squeeze=False)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _plot_scores(axes: Any, domain: DomainTuning) -> None:
    passing = [domain.traces * one.share.value for one in domain.grid]
    counts = [passing[at] - passing[at + 1] for at in range(len(GRID) - 2)] + [passing[-2]]
    axes.stairs(counts, GRID, fill=True, color=_BLUE, alpha=0.8)
    axes.axvline(domain.current.threshold, color=_GREY, linestyle="--", label="current threshold")
    if domain.proposal:
        axes.axvline(domain.proposal.passing.threshold, color=_ORANGE, label="proposed")
    axes.set(title=f"{domain.domain}: {domain.traces} traces", xlabel="score", ylabel="traces", xlim=(0, 1))
    axes.legend(frameon=False, fontsize="small")


def _plot_shares(axes: Any, domain: DomainTuning, target: float) -> None:
    thresholds = [one.threshold for one in domain.grid]
    low, high = ([100 * getattr(one.share, end) for one in domain.grid] for end in ("low", "high"))
    axes.fill_between(thresholds, low, high, color=_BLUE, alpha=0.2, linewidth=0, label="95 % interval")
    axes.plot(thresholds, [100 * one.share.value for one in domain.grid], color=_BLUE)
    axes.axhline(100 * target, color=_GREY, linewidth=0.8)
    if domain.proposal:
        needed = domain.proposal.needed
        axes.axvspan(needed.low, needed.high, color=_ORANGE, alpha=0.25, linewidth=0)
        axes.axvline(needed.value, color=_ORANGE, label=f"{target:.0%} need {needed.value:.3f}")
    axes.set(title="share that passes", xlabel="threshold", ylabel="%", xlim=(0, 1), ylim=(0, 101))
    axes.legend(frameon=False, fontsize="small")


def _plot_aucs(axes: Any, domain: DomainEvaluation, score: Estimate) -> None:
    title = f"{domain.domain}: {domain.kept} of {domain.traces} worth keeping"
    axes.set(title=title, xlabel="AUC", xlim=(-0.03, 1.03))
    rows = {
        "score": score,
        **{f"{name} alone".replace("_", " "): one for name, one in domain.alone.items()},
        **{f"score, {name} constant".replace("_", " "): domain.without[name] for name in domain.leaks},
    }
    for y, (name, one) in enumerate(rows.items()):
        color = _ORANGE if name.endswith("constant") else _BLUE
        axes.plot([one.low, one.high], [y, y], color=color, linewidth=2)
        axes.plot(one.value, y, "o", color=color)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.axvline(CHANCE, color=_GREY, linestyle="--", linewidth=0.8)


def _plot_operating(axes: Any, domain: DomainEvaluation) -> None:
    thresholds = [one.threshold for one in domain.operating]
    precisions = [one.precision.value for one in domain.operating if one.precision]
    axes.plot(thresholds, precisions, color=_BLUE, label="precision")
    axes.plot(thresholds, [one.recall for one in domain.operating], color=_ORANGE, label="recall")
    if domain.current:
        axes.axvline(domain.current.threshold, color=_GREY, linestyle="--", label="current threshold")
    axes.set(title="precision and recall", xlabel="threshold", xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(frameon=False, fontsize="small")
