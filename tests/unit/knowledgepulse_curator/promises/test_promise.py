"""What is promised of a domain, by which labels."""

import pytest
from msgspec.structs import replace

from knowledgepulse_curator.labels.labels import Label
from knowledgepulse_curator.promises.promise import Asked, promises
from knowledgepulse_curator.promises.promise_report import promise_lines, sentence
from knowledgepulse_worker.policy import Policy

COUNT = 120


@pytest.fixture
def stream(make_record):
    """Return records of different scores, in no order."""
    return [
        make_record((n * 37 % COUNT / COUNT, 0.5, 0.5, 0.5), id=f"kp:trace:{n}", agent_id="a")
        for n in range(COUNT)
    ]


def labels(keep=lambda n: True, every=2, **members):
    given = {"source": "ann", "sampling": "random"} | members
    return [Label(f"kp:trace:{n}", keep=keep(n), group=n, **given) for n in range(0, COUNT, every)]


def only(records, given, least=0.8, policy=None, **asked):
    (promise,) = promises(records, given, policy or Policy(), Asked(least, **asked)).values()
    return promise


def test_labels_that_all_say_keep_are_an_answer(stream):
    promise = only(stream, labels())
    assert (promise.outcome, promise.share, promise.labels, promise.tasks) == ("promised", 1, 60, 60)
    assert sentence(promise).startswith("All may pass: at least 94% are worth keeping (90% confidence; 60 ")


def test_where_nothing_can_be_promised_floors_are_and_how_many_labels_would_settle_it(stream):
    promise = only(stream, labels(lambda n: n % 4 == 0))
    assert (promise.outcome, promise.share, promise.needed) == ("none", None, None)
    assert 0.3 < promise.floors["all"] < 0.5
    lines = [*promise_lines([promise])]
    assert "No share can be promised; of the best tenth at least" in lines[0]
    assert "more labels would not settle it" in lines[1]


def test_labels_that_do_not_say_how_they_were_chosen_promise_nothing_without_odds(stream):
    given = labels(sampling=None)
    assert only(stream, given).outcome == "not known"
    passing = Policy(threshold=0.0)
    assert only(stream, given, odds=1.0, policy=passing).outcome == "promised"
    half = labels(lambda n: n % 8, sampling=None)
    assert only(stream, half, 0.65, odds=1.0, policy=passing).outcome == "promised"
    assert only(stream, half, 0.65, odds=2.0, policy=passing).outcome == "none"


def test_where_every_trace_has_a_label_nobody_chose(stream):
    assert only(stream, labels(every=1, sampling=None)).outcome == "promised"


def test_a_skipped_trace_is_not_worth_keeping(stream):
    given = [replace(label, keep=False, skipped=True) if n % 3 else label for n, label in enumerate(labels())]
    promise = only(stream, given)
    assert (promise.outcome, promise.kept, promise.skipped) == ("none", 20, 40)


def test_labels_of_passing_traces_tell_of_what_passes_now_alone(stream):
    promise = only(stream, labels(sampling="passing"), policy=Policy(threshold=0.0))
    assert (promise.outcome, promise.share) == ("promised", None)
    assert sentence(promise).startswith("Of what passes now, at least 80% are worth keeping")


def test_nothing_is_known_of_an_agent_without_a_label(stream, make_record):
    others = [make_record((0.5, 0.5, 0.5, 0.5), id=f"kp:trace:other{n}", agent_id="b") for n in range(40)]
    promise = only([*stream, *others], labels())
    assert (promise.outcome, promise.share) == ("not known", 1)
    assert promise.without_label == {"b": 0.25}
    assert "25% of what would pass is by agents that no label knows: b" in sentence(promise)


def test_labels_of_another_embedder_are_not_taken(make_record):
    records = [make_record(id=f"kp:trace:{n}", embedder="none") for n in range(COUNT)]
    assert only(records, labels(), embedder="none").outcome == "promised"
    assert only(records, labels(), embedder="lexical, text parts").outcome == "not known"


def test_labels_of_people_and_of_a_judge_are_never_mixed(stream):
    judged = labels(lambda n: False, every=1, source="judge:m:1")
    promise = only(stream, [*judged, *labels()])
    assert (promise.outcome, promise.by) == ("promised", {"ann": 60})


def test_under_a_cap_for_agents_only_what_passes_now_is_promised(stream):
    """A wider share is then no superset: what an agent's rank is depends on the others."""
    promise = only(stream, labels(every=1), policy=Policy(share=0.5, agent_cap=0.5))
    assert (promise.outcome, promise.share, [*promise.floors]) == ("promised", None, ["what passes now"])


def test_a_selection_of_traces_that_all_have_labels_promises_nothing(stream):
    given = labels(every=1, sampling=None)
    assert only(stream, given).every
    assert only(stream, given, whole=False).outcome == "not known"


def test_who_has_no_labels_is_told_how_many_are_needed(stream):
    assert "at least 26 labels of passing traces are needed" in sentence(only(stream, labels(sampling=None)))
