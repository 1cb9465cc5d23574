"""Observe the worker once a second for the verdict on its state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from knowledgepulse_worker.http.verdict import Observation
from knowledgepulse_worker.kafka.wire.group_member import HEARTBEATS
from knowledgepulse_worker.observe.recent import SECONDS
from knowledgepulse_worker.stream.app import WorkerApp
from knowledgepulse_worker.stream.source import Source
from knowledgepulse_worker.stream.watchdog import INTERVAL


async def diagnose(app: WorkerApp, source: Source, producer_silence: Callable[[], float]) -> None:
    """Keep the verdict and its metric current; observing sends no requests, so nothing can delay it.

    Args:
        app: the worker.
        source: its source.
        producer_silence: returns the seconds for which the producer has waited to start.
    """
    while True:
        verdict = app.diagnosis.observe(observe(app, source, producer_silence()))
        app.metrics.set_state(verdict.state)
        await asyncio.sleep(INTERVAL)


def observe(app: WorkerApp, source: Source, producer_silence: float) -> Observation:
    """Return an observation of the worker's current state."""
    progress = source.progress
    # During a rebalance the coordinator answers once all other members have joined.
    is_answerable = progress.is_member and not source.is_rebalancing
    interval = app.settings.kafka.session_timeout / HEARTBEATS
    age = progress.coordinator_age
    return Observation(
        pending=tuple(app.readiness.reasons),
        partitions=len(app.owned),
        recovering=progress.recovering,
        publishing_throttled=app.throttles.producer.recent,
        reading_throttled=app.throttles.consumer.recent,
        coordinator_silence=max(0.0, age - interval) if is_answerable else 0.0,
        leader_silence=progress.silence(),
        producer_silence=producer_silence,
        transaction_age=progress.transaction_age,
        isolated=app.isolated,
        lag=sum(progress.lag().values()),
        rate=sum(second.total() for second in app.metrics.recent.per_second()) / SECONDS,
        has_unfinished=not source.is_rebalancing and progress.has_unfinished,
        last_output=app.metrics.recent.last_output,
    )
