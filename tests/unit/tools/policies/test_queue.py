"""The labelling queue."""

from worker.policy import Policy
from worker.tools.policies.labels import Label
from worker.tools.policies.queue import labelling_queue

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
