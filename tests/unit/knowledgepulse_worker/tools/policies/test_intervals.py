"""Closed-form intervals match drawn bootstraps."""

import numpy as np
import pytest

from knowledgepulse_worker.tools.policies.estimates import (
    RESAMPLES,
    kth_largest,
    percentiles,
    resampled_counts,
    share,
)


@pytest.fixture
def scores():
    return np.random.default_rng(1).beta(4, 5, size=140)


def drawn(values, statistic, times=20_000):
    rng = np.random.default_rng(2)
    resamples = values[rng.integers(0, len(values), size=(times, len(values)))]
    return np.quantile(statistic(resamples), [0.025, 0.975])


@pytest.mark.parametrize("k", [1, 2, 14, 70, 140])
def test_the_interval_of_the_kth_largest_matches_a_bootstrap(scores, k):
    value, low, high = kth_largest(scores, k)

    expected = drawn(scores, lambda resamples: np.sort(resamples)[:, -k])
    assert value == sorted(scores)[-k]
    assert (low, high) == pytest.approx(expected, abs=0.006)


def test_equal_scores_have_an_empty_interval():
    assert kth_largest(np.full(10, 0.5), 3) == (0.5, 0.5, 0.5)


def test_a_share_of_zero_has_a_positive_upper_bound():
    """A bootstrap of ten traces that all fail would give 0 to 0."""
    assert share(0, 10) == pytest.approx((0, 0, 0.2775), abs=1e-3)
    assert share(10, 10)[:2] == pytest.approx((1, 0.7225), abs=1e-3)


def test_members_of_a_group_are_drawn_together():
    groups = np.array([0, 0, 1, 2, 2, 2])

    counts = np.concatenate([*resampled_counts(groups)])

    assert counts.shape == (RESAMPLES, 6)
    assert (counts[:, 0] == counts[:, 1]).all()
    assert (counts[:, 3] == counts[:, 5]).all()
    assert (counts[:, [0, 2, 3]].sum(axis=1) == 3).all()


def test_ignores_nan_resamples():
    assert percentiles(0.5, np.array([np.nan, 0.5, np.nan])) == (0.5, 0.5, 0.5)
    assert np.isnan(percentiles(0.5, np.array([np.nan, np.nan]))[1:]).all()


def test_a_million_traces_are_resampled_in_blocks_of_bounded_size():
    """A block of all resamples would take 8 GB."""
    block = next(resampled_counts(np.arange(1_000_000)))

    assert block.nbytes <= 16_000_000
