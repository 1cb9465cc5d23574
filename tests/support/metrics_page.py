"""The values on a metrics page."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def value(page: str, name: str, **labels: str) -> float:
    """Return the sum of the samples with this name and these labels; 0 if there are none."""
    return sum(sample.value for sample in samples(page, name) if labels.items() <= sample.labels.items())


def samples(page: str, name: str) -> list[Sample]:
    """Return the samples with this name.

    Only their lines are parsed: tests that wait for a value read a page of 600 lines again and again.
    """
    lines = "\n".join(line for line in page.split("\n") if line.startswith(name))
    return [
        sample
        for family in text_string_to_metric_families(lines)
        for sample in family.samples
        if sample.name == name
    ]
