"""Scores of topics in a backend: what is sent, what is counted, and a backend that is away."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Scorer
from knowledgepulse_worker.tools.backends.all_backends import connected
from knowledgepulse_worker.tools.common import base64_headers
from knowledgepulse_worker.tools.common.retries import StoppedError
from knowledgepulse_worker.tools.evaluations.backend_scores import wait_for_backend, write_scores
from knowledgepulse_worker.tools.evaluations.evaluation_metrics import EvaluationMetrics
from support.backends import AgentRun, FakePhoenix
from support.scored import copied_by_connect, dead_letter, published
from support.traces import made


@pytest.fixture
def metrics():
    return EvaluationMetrics(CollectorRegistry())


def scored(offset, run=None, **metadata):
    """Return a scored record, of a run in the backend if one is given."""
    if run is not None:
        metadata["pulled_from"] = {"backend": "phoenix", "run": run.id}
    trace = made(**metadata)
    return published(offset, trace.to_json(), Scorer().evaluate(trace), Policy())


async def test_each_run_gets_its_score_however_often_it_is_sent(metrics, monkeypatch, caplog):
    monkeypatch.setattr(base64_headers, "_logged", LogInterval())
    fake = FakePhoenix()
    fake.runs = [AgentRun(0), AgentRun(1)]
    context = {"trace_id": fake.runs[1].id, "span_id": "0ee19b7ec3c1b173"}
    records = [
        scored(0, fake.runs[0]),
        scored(1, span_context=context),
        scored(2),
        scored(3, AgentRun(2)),
        dead_letter(4),
        copied_by_connect(scored(5, fake.runs[0])),
    ]
    async with fake.served() as url, connected("phoenix", url, "default") as backend:
        for _ in range(2):
            await write_scores(backend, metrics, records)
    assert {run: len(scores) for run, scores in fake.scores.items()} == {run.id: 1 for run in fake.runs}
    ((value, label, _, details),) = fake.scores[fake.runs[0].id].values()
    assert (label, details["kp.source"], details["kp.policy"]) == (
        "rejected",
        "raw-traces/0/0",
        Policy().digest,
    )
    assert 0 < value < 1
    assert metrics.counts() == {"sent": 4, "refused": 2, "failed": 0, "without_span": 2, "foreign": 4}
    assert metrics.registry.get_sample_value("kp_evaluations_backend_up") == 1
    assert caplog.text.count("skipped records are base64: set the header.converter") == 1


async def test_a_backend_that_is_away_is_waited_for_and_seen(metrics):
    stop = asyncio.Event()
    wait = partial(wait_for_backend, metrics, stop)
    await wait(0.0, "status 503")
    assert metrics.registry.get_sample_value("kp_evaluations_backend_up") == 0
    assert metrics.registry.get_sample_value("kp_evaluations_backend_retries_total") == 1
    stop.set()
    with pytest.raises(StoppedError):
        await wait(3600.0, "status 503")
