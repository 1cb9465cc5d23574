"""The worker's Prometheus metrics.

Times are in seconds. Label values are bounded, since they come from the code or the settings and never from a
producer's text. Series with closed label sets start at zero, so that ``increase()`` sees the first event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS
from prometheus_client.openmetrics.exposition import generate_latest as render_openmetrics
from prometheus_client.samples import Sample

from knowledgepulse_worker.observe.embedding_metrics import EmbeddingMetrics
from knowledgepulse_worker.observe.lane_metrics import LaneMetrics, WaitedFor
from knowledgepulse_worker.observe.metric_registry import (
    TEXT,
    CollectorRegistry,
    GroupRegistry,
    Makers,
    prepare_registry,
)
from knowledgepulse_worker.observe.policy_metrics import PolicyMetrics
from knowledgepulse_worker.observe.recent import Recent
from knowledgepulse_worker.observe.stream_metrics import StreamMetrics
from knowledgepulse_worker.observe.trace_metrics import TraceMetrics
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import FleetSettings


class Metrics:
    """All metrics of the worker, by what they count.

    Args:
        policy: the policy, for domain labels and threshold gauges.
        budget: the latency budget in seconds, which becomes a bucket boundary.
        registry: the registry; by default a new one with process and platform collectors.
        fleet: the agents and frameworks with series of their own; by default none.
        group: the consumer group, which is a label of each series.

    Attributes:
        recent: recent events, for the status page.
    """

    def __init__(
        self,
        policy: Policy,
        budget: float,
        registry: CollectorRegistry | None = None,
        fleet: FleetSettings | None = None,
        group: str = "",
    ) -> None:
        self.registry = prepare_registry(registry)
        self._page = GroupRegistry(self.registry, group)
        self._refreshers: list[Callable[[], None]] = []
        self.recent = Recent()
        make = Makers(self.registry)
        self.traces = TraceMetrics(make, budget, fleet or FleetSettings())
        self.embedding = EmbeddingMetrics(make)
        self.lanes = LaneMetrics(make)
        self.stream = StreamMetrics(make)
        self.policy = PolicyMetrics(make)
        self.set_policy(policy)

    def set_policy(self, policy: Policy) -> None:
        """Set the current policy."""
        self.policy.set(policy)
        self.traces.start_domains(policy)
        self.embedding.start_domains(policy.profiles)

    def transaction(self, waited_for: WaitedFor) -> None:
        """Count a committed transaction, by what its begin waited for."""
        self.lanes.transaction(waited_for)
        self.recent.committed(waited_for)

    def partition_left(self, partition: int) -> None:
        """Remove the series of a partition that is no longer owned."""
        self.lanes.partition_left(partition)
        self.stream.partition_left(partition)

    def on_scrape(self, refresh: Callable[[], None]) -> None:
        """Call a function before every scrape, to refresh gauges."""
        self._refreshers.append(refresh)

    def render(self, accept: str, *, content: bool) -> tuple[str, bytes]:
        """Return the content type and the metrics page.

        Args:
            accept: the request's ``Accept`` header, which may ask for OpenMetrics; the default is
                Prometheus's text format.
            content: whether to include trace content, since OpenMetrics exemplars contain trace ids.
        """
        self._refresh()
        if content and "application/openmetrics-text" in accept:
            page: Any = self._page  # which has what the library reads of a registry
            return OPENMETRICS, render_openmetrics(page)
        return TEXT, self._page.text()

    def samples(self, *names: str) -> list[Sample]:
        """Return the current samples of these metrics."""
        self._refresh()
        families = self.registry.restricted_registry(names).collect()
        return [sample for family in families for sample in family.samples]

    def _refresh(self) -> None:
        for refresh in self._refreshers:
            refresh()
        self.policy.refresh()
