"""Evaluation matches numpy and scikit-learn, and warns of leaks."""

import json
import re
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_recall_curve, precision_score, recall_score, roc_auc_score

from knowledgepulse_curator.fitting.evaluate import ALL_DOMAINS, evaluate
from knowledgepulse_curator.fitting.evaluate_report import evaluation_tables, verdict, verdicts
from knowledgepulse_curator.fitting.labelled_traces import matched
from knowledgepulse_curator.labels.labels import Label, labels_of_files
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.policies.estimates import auc
from knowledgepulse_worker.tools.policies.share_effects import HOUR_MS
from knowledgepulse_worker.tools.terminal.reports import plain
from support.traces import LABELS


@pytest.fixture(scope="module")
def labels():
    """Return the labels of the real traces: the rewards of their runs."""
    return {label.id: label for label in labels_of_files([LABELS])}


@pytest.fixture(scope="module")
def evaluation(reference_records, labels):
    return evaluate(reference_records, labels, Policy())


def column(records, name):
    return np.array([getattr(record.score, name) for record in records])


def judged(records, keep, group=lambda n: None):
    """Return labels of records, by their number and score."""
    return {
        record.id: Label(record.id, keep=bool(keep(n, record.score)), group=group(n), source="me")
        for n, record in enumerate(records)
    }


def only(records, labels, policy=None, **options):
    return evaluate(records, labels, policy or Policy(), **options).domains["default"]


@pytest.fixture
def line_up(make_record):
    """Return traces whose dimensions all are their number over a total."""

    def make(count, total, **others):
        return [make_record((n / total,) * 4, id=f"kp:trace:{n}", **others) for n in range(count)]

    return make


@pytest.fixture(scope="module")
def scattered(make_record):
    """Return 200 traces with dimensions at random."""
    rng = np.random.default_rng(5)
    return [make_record(tuple(rng.random(4)), id=f"kp:trace:{n}") for n in range(200)]


@pytest.mark.parametrize(
    ("domain", "counts", "alone"),
    [
        ("customer_service", (140, 43, 35), [0.41, 0.44, 0.52, 1]),
        (ALL_DOMAINS, (154, 57, 49), [0.4675, 0.456, 0.595, 1]),
    ],
)
def test_detects_the_leak_in_the_real_traces_score(evaluation, domain, counts, alone):
    """As measured on the SDK's scores: success determines the score, and nothing else predicts success."""
    evaluated = evaluation.domains[domain]

    assert (evaluated.traces, evaluated.kept, evaluated.groups) == counts
    assert round(evaluated.score.value, 2) == 0.99
    assert [found.value for found in evaluated.alone.values()] == pytest.approx(alone, abs=5e-3)
    assert evaluated.leaks == ["outcome_confidence"]
    assert evaluated.agreement == 1


def test_the_report_warns_of_a_leak_and_of_equal_labels(evaluation):
    told = " ".join(str(line) for line in evaluation_tables(evaluation))
    verdicts = [verdict(evaluation.domains[name]) for name in ("customer_service", "code")]

    for part in (
        "warning: customer_service: 100% of the labels equal metadata.success",
        "alone predicts the label (AUC 1.00); with it held constant, the score's AUC is 0.41 (",
        "customer_service: without outcome confidence, the score is no better than chance",
        "warning: code: all 14 labels are equal, so there is nothing to compare",
    ):
        assert part in told
    assert (
        "the score contains the label; without it, the score does not tell these labels apart: AUC 0.41"
        in verdicts[0]
    )
    assert "; no threshold is proposed; of all traces, 0." in verdicts[0]
    assert verdicts[1].startswith("verdict: code: too few labels: 14 of 14 traces are worth keeping")
    report = json.loads(json.dumps(plain(evaluation)))
    assert report["policy"] == Policy().digest
    assert report["domains"]["customer_service"]["leaks"] == ["outcome_confidence"]


def test_intervals_resample_whole_tasks(evaluation, reference_records, labels):
    """Trials of a task are not independent; resampling single trials would give too narrow an interval."""
    records = reference_records[:140]
    kept = np.array([labels[record.id].reward == 1 for record in records])
    complexity = column(records, "complexity")
    tasks = np.arange(140).reshape(4, 35)  # four trials of each
    rng = np.random.default_rng(3)
    drawn = [tasks[:, rng.integers(0, 35, 35)].ravel() for _ in range(400)]
    pairs = [np.subtract.outer(complexity[at][kept[at]], complexity[at][~kept[at]]) for at in drawn]
    expected = np.quantile([(np.sign(pair).mean() + 1) / 2 for pair in pairs], [0.025, 0.975])

    _, low, high = evaluation.domains["customer_service"].alone["complexity"]

    assert (low, high) == pytest.approx(expected, abs=0.02)


