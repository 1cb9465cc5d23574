"""The metrics of all tools that have metrics, one tool per line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from knowledgepulse_curator.contributions.contribution_metrics import ContributionMetrics
from knowledgepulse_worker.tools.assemble.assembly_metrics import AssemblyMetrics
from knowledgepulse_worker.tools.evaluations.evaluation_metrics import EvaluationMetrics


def _assembly(registry: CollectorRegistry | None, group: str = "") -> AssemblyMetrics:
    """Create the metrics with a partition, so that its series exist."""
    metrics = AssemblyMetrics(registry, group)
    metrics.open_runs(0, 0, 0)
    return metrics


TOOL_METRICS: dict[str, Callable[..., Any]] = {
    "assembly": _assembly,
    "contributions": ContributionMetrics,
    "evaluations": EvaluationMetrics,
}
