"""Rescoring from the dimensions equals scoring the trace."""

from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.policy import PRIVACY_LEVELS, VISIBILITIES
from knowledgepulse_worker.scoring import Nearest, rescore, score_trace
from support.drawn_policies import DOMAINS, POLICIES

UNIT = st.floats(0, 1)
STEPS = ["thought", "tool_call a", "tool_call b", "observation", "error_recovery"]


@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=6),
    confidence=UNIT,
    success=st.booleans(),
    domain=DOMAINS,
    guarded=st.tuples(st.sampled_from(VISIBILITIES), st.sampled_from(PRIVACY_LEVELS)),
    nearest=st.none() | st.builds(Nearest, st.floats(-1, 1), st.just("kp:trace:1")),
    scored_under=POLICIES,
    policy=POLICIES,
)
def test_a_rescored_trace_equals_one_scored_under_that_policy(
    make_trace, steps, confidence, success, domain, guarded, nearest, scored_under, policy
):
    """Exactly, and also under the same policy: evaluation over history must agree with the worker."""
    visibility, privacy_level = guarded
    trace = make_trace(
        *steps, confidence=confidence, success=success, task_domain=domain, visibility=visibility,
        privacy_level=privacy_level,
    )  # fmt: skip
    score = score_trace(trace, nearest, scored_under)

    assert rescore(score, trace.metadata, policy) == score_trace(trace, nearest, policy)
    assert rescore(score, trace.metadata, scored_under) == score
