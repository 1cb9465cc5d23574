"""A measured worker writes each duration down that it passes to its metrics."""

import os

import pytest

from bench.process import record_metrics
from bench.settled import record_transactions
from bench.workers import read_samples
from knowledgepulse_worker.lane.assignment import Assignment
from knowledgepulse_worker.observe.trace_metrics import TraceMetrics
from support.lanes import commit


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


async def test_each_transaction_is_written_down_with_its_records(make_harness, raw, tmp_path, monkeypatch):
    monkeypatch.setattr(Assignment, "settle", Assignment.settle)
    file = os.open(tmp_path / "samples", os.O_WRONLY | os.O_CREAT)
    record_transactions(file)
    harness = make_harness()
    assignment = harness.assignment()
    for record in (raw(0), raw(1), raw(0, partition=2)):
        await assignment.tasks[record.partition].take(record)
    await harness.until(lambda: sum(len(lane.uncommitted.complete()) for lane in assignment.lanes) == 3)

    await commit(assignment, harness.publisher.publish)
    await commit(assignment, harness.publisher.publish)  # nothing is left

    os.close(file)
    kinds = ("transaction", "end_to_end", "commit_wait")
    found = [read_samples(tmp_path / "samples", 0, kind) for kind in kinds]
    assert [len(samples) for samples in found] == [1, 3, 3]
    assert all((samples["seconds"] > 0).all() for samples in found)
