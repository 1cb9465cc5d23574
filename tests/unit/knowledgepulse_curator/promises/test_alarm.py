"""Whether a promise that was made is still kept."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_curator.labels.labels import Label
from knowledgepulse_curator.promises.alarm import (
    DUE_A_DAY,
    Alarm,
    Heard,
    Watch,
    due,
    listened,
    watch_of,
    watched,
)
from knowledgepulse_curator.promises.promise import Asked, promises
from knowledgepulse_curator.promises.sample import Stream
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.terminal.reports import plain

DAY = 86_400_000
POLICY = Policy(threshold=0.0)


def heard(rng, rate, tasks, runs=2):
    """Return labels of tasks whose runs mostly end alike, of which ``rate`` are kept."""
    rates = rng.beta(4 * rate, 4 * (1 - rate), tasks)
    return [
        Heard(task, f"t{task}", bool(rng.random() < rates[task]))
        for task in range(tasks)
        for _ in range(runs)
    ]


def test_a_promise_that_holds_is_withdrawn_in_fewer_than_10_of_100_however_often_one_looks():
    rng = np.random.default_rng(0)
    rang = [listened(Alarm(), heard(rng, 0.8, 200), 0.8).rang is not None for _ in range(400)]
    assert np.mean(rang) <= 0.1


def test_a_promise_of_80_that_became_60_is_withdrawn_within_75_tasks():
    rng = np.random.default_rng(1)
    rang = [listened(Alarm(), heard(rng, 0.6, 75), 0.8).rang is not None for _ in range(400)]
    assert np.mean(rang) >= 0.9


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=60),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_nights_make_no_difference_and_what_was_counted_is_not_taken_back(rows, nights):
    """A task that is labelled in several nights counts by the labels of the first."""
    labels = [Heard(task, f"t{task}", kept) for task, kept in sorted(rows)]
    whole = listened(Alarm(), labels, 0.8)
    alarm = Alarm()
    for night in sorted(nights):
        alarm = listened(alarm, [one for one in labels if one.time_ms < night], 0.8)
    alarm = listened(alarm, labels, 0.8)
    assert (alarm.labels, alarm.kept, alarm.tasks) == (whole.labels, whole.kept, whole.tasks)
    assert alarm.wealth == pytest.approx(whole.wealth)
    changed = [Heard(one.time_ms, one.task, not one.kept) for one in labels]
    assert listened(alarm, changed, 0.8) == alarm


@pytest.fixture
def made(make_record):
    """Return a function that makes records of days, and a promise by labels of the first."""

    def records(days, agent="a"):
        return [
            make_record(
                id=f"kp:trace:{day}-{n}",
                timestamp_ms=day * DAY + n,
                agent_id=agent,
            )
            for day in days
            for n in range(40)
        ]

    return records


def label_of(record, **members):
    given = {"keep": True, "source": "ann", "sampling": "random", "group": record.id} | members
    return Label(record.id, **given)


@pytest.fixture
def promised(made):
    first = made([0])
    asked = Asked(0.8, key="k")
    (promise,) = promises(first, [label_of(record) for record in first], POLICY, asked).values()
    assert promise.outcome == "promised"
    return first, Watch({"default": promise})


def outcome(watch, records, labels, **asked):
    found = watched(watch, Stream(records, POLICY), labels, Asked(0, **asked))
    return found, found.promises["default"].outcome


def test_random_labels_of_later_traces_withdraw_it_and_it_stays_withdrawn(promised, made):
    first, watch = promised
    labels = [label_of(record) for record in first]
    later = made([1])
    found, told = outcome(watch, first + later, labels + [label_of(record, keep=False) for record in later])
    assert told == "withdrawn"
    assert found.alarms["default"]["random"].rang == "1970-01-02"
    again = watch_of_json(found)
    assert outcome(again, first + later, labels)[1] == "withdrawn"


def watch_of_json(watch):
    return msgspec.json.decode(json.dumps(plain(watch)), type=Watch)


def test_labels_that_nobody_asked_for_warn_and_never_withdraw(promised, made):
    first, watch = promised
    later = made([1])
    complaints = [label_of(record, keep=False, sampling=None) for record in later]
    assert outcome(watch, first + later, complaints)[1] == "promised"
    found, told = outcome(watch, first + later, complaints, odds=0.5)
    assert told == "promised"
    assert found.alarms["default"]["feedback"].rang == "1970-01-02"


def test_labels_of_the_promise_itself_do_not_count_again(promised):
    first, watch = promised
    found, _ = outcome(watch, first, [label_of(record) for record in first])
    assert found.alarms["default"]["random"].labels == 0


def test_another_agent_policy_embedder_or_release_makes_it_not_known_until_it_is_as_before(promised, made):
    first, watch = promised
    found, told = outcome(watch, first + made([1], agent="b"), [])
    assert (told, found.promises["default"].without_label) == ("not known", {"b": 1.0})
    assert outcome(found, first + made([1]), [])[1] == "promised"
    other = watched(watch, Stream(first, Policy(threshold=0.1)), [], Asked(0))
    assert other.promises["default"].outcome == "not known"


def test_a_few_traces_of_each_day_are_due_and_the_key_chooses_them(promised, made):
    first, watch = promised
    stream = Stream(first + made([1, 2]), POLICY)
    names = [record.id for record in due(watch.promises["default"], stream)]
    assert len(names) == 2 * DUE_A_DAY
    assert {name.split("-")[0] for name in names} == {"kp:trace:1", "kp:trace:2"}


def test_a_file_that_is_not_there_has_no_promise_and_another_is_refused(tmp_path):
    assert watch_of(tmp_path / "none.json") == Watch()
    (tmp_path / "other.json").write_text('{"promises": 3}')
    with pytest.raises(InputError, match="not output of `policy evaluate --json`"):
        watch_of(tmp_path / "other.json")
