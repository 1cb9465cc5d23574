"""Prometheus metrics of ``kp-worker contributions send``."""

from __future__ import annotations

from typing import get_args

from knowledgepulse_curator.contributions.contributions_topic import Result
from knowledgepulse_curator.contributions.registry_client import RetryReason
from knowledgepulse_worker.observe.metric_registry import CollectorRegistry, CommandMetrics, start_at_zero


class ContributionMetrics(CommandMetrics):
    """All metrics of the command."""

    def __init__(self, registry: CollectorRegistry | None = None, group: str = "") -> None:
        super().__init__(registry, group)
        make = self._make
        self._results = make.counter(
            "kp_contributions",
            "Contributed traces by the registry's answer or the reason for not sending them",
            ["result"],
        )
        self._retries = make.counter(
            "kp_contribution_retries", "Requests that were repeated for want of a final answer", ["reason"]
        )
        self.lag = make.gauge("kp_contributions_lag_records", "Traces that were not sent yet")
        self.results = start_at_zero(self._results, get_args(Result))
        self.retries = start_at_zero(self._retries, get_args(RetryReason))

    def counts(self) -> dict[str, int]:
        """Return the number of traces by result and of repeated requests by reason, without zeros."""
        totals = {
            sample.labels[label]: int(sample.value)
            for metric, label in ((self._results, "result"), (self._retries, "reason"))
            for sample in next(iter(metric.collect())).samples
        }
        return {name: count for name, count in totals.items() if count}
