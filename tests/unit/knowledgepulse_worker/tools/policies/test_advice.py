"""Advice beside the score."""

from dataclasses import replace

import numpy as np
import pytest

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.policies.advice import FEATURES, advise, usual_lengths
from knowledgepulse_worker.tools.policies.evaluate import evaluate
from knowledgepulse_worker.tools.policies.evaluate_report import evaluation_tables
from knowledgepulse_worker.tools.policies.labelled_traces import matched
from knowledgepulse_worker.tools.policies.labels import Label


@pytest.fixture(scope="module")
def traces(make_record, make_content):
    """Four runs of each of twenty tasks; within a task the runs without a failed call are kept."""
    records, labels = [], {}
    for task in range(20):
        for run in range(4):
            content = make_content(length=10 + task + run, failed=(run % 2) * 0.5)
            record = make_record((task / 20, 0.5, run / 4, 0.5), id=f"{task}-{run}", content=content)
            records.append(record)
            labels[record.id] = Label(record.id, keep=run % 2 == 0, group=task)
    return records, labels


def test_a_feature_tells_apart_over_all_traces_and_within_groups(traces):
    records, labels = traces

    found = advise(
        matched(records, labels, 0.5),
        usual_lengths(records),
        {**FEATURES, "equal": lambda *_: 1},
    )

    assert found["fewer failed calls"].auc.value == found["fewer failed calls"].within.value == 1
    assert found["shorter than usual"].within.value == 0.75
    assert 0.5 < found["shorter than usual"].auc.value < 0.6
    assert "equal" not in found


def test_it_is_beside_the_score_in_an_evaluation(traces):
    """Other features change no score."""
    records, labels = traces
    evaluation = evaluate(records, labels, Policy())
    bare = evaluate([replace(one, content=None) for one in records], labels, Policy())

    head = "Advice, no part of the score: the AUC of features, and within groups"
    assert head in [*evaluation_tables(evaluation)]
    assert bare.domains["default"].score == evaluation.domains["default"].score


def test_there_is_none_without_the_traces_content(make_record):
    records = [make_record((n / 40,) * 4, id=f"{n}") for n in range(40)]
    labels = {one.id: Label(one.id, keep=n % 2 == 0) for n, one in enumerate(records)}

    evaluation = evaluate(records, labels, Policy())

    assert evaluation.domains["default"].advice == {}
    assert not any("Advice" in str(line) for line in evaluation_tables(evaluation))


def test_groups_of_one_have_no_inside(traces):
    records, labels = traces
    alone = {name: Label(name, keep=one.keep) for name, one in labels.items()}

    found = advise(matched(records, alone, 0.5), usual_lengths(records))

    assert {one.within for one in found.values()} == {None}
    assert np.isfinite([one.auc.value for one in found.values()]).all()
