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
from knowledgepulse_worker.tools.policies.tune import proposed_toml, tune, with_changes
from knowledgepulse_worker.tools.terminal.reports import plain

CUSTOMER_SERVICE = np.array([0.20, 0.30, 0.20, 0.30])


@pytest.fixture(scope="module")
def tuning(reference_records):
    return tune(reference_records, Policy(), 0.1, by_threshold=True)


@pytest.fixture(scope="module")
def scores(reference_records):
    """Return the scores of the 140 customer_service traces."""
    added = {"single_tool": -0.1, "recovered": 0.1}
    scores = [record.score for record in reference_records[:140]]
    return np.array(
        [
            astuple(score.dimensions) @ CUSTOMER_SERVICE + sum(added[name] for name in score.overrides)
            for score in scores
        ]
    )


def test_leaves_out_traces_that_the_policy_withholds(make_record):
    """They could not pass at any threshold, so the target is a share of the others."""
    guarded = Policy(contribute_visibility=["org"])
    scores = (0.2, 0.4, 0.6, 0.8)
    records = [
        make_record((score,) * 4, visibility=visibility)
        for score in scores
        for visibility in ("org", "private", "network")
    ]

    tuning = tune(records, guarded, 0.5, by_threshold=True)

    assert (tuning.domains["default"].traces, tuning.withheld) == (4, 8)
    assert tuning.domains["default"].proposal.passing.threshold == pytest.approx(0.6, abs=1e-4)
    assert tuning.proposed.profile("default").share == 0.5
    assert tuning.proposed.contribute_visibility == ("org",)
    assert 'contribute_visibility = [\n    "org",\n]' in proposed_toml(tuning)
    with pytest.raises(InputError, match="no scored traces to tune with: the policy withholds all 4"):
        tune(records[1::3], guarded, 0.5, by_threshold=True)
    with pytest.raises(InputError, match="no scored traces"):
        tune([], Policy(), 0.1, by_threshold=True)


def test_describes_a_domain_by_its_own_traces_and_lets_the_target_share_pass(tuning, scores):
    domain = tuning.domains["customer_service"]

    assert list(tuning.domains) == ["code", "customer_service"]
    assert (domain.traces, tuning.domains["code"].traces) == (140, 14)
    assert domain.quantiles[0.5] == pytest.approx(np.median(scores))
    assert domain.quantiles[0.95] == pytest.approx(np.percentile(scores, 95))
    assert domain.current.share.value == np.mean(scores >= 0.75)
    assert [setting.share.value for setting in domain.grid] == [
        np.mean(scores >= threshold - 1e-12) for threshold in np.arange(21) / 20
    ]
    proposal = domain.proposal
    assert proposal.needed.value == pytest.approx(np.sort(scores)[-14])
    assert 0 <= proposal.needed.value - proposal.passing.threshold < 1e-4
    assert proposal.passing.share.value == 14 / 140
    assert tuning.proposed.profile("customer_service").threshold == proposal.passing.threshold
    report = json.loads(json.dumps(plain(tuning)))
    assert report["policy"] == Policy().digest
    assert Policy.model_validate(report["proposed"]) == tuning.proposed


@given(
    st.dictionaries(st.sampled_from(["default", "code", "finance", "legal"]), st.floats(0, 1)),
    st.dictionaries(
        st.sampled_from(["default", "code", "legal"]), st.sampled_from([*REFERENCE_WEIGHTS.values()])
    ),
)
def test_changes_do_not_change_other_domains(thresholds, weights):
    """Domains without a threshold or weights inherit `default`'s, which must not move them."""
    policy = Policy(threshold=0.7, domains={"legal": DomainPolicy(), "medical": DomainPolicy(threshold=0.8)})
    changes = {name: {"threshold": threshold} for name, threshold in thresholds.items()}
    for name, domain_weights in weights.items():
        changes[name] = {**changes.get(name, {}), "weights": domain_weights}

    changed = with_changes(policy, changes)

    for name, profile in policy.profiles.items():
        assert changed.profile(name).threshold == thresholds.get(name, profile.threshold)
        assert changed.profile(name).weights == weights.get(name, profile.weights)


@given(st.lists(st.floats(0, 1) | st.sampled_from([0.5, 0.1 + 0.2, 0.3]), min_size=1), st.floats(0.02, 1))
def test_the_proposal_passes_at_most_the_target_and_the_share_that_is_promised(make_record, scores, target):
    records = [make_record((score,) * 4) for score in scores]

    tuning = tune(records, Policy(), target, by_threshold=True)

    written = Policy.model_validate(tomllib.loads(proposed_toml(tuning))["policy"])
    domain = tuning.domains["default"]
    if domain.has_few:  # of which a threshold is a guess
        assert written.profile("default").share == target
    if domain.proposal is None:
        best = max(record.score.quality_score for record in records)
        assert sum(record.score.quality_score == best for record in records) > target * len(records)
    else:
        rule = {"threshold": domain.proposal.passing.threshold}
        assert domain.has_few or written.profile("default").rule == rule
        proposed = with_changes(Policy(), {"default": rule})
        passing = sum(record.under(proposed).decision == "contribute" for record in records)
        assert passing == round(domain.proposal.passing.share.value * len(records))
        assert passing <= target * len(records) + 1e-6


def test_a_share_is_proposed_unless_a_threshold_is_asked_for(reference_records):
    """It holds as the scores change, and with another embedder."""
    tuning = tune(reference_records, Policy(), 0.1)

    assert {domain.share for domain in map(tuning.proposed.profile, tuning.domains)} == {0.1}
    largest = max(tuning.domains.values(), key=lambda domain: domain.traces)
    best = f"share 0.1 passes the best {round(largest.traces / 10)}, here from "
    assert f"# {largest.domain}: of {largest.traces} traces, {best}" in proposed_toml(tuning)
