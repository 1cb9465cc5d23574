"""What a transaction that fails says: which batches were refused, or why nothing was published."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    InvalidTransactionTimeout,
    KafkaError,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
from aiokafka.producer.sender import Sender
from aiokafka.protocol.transaction import TxnOffsetCommitResponse_v0
from aiokafka.structs import RecordMetadata

from knowledgepulse_kafka import transactional_publisher
from knowledgepulse_kafka.commit_outcome import Committed, Refused, Throttled
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import (
    BrokerError,
    DeliveryError,
    Refusal,
    RefusedError,
    SecurityError,
)
from knowledgepulse_kafka.group_offsets import GroupMetadata, MemberOffsetsRequest
from knowledgepulse_kafka.producer import ForgottenIdError, SentBatch
from knowledgepulse_kafka.records import OutputRecord, Position
from knowledgepulse_kafka.throttling import HeldBackError
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher

AFTER = {("raw", 0): Position(1)}


class FakeProducer:
    """A producer whose outcomes a test sets: for each partition, those of its batches or of sending them.

    Attributes:
        starts: how often a producer was started.
    """

    starts = 0

    def __init__(self, outcomes):
        self._outcomes = outcomes

    async def start(self):
        FakeProducer.starts += 1

    async def stop(self): ...

    @asynccontextmanager
    async def transaction(self):
        yield

    async def send_batches(self, place, records, alone):
        outcomes = self._outcomes[place.partition]
        if isinstance(outcomes, Exception):
            raise outcomes
        return [
            SentBatch([record], written(place, outcome))
            for record, outcome in zip(records, outcomes, strict=True)
        ]

    async def send_group_offsets(self, offsets, group): ...


def written(place, outcome):
    delivery = asyncio.get_running_loop().create_future()
    if isinstance(outcome, Exception):
        delivery.set_exception(outcome)
        delivery.exception()  # nobody need wait for it
    else:
        delivery.set_result(RecordMetadata(*place, place, outcome, -1, 0, 0))
    return delivery


@pytest.fixture
def commit(monkeypatch):
    """Send records to partitions; each outcome is a batch's first offset or error, or an error of sending."""
    monkeypatch.setattr(FakeProducer, "starts", 0)

    async def run(outcomes):
        publisher = TransactionalPublisher(Config(), "id", new_producer=lambda **_: FakeProducer(outcomes))
        return await publisher.commit(records(outcomes), AFTER, GroupMetadata("group"))

    return run


def records(outcomes):
    count = [1 if isinstance(outcome, Exception) else len(outcome) for outcome in outcomes]
    return [record(partition, number) for partition, size in enumerate(count) for number in range(size)]


def record(partition, number):
    return OutputRecord("topic", partition, 0, b"%d" % number, b"v", ())


async def test_the_group_is_added_to_the_transaction_while_the_leaders_write_the_records():
    """One after the other, a transaction of a worker took longer."""
    delivery = asyncio.get_running_loop().create_future()

    class Producer(FakeProducer):
        async def send_batches(self, place, records, alone):
            return [SentBatch(records, delivery)]

        async def send_group_offsets(self, offsets, group):
            assert not delivery.done()
            delivery.set_result(RecordMetadata("topic", 0, None, 5, -1, 0, 0))

    publisher = TransactionalPublisher(Config(), "id", new_producer=lambda **_: Producer([]))

    async with asyncio.timeout(60):
        assert await publisher.commit([record(0, 0)], AFTER, GroupMetadata("group")) == Committed([5])


async def test_another_error_of_a_batch_is_no_refusal(commit):
    with pytest.raises(DeliveryError, match="OutOfOrderSequenceNumber") as failed:
        await commit([[0], [OutOfOrderSequenceNumber()]])

    assert not isinstance(failed.value, RefusedError)
    assert FakeProducer.starts == 0


async def test_an_error_that_the_client_does_not_expect_is_told_with_what_the_brokers_answered():
    """A worker ended again and again with no more than "Unexpected error during batch delivery"."""
    unexpected = KafkaError("Unexpected error during batch delivery")
    publisher = TransactionalPublisher(Config(), "id", new_producer=lambda **_: FakeProducer([[unexpected]]))
    number = publisher.waits.begin("TxnOffsetCommit", "broker-1:9092")
    publisher.waits.end(number, TxnOffsetCommitResponse_v0(0, [("raw", [(0, 12)])]))

    with pytest.raises(DeliveryError, match=r"; waited for TxnOffsetCommit to raw/0: OFFSET_METADATA_TOO_"):
        await publisher.commit([record(0, 0)], AFTER, GroupMetadata("group"))


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (TopicAuthorizationFailedError("b"), SecurityError, "do not allow: Write on topic b"),
        (TopicAuthorizationFailedError({"b", "a"}), SecurityError, "Write on topic a; Write on topic b"),
        (GroupAuthorizationFailedError("group"), SecurityError, "do not allow: Read on group group"),
        (TransactionalIdAuthorizationFailed("id"), SecurityError, "Write on transactional-id prefix-*"),
        (
            InvalidTransactionTimeout(),
            BrokerError,
            "10 s, but the brokers' transaction.max.timeout.ms is less than 10000",
        ),
        (TimeoutError(), DeliveryError, "a single broker needs transaction.state.log.replication.factor=1"),
    ],
)
async def test_an_error_at_the_start_names_what_is_missing(error, kind, text):
    class Refused(FakeProducer):
        async def start(self):
            raise error

    publisher = TransactionalPublisher(
        Config(), "prefix-1", new_producer=lambda **_: Refused([]), granted="prefix-*"
    )
    with pytest.raises(kind) as raised:
        await publisher.__aenter__()

    assert text in str(raised.value)


