"""The policy: each domain's weights and threshold, and the equality of policies."""

import datetime
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from knowledgepulse_worker.policy import (
    LAST_POLICIES,
    MAX_DOMAINS,
    PRIVACY_LEVELS,
    REFERENCE_WEIGHTS,
    VISIBILITIES,
    FitOrigin,
    Policy,
    PolicyInForce,
    are_of_one_policy,
    begun_anew,
    by_digest,
    is_digest_of,
)

NAMES = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
ALL_NOVELTY = {"complexity": 0, "novelty": 1, "tool_diversity": 0, "outcome_confidence": 0}
ALL_OUTCOME = {"complexity": 0, "novelty": 0, "tool_diversity": 0, "outcome_confidence": 1}


def policy(threshold: float = 0.75, **domains: object) -> Policy:
    return Policy.model_validate({"threshold": threshold, "domains": domains})


def weights_of(a_policy: Policy, domain: str) -> dict[str, float]:
    return a_policy.profile(domain).weights.model_dump()


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_weights_must_sum_to_1(weights):
    assume(abs(sum(weights) - 1) > 1e-8)

    with pytest.raises(ValidationError, match="the weights must sum to 1"):
        policy(x={"weights": dict(zip(NAMES, weights, strict=True))})


def test_weights_that_sum_to_1_but_for_rounding_are_accepted():
    policy(x={"weights": dict(zip(NAMES, (0.1, 0.2, 0.3, 0.4), strict=True))})
    policy(x={"weights": dict(zip(NAMES, (0.7, 0.1, 0.1, 0.1), strict=True))})


@pytest.mark.parametrize(
    "domain",
    [
        {"weights": ALL_NOVELTY | {"novelty": 2, "complexity": -1}},
        {"weights": dict.fromkeys(NAMES[:3], 0.25)},
        {"weights": ALL_NOVELTY | {"novlty": 0}},
        {"threshold": 1.01},
        {"threshold": -0.01},
        {"treshold": 0.5},
    ],
)
def test_an_invalid_policy_is_rejected(domain):
    with pytest.raises(ValidationError):
        policy(x=domain)


def test_a_domain_inherits_omitted_weights_from_the_reference_else_from_default():
    changed = policy(default={"weights": ALL_NOVELTY}, finance={"threshold": 0.5}, legal={"threshold": 0.6})

    assert weights_of(changed, "finance") == REFERENCE_WEIGHTS["finance"].model_dump()
    assert weights_of(changed, "legal") == ALL_NOVELTY
    assert weights_of(changed, "not named") == ALL_NOVELTY
    assert changed.profile("finance").threshold == 0.5
    assert changed.profile("legal").threshold == 0.6


@pytest.mark.parametrize(("default", "inherited"), [({}, 0.3), ({"threshold": 0.4}, 0.4)])
def test_a_domain_inherits_an_omitted_threshold_from_default_or_else_the_policy(default, inherited):
    changed = policy(0.3, default=default, legal={"weights": ALL_OUTCOME}, finance={"threshold": 0})

    found = [changed.profile(name).threshold for name in ("legal", "not named", "finance")]
    assert found == [inherited, inherited, 0]


@pytest.mark.parametrize("task_domain", ["Legal", "LEGAL", "legal ", " legal", "lega", ""])
def test_a_domain_is_matched_exactly(task_domain):
    assert policy(legal={"threshold": 0.6}).profile(task_domain).domain == "default"


DOMAINS = {
    "default": {"threshold": 0.7, "weights": ALL_NOVELTY},
    "finance": {"threshold": 0.5},
    "legal": {"weights": ALL_OUTCOME},
    "hr": {"threshold": 0.1, "weights": ALL_OUTCOME},
}


@given(st.permutations(list(DOMAINS)), st.permutations(NAMES))
def test_the_digest_does_not_depend_on_the_order_of_the_policy_s_members(domains, names):
    reordered = {}
    for name in domains:
        domain = dict(reversed(DOMAINS[name].items()))
        if "weights" in domain:
            domain["weights"] = {weight: domain["weights"][weight] for weight in names}
        reordered[name] = domain

    assert policy(**reordered).digest == policy(**DOMAINS).digest


def test_the_digest_ignores_members_without_effect():
    written_out = {name: {"weights": weights.model_dump()} for name, weights in REFERENCE_WEIGHTS.items()}

    assert policy(**written_out).digest == Policy().digest


@pytest.mark.parametrize("domain", [*REFERENCE_WEIGHTS, "legal"])
@pytest.mark.parametrize("change", ["threshold", *NAMES])
def test_the_digest_changes_with_every_threshold_and_weight(domain, change):
    before = policy(legal={"threshold": 0.75})
    weights = weights_of(before, domain)
    if change == "threshold":
        changed = {"threshold": 0.7500001}
    else:
        other = "novelty" if change != "novelty" else "complexity"
        changed = {"weights": weights | {change: weights[change] + 1e-6, other: weights[other] - 1e-6}}

    after = policy(**{"legal": {"threshold": 0.75}} | {domain: changed})

    assert after.digest != before.digest


