"""What a transaction that fails says: which batches were refused, or why nothing was published."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import RecordMetadata

from knowledgepulse_worker.errors import DeliveryError, TooLargeError
from knowledgepulse_worker.kafka.transactional_publisher import TransactionalPublisher
from knowledgepulse_worker.kafka.wire.group_offsets import GroupMetadata
from knowledgepulse_worker.kafka.wire.producer import SentBatch
from knowledgepulse_worker.records.publisher import Position, Refusal, RefusedError
from knowledgepulse_worker.records.record import OutputRecord
from knowledgepulse_worker.settings import KafkaSettings


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
def transact(monkeypatch):
    """Send records to partitions; each outcome is a batch's first offset or error, or an error of sending."""
    monkeypatch.setattr(FakeProducer, "starts", 0)

    async def run(outcomes):
        publisher = TransactionalPublisher(
            KafkaSettings(), "id", new_producer=lambda **_: FakeProducer(outcomes)
        )
        return await publisher.transact("raw", GroupMetadata("group"), records(outcomes), {0: Position(1)})

    return run


def records(outcomes):
    count = [1 if isinstance(some, Exception) else len(some) for some in outcomes]
    return [record(partition, number) for partition, some in enumerate(count) for number in range(some)]


def record(partition, number):
    return OutputRecord("topic", partition, 0, b"%d" % number, b"v", ())


async def test_each_record_s_offset_is_returned(transact):
    assert await transact([[5, 6], [0]]) == [5, 6, 0]


async def test_the_refusals_of_all_partitions_are_told_and_what_is_behind_them_is_not_at_fault(transact):
    too_large, behind = MessageSizeTooLargeError(), OutOfOrderSequenceNumber()

    with pytest.raises(RefusedError) as refused:
        await transact([[0, too_large, behind], [1], [too_large]])

    assert [one.records for one in refused.value.refusals] == [[record(0, 1)], [record(2, 0)]]
    assert {type(one.cause) for one in refused.value.refusals} == {TooLargeError}
    assert FakeProducer.starts == 1, "the sequence of its batches has a gap"


@pytest.mark.parametrize("error", [OutOfOrderSequenceNumber(), TopicAuthorizationFailedError("topic")])
async def test_another_error_of_a_batch_is_no_refusal(error, transact):
    with pytest.raises(DeliveryError, match=type(error).__name__) as failed:
        await transact([[0], [error]])

    assert not isinstance(failed.value, RefusedError)
    assert FakeProducer.starts == 0


async def test_a_record_that_the_client_cannot_send_is_refused_whatever_happens_to_the_others(transact):
    """The partitions are sent to in a group of tasks, whose own error would say nothing."""
    problem = DeliveryError("topic: UnicodeEncodeError")

    with pytest.raises(RefusedError, match="UnicodeEncodeError") as refused:
        await transact([[0], RefusedError(Refusal([record(1, 0)], problem))])

    assert [one.records for one in refused.value.refusals] == [[record(1, 0)]]
    assert FakeProducer.starts == 1


async def test_an_error_of_the_client_that_can_send_nothing_more_is_told(transact):
    with pytest.raises(DeliveryError, match="KafkaError: fenced"):
        await transact([[0], KafkaError("fenced")])
