"""Drift from an accepted reference."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from scipy.stats import ks_2samp

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import DIMENSIONS, Policy
from knowledgepulse_worker.tools.policies.drift import (
    MIN_DISTANCE,
    distributions,
    drifts,
    read_reference,
    reference_rules,
)

POLICY = Policy(threshold=0.5)
TENTHS = st.lists(st.integers(1, 10).map(lambda n: n / 10), min_size=1, max_size=40)


@given(TENTHS, TENTHS)
def test_the_distance_is_scipys(make_record, now, then):
    """Of values that are bounds of buckets; between them, buckets tell less."""
    current, reference = (
        distributions([make_record((0.5, value, 0.5, 0.5)) for value in values], POLICY)
        for values in (now, then)
    )

    found = {drift.dimension: drift.distance for drift in drifts(current, reference)}

    with np.errstate(all="ignore"):  # its p-value of equal values
        assert found["novelty"] == pytest.approx(ks_2samp(now, then, method="asymp").statistic)
    assert found["complexity"] == 0


def shifted(make_record, count, by):
    values = np.linspace(0, 1 - by, count) + by
    return [make_record((0.5, value, 0.5, 0.5), domain="code") for value in values.tolist()]


@pytest.mark.parametrize(
    ("count", "by", "drifted"),
    [(1000, 0.5, True), (1000, 0.1, False), (20, 0.5, False)],  # not: too little, too few
)
def test_drift_is_relevant_and_more_than_chance_explains(make_record, count, by, drifted):
    reference = distributions(shifted(make_record, 1000, 0), POLICY)

    found = {
        drift.dimension: drift
        for drift in drifts(distributions(shifted(make_record, count, by), POLICY), reference)
    }

    assert [name for name, drift in found.items() if drift.drifted and name in DIMENSIONS] == [
        "novelty"
    ] * drifted
    assert found["novelty"].limit >= MIN_DISTANCE
    assert (found["novelty"].traces, found["novelty"].reference) == (count, 1000)


def test_a_reference_of_release_0_3_0_has_the_same_policy(make_record):
    now = distributions(shifted(make_record, 10, 0), POLICY)

    found = {drift.dimension for drift in drifts(now, replace(now, policy=now.policy[:12]))}

    assert found == {drift.dimension for drift in drifts(now, now)}


def test_a_reference_is_read_as_it_was_written(make_record, tmp_path):
    accepted = distributions([*shifted(make_record, 7, 0), make_record()], POLICY)
    (tmp_path / "reference.json").write_text(reference_rules(accepted))

    assert read_reference(tmp_path / "reference.json") == accepted


def test_its_buckets_are_those_of_the_workers_histograms(make_record):
    """An unknown bucket would match nothing, and the alert would never fire."""
    metrics = Metrics(POLICY, 0.1, CollectorRegistry())
    exposed = {
        sample.labels.get("dimension", "quality_score") + " " + sample.labels["le"]
        for sample in metrics.samples("kp_dimension_score_bucket", "kp_quality_score_bucket")
        if sample.name.endswith("_bucket") and sample.labels["le"] not in ("1.0", "+Inf")
    }
    rules = json.loads(reference_rules(distributions([make_record()], POLICY)))["groups"][0]["rules"]
    labels = [rule["labels"] for rule in rules if rule["record"] == "kp:reference:cdf"]

    assert {f"{label['dimension']} {label['le']}" for label in labels} == exposed | {"decision 0.0"}


RULES = '{"groups": [{"name": "a", "interval": "1m", "rules": %s}]}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[policy]\n", "not a reference"),
        ('{"groups": []}', "not a reference"),
        (RULES % '[{"alert": "A"}]', "not a reference"),
        (RULES % '[{"record": "kp:reference:traces", "labels": [], "expr": 3}]', "not a reference"),
    ],
)
def test_what_is_no_reference_is_named(tmp_path, text, message):
    (tmp_path / "reference.json").write_text(text)
    with pytest.raises(InputError, match=f"reference.json: {message}"):
        read_reference(tmp_path / "reference.json")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"le": "0.3"', '"le": "0.33"', "other buckets of complexity"),
        (f'"policy": "{POLICY.digest}"', '"policy": []', "not a reference"),
        ('"expr": "vector(1)"', '"expr": "vector(1e999)"', "not a reference"),
        ('"expr": "vector(1)"', '"expr": "vector(-1)"', "not a reference"),
        ('"expr": "vector(0.0)"', '"expr": "vector(NaN)"', "not a reference"),
        ('"expr": "vector(0.0)"', '"expr": "vector(1.1)"', "not a reference"),
    ],
)
def test_a_changed_reference_is_refused(make_record, tmp_path, old, new, message):
    written = reference_rules(distributions([make_record()], POLICY))
    assert old in written
    (tmp_path / "reference.json").write_text(written.replace(old, new))
    with pytest.raises(InputError, match=f"reference.json: {message}"):
        read_reference(tmp_path / "reference.json")


def test_the_command_accepts_then_compares(kp_worker, tmp_path, real_traces):
    traces, reference = tmp_path / "traces.jsonl", tmp_path / "reference.json"
    traces.write_bytes(b"\n".join(real_traces))
    options = ("--embedder", "none")

    assert kp_worker("policy", "drift", traces, *options, "--accept", reference).exit_code == 0
    quiet = kp_worker("policy", "drift", traces, *options, "--reference", reference)
    assert quiet.exit_code == 0
    assert "drifted" not in quiet.stdout
    assert len(quiet.stdout.splitlines()) == 1 + 2 * 6  # of two domains

    trace = json.loads(real_traces[0])
    changed = [{**trace, "steps": [{"step_id": 0, "type": "thought", "content": str(n)}]} for n in range(100)]
    traces.write_text("\n".join(map(json.dumps, changed)))
    found = json.loads(
        kp_worker("policy", "drift", traces, *options, "--reference", reference, "--json").stdout
    )
    assert "complexity" in [drift["dimension"] for drift in found if drift["drifted"]]

    (tmp_path / "policy.toml").write_text("[policy]\nthreshold = 0.1\n")
    other = kp_worker(
        *("policy", "drift", traces, *options, "--reference", reference, "--policy", tmp_path / "policy.toml")
    )
    assert "scores and decisions are not compared" in other.stderr
    assert "decision" not in other.stdout

    assert "either --accept FILE or --reference FILE" in kp_worker("policy", "drift", traces).stderr
    assert "is read by this command" in kp_worker("policy", "drift", traces, "--accept", traces).stderr
