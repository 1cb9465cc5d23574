"""The overrides, each alone and in the reference's order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.scoring import apply_overrides, overrides_of, shape_of

RECOVERIES = ["error_recovery"] * 3


def overridden(score, trace):
    """Return the score after a trace's overrides, and their names."""
    names = overrides_of(shape_of(trace), success=trace.metadata.success)
    return apply_overrides(score, names), names


@given(st.floats(0, 1))
def test_a_single_thought_scores_0_1_whatever_its_dimensions(make_trace, score):
    assert overridden(score, make_trace("thought")) == (0.1, ("single_thought",))


@pytest.mark.parametrize(
    ("score", "steps", "after", "names"),
    [
        *((0.6, [kind], 0.6, ()) for kind in ("tool_call", "observation", "error_recovery")),
        (0.6, ["thought", "thought"], 0.6, ()),
        (0.6, RECOVERIES[:2], 0.6, ()),
        (0.6, RECOVERIES, 0.7, ("recovered",)),
        (0.6, [*RECOVERIES, "error_recovery"], 0.7, ("recovered",)),
        (0.95, RECOVERIES, 1.0, ("recovered",)),
        (0.6, ["tool_call grep"], 0.5, ("single_tool",)),
        (0.6, ["tool_call grep", "observation grep", "tool_call grep"], 0.5, ("single_tool",)),
        (0.6, ["thought", "observation grep"], 0.5, ("single_tool",)),
        (0.6, ["tool_call grep", "tool_call sed"], 0.6, ()),
        (0.05, ["tool_call grep"], 0.0, ("single_tool",)),
        (0.9, ["thought grep"], 0.0, ("single_thought", "single_tool")),
        # Capped before the penalty: in the other order, 0.95 would stay 0.95.
        (0.95, [*RECOVERIES, "tool_call grep"], 0.9, ("recovered", "single_tool")),
    ],
)
def test_the_overrides_of_a_trace_that_succeeded(make_trace, score, steps, after, names):
    assert overridden(score, make_trace(*steps)) == (pytest.approx(after), names)


def test_recoveries_of_a_trace_that_failed_do_not_count(make_trace):
    assert overridden(0.6, make_trace(*RECOVERIES, success=False)) == (0.6, ())


@given(st.floats(0, 1), st.booleans(), st.lists(st.sampled_from(["thought", "error_recovery", "thought x"])))
def test_a_score_stays_within_0_and_1(make_trace, score, success, steps):
    result, _ = overridden(score, make_trace("error_recovery", *steps, success=success))

    assert 0 <= result <= 1
