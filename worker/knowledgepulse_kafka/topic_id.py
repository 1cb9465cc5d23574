"""Look up a topic's id, which distinguishes a recreated topic from its predecessor (KIP-516).

aiokafka's own metadata requests predate topic ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from io import BytesIO
from typing import ClassVar
from uuid import UUID

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
    UnsignedVarInt32,
)

from knowledgepulse_kafka.client_factory import new_client
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.own_request import OwnRequest

logger = logging.getLogger(__name__)

NO_ID = UUID(int=0)
RETRY_PAUSE = 0.1
"""Seconds between two attempts to look up the id."""
LAG_LIMIT = 20.0
"""Seconds for which a leader may still return a previous id, since its metadata lags behind."""


class TopicIds:
    """Looks up a topic's id at the leaders of its partitions.

    A leader knows a new topic's id before it serves fetches from it. So if it still returns the old id after
    a fetch, the fetched records came from the old topic.

    Args:
        config: the connection.
        topic: the topic's name.
    """

    def __init__(self, config: Config, topic: str) -> None:
        self._config = config
        self._topic = topic
        self._client: AIOKafkaClient | None = None
        self._has_ids = True
        self._previous: set[bytes] = set()
        self._current = b""

    async def start(self) -> None:
        """Connect."""
        self._client = new_client(self._config)
        await self._client.bootstrap()
        await self._client.set_topics([self._topic])

    async def stop(self) -> None:
        """Disconnect."""
        if self._client is not None:
            await self._client.close()

    async def current(self, partitions: Iterable[int]) -> bytes:
        """Return the topic's id once the leaders of the given partitions agree on it.

        Waits while a leader is down, the topic does not exist or a leader still returns a previous id.

        Returns:
            the 16 bytes of the id; empty if the brokers have no topic ids (before Kafka 2.8).

        Raises:
            TopicError: all leaders return a previous id for longer than brokers lag behind.
        """
        numbers, now = list(partitions), asyncio.get_running_loop().time
        lags_since: float | None = None
        while self._has_ids:
            answers = set(await asyncio.gather(*map(self._look_up, self._leaders(numbers))))
            topic_id = answers.pop() if len(answers) == 1 else None
            if topic_id and topic_id not in self._previous:
                if self._current not in (b"", topic_id):
                    self._previous.add(self._current)
                self._current = topic_id
                return topic_id
            if topic_id is None:
                lags_since = None
            elif lags_since is None:
                lags_since = now()
            elif now() - lags_since > LAG_LIMIT:
                raise TopicError(
                    f"{self._topic}: its leaders have returned an earlier id for {LAG_LIMIT:g} s; the later "
                    "one was that of a deleted topic, from a broker that lagged behind: start again"
                )
            if self._has_ids:
                await asyncio.sleep(RETRY_PAUSE)
            else:
                logger.warning(
                    "%s: the brokers have no topic ids (Kafka 2.8); recreate it only when nobody lags",
                    self._topic,
                )
        return b""

    def _leaders(self, partitions: list[int]) -> set[int | None]:
        client = self._connected
        leaders = {
            client.cluster.leader_for_partition(TopicPartition(self._topic, number)) for number in partitions
        }
        if leaders & {None, -1}:
            client.force_metadata_update()
        return leaders or {client.get_random_node()}

    async def _look_up(self, node: int | None) -> bytes | None:
        """Return the id that a broker knows; None if it does not return one now."""
        if node in (None, -1):
            return None
        try:
            response = await self._connected.send(
                node, _TopicRequest([(NO_ID, self._topic, {})], False, False, {})
            )
        except IncompatibleBrokerVersion:
            self._has_ids = False
            return None
        except KafkaError:
            self._connected.force_metadata_update()
            return None
        error, topic_id = response.topic
        if error:
            return None
        self._has_ids = topic_id != NO_ID
        return topic_id.bytes if self._has_ids else None

    @property
    def _connected(self) -> AIOKafkaClient:
        if self._client is None:
            raise RuntimeError("not connected: call start() first")
        return self._client


class _Uuid(AbstractType[UUID]):  # type: ignore[misc]  # aiokafka is untyped
    @classmethod
    def encode(cls, value: UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> UUID:
        return UUID(bytes=data.read(16))


class _FirstTopic(AbstractType[tuple[int, UUID]]):  # type: ignore[misc]  # aiokafka is untyped
    """The error code and the id of a response's only topic; its partitions are not decoded."""

    @classmethod
    def decode(cls, data: BytesIO) -> tuple[int, UUID]:
        if UnsignedVarInt32.decode(data) != 2:  # the compact array's length, plus one
            return -1, NO_ID
        error = Int16.decode(data)
        CompactString("utf-8").decode(data)
        return error, _Uuid.decode(data)


class _MetadataResponse_v11(Response):  # type: ignore[misc]  # noqa: N801 - aiokafka's naming
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
        ("topic", _FirstTopic),
    )


class _TopicRequest(OwnRequest, RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    NEEDS = "topic ids need Kafka 2.8 or later"
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