def test_a_domain_whose_name_looks_like_another_domain_changes_the_digest():
    """Up to 0.3.0 it did not: such an edit was not loaded, and the audit failed."""
    two = {name: {"threshold": at, "weights": ALL_NOVELTY} for name, at in {"aa": 0.1, "ab": 0.9}.items()}
    weights = sorted(policy(**two).profile("aa").weights.model_dump().items())

    before, after = policy(**two), policy(**{f"aa 0.1 {weights!r}\nab": two["ab"]})

    assert before.digest != after.digest
    assert before.digest[:12] == after.digest[:12]


OF_0_1_0 = {
    "24f118d51afc": {},
    "eb7cf4acf88e": {"threshold": 0.5},
    "850104a0d270": {
        "threshold": 0.4,
        "domains": {
            "legal": {
                "threshold": 0.6,
                "weights": dict(zip(NAMES, (0.1, 0.3, 0.1, 0.5), strict=True)),
            },
            "code": {"threshold": 0.9},
        },
    },
}
"""Policies and the digests that release 0.1.0 gave them."""


@pytest.mark.parametrize("digest", OF_0_1_0)
@pytest.mark.parametrize(
    "guard",
    [
        {},
        {"contribute_visibility": ["org", "network", "private", "org"]},
        {"contribute_privacy_level": ["private", "federated", "aggregated"]},
    ],
)
def test_a_digest_begins_with_that_of_earlier_releases_and_is_found_by_it(digest, guard):
    """The topic of policies and the outputs' kp-policy name it."""
    policy = Policy.model_validate(OF_0_1_0[digest] | guard)

    assert policy.digest.startswith(digest)
    assert is_digest_of(policy, digest)
    assert by_digest([policy]) == {digest: policy, policy.digest: policy}
    assert not any(is_digest_of(policy, other) for other in ("", digest[:11], policy.digest[:20]))


FITTED = {"on": "2026-01-01", "labels": {}, "traces": 1, "kept": 1, "groups": 1, "auc": [0.5, 0.4, 0.6]}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [*FITTED, "within_groups", "new_agents", "unknown", "within"])
def test_a_number_that_json_lacks_is_refused_anywhere_in_a_policy(value, place):
    """The topic of policies keeps JSON: such a policy was recorded, and was foreign to every reader."""
    values = {"auc": [0.5, value, 0.6], "labels": {"a": value}, "within": {"a": [1, {"b": value}]}}
    fitted = FITTED | {place: values.get(place, value)}

    with pytest.raises(ValidationError):
        policy(code={"learned": {"facts_version": 1, "intercept": 0, "terms": {}, "fitted": fitted}})


def test_a_date_is_refused_among_the_members_that_a_fit_may_add():
    """JSON has none, so that it would be read as text."""
    with pytest.raises(ValidationError):
        FitOrigin.model_validate(FITTED | {"read_on": datetime.date(2026, 1, 1)})


def lists(values):
    return st.sets(st.sampled_from(values), min_size=1).map(sorted).flatmap(st.permutations)


guarded = st.builds(
    Policy, contribute_visibility=lists(VISIBILITIES), contribute_privacy_level=lists(PRIVACY_LEVELS)
)


@given(guarded, guarded)
def test_the_digest_depends_on_the_sets_that_the_guards_list(first, other):
    assert (first.digest == other.digest) == (first.guards == other.guards)
    assert {*first.guards["visibility"]} == {*first.contribute_visibility}


@pytest.mark.parametrize("value", [[], "org", ["public"], ["org", 1], [["org"]], {"org": True}])
def test_an_invalid_list_of_a_guard_is_rejected_with_those_accepted(value):
    with pytest.raises(ValidationError, match="should be a list of one or more of private, org, network"):
        Policy(contribute_visibility=value)
    with pytest.raises(ValidationError, match="one or more of aggregated, federated, private"):
        Policy(contribute_privacy_level=value)


def test_at_most_50_domains_are_allowed_including_the_reference_s():
    """Each is a metric label."""
    assert MAX_DOMAINS == 50
    added = {f"domain-{number}": {} for number in range(50 - len(REFERENCE_WEIGHTS))}

    assert len(policy(finance={"threshold": 0.1}, **added).profiles) == 50
    with pytest.raises(ValidationError, match="at most 50 domains are allowed, got 51"):
        policy(one_more={}, **added)


# --- shares and minimums


@pytest.mark.parametrize("table", [{}, {"domains": {}}, {"domains": {"code": {}}}])
def test_a_table_has_a_share_or_a_threshold(table):
    both = {"share": 0.1, "threshold": 0.5}
    with pytest.raises(ValidationError, match="has both a threshold and a share; give one of them"):
        Policy.model_validate(
            {"domains": {"code": both}} if table.get("domains") else both | {"share_window": 50}
        )


