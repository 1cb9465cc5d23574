"""Scored traces are decided again in the order of their partitions, as a worker would have decided."""

from __future__ import annotations

from dataclasses import replace

import pytest

from knowledgepulse_worker.policy import DomainPolicy, Policy
from knowledgepulse_worker.scoring import (
    RecentScores,
    Score,
    ScoredRecord,
    decision_text,
    explain_score,
    rescore_all,
    scores_under,
)

TENTH = Policy(share=0.1, share_window=50)


def record(number, partition=0, policy=None, **members):
    """Return a scored trace of a topic."""
    value = number * 37 % 100 / 100
    score = Score(value, value, value, value, value, (), "default", 0.75, None)
    source = f"raw/{partition}/{number}"
    trace = ScoredRecord(source, f"kp:trace:{number}", "x", "network", "aggregated", True, value, score)
    return replace(trace, policy=policy, **members)


def decided(records, policy=TENTH):
    recent, profile = RecentScores(), policy.profile("default")
    return [recent.decide(record.under(policy), profile) for record in records]


def test_the_order_is_that_of_the_offsets_whatever_that_of_the_records():
    """Topics are read one after another: first those that passed, then the others."""
    records = [record(number) for number in range(90)]
    scores = dict(zip(records, decided(records), strict=True))
    mixed = [*records[1::2], *records[::2]]

    assert scores_under(mixed, TENTH) == [scores[trace] for trace in mixed]
    assert [flip.after for flip in rescore_all(mixed, TENTH).flips] == [
        scores[record] for record in records if scores[record].decision != record.score.decision
    ]


def test_lines_are_ranked_in_the_partition_that_they_name():
    lines = [
        replace(record(number), source=f"some/3/scored.jsonl:{number}", partition=number % 2)
        for number in range(80)
    ]

    assert scores_under(lines, TENTH)[1::2] == decided(lines[1::2])
    assert (lines[0].log, lines[0].offset) == (("", 0), 0)


def test_where_the_policy_has_decided_its_decision_stands():
    """The records of a period do not tell the scores before it."""
    said = Score(0.5, 0.5, 0.5, 0.5, 0.5, (), "default", 0.4, None, share=0.1, rank=2, of=50)
    records = [record(number, policy=TENTH.digest, score=said) for number in range(3)]

    assert scores_under(records, TENTH) == [said] * 3
    assert scores_under(records, Policy(share=0.2))[0].rank is None


def test_a_score_by_rank_is_explained_by_the_cut():
    scores = decided([record(number) for number in range(60)])
    failing = next(score for score in reversed(scores) if score.rank is not None and not score.passes)
    shown = explain_score(record(1, score=failing, policy=TENTH.digest), TENTH)

    assert shown is not None
    gap = failing.threshold - failing.quality_score
    assert shown.verdict.startswith(f"it falls short by {gap:.4f}")


@pytest.mark.parametrize(("novelty", "withheld"), [(0.04, "novelty"), (0.05, None), (0.5, None)])
def test_a_near_duplicate_is_withheld_whatever_its_score(novelty, withheld):
    policy = Policy(threshold=0, min_novelty=0.05)
    score = Score(1, 1, novelty, 1, 1, (), "default", 0, "kp:trace:0")
    near = record(1, score=score)

    assert near.under(policy).withheld == withheld
    assert near.under(policy).decision == ("rejected" if withheld else "contribute")
    shown = explain_score(replace(near, score=near.under(policy)), policy)
    guard = "whatever the score, the policy contributes only a novelty of 0.05 or more"
    assert shown is not None
    assert shown.guard == (guard if withheld else None)


@pytest.mark.parametrize(("minimum", "rule"), [(0.5, None), (0.51, "score"), (0.7, "score")])
def test_a_score_below_the_lowest_is_rejected_whatever_the_threshold_and_says_what_would_pass(minimum, rule):
    policy = Policy(threshold=0.2, min_score=minimum)
    low = record(1, score=Score(0.5, 0.5, 0.5, 0.5, 0.5, (), "default", 0, None)).under(policy)
    shown = explain_score(record(1, score=low), policy)

    assert (low.withheld, low.decision) == (rule, "rejected" if rule else "contribute")
    assert shown is not None
    if rule is None:
        assert shown.verdict == "it passes by 0.0000"
        return
    assert decision_text(low, "default") == "score 0.5000 is below min_score of default"
    assert shown.verdict.startswith(f"it falls short by {minimum - 0.5:.4f}")
    assert shown.guard == f"whatever its rank, the policy contributes only a score of {minimum} or more"
    assert ("novelty of 0.5286 instead of 0.5000" in shown.remedies) is (minimum == 0.51)


def test_a_domain_can_turn_the_lowest_novelty_off():
    policy = Policy(min_novelty=0.2, domains={"x": DomainPolicy(min_novelty=0)})
    near = Score(1, 1, 0.1, 1, 1, (), "default", 0, "kp:trace:0")

    assert record(1, score=near).under(policy).withheld is None
    assert replace(record(1, score=near), task_domain="y").under(policy).withheld == "novelty"
