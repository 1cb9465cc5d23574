"""What a new policy changes, in words."""

import pytest

from worker.policies.changes import changes, suspicions
from worker.policy import REFERENCE_WEIGHTS, DomainPolicy, Policy


def domain(name, **changed):
    return Policy(domains={name: DomainPolicy(**changed)})


def test_a_changed_threshold_names_domain_and_both_values():
    assert changes(Policy(), domain("finance", threshold=0.6)) == ["finance: threshold 0.75 → 0.6"]


def test_thresholds_that_differ_in_the_last_digit_are_told_apart():
    assert changes(Policy(), domain("code", threshold=0.7500000000000001)) == [
        "code: threshold 0.75 → 0.7500000000000001"
    ]


def test_a_change_that_all_domains_share_is_told_once():
    assert changes(Policy(), Policy(threshold=0.5)) == ["every domain: threshold 0.75 → 0.5"]


def test_changed_weights_are_named_one_by_one():
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
def test_a_domain_that_one_policy_names_is_compared_with_default(old, new, line):
    assert changes(old, new) == [line]


def test_a_domain_that_is_named_but_as_default_changes_nothing():
    assert changes(Policy(), domain("legal")) == []


@pytest.mark.parametrize(("name", "meant"), [("fiance", "finance"), ("Code", "code")])
def test_a_domain_that_looks_misspelt_is_questioned(name, meant):
    (line,) = suspicions(domain(name, threshold=0.5))
    assert line.startswith(f"{name} is a domain of its own; did you mean {meant}?")


def test_other_domains_are_not_questioned():
    assert suspicions(Policy(domains=dict.fromkeys(["finance", "legal"], DomainPolicy(threshold=0.5)))) == []
