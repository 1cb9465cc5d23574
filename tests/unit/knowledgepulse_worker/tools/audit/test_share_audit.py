"""The audit recomputes what shares decided, to the last trace."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledgepulse_worker.policy import DomainPolicy, Policy
from support.audited import score_of, with_score

TENTH = {"share": 0.3, "share_window": 30}
FREE = {"policy": TENTH, "embedding": {"backend": "none"}}
CAPPED = FREE | {"policy": TENTH | {"agent_cap": 0.3, "min_score": 0.2}}


def stream_of(stream, count, sections=FREE):
    made = stream(**sections)
    made.publish(count)
    made.work()
    return made


@pytest.mark.parametrize("sections", [FREE, CAPPED], ids=["free", "capped"])
@pytest.mark.parametrize("change", [{"rank": 1}, {"of": 29}, {"share": 0.5}, {"threshold": 0.123}])
def test_detects_a_wrong_decision(stream, change, sections):
    made = stream_of(stream, 150, sections)
    at = next(
        number
        for number, output in enumerate(made.outputs)
        if number > 100 and score_of(output).get("rank", 1) != 1
    )
    made.outputs[at] = with_score(made.outputs[at], **change)

    assert [record.offset for record in made.audit().differing] == [at]


@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from([0.1, 0.3, None])), min_size=1, max_size=5))
@settings(max_examples=20)
@pytest.mark.slow
def test_accepts_changes_of_the_policy(stream, pieces):
    """A share that changes starts nothing again, and a threshold between leaves the last scores alone."""
    made = stream_of(stream, 0)
    for count, share in pieces:
        policy = Policy(threshold=0.4) if share is None else Policy(share=share, share_window=30)
        made.kept_policies.append(policy)
        made.publish(count)
        made.work(policy=policy)
    report = made.audit()

    assert (report.differing, report.shares_unaudited, report.shares_begun) == ([], 0, 0)


def test_a_trace_that_is_withheld_before_any_is_ranked_is_audited(stream):
    """It counted as one whose rank could not be audited."""
    made = stream_of(stream, 0)
    policy = Policy(share=0.3, share_window=30, min_score=1)
    made.kept_policies.append(policy)
    made.publish(2)
    made.work(policy=policy)
    assert made.audit().shares_unaudited == 0

    made.outputs[0] = with_score(made.outputs[0], threshold=0.123)
    assert [record.offset for record in made.audit().differing] == [0]


def test_counts_where_the_last_scores_began_anew(stream):
    made = stream_of(stream, 90)
    made.restart(cut=True)  # which drops the scores like the vectors
    made.publish(50)
    made.work()
    report = made.audit()

    assert (report.differing, report.shares_begun) == ([], 2)  # in each of two domains


@pytest.mark.parametrize("sections", [FREE, CAPPED], ids=["free", "capped"])
def test_ranks_of_a_trimmed_partition_are_audited_once_they_have_filled_the_window(stream, sections):
    made = stream_of(stream, 200, sections)
    del made.raw[:50], made.outputs[:50]
    report = made.audit(first=50, outputs_from=50)
    made.outputs[-1] = with_score(
        made.outputs[-1], rank=1 if score_of(made.outputs[-1]).get("rank") != 1 else 9
    )

    assert report.differing == []
    assert 100 < report.shares_unaudited < 135  # twice the window, in each of two domains
    assert [record.offset for record in made.audit(first=50, outputs_from=50).differing] == [199]


def test_a_record_whose_policy_is_unknown_leaves_later_ranks_unaudited(stream):
    made = stream_of(stream, 60)
    other = Policy(share=0.2, share_window=30, domains={"code": DomainPolicy(min_novelty=0.1)})
    made.publish(1)
    made.work(policy=other)
    made.publish(40)
    made.work()

    report = made.audit()

    assert report.unknown_policy == 1
    assert report.shares_unaudited > 0
    assert report.differing == []
