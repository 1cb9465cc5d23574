"""See whether producers agree on the partition of a key: traces are compared within a partition only."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from knowledgepulse_kafka.client_types import Place
from knowledgepulse_kafka.partitioner import partition_of
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.observe.metrics import Metrics

SAMPLED = 8
"""The key of one record in this many offsets is looked at."""
MANY_ELSEWHERE = 0.2
"""The share of keys in another partition from which on the worker's state says so."""

_LAST_KEYS = 256
_FEWEST_KEYS = 50
# The hash is computed in Python.
_LONGEST_KEY = 256


class Positions(Protocol):
    """What is known of a partition's end."""

    def highwater(self, partition: Place) -> int | None:
        """Return the partition's end, as the last fetch told it; None before."""
        ...


class KeyPlacement:
    """Compares records' partitions with those that Kafka's default partitioner (murmur2) chooses.

    Records from before the process started are left out, since the topic may have had fewer partitions.

    Args:
        partitions: the number of partitions of the raw topic.
        positions: tells the partitions' ends.
        metrics: counts the keys.
    """

    def __init__(self, partitions: int, positions: Positions, metrics: Metrics) -> None:
        self._partitions = partitions
        self._positions = positions
        self._metrics = metrics
        self._since: dict[int, int] = {}
        self._elsewhere: deque[bool] = deque(maxlen=_LAST_KEYS)

    def note(self, at: Place, records: Sequence[Record]) -> None:
        """Note the records of a fetch."""
        if (since := self._since.get(at.partition)) is None:
            if (end := self._positions.highwater(at)) is not None:
                self._since[at.partition] = end
            return
        for record in records:
            key = record.key
            if record.offset % SAMPLED or record.offset < since or key is None or len(key) > _LONGEST_KEY:
                continue
            is_elsewhere = partition_of(key, self._partitions) != at.partition
            self._elsewhere.append(is_elsewhere)
            self._metrics.stream.placed(elsewhere=is_elsewhere)

    @property
    def problem(self) -> str:
        """What is wrong with the last keys; empty if nothing is, or if there are only a few."""
        seen, elsewhere = len(self._elsewhere), sum(self._elsewhere)
        if seen < _FEWEST_KEYS or elsewhere < MANY_ELSEWHERE * seen:
            return ""
        return (
            f"{elsewhere / seen:.0%} of the last {seen} keys are not in the partition that Kafka's default "
            "partitioner (murmur2) chooses; unless all producers agree on another one, traces with the same "
            "key are compared in several partitions"
        )
