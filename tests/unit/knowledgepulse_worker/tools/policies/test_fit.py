"""Weights are fitted to labels, and proposed only if the labels support them."""

import json
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from knowledgepulse_worker.policy import Policy, Profile, Weights
from knowledgepulse_worker.scoring import quality_score
from knowledgepulse_worker.tools.policies.fit import fit, folds_of
from knowledgepulse_worker.tools.policies.fit_report import fit_tables, fitted_toml
from knowledgepulse_worker.tools.policies.labels import Label
from knowledgepulse_worker.tools.policies.policy_weights import (
    PRIOR,
    fitted_weights,
    rounded_weights,
    values_of,
)
from knowledgepulse_worker.tools.policies.tune import tune
from support.traces import LABELS

START = np.array([0.25, 0.35, 0.15, 0.25])
UNIT = st.floats(0, 1)
OVERRIDES = st.sampled_from([(), ("single_thought",), ("recovered",), ("single_tool",)])


def planted(make_record, weights, traces=600, steep=15.0, groups=None, seed=0):
    """Return records and labels that depend on weighted dimensions, and a group for each label."""
    rng = np.random.default_rng(seed)
    dimensions = rng.random((traces, 4))
    chance = 1 / (1 + np.exp(-steep * (dimensions @ weights - 0.5)))
    keep = rng.random(traces) < chance
    records = [make_record(tuple(row), id=f"kp:trace:{n}") for n, row in enumerate(dimensions)]
    labels = {
        one.id: Label(one.id, keep=bool(kept), group=n % groups if groups else None)
        for n, (one, kept) in enumerate(zip(records, keep, strict=True))
    }
    return records, labels


def only(found):
    (one,) = found.domains.values()
    return one


@pytest.mark.parametrize(
    ("truth", "asked"),
    [((0.1, 0.05, 0.6, 0.25), False), ((0.5, 0.2, 0.05, 0.25), False), ((0.1, 0.1, 0.3, 0.5), True)],
)
def test_a_planted_signal_is_found_with_its_sign_and_size(make_record, truth, asked):
    records, labels = planted(make_record, np.array(truth), traces=1200)

    found = fit(records, labels, Policy(), outcome_confidence=asked)

    one = only(found)
    assert [*one.candidates["fitted"].weights.values()] == pytest.approx(truth, abs=0.05)
    assert one.outcome == "supported"
    assert one.difference.low > 0
    assert one.candidates["fitted"].auc.value > one.candidates["in force"].auc.value
    assert one.candidates["fitted"].auc.value > one.candidates["best dimension"].auc.value
    assert found.proposed.profile("default").weights.model_dump() == one.candidates["fitted"].weights


def test_permuted_labels_support_nothing(make_record):
    """Of twenty, one may by chance."""
    records, labels = planted(make_record, np.array([0, 0, 1, 0]), traces=200, groups=40)
    rng, supported = np.random.default_rng(1), 0
    for _ in range(6):
        keeps = rng.permutation([one.keep for one in labels.values()]).tolist()
        pairs = zip(labels.items(), keeps, strict=True)
        permuted = {name: Label(name, keep=keep, group=one.group) for (name, one), keep in pairs}
        supported += only(fit(records, permuted, Policy())).outcome == "supported"
    assert supported <= 1


