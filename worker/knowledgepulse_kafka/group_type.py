"""The type of a group on the brokers (KIP-848), of which a group's id keeps the first until it is deleted."""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import KafkaError
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import BrokerError
from knowledgepulse_kafka.own_request import OwnRequest

_OTHER_TYPES = ["share", "streams"]
"""The types that take no consumer (KIP-932, KIP-1071)."""

_TEXT = CompactString("utf-8")


async def require_group_of_consumers(client: AIOKafkaClient, config: Config) -> None:
    """Check that the brokers keep the group's id for no group of another type.

    They refuse a consumer that joins such a group in the same way as one whose protocol other members do not
    share. Brokers before 3.8, and those that do not answer, tell no type.

    Raises:
        BrokerError: the id is that of a share group or a streams group, with or without members.
    """
    with suppress(KafkaError):
        node = await client.coordinator_lookup(CoordinationType.GROUP, config.group)
        answer = await client.send(node, _GroupsRequest([], _OTHER_TYPES, {}))
        for group, _, state, kind, _ in answer.groups:
            if group == config.group:
                name, members = kind.lower(), "no members" if state in ("Empty", "Dead") else "members"
                raise BrokerError(
                    f"{config.prefix}group: {group}: the brokers keep this id for a {name} group, which has "
                    f"{members}; set another one, or delete that group with kafka-{name}-groups.sh --delete"
                )


class _GroupsResponse_v5(Response):  # type: ignore[misc]  # noqa: N801 - aiokafka's naming
    API_KEY = 16
    API_VERSION = 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "groups",
            CompactArray(
                ("group", _TEXT),
                ("protocol_type", _TEXT),
                ("state", _TEXT),
                ("type", _TEXT),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _GroupsRequest(OwnRequest, RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    NEEDS = "the types of groups need Kafka 3.8 or later"
    API_KEY = 16
    API_VERSION = 5
    FLEXIBLE_VERSION: ClassVar[bool] = True
    RESPONSE_TYPE = _GroupsResponse_v5
    SCHEMA = Schema(
        ("states", CompactArray(_TEXT)),
        ("types", CompactArray(_TEXT)),
        ("tags", TaggedFields),
    )
