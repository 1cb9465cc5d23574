"""A plot is read without its report: it says what was found, in what, and what it leaves out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.text import Text

from knowledgepulse_curator.fitting.evaluate import evaluate
from knowledgepulse_curator.fitting.plots import plot_evaluation
from knowledgepulse_curator.labels.labels import labels_of_files
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.policies.tune import tune
from knowledgepulse_worker.tools.policies.tune_plot import plot_tuning
from support.traces import LABELS

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def records(reference_records):
    """Return the real traces, of the first two days of 1970."""
    return [
        replace(record, timestamp_ms=number % 2 * DAY_MS, embedder="a $model$")
        for number, record in enumerate(reference_records)
    ]


@pytest.fixture(scope="module")
def evaluation_plot(records):
    labels = {label.id: label for label in labels_of_files([LABELS])}
    return plot_evaluation(evaluate(records, labels, Policy()), records)


@pytest.fixture(scope="module")
def tuning_plot(records):
    return plot_tuning(tune(records, Policy(), 0.1), records)


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text)]


def axes_of(figure):
    return [axis for part in figure.subfigs for axis in part.axes]


def titles(figure):
    return [part.get_suptitle() for part in figure.subfigs if part.get_suptitle()]


def test_the_titles_are_the_findings(evaluation_plot, tuning_plot):
    assert titles(evaluation_plot) == [
        "customer_service: without what contains the label, the score is no better than chance",
        "all domains: without what contains the label, the score is no better than chance",
    ]
    assert titles(tuning_plot) == [
        "code: 7.1% pass at 0.75; at most 10% at 0.8175",
        "customer_service: 0.0% pass at 0.75; at most 10% at 0.5031",
    ]


def test_a_corner_says_what_the_figures_are_of_and_what_is_left_out(evaluation_plot, tuning_plot):
    about = f"policy {Policy().digest}; a $model$ (154 traces); 1970-01-01 to 1970-01-02"
    assert about in texts(tuning_plot)
    assert f"{about}\nleft out: code, where all 14 labels are equal" in texts(evaluation_plot)


def test_no_legend_covers_the_data(evaluation_plot, tuning_plot):
    for figure in (evaluation_plot, tuning_plot):
        figure.draw_without_rendering()
        for axes in axes_of(figure):
            assert not axes.get_legend().get_window_extent().overlaps(axes.get_window_extent())
