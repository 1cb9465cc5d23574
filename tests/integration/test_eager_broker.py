"""The demo's embedded broker answers at once to a fetch of which it has no records."""

import asyncio
import time

import pytest
from aiokafka.admin import NewTopic

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.fetch_pacing import LONGEST_PAUSE
from knowledgepulse_kafka.group_member import GroupMember
from knowledgepulse_kafka.request_hook import changing
from knowledgepulse_kafka.topic_reader import TopicReader
from knowledgepulse_worker.tools.demo.brokers import EMBEDDED, first_available
from support.streams import READY_LIMIT, admin_of

pytestmark = pytest.mark.integration

TOPIC = "idle"
BATCH_BYTES = 10**6
SHORTER_PAUSES = 10  # those before the longest, of which a rebalance may start the first anew
FETCHES = 30


@pytest.fixture(scope="module")
def servers():
    """The address of an embedded broker with an empty topic."""

    async def create(servers):
        async with admin_of(servers) as admin:
            await admin.create_topics([NewTopic(TOPIC, 2, 1)])

    with first_available([EMBEDDED], print) as broker:
        asyncio.run(create(broker.bootstrap_servers))
        yield broker.bootstrap_servers


class Fetches:
    """Counts the fetches of a client."""

    def __init__(self, client):
        self.number = 0
        self.begun = asyncio.Event()
        changing(client, self._counting)

    def _counting(self, send):
        async def counted(request, **options):
            if type(request).__name__ == "FetchRequest":
                self.number += 1
                self.begun.set()
            return await send(request, **options)

        return counted

    async def check(self, idle):
        """Check that a client that awaits records fetches as rarely as its pauses tell."""
        task = asyncio.create_task(idle())
        async with asyncio.timeout(READY_LIMIT):
            await self.begun.wait()
            began, before = time.monotonic(), self.number
            while (fetches := self.number - before) < FETCHES:
                await asyncio.wait([task], timeout=LONGEST_PAUSE)
        seconds = time.monotonic() - began
        task.cancel()
        await asyncio.wait([task])
        assert fetches < seconds / LONGEST_PAUSE + SHORTER_PAUSES


async def test_an_idle_member_of_a_group_fetches_twenty_times_a_second(servers):
    """It fetched thousands of times, and kept client and broker busy."""
    member = GroupMember(Config(bootstrap_servers=servers, group="idlers"), BATCH_BYTES, 10.0)
    fetches = Fetches(member)
    member.subscribe([TOPIC])
    await member.start()

    async def idle():
        while True:
            await member.getmany(timeout_ms=100)

    try:
        await fetches.check(idle)
    finally:
        await member.stop()


async def test_an_idle_reader_fetches_twenty_times_a_second(servers):
    async with TopicReader(Config(bootstrap_servers=servers), BATCH_BYTES) as reader:
        fetches = Fetches(reader._consumer)

        async def idle():
            async for _ in reader.read(TOPIC, 0, range(1)):
                pass

        await fetches.check(idle)
