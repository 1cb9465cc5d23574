"""What the group member makes of its coordinator's answers."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import GroupAuthorizationFailedError, IncompatibleBrokerVersion
from aiokafka.protocol.group import (
    JoinGroupRequest,
    JoinGroupResponse_v5,
    SyncGroupRequest,
    SyncGroupResponse_v3,
)
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka import group_member
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.group_member import GroupMember, TransactionalAssignor
from knowledgepulse_kafka.group_offsets import GroupMetadata, StableOffsetsResponse_v7

AT = TopicPartition("raw-traces", 0)
LOADING, NOT_COORDINATOR, NOT_AUTHORIZED, UNSTABLE = 14, 16, 30, 88


class ScriptedCoordinator(GroupCoordinator):
    """The client's own coordinator, whose requests are answered from a list."""

    def __init__(self, *answers):
        self.group_id = "a-group"
        self.member_id = "a-member"
        self.coordinator_id = 0
        self.generation = 1
        self.looked_up = 0
        self._commit_lock = asyncio.Lock()
        self._answers = list(answers)
        self._retry_backoff_ms = 0

    async def _send_req(self, request):
        answer = self._answers.pop(0)
        return answer(request) if callable(answer) else answer

    async def ensure_coordinator_known(self): ...

    def coordinator_dead(self):
        self.looked_up += 1

    async def close(self): ...


class AFetcher:
    """The client's fetcher, which fetches nothing."""

    _retry_backoff = 0.1

    def __init__(self):
        self._fetch_task = asyncio.create_task(asyncio.sleep(0))
        self._pending_tasks = set()

    async def close(self): ...

    async def _proc_fetch_request(self): ...

    def _get_actions_per_node(self): ...


@pytest.fixture
async def member(monkeypatch):
    """Start a member whose coordinator gives some answers."""
    members = []

    async def start(*answers):
        async def known(*_): ...

        async def connect(consumer):
            consumer._coordinator = ScriptedCoordinator(*answers)
            consumer._fetcher = AFetcher()

        monkeypatch.setattr(group_member, "require_group_of_consumers", known)
        monkeypatch.setattr(AIOKafkaConsumer, "start", connect)
        member = GroupMember(Config(), 10**6, rebalance_timeout=10)
        members.append(member)
        await member.start()
        return member

    yield start
    for joined in members:
        await joined.stop()


def positions(offset, error_code=0):
    partitions = [(AT.partition, offset, 0, "a note", error_code, {})]
    return StableOffsetsResponse_v7(0, [(AT.topic, partitions, {})], 0, {})


def refused(error_code):
    return StableOffsetsResponse_v7(0, [], error_code, {})


async def test_added_partitions_are_noticed_early_enough_to_be_read_within_a_minute(member):
    """The client notices them when it refreshes its metadata; by default, after five minutes."""
    assert (await member())._client._metadata_max_age_ms <= 20_000


def test_each_assignment_carries_data_so_that_brokers_do_not_upgrade_the_group():
    """A consumer with group.protocol=consumer would get partitions and commit past their records."""
    cluster = SimpleNamespace(topics=lambda: {AT.topic}, partitions_for_topic=lambda _: {0, 1, 2})
    members = {name: TransactionalAssignor.metadata({AT.topic}) for name in ("first", "second", "third")}

    assignments = TransactionalAssignor.assign(cluster, members)

    encoded = [
        ConsumerProtocolMemberAssignment.decode(assignment.encode()) for assignment in assignments.values()
    ]
    assert all(assignment.user_data for assignment in encoded)
    assert sorted(tp.partition for assignment in encoded for tp in assignment.partitions()) == [0, 1, 2]


@pytest.mark.parametrize(("leader", "is_assigned_by_brokers"), [("a-member", False), ("", True)])
async def test_a_group_without_a_leader_is_assigned_by_brokers(member, leader, is_assigned_by_brokers):
    """A consumer with group.protocol=consumer was there before the first worker (KIP-848)."""
    joined = JoinGroupResponse_v5(0, 0, 1, TransactionalAssignor.name, leader, "a-member", [])
    joining = await member(joined, SyncGroupResponse_v3(0, 0, b""))

    await joining._coordinator._send_req(JoinGroupRequest("a-group", 1, 1, "a-member", None, "consumer", []))
    await joining._coordinator._send_req(SyncGroupRequest("a-group", 1, "a-member", None, []))

    assert joining.group == GroupMetadata("", "a-member", 1, is_assigned_by_brokers=is_assigned_by_brokers)


OFFSET_FETCH = 9


def lacks_the_version(request):
    request.prepare({OFFSET_FETCH: (0, 6)})


async def test_a_coordinator_that_still_loads_the_group_is_asked_again(member):
    """The client took its answer for a group without a position, and read from the beginning."""
    reader = await member(refused(LOADING), refused(LOADING), positions(7))

    assert await reader.committed([AT]) == {AT: OffsetAndMetadata(7, "a note")}


async def test_a_broker_that_is_no_longer_the_coordinator_is_not_believed(member):
    reader = await member(refused(NOT_COORDINATOR), positions(7))

    assert (await reader.committed([AT]))[AT].offset == 7
    assert reader._coordinator.looked_up == 1


async def test_brokers_without_stable_positions_are_refused(member):
    reader = await member(lacks_the_version)

    with pytest.raises(IncompatibleBrokerVersion, match=r"need Kafka 2\.5"):
        await reader.committed([AT])


async def test_a_group_without_a_position_has_none(member):
    assert await (await member(positions(-1))).committed([AT]) == {}


async def test_a_position_that_may_not_be_read_is_an_error(member):
    reader = await member(refused(NOT_AUTHORIZED))

    with pytest.raises(GroupAuthorizationFailedError):
        await reader.committed([AT])
