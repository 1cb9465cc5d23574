"""Evaluation matches numpy and scikit-learn, and warns of leaks."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, f1_score, precision_score, recall_score, roc_auc_score

from support.traces import LABELS
from worker.errors import InputError
from worker.policy import Policy
from worker.tools.policies.evaluate import ALL, auc, evaluate
from worker.tools.policies.labels import Label, labels_of_files
from worker.tools.policies.tables import evaluation_tables


@pytest.fixture(scope="module")
def labels():
    """Return the labels of the real traces: the rewards of their runs."""
    return labels_of_files([LABELS])


@pytest.fixture(scope="module")
def evaluation(reference_records, labels):
    return evaluate(reference_records, labels, Policy())


def column(records, name):
    return np.array([getattr(one.score, name) for one in records])


def test_detects_the_leak_in_the_real_traces_score(evaluation):
    """As measured on the SDK's scores: success determines the score, and nothing else predicts success."""
    one = evaluation.domains["customer_service"]

    assert (one.traces, one.kept, one.groups) == (140, 43, 35)
    assert round(one.score.value, 2) == 0.99
    assert round(one.without["outcome_confidence"].value, 2) == 0.41
    assert [round(one.alone[name].value, 2) for name in ("complexity", "novelty", "tool_diversity")] == [
        0.41,
        0.44,
        0.52,
    ]
    assert [leak.dimension for leak in one.leaks] == ["outcome_confidence"]
    assert one.agreement == 1


def test_detects_the_leak_over_all_domains(evaluation):
    one = evaluation.domains[ALL]

    assert round(one.score.value, 2) == 0.99
    assert one.alone["complexity"].value == pytest.approx(0.4675, abs=1e-4)
    assert one.alone["novelty"].value == pytest.approx(0.456, abs=2e-3)
    assert one.alone["tool_diversity"].value == pytest.approx(0.595, abs=1e-4)


def test_the_report_warns_of_a_leak(evaluation):
    warnings = [line for line in evaluation_tables(evaluation) if str(line).startswith("warning: customer")]

    assert "100% of the labels equal metadata.success" in warnings[0]
    assert "outcome confidence alone predicts the label (AUC 1.00); with it held constant" in warnings[1]
    assert "the score's AUC is 0.41 (" in warnings[1]
    assert "no better than chance" in warnings[2]


def test_a_domain_with_equal_labels_is_not_compared(evaluation):
    one = evaluation.domains["code"]
    assert (one.traces, one.kept, one.score, one.alone, one.leaks) == (14, 14, None, {}, [])
    assert "warning: code: all 14 labels are equal, so there is nothing to compare" in [
        *evaluation_tables(evaluation)
    ]


def test_intervals_resample_whole_tasks(evaluation, reference_records, labels):
    """Trials of a task are not independent; resampling single trials would give too narrow an interval."""
    records = reference_records[:140]
    kept = np.array([labels[one.id].reward == 1 for one in records])
    complexity = column(records, "complexity")
    tasks = np.arange(140).reshape(4, 35)  # four trials of each
    rng = np.random.default_rng(3)
    drawn = [tasks[:, rng.integers(0, 35, 35)].ravel() for _ in range(1000)]
    expected = np.quantile([roc_auc_score(kept[at], complexity[at]) for at in drawn], [0.025, 0.975])

    _, low, high = evaluation.domains["customer_service"].alone["complexity"]

    assert (low, high) == pytest.approx(expected, abs=0.02)


def test_precision_and_recall_match_scikit_learn(evaluation, reference_records, labels):
    records = reference_records[:140]
    kept = [labels[one.id].reward == 1 for one in records]
    scores = column(records, "quality_score")
    one = evaluation.domains["customer_service"]

    rows = [*one.operating, one.best_f1, one.precise]
    for row in rows:
        passing = scores >= row.threshold
        assert row.passing == passing.sum()
        assert (row.precision, row.recall, row.f1) == pytest.approx(
            [measure(kept, passing) for measure in (precision_score, recall_score, f1_score)]
        )
    best = max(f1_score(kept, scores >= threshold) for threshold in scores)
    assert one.best_f1.f1 == pytest.approx(best)
    assert one.precise.precision >= 0.9
    assert one.precise.recall == max(
        recall_score(kept, scores >= threshold)
        for threshold in scores
        if precision_score(kept, scores >= threshold) >= 0.9
    )


