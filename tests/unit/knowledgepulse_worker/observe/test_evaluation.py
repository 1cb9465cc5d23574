"""The file of a scheduled evaluation, as the status page shows it."""

import json

import pytest

from knowledgepulse_worker.observe.evaluation import (
    MAX_BYTES,
    EvaluatedDomain,
    LabelEvaluation,
    PromisedDomain,
    evaluation,
)

CODE = {"traces": 84, "fair": [0.62, 0.55, 0.7], "kept": 30}
FITTED = {"labels": 140, "of": 160, "on": "2026-11-26", "auc": [0.68, 0.57, 0.77]}


def written(tmp_path, text):
    file = tmp_path / "evaluation.json"
    file.write_text(text)
    return evaluation(file, {})


@pytest.mark.parametrize(
    ("domains", "fitted", "expected"),
    [
        ({"code": CODE}, {}, (84, None, (0.62, 0.55, 0.7))),
        ({"code": CODE}, {"code": FITTED}, (84, "2026-11-26", (0.62, 0.55, 0.7))),
        ({"code": CODE | {"fair": None}}, {"code": FITTED}, (84, "2026-11-26", None)),
        ({}, {"code": FITTED}, (0, "2026-11-26", None)),
        ({"code": CODE}, {"code": FITTED | {"labels": None}}, (84, None, (0.62, 0.55, 0.7))),
    ],
)
def test_the_labels_since_the_fit_count(tmp_path, domains, fitted, expected):
    found = written(tmp_path, json.dumps({"policy": "0af1", "domains": domains, "fitted": fitted}))

    labels, since, auc = expected
    assert found.policy == "0af1"
    assert found.at == (tmp_path / "evaluation.json").stat().st_mtime
    assert found.domains == [EvaluatedDomain("code", labels, since, auc)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"policy": "0af1", "dom',
        "[]",
        '{"policy": 1, "domains": {}, "fitted": {}}',
        " " * (MAX_BYTES + 1),
    ],
)
def test_a_file_that_is_no_evaluation_is_none(tmp_path, text):
    assert written(tmp_path, text) == LabelEvaluation()


def test_a_file_that_is_not_there_is_no_evaluation(tmp_path):
    assert evaluation(tmp_path / "none", {}) == evaluation(tmp_path, {}) == LabelEvaluation()


PROMISE = {
    "outcome": "promised",
    "least": 0.8,
    "share": 0.25,
    "labels": 60,
    "until": None,
    "agents": {"a": 1.0},
}


def test_agents_that_no_label_knows_are_named_where_they_may_be(tmp_path):
    file = tmp_path / "evaluation.json"
    told = {"policy": "0af1", "domains": {}, "fitted": {}, "promises": {"code": PROMISE}}
    file.write_text(json.dumps(told))
    passed = {"code": ["a", "c", "c", None], "other": ["d"]}

    (promise,) = evaluation(file, passed).promises
    assert promise == PromisedDomain("code", "promised", 0.8, 0.25, 60, None, [("c", 0.5), ("", 0.25)])
    (promise,) = evaluation(file, passed, ["a"]).promises
    assert promise.strangers == [(None, 0.5), (None, 0.25)]


@pytest.mark.parametrize(
    ("outcome", "holds"),
    [("promised", {"code": True}), ("withdrawn", {"code": False}), ("none", {}), ("not known", {})],
)
def test_only_promises_that_were_made_hold_or_not(tmp_path, outcome, holds):
    promise = PROMISE | {"outcome": outcome}
    told = {"policy": "0af1", "domains": {}, "fitted": {}, "promises": {"code": promise}}
    assert written(tmp_path, json.dumps(told)).kept_promises == holds
