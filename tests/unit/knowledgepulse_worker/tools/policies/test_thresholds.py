"""A threshold that is rounded_threshold as printed passes the traces that were promised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.tools.policies.tune import lowest_within, rounded_threshold

SCORES = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.5, 0.50001, 0.1 + 0.2, 0.3])), min_size=1)


@pytest.mark.parametrize(
    ("scores", "lowest", "threshold"),
    [
        ([0.704321, 0.5], 0.704321, 0.7043),
        ([0.412346, 0.41233], 0.412346, 0.41234),  # 0.4123 would pass both
        ([0.1 + 0.2, 0.3], 0.1 + 0.2, 0.30000000000000004),
        ([0.6, 0.6, 0.5], 0.6, 0.6),
        ([0.0, 0.0], 0.0, 0.0),
    ],
)
def test_a_threshold_has_as_few_decimals_as_it_may(scores, lowest, threshold):
    assert rounded_threshold(np.array(scores), lowest) == threshold


@given(SCORES, st.data())
def test_exactly_the_scores_from_the_lowest_on_reach_it(scores, data):
    lowest = data.draw(st.sampled_from(scores))

    printed = repr(rounded_threshold(np.array(scores), lowest))

    assert [score >= float(printed) for score in scores] == [score >= lowest for score in scores]


@pytest.mark.parametrize(
    ("scores", "target", "expected"),
    [
        ([0.1, 0.2, 0.3, 0.4], 0.5, (0.3, 2)),
        ([0.1, 0.2, 0.3, 0.4], 0.7, (0.3, 2)),
        ([0.1, 0.2, 0.3, 0.4], 0.1, None),  # one would be a quarter
        ([0.5, 0.5, 0.5, 0.1], 0.5, None),  # no threshold passes two of them
        ([0.9, 0.5, 0.5, 0.1], 0.5, (0.9, 1)),
        ([0.1, 0.2], 1, (0.1, 2)),
    ],
)
def test_at_most_the_target_share_passes(scores, target, expected):
    assert lowest_within(np.array(scores), target) == expected


@pytest.mark.parametrize(("count", "target"), [(100, 0.07), (100, 0.29), (200, 0.1), (1000, 0.001)])
def test_a_share_that_is_a_whole_number_of_traces_is_reached(count, target):
    assert lowest_within(np.arange(count) / count, target)[1] == round(count * target)
