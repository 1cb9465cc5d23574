"""The throttle times that brokers tell."""

import pytest

from knowledgepulse_kafka.throttle import LONG_THROTTLE_MEMORY, Throttle
from support.clocks import Clock


@pytest.fixture
def clock():
    return Clock()


def test_a_throttle_time_passes_and_is_remembered(clock):
    told = []
    throttle = Throttle(told.append, clock)
    assert (throttle.remaining, throttle.recent) == (0, 0)

    assert throttle.note(42.0) == 1_042

    clock.now += 40
    assert (throttle.remaining, throttle.recent) == (2, 42)
    clock.now += 1 + LONG_THROTTLE_MEMORY
    assert (throttle.remaining, throttle.recent) == (0, 42)
    clock.now += 1
    assert throttle.recent == 0
    assert told == [42]


def test_the_longest_of_several_brokers_throttle_times_remains(clock):
    throttle = Throttle(clock=clock)
    throttle.note(30.0)
    throttle.note(2.0)

    assert throttle.remaining == 30


def test_a_short_burst_is_waited_out_but_not_worth_a_message(clock):
    throttle = Throttle(clock=clock)
    throttle.note(0.5)

    assert (throttle.remaining, throttle.recent) == (0.5, 0)
