"""Nothing is sent unless the group has answered within less than a session."""

import asyncio
from types import SimpleNamespace

import pytest

from worker.kafka import lease as module
from worker.kafka.lease import Lease


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(module, "_POLL", 0)
    return clock


async def is_held(lease):
    holding = asyncio.create_task(lease.hold())
    for _ in range(10):
        await asyncio.sleep(0)
    held = holding.done()
    holding.cancel()
    await asyncio.wait([holding])
    return held


async def test_it_is_not_held_before_the_group_has_answered(clock):
    assert not await is_held(Lease(7.5))


async def test_it_lasts_while_it_is_renewed_in_time(clock):
    lease = Lease(7.5)
    for _ in range(10):
        lease.renew(clock.now)
        clock.now += 7.4
        assert await is_held(lease)


async def test_it_counts_from_when_the_group_was_asked(clock):
    """The answer may have waited while the process was suspended; the member's session has not."""
    lease = Lease(7.5)
    asked = clock.now
    clock.now += 60
    lease.renew(asked)

    assert not await is_held(lease)


async def test_an_answer_that_comes_late_takes_nothing_back(clock):
    lease = Lease(7.5)
    lease.renew(clock.now)
    lease.renew(clock.now - 5)
    clock.now += 7.4

    assert await is_held(lease)


async def test_who_waits_goes_on_once_it_is_renewed_and_the_log_says_once_what_for(clock, caplog):
    lease = Lease(7.5)
    lease.renew(clock.now)
    clock.now += 8
    waiting = [asyncio.create_task(lease.hold()) for _ in range(3)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)

    lease.renew(clock.now)
    await asyncio.gather(*waiting)

    [line] = caplog.messages
    assert line.startswith("nothing is sent: the group has not answered for 8.0 s")
