"""A partition's task: its offsets, and what is unfinished."""

import pytest

from knowledgepulse_kafka.records import Position
from knowledgepulse_worker.records.ledger_records import POSITION_KEY, encode_position
from support.lanes import idle_task

TOPIC = b"topic"


@pytest.fixture
def task():
    """Return a task that reads from offset 5 on."""
    task = idle_task()
    task.begin(5, epoch=0)
    return task


def test_what_was_fetched_is_unfinished_until_it_is_committed(task):
    assert not task.has_unfinished

    task.fetched(9, epoch=0)
    task.untaken -= 1
    assert task.has_unfinished

    task.committed = 9
    assert not task.has_unfinished


def test_what_was_fetched_is_unfinished_though_the_position_is_moved_back_since(task):
    """A lane that never gets free would not count as stalled."""
    task.fetched(9, epoch=0)
    task.committed = 9

    assert task.move_back(3) == range(3, 9)
    assert task.has_unfinished

    task.untaken -= 1
    assert not task.has_unfinished


def test_a_lag_is_unknown_until_the_ledger_is_recovered(task):
    """A partition that is not read yet would count as lagging, although its position is not known."""
    assert task.lag(9) is None

    task.is_recovered = True
    assert task.lag(9) == 4


def test_a_log_that_agrees_with_what_was_read_moves_nothing_back(task):
    assert not task.move_back(None)
    assert not task.move_back(5)
    assert task.next == 5


@pytest.mark.parametrize(("topic_id", "unread"), [(TOPIC, range(7, 9)), (b"other", range(5, 9))])
def test_skipped_offsets_before_the_position_in_the_ledger_have_outcomes(task, topic_id, unread):
    """The group's position was set back; in a recreated topic, the ledger says nothing of them."""
    task.changelog.committed(0, POSITION_KEY, encode_position(Position(7, TOPIC)))

    assert task.unread(9, topic_id) == unread


def test_nothing_is_skipped_at_the_beginning_of_a_partition(task):
    task.begin(None, epoch=-1)

    assert not task.unread(9, TOPIC)
