"""The worker's topics: their requirements, their actual state, and their creation."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self, cast

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.structs import OffsetAndMetadata

from worker.errors import SecurityError, TopicError
from worker.kafka.connection import client_arguments
from worker.kafka.preflight.diagnosis import unreachable
from worker.settings import AssembleSettings, KafkaSettings, TopicSettings

OUTPUT_HEADROOM = 1_048_576
"""Bytes added to the raw topic's size limit for the outputs: room for headers and the score."""

LEDGER = "ledger"
"""The ledgers' name, by which the changelog is called."""

LAST_RESORT_BYTES = 16_384
"""More than the size of a dead letter after key, value and headers were cut."""

LEDGER_ENTRY_BYTES = 131_072
"""More than the size of a ledger entry: a vector has 4 bytes per dimension; other parts are bounded."""

_RETRY_PAUSE = 0.1

LOG_APPEND_TIME = "LogAppendTime"

_UNLIMITED_MS = 2**63 - 1

MAX_MESSAGE_BYTES = "max.message.bytes"
_CLEANUP_POLICY = "cleanup.policy"
_RETENTION_MS = "retention.ms"
_RETENTION_BYTES = "retention.bytes"
_TIMESTAMP_TYPE = "message.timestamp.type"
_TIMESTAMP_BEFORE_MAX_MS = "message.timestamp.before.max.ms"
_TIMESTAMP_AFTER_MAX_MS = "message.timestamp.after.max.ms"
_SETTINGS = (
    MAX_MESSAGE_BYTES,
    _CLEANUP_POLICY,
    _RETENTION_MS,
    _RETENTION_BYTES,
    _TIMESTAMP_TYPE,
    _TIMESTAMP_BEFORE_MAX_MS,
    _TIMESTAMP_AFTER_MAX_MS,
)

_CREATION_TIMEOUT = 30

_COMPACTED = {_CLEANUP_POLICY: "compact"}

# Only closed segments are compacted, so small segments keep the changelog near the ring's size.
_CHANGELOG_CONFIG = {
    _CLEANUP_POLICY: "compact",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
    # Lets a worker with a wrong clock write entries.
    _TIMESTAMP_TYPE: LOG_APPEND_TIME,
}


@dataclass(frozen=True)
class Topic:
    """A topic's actual state.

    Attributes:
        cleanup_policy: ``compact``, ``delete`` or both; None if the broker does not report it.
        retention_ms: the age in milliseconds at which records are deleted; -1 for never.
        retention_bytes: the partition size at which the oldest records are deleted; -1 for unlimited.
        timestamp_type: ``CreateTime``, the record's own, or ``LogAppendTime``.
        timestamp_before_max_ms: how far a record's own timestamp may lie in the past; None for any.
        timestamp_after_max_ms: how far it may lie in the future; None for any.
    """

    name: str
    partitions: int
    max_message_bytes: int
    cleanup_policy: str | None = None
    retention_ms: int = -1
    retention_bytes: int = -1
    timestamp_type: str = "CreateTime"
    timestamp_before_max_ms: int | None = None
    timestamp_after_max_ms: int | None = None

    @property
    def kept_ms(self) -> int | None:
        """The age in milliseconds, by its own timestamp, at which a record is deleted; None for never."""
        deletes = self.cleanup_policy is None or "delete" in self.cleanup_policy
        return self.retention_ms if deletes and self.retention_ms >= 0 else None

    @property
    def kept_bytes(self) -> int | None:
        """The partition size at which its oldest records are deleted; None for unlimited."""
        deletes = self.cleanup_policy is None or "delete" in self.cleanup_policy
        return self.retention_bytes if deletes and self.retention_bytes >= 0 else None


def changelog_topic_name(group: str) -> str:
    """Return the changelog's name, by Faust's convention."""
    return f"{group}-{LEDGER}-changelog"


def replays_topic_name(group: str) -> str:
    """Return the name of the topic that records which dead letters were replayed."""
    return f"{group}-replays"


