"""Prometheus metrics of ``kp-worker evaluations``."""

from __future__ import annotations

from knowledgepulse_worker.observe.registry import CollectorRegistry, CommandMetrics, start_at_zero

RESULTS = ("sent", "without_span", "repeat", "foreign")


class EvaluationMetrics(CommandMetrics):
    """All metrics of the command.

    Args:
        registry: the registry; by default a new one with process and platform collectors.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__(registry)
        make = self._make
        self._evaluations = make.counter(
            "kp_evaluations",
            "Outputs read: sent, without a span to send it to, repeated, or not by a worker",
            ["result"],
        )
        self.lag = make.gauge("kp_evaluations_lag_records", "Outputs between the position and the ends")
        start_at_zero(self._evaluations, RESULTS)

    def read(self, result: str) -> None:
        """Count an output by what became of its score."""
        self._evaluations.labels(result).inc()

    def counts(self) -> dict[str, int]:
        """Return the number of outputs by result."""
        return {
            result: int(self.registry.get_sample_value("kp_evaluations_total", {"result": result}) or 0)
            for result in RESULTS
        }
