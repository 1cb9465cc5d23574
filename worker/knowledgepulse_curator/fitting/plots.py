"""The plots of ``kp-worker policy evaluate`` and ``fit``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from knowledgepulse_curator.fitting.evaluate import DomainEvaluation, Evaluation
from knowledgepulse_curator.fitting.fit import DomainFit, Fit
from knowledgepulse_curator.fitting.labelled_traces import LabelCounts
from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.policies.estimates import CHANCE_AUC, Estimate
from knowledgepulse_worker.tools.policies.plots import (
    BLUE,
    GREY,
    ORANGE,
    finish,
    new_figure,
    plot_with_interval,
    what_is_plotted,
)

with extra("policy"):
    from matplotlib.figure import Figure


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
    figure, rows = new_figure(titles, what_is_plotted(evaluation.policy, records, left_out))
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
    figure, rows = new_figure(titles, what_is_plotted(fit.policy, records, left_out))
    for axes, domain in zip(rows, domains, strict=True):
        _plot_estimates(
            axes[0], domain, {name: appraisal.auc for name, appraisal in domain.appraisals.items()}
        )
        axes[1].plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="perfectly calibrated")
        axes[1].plot(*zip(*domain.reliability, strict=True), "o-", color=BLUE, label="tenths of the traces")
        finish(axes[1], "reliability", xlabel="learned value", ylabel="worth keeping", ylim=(0, 1))
    return figure


def _fit_title(domain: DomainFit) -> str:
    verdict = "support" if domain.outcome == "supported" else "do not support"
    return f"{domain.domain}: the labels {verdict} the learned value"


def _evaluation_title(domain: DomainEvaluation) -> str:
    told = {
        "tells apart": "the score tells these labels apart",
        "does not tell apart": "the score is no better than chance",
        "points the wrong way": "traces worth keeping score lower",
        "too few labels": "too few labels for a verdict",
    }[domain.verdict]
    without = "without what contains the label, " if domain.fair not in (None, domain.score) else ""
    return f"{domain.domain}: {without}{told}"


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
        color = ORANGE if name.endswith("constant") else BLUE
        axes.plot([estimate.low, estimate.high], [y, y], color=color, linewidth=2)
        axes.plot(estimate.value, y, "o", color=color)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.axvline(CHANCE_AUC, color=GREY, linestyle="--", linewidth=1, label="chance")
    title = f"{domain.kept:,} of {counted(domain.traces, 'trace')} worth keeping"
    finish(axes, title, xlabel="AUC, with 95% interval", xlim=(-0.03, 1.03))


def _plot_operating(axes: Any, domain: DomainEvaluation) -> None:
    precise = [point for point in domain.operating if point.precision]
    precisions = np.array([point.precision for point in precise])
    plot_with_interval(axes, [point.threshold for point in precise], precisions, "precision")
    recalls = [point.recall for point in domain.operating]
    axes.plot([point.threshold for point in domain.operating], recalls, color=ORANGE, label="recall")
    chance = domain.kept / domain.traces
    axes.axhline(chance, color=GREY, linestyle=":", linewidth=1, label="precision by chance")
    if domain.current:
        axes.axvline(domain.current.threshold, color=GREY, linestyle="--", label="current threshold")
    finish(axes, "precision and recall", xlabel="threshold", ylim=(0, 1.02))
