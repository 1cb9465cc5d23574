"""Which labels a plan asks for, and what they promise."""

import msgspec
import numpy as np
import pytest

from knowledgepulse_curator.labelling.label_session import LabelSession, ToLabel, open_labels
from knowledgepulse_curator.labelling.plan_queue import PlanQueue
from knowledgepulse_curator.labels.labels import Label
from knowledgepulse_curator.promises.plan import (
    LADDER,
    opened_plan,
    plan_lines,
    plan_of,
    planned_promises,
    progress,
)
from knowledgepulse_curator.promises.promise import Asked
from knowledgepulse_curator.promises.sample import Stream
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy

COUNT = 700
POLICY = Policy()


@pytest.fixture(scope="module")
def records(make_record):
    return [
        make_record((n * 37 % COUNT / COUNT, 0.5, 0.5, 0.5), id=f"kp:trace:{n}", agent_id="a")
        for n in range(COUNT)
    ]


@pytest.fixture(scope="module")
def stream(records):
    return Stream(records, POLICY)


@pytest.fixture(scope="module")
def plan(stream, tmp_path_factory):
    """A plan whose traces are the same at each run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("knowledgepulse_curator.promises.plan.token_hex", lambda _: "423aca954aa053eb")
        return opened_plan(tmp_path_factory.mktemp("plan") / "labels.jsonl.plan.json", stream, 0.8)


def answer(name, keep):
    return Label(name, keep=keep, sampling="step", source="ann", group=name)


def reached(plan, records, labels):
    return progress(plan, "default", {record.id: record for record in records}, labels)


def labelled(plan, records, keep):
    """Answer whatever a plan asks for, and return the labels and how far they are."""
    labels = {}
    while (at := reached(plan, records, labels)).waiting:
        labels |= {
            name: Label(name, keep=keep(), sampling="step", source="ann", group=name) for name in at.waiting
        }
    return labels, at


def test_the_best_share_comes_first_and_labels_of_it_are_used_for_the_wider_one(plan, stream):
    steps = plan.domains["default"]
    assert [step.share for step in steps] == list(LADDER)
    best = {record.id for record in stream.passing("default", LADDER[0])}
    assert {*steps[0].ids} <= best
    shared = {*steps[0].ids} & {*steps[1].ids}
    assert shared == best & {*steps[1].ids} & {*steps[0].ids}
    assert 0.2 < len(shared) / len(steps[1].ids) < 0.8


def test_where_all_are_worth_keeping_all_may_pass_by_fewer_labels_than_one_for_each_step(plan, records):
    labels, at = labelled(plan, records, lambda: True)
    assert (at.certified, at.waiting) == (1.0, [])
    assert len(labels) < sum(len(step.ids) for step in plan.domains["default"]) / 2


def test_at_the_exact_edge_three_looks_are_wrong_in_no_more_than_12_of_100(plan, records):
    rng = np.random.default_rng(4)
    wrong = [labelled(plan, records, lambda: bool(rng.random() < 0.8))[1].certified for _ in range(150)]
    assert np.mean([share is not None for share in wrong]) <= 0.12


def test_looking_at_each_label_would_be_wrong_more_often(plan, records, monkeypatch):
    monkeypatch.setattr("knowledgepulse_curator.promises.plan.LOOKS", 30)
    monkeypatch.setattr("knowledgepulse_curator.promises.plan.ERROR", 3.0)  # each look with the whole error
    rng = np.random.default_rng(4)
    wrong = [labelled(plan, records, lambda: bool(rng.random() < 0.8))[1].certified for _ in range(25)]
    assert np.mean([share is not None for share in wrong]) > 0.12


def test_the_same_command_continues_although_the_stream_has_grown(plan, records, make_record, tmp_path):
    file = tmp_path / "plan.json"
    first = opened_plan(file, Stream(records, POLICY), 0.8)
    more = [*records, *(make_record((0.99, 0.5, 0.5, 0.5), id=f"kp:trace:new{n}") for n in range(50))]
    assert opened_plan(file, Stream(more, POLICY), 0.8) == first == plan_of(file)
    with pytest.raises(InputError, match="label for another promise in another file"):
        opened_plan(file, Stream(records, POLICY), 0.9)


def test_only_labels_that_the_plan_asked_for_count(plan, records, stream):
    first = plan.domains["default"][0].ids
    stranger = {name: Label(name, keep=True, source="ann") for name in first}
    found = planned_promises(plan, stream, [*stranger.values()], Asked(0.8))
    assert found["default"].labels == 0
    labels, _ = labelled(plan, records, lambda: True)
    promise = planned_promises(plan, stream, [*labels.values()], Asked(0.8, key="k"))["default"]
    assert (promise.outcome, promise.share, promise.key) == ("promised", 1.0, "k")


def test_a_best_tenth_that_is_too_small_gets_random_traces_and_is_told(records, tmp_path):
    plan = opened_plan(tmp_path / "plan.json", Stream(records[:100], POLICY), 0.8)
    assert plan.domains == {"default": []}
    assert "random traces, as its best tenth has fewer than 40" in next(plan_lines(plan, {}))


def test_a_session_goes_on_from_look_to_look_and_a_skipped_trace_is_an_answer(plan, records, tmp_path):
    traces = [ToLabel(record, b"{}", sampling="step") for record in records if record.id in plan.ids]
    queue = PlanQueue(plan, traces, [])
    with open_labels(tmp_path / "labels.jsonl") as file:
        waiting = queue.waiting()
        session = LabelSession(waiting, file, "ann", queue)
        session.decide("skip")
        session.undo()
        for _ in waiting:
            session.decide("keep")
        assert session.total > len(waiting)
        assert "to look" in session.notes[0]
        assert "a share of 0.1 may pass" in session.notes[0]
    lines = (tmp_path / "labels.jsonl").read_text().splitlines()
    assert {msgspec.json.decode(line)["sampling"] for line in lines} == {"step"}
    again = PlanQueue(plan, traces, [msgspec.json.decode(line, type=Label) for line in lines])
    assert not {trace.record.id for trace in waiting} & {trace.record.id for trace in again.waiting()}
