"""Tuning matches numpy."""

import json
import tomllib
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import REFERENCE_WEIGHTS, DomainPolicy, Policy
from knowledgepulse_worker.tools.policies.tune import proposed_toml, reweighted, tune, with_thresholds

CUSTOMER_SERVICE = np.array([0.20, 0.30, 0.20, 0.30])


@pytest.fixture(scope="module")
def tuning(reference_records):
    return tune(reference_records, Policy(), 0.1)


@pytest.fixture(scope="module")
def dimensions(reference_records):
    """Return the dimensions of the 140 customer_service traces."""
    return np.array([astuple(one.score.dimensions) for one in reference_records[:140]])


@pytest.fixture(scope="module")
def overridden(reference_records):
    """Return the contribution of the overrides to each of these traces."""
    added = {"single_tool": -0.1, "recovered": 0.1}
    return np.array([sum(added[name] for name in one.score.overrides) for one in reference_records[:140]])


def test_leaves_out_traces_that_the_policy_withholds(make_record):
    """They could not pass at any threshold, so the target is a share of the others."""
    guarded = Policy(contribute_visibility=["org"])
    scores = (0.2, 0.4, 0.6, 0.8)
    records = [
        make_record((score,) * 4, visibility=visibility)
        for score in scores
        for visibility in ("org", "private", "network")
    ]

    tuning = tune(records, guarded, 0.5)

    assert (tuning.domains["default"].traces, tuning.withheld) == (4, 8)
    assert tuning.proposed.profile("default").threshold == pytest.approx(0.6, abs=1e-4)
    assert tuning.proposed.visibilities == ("org",)
    assert 'contribute_visibility = [\n    "org",\n]' in proposed_toml(tuning)
    with pytest.raises(InputError, match="no scored traces to tune with: the policy withholds all 4"):
        tune(records[1::3], guarded, 0.5)


def test_describes_a_domain_by_its_own_traces(tuning, dimensions, overridden):
    domain = tuning.domains["customer_service"]
    scores = dimensions @ CUSTOMER_SERVICE + overridden

    assert list(tuning.domains) == ["code", "customer_service"]
    assert (domain.traces, tuning.domains["code"].traces) == (140, 14)
    assert domain.scores == pytest.approx(scores)
    assert domain.quantiles[0.5] == pytest.approx(np.median(scores))
    assert domain.quantiles[0.95] == pytest.approx(np.percentile(scores, 95))
    assert domain.current.share.value == np.mean(scores >= 0.75)
    assert [one.share.value for one in domain.grid] == [
        np.mean(scores >= threshold - 1e-12) for threshold in np.arange(21) / 20
    ]


def test_the_proposed_threshold_lets_the_target_share_pass(tuning, dimensions, overridden):
    scores = dimensions @ CUSTOMER_SERVICE + overridden
    proposal = tuning.domains["customer_service"].proposal

    assert proposal.needed.value == pytest.approx(np.sort(scores)[-14])
    assert 0 <= proposal.needed.value - proposal.passing.threshold < 1e-4
    assert proposal.passing.share.value == 14 / 140
    assert tuning.proposed.profile("customer_service").threshold == proposal.passing.threshold


@pytest.mark.parametrize(
    ("scores", "passing"),
    [
        ([n / 154 for n in range(154)], 15),  # 15.4 are a tenth
        ([0.9] * 8 + [0.8] * 22 + [0.5] * 70, 8),  # 30 would pass with the next ones
        ([0.5 + n / 10**7 for n in range(200)], 20),  # four decimals would let others pass
    ],
)
def test_a_tenth_is_no_more_than_a_tenth(make_record, scores, passing):
    records = [make_record((score,) * 4) for score in scores]

    proposed = Policy.model_validate(tomllib.loads(proposed_toml(tune(records, Policy(), 0.1)))["policy"])

    assert sum(one.under(proposed).decision == "contribute" for one in records) == passing