@pytest.mark.parametrize("groups", [np.arange(40) // 4, np.arange(53) % 17])
def test_a_group_is_in_one_fold(groups):
    """Else weights would be judged on the trials of tasks that they were fitted to."""
    folds = folds_of(groups)

    assert {*folds} == {*range(5)}
    assert all(len({*folds[groups == one]}) == 1 for one in groups)


def test_a_gain_that_may_be_chance_supports_nothing(make_record):
    """The labels are nearly those that the weights in force would give."""
    records, labels = planted(make_record, np.array([0.25, 0.2, 0.3, 0.25]), traces=150)

    found = fit(records, labels, Policy())

    difference = only(found).difference
    assert difference.low < 0 < difference.value
    assert only(found).candidates["fitted"].auc.low > 0.5
    assert only(found).outcome == "not supported"
    assert found.proposed == Policy()


def test_labels_that_are_the_outcome_change_nothing_unless_asked(make_record):
    rng = np.random.default_rng(2)
    records, labels = [], {}
    for n, row in enumerate(rng.random((300, 3))):
        success = bool(rng.random() < 0.5)
        record = make_record((*row, 0.8 if success else 0.24), id=f"kp:trace:{n}", success=success)
        records.append(record)
        labels[record.id] = Label(record.id, keep=success)

    constant, asked = (fit(records, labels, Policy(), outcome_confidence=one) for one in (False, True))

    assert only(constant).outcome == "not supported"
    assert only(constant).candidates["fitted"].auc.value < 0.6
    assert not any("warning" in str(line) for line in fit_tables(constant))
    assert [*only(asked).leaks] == ["outcome_confidence"]
    assert only(asked).candidates["fitted"].weights["outcome_confidence"] > 0.8
    lines = [str(line) for line in fit_tables(asked)]
    assert any("100% of the labels equal metadata.success" in line for line in lines)
    assert any("outcome confidence alone predicts the label (AUC 1.00)" in line for line in lines)


@pytest.mark.parametrize(
    ("traces", "groups", "outcome", "said"),
    [
        (600, 8, "too few labels", "at least 10 of each kind and 10 groups"),
        (14, 14, "too few labels", "too few labels"),
        (600, 15, "supported", "15 groups are few"),
        (600, 60, "supported", "the labels support these weights"),
    ],
)
def test_few_groups_are_said(make_record, traces, groups, outcome, said):
    records, labels = planted(make_record, np.array([0, 0, 0.75, 0.25]), traces, groups=groups)

    found = fit(records, labels, Policy())

    assert only(found).outcome == outcome
    assert said in " ".join(map(str, fit_tables(found)))


def test_the_proposed_policy_passes_the_target_by_its_own_weights(make_record):
    records, labels = planted(make_record, np.array([0, 0, 0.75, 0.25]))

    found = fit(records, labels, Policy(), target=0.2)

    written = Policy.model_validate(tomllib.loads(fitted_toml(found))["policy"])
    assert written == found.proposed
    assert sum(one.under(written).decision == "contribute" for one in records) == 120
    assert "default: of 600 traces, 20.0%" in fitted_toml(found)
    assert tune(records, written, 0.2).proposed == written
    assert json.loads(json.dumps(found.as_dict()))["domains"]["default"]["outcome"] == "supported"


def test_the_same_labels_give_the_same_fit_in_any_order(make_record):
    records, labels = planted(make_record, np.array([0, 0.2, 0.55, 0.25]), groups=50)
    backwards = dict(reversed(labels.items()))

    assert fit(records, labels, Policy()).as_dict() == fit(records, backwards, Policy()).as_dict()


@settings(max_examples=15)
@given(
    rows=st.lists(st.tuples(UNIT, UNIT, UNIT, UNIT, st.booleans()), min_size=2, max_size=30),
    start=st.sampled_from([START, np.array([0.15, 0.2, 0.1, 0.55]), np.array([0, 0, 0.9, 0.1])]),
    hold=st.booleans(),
)
def test_weights_are_0_or_more_and_together_1(rows, start, hold):
    values, kept = np.array([row[:4] for row in rows]), np.array([row[4] for row in rows])

    weights = fitted_weights(values, kept, start, hold=hold)
    written = Weights(**rounded_weights(weights))

    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)
    assert [weight for _, weight in written] == pytest.approx(weights, abs=2e-3)
    if hold:
        assert weights[3] == pytest.approx(start[3])


def test_the_fit_is_the_minimum_that_a_general_solver_finds(make_record):
    """With the weights themselves, on the simplex, and the steepness as one more variable."""
    records, labels = planted(make_record, np.array([0.1, 0.1, 0.55, 0.25]), traces=200)
    values = values_of([one.score for one in records], hold=False)
    kept = np.array([one.keep for one in labels.values()])
    centred, signs = (values - values.mean(axis=0)) / (values @ START).std(), np.where(kept, 1, -1)

    def loss(point):
        weights, steep, intercept = point[:4], point[4], point[5]
        margins = signs * (steep * centred @ weights + intercept)
        return np.logaddexp(0, -margins).sum() + PRIOR * steep**2 * ((weights - START) ** 2).sum()

    together = {"type": "eq", "fun": lambda point: point[:4].sum() - 1}
    bounds = [(0, 1)] * 4 + [(0, None), (None, None)]
    expected = minimize(loss, [*START, 1, 0], bounds=bounds, constraints=[together], method="SLSQP").x[:4]

    assert fitted_weights(values, kept, START, hold=False) == pytest.approx(expected, abs=2e-3)


@given(dimensions=st.tuples(UNIT, UNIT, UNIT, UNIT), overrides=OVERRIDES)
def test_the_weighted_values_are_the_score(make_record, dimensions, overrides):
    score = make_record(dimensions, overrides=overrides).score

    (value,) = values_of([score], hold=False) @ START

    weights = Weights(**rounded_weights(START))
    assert np.clip(value, 0, 1) == pytest.approx(
        quality_score(score.dimensions, overrides, Profile("x", weights, 1))
    )


def test_the_demos_labels_do_not_support_a_change(reference_records):
    labels = {one["id"]: Label(**one) for one in map(json.loads, LABELS.read_text().splitlines())}

    found = fit(reference_records, labels, Policy())

    assert {name: one.outcome for name, one in found.domains.items()} == {
        "code": "too few labels",
        "customer_service": "not supported",
    }
    assert found.proposed == Policy()
