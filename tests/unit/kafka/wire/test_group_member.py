"""What the group member makes of its coordinator's answers."""

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import GroupAuthorizationFailedError
from aiokafka.protocol.commit import OffsetFetchResponse_v3

from worker.kafka.lease import Lease
from worker.kafka.wire.group_member import GroupMember
from worker.settings import KafkaSettings

AT = TopicPartition("raw-traces", 0)
LOADING, NOT_COORDINATOR, NOT_AUTHORIZED = 14, 16, 30


class ScriptedCoordinator(GroupCoordinator):
    """The client's own coordinator, whose requests are answered from a list."""

    def __init__(self, *answers):
        self.group_id = "a-group"
        self.looked_up = 0
        self._answers = list(answers)
        self._retry_backoff_ms = 0

    async def _send_req(self, request):
        return self._answers.pop(0)

    async def ensure_coordinator_known(self): ...

    def coordinator_dead(self):
        self.looked_up += 1

    async def close(self): ...


@pytest.fixture
async def member(monkeypatch):
    """Start a member whose coordinator gives some answers."""
    members = []

    async def start(*answers):
        async def connect(consumer):
            consumer._coordinator = ScriptedCoordinator(*answers)

        monkeypatch.setattr(AIOKafkaConsumer, "start", connect)
        member = GroupMember(KafkaSettings(), 10**6, Lease(1.0), rebalance_timeout=10)
        members.append(member)
        await member.start()
        return member

    yield start
    for one in members:
        await one.stop()


def positions(offset):
    return OffsetFetchResponse_v3(0, [(AT.topic, [(AT.partition, offset, "", 0)])], 0)


def refused(error_code):
    return OffsetFetchResponse_v3(0, [], error_code)


async def test_a_coordinator_that_still_loads_the_group_is_asked_again(member):
    """The client took its answer for a group without a position, and read from the beginning."""
    one = await member(refused(LOADING), refused(LOADING), positions(7))

    assert await one.committed(AT) == 7


async def test_a_broker_that_is_no_longer_the_coordinator_is_not_believed(member):
    one = await member(refused(NOT_COORDINATOR), positions(7))

    assert await one.committed(AT) == 7
    assert one._coordinator.looked_up == 1


async def test_a_group_without_a_position_has_none(member):
    assert await (await member(positions(-1))).committed(AT) is None


async def test_a_position_that_may_not_be_read_is_an_error(member):
    one = await member(refused(NOT_AUTHORIZED))

    with pytest.raises(GroupAuthorizationFailedError):
        await one.committed(AT)
