"""Traces that are not independent are found, so that no figure takes them for independent ones."""

import random

import pytest

from knowledgepulse_curator.labels import groups as groups_module
from knowledgepulse_curator.labels.groups import groups_of
from knowledgepulse_curator.labels.labels import Label
from knowledgepulse_worker.scoring import Graded, StepText, content


@pytest.fixture
def grouped(make_record):
    """Return the sets of numbers with one group, and how each trace's group was found.

    A run is its objective and what its only step says.
    """

    def find(*runs, given=(), task_ids=()):
        ids = [*task_ids, *[None] * (len(runs) - len(task_ids))]
        contents = [
            content(task, [StepText("thought", "", said, "", "")], "", None, Graded(task_id=task_id))
            for (task, said), task_id in zip(runs, ids, strict=True)
        ]
        records = [
            make_record(id=f"{number}", content=conversation) for number, conversation in enumerate(contents)
        ]
        names = [*given, *[None] * (len(runs) - len(given))]
        labels = [Label(f"{number}", keep=True, group=name) for number, name in enumerate(names)]
        found = groups_of(records, labels)
        by_name = {}
        for number, (name, _) in enumerate(found):
            by_name.setdefault(name, []).append(number)
        return sorted(by_name.values()), [origin for _, origin in found]

    return find


def words(seed, count=12):
    """Draw words that no other text has."""
    return " ".join(f"w{random.Random(f'{seed}/{number}').randrange(10**9)}" for number in range(count))


def test_runs_of_equal_objectives_are_one_group_but_for_white_space(grouped):
    runs = [("Mend  the\ntest", words(1)), ("Mend the test", words(2)), ("Mend the tests", words(3))]

    assert grouped(*runs) == ([[0, 1], [2]], ["equal objective", "equal objective", "alone"])


def test_runs_in_which_users_ask_in_their_own_words_are_found_by_what_is_said(grouped):
    said = words("reservation")
    runs = [("Cancel my flight", said), ("My flight: cancel it", said), ("Book a room", words(4))]

    assert grouped(*runs) == ([[0, 1], [2]], ["similar words", "similar words", "alone"])


def test_words_join_no_tasks_of_several_runs(grouped):
    """The runs of two such tasks may share a prompt."""
    assert grouped(("a", words(0)), ("a", words(0)), ("b", words(0)), ("b", words(0)))[0] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(("alike", "groups"), [(10, 31), (11, 40)])
def test_words_that_are_all_alike_are_not_used(grouped, alike, groups):
    """Under one long prompt, all traces have nearly the same words."""
    texts = [words("prompt" if n < alike else n) for n in range(40)]
    runs = [(f"{text} number{n}", text) for n, text in enumerate(texts)]

    assert len(grouped(*runs)[0]) == groups


def test_a_given_group_wins_and_takes_in_the_traces_with_its_objective(grouped):
    runs = [("a", words(0)), ("a", words(1)), ("a", words(2)), ("b", words(3))]

    found = grouped(*runs, given=["x", "y", None, "x"])

    assert found == ([[0, 2, 3], [1]], ["given", "given", "equal objective", "given"])


def test_traces_that_share_a_label_are_one_group_though_their_texts_are_unknown(make_record):
    """A label may name a run, of which a release before 0.3.0 published two traces."""
    records = [make_record(id="a", content=None), make_record(id="b", content=None)]

    (first, _), (second, _) = groups_of(records, [Label("run", keep=True)] * 2)

    assert first == second


def test_more_traces_than_can_be_compared_stay_alone(grouped, monkeypatch):
    monkeypatch.setattr(groups_module, "MAX_CLUSTERED", 1)

    assert grouped(("a", words(0)), ("b", words(0)))[1] == ["alone", "alone"]


def test_the_runs_of_a_task_are_one_group_whatever_they_were_asked(grouped):
    runs = [
        ("Mend the test", words(1)),
        ("Try again", words(2)),
        ("Mend the test", words(3)),
        ("Mend", words(4)),
    ]

    assert grouped(*runs, task_ids=["t1", "t1"]) == (
        [[0, 1, 2], [3]],
        ["the task's id", "the task's id", "equal objective", "alone"],
    )
    assert grouped(*runs, given=["a", "b"], task_ids=["t1", "t1"])[0] == [[0, 2], [1], [3]]
