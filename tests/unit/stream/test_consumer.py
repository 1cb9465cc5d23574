"""Fetching while a rebalance changes what is fetched."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from faust.types import TP

from worker.stream.consumer import WatermarkConsumer

RAW, CHANGELOG = TP("raw", 0), TP("changelog", 0)


class Thread:
    """Stands in for the thread that the client library runs in; a fetch ends when the test says so."""

    def __init__(self):
        self.calls = []
        self.asked = None
        self.fetching = asyncio.Event()
        self.fetched = asyncio.Event()

    async def getmany(self, partitions, timeout):  # noqa: ASYNC109 - Faust's
        self.calls.append("fetch")
        self.asked = partitions
        self.fetching.set()
        await self.fetched.wait()
        self.calls.append("fetched")
        return {}

    async def seek_to_committed(self):
        self.calls.append("seek")
        return {RAW: 45}

    async def seek_wait(self, partitions):
        self.calls.append("seek")


@pytest.fixture
def consumer():
    """A consumer without the services around it."""
    here = object.__new__(WatermarkConsumer)
    here.attach(lanes=None, metrics=None, raw_topic=RAW.topic)
    here._thread = Thread()
    here._read_offset = defaultdict(lambda: None)
    here._committed_offset = defaultdict(lambda: None)
    return here


async def test_a_fetch_takes_only_what_was_active_as_it_began(consumer):
    """Recovery ended during a fetch, Faust emptied the set, and empty means every partition to aiokafka.

    Twelve records of a partition that had just moved were fetched so, dropped because it was not active yet,
    and never scored.
    """
    active = {CHANGELOG}
    fetch = asyncio.create_task(consumer._getmany(active, 1.0))
    await consumer._thread.fetching.wait()

    active.clear()

    assert consumer._thread.asked == {CHANGELOG}
    consumer._thread.fetched.set()
    await fetch


async def test_nothing_is_fetched_while_nothing_is_active(consumer):
    assert await consumer._getmany(set(), 1.0) == {}
    assert consumer._thread.calls == []


@pytest.mark.parametrize("go", ["perform_seek", "seek_wait"])
async def test_positions_are_put_right_between_fetches(consumer, go):
    """Else what the fetch brings is from after the place that the consumer goes back to."""
    fetch = asyncio.create_task(consumer._getmany({CHANGELOG}, 1.0))
    await consumer._thread.fetching.wait()

    arguments = () if go == "perform_seek" else ({CHANGELOG: 3},)
    seek = asyncio.create_task(getattr(consumer, go)(*arguments))
    await asyncio.sleep(0)
    consumer._thread.fetched.set()
    await asyncio.gather(fetch, seek)

    assert consumer._thread.calls == ["fetch", "fetched", "seek"]
