"""Prometheus metrics of ``kp-worker evaluations``."""

from __future__ import annotations

from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.observe.metric_registry import CollectorRegistry, CommandMetrics, start_at_zero
from knowledgepulse_worker.tools.common.base64_headers import warn_if_base64_headers

RESULTS = ("sent", "refused", "failed", "without_span", "foreign")


class EvaluationMetrics(CommandMetrics):
    """All metrics of the command."""

    def __init__(self, registry: CollectorRegistry | None = None, group: str = "") -> None:
        super().__init__(registry, group)
        make = self._make
        evaluations = make.counter(
            "kp_evaluations",
            "Outputs that were read, by result",
            ["result"],
        )
        self.backend_up = make.gauge("kp_evaluations_backend_up", "Whether the backend takes scores, 0 or 1")
        self.retries = make.counter(
            "kp_evaluations_backend_retries", "Requests to the backend that failed and were repeated"
        )
        self.lag = make.gauge("kp_evaluations_lag_records", "Outputs that were not read yet")
        self.results = start_at_zero(evaluations, RESULTS)

    def skip_foreign(self, record: Record) -> None:
        """Count a record that no worker wrote, and log what to change if it is a copy of one that did."""
        self.results["foreign"].inc()
        warn_if_base64_headers(record.topic, record.headers)

    def counts(self) -> dict[str, int]:
        """Return the number of outputs by result."""
        return {
            result: int(self.registry.get_sample_value("kp_evaluations_total", {"result": result}) or 0)
            for result in RESULTS
        }
