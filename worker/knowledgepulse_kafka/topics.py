"""A topic's actual state, as the brokers describe it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from aiokafka.protocol.metadata import MetadataRequest

from knowledgepulse_kafka.errors import TopicError

LOG_APPEND_TIME = "LogAppendTime"

MAX_MESSAGE_BYTES = "max.message.bytes"
CLEANUP_POLICY = "cleanup.policy"
RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
TIMESTAMP_TYPE = "message.timestamp.type"
TIMESTAMP_BEFORE_MAX_MS = "message.timestamp.before.max.ms"
TIMESTAMP_AFTER_MAX_MS = "message.timestamp.after.max.ms"
MIN_IN_SYNC = "min.insync.replicas"
SETTINGS = (
    MAX_MESSAGE_BYTES,
    CLEANUP_POLICY,
    RETENTION_MS,
    RETENTION_BYTES,
    TIMESTAMP_TYPE,
    TIMESTAMP_BEFORE_MAX_MS,
    TIMESTAMP_AFTER_MAX_MS,
)
"""The settings that a :class:`Topic` has."""

COMPACTED = {CLEANUP_POLICY: "compact"}


@dataclass(frozen=True)
class Topic:
    """A topic's actual state.

    Attributes:
        name: the topic's name.
        partitions: the number of partitions.
        max_message_bytes: the size limit of a record batch.
        cleanup_policy: ``compact``, ``delete`` or both; None if the broker does not report it.
        retention_ms: the age in milliseconds at which records are deleted; -1 for never.
        retention_bytes: the partition size at which the oldest records are deleted; -1 for unlimited.
        timestamp_type: ``CreateTime`` for timestamps from producers, ``LogAppendTime`` for the broker's.
        timestamp_before_max_ms: how far a producer's timestamp may lie in the past; None if unlimited.
        timestamp_after_max_ms: how far a producer's timestamp may lie in the future; None if unlimited.
        replicas: the number of replicas of the partition that has the fewest.
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
    replicas: int = 1

    @property
    def kept_ms(self) -> int | None:
        """The age in milliseconds, by its own timestamp, at which a record is deleted; None for never."""
        return self.retention_ms if self._deletes and self.retention_ms >= 0 else None

    @property
    def kept_bytes(self) -> int | None:
        """The partition size at which its oldest records are deleted; None for unlimited."""
        return self.retention_bytes if self._deletes and self.retention_bytes >= 0 else None

    @property
    def is_compacted(self) -> bool:
        """Whether only the last record of each key is kept, so that every record needs a key."""
        return self.cleanup_policy is not None and "compact" in self.cleanup_policy

    @property
    def _deletes(self) -> bool:
        return self.cleanup_policy is None or "delete" in self.cleanup_policy


def topic_of(name: str, replicas: Sequence[int], config: Mapping[str, str]) -> Topic:
    """Return a topic's state, with defaults for settings that the brokers do not report.

    Args:
        name: the topic's name.
        replicas: the number of replicas of each partition.
        config: its settings.
    """

    def limit(setting: str) -> int | None:
        return int(config[setting]) if setting in config else None

    return Topic(
        name,
        len(replicas),
        int(config[MAX_MESSAGE_BYTES]),
        cleanup_policy=config.get(CLEANUP_POLICY),
        retention_ms=int(config.get(RETENTION_MS, -1)),
        retention_bytes=int(config.get(RETENTION_BYTES, -1)),
        timestamp_type=config.get(TIMESTAMP_TYPE, "CreateTime"),
        timestamp_before_max_ms=limit(TIMESTAMP_BEFORE_MAX_MS),
        timestamp_after_max_ms=limit(TIMESTAMP_AFTER_MAX_MS),
        replicas=min(replicas),
    )


_GONE = (UnknownTopicOrPartitionError.errno, TopicAuthorizationFailedError.errno)


async def gone(client: AIOKafkaClient, names: Collection[str]) -> list[str]:
    """Return those of some topics that do not exist for this client, as a broker says; none if none answers.

    That a client's metadata have no topic does not tell: it is left out after any error. A topic that may not
    be described any more has no partitions either, and stays away: a new process names the missing right.
    """
    node = client.get_random_node()
    if names and node is not None:
        with suppress(KafkaError):
            answer = await client.send(node, MetadataRequest(list(names)))
            return [name for code, name, *_ in answer.topics if code in _GONE]
    return []


def missing_topics(names: Iterable[str], remedy: str = "") -> TopicError:
    """Return the error for topics that do not exist; its text ends with the remedy."""
    missing = f"missing: {', '.join(names)}"
    return TopicError(f"{missing}; {remedy}" if remedy else missing)
