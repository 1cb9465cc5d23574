"""Ask partitions' leaders where the epochs of former leaders end in their logs (KIP-101, KIP-320).

aiokafka has no such request. The request in this module needs Kafka 2.3.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String

from knowledgepulse_kafka.own_request import OwnRequest

NO_EPOCH = -1
_RETRY_PAUSE = 0.1
_CONSUMER = -1


async def epoch_ends(
    client: AIOKafkaClient, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offsets at which leader epochs end in the logs of the partitions' leaders.

    Waits while a partition has no leader.

    Args:
        client: the client, which knows the leaders.
        epochs: an epoch for each partition.

    Returns:
        the first offset of the next epoch, or the log's end if there is none; partitions whose leader cannot
            tell are left out.
    """
    ends: dict[TopicPartition, int] = {}
    waiting = set(epochs)
    while waiting:
        for leader, led in _by_leader(client, waiting).items():
            asked = [
                (topic, [(at.partition, NO_EPOCH, epochs[at]) for at in partitions])
                for topic, partitions in groupby(led, attrgetter("topic"))
            ]
            try:
                response = await client.send(leader, _EpochEndRequest(_CONSUMER, asked))
            except IncompatibleBrokerVersion:
                return {}
            except KafkaError:
                continue
            for topic, answers in response.topics:
                for error, partition, _, end in answers:
                    if not error:
                        at = TopicPartition(topic, partition)
                        waiting.remove(at)
                        if end >= 0:
                            ends[at] = end
        if waiting:
            await client.force_metadata_update()
            await asyncio.sleep(_RETRY_PAUSE)
    return ends


def _by_leader(
    client: AIOKafkaClient, partitions: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    """Return partitions by the broker that leads them; those without a leader are left out."""
    led = defaultdict(list)
    for at in sorted(partitions):
        led[client.cluster.leader_for_partition(at)].append(at)
    return {leader: of_leader for leader, of_leader in led.items() if leader not in (None, -1)}


def _by_topic(*fields: tuple[str, Any]) -> Array:
    """Return the schema of the fields of partitions by topic."""
    return Array(("topic", String("utf-8")), ("partitions", Array(*fields)))


class _EpochEndResponse_v3(Response):  # type: ignore[misc]  # noqa: N801 - aiokafka's naming
    API_KEY = 23
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            _by_topic(
                ("error_code", Int16), ("partition", Int32), ("leader_epoch", Int32), ("end_offset", Int64)
            ),
        ),
    )


class _EpochEndRequest(OwnRequest, RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    NEEDS = "the ends of leader epochs need Kafka 2.3 or later"
    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = _EpochEndResponse_v3
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            _by_topic(("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32)),
        ),
    )
