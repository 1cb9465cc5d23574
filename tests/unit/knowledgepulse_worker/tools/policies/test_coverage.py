"""The groups that the passing traces cover."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.policies.evaluate import evaluate
from knowledgepulse_worker.tools.policies.labels import Label
from knowledgepulse_worker.tools.policies.thresholds import coverage

# Three traces of one task, two of another, one of a third.
GROUPS = np.array([0, 0, 0, 1, 1, 2])


def covered(passing):
    return coverage(np.isin(np.arange(6), passing), GROUPS)


def test_two_traces_of_one_task_cover_one_group():
    """Of the 15 pairs, 3 are of the first task alone and 1 of the second: 26 groups in 15 pairs."""
    found = covered([0, 1])

    assert (found.passing, found.groups, found.covered) == (2, 3, 1)
    assert found.random == pytest.approx(26 / 15)
    assert found.gain.value == pytest.approx(15 / 26)


def test_none_passes():
    found = covered([])

    assert (found.covered, found.random, found.gain) == (0, 0, None)


def test_the_interval_is_over_whole_groups():
    """Twenty tasks of five traces. One trace each of ten passes, or all five of each of two."""
    groups = np.repeat(np.arange(20), 5)
    spread, clumped = np.arange(100) % 5 == 0, groups < 2
    spread &= groups < 10

    far, near = (coverage(passes, groups).gain for passes in (spread, clumped))

    assert far.low > 1 > near.high
    assert near.low <= near.value <= near.high


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=8))
def test_the_expected_number_is_the_mean_over_all_choices(rows):
    groups, passes = (np.array(part) for part in zip(*rows, strict=True))
    groups = np.unique(groups, return_inverse=True)[1]
    found = coverage(passes, groups)

    choices = combinations(groups, int(passes.sum()))

    assert found.random == pytest.approx(np.mean([len({*one}) for one in choices]))
    assert found.covered <= min(passes.sum(), found.groups)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        # Traces from 20 on pass: four of ten tasks, and ten traces without a group.
        ([n % 10 if n < 24 else None for n in range(40)], (4, 10, 4)),
        ([None] * 40, None),
        (range(40), None),
    ],
)
def test_only_labels_that_share_a_group_count(make_record, groups, expected):
    records = [make_record((n / 40,) * 4, id=f"kp:trace:{n}") for n in range(40)]
    labels = {
        one.id: Label(one.id, keep=n % 3 == 0, group=group)
        for n, (one, group) in enumerate(zip(records, groups, strict=True))
    }

    found = evaluate(records, labels, Policy(threshold=0.5)).domains["default"].current.coverage

    assert (found and (found.passing, found.groups, found.covered)) == expected
