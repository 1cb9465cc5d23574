"""Parse a metrics page."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def value(page: str, name: str, **labels: str) -> float:
    """Return the sum of the samples with this name and these labels; 0 if there are none."""
    return sum(sample.value for sample in _samples(page, name) if labels.items() <= sample.labels.items())


def quantile(page: str, histogram: str, q: float) -> float:
    """Estimate a histogram's quantile in the same way as ``histogram_quantile``; NaN if it is empty.

    Args:
        page: a metrics page in the text format.
        histogram: the name, without ``_bucket``.
        q: 0 to 1.
    """
    buckets = sorted(
        (float(sample.labels["le"]), sample.value) for sample in _samples(page, f"{histogram}_bucket")
    )
    if not buckets or buckets[-1][1] == 0:
        return math.nan
    rank = q * buckets[-1][1]
    lower, below = 0.0, 0.0
    for upper, count in buckets:
        if count >= rank:
            if math.isinf(upper):
                return lower
            share = (rank - below) / (count - below) if count > below else 1.0
            return lower + (upper - lower) * share
        lower, below = upper, count
    return lower


def _samples(page: str, name: str) -> list[Sample]:
    return [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    ]
