"""A process that was suspended for a session sends nothing any more."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest

from worker.errors import DeliveryError
from worker.stream import lease as module
from worker.stream.lease import Lease


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


async def renewed(lease):
    """Let the lease be renewed once."""
    keeping = asyncio.create_task(lease.keep())
    await asyncio.sleep(0)
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping


async def test_a_lease_that_is_renewed_in_time_lasts(clock):
    lease = Lease(7.5)
    for _ in range(10):
        clock.now += 7.4
        lease.require()
        await renewed(lease)


async def test_it_is_over_after_too_long_and_says_why(clock):
    lease = Lease(7.5)
    clock.now += 7.6

    with pytest.raises(DeliveryError, match=r"nothing was done for 7\.6 s, .* kafka\.session_timeout"):
        lease.require()


async def test_once_it_is_over_no_renewal_brings_it_back(clock):
    """Whoever wakes first, what sends or what renews."""
    lease = Lease(7.5)
    clock.now += 60
    for _ in range(2):
        with pytest.raises(DeliveryError):
            await renewed(lease)
        with pytest.raises(DeliveryError):
            lease.require()
