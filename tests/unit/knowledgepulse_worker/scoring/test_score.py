"""The weighted sum, the weight profile, and the decision."""

import math
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Nearest, score_trace

FULL_MARKS = [
    "error_recovery",
    "observation",
    *["thought"] * 10,
    *(f"tool_call {name}" for name in "abcdefgh"),
]
WEIGHTS = {
    "default": (0.25, 0.35, 0.15, 0.25),
    "finance": (0.20, 0.25, 0.10, 0.45),
    "code": (0.20, 0.30, 0.30, 0.20),
    "medical": (0.15, 0.20, 0.10, 0.55),
    "customer_service": (0.20, 0.30, 0.20, 0.30),
}


@pytest.mark.parametrize(("domain", "weights"), WEIGHTS.items(), ids=WEIGHTS)
def test_the_score_is_the_sum_of_the_dimensions_with_the_domain_s_weights(make_trace, domain, weights):
    trace = make_trace(
        "thought a", "tool_call b", *["thought"] * 8, confidence=0.9, success=False, task_domain=domain
    )

    score = score_trace(trace, Nearest(0.2, "kp:trace:1"), Policy())

    dimensions = (0.25 + 0.1, 0.8, 0.6, 0.27)
    assert (score.complexity, score.novelty, score.tool_diversity, score.outcome_confidence) == (
        pytest.approx(dimensions)
    )
    assert score.quality_score == pytest.approx(sum(map(operator.mul, dimensions, weights)))
    assert (score.domain, score.nearest, score.overrides) == (domain, "kp:trace:1", ())


@pytest.mark.parametrize(("above", "decision"), [(False, "contribute"), (True, "rejected")])
def test_a_score_equal_to_the_threshold_is_contributed(make_trace, above, decision):
    trace = make_trace("tool_call", "observation")
    reached = score_trace(trace, None, Policy()).quality_score
    threshold = math.nextafter(reached, 1) if above else reached

    score = score_trace(trace, None, Policy(threshold=threshold))

    assert (score.quality_score, score.threshold, score.decision) == (reached, threshold, decision)


@pytest.mark.parametrize(
    ("metadata", "threshold", "withheld", "decision"),
    [
        ({"visibility": "org"}, 0, None, "contribute"),
        ({"visibility": "private"}, 0, "visibility", "rejected"),
        ({"visibility": "org"}, 1, None, "rejected"),
        ({"visibility": "private"}, 1, "visibility", "rejected"),
        ({"privacy_level": "federated"}, 0, "privacy_level", "rejected"),
        ({"privacy_level": "private"}, 1, "privacy_level", "rejected"),
        ({"privacy_level": "private", "visibility": "private"}, 0, "visibility", "rejected"),
    ],
)
def test_what_a_guard_of_the_policy_does_not_list_is_withheld_whatever_its_score(
    make_trace, metadata, threshold, withheld, decision
):
    policy = Policy(
        threshold=threshold,
        contribute_visibility=["org", "network"],
        contribute_privacy_level=["aggregated"],
    )

    score = score_trace(make_trace("tool_call", **metadata), None, policy)

    assert (score.withheld, score.decision, score.passes) == (withheld, decision, threshold == 0)


@given(st.lists(st.integers(0, 10**6), min_size=4, max_size=4).filter(any))
def test_a_score_is_never_above_1(make_trace, parts):
    """Weights are accepted if they sum to 1 within rounding; even so a perfect score must not exceed 1."""
    names = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
    weights = {name: part / sum(parts) for name, part in zip(names, parts, strict=True)}
    weights["complexity"] = min(1.0, weights["complexity"] + 9e-10)
    policy = Policy.model_validate({"domains": {"default": {"weights": weights}}})
    trace = make_trace(*FULL_MARKS, confidence=1)

    score = score_trace(trace, Nearest(0.0, None), policy)

    assert (score.complexity, score.novelty, score.tool_diversity, score.outcome_confidence) == (1, 1, 1, 1)
    assert score.overrides == ()
    assert 0 <= score.quality_score <= 1
