"""The rate at which a processor keeps the budget."""

import pytest

from bench.processor import rate_within


@pytest.mark.parametrize(
    ("seconds", "rate"),
    [
        (0.05, 2 / 3 / 0.05),  # busy for r of the time, a text waits r / (2 - 2r) = 1 times its own
        (0.1, 0),
        (0.2, 0),
        (0.001, 994.975),
    ],
)
def test_waiting_and_computing_take_the_budget_on_average(seconds, rate):
    assert rate_within(0.1, seconds) == pytest.approx(rate, rel=1e-4)
