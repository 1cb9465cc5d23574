"""How commits end, and what is read after them."""

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import ConsumerRecord

from knowledgepulse_kafka.commit_outcome import Committed
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import Position
from knowledgepulse_kafka.session import Session

AT = TopicPartition("contribute", 0)
AFTER = {AT: Position(1)}


class Consumer:
    """The client's consumer, which always has one more record."""

    def __init__(self, *_):
        self.group = GroupMetadata("a-group", "a-member", 1)

    def check_membership(self):
        """The group knows it."""

    async def getmany(self, **_):
        return {AT: [ConsumerRecord(*AT, 0, 0, 0, None, b"", None, -1, 0, ())]}


class Publisher:
    """Notes for whom it commits."""

    def __init__(self):
        self.outcome = Committed([])
        self.members = []

    async def commit(self, _records, _positions, member, _alone):
        self.members.append(member)
        return self.outcome


@pytest.fixture
def consumer():
    return Consumer()


@pytest.fixture
def publisher():
    return Publisher()


@pytest.fixture
async def session(consumer, publisher):
    session = Session(
        Config(group="a-group"),
        ["contribute"],
        "an-id",
        decoded_bytes=10**6,
        new_member=lambda *_: consumer,
        new_producer=lambda **_: None,
    )
    session.publisher = publisher
    return session


async def test_a_batch_is_out_of_date_after_a_rebalance(session, consumer):
    """Its rest is read again from what is committed; whoever went on with it would do everything twice."""
    await session.poll()
    assert session.is_current
    consumer.group = GroupMetadata("a-group", "a-member", 2)
    assert not session.is_current
    await session.poll()
    assert session.is_current