def evaluations_group(group: str) -> str:
    """Return the consumer group and the transactional id of ``kp-worker evaluations``."""
    return f"{group}-evaluations"


def policies_topic_name(group: str) -> str:
    """Return the name of the topic that keeps every policy that was in force."""
    return f"{group}-policies"


def assembled_topic_name(group: str) -> str:
    """Return the name of the topic that records which agent runs were published."""
    return f"{group}-assembled"


def assembly_group(group: str) -> str:
    """Return the consumer group of the assemblers."""
    return f"{group}-assemble"


class TopicAdmin:
    """Describes the worker's topics, and creates missing ones.

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
    def outputs(self) -> tuple[str, str, str]:
        """The outputs' names."""
        return self._topics.contribute, self._topics.rejected, self._topics.dead_letter

    @property
    def own(self) -> set[str]:
        """The names of all the worker's topics."""
        published = (*self.outputs, *self._topics.copies)
        return {self._topics.raw, *published, self.changelog, self.policies, self.replays}

    async def existing(self) -> dict[str, Topic]:
        """Return the worker's existing topics, by name."""
        return await self.describe(self.own)

    async def describe(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the existing ones of some topics, by name."""
        # Asked to describe a missing topic, a broker may create it with default settings.
        wanted = set(names) & set(await self._client.list_topics())
        described = await self._client.describe_topics(sorted(wanted)) if wanted else []
        partitions = {one["topic"]: len(one["partitions"]) for one in described if one["error_code"] == 0}
        settings = await self._settings(list(partitions))
        return {name: _topic(name, partitions[name], config) for name, config in settings.items()}

    async def committed(self, topic: Topic) -> list[int]:
        """Return the group's committed offset in each partition of a topic; 0 without one.

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
        """Return the group's offsets; nothing while its coordinator is being elected or loads the group."""
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
            raw = await self._create(self._topics.raw, partitions, replication_factor, {})
            created[raw.name] = raw
        published = (*self.outputs, *self._topics.copies)
        configs = dict.fromkeys(published, _output_config(raw)) | {self.changelog: _CHANGELOG_CONFIG}
        for name, config in configs.items():
            if name not in existing:
                created[name] = await self._create(name, raw.partitions, replication_factor, config)
        if self.policies not in existing:
            created[self.policies] = await self._create(self.policies, 1, replication_factor, _COMPACTED)
        return created

    async def create_replays(self) -> None:
        """Create the replays topic if it is missing."""
        if self.replays not in await self.existing():
            await self._create(self.replays, 1, -1, _COMPACTED)

    async def create_evaluations(self, partitions: int) -> None:
        """Create the topic of evaluations if it is missing."""
        name = self._topics.evaluations
        if name not in await self.describe([name]):
            await self._create(name, partitions, -1, {})

    async def require_for_assembly(self, assemble: AssembleSettings) -> dict[str, Topic]:
        """Return the topics of `kp-worker assemble`; create those of late spans and published runs.

        Raises:
            TopicError: another topic is missing, or two have the same name.
        """
        assembled = assembled_topic_name(self._kafka.group)
        needed = (self._topics.raw, self._topics.dead_letter, assemble.spans)
        names = {*self.own, assemble.spans, assemble.late, assembled}
        if len(names) < len(self.own) + 3:
            raise TopicError(
                f"assemble.spans ({assemble.spans}) and assemble.late ({assemble.late}) need names that no "
                "other topic has"
            )
        existing = await self.describe({*needed, assemble.late, assembled})
        if missing := [name for name in needed if name not in existing]:
            raise TopicError(
                f"missing: {', '.join(missing)}; `kp-worker topics` creates all but {assemble.spans}, which "
                "the Collector writes to"
            )
        spans = existing[assemble.spans]
        late_config = {MAX_MESSAGE_BYTES: str(spans.max_message_bytes + OUTPUT_HEADROOM)}
        for name, config in ((assemble.late, late_config), (assembled, _COMPACTED)):
            if name not in existing:
                existing[name] = await self._create(name, spans.partitions, -1, config)
        if existing[assembled].partitions != spans.partitions:
            raise TopicError(
                f"{assembled} has {existing[assembled].partitions} partitions, {spans.name} has "
                f"{spans.partitions}; delete {assembled} when no run is open (late spans of runs published "
                "before then start other runs)"
            )
        if existing[assembled].cleanup_policy not in (None, "compact"):
            raise TopicError(
                f"{assembled} has {_CLEANUP_POLICY}={existing[assembled].cleanup_policy}, must have compact: "
                "otherwise runs are published again"
            )
        return existing

    async def require(self) -> dict[str, Topic]:
        """Return the topics after checking them; create the changelog and the policies if they are missing.

        Raises:
            TopicError: a topic is missing, or its settings would stop the worker.
        """
        existing = await self.existing()
        needed = (self._topics.raw, *self.outputs, *self._topics.copies)
        missing = [name for name in needed if name not in existing]
        if missing:
            raise TopicError(f"missing: {', '.join(missing)}; `kp-worker topics` creates them")
        if self.changelog not in existing or self.policies not in existing:
            partitions = existing[self._topics.raw].partitions
            existing |= await self.create_missing(partitions, replication_factor=-1)
        raw, changelog = existing[self._topics.raw], existing[self.changelog]
        if raw.partitions != changelog.partitions:
            raise TopicError(
                f"{changelog.name} has {changelog.partitions} partitions, {raw.name} has {raw.partitions}: "
                "each partition needs its own ledger; delete the changelog (novelty then starts from scratch)"
            )
        dead_letter, policies = existing[self._topics.dead_letter], existing[self.policies]
        if problems := [*_obstacles(dead_letter, changelog, policies)]:
            raise TopicError("; ".join(problems))
        return existing

    async def delete(self, names: list[str]) -> None:
        """Delete topics; ignore missing ones."""
        await self._client.delete_topics(names)

    async def _settings(self, names: list[str]) -> dict[str, dict[str, str]]:
        """Return the topics' settings, as far as brokers report them."""
        if not names:
            return {}
        wanted = dict.fromkeys(_SETTINGS, "")
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

    async def _create(
        self, name: str, partitions: int, replication_factor: int, config: dict[str, str]
    ) -> Topic:
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

    async def _wait_for(self, name: str) -> Topic:
        """Return a new topic once one broker knows it; others may not yet."""
        try:
            async with asyncio.timeout(_CREATION_TIMEOUT):
                while (topic := (await self.describe([name])).get(name)) is None:  # noqa: ASYNC110 - polls
                    await asyncio.sleep(0.05)
                return topic
        except TimeoutError:
            raise TopicError(
                f"{name} was created, but is unknown to the brokers after {_CREATION_TIMEOUT} s"
            ) from None


def _topic(name: str, partitions: int, config: Mapping[str, str]) -> Topic:
    def limit(setting: str) -> int | None:
        return int(config[setting]) if setting in config else None

    return Topic(
        name,
        partitions,
        int(config[MAX_MESSAGE_BYTES]),
        cleanup_policy=config.get(_CLEANUP_POLICY),
        retention_ms=int(config.get(_RETENTION_MS, -1)),
        retention_bytes=int(config.get(_RETENTION_BYTES, -1)),
        timestamp_type=config.get(_TIMESTAMP_TYPE, "CreateTime"),
        timestamp_before_max_ms=limit(_TIMESTAMP_BEFORE_MAX_MS),
        timestamp_after_max_ms=limit(_TIMESTAMP_AFTER_MAX_MS),
    )


def _output_config(raw: Topic) -> dict[str, str]:
    """Return the settings of a new output topic, which accepts and keeps whatever raw accepts."""
    config = {MAX_MESSAGE_BYTES: str(raw.max_message_bytes + OUTPUT_HEADROOM), _RETENTION_MS: "-1"}
    if raw.timestamp_after_max_ms is not None:  # older brokers do not know the setting
        config[_TIMESTAMP_AFTER_MAX_MS] = str(raw.timestamp_after_max_ms)
    return config


def _obstacles(dead_letter: Topic, changelog: Topic, policies: Topic) -> Iterator[str]:
    """Yield the settings that would eventually stop a worker, or lose ledger entries or policies."""
    for topic, consequence in (
        (changelog, "the ledger loses entries, and novelty changes"),
        (policies, "policies are lost, and `kp-worker audit` cannot recompute their scores"),
    ):
        if topic.cleanup_policy not in (None, "compact"):
            yield (
                f"{topic.name} has {_CLEANUP_POLICY}={topic.cleanup_policy}, must have compact: "
                f"otherwise {consequence}"
            )
    for topic, wanted, what in (
        (changelog, LEDGER_ENTRY_BYTES, "a ledger entry"),
        (dead_letter, LAST_RESORT_BYTES, "even a cut dead letter"),
    ):
        if topic.max_message_bytes < wanted:
            yield (
                f"{topic.name} has {MAX_MESSAGE_BYTES}={topic.max_message_bytes}, "
                f"must have at least {wanted}: otherwise {what} may not fit"
            )


def differences(topics: Mapping[str, Topic], settings: TopicSettings) -> Iterator[str]:
    """Yield the settings that work but are not recommended, each with its consequence."""
    raw = topics[settings.raw]
    for name in (settings.contribute, settings.rejected, settings.dead_letter, *settings.copies):
        output = topics[name]
        yield from _shape_differences(raw, output)
        yield from _timestamp_differences(raw, output)
        yield from _retention_differences(raw, output)


def _shape_differences(raw: Topic, output: Topic) -> Iterator[str]:
    if output.partitions != raw.partitions:
        yield (
            f"{output.name} has {output.partitions} partitions, {raw.name} has {raw.partitions}: "
            "the key decides the partition there"
        )
    wanted = raw.max_message_bytes + OUTPUT_HEADROOM
    if output.max_message_bytes < wanted:
        yield (
            f"{output.name} has {MAX_MESSAGE_BYTES}={output.max_message_bytes}, "
            f"should have at least {wanted}: a large trace with its score may not fit"
        )


def _timestamp_differences(raw: Topic, output: Topic) -> Iterator[str]:
    if output.timestamp_type == LOG_APPEND_TIME:
        yield (
            f"{output.name} has {_TIMESTAMP_TYPE}={LOG_APPEND_TIME}: outputs get the time of publishing, not "
            "their record's timestamp, which `kp-worker audit` reports as a difference"
        )
        return
    raw_has_own_time = raw.timestamp_type != LOG_APPEND_TIME
    limits = (
        (
            _TIMESTAMP_BEFORE_MAX_MS,
            output.timestamp_before_max_ms,
            raw.timestamp_before_max_ms if raw_has_own_time else None,
        ),
        (
            _TIMESTAMP_AFTER_MAX_MS,
            output.timestamp_after_max_ms,
            raw.timestamp_after_max_ms if raw_has_own_time else 0,
        ),
    )
    for setting, taken, sent in limits:
        if taken is not None and (sent is None or taken < sent) and taken < _UNLIMITED_MS:
            yield (
                f"{output.name} has {setting}={taken}, {raw.name} "
                f"{'any' if sent is None else f'has {sent}'}: an output in between is published with the "
                "current time, and its record's timestamp in the header kp-timestamp"
            )


def _retention_differences(raw: Topic, output: Topic) -> Iterator[str]:
    if output.cleanup_policy is not None and "compact" in output.cleanup_policy:
        yield (
            f"{output.name} has {_CLEANUP_POLICY}={output.cleanup_policy}: it keeps only the last output for "
            "each key"
        )
    for setting, kept, wanted in (
        (_RETENTION_MS, output.kept_ms, raw.kept_ms),
        (_RETENTION_BYTES, output.kept_bytes, raw.kept_bytes),
    ):
        if kept is not None and (wanted is None or kept < wanted):
            yield (
                f"{output.name} has {setting}={kept}, {raw.name} has {-1 if wanted is None else wanted}: "
                "outputs are deleted before their raw records, those of old records at once"
            )
