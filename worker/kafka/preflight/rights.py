"""Check at start the rights (Kafka's ACLs) that a command needs.

A broker hides topics that a client may not describe, and a denied operation may surface hours after the
start. So all rights are checked at the start (KIP-430).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.admin import DescribeGroupsRequest_v3, DescribeGroupsResponse_v3
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

from worker.errors import SecurityError
from worker.kafka.connection import client_arguments
from worker.kafka.preflight.diagnosis import unreachable
from worker.kafka.topics import (
    assembled_topic_name,
    assembly_group,
    changelog_topic_name,
    evaluations_group,
    policies_topic_name,
    replays_topic_name,
)
from worker.settings import KafkaSettings, Settings

# https://kafka.apache.org/protocol: the bit of each operation.
_BITS = {"Read": 3, "Write": 4, "Describe": 8, "DescribeConfigs": 10}
_UNKNOWN = -(2**31)

_Allowed: TypeAlias = dict[tuple[str, str], int]


@dataclass(frozen=True)
class Right:
    """An operation on a resource, in the terms of ``kafka-acls``."""

    operation: str
    resource: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}"


def worker_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker run`` needs."""
    topics, group = settings.topics, settings.kafka.group
    yield from _topic(topics.raw, "Read", "DescribeConfigs")
    for name in (*_outputs(settings), *topics.copies):
        yield from _topic(name, "Write", "DescribeConfigs")
    for name in (changelog_topic_name(group), policies_topic_name(group)):
        yield from _topic(name, "Read", "Write", "DescribeConfigs")
    yield Right("Read", "group", group)


def creation_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker topics`` needs, except Create, which only the broker can check."""
    group = settings.kafka.group
    for name in (
        settings.topics.raw,
        *_outputs(settings),
        *settings.topics.copies,
        changelog_topic_name(group),
        policies_topic_name(group),
    ):
        yield from _topic(name, "Describe", "DescribeConfigs")


def publishing_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker publish`` needs."""
    yield from _topic(settings.topics.raw, "Write")


def audit_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker audit`` needs."""
    group = settings.kafka.group
    for name in (
        settings.topics.raw,
        *_outputs(settings),
        changelog_topic_name(group),
        policies_topic_name(group),
    ):
        yield from _topic(name, "Read", "DescribeConfigs")
    yield Right("Describe", "group", group)


def dead_letter_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker dead-letters list`` and ``show`` need."""
    for name in (settings.topics.dead_letter, replays_topic_name(settings.kafka.group)):
        yield from _topic(name, "Read", "DescribeConfigs")


def replay_rights(settings: Settings) -> Iterator[Right]:
    """Yield the additional rights that ``kp-worker dead-letters replay`` needs.

    Only the broker can check two more: Create on the replays topic, if it is missing, and Write on the
    transactional id.
    """
    yield from _topic(settings.topics.raw, "Write", "DescribeConfigs")
    yield from _topic(replays_topic_name(settings.kafka.group), "Write")


def scored_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker policy`` and ``kp-worker traces`` need to read scored traces."""
    for name in (settings.topics.contribute, settings.topics.rejected):
        yield from _topic(name, "Read", "DescribeConfigs")


def evaluation_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker evaluations`` needs.

    Only the broker can check two more: Create on the topic of evaluations, if it is missing, and Write on the
    transactional id.
    """
    yield from scored_rights(settings)
    yield from _topic(settings.topics.evaluations, "Write", "DescribeConfigs")
    yield Right("Read", "group", evaluations_group(settings.kafka.group))


def kept_policy_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker policy show`` and ``history`` need."""
    yield from _topic(policies_topic_name(settings.kafka.group), "Read", "DescribeConfigs")


def label_rights(name: str) -> Iterator[Right]:
    """Yield the rights for reading labels from a topic."""
    yield from _topic(name, "Read", "DescribeConfigs")


def republishing_rights(names: Iterable[str]) -> Iterator[Right]:
    """Yield the rights for publishing rescored traces."""
    for name in names:
        yield from _topic(name, "Write", "DescribeConfigs")


def assembly_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker assemble`` needs.

    Only the broker can check two more: Write on the transactional ids, which begin with the assemblers'
    group, and Create on the topics of late spans and of published runs, if they are missing.
    """
    group = settings.kafka.group
    yield from _topic(settings.assemble.spans, "Read", "DescribeConfigs")
    for name in (settings.topics.raw, settings.topics.dead_letter, settings.assemble.late):
        yield from _topic(name, "Write", "DescribeConfigs")
    yield from _topic(assembled_topic_name(group), "Read", "Write", "DescribeConfigs")
    yield Right("Read", "group", assembly_group(group))


