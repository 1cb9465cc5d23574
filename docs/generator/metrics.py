"""All metrics, from the registries of the processes that have some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry

from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.assemble.assembly_metrics import AssemblyMetrics
from knowledgepulse_worker.tools.contributions.contribution_metrics import ContributionMetrics
from knowledgepulse_worker.tools.evaluations.evaluation_metrics import EvaluationMetrics

PROCESSES: dict[str, Callable[[CollectorRegistry], Any]] = {
    "kp-worker run": lambda registry: Metrics(Policy(), 0.1, registry),
    "kp-worker assemble": AssemblyMetrics,
    "kp-worker evaluations": EvaluationMetrics,
    "kp-worker contributions send": ContributionMetrics,
}


def page() -> str:
    """Return a section for each process, with a section for each metric."""
    return "\n".join(line for command, make in PROCESSES.items() for line in _section(command, make))


def _section(command: str, make: Callable[[CollectorRegistry], Any]) -> Iterator[str]:
    yield f"\n## {command}\n"
    registry = CollectorRegistry()
    make(registry)
    for collector in registry._collector_to_names:  # noqa: SLF001  the only way to the labels without a sample
        (family,) = collector.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in getattr(collector, "_labelnames", ()))
        yield f"### `{name}` {{ #{name} }}\n"
        yield f"{family.type}{', labels ' if labels else ''}{labels}\n"
        yield f"{family.documentation}\n"
