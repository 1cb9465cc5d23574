"""A wait tells what it is for: the request, the broker or partition, and the last error with its code."""

from types import SimpleNamespace

import pytest
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.fetch import FetchResponse_v4
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupResponse_v2
from aiokafka.protocol.metadata import MetadataResponse_v5
from aiokafka.protocol.produce import ProduceResponse_v5
from aiokafka.protocol.transaction import (
    AddPartitionsToTxnResponse_v0,
    EndTxnResponse_v0,
    TxnOffsetCommitRequest_v0,
    TxnOffsetCommitResponse_v0,
)

from knowledgepulse_kafka.group_offsets import StableOffsetsResponse_v7
from knowledgepulse_kafka.request_waits import (
    MEMBERSHIP,
    READING,
    TRANSACTION,
    Waits,
    error_codes,
    noting,
)
from support.clocks import Clock

BROKER = "broker-1:9092"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def waits(clock):
    return Waits(clock)


def answer(waits, request, response, topics=()):
    waits.end(waits.begin(request, BROKER), response, topics)


def texts(waits, requests):
    return [str(wait) for wait in waits.current(requests)]


def produced(partition, code):
    return ProduceResponse_v5([("contribute", [(partition, code, -1, -1, -1)])], 0)


def metadata(code):
    return MetadataResponse_v5(
        0,
        [(1, "broker-1", 9092, None)],
        "cluster",
        1,
        [(0, topic, False, [(code, 1, -1, [2], [], [2])]) for topic in ("contribute", "another")],
    )


@pytest.mark.parametrize(
    ("request_name", "response", "text"),
    [
        ("Produce", produced(1, 19), "Produce to contribute/1: NOT_ENOUGH_REPLICAS (19)"),
        (
            "AddPartitionsToTxn",
            AddPartitionsToTxnResponse_v0(0, [("contribute", [(1, 51)])]),
            f"AddPartitionsToTxn to {BROKER}: CONCURRENT_TRANSACTIONS (51)",
        ),
        ("EndTxn", EndTxnResponse_v0(0, 16), f"EndTxn to {BROKER}: NOT_COORDINATOR (16)"),
        ("EndTxn", EndTxnResponse_v0(0, 90), f"EndTxn to {BROKER}: PRODUCER_FENCED (90)"),
        ("Produce", produced(0, -1), "Produce to contribute/0: UNKNOWN_SERVER_ERROR (-1)"),
        ("EndTxn", EndTxnResponse_v0(0, 117), f"EndTxn to {BROKER}: an error (117)"),
    ],
)
def test_an_error_is_told_with_its_request_its_place_and_its_code(waits, request_name, response, text):
    answer(waits, request_name, response)

    assert texts(waits, TRANSACTION) == [text]
    assert texts(waits, READING) == []


def test_errors_are_found_in_the_answers_of_members_and_readers():
    joined = JoinGroupResponse_v2(0, 81, -1, "", "", "", [])
    offsets = StableOffsetsResponse_v7(0, [("raw", [(3, -1, -1, "", 88, {})], {})], 0, {})
    fetched = FetchResponse_v4(0, [("raw", [(0, 0, 9, 9, None, b""), (1, 6, -1, -1, [(7, 8)], b"")])])

    assert list(error_codes(joined)) == [("", -1, 81)]
    assert list(error_codes(offsets)) == [("", -1, 0), ("raw", 3, 88)]
    assert list(error_codes(fetched)) == [("raw", 0, 0), ("raw", 1, 6)]


def test_a_partition_without_a_leader_is_told_beside_the_request_that_it_holds_up(waits):
    answer(waits, "Metadata", metadata(5), {"contribute"})
    assert texts(waits, TRANSACTION) == ["Metadata to contribute/1: LEADER_NOT_AVAILABLE (5)"]

    answer(waits, "AddPartitionsToTxn", AddPartitionsToTxnResponse_v0(0, [("contribute", [(0, 51)])]))
    assert texts(waits, TRANSACTION) == [
        f"AddPartitionsToTxn to {BROKER}: CONCURRENT_TRANSACTIONS (51)",
        "Metadata to contribute/1: LEADER_NOT_AVAILABLE (5)",
    ]


def test_an_error_is_over_with_the_next_answer_for_its_place_and_forgotten_after_a_while(waits, clock):
    for partition in (0, 1):
        answer(waits, "Produce", produced(partition, 19))
    answer(waits, "Produce", produced(1, 0))
    assert texts(waits, TRANSACTION) == ["Produce to contribute/0: NOT_ENOUGH_REPLICAS (19)"]

    clock.now += 60
    assert texts(waits, TRANSACTION) == []


def test_without_an_error_the_oldest_request_that_has_no_answer_is_told(waits, clock):
    waits.begin("Heartbeat", BROKER)
    assert texts(waits, MEMBERSHIP) == [], "an answer takes a moment"

    clock.now += 12
    number = waits.begin("OffsetFetch", "broker-2:9092")
    assert texts(waits, MEMBERSHIP) == [f"Heartbeat to {BROKER}: no answer for 12 s"]

    clock.now += 3
    waits.end(number, None)
    assert texts(waits, MEMBERSHIP) == [f"Heartbeat to {BROKER}: no answer for 15 s"]


def test_a_join_waits_for_the_other_members_before_it_is_told(waits, clock):
    waits.begin("JoinGroup", BROKER)
    clock.now += 5
    assert texts(waits, MEMBERSHIP) == []
    clock.now += 20
    assert texts(waits, MEMBERSHIP) == [f"JoinGroup to {BROKER}: no answer for 25 s"]


