"""What labels promise of a policy that was fitted to them."""

import numpy as np
import pytest

from knowledgepulse_curator.fitting.fit import fit
from knowledgepulse_curator.fitting.fit_report import fit_tables, fitted_toml
from knowledgepulse_curator.labels.labels import Label
from knowledgepulse_curator.promises.promise import Asked
from knowledgepulse_worker.policy import Policy

COUNT = 400


@pytest.fixture(scope="module")
def stream(make_record, make_counts):
    """Return records, and labels of half of them, which follow the repeated calls but for a twentieth."""
    rng, records, labels = np.random.default_rng(3), [], []
    for number in range(COUNT):
        repeated = int(rng.integers(0, 10))
        records.append(
            make_record(
                tuple(rng.random(4)), id=f"kp:trace:{number}", counts=make_counts(10, repeated), agent_id="a"
            )
        )
        keep = bool((repeated < 5) != (rng.random() < 0.05))
        labels.append(Label(f"kp:trace:{number}", keep=keep, source="ann", group=number, sampling="random"))
    return records, labels[: COUNT // 2]


def fitted(records, labels, least):
    named = {label.id: label for label in labels}
    asked = Asked(least)
    return fit(records, named, Policy(), today="2026-11-29", promised=asked, every=labels)


@pytest.mark.usefixtures("few_permutations")
def test_the_certified_share_is_proposed_with_the_value_and_said_to_have_no_theorem(stream):
    found = fitted(*stream, 0.8)

    promise, profile = found.promises["default"], found.proposed.profile("default")
    assert profile.learned is not None
    assert promise.out_of_fold
    assert 0.3 <= promise.share == profile.share <= 0.55  # half are kept, and the order is nearly theirs
    told = [line for line in fit_tables(found) if isinstance(line, str)]
    assert any("no theorem stands behind it: about" in line for line in told)
    assert "worth keeping (90% confidence; 200 labels of 200 tasks by ann" in fitted_toml(found)


@pytest.mark.usefixtures("few_permutations")
def test_labels_that_nobody_chose_at_random_leave_the_target(stream):
    records, labels = stream
    found = fitted(records, [Label(label.id, keep=label.keep, group=label.group) for label in labels], 0.8)
    assert found.promises["default"].outcome == "not known"
    assert found.proposed.profile("default").share == 0.1


def test_where_all_are_worth_keeping_all_may_pass_without_a_learned_value(stream):
    records, _ = stream
    labels = [
        Label(record.id, keep=True, group=n, sampling="random") for n, record in enumerate(records[:60])
    ]
    found = fitted(records, labels, 0.8)
    assert (found.proposes, found.proposed.profile("default").share) == (True, 1.0)
    assert found.proposed.profile("default").learned is None


@pytest.mark.usefixtures("few_permutations")
def test_a_trace_is_not_ranked_by_its_own_label(stream, monkeypatch):
    """In fold, a value fitted to 40 noisy labels of its own would promise what it does not keep."""
    records, labels = stream
    rng = np.random.default_rng(5)
    noise = [
        Label(label.id, keep=bool(rng.random() < 0.5), group=label.group, sampling="random")
        for label in labels
    ]
    found = fitted(records, noise, 0.7)
    assert {promise.outcome for promise in found.promises.values()} == {"none"}


@pytest.mark.usefixtures("few_permutations")
def test_a_skipped_trace_is_not_worth_keeping_after_a_fit_either(stream):
    records, labels = stream
    skipped = [
        Label(f"kp:trace:{number}", keep=False, skipped=True, group=number, sampling="random")
        for number in range(COUNT // 2, COUNT)
    ]
    found = fit(
        records,
        {label.id: label for label in labels},
        Policy(),
        today="2026-11-29",
        promised=Asked(0.8),
        every=[*labels, *skipped],
    )
    promise = found.promises["default"]
    assert (promise.skipped, promise.outcome) == (COUNT // 2, "none")
