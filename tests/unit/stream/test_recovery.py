"""Recovery that ends before anybody waits for its end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from worker.stream.recovery import Latch, LatchedRecovery


def recovery():
    app = SimpleNamespace(conf=SimpleNamespace(stream_recovery_delay=0.0), in_recovery=False)
    return LatchedRecovery(app, SimpleNamespace())


async def test_an_end_that_came_before_anybody_waited_is_not_lost():
    """The reading loop clears the event before each record that it waits for; Faust then waited for ever."""
    here = recovery()
    here._set_recovery_started()
    here.signal_recovery_end.set()
    here.signal_recovery_end.clear()

    async with asyncio.timeout(1):
        await here.signal_recovery_end.wait()


async def test_the_end_of_one_recovery_is_not_the_end_of_the_next():
    here = recovery()
    here._set_recovery_started()
    here.signal_recovery_end.set()

    here._set_recovery_started()

    assert not here.signal_recovery_end.is_set()


def test_a_latch_opens_and_is_taken_back():
    latch = Latch()
    latch.set()
    latch.clear()
    assert latch.is_set()
    latch.take_back()
    assert not latch.is_set()
