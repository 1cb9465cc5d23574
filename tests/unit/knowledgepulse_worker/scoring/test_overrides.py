"""The overrides, each alone and in the reference's order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.scoring import apply_overrides, overrides_of

RECOVERIES = ["error_recovery"] * 3


def overridden(score, trace):
    """Return the score after a trace's overrides, and their names."""
    names = overrides_of(trace)
    return apply_overrides(score, names), names


@given(st.floats(0, 1))
def test_a_single_thought_scores_0_1_whatever_its_dimensions(make_trace, score):
    assert overridden(score, make_trace("thought")) == (0.1, ("single_thought",))


@pytest.mark.parametrize("steps", [["tool_call"], ["observation"], ["error_recovery"], ["thought"] * 2])
def test_anything_but_a_single_thought_keeps_its_score(make_trace, steps):
    assert overridden(0.6, make_trace(*steps)) == (0.6, ())


@pytest.mark.parametrize(
    ("recoveries", "success", "expected"),
    [(2, True, 0.6), (3, True, 0.7), (4, True, 0.7), (3, False, 0.6)],
)
def test_more_than_two_recoveries_count_when_the_task_succeeded(make_trace, recoveries, success, expected):
    trace = make_trace(*["error_recovery"] * recoveries, success=success)

    score, names = overridden(0.6, trace)

    assert score == pytest.approx(expected)
    assert names == (("recovered",) if expected > 0.6 else ())


def test_recovery_does_not_lift_a_score_above_1(make_trace):
    assert overridden(0.95, make_trace(*RECOVERIES)) == (1.0, ("recovered",))


@pytest.mark.parametrize(
    ("steps", "expected", "names"),
    [
        (["thought", "thought"], 0.6, ()),
        (["tool_call grep"], 0.5, ("single_tool",)),
        (["tool_call grep", "observation grep", "tool_call grep"], 0.5, ("single_tool",)),
        (["thought", "observation grep"], 0.5, ("single_tool",)),
        (["tool_call grep", "tool_call sed"], 0.6, ()),
    ],
)
def test_a_single_tool_costs_a_tenth(make_trace, steps, expected, names):
    score, applied = overridden(0.6, make_trace(*steps))

    assert score == pytest.approx(expected)
    assert applied == names


def test_a_single_tool_does_not_take_a_score_below_0(make_trace):
    assert overridden(0.05, make_trace("tool_call grep")) == (0.0, ("single_tool",))


def test_a_single_thought_with_a_tool_scores_0(make_trace):
    assert overridden(0.9, make_trace("thought grep")) == (0.0, ("single_thought", "single_tool"))


def test_recovery_is_capped_before_the_single_tool_penalty(make_trace):
    """In the other order, 0.95 would stay 0.95."""
    score, names = overridden(0.95, make_trace(*RECOVERIES, "tool_call grep"))

    assert score == pytest.approx(0.9)
    assert names == ("recovered", "single_tool")


@given(st.floats(0, 1), st.booleans(), st.lists(st.sampled_from(["thought", "error_recovery", "thought x"])))
def test_a_score_stays_within_0_and_1(make_trace, score, success, steps):
    result, _ = overridden(score, make_trace("error_recovery", *steps, success=success))

    assert 0 <= result <= 1
