"""Fetches by topic id in sessions: what a broker is told, and what becomes of its answers."""

import struct
from io import BytesIO

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError
from aiokafka.protocol.fetch import FetchRequest, FetchResponse_v7

from knowledgepulse_kafka import fetch_by_id
from knowledgepulse_kafka.fetch_by_id import FetchById

NODE, ID, OTHER = 1, bytes(range(16)), bytes(range(16, 32))


def fetch(*positions):
    """Return a fetch of partitions from these offsets, as aiokafka makes it."""
    return FetchRequest(
        100, 1, 5000, 1, [("topic", [(number, offset, 1000) for number, offset in positions])]
    )


def told(encoded):
    """Return what a request by ids tells a broker, by KIP-516's version 13."""
    data = BytesIO(encoded)
    *head, session, epoch = struct.unpack(">iiiibii", data.read(25))
    assert head == [-1, 100, 1, 5000, 1]
    changed, forgotten = {}, []
    for _ in range(data.read(1)[0] - 1):
        topic_id = data.read(16)
        for _ in range(data.read(1)[0] - 1):
            number, leader_epoch, offset, last_epoch, begin, size, tags = struct.unpack(
                ">iiqiqiB", data.read(33)
            )
            assert (leader_epoch, last_epoch, begin, size, tags) == (-1, -1, -1, 1000, 0)
            changed[topic_id, number] = offset
        assert data.read(1) == b"\0"
    for _ in range(data.read(1)[0] - 1):
        topic_id = data.read(16)
        forgotten += [(topic_id, *struct.unpack(">i", data.read(4))) for _ in range(data.read(1)[0] - 1)]
        assert data.read(1) == b"\0"
    assert data.read() == b"\1\0"
    return session, epoch, changed, forgotten


class Broker:
    """Answers with what a test has prepared, and keeps what it was told.

    Attributes:
        session: the id of the session that it tells.
        error: the error of its answers as a whole.
        raises: what a request raises instead.
    """

    def __init__(self):
        self.told, self.answered = [], []
        self.session, self.error, self.raises = 7, 0, None
        self.parts = []
        self.fetches = FetchById(self._send, self.answered.extend)
        self.fetches.read("topic", ID)

    async def _send(self, node, request):
        if isinstance(request, FetchRequest):
            self.told.append("by name")
            return FetchResponse_v7(0, 0, 0, [("topic", self.parts)])
        if self.raises is not None:
            raise self.raises
        self.told.append(told(request.encode()))
        return FetchResponse_v7(0, self.error, self.session, [("topic", self.parts)] if self.parts else [])

    async def fetch(self, *positions):
        return await self.fetches.send(NODE, fetch(*positions))


async def test_a_session_is_told_only_what_has_changed():
    broker = Broker()

    await broker.fetch((0, 5), (1, 6))
    await broker.fetch((0, 5), (1, 6))
    await broker.fetch((0, 8), (2, 1))

    assert broker.told == [
        (0, 0, {(ID, 0): 5, (ID, 1): 6}, []),
        (7, 1, {}, []),
        (7, 2, {(ID, 0): 8, (ID, 2): 1}, [(ID, 1)]),
    ]


async def test_all_partitions_of_a_fetch_count_as_answered():
    """A partition without anything new is not in the answer, and yet its leader is there."""
    broker = Broker()

    await broker.fetch((0, 5), (1, 6))

    assert broker.answered == [TopicPartition("topic", 0), TopicPartition("topic", 1)]


@pytest.mark.parametrize(("session", "error"), [(0, 0), (7, 70), (7, 71), (7, 106)])
async def test_a_broker_that_keeps_no_session_is_told_everything(session, error):
    broker = Broker()
    broker.session, broker.error = session, error

    for _ in range(2):
        await broker.fetch((0, 5))

    assert broker.told == [(0, 0, {(ID, 0): 5}, [])] * 2


async def test_a_session_ends_with_its_connection():
    """The broker may have taken the request, so the number of the next one is unknown."""
    broker = Broker()
    await broker.fetch((0, 5))
    broker.raises = KafkaConnectionError()
    with pytest.raises(KafkaConnectionError):
        await broker.fetch((0, 6))
    broker.raises = None

    await broker.fetch((0, 6))

    assert broker.told[-1] == (0, 0, {(ID, 0): 6}, [])


async def test_another_id_forgets_the_partitions_of_the_former():
    broker = Broker()
    await broker.fetch((0, 5))
    broker.fetches.read("topic", OTHER)

    await broker.fetch((0, 5))

    assert broker.told[-1] == (7, 1, {(OTHER, 0): 5}, [(ID, 0)])


@pytest.mark.parametrize("former", [ID, b""])
async def test_what_arrives_after_another_id_was_set_is_dropped(former):
    """It may be of the topic before, or after, and its offsets say nothing in the one that is read now."""
    broker = Broker()
    broker.fetches.read("topic", former)
    broker.parts = [(0, 0, 9, 9, 0, [], b"records")]
    send = broker.fetches._send

    async def sending(node, request):
        broker.fetches.read("topic", OTHER)
        return await send(node, request)

    broker.fetches._send = sending

    assert (await broker.fetch((0, 5))).topics == []


async def test_a_broker_without_ids_is_asked_by_names_from_then_on():
    broker = Broker()
    broker.raises = IncompatibleBrokerVersion()

    for _ in range(2):
        await broker.fetch((0, 5))

    assert broker.told == ["by name"] * 2
    assert broker.fetches.names_only == {NODE}


async def test_a_topic_without_a_known_id_is_fetched_by_name():
    broker = Broker()
    broker.fetches.read("topic", b"")

    await broker.fetch((0, 5))

    assert broker.told == ["by name"]


@pytest.mark.parametrize("code", [100, 103, 3])
async def test_a_lost_topic_is_noticed_and_not_asked_for_without_a_pause(code, monkeypatch):
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(fetch_by_id.asyncio, "sleep", sleep)
    broker = Broker()
    head = struct.pack(">ihi", 0, 0, 7)
    answer = struct.pack(">ihqqq", 0, code, -1, -1, -1) + b"\0" + struct.pack(">i", -1) + b"\0\0"
    encoded = head + b"\2" + ID + b"\2" + answer + b"\0\0"
    broker.parts = fetch_by_id._Reader({ID: "topic"}).decode(BytesIO(encoded)).topics[0][1]

    response = await broker.fetch((0, 5))

    assert [error for _, error, *_ in response.topics[0][1]] == [3]
    assert broker.fetches.has_lost_topic
    assert pauses == [fetch_by_id.RETRY_PAUSE]
    broker.fetches.read("topic", OTHER)
    assert not broker.fetches.has_lost_topic


def test_an_answer_is_read_with_aborted_transactions_and_fields_that_are_not_known():
    part = b"".join(
        [
            struct.pack(">ihqqq", 3, 0, 90, 80, 1),
            *(b"\2", struct.pack(">qq", 5, 60), b"\0"),
            struct.pack(">i", -1),
            *(b"\x81\x02", bytes(256)),  # a length of two bytes
            *(b"\1", b"\x01\x03", b"new"),
        ]
    )
    encoded = struct.pack(">ihi", 11, 0, 7) + b"\2" + ID + b"\2" + part + b"\0\0"

    response = fetch_by_id._Reader({ID: "topic"}).decode(BytesIO(encoded))

    assert (response.throttle_time_ms, response.error_code, response.session_id) == (11, 0, 7)
    assert response.topics == [("topic", [(3, 0, 90, 80, 1, [(5, 60)], bytes(256))])]
