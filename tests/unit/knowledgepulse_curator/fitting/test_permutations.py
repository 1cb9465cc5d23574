"""Labels that say nothing about traces are not taken for labels that do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import Ridge

from knowledgepulse_curator.fitting import logistic, permutations
from knowledgepulse_curator.fitting.permutations import (
    DIVISIONS,
    RIDGE_PENALTY,
    _orders,
    _permuted,
    level,
    scaled,
    surprise,
)

GIVEN = {"given": 9, "equal objective": 0, "similar words": 0, "alone": 0}


def test_groups_that_were_found_by_words_ask_for_more():
    assert level(GIVEN) == 0.99
    assert level(GIVEN | {"similar words": 2}) == 0.9995


def drawn(seed, *, groups=30, each=4, steep=0.0, of_task=0.0):
    """Return values, of which the runs of a task have similar ones, labels and groups."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), each)
    columns = rng.normal(size=(groups, 4))[group] + rng.normal(size=(len(group), 4))
    odds = steep * columns[:, 0] + of_task * rng.normal(size=groups)[group]
    return (
        dict(zip(("steps", "calls", "tools", "asks"), columns.T, strict=True)),
        rng.random(len(group)) < expit(odds),
        group,
    )


def surprise_of(values, kept, group):
    return surprise(scaled(values), kept, group, np.ones(len(kept), bool))


def test_a_planted_signal_surprises():
    assert surprise_of(*drawn(0, steep=2.0)) >= level(GIVEN | {"similar words": 2})


def test_a_planted_signal_of_many_columns_surprises():
    """As many as words have: more than traces."""
    values, kept, group = drawn(0, steep=2.0)
    columns = np.hstack([scaled(values), np.random.default_rng(0).normal(size=(len(kept), 300))])

    assert surprise(columns, kept, group, np.ones(len(kept), bool)) >= level(GIVEN)


@pytest.mark.slow
def test_labels_that_say_nothing_seldom_surprise():
    """Though they depend on the task: of 40 draws, less than one is expected."""
    found = [surprise_of(*drawn(seed, of_task=9.0)) for seed in range(40)]

    assert sum(value >= level(GIVEN) for value in found) <= 2
    assert np.mean(found) == pytest.approx(0.5, abs=0.12)


def test_only_checked_labels_count():
    values, kept, group = drawn(1, steep=2.0)
    checked = group < 15
    turned = np.where(checked, ~kept, kept)

    assert surprise(scaled(values), kept, group, checked) >= level(GIVEN)
    assert surprise(scaled(values), turned, group, ~checked) > surprise(
        scaled(values), turned, group, checked
    )


def test_groups_exchange_their_labels_whole():
    group = np.array([2, 0, 1, 0, 2, 1, 2, 0])
    kept = group == 1

    (permuted,) = _permuted(kept, group)

    alike = [
        (permuted[:, group == number] == permuted[:, group == number][:, :1]).all() for number in range(3)
    ]
    assert all(alike)
    assert permuted[:, group == 1].mean() == pytest.approx(1 / 3, abs=0.05)
    assert (permuted.any(axis=1)).all()


def test_a_larger_group_repeats_the_labels_of_a_smaller_one():
    group = np.array([0, 1, 1, 1, 1])
    kept = np.array([True, True, False, False, False])

    (permuted,) = _permuted(kept, group)

    assert {*permuted[:, 1:].sum(axis=1).tolist()} == {1, 4}


def test_all_regressions_at_once_are_ridge_regressions_of_the_other_folds():
    values, kept, group = drawn(2, steep=1.0)
    columns = scaled(values)

    (order,) = _orders(columns, kept[None].astype(float), group)

    expected = np.zeros(len(kept))
    for seed in range(DIVISIONS):
        folds = logistic.folds_of(group, seed)
        for fold in range(folds.max() + 1):
            at = folds == fold
            told = kept[~at] - kept[~at].mean()
            model = Ridge(RIDGE_PENALTY, fit_intercept=False).fit(columns[~at], told)
            expected[at] += model.predict(columns[at])
    assert order == pytest.approx(expected)


def test_many_labels_are_permuted_in_blocks(monkeypatch):
    """Else they would take gigabytes."""
    values, kept, group = drawn(3, steep=1.0)
    monkeypatch.setattr(permutations, "_MAX_CELLS", 300 * len(kept))

    assert [len(block) for block in _permuted(kept, group)] == [300] * 6 + [200]
    assert surprise_of(values, kept, group) >= level(GIVEN)


def test_a_value_that_does_not_vary_says_nothing():
    values, kept, group = drawn(2, steep=1.0)

    assert surprise_of(values | {"asks": np.ones(len(kept))}, kept, group) == surprise_of(
        {name: values[name] for name in values if name != "asks"}, kept, group
    )


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, 1e6, 1e-200]), st.integers(0, 3), st.booleans()),
        min_size=2,
        max_size=20,
    )
)
def test_any_labels_have_a_finite_surprise(rows):
    column, group, kept = (np.array(part) for part in zip(*rows, strict=True))
    group = np.unique(group, return_inverse=True)[1]
    if group.max() == 0:
        return

    assert 0 <= surprise_of({"steps": column, "same": np.ones(len(rows))}, kept, group) < 1
