"""Descriptions of policy changes."""

import pytest

from worker.policy import REFERENCE_WEIGHTS, DomainPolicy, Policy
from worker.tools.policies.changes import changes, suspicions


def domain(name, **changed):
    return Policy(domains={name: DomainPolicy(**changed)})


def test_a_changed_threshold_names_domain_and_both_values():
    assert changes(Policy(), domain("finance", threshold=0.6)) == ["finance: threshold 0.75 → 0.6"]


def test_thresholds_are_shown_with_all_digits():
    assert changes(Policy(), domain("code", threshold=0.7500000000000001)) == [
        "code: threshold 0.75 → 0.7500000000000001"
    ]


def test_a_change_to_all_domains_is_reported_once():
    assert changes(Policy(), Policy(threshold=0.5)) == ["every domain: threshold 0.75 → 0.5"]


def test_lists_each_changed_weight():
    code = REFERENCE_WEIGHTS["code"].model_copy(update={"novelty": 0.4, "tool_diversity": 0.2})

    assert changes(Policy(), domain("code", weights=code)) == [
        "code: weight of novelty 0.3 → 0.4, weight of tool_diversity 0.3 → 0.2"
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (Policy(), domain("legal", threshold=0.9), "legal: threshold 0.75 → 0.9"),
        (domain("legal", threshold=0.9), Policy(), "legal: threshold 0.9 → 0.75"),
    ],
)
def test_a_domain_in_only_one_policy_is_compared_with_default(old, new, line):
    assert changes(old, new) == [line]


def test_changed_visibilities_are_listed():
    guarded = Policy(threshold=0.5, contribute_visibility=["network", "org"])

    assert changes(Policy(), guarded) == [
        "every domain: threshold 0.75 → 0.5",
        "contribute_visibility: private, org, network → org, network",
    ]
    assert changes(Policy(), Policy(contribute_visibility=["org", "private", "network"])) == []


def test_an_explicit_domain_equal_to_default_is_no_change():
    assert changes(Policy(), domain("legal")) == []


@pytest.mark.parametrize(("name", "meant"), [("fiance", "finance"), ("Code", "code")])
def test_warns_of_a_misspelt_domain(name, meant):
    (line,) = suspicions(domain(name, threshold=0.5))
    assert line.startswith(f"{name} is not a reference domain; did you mean {meant}?")


def test_does_not_warn_of_other_domains():
    assert suspicions(Policy(domains=dict.fromkeys(["finance", "legal"], DomainPolicy(threshold=0.5)))) == []
