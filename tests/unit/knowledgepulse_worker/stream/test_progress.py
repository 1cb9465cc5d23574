"""The progress of partitions, which the watchdog compares."""

from types import SimpleNamespace

import pytest

from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_worker.stream.progress import Progress
from support.lanes import idle_task


@pytest.mark.parametrize("waits_for", ["a commit", "records", "an answer"])
def test_a_partition_that_comes_back_where_it_was_starts_anew(waits_for):
    """Otherwise the time before it was lost would count, and a healthy worker could end as stalled."""
    client = SimpleNamespace(
        group=GroupMetadata("group", "member", 1),
        last_stable_offset=lambda _: 9 if waits_for == "records" else None,
        last_poll_timestamp=lambda _: None,
    )
    task = idle_task()
    task.begin(5, epoch=0)
    task.is_recovered = True
    if waits_for == "a commit":
        task.fetched(9, epoch=0)
    source = SimpleNamespace(session=SimpleNamespace(member=client), tasks={0: task}, replaced=0)
    progress = Progress("raw", source)
    found = progress.silent if waits_for == "an answer" else progress.waiting
    before = found()
    assert before.keys() == {0}
    assert found() == before

    client.group = GroupMetadata("group", "member", 2)

    assert found()[0] != before[0]


@pytest.mark.parametrize("waits_for_commit", [True, False])
def test_another_partitions_refused_records_are_progress_for_one_that_waits_for_its_commit(waits_for_commit):
    """Each of them takes another transaction; a record that hangs in its own lane has no progress by them."""
    client = SimpleNamespace(group=GroupMetadata("group", "member", 1), last_stable_offset=lambda _: None)
    task = idle_task()
    task.begin(5, epoch=0)
    task.is_recovered = True
    task.lane = SimpleNamespace(in_flight=SimpleNamespace(records=1), waits_for_commit=waits_for_commit)
    source = SimpleNamespace(session=SimpleNamespace(member=client), tasks={0: task}, replaced=0)
    progress = Progress("raw", source)
    before = progress.waiting()

    source.replaced = 1

    assert (progress.waiting() != before) == waits_for_commit
