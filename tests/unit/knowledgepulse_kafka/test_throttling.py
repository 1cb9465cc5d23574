"""A client sends nothing over a connection from which its broker does not read for now."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest

from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.throttling import HeldBackError, logged_throttle, waiting_out
from knowledgepulse_kafka.topic_creation import never_creating
from support.clocks import Clock

RECORDS = ProduceRequest(transactional_id="id", required_acks=-1, timeout=1, topics=[])


class Connection:
    """Answers with the next throttle time, if any."""

    def __init__(self, *throttle_times):
        self.sent = []
        self._times = list(throttle_times)

    async def send(self, request, expect_response=True):
        self.sent.append(request)
        return SimpleNamespace(throttle_time_ms=self._times.pop(0)) if self._times else SimpleNamespace()


@pytest.fixture
async def connected(monkeypatch):
    """Return a connection of a client that waits, and creates no topic, by whose functions it sends."""

    async def connect(throttle, connection):
        client = AIOKafkaClient()

        async def get_connection(node, **_):
            return connection

        monkeypatch.setattr(client, "_get_conn", get_connection)
        waiting_out(never_creating(client), throttle)
        assert await client._get_conn(1) is await client._get_conn(1)
        return await client._get_conn(1)

    return connect


async def test_the_next_request_waits_for_the_throttle_time(connected, monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    throttle = Throttle(clock=lambda: 0.0)
    connection = await connected(throttle, Connection(0, 2_000))

    for _ in range(3):
        await connection.send(RECORDS)

    assert slept == [2.0]
    assert throttle.remaining == 2.0
    assert len(connection.sent) == 3


@pytest.mark.parametrize(
    ("request_of", "is_of_requests"), [(RECORDS, False), (MetadataRequest(["topic"]), True)]
)
async def test_what_delays_a_request_without_records_is_no_quota_on_bytes(
    connected, request_of, is_of_requests
):
    """The verdict named consumer_byte_rate for a request_percentage that was exceeded."""
    throttle = Throttle()

    await (await connected(throttle, Connection(2_000))).send(request_of)

    assert throttle.is_of_requests is is_of_requests


async def test_another_connection_does_not_wait(connected):
    throttle = Throttle()
    first = await connected(throttle, Connection(100_000))
    await first.send(RECORDS)

    async with asyncio.timeout(60):
        await (await connected(throttle, Connection())).send(RECORDS)


async def test_records_that_would_be_sent_after_the_deadline_are_not_sent(connected):
    throttle = Throttle()
    connection = await connected(throttle, Connection(100_000))
    throttle.deadline = 0.0
    await connection.send(RECORDS)

    with pytest.raises(HeldBackError):
        await connection.send(RECORDS)

    assert len(connection.sent) == 1


async def test_a_client_that_waits_creates_no_topic_either(connected):
    connection = await connected(Throttle(), Connection())

    await connection.send(MetadataRequest(["topic"]))

    (request,) = connection.sent
    assert request._allow_auto_topic_creation is False


def test_a_command_says_once_a_minute_that_it_waits_and_for_which_quota(caplog):
    clock = Clock()
    throttle = logged_throttle("a_quota", clock)
    for clock.now, seconds in ((0.0, 0.9), (1.0, 1_200.0), (60.9, 8.0), (61.0, 9.4)):
        throttle.note(seconds)

    beginning = "the brokers delay requests by "
    ending = " s, since they exceed a quota (a_quota); waiting"
    assert caplog.messages == [f"{beginning}1,200{ending}", f"{beginning}9{ending}"]
