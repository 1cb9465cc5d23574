"""A reader that waits for records tells why: the broker is silent, or a transaction is open."""

import asyncio
import time

import pytest

from knowledgepulse_kafka import topic_reader
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.request_waits import READING, Waits
from knowledgepulse_kafka.topic_reader import TopicReader


class HeldConsumer:
    """A consumer that gets nothing behind an open transaction, until it ends after a number of fetches.

    Attributes:
        fetches: the number of fetches until then.
        answers: whether the broker answers.
    """

    def __init__(self, fetches, *, answers):
        self.fetches, self.answers = fetches, answers

    def assign(self, _places): ...

    def seek(self, _place, _offset): ...

    async def getmany(self, _place, timeout_ms):
        self.fetches -= 1
        await asyncio.sleep(0)  # the time-out is over
        return {}

    async def position(self, _place):
        return 3 if self.fetches > 0 else 9

    def last_stable_offset(self, _place):
        return 3

    def last_poll_timestamp(self, _place):
        return int(time.time() * 1000) + 1000 if self.answers else 1


@pytest.fixture
def reading(monkeypatch):
    """Read behind an open transaction, with a time-out that passes again and again; return the waits."""

    async def read(**consumer):
        monkeypatch.setattr(topic_reader, "new_consumer", lambda *_, **__: HeldConsumer(**consumer))
        waits = Waits()
        reader = TopicReader(Config(request_timeout=0.0), 10**6, waits=waits)
        assert [record async for record in reader.read("changelog", 0, range(9))] == []
        return [str(wait) for wait in waits.current(READING)]

    return read


async def test_an_open_transaction_is_waited_out_and_told(reading):
    """A stranger's transaction in the changelog ended the worker each 30 s: "no records"."""
    assert await reading(fetches=50, answers=True) == [
        "Fetch to changelog/0: an open transaction holds back 6 offsets"
    ]


async def test_a_silent_broker_is_not_waited_for(reading):
    with pytest.raises(TopicError, match="changelog/0: no records for 0 s"):
        await reading(fetches=10**9, answers=False)
