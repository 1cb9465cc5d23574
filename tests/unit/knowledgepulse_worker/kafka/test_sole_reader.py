"""What is read as the only member of a group."""

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError
from aiokafka.structs import ConsumerRecord

from knowledgepulse_worker.kafka.sole_reader import SoleReader
from knowledgepulse_worker.kafka.transactional_publisher import GroupOffset
from knowledgepulse_worker.settings import KafkaSettings

AT, ELSEWHERE = TopicPartition("contribute", 0), TopicPartition("contribute", 1)


class Consumer:
    """The client's consumer, assigned one partition of ten records.

    Attributes:
        positions: the next offset of each assigned partition.
        batch: records that it returns at once.
        end: the offset behind the last record.
    """

    def __init__(self, *_):
        self.generation = 1
        self.positions = {AT: 0}
        self.batch = 4
        self.end = 10

    async def getmany(self, **_):
        start = self.positions[AT]
        self.positions[AT] = min(self.end, start + self.batch)
        values = range(start, self.positions[AT])
        return {AT: [ConsumerRecord(*AT, one, 0, 0, None, b"", None, -1, 0, ()) for one in values]}

    def highwater(self, tp):
        return self.end

    async def position(self, tp):
        if tp not in self.positions:
            raise IllegalStateError(tp)
        return self.positions[tp]

    def seek(self, tp, offset):
        self.positions[tp] = offset


@pytest.fixture
def consumer():
    return Consumer()


@pytest.fixture
def reader(consumer):
    return SoleReader(KafkaSettings(), "a-group", ["contribute"], 10**6, lambda *_: consumer)


async def offsets(reader):
    return [record.offset for record in await reader.batch()]


async def test_a_batch_is_out_of_date_after_a_rebalance(reader, consumer):
    """Its rest is read again from what is committed; whoever went on with it would do everything twice."""
    await reader.batch()
    assert reader.is_current
    consumer.generation += 1
    assert not reader.is_current
    await reader.batch()
    assert reader.is_current


@pytest.mark.parametrize(("again", "read"), [(0, []), (1, []), (3, [6]), (6, [6, 7, 8, 9]), (7, [7, 8, 9])])
async def test_what_is_committed_is_not_read_again_after_a_rebalance(reader, consumer, again, read):
    """A group that joins while a transaction is open begins before it, and would be moved back."""
    assert await offsets(reader) == [0, 1, 2, 3]
    assert await offsets(reader) == [4, 5, 6, 7]
    reader.committed(GroupOffset("a-group", *AT, 6), GroupOffset("a-group", *ELSEWHERE, 9))
    consumer.positions[AT] = again

    assert await offsets(reader) == read
    assert await offsets(reader) == [*range(max(6, *(one + 1 for one in read or [5])), 10)]


async def test_a_topic_that_was_created_again_is_read_from_its_beginning(reader, consumer):
    await reader.batch()
    reader.committed(GroupOffset("a-group", *AT, 4))
    consumer.positions[AT], consumer.end = 0, 3

    assert await offsets(reader) == [0, 1, 2]
    consumer.end = 10
    assert await offsets(reader) == [3, 4, 5, 6]
