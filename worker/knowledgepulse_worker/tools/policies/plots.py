"""What the plots of the reports have in common; PNG or SVG, by the file's suffix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.terminal.printable import time_text
from knowledgepulse_worker.tools.policies.estimates import Array
from knowledgepulse_worker.tools.policies.tune import described, embedders_of
from knowledgepulse_worker.tools.terminal.lines import file_errors

with extra("policy"):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY, _SOFT = "#2f6fde", "#d9662b", "#6b717a", "#4a4f57"
_WIDTH, _ROW, _FOOT = 9.6, 3.6, 0.5
_DPI = 220


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file; raise an InputError if that fails."""
    with file_errors(path, "written"):
        figure.savefig(path, dpi=_DPI)


def what_is_plotted(policy: str, records: Sequence[ScoredRecord], left_out: str) -> str:
    """Say what the figures are of: a plot is read without its report."""
    stamps = [record.timestamp_ms for record in records if record.timestamp_ms is not None]
    first, last = (time_text(end(stamps, default=0)).partition("T")[0] for end in (min, max))
    period = f"; {first} to {last}" if stamps else ""
    about = f"policy {policy}; {described(embedders_of(records))}{period}"
    return f"{about}\nleft out: {left_out}" if left_out else about


def new_figure(titles: Sequence[str], about: str) -> tuple[Figure, list[Any]]:
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


def finish(axes: Any, title: str, **settings: Any) -> None:
    """Name axes, by default from 0 to 1, and put the legend below them, where there are no data."""
    axes.set(**{"xlim": (0, 1)} | settings)
    axes.set_title(title, fontsize="medium")
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)


def plot_with_interval(axes: Any, thresholds: Sequence[float], estimates: Array, label: str) -> None:
    """Plot estimates, shape (thresholds, 3), above their intervals."""
    values, low, high = estimates.reshape(-1, 3).T
    axes.plot(thresholds, values, color=BLUE, label=label)
    axes.fill_between(thresholds, low, high, color=BLUE, alpha=0.2, linewidth=0, label="its 95% interval")
