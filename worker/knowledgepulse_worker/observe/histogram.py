"""A histogram that takes a value in a fraction of a microsecond.

Every trace adds a dozen values. The client library's own histogram takes a lock for the sum and for the
bucket of each value, which costs more than scoring the trace. This one is a collector of the same library:
values are put into their buckets many at a time, and into the library's form only if it is asked for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from math import inf
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString


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
        self._uncounted: list[float] = []
        self._traces: list[tuple[str, float, float]] = []
        self._counting = threading.Lock()

    def observe(self, value: float, trace_id: str | None = None) -> None:
        """Add a value.

        Args:
            value: the value.
            trace_id: the bucket's exemplar; None to keep the former one.
        """
        if trace_id is not None:
            self._traces.append((trace_id, value, time.time()))
        self._uncounted.append(value)
        if len(self._uncounted) >= _AT_ONCE:
            self._count()

    def observe_all(self, values: Iterable[float]) -> None:
        """Add values."""
        self._uncounted.extend(values)
        if len(self._uncounted) >= _AT_ONCE:
            self._count()

    def _count(self) -> None:
        """Put the values into their buckets; a scrape may do so in another thread."""
        with self._counting:
            values, traces = self._uncounted[:], self._traces[:]
            del self._uncounted[: len(values)], self._traces[: len(traces)]
            self._sum = sum(values, self._sum)
            for bucket, count in enumerate(np.bincount(self._buckets_of(values)).tolist()):
                self._counts[bucket] += count
            latest = dict(zip(self._buckets_of([value for _, value, _ in traces]), traces, strict=True))
            for place, exemplar in latest.items():
                self._exemplars[place] = exemplar

    def _buckets_of(self, values: list[float]) -> NDArray[np.intp]:
        return np.searchsorted(self._bounds, values)

    @property
    def sum(self) -> float:
        """The sum of the values."""
        self._count()
        return self._sum

    def totals(self) -> list[float]:
        """Return the cumulative counts of the buckets, then the number of the values and their sum."""
        self._count()
        counts = [*accumulate(self._counts)]
        return [*counts, counts[-1], self._sum]

    def buckets(self) -> list[Any]:
        """Return the buckets' bounds with their cumulative counts and their exemplars."""
        self._count()
        return [
            ("+Inf" if bound == inf else str(bound), total, exemplar and _exemplar(*exemplar))
            for bound, total, exemplar in zip(
                self._bounds, accumulate(self._counts), self._exemplars, strict=True
            )
        ]


_AT_ONCE = 1024
"""The number of values that are put into their buckets at once."""


def _exemplar(trace_id: str, value: float, at: float) -> Exemplar:
    return Exemplar({"trace_id": trace_id}, value, at)


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
        yield HistogramMetricFamily(self._name, self._documentation, labels=self._label_names)

    def collect(self) -> Iterator[HistogramFamily]:
        """Yield the family."""
        yield HistogramFamily(self._name, self._documentation, self._label_names, self._bounds, self._series)


class HistogramFamily(Metric):
    """A histogram at a scrape, which makes its samples only if they are asked for.

    Args:
        name: the metric's name.
        documentation: its help text.
        labelnames: the names of its labels.
        bounds: the upper bounds of the buckets, in order; the last is infinity.
        series: the series by their label values.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: tuple[str, ...],
        bounds: tuple[float, ...],
        series: Mapping[tuple[str, ...], Series],
    ) -> None:
        super().__init__(name, documentation, "histogram")
        self._label_names, self._bounds, self._series = labelnames, bounds, series

    @property
    def samples(self) -> list[Sample]:
        """The samples, as the library has them."""
        family = HistogramMetricFamily(self.name, self.documentation, labels=self._label_names)
        for values, series in self._series.items():
            family.add_metric(values, series.buckets(), series.sum)
        return family.samples

    @samples.setter
    def samples(self, samples: list[Sample]) -> None:
        """Do nothing: the library's constructor sets none."""

    def lines(self, labels: Labels) -> Iterator[tuple[str, float]]:
        """Yield the beginning of each sample's line in the text format, and its value.

        Args:
            labels: labels that each sample has, too.
        """
        for values, series in self._series.items():
            own = (*labels, *zip(self._label_names, values, strict=True))
            yield from zip(_beginnings(self.name, own, self._bounds), series.totals(), strict=True)


Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names of labels with their values."""


@lru_cache(4096)
def _beginnings(name: str, labels: Labels, bounds: tuple[float, ...]) -> list[str]:
    """Return the beginnings of the lines of a series in the text format."""
    buckets = [beginning(f"{name}_bucket", (*labels, ("le", floatToGoString(bound)))) for bound in bounds]
    return [*buckets, beginning(f"{name}_count", labels), beginning(f"{name}_sum", labels)]


@lru_cache(4096)
def beginning(name: str, labels: Labels) -> str:
    """Return a sample's name and labels in the text format."""
    if not labels:
        return name
    pairs = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(labels))
    return f"{name}{{{pairs}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
