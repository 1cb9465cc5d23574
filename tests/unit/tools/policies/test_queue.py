"""The labelling queue."""

import numpy as np

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.policies.advice import usual_lengths
from knowledgepulse_worker.tools.policies.labels import Label
from knowledgepulse_worker.tools.policies.queue import labelling_queue

POLICY = Policy(threshold=0.5)


def ids(candidates):
    return [one.record.id for one in candidates]


def at(make_record, score, name, domain="default", **others):
    """Return a trace with this score that is not a near copy."""
    return make_record((score, score, score, score), domain, id=name, **others)


def test_traces_closest_to_the_threshold_come_first(make_record):
    records = [at(make_record, score, f"{score}") for score in (0.1, 0.9, 0.45, 0.56, 0.5)]

    assert ids(labelling_queue(records, {}, POLICY, 3)) == ["0.5", "0.45", "0.56"]


def test_leaves_out_labelled_traces(make_record):
    records = [at(make_record, 0.5, "a"), at(make_record, 0.6, "b")]

    assert ids(labelling_queue(records, {"a": Label("a", keep=True)}, POLICY, 5)) == ["b"]


def test_domains_take_turns_fewest_labels_first(make_record):
    records = [
        at(make_record, 0.5 + n / 100, f"{domain}{n}", domain)
        for domain in ("code", "finance")
        for n in range(3)
    ]
    labels = {"code0": Label("code0", keep=True)}

    assert ids(labelling_queue(records, labels, POLICY, 4)) == ["finance0", "code1", "finance1", "code2"]


def test_queues_only_one_of_several_near_copies(make_record):
    copy = make_record((1, 0.01, 1, 0.5), id="copy", nearest="original")
    records = [copy, at(make_record, 0.55, "original"), at(make_record, 0.9, "other")]

    assert ids(labelling_queue(records, {}, POLICY, 5)) in (["copy", "other"], ["original", "other"])
    assert ids(labelling_queue(records, {"original": Label("original", keep=True)}, POLICY, 5)) == ["other"]


def test_queues_a_trace_scored_twice_only_once(make_record):
    records = [at(make_record, 0.5, "a"), at(make_record, 0.6, "a")]

    assert ids(labelling_queue(records, {}, POLICY, 5)) == ["a"]


def test_traces_whose_decision_fitted_weights_change_come_first(make_record):
    """Tool diversity is what the labels say; the policy in force weighs novelty most."""
    rng = np.random.default_rng(0)
    labelled = [make_record((0.5, *rng.random(2), 0.5), id=f"l{n}") for n in range(60)]
    labels = {one.id: Label(one.id, keep=one.score.tool_diversity > 0.5) for one in labelled}
    novel, diverse = (
        make_record((0.5, *pair, 0.5), id=name) for pair, name in (((1, 0.1), "n"), ((0.1, 1), "d"))
    )
    near = make_record((0.5, 0.5, 0.5, 0.5), id="near")

    found = labelling_queue([near, *labelled, novel, diverse], labels, POLICY, 3)

    assert {*ids(found)[:2]} == {"n", "d"}
    assert min(found[0].change, found[1].change) >= 0.9 > found[2].change
    assert labelling_queue([near, *labelled, novel, diverse], labels, POLICY, 3) == found


def test_each_has_what_one_needs_to_judge_it(make_record, make_content):
    records = [
        at(make_record, 0.5, f"{n}", content=make_content(length=2 + 8 * (n == 0), failed=0.5))
        for n in range(3)
    ]

    first = labelling_queue(records, {}, POLICY, 1)[0].as_dict(usual_lengths(records))

    assert first["change"] is None
    assert (first["objective"], first["steps"], first["result"]) == ("Do it", ("thought: First",), "Done")
    assert first["advice"] == ["5.0 times as long as usual", "50% of the calls failed"]