def test_precision_and_recall_match_scikit_learn(evaluation, reference_records, labels):
    records = reference_records[:140]
    kept = [labels[record.id].reward == 1 for record in records]
    scores = column(records, "quality_score")
    service = evaluation.domains["customer_service"]

    for row in service.operating:
        passing = scores >= row.threshold
        assert row.passing == passing.sum()
        assert (row.precision.value, row.recall, row.f1) == pytest.approx(
            [measure(kept, passing) for measure in (precision_score, recall_score, f1_score)]
        )


@pytest.fixture(scope="module")
def noisy(scattered):
    """Return an evaluation by labels that agree with the score somewhat."""
    rng = np.random.default_rng(5)
    labels = judged(scattered, lambda _, score: score.quality_score + rng.normal(0, 0.1) > 0.5)
    kept = np.array([label.keep for label in labels.values()])
    return only(scattered, labels), column(scattered, "quality_score"), kept


def test_the_proposed_threshold_is_the_best_with_ten_traces_on_each_side(noisy):
    domain, scores, kept = noisy
    precision, recall, thresholds = precision_recall_curve(kept, scores)
    passing = (scores >= thresholds[:, None]).sum(axis=1)
    candidates = np.flatnonzero((passing >= 10) & (passing <= len(scores) - 10))
    precision, recall = precision[candidates], recall[candidates]

    assert domain.verdict == "tells apart"
    assert domain.best_f1.f1 == pytest.approx(max(2 * precision * recall / (precision + recall)))


def test_a_printed_threshold_passes_the_number_beside_it(noisy):
    domain, scores, _ = noisy
    promised = re.findall(r"(0[.][0-9]+) passes ([0-9]+) of 200", verdict(domain))

    assert len(promised) == 1
    assert all(sum(scores >= float(threshold)) == int(passing) for threshold, passing in promised)


@pytest.mark.parametrize(
    ("keep", "group", "expected"),
    [
        (lambda n, _: n >= 20, lambda _: None, (1, 0.84, 1)),
        (lambda n, _: n % 20 < 10, lambda n: n // 10, (0.5, 0, 1)),
    ],
)
def test_precision_has_the_wider_interval_at_each_end(line_up, keep, group, expected):
    """Nine hits of nine are not certain, and ten trials of one task are not ten tasks."""
    records = line_up(40, 40)
    domain = only(records, judged(records, keep, group), Policy(threshold=0.5))
    assert domain.current.precision == pytest.approx(expected, abs=0.01)


def test_nine_of_a_kind_are_too_few_to_judge(line_up):
    records = line_up(19, 100)

    domain = only(records, judged(records, lambda n, _: n >= 9))

    assert (domain.score.value, domain.verdict) == (1, "too few labels")
    assert domain.best_f1 is None


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 3)), min_size=2)
)
def test_a_resamples_auc_matches_scikit_learn(rows):
    """Including ties, and traces that were drawn several times or never."""
    kept, values, counts = (np.array(part) for part in zip(*rows, strict=True))
    drawn = np.repeat(np.arange(len(rows)), counts)

    area = auc(kept, values, counts[None, :], [np.arange(len(rows))])[0]

    if len(set(kept[drawn])) < 2:
        assert np.isnan(area)
    else:
        assert area == pytest.approx(roc_auc_score(kept[drawn], values[drawn]))


def test_independent_labels_give_no_warning(scattered):
    rng = np.random.default_rng(4)

    domain = only(scattered, judged(scattered, lambda _, score: score.complexity + rng.normal(0, 0.5) > 0.5))

    assert domain.leaks == []
    assert domain.alone["complexity"].low > 0.5
    assert domain.without["complexity"].value < domain.score.value


def test_a_dimension_in_reverse_order_is_a_leak(make_record):
    records = [make_record((n / 40, 0.5, 0.5, 0.5), id=f"kp:trace:{n}") for n in range(40)]

    domain = only(records, judged(records, lambda _, score: score.complexity < 0.5))

    assert domain.leaks == ["complexity"]
    assert (domain.alone["complexity"].value, domain.without["complexity"].value) == (0, 0.5)


def test_unmatched_labels_and_unlabelled_traces_are_counted(line_up):
    labels = judged(line_up(30, 30), lambda n, _: n > 5)

    evaluation = evaluate(line_up(10, 10), dict([*labels.items()][3:]), Policy())

    assert (evaluation.unmatched, evaluation.unlabelled) == (20, 3)
    assert evaluation.sources == {"me": 7}


def test_labels_may_name_the_runs_native_id(make_record, make_content):
    """The trace's own id wins."""
    records = [make_record(id=f"kp:trace:{n}", content=make_content(native_id=f"run-{n}")) for n in range(3)]
    keeps = {"kp:trace:0": True, "run-0": False, "run-1": False, "run-2": True}

    labelled = matched(records, {name: Label(name, keep=keep) for name, keep in keeps.items()}, 0.5)

    assert [*labelled.kept] == [True, False, True]