async def require_rights(kafka: KafkaSettings, rights: Iterable[Right]) -> None:
    """Check that the brokers grant all rights; brokers before Kafka 2.3 cannot tell, and pass.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login or the certificate, or deny a right.
    """
    client = AIOKafkaClient(**client_arguments(kafka))
    try:
        await client.bootstrap()
        missing = await _missing(client, list(rights))
    except KafkaError as error:
        raise await unreachable(kafka, error) from error
    finally:
        await client.close()
    if missing:
        raise missing_rights(missing)


def missing_rights(rights: Iterable[Right]) -> SecurityError:
    """Return the error for denied rights."""
    return SecurityError(f"the brokers' ACLs do not allow: {'; '.join(map(str, rights))}")


async def _missing(client: AIOKafkaClient, rights: list[Right]) -> list[Right]:
    allowed = await _on_topics(client, sorted({right.name for right in rights if right.resource == "topic"}))
    for right in rights:
        if right.resource == "group":
            allowed |= await _on_group(client, right.name)
    return [
        right
        for right in rights
        # A right that the broker does not report counts as granted.
        if not allowed.get((right.resource, right.name), -1) >> _BITS[right.operation] & 1
    ]


async def _on_topics(client: AIOKafkaClient, names: list[str]) -> _Allowed:
    """Return the allowed operations on topics as bit sets; without those that brokers do not report."""
    try:
        response = await client.send(client.get_random_node(), _TopicsRequest(names))
    except (IncompatibleBrokerVersion, NotImplementedError):
        return {}
    allowed = {}
    for code, name, _, _, operations in response.topics:
        if code == TopicAuthorizationFailedError.errno:
            allowed["topic", name] = 0
        elif code == 0 and operations != _UNKNOWN:
            allowed["topic", name] = operations
    return allowed


async def _on_group(client: AIOKafkaClient, name: str) -> _Allowed:
    """Return the allowed operations on a group; nothing if a new cluster has no coordinator yet."""
    try:
        node = await client.coordinator_lookup(CoordinationType.GROUP, name)
        response = await client.send(node, _GroupRequest(name))
    except GroupAuthorizationFailedError:
        return {("group", name): 0}
    except (KafkaError, NotImplementedError):
        return {}
    [(code, *_, operations)] = response.groups
    if code == GroupAuthorizationFailedError.errno:
        return {("group", name): 0}
    return {} if code or operations == _UNKNOWN else {("group", name): operations}


class _TopicsResponse_v8(Response):  # type: ignore[misc]  # noqa: N801 - aiokafka's naming
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            Array(("node_id", Int32), ("host", String("utf-8")), ("port", Int32), ("rack", String("utf-8"))),
        ),
        ("cluster_id", String("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", String("utf-8")),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("cluster_authorized_operations", Int32),
    )


class _TopicsRequest_v8(RequestStruct):  # type: ignore[misc]  # noqa: N801 - aiokafka's naming
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _TopicsResponse_v8
    SCHEMA = Schema(
        ("topics", Array(String("utf-8"))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class _TopicsRequest(Request[_TopicsRequest_v8]):  # type: ignore[misc]  # aiokafka is untyped
    """Requests topics with the client's authorized operations, which aiokafka's own request lacks."""

    API_KEY = 3

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_TopicsRequest_v8]) -> _TopicsRequest_v8:
        return request_struct_class(self._topics, False, False, True)


class _GroupRequest_v3(RequestStruct):  # type: ignore[misc]  # noqa: N801 - aiokafka's naming
    """The client's own class parses the response as version 2, which lacks the operations."""

    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = DescribeGroupsResponse_v3
    SCHEMA = DescribeGroupsRequest_v3.SCHEMA


class _GroupRequest(Request[_GroupRequest_v3]):  # type: ignore[misc]  # aiokafka is untyped
    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_GroupRequest_v3]) -> _GroupRequest_v3:
        return request_struct_class([self._group], True)


def _outputs(settings: Settings) -> tuple[str, str, str]:
    topics = settings.topics
    return topics.contribute, topics.rejected, topics.dead_letter


def _topic(name: str, *operations: str) -> Iterator[Right]:
    for operation in operations:
        yield Right(operation, "topic", name)
