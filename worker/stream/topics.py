"""The topics: what they must be like, what they are, and making what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from worker.errors import TopicError
from worker.settings import KafkaSettings, TopicSettings
from worker.stream.publisher import client_arguments, unreachable

OUTPUT_HEADROOM = 1_048_576
"""How much larger than raw's the outputs' size limit is: room for headers and the score."""

LEDGER = "ledger"
"""The name of the Faust table that the ledgers are."""

MAX_MESSAGE_BYTES = "max.message.bytes"

_CREATION_TIMEOUT = 30

# Compaction works on closed segments only, so small ones keep the changelog near the ring's size.
_CHANGELOG_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True)
class Topic:
    """A topic as the broker has it."""

    name: str
    partitions: int
    max_message_bytes: int


def changelog_topic_name(group: str) -> str:
    """Return the changelog's name: Faust's convention."""
    return f"{group}-{LEDGER}-changelog"


class TopicAdmin:
    """Looks at the worker's topics and makes those that are missing.

    An asynchronous context manager: it connects on entry.
    """

    def __init__(self, kafka: KafkaSettings, topics: TopicSettings) -> None:
        self._kafka = kafka
        self._topics = topics
        self._client = AIOKafkaAdminClient(**client_arguments(kafka))

    async def __aenter__(self) -> Self:
        try:
            await self._client.start()
        except KafkaError as error:
            await self._client.close()
            raise unreachable(self._kafka, error) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.close()

    @property
    def changelog(self) -> str:
        """The changelog's name."""
        return changelog_topic_name(self._kafka.group)

    @property
    def replays(self) -> str:
        """The name of the topic that remembers which dead letters were replayed."""
        return f"{self._kafka.group}-replays"

    @property
    def outputs(self) -> tuple[str, str, str]:
        """The outputs' names."""
        return self._topics.contribute, self._topics.rejected, self._topics.dead_letter

    async def existing(self) -> dict[str, Topic]:
        """Return those of the worker's topics that are there, by name."""
        # Asked for one that is not there, a broker may make it, with settings of its own.
        names = {self._topics.raw, *self.outputs, self.changelog, self.replays}
        wanted = names & set(await self._client.list_topics())
        described = await self._client.describe_topics(sorted(wanted)) if wanted else []
        partitions = {one["topic"]: len(one["partitions"]) for one in described if one["error_code"] == 0}
        limits = await self._limits(list(partitions))
        return {name: Topic(name, partitions[name], limit) for name, limit in limits.items()}

    async def create_missing(self, partitions: int, replication_factor: int) -> list[str]:
        """Create what is missing; returns the names.

        Args:
            partitions: of a raw topic that is missing; where it is there, its own count is everybody's.
            replication_factor: of each topic made; -1 takes the broker's default.
        """
        created = []
        existing = await self.existing()
        if self._topics.raw not in existing:
            await self._create(self._topics.raw, partitions, replication_factor, {})
            created.append(self._topics.raw)
            existing = await self.existing()
        raw = existing[self._topics.raw]
        limit = {MAX_MESSAGE_BYTES: str(raw.max_message_bytes + OUTPUT_HEADROOM)}
        for name, config in {**dict.fromkeys(self.outputs, limit), self.changelog: _CHANGELOG_CONFIG}.items():
            if name not in existing:
                await self._create(name, raw.partitions, replication_factor, config)
                created.append(name)
        return created

    async def create_replays(self) -> None:
        """Create the topic that remembers replays, when it is missing."""
        if self.replays not in await self.existing():
            await self._create(self.replays, 1, -1, {"cleanup.policy": "compact"})

    async def require(self) -> dict[str, Topic]:
        """Return the topics, once they are fit to work with; the changelog is made when it is missing.

        Raises:
            TopicError: one is missing, or the changelog has not as many partitions as raw.
        """
        existing = await self.existing()
        missing = [name for name in (self._topics.raw, *self.outputs) if name not in existing]
        if missing:
            raise TopicError(f"missing: {', '.join(missing)}; `kp-worker topics` creates them")
        if self.changelog not in existing:
            await self.create_missing(existing[self._topics.raw].partitions, replication_factor=-1)
            existing = await self.existing()
        raw, changelog = existing[self._topics.raw], existing[self.changelog]
        if raw.partitions != changelog.partitions:
            raise TopicError(
                f"{changelog.name} has {changelog.partitions} partitions, {raw.name} has {raw.partitions}: "
                "each partition has a ledger of its own; delete the changelog (novelty then starts anew)"
            )
        return existing

    async def delete(self, names: list[str]) -> None:
        """Delete topics; one that is not there is no error."""
        await self._client.delete_topics(names)

    async def _limits(self, names: list[str]) -> dict[str, int]:
        if not names:
            return {}
        resources = [
            ConfigResource(ConfigResourceType.TOPIC, name, configs={MAX_MESSAGE_BYTES: ""}) for name in names
        ]
        limits = {}
        for response in await self._client.describe_configs(resources):
            for code, message, _, name, configs in response.resources:
                if code == UnknownTopicOrPartitionError.errno:
                    continue  # made a moment ago, and this broker has not heard of it yet
                if code != 0:
                    raise TopicError(f"{name}: its configuration cannot be read: {message}")
                limits[name] = int(next(value for key, value, *_ in configs if key == MAX_MESSAGE_BYTES))
        return limits

    async def _create(
        self, name: str, partitions: int, replication_factor: int, config: dict[str, str]
    ) -> None:
        # An empty assignment lets the client pass on -1, the broker's default (KIP-464).
        assignments: dict[int, list[int]] | None = {} if replication_factor == -1 else None
        topic = NewTopic(name, partitions, replication_factor, assignments, config)
        response = await self._client.create_topics([topic])
        for _, code, *rest in response.topic_errors:
            if code not in (0, TopicAlreadyExistsError.errno):
                raise TopicError(
                    f"{name} cannot be created: {for_code(code).__name__} {rest[0] if rest else ''}"
                )
        await self._wait_for(name)

    async def _wait_for(self, name: str) -> None:
        """Wait until the topic's metadata has reached the brokers that we ask."""
        try:
            async with asyncio.timeout(_CREATION_TIMEOUT):
                while name not in await self.existing():  # noqa: ASYNC110 - the protocol can only be polled
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TopicError(
                f"{name} was created, but no broker knows it after {_CREATION_TIMEOUT} s"
            ) from None


def differences(topics: dict[str, Topic], settings: TopicSettings) -> Iterator[str]:
    """Name what works, but not as it should.

    An output of another partition count gets its partition from the key; one with a smaller size limit
    turns records that it refuses into dead letters.
    """
    raw = topics[settings.raw]
    for name in (settings.contribute, settings.rejected, settings.dead_letter):
        topic = topics[name]
        if topic.partitions != raw.partitions:
            yield (
                f"{name} has {topic.partitions} partitions, {raw.name} has {raw.partitions}: "
                "the key decides the partition there"
            )
        wanted = raw.max_message_bytes + OUTPUT_HEADROOM
        if topic.max_message_bytes < wanted:
            yield (
                f"{name} has {MAX_MESSAGE_BYTES}={topic.max_message_bytes}, should have at least {wanted}: "
                "a large trace with its score may not fit"
            )
