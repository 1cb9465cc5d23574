"""Policies compared on the same labels."""

import json

import numpy as np
import pytest

from knowledgepulse_curator.fitting.evaluate import compare
from knowledgepulse_curator.fitting.evaluate_report import changes, comparison_tables
from knowledgepulse_curator.labels.labels import Label
from knowledgepulse_worker.policy import DomainPolicy, Policy, Weights
from knowledgepulse_worker.tools.terminal.reports import plain

DIVERSE = Policy(
    threshold=0.5,
    domains={
        "default": DomainPolicy(
            weights=Weights(complexity=0, novelty=0, tool_diversity=0.75, outcome_confidence=0.25)
        )
    },
)
NOVEL = Policy(threshold=0.5)


@pytest.fixture(scope="module")
def labelled(make_record):
    """Tool diversity says, with noise, what is worth keeping."""
    rng = np.random.default_rng(0)
    records = [make_record((*rng.random(3), 0.5), id=f"kp:trace:{n}") for n in range(200)]
    labels = {
        record.id: Label(
            record.id, keep=bool(record.score.tool_diversity + rng.normal(0, 0.2) > 0.5), group=n % 50
        )
        for n, record in enumerate(records)
    }
    return records, labels


def test_a_better_policy_differs_by_more_than_chance(labelled):
    records, labels = labelled

    (comparison,) = compare(records, labels, [NOVEL, DIVERSE], min_reward=0.5)

    difference = comparison.differences[DIVERSE.digest]
    first, second = (comparison.policies[policy.digest] for policy in (NOVEL, DIVERSE))
    assert difference["AUC"].value == pytest.approx(second["AUC"].value - first["AUC"].value)
    assert min(difference[name].low for name in ("AUC", "precision", "recall")) > 0
    passing = np.mean([record.under(DIVERSE).passes for record in records])
    assert second["passing"].value == passing
    assert [*changes([comparison])] == [
        f"change: default: {DIVERSE.digest} has higher AUC, precision, recall"
    ]
    assert json.loads(json.dumps(plain(comparison)))["differences"]


@pytest.mark.parametrize(
    ("threshold", "said"), [(0.5001, "the labels show no difference"), (1.0, "has lower recall")]
)
def test_a_policy_with_the_same_weights_orders_alike(labelled, threshold, said):
    """A precision of nothing is a dash."""
    (comparison,) = compare(*labelled, [NOVEL, Policy(threshold=threshold)], min_reward=0.5)

    (difference,) = comparison.differences.values()
    _, _, table = comparison_tables([comparison])
    assert difference["AUC"] == (0, 0, 0)
    assert said in next(changes([comparison]))
    assert ([*table.columns[2].cells][1:] == ["-", "-"]) is (threshold == 1)


def test_labels_that_are_the_outcome_are_compared_without_it(draw):
    def one(rng, number):
        return (*rng.random(3), 0.9 if number % 2 else 0.1), number % 2, {"success": bool(number % 2)}

    records, labels = draw(100, 1, one)

    (comparison,) = compare(records, labels, [NOVEL, DIVERSE], min_reward=0.5)

    assert comparison.held
    assert all(figures["AUC"].low < 0.5 < figures["AUC"].high for figures in comparison.policies.values())
    assert "outcome confidence constant" in [*comparison_tables([comparison])][1]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (0, "not compared: 100 labels are left out, as a learned value was fitted to them, and too few"),
        (100, "; 100 labels are left out, as a learned value was fitted to them"),
    ],
)
def test_labels_that_a_policy_was_fitted_to_do_not_count(labelled, fitted_policy, others, said):
    """Whichever of the policies it is."""
    records, labels = labelled
    policies = [NOVEL, fitted_policy(records[:100])]

    (comparison,) = compare(records[: 100 + others], labels, policies, min_reward=0.5)

    assert said in next(changes([comparison]))
    assert comparison.policies == (compare(records[100:], labels, policies)[0].policies if others else {})
