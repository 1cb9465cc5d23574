"""Inspect's scores are what Inspect itself makes of them; what judged nothing gives no verdict."""

import json

import pytest

from knowledgepulse_convert import convert

MESSAGES = [
    {"role": "user", "content": "How many apples are in the file"},
    {"role": "assistant", "content": "There are 42."},
]
SCORING = {"event": "span_begin", "name": "scorers", "type": "scorers"}


def of_sample(**members):
    """Return the metadata of the run of a sample."""
    return of_samples({"id": 1, "epoch": 1, "messages": MESSAGES, "uuid": "u", **members})[0]


def of_samples(*samples):
    """Return the metadata of the runs of a log, and how each ended."""
    log = {"version": 2, "eval": {"task": "apples"}, "plan": {}, "samples": list(samples)}
    return [conversion.metadata for conversion in convert(json.loads(json.dumps(log)))]


def judged(**scores):
    """Return whether a sample with these scores succeeded, by whose word, and the numbers."""
    metadata = of_sample(scores={name: {"value": value} for name, value in scores.items()})
    numbers = {reward["name"]: reward["value"] for reward in metadata.rewards or ()}
    return metadata.success, metadata.outcome_source, numbers


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *(
            ("C", 1),
            ("P", 0.5),
            ("I", 0),
            ("N", 0),
            (1, 1),
            (0, 0),
            (True, 1),
            (False, 0),
            (0.5, 0.5),
            (-1, -1),
        ),
        *(("yes", 1), ("Yes", 1), ("true", 1), ("no", 0), ("False", 0), ("0", 0), ("1.0", 1), ("1e-1", 0.1)),
    ],
)
def test_a_score_is_the_number_that_inspect_has_for_it(value, number):
    assert judged(a=value) == (number == 1, "label", {"a": number})


@pytest.mark.parametrize("value", ["maybe", "c", "", "NaN", "inf", None, float("nan")])
def test_what_inspect_cannot_convert_judges_nobody(value):
    assert judged(a=value) == (True, "ended_without_error", {})
    assert judged(a=value, b="I") == (False, "label", {"b": 0})


def test_each_member_of_a_dictionary_or_a_list_is_a_score():
    assert judged(a={"x": 1, "y": 0}) == (False, "label", {"a/x": 1, "a/y": 0})
    assert judged(a={"x": 1, "y": "C"}) == (True, "label", {"a/x": 1, "a/y": 1})
    assert judged(a=[1, 0.5]) == (False, "label", {"a/0": 1, "a/1": 0.5})


def test_where_judges_disagree_the_run_did_not_succeed():
    assert judged(a="C", b=0) == (False, "label", {"a": 1, "b": 0})


def test_a_score_on_an_unknown_scale_is_kept_and_judges_nobody():
    assert judged(a=7) == (True, "ended_without_error", {"a": 7})
    assert judged(a=7, b="C") == (True, "label", {"a": 7, "b": 1})


def test_a_scorer_that_failed_judges_nobody_and_is_no_failure_of_the_agent():
    failed = {"error": {"message": "judge down"}, "scores": {}}
    scorer, agent = of_sample(**failed, events=[SCORING]), of_sample(**failed, events=[])
    early = of_sample(**failed, events=[{"event": "step", "action": "begin", "type": "scorer", "name": "x"}])
    assert (scorer.success, scorer.outcome_source) == (True, "ended_without_error")
    assert early.outcome_source == scorer.outcome_source
    assert (agent.success, agent.outcome_source) == (False, "structural_failure")


def test_an_invalidated_sample_has_no_label():
    scores = {"a": {"value": "C"}}
    assert of_sample(scores=scores, invalidation={"author": "x"}).outcome_source == "ended_without_error"


def test_each_epoch_is_a_run_of_the_task_and_of_several_tries_the_last():
    samples = [
        {"id": "s", "epoch": epoch, "messages": MESSAGES, "scores": {"a": {"value": value}}}
        for epoch, value in [(1, "I"), (2, "C"), (1, "C")]
    ]
    runs = of_samples(*samples)
    assert [run.success for run in runs] == [True, True]
    assert {run.task_id for run in runs} == {"apples/s"}
    assert len({run.native_id for run in runs}) == 2
