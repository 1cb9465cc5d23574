"""What labels certify, and how often that is false."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from knowledgepulse_curator.promises.certificate import (
    ERROR,
    SHARES,
    Evidence,
    asked_of_feedback,
    evidence,
    fewest,
    floor,
    labels_needed,
    p_value,
    widest,
)

EVERY = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


@given(EVERY, st.floats(0.05, 0.95))
def test_a_floor_is_the_largest_part_that_the_test_does_not_reject(numbers, least):
    labels, kept = numbers
    told = Evidence(kept, labels)
    assert (floor(told) >= least) == (p_value(told, least) <= ERROR)
    if kept:
        exact = stats.binomtest(kept, labels, alternative="greater").proportion_ci(0.9, method="exact")
        assert floor(told) == pytest.approx(exact.low)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 8)), min_size=1, max_size=60))
def test_labels_of_shared_tasks_never_tell_more_than_independent_ones(rows):
    kept, tasks = np.array([keep for keep, _ in rows]), np.array([task for _, task in rows])
    told = evidence(kept, tasks)
    assert told.labels <= len(rows)
    assert told.kept * len(rows) <= told.labels * kept.sum() or told.kept == told.labels
    assert floor(told) <= floor(Evidence(int(kept.sum()), len(rows))) + 0.05


def test_the_fewest_labels_that_promise_a_part():
    assert fewest(0.8) == 26
    assert [labels_needed(rate, 0.8, ERROR) for rate in (0.85, 0.9, 0.95)] == [264, 63, 25]
    assert labels_needed(0.8, 0.8) is labels_needed(0.7, 0.8) is None


def test_feedback_that_comes_more_often_for_good_runs_is_asked_more():
    assert asked_of_feedback(0.8, 2) == pytest.approx(0.8889, abs=1e-4)
    assert asked_of_feedback(0.8, 1) == pytest.approx(0.8)
    assert asked_of_feedback(0.8, 0.5) < 0.8


def sequence(places):
    """Return which traces pass by each share, by their places from 0 to 1 in the order of their ranks."""
    return np.array([places <= share for share in SHARES])


def test_all_is_promised_where_all_labels_are_kept_and_nothing_where_none_is():
    places, tasks = (np.arange(40) + 0.5) / 40, np.arange(40)
    assert widest(np.ones(40, bool), tasks, sequence(places), 0.8)[0] == len(SHARES) - 1
    assert widest(np.zeros(40, bool), tasks, sequence(places), 0.8)[0] is None


def test_at_the_exact_edge_a_promise_is_false_in_no_more_than_12_of_100():
    """Exactly 80% are kept at every share; tasks of four runs that mostly end alike, drawn whole."""
    rng, false, draws = np.random.default_rng(1), 0, 400
    for _ in range(draws):
        rates = rng.beta(0.8, 0.2, 40)
        kept, tasks = (rng.random((40, 4)) < rates[:, None]).ravel(), np.repeat(np.arange(40), 4)
        false += widest(kept, tasks, sequence(rng.random(160)), 0.8)[0] is not None
    assert false / draws <= 0.12


def test_labels_taken_as_independent_would_break_more(monkeypatch):
    """The design effect is what holds the error: without it, one share alone is false too often."""
    rng, false = np.random.default_rng(2), {"independent": 0, "tasks": 0}
    for _ in range(400):
        rates = rng.beta(0.8, 0.2, 40)
        kept, tasks = (rng.random((40, 4)) < rates[:, None]).ravel(), np.repeat(np.arange(40), 4)
        false["independent"] += p_value(Evidence(int(kept.sum()), 160), 0.8) <= ERROR
        false["tasks"] += p_value(evidence(kept, tasks), 0.8) <= ERROR
    assert false["tasks"] / 400 <= 0.12 < false["independent"] / 400
