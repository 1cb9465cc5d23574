"""Labels that say nothing about traces are not taken for labels that do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from knowledgepulse_worker.tools.policies import logistic
from knowledgepulse_worker.tools.policies.permutations import _fitted, _scaled, surprise, surprising

GIVEN = {"given": 9, "equal objective": 0, "similar words": 0, "alone": 0}
SURPRISING = surprising(GIVEN)


def test_groups_that_were_found_by_words_ask_for_more():
    assert pytest.approx(2.33, abs=0.01) == SURPRISING
    assert surprising(GIVEN | {"similar words": 2}) == pytest.approx(3.29, abs=0.01)


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
    return surprise(values, kept, group, np.ones(len(kept), bool))


def test_a_planted_signal_surprises():
    assert surprise_of(*drawn(0, steep=2.0)) > 2 * SURPRISING


def test_labels_that_say_nothing_seldom_surprise():
    """Though they depend on the task: of 100 draws, one is expected."""
    found = [surprise_of(*drawn(seed, of_task=9.0)) for seed in range(100)]

    assert sum(one > SURPRISING for one in found) <= 3
    assert np.mean(found) == pytest.approx(0, abs=0.4)


def test_only_checked_labels_count():
    values, kept, group = drawn(1, steep=2.0)
    checked = group < 15
    turned = np.where(checked, ~kept, kept)

    assert surprise(values, kept, group, checked) > SURPRISING
    assert surprise(values, turned, group, ~checked) > surprise(values, turned, group, checked)


def test_all_regressions_at_once_are_those_of_scikit_learn():
    values, kept, group = drawn(2, steep=1.0)
    folds = logistic.folds_of(group)
    tested = np.array([folds == one for one in range(5)])

    columns = _scaled(np.column_stack([*values.values()]), ~tested)
    weights = _fitted(columns, kept, ~tested)

    odds = np.einsum("fnp,fp->fn", columns, weights)[tested.argmax(axis=0), np.arange(len(kept))]
    assert odds == pytest.approx(logistic.out_of_fold(values, kept, folds), abs=5e-3)  # it rounds weights


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

    assert np.isfinite(surprise_of({"steps": column, "same": np.ones(len(rows))}, kept, group))
