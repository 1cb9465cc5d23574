"""The worker's topics: their names and the settings that the worker requires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from knowledgepulse_kafka.topics import (
    CLEANUP_POLICY,
    LOG_APPEND_TIME,
    MAX_MESSAGE_BYTES,
    RETENTION_BYTES,
    RETENTION_MS,
    TIMESTAMP_AFTER_MAX_MS,
    TIMESTAMP_BEFORE_MAX_MS,
    TIMESTAMP_TYPE,
    Topic,
)
from knowledgepulse_worker.settings import TopicSettings

_UNLIMITED_MS = 2**63 - 1

OUTPUT_HEADROOM = 1_048_576
"""Bytes by which an output topic's size limit exceeds the raw topic's, for headers and the score."""

LEDGER = "ledger"
"""The part of the changelog's name that Faust takes from the table."""

LAST_RESORT_BYTES = 16_384
"""More than the size of a dead letter after key, value and headers were truncated."""

LEDGER_ENTRY_BYTES = 131_072
"""More than the size of a ledger entry: a vector takes 4 bytes per dimension, and other parts are bounded."""

# Only closed segments are compacted, so small segments keep the changelog near the novelty cache's size.
CHANGELOG_CONFIG = {
    CLEANUP_POLICY: "compact",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
    # Lets a worker with a wrong clock write entries.
    TIMESTAMP_TYPE: LOG_APPEND_TIME,
}


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


def output_config(raw: Topic) -> dict[str, str]:
    """Return the settings of a new output topic that accepts and keeps the output of every raw record."""
    config = {MAX_MESSAGE_BYTES: str(raw.max_message_bytes + OUTPUT_HEADROOM), RETENTION_MS: "-1"}
    if raw.timestamp_after_max_ms is not None:  # older brokers do not know the setting
        config[TIMESTAMP_AFTER_MAX_MS] = str(raw.timestamp_after_max_ms)
    return config


def obstacles(dead_letter: Topic, changelog: Topic | None, policies: Topic | None) -> Iterator[str]:
    """Yield the settings that would eventually stop a worker or lose ledger entries or policies.

    A topic that is None does not exist yet.
    """
    for topic, consequence in (
        (changelog, "the ledger loses entries, and novelty changes"),
        (policies, "policies are lost, and `kp-worker audit` cannot recompute their scores"),
    ):
        if topic is not None and topic.cleanup_policy not in (None, "compact"):
            yield (
                f"{topic.name} has {CLEANUP_POLICY}={topic.cleanup_policy}, must have compact: "
                f"otherwise {consequence}"
            )
    for topic, wanted, what in (
        (changelog, LEDGER_ENTRY_BYTES, "a ledger entry"),
        (dead_letter, LAST_RESORT_BYTES, "even a shortened dead letter"),
    ):
        if topic is not None and topic.max_message_bytes < wanted:
            yield (
                f"{topic.name} has {MAX_MESSAGE_BYTES}={topic.max_message_bytes}, "
                f"must have at least {wanted}: otherwise {what} may not fit"
            )


def differences(topics: Mapping[str, Topic], settings: TopicSettings) -> Iterator[str]:
    """Yield the settings that work but are not recommended, each with its consequence."""
    raw = topics[settings.raw]
    if raw.is_compacted:
        yield (
            f"{raw.name} has {CLEANUP_POLICY}={raw.cleanup_policy}: brokers remove a trace once a later one "
            "has its key, also before it is scored"
        )
    for name in (*settings.outputs, *settings.copies):
        output = topics[name]
        yield from _shape_differences(raw, output)
        yield from _timestamp_differences(raw, output)
        yield from _retention_differences(raw, output)


def _shape_differences(raw: Topic, output: Topic) -> Iterator[str]:
    if output.partitions != raw.partitions:
        yield (
            f"{output.name} has {output.partitions} partitions, {raw.name} has {raw.partitions}: "
            "the key decides an output's partition; `kafka-topics.sh --alter --partitions` adds some"
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
            f"{output.name} has {TIMESTAMP_TYPE}={LOG_APPEND_TIME}: outputs get the time of publishing, not "
            "their record's timestamp, which `kp-worker audit` reports as a difference"
        )
        return
    raw_has_own_time = raw.timestamp_type != LOG_APPEND_TIME
    limits = (
        (
            TIMESTAMP_BEFORE_MAX_MS,
            output.timestamp_before_max_ms,
            raw.timestamp_before_max_ms if raw_has_own_time else None,
        ),
        (
            TIMESTAMP_AFTER_MAX_MS,
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
        (RETENTION_MS, output.kept_ms, raw.kept_ms),
        (RETENTION_BYTES, output.kept_bytes, raw.kept_bytes),
    ):
        if kept is not None and (wanted is None or kept < wanted):
            yield (
                f"{output.name} has {setting}={kept}, {raw.name} has {-1 if wanted is None else wanted}: "
                "outputs are deleted before their raw records, and immediately if the records are old"
            )
