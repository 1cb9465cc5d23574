"""Describe, create and delete topics, and read a group's committed offsets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, cast

from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    InvalidPartitionsError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.broker_requests import require_requests
from knowledgepulse_kafka.client_factory import new_admin_client
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.connection_diagnosis import unreachable
from knowledgepulse_kafka.errors import SecurityError, TopicError
from knowledgepulse_kafka.request_hook import plain_client
from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.throttling import MUTATION_QUOTA, logged_throttle
from knowledgepulse_kafka.topics import MIN_IN_SYNC, SETTINGS, Topic, topic_of
from knowledgepulse_kafka.wait import Wait

_RETRY_PAUSE = 0.1
_CREATION_TIMEOUT = 30


class Admin:
    """Describes, creates and deletes topics, and reads a group's committed offsets.

    An asynchronous context manager: it connects on entry.

    Args:
        config: the connection.
        throttle: notes the times for which brokers throttle the client; by default, it logs them.
    """

    def __init__(self, config: Config, throttle: Throttle | None = None) -> None:
        self._config = config
        self._throttle = throttle or logged_throttle(MUTATION_QUOTA)
        self._client = new_admin_client(config, self._throttle)

    async def __aenter__(self) -> Self:
        began = time.monotonic()
        try:
            await self._client.start()
        except KafkaError as error:
            await self._client.close()
            raise await unreachable(self._config, error, began) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.close()
        if isinstance(error, KafkaError):
            raise await unreachable(self._config, error) from error

    async def require_requests(self) -> None:
        """Check that the brokers know all requests of a worker; see :func:`broker_requests.require_requests`.

        Raises:
            BrokerError: they do not.
        """
        await require_requests(plain_client(self._client), self._config)

    async def names(self) -> list[str]:
        """Return the names of all topics that the client may see."""
        return cast("list[str]", await self._client.list_topics())

    async def describe(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the topics that exist among the given names, by name."""
        wanted = set(names) & set(await self.names())
        described = await self._client.describe_topics(sorted(wanted)) if wanted else []
        replicas = {
            topic["topic"]: [len(partition["replicas"]) for partition in topic["partitions"]]
            for topic in described
            if topic["error_code"] == 0
        }
        settings = await self._settings(list(replicas))
        return {name: topic_of(name, replicas[name], config) for name, config in settings.items()}

    async def committed(self, topic: Topic) -> list[int]:
        """Return the group's committed offset in each partition of a topic; 0 where there is none.

        Raises:
            TopicError: the group's coordinator does not respond within ``Config.request_timeout``.
        """
        partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        try:
            async with asyncio.timeout(self._config.request_timeout):
                while not (offsets := await self._positions(partitions)):  # noqa: ASYNC110 - polls a broker
                    await asyncio.sleep(_RETRY_PAUSE)
        except TimeoutError:
            raise TopicError(f"{topic.name}: no coordinator for the group {self._config.group}") from None
        return [max(0, offsets[tp].offset) for tp in partitions]

    async def topics_of_group(self, topic: Topic) -> set[str]:
        """Return the existing topics in which the group has positions, of those that the client may describe.

        Args:
            topic: one of the topics; only when the group's positions in it are known, they are in all.

        Raises:
            TopicError: see :meth:`committed`.
        """
        await self.committed(topic)
        positions = await self._client.list_consumer_group_offsets(self._config.group)
        named = {place.topic for place, position in positions.items() if position.offset >= 0}
        return named.intersection(await self.names())

    async def _positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's offsets; nothing while its coordinator is elected or loads the group."""
        with suppress(GroupCoordinatorNotAvailableError):
            positions = await self._client.list_consumer_group_offsets(
                self._config.group, partitions=partitions
            )
            # The client ignores the response's error code; such a response has no partitions.
            if positions.keys() >= set(partitions):
                return cast("dict[TopicPartition, OffsetAndMetadata]", positions)
        return {}

    async def create(
        self, name: str, partitions: int, replication_factor: int, config: dict[str, str]
    ) -> Topic:
        """Create a topic unless it exists.

        Args:
            name: the topic's name.
            partitions: the partition count.
            replication_factor: the replication factor; -1 for the broker's default.
            config: the settings that differ from the broker's defaults.

        Raises:
            SecurityError: the client has no right to create it.
            TopicError: the brokers refuse to create it.
        """
        # An empty assignment makes the client send -1, the broker's default (KIP-464).
        assignments: dict[int, list[int]] | None = {} if replication_factor == -1 else None
        topic = NewTopic(name, partitions, replication_factor, assignments, config)
        response = await self._client.create_topics([topic])
        for _, code, *rest in response.topic_errors:
            if code in (TopicAuthorizationFailedError.errno, ClusterAuthorizationFailedError.errno):
                raise SecurityError(f"the brokers' ACLs do not allow: Create on topic {name}")
            if code not in (0, TopicAlreadyExistsError.errno):
                raise TopicError(
                    f"{name} cannot be created: {for_code(code).__name__} {rest[0] if rest else ''}"
                )
        return await self._wait_for(name)

    async def add_partitions(self, name: str, partitions: int) -> Topic:
        """Add partitions to a topic up to a number of them; return the topic.

        Raises:
            SecurityError: the client has no right to add partitions.
            TopicError: the brokers refuse to add them.
        """
        try:
            await self._client.create_partitions({name: NewPartitions(total_count=partitions)})
        except (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
            raise SecurityError(f"the brokers' ACLs do not allow: Alter on topic {name}") from None
        except InvalidPartitionsError:
            pass  # another client has added them meanwhile
        except KafkaError as error:
            raise TopicError(f"{name}: no partitions can be added: {error}") from error
        return await self._wait_for(name, partitions)

    async def delete(self, names: list[str]) -> None:
        """Delete topics; ignore missing ones."""
        await self._client.delete_topics(names)

    async def short_of_replicas(self, names: Collection[str]) -> list[Wait]:
        """Return what a record waits for at each topic with fewer replicas in sync than it demands.

        Topics that do not exist, or that the client may not describe, are left out.
        """
        described = [
            topic for topic in await self._client.describe_topics(sorted(names)) if topic["error_code"] == 0
        ]
        demanded = await self._settings([topic["topic"] for topic in described], [MIN_IN_SYNC])
        waits = (
            _shortage(topic["topic"], topic["partitions"], int(demanded[topic["topic"]][MIN_IN_SYNC]))
            for topic in described
            if topic["topic"] in demanded
        )
        return [wait for wait in waits if wait is not None]

    async def _settings(
        self, names: list[str], keys: Collection[str] = SETTINGS
    ) -> dict[str, dict[str, str]]:
        """Return the topics' settings that the brokers report."""
        if not names:
            return {}
        wanted = dict.fromkeys(keys, "")
        resources = [ConfigResource(ConfigResourceType.TOPIC, name, configs=wanted) for name in names]
        settings = {}
        for response in await self._client.describe_configs(resources):
            for code, message, _, name, configs in response.resources:
                if code == UnknownTopicOrPartitionError.errno:
                    continue  # just created, and not yet known to this broker
                if code != 0:
                    raise TopicError(f"{name}: its configuration cannot be read: {message}")
                settings[name] = {key: value for key, value, *_ in configs if value is not None}
        return settings

    async def _wait_for(self, name: str, partitions: int = 1) -> Topic:
        """Return a new or grown topic once a broker knows it; other brokers may not know it yet."""
        try:
            async with asyncio.timeout(self._throttle.remaining + _CREATION_TIMEOUT):
                while True:
                    topic = (await self.describe([name])).get(name)
                    if topic is not None and topic.partitions >= partitions:
                        return topic
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TopicError(
                f"{name} was created, but is unknown to the brokers after {_CREATION_TIMEOUT} s"
            ) from None


def _shortage(topic: str, partitions: Iterable[Mapping[str, Any]], demanded: int) -> Wait | None:
    """Return what a record waits for; None if each partition has enough replicas in sync."""
    # Brokers demand no more replicas than there are.
    short = {
        partition["partition"]: (len(partition["isr"]), enough)
        for partition in partitions
        if len(partition["isr"]) < (enough := min(demanded, len(partition["replicas"])))
    }
    if not short:
        return None
    place = f"{topic}/{next(iter(short))}" if len(short) == 1 else topic
    in_sync, enough = min(short.values())
    return Wait("Produce", place, problem=f"{in_sync} of {enough} replicas in sync (min.insync.replicas)")
