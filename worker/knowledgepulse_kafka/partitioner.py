"""Compute the partition that producers choose for a key."""

from __future__ import annotations

from aiokafka.partitioner import DefaultPartitioner

PARTITIONER = DefaultPartitioner()
"""Kafka's murmur2 partitioner, which is aiokafka's default."""


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic with the given number of partitions."""
    numbers = list(range(partitions))
    return int(PARTITIONER(key, numbers, numbers))
