"""Check, when a command starts, that the brokers' ACLs grant the rights that it needs (KIP-430).

A broker hides topics that a client may not describe, and a denied operation may surface only hours after the
start.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from knowledgepulse_kafka.authorized_operations import on_group, on_topics
from knowledgepulse_kafka.client_factory import new_client
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.connection_diagnosis import unreachable
from knowledgepulse_kafka.errors import SecurityError

# https://kafka.apache.org/protocol: the bit of each operation.
_BITS = {"Read": 3, "Write": 4, "Describe": 8, "DescribeConfigs": 10}

READ, WRITE = ("Read", "DescribeConfigs"), ("Write", "DescribeConfigs")
READ_AND_WRITE = ("Read", "Write", "DescribeConfigs")
"""The operations on a topic of a client that reads it, writes to it, or both."""


@dataclass(frozen=True)
class Right:
    """An operation on a resource, both named as in ``kafka-acls``."""

    operation: str
    resource: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}"


async def require_rights(config: Config, rights: Iterable[Right]) -> None:
    """Check that the brokers grant all rights; brokers before Kafka 2.3 cannot tell and pass the check.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login or the certificate, or deny a right.
    """
    client, began = new_client(config), time.monotonic()
    try:
        await client.bootstrap()
        wanted = list(rights)
        topics = {right.name for right in wanted if right.resource == "topic"}
        allowed = await on_topics(client, sorted(topics))
        for right in wanted:
            if right.resource == "group":
                allowed |= await on_group(client, right.name)
    except KafkaError as error:
        raise await unreachable(config, error, began) from error
    finally:
        await client.close()
    # A right that the broker does not report counts as granted.
    missing = [
        right
        for right in wanted
        if not allowed.get((right.resource, right.name), -1) >> _BITS[right.operation] & 1
    ]
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


def topic_rights(operations: Iterable[str], *names: str) -> Iterator[Right]:
    """Yield the rights to operations on each of some topics."""
    for name, operation in product(names, operations):
        yield Right(operation, "topic", name)