@pytest.mark.parametrize(("pause", "told"), [(0.5, ["no answer for 40 s"]), (30.0, [])])
def test_a_request_that_is_sent_again_at_once_is_waited_for_since_the_first(waits, clock, pause, told):
    """With a rebalance of 100 s, the verdict named what it waited for only half of the time."""
    number = waits.begin("JoinGroup", BROKER)
    clock.now += 40 - 0.5
    waits.end(number, None)
    clock.now += pause
    waits.begin("JoinGroup", BROKER)

    assert texts(waits, MEMBERSHIP) == [f"JoinGroup to {BROKER}: {text}" for text in told]


def test_a_broker_without_a_connection_is_told_with_the_reason(waits):
    waits.unreachable(BROKER, "certificate has expired")
    assert texts(waits, TRANSACTION) == [f"connection to {BROKER}: certificate has expired"]

    waits.reached(BROKER)
    assert texts(waits, TRANSACTION) == []


def test_a_broker_that_refuses_one_of_two_connections_is_told(waits):
    """With max.connections.per.ip reached, the other connection hid for minutes that a member had none."""
    waits.unreachable(BROKER, "closes the connection", ConnectionGroup.COORDINATION)
    waits.reached(BROKER)

    assert texts(waits, MEMBERSHIP) == [f"connection to {BROKER}: closes the connection"]


def test_a_request_at_which_a_broker_closes_the_connection_is_told(waits):
    """A transaction was sent again and again, larger than socket.request.max.bytes, without a cause."""
    waits.end(waits.begin("Produce", BROKER), None, was_closed=True)
    waits.begin("Produce", BROKER)
    assert texts(waits, TRANSACTION) == [f"Produce to {BROKER}: closes the connection"]

    waits.unreachable(BROKER, "Connection refused")
    assert texts(waits, TRANSACTION) == [f"connection to {BROKER}: Connection refused"]

    waits.reached(BROKER)
    answer(waits, "Produce", produced(0, 0))
    assert texts(waits, TRANSACTION) == []


class Connection:
    """A connection whose broker gives one answer to all requests, or closes it if the answer is an error."""

    host, port = "broker-1", 9092

    def __init__(self, answer):
        self._answer = answer

    async def send(self, _request, expect_response=True):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def client_of(waits, *connections):
    """Return a client that notes its waits, and gets these connections, of which None could not be opened."""
    client, opened = AIOKafkaClient(), iter(connections)

    async def connect(_node, **_):
        return next(opened)

    client._get_conn = connect
    noting(client, waits)
    return client


async def test_a_connection_that_is_closed_at_a_request_is_noted(waits):
    connection = await client_of(waits, Connection(KafkaConnectionError("closed")))._get_conn(1)

    with pytest.raises(KafkaConnectionError):
        await connection.send(HeartbeatRequest("group", 1, "member"))

    assert texts(waits, MEMBERSHIP) == [f"Heartbeat to {BROKER}: closes the connection"]


async def test_a_client_notes_its_requests_and_its_connections(waits):
    client = client_of(waits, Connection(EndTxnResponse_v0(0, 25)), None)
    client.cluster.update_metadata(
        SimpleNamespace(API_VERSION=1, brokers=[(1, "broker-1", 9092, None)], controller_id=1, topics=[])
    )

    await (await client._get_conn(1)).send(HeartbeatRequest("group", 1, "member"))
    assert texts(waits, MEMBERSHIP) == [f"Heartbeat to {BROKER}: UNKNOWN_MEMBER_ID (25)"]

    assert await client._get_conn(1) is None
    assert [wait.request for wait in waits.current(READING)] == ["connection"]


async def test_why_positions_are_refused_is_noted_by_a_producer_that_does_not_know_their_topic(waits):
    client = client_of(waits, Connection(TxnOffsetCommitResponse_v0(0, [("raw", [(0, 12)])])))
    client._topics = {"contribute"}

    await (await client._get_conn(1)).send(TxnOffsetCommitRequest_v0("id", "group", 1, 1, []))

    assert texts(waits, TRANSACTION) == ["TxnOffsetCommit to raw/0: OFFSET_METADATA_TOO_LARGE (12)"]


@pytest.mark.parametrize("code", [47, 90])
def test_that_brokers_have_aborted_a_transaction_is_not_what_it_waited_for(waits, code):
    """A worker's last line named EndTxn: INVALID_PRODUCER_EPOCH instead of the missing replicas."""
    answer(waits, "Produce", produced(0, 19))
    answer(waits, "EndTxn", EndTxnResponse_v0(0, code))
    answer(waits, "Produce", produced(0, code))

    assert texts(waits, TRANSACTION) == ["Produce to contribute/0: NOT_ENOUGH_REPLICAS (19)"]


def test_a_partition_that_another_one_keeps_from_a_transaction_is_no_cause(waits):
    """With the topic of outputs deleted, the page blamed a partition of the changelog for six seconds."""
    topics = [("changelog", [(1, 55)]), ("contribute", [(0, 3)])]
    answer(waits, "AddPartitionsToTxn", AddPartitionsToTxnResponse_v0(0, topics))

    assert texts(waits, TRANSACTION) == ["AddPartitionsToTxn to contribute/0: UNKNOWN_TOPIC_OR_PARTITION (3)"]


@pytest.mark.parametrize("code", [27, 79])
def test_what_a_coordinator_asks_of_each_member_is_no_error(waits, code):
    """The verdict of each rebalance was "Recovering; Heartbeat: REBALANCE_IN_PROGRESS"."""
    answer(waits, "Heartbeat", EndTxnResponse_v0(0, 25))
    answer(waits, "Heartbeat", EndTxnResponse_v0(0, code))

    assert texts(waits, MEMBERSHIP) == []
