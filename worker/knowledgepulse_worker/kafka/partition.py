"""The partition of a keyed record, as producers choose it."""

from __future__ import annotations

from aiokafka.partitioner import DefaultPartitioner

PARTITIONER = DefaultPartitioner()
"""Kafka's murmur2; aiokafka's default."""


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic of so many partitions."""
    numbers = list(range(partitions))
    return int(PARTITIONER(key, numbers, numbers))
