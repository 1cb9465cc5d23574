"""A histogram that takes a value in a fraction of a microsecond.

Every trace adds a dozen values. The client library's own histogram takes a lock for the sum and for the
bucket of each value, which costs more than scoring the trace. This one is a collector of the same library:
its observations come from one thread and are put into the library's form at a scrape.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from math import inf

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar


class Series:
    """A histogram's values with the same labels.

    Args:
        bounds: the upper bounds of the buckets, in order; the last is infinity.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * len(bounds)
        self._sum = 0.0
        self._exemplars: list[tuple[str, float, float] | None] = [None] * len(bounds)

    def observe(self, value: float, trace_id: str | None = None) -> None:
        """Add a value.

        Args:
            value: the value.
            trace_id: the bucket's exemplar; None to keep the former one.
        """
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += 1
        self._sum += value
        if trace_id is not None:
            self._exemplars[bucket] = (trace_id, value, time.time())

    def add_samples(self, family: Metric, labels: dict[str, str]) -> None:
        """Add the samples of a scrape to a metric family."""
        total = 0
        for bound, count, exemplar in zip(self._bounds, self._counts, self._exemplars, strict=True):
            total += count
            family.add_sample(
                f"{family.name}_bucket",
                labels | {"le": "+Inf" if bound == inf else str(bound)},
                total,
                exemplar=exemplar and Exemplar({"trace_id": exemplar[0]}, *exemplar[1:]),
            )
        family.add_sample(f"{family.name}_count", labels, total)
        family.add_sample(f"{family.name}_sum", labels, self._sum)


class Histogram(Collector):
    """A Prometheus histogram.

    Args:
        name: the metric's name.
        documentation: its help text.
        labelnames: the names of its labels.
        buckets: the upper bounds of the buckets, in order.
        registry: the registry to join.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        *,
        buckets: Iterable[float],
        registry: CollectorRegistry,
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._label_names = tuple(labelnames)
        self._bounds = (*map(float, buckets), inf)
        self._series: dict[tuple[str, ...], Series] = {}
        if not self._label_names:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> Series:
        """Return the series with these label values, which is created at the first call."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Series(self._bounds)
        return series

    def observe(self, value: float, trace_id: str | None = None) -> None:
        """Add a value to the only series of a histogram without labels."""
        self._series[()].observe(value, trace_id)

    def describe(self) -> Iterator[Metric]:
        """Yield the family without samples, from which the registry takes the names."""
        yield Metric(self._name, self._documentation, "histogram")

    def collect(self) -> Iterator[Metric]:
        """Yield the family with its samples."""
        [family] = self.describe()
        for values, series in self._series.items():
            series.add_samples(family, dict(zip(self._label_names, values, strict=True)))
        yield family
