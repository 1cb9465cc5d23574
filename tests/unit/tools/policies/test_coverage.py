"""The groups that the passing traces cover."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.policies.coverage import coverage, expected_groups
from knowledgepulse_worker.tools.policies.evaluate import evaluate
from knowledgepulse_worker.tools.policies.labels import Label

# Three traces of one task, two of another, one of a third.
GROUPS = np.array([0, 0, 0, 1, 1, 2])


def covered(passing, novelty=(0.9, 0.8, 0.1, 0.7, 0.1, 0.1)):
    return coverage(np.isin(np.arange(6), passing), np.array(novelty), GROUPS)


def test_two_traces_of_one_task_cover_one_group():
    """Of the 15 pairs, 3 are of the first task alone and 1 of the second: 26 groups in 15 pairs."""
    found = covered([0, 1])

    assert (found.passing, found.groups, found.covered, found.perfect) == (2, 3, 1, 2)
    assert found.random == pytest.approx(26 / 15)
    assert found.gain.value == pytest.approx(15 / 26)
    assert found.novel == 1  # the two most novel are of the first task


def test_ties_of_novelty_are_drawn_at_random():
    """The fourth most novel is one of three that tie, one of a task that is not covered yet."""
    assert covered([0, 1, 2, 3]).novel == pytest.approx(2 + 1 / 3)


def test_none_passes():
    found = covered([])

    assert (found.covered, found.random, found.novel, found.perfect, found.gain) == (0, 0, 0, 0, None)


def test_the_interval_is_over_whole_groups():
    """Twenty tasks of five traces. One trace each of ten passes, or all five of each of two."""
    groups = np.repeat(np.arange(20), 5)
    spread, clumped = np.arange(100) % 5 == 0, groups < 2
    spread &= groups < 10

    far, near = (coverage(passes, np.zeros(100), groups).gain for passes in (spread, clumped))

    assert far.low > 1 > near.high
    assert near.low <= near.value <= near.high


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=8),
    st.data(),
)
def test_the_expected_number_is_the_mean_over_all_choices(rows, data):
    groups, values = (np.array(part) for part in zip(*rows, strict=True))
    count = data.draw(st.integers(0, len(rows)))
    choices = [*combinations(range(len(rows)), count)]
    best = max(sum(values[list(one)]) for one in choices)
    allowed = [list(one) for one in choices if sum(values[list(one)]) == best]

    expected = np.mean([len({*groups[one]}) for one in allowed])

    assert expected_groups(values, groups, count) == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.floats(0, 1)), min_size=1, max_size=60))
def test_nothing_covers_more_than_a_perfect_choice(rows):
    groups, passes, novelty = (np.array(part) for part in zip(*rows, strict=True))
    groups = np.unique(groups, return_inverse=True)[1]

    found = coverage(passes, novelty, groups)

    assert found.perfect == min(passes.sum(), found.groups)
    for number in (found.covered, found.random, found.novel):
        assert 0 <= number <= found.perfect + 1e-9
    everything = coverage(np.ones(len(rows), bool), novelty, groups)
    assert everything.covered == everything.groups == everything.random == pytest.approx(everything.novel)


def labelled(make_record, groups):
    records = [make_record((n / 40,) * 4, id=f"kp:trace:{n}") for n in range(40)]
    labels = {
        one.id: Label(one.id, keep=n % 3 == 0, group=group)
        for n, (one, group) in enumerate(zip(records, groups, strict=True))
    }
    return evaluate(records, labels, Policy(threshold=0.5)).domains["default"].current.coverage


def test_only_labels_with_a_group_count(make_record):
    """Traces from 20 on pass: four of ten tasks, and ten traces without a group."""
    groups = [n % 10 if n < 24 else None for n in range(40)]

    found = labelled(make_record, groups)

    assert (found.passing, found.groups, found.covered) == (4, 10, 4)


@pytest.mark.parametrize("groups", [[None] * 40, range(40)])
def test_there_is_no_coverage_unless_labels_share_a_group(make_record, groups):
    assert labelled(make_record, groups) is None