@pytest.mark.parametrize("keep", [True, False])
def test_labels_that_are_all_equal_are_too_few_to_compare(make_record, keep):
    found = evaluate([make_record()], {"kp:trace:1": Label("kp:trace:1", keep=keep)}, Policy())
    (domain,) = found.domains.values()
    assert (domain.verdict, domain.score) == ("too few labels", None)


@pytest.mark.parametrize(
    ("noise", "sign", "expected", "sentence"),
    [
        (0.1, 1, "tells apart", "the score tells these labels apart: AUC 0."),
        (
            0.1,
            -1,
            "points the wrong way",
            "the score points the wrong way, as traces worth keeping score lower",
        ),
        (9.0, 1, "does not tell apart", "the score does not tell these labels apart: AUC 0."),
    ],
)
def test_the_verdict_says_what_the_score_is_worth(scattered, noise, sign, expected, sentence):
    rng = np.random.default_rng(6)
    labels = judged(scattered, lambda _, score: sign * (score.quality_score - 0.5) + rng.normal(0, noise) > 0)

    domain = only(scattered, labels)
    line = verdict(domain)

    assert domain.verdict == expected
    assert line.startswith(f"verdict: default: {sentence}")
    assert ("no threshold is proposed" in line) is (domain.best_f1 is None) is (expected != "tells apart")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (0, "against the length alone, so no better than preferring short runs"),
        (1, "against the length alone"),
        (-0.3, "against the length alone, so worse than preferring short runs"),
    ],
)
def test_the_verdict_compares_the_score_with_the_length_alone(draw, make_counts, more, said):
    """Short traces tend to be worth keeping; novelty says that, and more or less."""

    def one(rng, _):
        calls = int(rng.integers(1, 20))
        keep = calls / 20 + rng.normal(0, 0.3) < 0.5
        novelty = float(np.clip(1 - calls / 20 + more * (keep - 0.5), 0, 1))
        return (0.5, novelty, 0.5, 0.5), keep, {"counts": make_counts(calls)}

    domain = only(*draw(200, 8, one))

    assert said in verdict(domain)
    assert domain.length.alone.low > 0.5


def test_traces_that_the_policy_was_fitted_to_are_left_out(scattered, fitted_policy):
    """The evaluation is that of the others."""
    labels = judged(scattered, lambda n, score: score.tool_diversity > 0.5 or n % 3 == 0)
    policy = fitted_policy(scattered[:120])

    found = evaluate(scattered, labels, policy)

    others = evaluate(scattered[120:], labels, policy)
    assert found.domains == others.domains
    assert found.domains["default"].traces == 80
    told = (
        "default: left out 120 of 200 labels, to which the learned value was fitted: AUC 0.68 (0.57-0.77) on"
    )
    assert any(str(line).startswith(told) for line in evaluation_tables(found))


def test_without_other_traces_the_verdict_is_that_of_the_fit(scattered, fitted_policy):
    found = evaluate(scattered, judged(scattered, lambda n, _: n % 2), fitted_policy(scattered))

    assert found.domains == {}
    (told,) = verdicts(found)
    assert told == (
        "verdict: default: none, as its learned value was fitted to all 200 labels: AUC 0.68 (0.57-0.77) on "
        "traces that it was not fitted to, at its fit on 2026-11-26"
    )
    json.dumps(plain(found))


def test_a_policy_that_does_not_record_its_traces_is_warned_about(scattered, fitted_policy):
    labels = judged(scattered, lambda n, _: n % 2)

    found = evaluate(scattered, labels, fitted_policy(scattered, ids=None))

    assert found.domains["default"].traces == 200
    told = " ".join(str(line) for line in evaluation_tables(found))
    assert "warning: default: the policy does not record to which traces its learned value was fitted" in told


def test_a_record_of_traces_that_no_fit_wrote_is_refused(scattered, fitted_policy):
    with pytest.raises(InputError, match=r"`fitted.ids` of a learned value should be base64"):
        evaluate(scattered, judged(scattered, lambda n, _: n % 2), fitted_policy(scattered, ids="no base64!"))


def test_an_evaluation_counts_what_passes_by_a_share(make_record):
    random = Random(3)
    records = [
        make_record(tuple(random.random() for _ in range(4)), id=str(n), timestamp_ms=n // 50 * HOUR_MS)
        for n in range(400)
    ]
    labels = {record.id: Label(record.id, keep=number % 3 == 0) for number, record in enumerate(records)}
    (domain,) = evaluate(records, labels, Policy(share=0.2)).domains.values()

    assert domain.current is None
    assert domain.share.threshold == 0.2
    assert domain.share.passing / 400 == pytest.approx(0.2, abs=0.05)
    assert domain.repeats[-1].traces >= domain.repeats[-1].kept > 0
