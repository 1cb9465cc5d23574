"""A measured worker writes each duration down that it passes to its metrics."""

import os

import pytest

from bench.process import record_metrics
from bench.workers import read_samples
from knowledgepulse_worker.observe.trace_metrics import TraceMetrics


@pytest.fixture
def unchanged(monkeypatch):
    """Undo what the bench changes."""
    for name in ("scored", "admitted", "finished"):
        monkeypatch.setattr(TraceMetrics, name, getattr(TraceMetrics, name))


async def test_every_sample_of_a_record_is_written_down(unchanged, make_harness, raw, tmp_path):
    file = os.open(tmp_path / "samples", os.O_WRONLY | os.O_CREAT)
    record_metrics(file)
    harness = make_harness()

    await harness.processed(await harness.lane(), raw(0), raw(1))

    os.close(file)
    samples = {
        kind: read_samples(tmp_path / "samples", 0, kind) for kind in ("admission", "scoring", "end_to_end")
    }
    assert {kind: len(found) for kind, found in samples.items()} == {
        "admission": 2,
        "scoring": 2,
        "end_to_end": 2,
    }
