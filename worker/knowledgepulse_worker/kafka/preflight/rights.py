"""Check, when a command starts, that the brokers' ACLs grant the rights that it needs (KIP-430).

A broker hides topics that a client may not describe, and a denied operation may surface only hours after the
start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from knowledgepulse_worker.errors import SecurityError
from knowledgepulse_worker.kafka.connection import client_arguments
from knowledgepulse_worker.kafka.preflight.diagnosis import unreachable
from knowledgepulse_worker.kafka.topics import changelog_topic_name, policies_topic_name
from knowledgepulse_worker.kafka.wire.authorized_operations import on_group, on_topics
from knowledgepulse_worker.kafka.wire.metadata import never_creating
from knowledgepulse_worker.settings import KafkaSettings, Settings

# https://kafka.apache.org/protocol: the bit of each operation.
_BITS = {"Read": 3, "Write": 4, "Describe": 8, "DescribeConfigs": 10}

READ, WRITE = ("Read", "DescribeConfigs"), ("Write", "DescribeConfigs")
BOTH = ("Read", "Write", "DescribeConfigs")
"""The operations on a topic of a client that reads it, writes to it, or both."""


@dataclass(frozen=True)
class Right:
    """An operation on a resource, both named as in ``kafka-acls``."""

    operation: str
    resource: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}"


def worker_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker run`` needs.

    Only the broker can check one more: Write on the transactional ids that begin with
    :func:`worker_id_prefix`.
    """
    topics, group = settings.topics, settings.kafka.group
    yield from topic_rights(READ, topics.raw)
    yield from topic_rights(WRITE, *topics.outputs, *topics.copies)
    yield from topic_rights(BOTH, changelog_topic_name(group), policies_topic_name(group))
    yield Right("Read", "group", group)


def worker_id_prefix(group: str) -> str:
    """Return the prefix of the transactional ids of a group's workers."""
    return f"{group}-run-"


def creation_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker topics`` needs, except Create, which only the broker can check."""
    topics, group = settings.topics, settings.kafka.group
    names = (topics.raw, *topics.outputs, *topics.copies)
    own = (changelog_topic_name(group), policies_topic_name(group))
    yield from topic_rights(("Describe", "DescribeConfigs"), *names, *own)


async def require_rights(kafka: KafkaSettings, rights: Iterable[Right]) -> None:
    """Check that the brokers grant all rights; brokers before Kafka 2.3 cannot tell and pass the check.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login or the certificate, or deny a right.
    """
    client = never_creating(AIOKafkaClient(**client_arguments(kafka)))
    try:
        await client.bootstrap()
        missing = await _missing(client, list(rights))
    except KafkaError as error:
        raise await unreachable(kafka, error) from error
    finally:
        await client.close()
    if missing:
        raise missing_rights(missing)


def missing_rights(rights: Iterable[Right]) -> SecurityError:
    """Return the error for denied rights."""
    return SecurityError(f"the brokers' ACLs do not allow: {'; '.join(map(str, rights))}")


def denied_right(error: BaseException, operation: str) -> SecurityError | None:
    """Return the error for a right that a running client no longer has; None for any other error.

    Args:
        error: the client's error.
        operation: the operation on topics, Read or Write.
    """
    match error:
        case TopicAuthorizationFailedError(args=[str(topic)]):
            return missing_rights([Right(operation, "topic", topic)])
        case TopicAuthorizationFailedError(args=[set(topics) | frozenset(topics)]):
            return missing_rights(Right(operation, "topic", topic) for topic in sorted(topics))
        case GroupAuthorizationFailedError(args=[group]):
            return missing_rights([Right("Read", "group", group)])
    return None


async def _missing(client: AIOKafkaClient, rights: list[Right]) -> list[Right]:
    allowed = await on_topics(client, sorted({right.name for right in rights if right.resource == "topic"}))
    for right in rights:
        if right.resource == "group":
            allowed |= await on_group(client, right.name)
    return [
        right
        for right in rights
        # A right that the broker does not report counts as granted.
        if not allowed.get((right.resource, right.name), -1) >> _BITS[right.operation] & 1
    ]


def topic_rights(operations: Iterable[str], *names: str) -> Iterator[Right]:
    """Yield the rights to operations on each of some topics."""
    for name, operation in product(names, operations):
        yield Right(operation, "topic", name)
