"""How commits end, and what is read after them."""

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import ConsumerRecord

from knowledgepulse_kafka.commit_outcome import Committed, Rebalanced, Refused, Throttled
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import RefusedError
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import Position
from knowledgepulse_kafka.session import Session, commit_repeatedly

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


class Outcomes:
    """A session whose commits end one way after another."""

    def __init__(self, *outcomes):
        self.left = list(outcomes)

    async def commit(self, *_):
        return self.left.pop(0)


@pytest.mark.parametrize(("last", "is_committed"), [(Committed([]), True), (Rebalanced(), False)])
async def test_a_commit_that_a_quota_kept_back_is_repeated_until_it_ends_otherwise(last, is_committed):
    session = Outcomes(Throttled("quota"), Throttled("quota"), last)

    assert await commit_repeatedly(session, [], {}) is is_committed
    assert session.left == []


async def test_a_repeated_commit_raises_what_refused_it():
    with pytest.raises(RefusedError):
        await commit_repeatedly(Outcomes(Refused(RefusedError())), [], {})