def test_calibration_matches_scikit_learn(evaluation, reference_records, labels):
    kept = [labels[one.id].reward == 1 for one in reference_records]
    confidence = [one.confidence for one in reference_records]
    calibration = evaluation.domains[ALL].calibration

    shares, means = calibration_curve(kept, confidence, n_bins=10)
    assert [one.confidence for one in calibration.bins] == pytest.approx(means)
    assert [one.kept for one in calibration.bins] == pytest.approx(shares)
    assert calibration.brier == pytest.approx(brier_score_loss(kept, confidence))
    assert calibration.error == pytest.approx(0.2)


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 3)), min_size=2)
)
def test_a_resamples_auc_matches_scikit_learn(rows):
    """Including ties, and traces that were drawn several times or never."""
    kept, values, counts = (np.array(part) for part in zip(*rows, strict=True))
    drawn = np.repeat(np.arange(len(rows)), counts)

    area = auc(kept, values, counts[None, :])[0]

    if len(set(kept[drawn])) < 2:
        assert np.isnan(area)
    else:
        assert area == pytest.approx(roc_auc_score(kept[drawn], values[drawn]))


def test_independent_labels_give_no_warning(make_record):
    rng = np.random.default_rng(4)
    records = [make_record(tuple(rng.random(4)), id=f"kp:trace:{n}", success=True) for n in range(200)]
    labels = {
        one.id: Label(one.id, keep=bool(one.score.complexity + rng.normal(0, 0.5) > 0.5)) for one in records
    }

    one = evaluate(records, labels, Policy()).domains["default"]

    assert one.leaks == []
    assert one.alone["complexity"].low > 0.5
    assert one.without["complexity"].value < one.score.value


def test_a_dimension_in_reverse_order_is_a_leak(make_record):
    records = [make_record((n / 40, 0.5, 0.5, 0.5), id=f"kp:trace:{n}") for n in range(40)]
    labels = {one.id: Label(one.id, keep=one.score.complexity < 0.5) for one in records}

    (leak,) = evaluate(records, labels, Policy()).domains["default"].leaks

    assert (leak.dimension, leak.alone.value, leak.rest.value) == ("complexity", 0, 0.5)


def test_unmatched_labels_and_unlabelled_traces_are_counted(make_record):
    records = [make_record((n / 10, 0, 0, 0), id=f"kp:trace:{n}") for n in range(10)]
    labels = {f"kp:trace:{n}": Label(f"kp:trace:{n}", keep=n > 5, source="me") for n in range(3, 30)}

    evaluation = evaluate(records, labels, Policy())

    assert (evaluation.unmatched, evaluation.unlabelled) == (20, 3)
    assert evaluation.sources == {"me": 7}


def test_rejects_labels_that_match_no_trace(make_record):
    with pytest.raises(InputError, match="none of the 1 labels matches one of the 1 traces"):
        evaluate([make_record()], {"kp:trace:2": Label("kp:trace:2", keep=True)}, Policy())


@pytest.mark.parametrize(("keep", "said"), [(True, "worth keeping"), (False, "not worth keeping")])
def test_rejects_labels_that_are_all_equal(make_record, keep, said):
    with pytest.raises(InputError, match=f"all 1 labels that match a trace say {said}; "):
        evaluate([make_record()], {"kp:trace:1": Label("kp:trace:1", keep=keep)}, Policy())


def test_no_threshold_reaches_the_requested_precision(make_record):
    records = [make_record((n / 10, 0, 0, 0), id=f"kp:trace:{n}") for n in range(10)]
    labels = {one.id: Label(one.id, keep=one.score.complexity < 0.5) for one in records}

    evaluation = evaluate(records, labels, Policy())

    assert evaluation.domains["default"].precise is None
    assert "no threshold has a precision of 0.9" in [*evaluation_tables(evaluation)]


def test_the_report_is_plain_json(evaluation):
    report = json.loads(json.dumps(evaluation.as_dict()))
    assert report["policy"] == Policy().digest
    assert report["domains"]["customer_service"]["leaks"][0]["dimension"] == "outcome_confidence"
