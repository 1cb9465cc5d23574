"""Each dimension follows the reference's formula, from 0 to 1, and is monotonic as defined."""

import re
from dataclasses import fields
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.policy import DIMENSIONS
from knowledgepulse_worker.scoring import (
    Dimensions,
    Score,
    complexity,
    novelty,
    outcome_confidence,
    tool_diversity,
)

STEPS = st.builds(
    lambda kind, tool: f"{kind} {tool}".strip(),
    st.sampled_from(["thought", "tool_call", "observation", "error_recovery"]),
    st.sampled_from(["", "grep", "sed", "awk"]),
)
MANY_STEPS = st.lists(STEPS, min_size=1, max_size=120)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["thought"], 0.125 + 0.01),
        (["thought", "tool_call", "observation"], 0.375 + 0.03),
        (["error_recovery"], 0.125 + 0.3 + 0.01),
        (["error_recovery"] * 2, 0.125 + 0.3 + 0.02),
        (["thought", "tool_call", "observation", "error_recovery"], 0.5 + 0.3 + 0.04),
        (["thought"] * 20, 0.125 + 0.2),
        (["thought"] * 80, 0.125 + 0.8),  # the length alone has no cap
        (["thought"] * 100, 1.0),
    ],
)
def test_complexity_counts_types_recovery_and_length(make_trace, steps, expected):
    assert complexity(make_trace(*steps)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("similarity", "expected"),
    [(None, 0.5), (1.0, 0.0), (0.25, 0.75), (0.0, 1.0), (-0.4, 1.0), (1.0000002, 0.0)],
)
def test_novelty_is_the_distance_clamped_to_0_and_1(similarity, expected):
    assert novelty(similarity) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["thought"], 0.0),
        (["tool_call grep"], 1.0),
        (["tool_call grep", "thought", "thought"], 1.0),
        (["tool_call grep", "thought", "thought", "thought"], 0.75),
        (["tool_call grep", "observation grep"] * 3, 0.5),
        (["tool_call grep", "observation sed"] * 3, 1.0),
        (["tool_call grep", "tool_call Grep"] * 6, 0.5),
    ],
)
def test_tool_diversity_counts_distinct_names_for_each_step(make_trace, steps, expected):
    assert tool_diversity(make_trace(*steps)) == expected


@given(MANY_STEPS)
def test_a_new_tool_never_lowers_tool_diversity_and_a_step_without_one_never_raises_it(make_trace, steps):
    before = tool_diversity(make_trace(*steps))

    assert 0 <= tool_diversity(make_trace(*steps, "thought")) <= before
    assert before <= tool_diversity(make_trace(*steps, "tool_call make")) <= 1


@given(st.floats(0, 1))
def test_failure_leaves_three_tenths_of_the_confidence(make_trace, confidence):
    succeeded = outcome_confidence(make_trace("thought", confidence=confidence, success=True))
    failed = outcome_confidence(make_trace("thought", confidence=confidence, success=False))

    assert succeeded == confidence
    assert failed == pytest.approx(0.3 * confidence)


def test_all_places_name_the_dimensions_in_the_order_of_the_formula():
    page = resources.files("knowledgepulse_worker.http").joinpath("parts.js").read_text()
    (parts,) = re.findall(r"const PARTS = \{(.*)\};", page)

    assert tuple(field.name for field in fields(Dimensions)) == DIMENSIONS
    assert Score.__struct_fields__[1:][: len(DIMENSIONS)] == DIMENSIONS
    assert tuple(re.findall(r"(\w+):", parts)) == DIMENSIONS
