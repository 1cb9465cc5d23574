"""The id of a topic, by which one that was made anew is told from the one before (Kafka's KIP-516).

The client asks for metadata in versions from before there were ids.
"""

from __future__ import annotations

from io import BytesIO
from typing import ClassVar
from uuid import UUID

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

NO_ID = UUID(int=0)


class _Uuid(AbstractType[UUID]):  # type: ignore[misc]  # aiokafka says no types
    @classmethod
    def encode(cls, value: UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> UUID:
        return UUID(bytes=data.read(16))


class _MetadataResponse_v11(Response):  # type: ignore[misc]  # noqa: N801 - the client's way to name them
    API_KEY = 3
    API_VERSION = 11
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _MetadataRequest_v11(RequestStruct):  # type: ignore[misc]  # noqa: N801 - likewise
    API_KEY = 3
    API_VERSION = 11
    FLEXIBLE_VERSION: ClassVar[bool] = True
    RESPONSE_TYPE = _MetadataResponse_v11
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("topic_id", _Uuid), ("topic", CompactString("utf-8")), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _TopicRequest(Request[_MetadataRequest_v11]):  # type: ignore[misc]  # aiokafka says no types
    API_KEY = 3

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: type[_MetadataRequest_v11]) -> _MetadataRequest_v11:
        return request_struct_class([(NO_ID, self._topic, {})], False, False, {})


async def topic_id(client: AIOKafkaClient, topic: str) -> UUID | None:
    """Ask any broker for a topic's id.

    Returns:
        None when no broker answers, there is no such topic, or the brokers know no ids.
    """
    node = client.get_random_node()
    if node is None:
        return None
    try:
        response = await client.send(node, _TopicRequest(topic))
    except (KafkaError, NotImplementedError):
        return None
    [(error, _, found, *_)] = response.topics
    return None if error or found == NO_ID else found
