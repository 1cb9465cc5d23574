"""Ask a partition's leader where the epoch of a former leader ends in its log (KIP-101, KIP-320).

aiokafka has no such request. The request in this module needs Kafka 2.3.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String

from knowledgepulse_worker.kafka.wire.own_request import OwnRequest

NO_EPOCH = -1
_RETRY_PAUSE = 0.1
_CONSUMER = -1


async def epoch_end(client: AIOKafkaClient, at: TopicPartition, epoch: int) -> int | None:
    """Return the offset at which a leader epoch ends in the log of a partition's leader.

    Waits while there is no leader.

    Returns:
        the first offset of the next epoch, or the log's end if there is none; None if the leader cannot tell.
    """
    request = _EpochEndRequest(_CONSUMER, [(at.topic, [(at.partition, NO_EPOCH, epoch)])])
    while True:
        leader = client.cluster.leader_for_partition(at)
        if leader not in (None, -1):
            try:
                response = await client.send(leader, request)
            except IncompatibleBrokerVersion:
                return None
            except KafkaError:
                pass
            else:
                [(_, [(error, _, _, end)])] = response.topics
                if not error:
                    return end if end >= 0 else None
        await client.force_metadata_update()
        await asyncio.sleep(_RETRY_PAUSE)


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
