"""All metrics, from the registries of the processes that have some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry

from knowledgepulse_curator.contributions.contribution_metrics import ContributionMetrics
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.assemble.assembly_metrics import AssemblyMetrics
from knowledgepulse_worker.tools.evaluations.evaluation_metrics import EvaluationMetrics

PROCESSES: dict[str, Callable[[CollectorRegistry], Any]] = {
    "kp-worker run": lambda registry: Metrics(Policy(), 0.1, registry),
    "kp-worker assemble": AssemblyMetrics,
    "kp-worker evaluations": EvaluationMetrics,
    "kp-worker contributions send": ContributionMetrics,
}


def page() -> str:
    """Return a section for each process, with a table of its metrics."""
    return "\n".join(line for command, make in PROCESSES.items() for line in _section(command, make))


def _section(command: str, make: Callable[[CollectorRegistry], Any]) -> Iterator[str]:
    yield f"\n## `{command}`\n\n| metric | type | labels | meaning |\n|---|---|---|---|"
    registry = CollectorRegistry()
    make(registry)
    for collector in registry._collector_to_names:  # noqa: SLF001  the only way to those without a sample
        (family,) = collector.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        # A collector of the client library keeps the labels to itself, one of ours tells them in its family.
        names = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
        labels = ", ".join(f"`{label}`" for label in names)
        yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |"
    yield ""
