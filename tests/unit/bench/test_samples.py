"""All durations observed by a worker's metrics are recorded for the quantiles."""

import os
from types import SimpleNamespace

import pytest

from bench.process import SAMPLE, record_metrics
from bench.workers import read_samples
from knowledgepulse_worker.observe.metrics import DIMENSIONS, Metrics
from knowledgepulse_worker.policy import Policy


@pytest.fixture
def samples(tmp_path, monkeypatch):
    for name in ("scored", "admitted", "published"):
        monkeypatch.setattr(Metrics, name, getattr(Metrics, name))  # so that it is itself again afterwards
    path = tmp_path / "samples"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    record_metrics(file)
    yield path
    os.close(file)


def test_observed_durations_are_recorded_and_still_counted(samples):
    metrics = Metrics(Policy(), 0.1)
    score = SimpleNamespace(domain="default", **dict.fromkeys(DIMENSIONS, 0.5))
    metrics.scored(score, "kp:trace:1", 0.25)
    metrics.admitted(0.125)
    metrics.published("default", "rejected", 0.5, 0.5)
    metrics.published("default", "rejected", 0.5, 1.5)

    def seconds(kind, mark=0):
        return read_samples(samples, mark, kind)["seconds"].tolist()

    assert seconds("scoring") == [0.25]
    assert seconds("admission") == [0.125]
    assert seconds("end_to_end") == [0.5, 1.5]
    assert seconds("end_to_end", mark=3 * SAMPLE.size) == [1.5]
    counted = {
        sample.name: sample.value
        for sample in metrics.samples("kp_scoring_seconds_sum", "kp_end_to_end_seconds_sum")
    }
    assert counted == {"kp_scoring_seconds_sum": 0.25, "kp_end_to_end_seconds_sum": 2.0}


def test_a_missing_sample_file_has_no_samples(tmp_path):
    assert len(read_samples(tmp_path / "none", 0, "scoring")) == 0
