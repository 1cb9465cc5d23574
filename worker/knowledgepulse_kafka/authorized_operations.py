"""Ask brokers for a client's authorized operations (KIP-430), which aiokafka's own requests omit."""

from __future__ import annotations

from typing import TypeAlias

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.admin import DescribeGroupsRequest_v3, DescribeGroupsResponse_v3
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

from knowledgepulse_kafka.own_request import OwnRequest

_UNKNOWN = -(2**31)

AllowedOperations: TypeAlias = dict[tuple[str, str], int]
"""The allowed operations as bit sets, by kind and name of the resource."""


async def on_topics(client: AIOKafkaClient, names: list[str]) -> AllowedOperations:
    """Return the allowed operations on topics as bit sets; unreported topics are left out."""
    try:
        response = await client.send(client.get_random_node(), _TopicsRequest(names, False, False, True))
    except IncompatibleBrokerVersion:
        return {}
    allowed = {}
    for code, name, _, _, operations in response.topics:
        if code == TopicAuthorizationFailedError.errno:
            allowed["topic", name] = 0
        elif code == 0 and operations != _UNKNOWN:
            allowed["topic", name] = operations
    return allowed


async def on_group(client: AIOKafkaClient, name: str) -> AllowedOperations:
    """Return the allowed operations on a group; nothing if a new cluster has no coordinator yet."""
    try:
        node = await client.coordinator_lookup(CoordinationType.GROUP, name)
        response = await client.send(node, _GroupRequest([name], True))
    except GroupAuthorizationFailedError:
        return {("group", name): 0}
    except KafkaError:
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


class _TopicsRequest(OwnRequest, RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    NEEDS = "authorized operations need Kafka 2.3 or later"
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _TopicsResponse_v8
    SCHEMA = Schema(
        ("topics", Array(String("utf-8"))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class _GroupRequest(OwnRequest, RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    """Requests version 3 of the response; aiokafka's own class parses version 2, without the operations."""

    NEEDS = "authorized operations need Kafka 2.3 or later"
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = DescribeGroupsResponse_v3
    SCHEMA = DescribeGroupsRequest_v3.SCHEMA
