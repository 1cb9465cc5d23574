"""The plot of ``kp-worker policy tune``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.policies.plots import (
    BLUE,
    GREY,
    ORANGE,
    finish,
    new_figure,
    plot_with_interval,
    what_is_plotted,
)
from knowledgepulse_worker.tools.policies.tune import THRESHOLD_GRID, DomainTuning, Tuning

with extra("policy"):
    from matplotlib.figure import Figure


def plot_tuning(tuning: Tuning, records: Sequence[ScoredRecord]) -> Figure:
    """Plot one row per domain, under its finding: the scores, and the share that passes."""
    left_out = f"{counted(tuning.withheld, 'trace')} that the policy withholds" if tuning.withheld else ""
    titles = [_tuning_title(domain, tuning.target) for domain in tuning.domains.values()]
    figure, rows = new_figure(titles, what_is_plotted(tuning.policy, records, left_out))
    for axes, domain in zip(rows, tuning.domains.values(), strict=True):
        _plot_scores(axes[0], domain)
        _plot_shares(axes[1], domain, tuning.target)
    return figure


def _tuning_title(domain: DomainTuning, target: float) -> str:
    passing = f"{domain.current.share.value:.1%} pass at {domain.current.threshold}"
    if domain.proposal is None:
        return f"{domain.domain}: {passing}, and no threshold lets only {target:.0%} pass"
    return f"{domain.domain}: {passing}; at most {target:.0%} at {domain.proposal.passing.threshold}"


def _plot_scores(axes: Any, domain: DomainTuning) -> None:
    passing = [domain.traces * point.share.value for point in domain.grid]
    counts = [passing[at] - passing[at + 1] for at in range(len(THRESHOLD_GRID) - 2)] + [passing[-2]]
    axes.stairs(counts, THRESHOLD_GRID, fill=True, color=BLUE, alpha=0.8)
    axes.axvline(domain.current.threshold, color=GREY, linestyle="--", label="current threshold")
    if domain.proposal:
        axes.axvline(domain.proposal.passing.threshold, color=ORANGE, label="proposed")
    finish(axes, counted(domain.traces, "trace"), xlabel="score", ylabel="traces")


def _plot_shares(axes: Any, domain: DomainTuning, target: float) -> None:
    proposed = [domain.proposal.passing] if domain.proposal else []
    points = sorted([*domain.grid, *proposed], key=lambda point: point.threshold)
    shares = 100 * np.array([point.share for point in points])
    plot_with_interval(axes, [point.threshold for point in points], shares, "share")
    axes.axhline(100 * target, color=GREY, linewidth=0.8, linestyle=":", label=f"target {target:.0%}")
    if domain.proposal:
        needed = domain.proposal.needed
        axes.axvline(needed.value, color=ORANGE, label=f"proposed: {needed.value:.3f}")
        axes.axvspan(needed.low, needed.high, color=ORANGE, alpha=0.25, linewidth=0, label="its 95% interval")
    finish(axes, "share that passes", xlabel="threshold", ylabel="%", ylim=(0, 101))