def test_a_named_domain_inherits_the_share_of_default_and_the_threshold_beside_it():
    """The threshold decides until there are enough scores."""
    policy_with_share = Policy.model_validate(
        {"threshold": 0.3, "domains": {"default": {"share": 0.2}, "code": {}}}
    )

    assert {(profile.share, profile.threshold) for profile in policy_with_share.profiles.values()} == {
        (0.2, 0.3)
    }


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"share": 0}, "greater than 0"),
        ({"share": 1.1}, "less than or equal to 1"),
        ({"share": 0.001}, "less than one of the last 50 traces; raise share_window"),
        ({"agent_cap": 0}, "greater than 0"),
        ({"share_window": 29}, "greater than or equal to 30"),
        ({"share_window": 1001}, "less than 1001"),
        ({"min_novelty": 0.6}, "less than or equal to 0.5"),
        ({"min_score": 1.1}, "less than or equal to 1"),
    ],
)  # fmt: skip
def test_an_invalid_share_or_minimum_is_refused(members, problem):
    with pytest.raises(ValidationError, match=problem):
        Policy.model_validate(members)


def test_a_policy_with_a_share_can_be_written_and_read_again():
    policy_with_share = Policy.model_validate({"share": 0.1, "domains": {"code": {"threshold": 0.5}}})

    assert "threshold" not in policy_with_share.model_dump()
    assert Policy.model_validate_json(policy_with_share.model_dump_json()) == policy_with_share


@pytest.mark.parametrize(
    "change",
    [
        {"share": 0.2}, {"share_window": 200}, {"agent_cap": 0.5}, {"min_novelty": 0.1},
        {"min_score": 0.1}, {"withhold_endings": ["failed"]},
        {"domains": {"code": {"share": 0.3}}}, {"domains": {"code": {"min_score": 0.3}}},
    ],
)  # fmt: skip
def test_the_digest_changes_with_every_share_and_minimum(change):
    assert Policy.model_validate({"share": 0.1} | change).digest != Policy(share=0.1).digest


def test_a_share_without_effect_changes_no_digest():
    window = Policy(share_window=200, agent_cap=0.5)
    hidden = Policy.model_validate(
        {"share": 0.1, "domains": {name: {"threshold": 0.75} for name in REFERENCE_WEIGHTS}}
    )

    minimum = Policy.model_validate({"min_score": 0, "domains": {"code": {"min_score": 0}}})

    endings = Policy(withhold_endings=[])

    assert {window.digest, hidden.digest, minimum.digest, endings.digest} == {Policy().digest}


def test_the_order_of_endings_changes_no_digest():
    first, other = (
        Policy(withhold_endings=["cut_off", "failed"]),
        Policy(withhold_endings=["failed", "cut_off"]),
    )

    assert first.digest == other.digest != Policy(withhold_endings=["failed"]).digest
    assert first.withhold_endings == ("failed", "cut_off")


def test_an_ending_that_no_run_has_is_refused():
    with pytest.raises(ValidationError, match="failed, cut_off; 'crashed' is not accepted"):
        Policy(withhold_endings=["crashed"])


def test_an_outcome_of_an_earlier_release_is_not_taken_for_one_under_a_share():
    """The threshold that decides until there are enough scores is the former one."""
    former = Policy().digest[:12]

    assert by_digest([Policy(), Policy(share=0.1)])[former] == Policy()
    assert not is_digest_of(Policy(share=0.1), former)


def test_the_last_scores_begin_anew_only_where_the_scores_change():
    old = Policy(share=0.1)
    weights = {"weights": ALL_NOVELTY}
    new = Policy.model_validate({"share": 0.2, "share_window": 50, "domains": {"code": weights}})

    assert begun_anew(old, new) == ["code"]
    assert begun_anew(Policy(), new) == []


def test_a_digest_of_a_former_release_is_that_of_the_policy_that_it_begins():
    policy, other = Policy(), Policy(threshold=0.3)
    former = policy.digest[:12]

    assert are_of_one_policy(former, policy.digest)
    assert are_of_one_policy(policy.digest, policy.digest)
    assert not are_of_one_policy(former, other.digest)
    assert not are_of_one_policy("", policy.digest)


def test_the_latest_policies_are_known_by_their_digest():
    """Traces in flight were scored under an earlier one, and are explained by it."""
    in_force = PolicyInForce(Policy(threshold=0.0))
    for number in range(1, LAST_POLICIES + 1):
        in_force.policy = Policy(threshold=number / 100)

    assert in_force.policy.threshold == LAST_POLICIES / 100
    assert in_force.known(Policy(threshold=0.01).digest) == Policy(threshold=0.01)
    assert in_force.known(Policy(threshold=0.0).digest) is None, "no more than the latest are kept"
