"""What a producer still has is failed when it shall send nothing more."""

import asyncio
from types import SimpleNamespace

from aiokafka import TopicPartition
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import KafkaTimeoutError
from aiokafka.producer.message_accumulator import BatchBuilder, MessageAccumulator

from knowledgepulse_worker.kafka.wire.producer import send_no_more

PARTITIONS = [TopicPartition("t", number) for number in range(3)]


async def test_batches_that_wait_are_sent_or_are_sent_again_end_with_the_error():
    """A drain would wait for one that was left without an end."""
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    sender = SimpleNamespace(sender_task=asyncio.create_task(asyncio.Event().wait()))
    accumulator = MessageAccumulator(ClusterMetadata(), 1000, 0, 1)
    producer = SimpleNamespace(_sender=sender, _message_accumulator=accumulator)
    deliveries = [await accumulator.add_batch(batch(), at, 1) for at in PARTITIONS]
    again, under_way = map(accumulator._pop_batch, PARTITIONS[:2])
    accumulator.reenqueue(again)

    send_no_more(producer, KafkaTimeoutError())
    accumulator.reenqueue(under_way)

    for _ in range(3):
        await asyncio.sleep(0)  # the client's callbacks
    assert [type(one.exception()) for one in deliveries] == [KafkaTimeoutError] * 3
    assert complaints == []


def batch():
    builder = BatchBuilder(1000, 0, is_transactional=False)
    builder.append(timestamp=0, key=b"k", value=b"v")
    return builder
