"""The progress of partitions, which the watchdog compares."""

from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition

from knowledgepulse_worker.kafka.wire.group_offsets import GroupMetadata
from knowledgepulse_worker.stream.partition import Partition
from knowledgepulse_worker.stream.progress import Progress


@pytest.mark.parametrize("waits_for", ["a commit", "records", "an answer"])
def test_a_partition_that_comes_back_where_it_was_starts_anew(waits_for):
    """Otherwise the time before it was lost would count, and a healthy worker could end as stalled."""
    client = SimpleNamespace(
        group=GroupMetadata("group", "member", 1),
        last_stable_offset=lambda _: 9 if waits_for == "records" else None,
        last_poll_timestamp=lambda _: None,
    )
    lanes = SimpleNamespace(positions=lambda: {0: 5})
    partition = Partition(
        TopicPartition("raw", 0), is_recovered=True, fetched=8 if waits_for == "a commit" else 4
    )
    progress = Progress("raw", client, lanes, lambda: {0: partition})
    before = progress.waiting()
    assert before.keys() == {0}
    assert progress.waiting() == before

    client.group = GroupMetadata("group", "member", 2)

    assert progress.waiting()[0] != before[0]
