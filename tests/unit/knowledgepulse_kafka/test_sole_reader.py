"""What is read as the only member of a group."""

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import ConsumerRecord

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.sole_reader import SoleReader

AT = TopicPartition("contribute", 0)


class Consumer:
    """The client's consumer, which always has one more record."""

    def __init__(self, *_):
        self.group = GroupMetadata("a-group", "a-member", 1)

    async def getmany(self, **_):
        return {AT: [ConsumerRecord(*AT, 0, 0, 0, None, b"", None, -1, 0, ())]}


@pytest.fixture
def consumer():
    return Consumer()


@pytest.fixture
def reader(consumer):
    return SoleReader(Config(), "a-group", ["contribute"], 10**6, lambda *_: consumer)


async def test_a_batch_is_out_of_date_after_a_rebalance(reader, consumer):
    """Its rest is read again from what is committed; whoever went on with it would do everything twice."""
    await reader.batch()
    assert reader.is_current
    consumer.group = GroupMetadata("a-group", "a-member", 2)
    assert not reader.is_current
    await reader.batch()
    assert reader.is_current
