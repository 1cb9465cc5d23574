"""The worker's topics: their names, their actual state and the settings that the worker requires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from knowledgepulse_worker.errors import TopicError
from knowledgepulse_worker.settings import TopicSettings

OUTPUT_HEADROOM = 1_048_576
"""Bytes by which an output topic's size limit exceeds the raw topic's, for headers and the score."""

LEDGER = "ledger"
"""The part of the changelog's name that Faust takes from the table."""

LAST_RESORT_BYTES = 16_384
"""More than the size of a dead letter after key, value and headers were truncated."""

LEDGER_ENTRY_BYTES = 131_072
"""More than the size of a ledger entry: a vector takes 4 bytes per dimension, and other parts are bounded."""

LOG_APPEND_TIME = "LogAppendTime"

_UNLIMITED_MS = 2**63 - 1

MAX_MESSAGE_BYTES = "max.message.bytes"
CLEANUP_POLICY = "cleanup.policy"
_RETENTION_MS = "retention.ms"
_RETENTION_BYTES = "retention.bytes"
_TIMESTAMP_TYPE = "message.timestamp.type"
_TIMESTAMP_BEFORE_MAX_MS = "message.timestamp.before.max.ms"
_TIMESTAMP_AFTER_MAX_MS = "message.timestamp.after.max.ms"
SETTINGS = (
    MAX_MESSAGE_BYTES,
    CLEANUP_POLICY,
    _RETENTION_MS,
    _RETENTION_BYTES,
    _TIMESTAMP_TYPE,
    _TIMESTAMP_BEFORE_MAX_MS,
    _TIMESTAMP_AFTER_MAX_MS,
)

COMPACTED = {CLEANUP_POLICY: "compact"}

# Only closed segments are compacted, so small segments keep the changelog near the novelty cache's size.
CHANGELOG_CONFIG = {
    CLEANUP_POLICY: "compact",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
    # Lets a worker with a wrong clock write entries.
    _TIMESTAMP_TYPE: LOG_APPEND_TIME,
}


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


def changelog_topic_name(group: str) -> str:
    """Return the changelog's name, by Faust's convention."""
    return f"{group}-{LEDGER}-changelog"


def replays_topic_name(group: str) -> str:
    """Return the name of the topic that records which dead letters were replayed."""
    return f"{group}-replays"


def policies_topic_name(group: str) -> str:
    """Return the name of the topic that keeps every policy that was in force."""
    return f"{group}-policies"


def contributions_topic_name(group: str) -> str:
    """Return the name of the topic that records the registry's answer to each contribution."""
    return f"{group}-contributions"


def topic_of(name: str, partitions: int, config: Mapping[str, str]) -> Topic:
    """Return a topic's state, with defaults for settings that the brokers do not report."""

    def limit(setting: str) -> int | None:
        return int(config[setting]) if setting in config else None

    return Topic(
        name,
        partitions,
        int(config[MAX_MESSAGE_BYTES]),
        cleanup_policy=config.get(CLEANUP_POLICY),
        retention_ms=int(config.get(_RETENTION_MS, -1)),
        retention_bytes=int(config.get(_RETENTION_BYTES, -1)),
        timestamp_type=config.get(_TIMESTAMP_TYPE, "CreateTime"),
        timestamp_before_max_ms=limit(_TIMESTAMP_BEFORE_MAX_MS),
        timestamp_after_max_ms=limit(_TIMESTAMP_AFTER_MAX_MS),
    )


def output_config(raw: Topic) -> dict[str, str]:
    """Return the settings of a new output topic that accepts and keeps the output of every raw record."""
    config = {MAX_MESSAGE_BYTES: str(raw.max_message_bytes + OUTPUT_HEADROOM), _RETENTION_MS: "-1"}
    if raw.timestamp_after_max_ms is not None:  # older brokers do not know the setting
        config[_TIMESTAMP_AFTER_MAX_MS] = str(raw.timestamp_after_max_ms)
    return config


REMEDY = "`kp-worker topics` creates them"
"""How to get missing topics."""


def missing_topics(names: Iterable[str], remedy: str = REMEDY) -> TopicError:
    """Return the error for topics that do not exist."""
    return TopicError(f"missing: {', '.join(names)}; {remedy}")


def obstacles(dead_letter: Topic, changelog: Topic, policies: Topic) -> Iterator[str]:
    """Yield the settings that would eventually stop a worker or lose ledger entries or policies."""
    for topic, consequence in (
        (changelog, "the ledger loses entries, and novelty changes"),
        (policies, "policies are lost, and `kp-worker audit` cannot recompute their scores"),
    ):
        if topic.cleanup_policy not in (None, "compact"):
            yield (
                f"{topic.name} has {CLEANUP_POLICY}={topic.cleanup_policy}, must have compact: "
                f"otherwise {consequence}"
            )
    for topic, wanted, what in (
        (changelog, LEDGER_ENTRY_BYTES, "a ledger entry"),
        (dead_letter, LAST_RESORT_BYTES, "even a shortened dead letter"),
    ):
        if topic.max_message_bytes < wanted:
            yield (
                f"{topic.name} has {MAX_MESSAGE_BYTES}={topic.max_message_bytes}, "
                f"must have at least {wanted}: otherwise {what} may not fit"
            )


def differences(topics: Mapping[str, Topic], settings: TopicSettings) -> Iterator[str]:
    """Yield the settings that work but are not recommended, each with its consequence."""
    raw = topics[settings.raw]
    for name in (*settings.outputs, *settings.copies):
        output = topics[name]
        yield from _shape_differences(raw, output)
        yield from _timestamp_differences(raw, output)
        yield from _retention_differences(raw, output)


def _shape_differences(raw: Topic, output: Topic) -> Iterator[str]:
    if output.partitions != raw.partitions:
        yield (
            f"{output.name} has {output.partitions} partitions, {raw.name} has {raw.partitions}: "
            "the key decides an output's partition"
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
    if output.is_compacted:
        yield (
            f"{output.name} has {CLEANUP_POLICY}={output.cleanup_policy}: it keeps only the last output for "
            "each key"
        )
    for setting, kept, wanted in (
        (_RETENTION_MS, output.kept_ms, raw.kept_ms),
        (_RETENTION_BYTES, output.kept_bytes, raw.kept_bytes),
    ):
        if kept is not None and (wanted is None or kept < wanted):
            yield (
                f"{output.name} has {setting}={kept}, {raw.name} has {-1 if wanted is None else wanted}: "
                "outputs are deleted before their raw records, and immediately if the records are old"
            )
