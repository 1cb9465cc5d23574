"""Describe the worker's topics, and create missing ones."""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self, cast

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
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

from knowledgepulse_worker.errors import SecurityError, TopicError
from knowledgepulse_worker.kafka.connection import client_arguments
from knowledgepulse_worker.kafka.preflight.diagnosis import unreachable
from knowledgepulse_worker.kafka.topics import (
    CHANGELOG_CONFIG,
    COMPACTED,
    REMEDY,
    SETTINGS,
    Topic,
    changelog_topic_name,
    missing_topics,
    obstacles,
    output_config,
    policies_topic_name,
    replays_topic_name,
    topic_of,
)
from knowledgepulse_worker.kafka.wire.metadata import never_creating
from knowledgepulse_worker.kafka.wire.throttling import MUTATION_QUOTA, logged_throttle, waiting_out
from knowledgepulse_worker.settings import KafkaSettings, TopicSettings

logger = logging.getLogger(__name__)

_RETRY_PAUSE = 0.1
_CREATION_TIMEOUT = 30


class TopicAdmin:
    """Describes the worker's topics, and creates missing ones.

    An asynchronous context manager: it connects on entry.
    """

    def __init__(self, kafka: KafkaSettings, topics: TopicSettings) -> None:
        self._kafka = kafka
        self._topics = topics
        self._throttle = logged_throttle(MUTATION_QUOTA)
        client = AIOKafkaAdminClient(**client_arguments(kafka))
        self._client = waiting_out(never_creating(client), self._throttle)

    async def __aenter__(self) -> Self:
        try:
            await self._client.start()
        except KafkaError as error:
            await self._client.close()
            raise await unreachable(self._kafka, error) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.close()
        if isinstance(error, KafkaError):
            raise await unreachable(self._kafka, error) from error

    @property
    def changelog(self) -> str:
        """The changelog's name."""
        return changelog_topic_name(self._kafka.group)

    @property
    def replays(self) -> str:
        """The name of the topic that records which dead letters were replayed."""
        return replays_topic_name(self._kafka.group)

    @property
    def policies(self) -> str:
        """The name of the topic that keeps every policy that was in force."""
        return policies_topic_name(self._kafka.group)

    @property
    def own(self) -> set[str]:
        """The names of all the worker's topics."""
        published = (*self._topics.outputs, *self._topics.copies)
        return {self._topics.raw, *published, self.changelog, self.policies, self.replays}

    async def existing(self, *needed: str) -> dict[str, Topic]:
        """Return the worker's existing topics, by name.

        Raises:
            TopicError: a needed one is missing.
        """
        return _with(needed, await self.describe(self.own))

    async def required(self, names: Collection[str], remedy: str = REMEDY) -> dict[str, Topic]:
        """Return topics by name.

        Raises:
            TopicError: one is missing; the text ends with the remedy.
        """
        return _with(names, await self.describe(names), remedy)

    async def require_existing(self, name: str) -> None:
        """Check that a topic exists; unlike producing to it, this never creates it.

        Raises:
            TopicError: it does not; names the nearest one that does.
        """
        names = await self._client.list_topics()
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise TopicError(f"the topic {name} does not exist; {hint}`kp-worker topics` creates it")

    async def describe(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the topics that exist among the given names, by name."""
        wanted = set(names) & set(await self._client.list_topics())
        described = await self._client.describe_topics(sorted(wanted)) if wanted else []
        partitions = {one["topic"]: len(one["partitions"]) for one in described if one["error_code"] == 0}
        settings = await self._settings(list(partitions))
        return {name: topic_of(name, partitions[name], config) for name, config in settings.items()}

    async def committed(self, topic: Topic) -> list[int]:
        """Return the group's committed offset in each partition of a topic; 0 where there is none.

        Raises:
            TopicError: the group's coordinator does not respond within ``kafka.request_timeout``.
        """
        partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        try:
            async with asyncio.timeout(self._kafka.request_timeout):
                while not (offsets := await self._positions(partitions)):  # noqa: ASYNC110 - polls a broker
                    await asyncio.sleep(_RETRY_PAUSE)
        except TimeoutError:
            raise TopicError(f"{topic.name}: no coordinator for the group {self._kafka.group}") from None
        return [max(0, offsets[tp].offset) for tp in partitions]

    async def _positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's offsets; nothing while its coordinator is elected or loads the group."""
        with suppress(GroupCoordinatorNotAvailableError):
            positions = await self._client.list_consumer_group_offsets(
                self._kafka.group, partitions=partitions
            )
            # The client ignores the response's error code; such a response has no partitions.
            if positions.keys() >= set(partitions):
                return cast("dict[TopicPartition, OffsetAndMetadata]", positions)
        return {}

    async def create_missing(self, partitions: int, replication_factor: int) -> dict[str, Topic]:
        """Create the missing topics; return them by name.

        Output topics keep records forever: outputs carry the timestamp of their raw record, so a topic with
        retention by age would delete the output of an old record as soon as it is published.

        Args:
            partitions: the partition count of a missing raw topic. Outputs and changelog follow the raw
                topic's, and the policies need only one.
            replication_factor: the replication factor of new topics; -1 for the broker's default.
        """
        existing = await self.existing()
        created: dict[str, Topic] = {}
        raw = existing.get(self._topics.raw)
        if raw is None:
            raw = await self.create(self._topics.raw, partitions, replication_factor, {})
            created[raw.name] = raw
        published = (*self._topics.outputs, *self._topics.copies)
        configs = dict.fromkeys(published, output_config(raw)) | {self.changelog: CHANGELOG_CONFIG}
        for name, config in configs.items():
            if name not in existing:
                created[name] = await self.create(name, raw.partitions, replication_factor, config)
        if self.policies not in existing:
            created[self.policies] = await self.create(self.policies, 1, replication_factor, COMPACTED)
        return created

    async def create_if_missing(self, name: str, partitions: int, config: dict[str, str]) -> None:
        """Create a topic if it is missing; only then is the right to create topics needed.

        See :meth:`create`.
        """
        if name not in await self.describe([name]):
            await self.create(name, partitions, -1, config)

    async def grow_changelog(self, topics: Mapping[str, Topic]) -> Topic:
        """Add partitions to the changelog if the raw topic has more; return the changelog.

        Args:
            topics: the existing topics, with these two.

        Raises:
            SecurityError: the client has no right to add partitions.
            TopicError: the brokers refuse to add them.
        """
        raw, changelog = topics[self._topics.raw], topics[self.changelog]
        if changelog.partitions >= raw.partitions:
            return changelog
        try:
            await self._client.create_partitions({changelog.name: NewPartitions(total_count=raw.partitions)})
        except (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
            raise SecurityError(f"the brokers' ACLs do not allow: Alter on topic {changelog.name}") from None
        except InvalidPartitionsError:
            pass  # another worker has added them meanwhile
        except KafkaError as error:
            raise TopicError(f"{changelog.name}: no partitions can be added: {error}") from error
        logger.warning(
            "%s now has %d partitions instead of %d, like %s",
            *(changelog.name, raw.partitions, changelog.partitions, raw.name),
        )
        return await self._wait_for(changelog.name, raw.partitions)

    async def require(self) -> dict[str, Topic]:
        """Check and return the topics; create the changelog and the topic of policies if they are missing.

        If the raw topic has more partitions than the changelog, so does the changelog afterwards, or the log
        says what to do. Partitions without a ledger are not read.

        Raises:
            TopicError: a topic is missing, or its settings would stop the worker.
        """
        existing = await self.existing(self._topics.raw, *self._topics.outputs, *self._topics.copies)
        if self.changelog not in existing or self.policies not in existing:
            partitions = existing[self._topics.raw].partitions
            existing |= await self.create_missing(partitions, replication_factor=-1)
        raw, changelog = existing[self._topics.raw], existing[self.changelog]
        dead_letter, policies = existing[self._topics.dead_letter], existing[self.policies]
        if problems := [*obstacles(dead_letter, changelog, policies)]:
            raise TopicError("; ".join(problems))
        try:
            existing[changelog.name] = await self.grow_changelog(existing)
        except SecurityError as error:
            logger.warning(
                "%s has %d partitions and %s has %d, so records of the others are not read: %s; "
                "`kp-worker topics` adds them for a user who may",
                *(changelog.name, changelog.partitions, raw.name, raw.partitions, error),
            )
        return existing

    async def delete(self, names: list[str]) -> None:
        """Delete topics; ignore missing ones."""
        await self._client.delete_topics(names)

    async def _settings(self, names: list[str]) -> dict[str, dict[str, str]]:
        """Return the topics' settings that the brokers report."""
        if not names:
            return {}
        wanted = dict.fromkeys(SETTINGS, "")
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


def _with(needed: Iterable[str], topics: Mapping[str, Topic], remedy: str = REMEDY) -> dict[str, Topic]:
    if missing := [name for name in needed if name not in topics]:
        raise missing_topics(missing, remedy)
    return dict(topics)
