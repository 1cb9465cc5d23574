"""Traces that are not independent are found, so that no figure takes them for independent ones."""

from dataclasses import replace

import msgspec
import pytest

from knowledgepulse_worker.scoring import task_of
from knowledgepulse_worker.tools.policies.groups import groups_of
from knowledgepulse_worker.tools.policies.labels import Label


@pytest.fixture
def make_run(make_record):
    """Make the scored trace of a run, by its number, task, nearest trace and similarity to that."""

    def make(number, task, nearest=None, similarity=0.9):
        record = make_record(id=f"{number}", task=None if task is None else task_of(task))
        near = {} if nearest is None else {"nearest": f"{nearest}", "novelty": 1 - similarity}
        return replace(record, score=msgspec.structs.replace(record.score, **near))

    return make


def label(number, group=None):
    return Label(f"{number}", keep=True, group=group)


def grouped(records, labels=None):
    """Return the sets of numbers with one group, and how each trace's group was found."""
    found = groups_of(records, labels or [None] * len(records))
    by_name = {}
    for number, (name, _) in enumerate(found):
        by_name.setdefault(name, set()).add(number)
    return sorted(map(sorted, by_name.values())), [origin for _, origin in found]


def test_runs_of_equal_objectives_are_one_group_but_for_white_space(make_run):
    runs = [make_run(0, "Mend  the\ntest"), make_run(1, "Mend the test"), make_run(2, "Mend the tests")]

    assert grouped(runs) == ([[0, 1], [2]], ["equal objective", "equal objective", "alone"])


def test_a_trace_with_an_objective_of_its_own_joins_its_nearest_if_that_is_near(make_run):
    runs = [
        make_run(0, "a"),
        make_run(1, "b", nearest=0, similarity=0.81),
        make_run(2, "c", nearest=0, similarity=0.79),
    ]

    assert grouped(runs) == ([[0, 1], [2]], ["near vector", "near vector", "alone"])


def test_near_vectors_join_no_tasks_of_several_runs(make_run):
    """The runs of two such tasks may share a prompt, and so a vector."""
    runs = [make_run(0, "a"), make_run(1, "a"), make_run(2, "b", nearest=0), make_run(3, "b", nearest=2)]

    assert grouped(runs)[0] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(("chained", "groups"), [(10, 31), (11, 40)])
def test_vectors_that_are_all_alike_are_not_used(make_run, chained, groups):
    """With the SDK's text, all traces under one long prompt have nearly the same vector."""
    runs = [make_run(n, f"task {n}", nearest=n - 1 if 0 < n < chained else None) for n in range(40)]

    assert len(grouped(runs)[0]) == groups


def test_a_given_group_wins_and_takes_in_what_is_found_with_it(make_run):
    runs = [make_run(0, "a"), make_run(1, "a"), make_run(2, "a"), make_run(3, "b")]
    labels = [label(0, "x"), label(1, "y"), label(2), label(3, "x")]

    found, origins = grouped(runs, labels)

    assert found in ([[0, 2, 3], [1]], [[0, 3], [1, 2]])
    assert origins == ["given", "given", "equal objective", "given"]


def test_traces_that_share_a_label_are_one_group(make_run):
    """A label may name a run, which a release before 0.3.0 published twice."""
    assert grouped([make_run(0, None), make_run(1, None)], [label("run"), label("run")])[0] == [[0, 1]]


def test_unlabelled_traces_connect_labelled_ones(make_run):
    runs = [make_run(0, "a"), make_run(1, "b", nearest=0), make_run(2, "c", nearest=1)]

    assert grouped(runs, [label(0), None, label(2)])[0] == [[0, 1, 2]]
