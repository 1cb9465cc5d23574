"""A consumer does not ask the same again at once, although its broker answers at once with nothing."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.protocol.fetch import FetchRequest, FetchResponse_v4

from knowledgepulse_kafka import fetch_pacing
from knowledgepulse_kafka.fetch_pacing import LONGEST_PAUSE, FetchPacing, pace_fetches
from support.clocks import Clock

FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)
MAX_WAIT = 0.1
BATCHES, ERROR = 1, 2


def answer(request, told=0):
    """Return the answer to a fetch: empty, with batches or with an error."""
    parts = [
        (partition, 6 if told == ERROR else 0, 9, 9, None, b"batches" if told == BATCHES else b"")
        for _, partitions in request.topics
        for partition, *_ in partitions
    ]
    return FetchResponse_v4(0, [("topic", parts)])


class Broker:
    """Answers a fetcher of one node; after ``seconds`` by the clock."""

    def __init__(self):
        self.clock = Clock()
        self.assignment = object()
        self.told, self.seconds = 0, 0.0
        self.lacks_leaders = False
        self.pacing = FetchPacing(self.send, self.actions, 0.1, self.clock)

    async def send(self, node, request):
        self.clock.now += self.seconds
        return answer(request, self.told)

    def actions(self, assignment):
        request = FetchRequest(int(MAX_WAIT * 1000), 1, 1, 1, [("topic", [(0, 5, 1)])])
        return [(1, request)], {}, 0.2, self.lacks_leaders, []

    async def ask(self):
        """Send what is due; return after how many seconds to look again, if nothing is."""
        fetches, _, timeout, *_ = self.pacing.actions(self.assignment)
        for node, request in fetches:
            await self.pacing.send(node, request)
        return 0.0 if fetches else timeout


async def pauses(broker, number):
    """Return the pauses before the next fetches."""
    seconds = []
    for _ in range(number):
        seconds.append(await broker.ask())
        broker.clock.now += seconds[-1]
        assert await broker.ask() == 0.0
    return seconds


async def test_pauses_double_up_to_a_limit_while_empty_answers_come_at_once():
    broker = Broker()
    await broker.ask()

    assert await pauses(broker, 8) == pytest.approx([0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05])


@pytest.mark.parametrize(
    ("told", "seconds"), [(BATCHES, 0.0), (ERROR, 0.0), (0, MAX_WAIT)], ids=["batches", "error", "in time"]
)
async def test_after_another_answer_a_fetch_does_not_wait_and_pauses_begin_anew(told, seconds):
    """Kafka's answers: records, transactions' markers, an error, or nothing after the requested time."""
    broker = Broker()
    await broker.ask()
    await pauses(broker, 6)
    broker.clock.now += LONGEST_PAUSE

    broker.told, broker.seconds = told, seconds
    assert [await broker.ask() for _ in range(3)] == [0.0] * 3

    broker.told, broker.seconds = 0, 0.0
    assert await broker.ask() == 0.0
    assert await pauses(broker, 2) == pytest.approx([0.001, 0.002])


async def test_leaders_are_asked_for_again_after_the_backoff():
    """A partition without a leader had the client ask for metadata again with each answer."""
    broker = Broker()
    broker.lacks_leaders = True

    def asked():
        _, _, timeout, lacks_leaders, _ = broker.pacing.actions(broker.assignment)
        return lacks_leaders, timeout

    assert asked() == (True, 0.2)
    assert asked() == (False, pytest.approx(0.1))
    broker.clock.now += 0.1
    assert asked() == (True, 0.2)


# --- with the client's own fetcher


class Client:
    """A client of one broker that answers each fetch at once with nothing."""

    _metadata_max_age_ms = 300_000

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self.cluster = SimpleNamespace(leader_for_partition=lambda _: 1)
        self.asked = asyncio.Queue()

    async def send(self, node, request):
        self.asked.put_nowait(
            {(partition, offset) for _, parts in request.topics for partition, offset, _ in parts}
        )
        return answer(request)


@asynccontextmanager
async def pausing(monkeypatch, *partitions):
    """Yield a client whose fetches of these partitions, from offset 5, pause for an hour."""
    monkeypatch.setattr(fetch_pacing, "SHORTEST_PAUSE", 3600.0)
    client, subscription = Client(), SubscriptionState()
    fetcher = Fetcher(client, subscription)
    consumer = AIOKafkaConsumer.__new__(AIOKafkaConsumer)
    consumer._client, consumer._fetcher, consumer._closed = client, fetcher, True
    pace_fetches(consumer)

    def assign(*partitions):
        subscription.assign_from_user(set(partitions))
        for partition in partitions:
            fetcher.seek_to(partition, 5)

    assign(*partitions)
    state = SimpleNamespace(client=client, fetcher=fetcher, subscription=subscription, assign=assign)
    async with asyncio.timeout(60):
        assert await client.asked.get() == {(partition.partition, 5) for partition in partitions}
        await asyncio.sleep(0)
        assert client.asked.empty()
        yield state
        await fetcher.close()


async def test_a_seek_is_not_waited_for(monkeypatch):
    async with pausing(monkeypatch, FIRST) as state:
        state.fetcher.seek_to(FIRST, 7)
        assert await state.client.asked.get() == {(0, 7)}


async def test_an_assignment_is_not_waited_for_even_of_the_same_positions(monkeypatch):
    async with pausing(monkeypatch, FIRST) as state:
        state.assign(FIRST)
        assert await state.client.asked.get() == {(0, 5)}


async def test_a_partition_that_is_resumed_on_the_same_node_is_not_waited_for(monkeypatch):
    async with pausing(monkeypatch, FIRST) as state:
        state.assign(FIRST, SECOND)
        state.subscription.pause(SECOND)
        await state.client.asked.get()
        state.subscription.resume(SECOND)
        assert await state.client.asked.get() == {(0, 5), (1, 5)}


async def test_a_pause_does_not_keep_a_consumer_from_stopping(monkeypatch):
    async with pausing(monkeypatch, FIRST):
        pass
