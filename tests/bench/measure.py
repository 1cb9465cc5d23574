"""What is measured, and how two ways are compared: in turns, so that other work falls on both alike.

A figure is either some rounds of a comparison, told as median and range, or the raw samples of a duration,
told as p50 and p99. A p99 is told from :data:`ENOUGH` samples on, and never taken from buckets.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

ENOUGH = 5000
"""Samples that a p99 needs: 50 of them lie above it."""

TIMES = "×"
"""The unit of ratios."""

Side = Callable[[], Awaitable[float]]
"""Does a side's work for one round; returns its figure, such as records a second."""


@dataclass(frozen=True)
class Figure:
    """One line of the results.

    Attributes:
        what: was measured.
        unit: of the values.
        values: one of each round, or the samples.
        kind: which of the two they are.
        reach: what the project wants it to be.
    """

    what: str
    unit: str
    values: Sequence[float]
    kind: Literal["rounds", "samples"] = "rounds"
    reach: str = ""

    def summary(self) -> dict[str, Any]:
        """What there is to tell of the values: JSON. ``p99`` is null where there are too few samples."""
        values = np.asarray(self.values, dtype=np.float64)
        told: dict[str, Any] = {
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
            return told | {"rounds": values.tolist()}
        return told | {"p99": float(np.quantile(values, 0.99)) if len(values) >= ENOUGH else None}


@dataclass
class Section:
    """What a section of the bench found.

    Attributes:
        name: selects it on the command line.
        title: for people.
        figures: in order.
        notes: what one must know to read them.
        seconds: it took.
    """

    name: str
    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Budget:
    """A section's time.

    Args:
        seconds: it may take.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._started = time.monotonic()

    @property
    def spent(self) -> float:
        return time.monotonic() - self._started

    def rounds(self, wanted: int, share: float = 1.0) -> Iterator[int]:
        """Yield the rounds' numbers while another one as long as those before fits; two at least.

        Args:
            wanted: how many at most.
            share: of the time that is left.
        """
        begin = time.monotonic()
        end = begin + share * max(0.0, self.seconds - self.spent)
        for number in range(wanted):
            now = time.monotonic()
            if number >= 2 and now + (now - begin) / number > end:
                return
            yield number


async def alternate(sides: Mapping[str, Side], rounds: Iterator[int]) -> dict[str, list[float]]:
    """Do the sides in turns, every other round the other way round; returns each side's figures by round."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for number in rounds:
        for name in list(sides) if number % 2 == 0 else list(reversed(sides)):
            figures[name].append(await sides[name]())
    return figures


def ratio(what: str, first: Sequence[float], second: Sequence[float], reach: str = "") -> Figure:
    """The first over the second, round by round."""
    return Figure(what, TIMES, [one / other for one, other in zip(first, second, strict=True)], reach=reach)


def poisson_schedule(rate: float, seconds: float, seed: int) -> list[float]:
    """Arrival times from 0 to a duration, in seconds, of independent arrivals.

    Args:
        rate: arrivals a second, on average.
        seconds: the duration.
        seed: the same one gives the same times.
    """
    source = random.Random(seed)
    times = []
    at = source.expovariate(rate)
    while at < seconds:
        times.append(at)
        at += source.expovariate(rate)
    return times


def rate_between(times: Sequence[float]) -> float:
    """Events a second from the first to the last of their times, in any order.

    Raises:
        ValueError: there are no two different times.
    """
    first, last = min(times, default=0.0), max(times, default=0.0)
    if last <= first:
        raise ValueError(f"{len(times)} events span no time")
    return (len(times) - 1) / (last - first)