async def test_a_right_to_a_transactional_id_is_granted_on_the_id_unless_told_otherwise(monkeypatch):
    async def refuse(_producer):
        raise TransactionalIdAuthorizationFailed

    monkeypatch.setattr(FakeProducer, "start", refuse)
    publisher = TransactionalPublisher(Config(), "an-id", new_producer=lambda **_: FakeProducer([]))

    with pytest.raises(SecurityError, match=r"Write on transactional-id an-id$"):
        await publisher.__aenter__()


async def test_a_broker_before_kafka_2_5_is_named(monkeypatch):
    """It could not commit a group's offsets for a member, and the client would log a traceback."""

    async def start(producer): ...

    async def find(sender, kind, key):
        return 1

    async def send(client, node, request, *, group):
        return SimpleNamespace(api_versions=[(MemberOffsetsRequest.API_KEY, 0, 2)])

    monkeypatch.setattr(AIOKafkaProducer, "start", start)
    monkeypatch.setattr(AIOKafkaClient, "send", send)
    monkeypatch.setattr(Sender, "_find_coordinator", find)

    with pytest.raises(BrokerError, match=r"^bootstrap_servers: .* need Kafka 2\.5 or later$"):
        await TransactionalPublisher(Config(), "id").__aenter__()


async def test_a_record_that_the_client_cannot_send_is_refused_whatever_happens_to_the_others(commit):
    """The partitions are sent to in a group of tasks, whose own error would say nothing."""
    problem = DeliveryError("topic: UnicodeEncodeError")

    refused = await commit([[0], RefusedError(Refusal([record(1, 0)], problem))])

    assert isinstance(refused, Refused)
    assert "UnicodeEncodeError" in str(refused.error)
    assert [refusal.records for refusal in refused.error.refusals] == [[record(1, 0)]]
    assert FakeProducer.starts == 1


async def test_a_transaction_that_a_quota_would_hold_open_is_not_committed(commit):
    outcome = await commit([[0], [HeldBackError()]])

    assert isinstance(outcome, Throttled)
    assert "producer_byte_rate" in outcome.reason

    assert FakeProducer.starts == 1, "the sequence of its batches has a gap"


async def test_a_producer_that_the_brokers_have_forgotten_starts_again_and_publishes(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(FakeProducer, "starts", 0)
    attempts = iter([[ForgottenIdError()], [[5]]])
    publisher = TransactionalPublisher(Config(), "id", new_producer=lambda **_: FakeProducer(next(attempts)))

    outcome = await publisher.commit([record(0, 0)], AFTER, GroupMetadata("group"))

    assert (outcome, FakeProducer.starts) == (Committed([5]), 1)
    assert "idle for longer than their transactional.id.expiration.ms; it starts again" in caplog.text


async def test_a_producer_that_starts_says_for_how_long_and_is_stopped_if_it_may_not_go_on(monkeypatch):
    """The transaction coordinator may be away, and the worker must say so and stop at once."""
    has_begun, stopped = asyncio.Event(), []

    class Waiting(FakeProducer):
        async def start(self):
            has_begun.set()
            await asyncio.Event().wait()

        async def stop(self):
            stopped.append(self)

    moments = iter([100.0, 107.0])
    monkeypatch.setattr(transactional_publisher, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    publisher = TransactionalPublisher(Config(), "id", new_producer=lambda **_: Waiting([]))
    assert publisher.start_age == 0
    starting = asyncio.create_task(publisher.__aenter__())
    await has_begun.wait()
    assert publisher.start_age == 7

    starting.cancel()
    await asyncio.wait([starting])
    assert (len(stopped), publisher.start_age) == (1, 0)


async def test_a_producer_that_does_not_stop_is_abandoned(monkeypatch):
    """Its process was killed after 20 s, before it could say which topic had been deleted."""
    abandoned = []

    class Stuck(FakeProducer):
        async def stop(self):
            await asyncio.Event().wait()

    async def abandon(producer):
        abandoned.append(producer)

    monkeypatch.setattr(transactional_publisher, "_STOP_LIMIT", 0)
    monkeypatch.setattr(transactional_publisher, "abandon", abandon)
    async with TransactionalPublisher(Config(), "id", new_producer=lambda **_: Stuck([])):
        pass

    assert len(abandoned) == 1
