"""Measure the sides of a comparison in turns, so that other load affects all of them equally.

A figure consists of the rounds of a comparison, reported as median and range, or of the raw samples of a
duration, reported as p50 and p99. A p99 requires :data:`MIN_SAMPLES` samples and is never estimated from
buckets.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

MIN_SAMPLES = 5000
"""Number of samples required for a p99, so that 50 are above it."""

TIMES = "×"
"""The unit of ratios."""

Side = Callable[[], Awaitable[float]]
"""Runs a side for one round and returns its figure, such as records per second."""


@dataclass(frozen=True)
class Figure:
    """One line of the results.

    Attributes:
        what: the measured quantity.
        unit: unit of the values.
        values: one value per round, or all samples.
        kind: whether the values are rounds or samples.
        reach: the project's target.
    """

    what: str
    unit: str
    values: Sequence[float]
    kind: Literal["rounds", "samples"] = "rounds"
    reach: str = ""

    def summary(self) -> dict[str, Any]:
        """Return the summary as plain JSON; ``p99`` is null with too few samples."""
        values = np.asarray(self.values, dtype=np.float64)
        summary: dict[str, Any] = {
            "what": self.what,
            "unit": self.unit,
            "kind": self.kind,
            "count": len(values),
            "reach": self.reach,
            "median": float(np.median(values)) if len(values) else None,
            "least": float(values.min()) if len(values) else None,
            "most": float(values.max()) if len(values) else None,
        }
        if self.kind == "rounds":
            return summary | {"rounds": values.tolist()}
        if len(values):
            summary["p90"] = float(np.quantile(values, 0.9))
        return summary | {"p99": float(np.quantile(values, 0.99)) if len(values) >= MIN_SAMPLES else None}


@dataclass
class Section:
    """The results of a section.

    Attributes:
        name: name on the command line.
        title: displayed title.
        figures: the figures, in order.
        notes: notes needed to interpret the figures.
        seconds: duration of the section.
    """

    name: str
    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Budget:
    """The time limit of a section.

    Args:
        seconds: the limit in seconds.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._started = time.monotonic()

    @property
    def spent(self) -> float:
        return time.monotonic() - self._started

    def rounds(self, wanted: int, share: float = 1.0) -> Iterator[int]:
        """Yield round numbers while another round of the same length fits; at least two.

        Args:
            wanted: maximum number of rounds.
            share: share of the remaining time.
        """
        begin = time.monotonic()
        end = begin + share * max(0.0, self.seconds - self.spent)
        for number in range(wanted):
            now = time.monotonic()
            if number >= 2 and now + (now - begin) / number > end:
                return
            yield number


async def alternate(sides: Mapping[str, Side], rounds: Iterator[int]) -> dict[str, list[float]]:
    """Run the sides in turns, in reverse order every other round; return each side's figures by round."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for number in rounds:
        for name in list(sides) if number % 2 == 0 else list(reversed(sides)):
            figures[name].append(await sides[name]())
    return figures


def ratio(what: str, first: Sequence[float], second: Sequence[float], reach: str = "") -> Figure:
    """Return the ratios of the first to the second side, by round."""
    return Figure(
        what, TIMES, [value / other for value, other in zip(first, second, strict=True)], reach=reach
    )


def poisson_schedule(rate: float, seconds: float, seed: int) -> list[float]:
    """Return the times of Poisson arrivals within a duration, in seconds.

    Args:
        rate: mean arrivals per second.
        seconds: the duration.
        seed: seed of the random numbers.
    """
    source = random.Random(seed)
    times = []
    at = source.expovariate(rate)
    while at < seconds:
        times.append(at)
        at += source.expovariate(rate)
    return times