def test_losses_are_weights_times_missing_dimension_values(tuning, dimensions, overridden):
    scores = dimensions @ CUSTOMER_SERVICE + overridden
    lost = ((1 - dimensions) * CUSTOMER_SERVICE)[scores < 0.75]
    losses = tuning.domains["customer_service"].losses

    assert [one.mean for one in losses.values()] == pytest.approx(lost.mean(axis=0))
    assert losses["outcome_confidence"].largest == pytest.approx(np.mean(lost.argmax(axis=1) == 3))


def test_a_weights_sensitivity_is_the_change_of_the_share(tuning, dimensions, overridden):
    domain = tuning.domains["customer_service"]
    threshold = domain.proposal.passing.threshold
    heavier = np.array([0.20 * 0.65 / 0.7, 0.35, 0.20 * 0.65 / 0.7, 0.30 * 0.65 / 0.7])
    before = dimensions @ CUSTOMER_SERVICE + overridden >= threshold
    after = dimensions @ heavier + overridden >= threshold

    (found,) = [one for one in domain.sensitivities if (one.weight, one.by) == ("novelty", 0.05)]

    assert len(domain.sensitivities) == 8
    assert found.difference.value == pytest.approx(after.mean() - before.mean())
    assert found.difference.low <= found.difference.value <= found.difference.high


def test_tunes_under_the_given_policy(make_record):
    """Traces in a topic may have been scored under several policies."""
    records = [make_record(policy=Policy(threshold=0.1)), make_record()]

    tuning = tune(records, Policy(threshold=0.6), 0.5)

    assert tuning.domains["default"].current.threshold == 0.6
    assert tuning.domains["default"].traces == 2


def test_rejects_an_empty_input():
    with pytest.raises(InputError, match="no scored traces"):
        tune([], Policy(), 0.1)


def test_there_are_no_losses_if_all_traces_pass(make_record):
    assert tune([make_record((1, 1, 1, 1))], Policy(), 0.1).domains["default"].losses == {}


def test_the_report_is_json_without_the_scores(tuning):
    report = json.loads(json.dumps(tuning.as_dict()))
    assert report["policy"] == Policy().digest
    assert "scores" not in report["domains"]["code"]
    assert Policy.model_validate(report["proposed"]) == tuning.proposed


@given(
    st.sampled_from(list(REFERENCE_WEIGHTS)),
    st.sampled_from(["complexity", "novelty", "tool_diversity", "outcome_confidence"]),
    st.floats(-1, 1),
)
def test_changed_weights_sum_to_1_and_the_others_keep_their_proportions(domain, name, by):
    old = REFERENCE_WEIGHTS[domain].model_dump()

    new = reweighted(REFERENCE_WEIGHTS[domain], name, by).model_dump()

    assert sum(new.values()) == pytest.approx(1)
    assert new.pop(name) == pytest.approx(min(1, max(0, old.pop(name) + by)))
    for one, other in zip(list(new), list(new)[1:], strict=False):
        assert new[one] * old[other] == pytest.approx(new[other] * old[one])


def test_reducing_the_only_weight_raises_the_others_equally():
    only = REFERENCE_WEIGHTS["default"].model_validate(
        {"complexity": 1, "novelty": 0, "tool_diversity": 0, "outcome_confidence": 0}
    )
    assert reweighted(only, "complexity", -0.3).novelty == pytest.approx(0.1)


@given(st.dictionaries(st.sampled_from(["default", "code", "finance", "legal"]), st.floats(0, 1)))
def test_new_thresholds_do_not_change_other_domains(thresholds):
    """Domains without a threshold inherit `default`'s, which must not move them."""
    policy = Policy(threshold=0.7, domains={"legal": DomainPolicy(), "medical": DomainPolicy(threshold=0.8)})

    changed = with_thresholds(policy, thresholds)

    for name, profile in policy.profiles.items():
        assert changed.profile(name).threshold == thresholds.get(name, profile.threshold)
        assert changed.profile(name).weights == profile.weights
