"""The lease is held only if the group has responded within less than a session."""

import asyncio
from types import SimpleNamespace

import pytest

from knowledgepulse_worker.kafka import lease as module
from knowledgepulse_worker.kafka.lease import Lease


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


async def test_it_is_not_held_before_the_group_has_responded(clock):
    assert not await is_held(Lease(7.5))


async def test_it_is_held_as_long_as_it_is_renewed_in_time(clock):
    lease = Lease(7.5)
    for _ in range(10):
        lease.renew(clock.now)
        clock.now += 7.4
        assert await is_held(lease)


async def test_its_term_starts_when_the_request_was_sent(clock):
    """The response may have waited while the process was suspended; the session timeout has not."""
    lease = Lease(7.5)
    sent_at = clock.now
    clock.now += 60
    lease.renew(sent_at)

    assert not await is_held(lease)


async def test_a_late_response_does_not_shorten_it(clock):
    lease = Lease(7.5)
    lease.renew(clock.now)
    lease.renew(clock.now - 5)
    clock.now += 7.4

    assert await is_held(lease)


async def test_a_renewal_wakes_all_waiters_and_the_wait_is_logged_once(clock, caplog):
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
    assert line.startswith("publishing is suspended: no response from the group for 8.0 s")
