"""How commits end, and what is read after them."""

from contextlib import asynccontextmanager

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import ConsumerRecord

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import (
    DeliveryError,
    IdleError,
    LostPartitionsError,
    RefusedError,
    ThrottledError,
)
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import Location, Position
from knowledgepulse_kafka.session import Committed, Rebalanced, Refused, Session, Throttled

AT = TopicPartition("contribute", 0)
AFTER = {AT: Position(1)}


class Consumer:
    """The client's consumer, which always has one more record."""

    def __init__(self, *_):
        self.group = GroupMetadata("a-group", "a-member", 1)

    async def getmany(self, **_):
        return {AT: [ConsumerRecord(*AT, 0, 0, 0, None, b"", None, -1, 0, ())]}


class Publisher:
    """A publisher whose transactions end as they are told, the last way for ever."""

    def __init__(self):
        self.ends = [None]
        self.members = []

    @asynccontextmanager
    async def transaction(self, member, _positions):
        self.members.append(member)

        async def write(records, _alone):
            return [Location(0, 7 + number) for number, _ in enumerate(records)]

        yield write
        error = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        if error is not None:
            raise error


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
    session._publisher = publisher
    return session


REFUSED = RefusedError()


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, Committed([7, 8])),
        (REFUSED, Refused(REFUSED)),
        (ThrottledError("a quota"), Throttled("a quota")),
        (LostPartitionsError(), Rebalanced()),
    ],
)
async def test_a_commit_s_outcome_is_a_value(session, publisher, error, outcome):
    publisher.ends = [error]
    await session.poll()
    assert await session.commit(["one", "two"], AFTER) == outcome


async def test_a_transaction_that_failed_ends_the_session(session, publisher):
    publisher.ends = [DeliveryError("took over")]
    await session.poll()
    with pytest.raises(DeliveryError, match="took over"):
        await session.commit([], AFTER)


async def test_a_producer_that_the_brokers_forgot_commits_at_its_second_attempt(session, publisher):
    publisher.ends = [IdleError(), None]
    await session.poll()
    assert await session.commit([], AFTER) == Committed([])


async def test_a_batch_is_out_of_date_after_a_rebalance(session, consumer):
    """Its rest is read again from what is committed; whoever went on with it would do everything twice."""
    await session.poll()
    assert session.is_current
    consumer.group = GroupMetadata("a-group", "a-member", 2)
    assert not session.is_current
    await session.poll()
    assert session.is_current


async def test_records_are_committed_as_the_member_that_read_them(session, consumer, publisher):
    """As the present member, a session would commit for partitions that it has lost."""
    await session.poll()
    former, consumer.group = consumer.group, GroupMetadata("a-group", "a-member", 2)
    await session.commit([], AFTER)
    assert publisher.members == [former]
