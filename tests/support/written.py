"""Topics on brokers in memory, with the records that a test has written, and their reader."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka.structs import ConsumerRecord

from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.testing import Clients, SimTopic, new_cluster


class Written:
    """Topics of one partition, in the running loop."""

    def __init__(self, *topics: str, records: Iterable[ConsumerRecord] = ()) -> None:
        self._cluster = new_cluster()
        for topic in topics:
            self._cluster.create(SimTopic.new(topic, 1))
        self.reader = Clients(self._cluster).reader()
        for record in records:
            self.append(record)

    def append(self, record: ConsumerRecord) -> int:
        """Append a record to its topic, whatever its offset; return its offset there."""
        value = OutputRecord(
            record.topic, 0, record.timestamp, record.key, record.value, tuple(record.headers)
        )
        return self._cluster.topics[record.topic].logs[0].append([value], 0)
