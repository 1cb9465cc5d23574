"""Ratios, medians and quantiles of measurements; alternation of sides."""

import itertools
import statistics

import pytest

from bench.measure import (
    MIN_SAMPLES,
    Budget,
    Figure,
    alternate,
    poisson_schedule,
    ratio,
)


def test_there_is_no_p99_with_too_few_samples():
    few = Figure("few", "ms", [1.0] * (MIN_SAMPLES - 1), "samples").summary()
    enough = Figure("enough", "ms", [*([1.0] * (MIN_SAMPLES - 100)), *([9.0] * 100)], "samples").summary()

    assert (few["p99"], few["median"], few["count"]) == (None, 1.0, MIN_SAMPLES - 1)
    assert enough["p99"] == 9.0


def test_a_comparison_has_median_and_range_of_its_rounds():
    data = ratio("ratio", [1.0, 4.0, 9.0], [1.0, 2.0, 3.0]).summary()

    assert (data["median"], data["least"], data["most"], data["rounds"]) == (2.0, 1.0, 3.0, [1.0, 2.0, 3.0])


async def test_sides_alternate_in_changing_order():
    order = []

    def side(name):
        async def measure():
            order.append(name)
            return float(len(order))

        return measure

    figures = await alternate({"a": side("a"), "b": side("b")}, iter(range(3)))

    assert "".join(order) == "abbaab"
    assert figures == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


def test_runs_two_rounds_even_without_time():
    assert list(Budget(0).rounds(8)) == [0, 1]
    assert list(Budget(1e6).rounds(8)) == list(range(8))


def test_arrivals_are_poisson_with_the_given_rate():
    times = poisson_schedule(rate=50, seconds=400, seed=1)
    gaps = [later - earlier for earlier, later in itertools.pairwise([0, *times])]

    assert times == sorted(times)
    assert times[-1] < 400
    assert len(times) == pytest.approx(20_000, rel=0.03)
    # Of an exponential distribution, deviation and mean are equal.
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.05)
    assert times == poisson_schedule(rate=50, seconds=400, seed=1)
    assert times != poisson_schedule(rate=50, seconds=400, seed=2)
