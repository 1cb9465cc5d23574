"""The transactions of an assembler's partition: what a reader makes of the topic."""

import pytest

from knowledgepulse_kafka.commit_outcome import Committed, Rebalanced, Refused, Throttled
from knowledgepulse_kafka.errors import LostPartitionsError, RefusedError
from knowledgepulse_kafka.records import Position
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.assemble.transaction_log import POSITION, AssemblyLog, AssemblyStep
from support.written import Written


def written_log():
    """Return an assembler's log, and its topic."""
    log = AssemblyLog(Settings(), 0, new_reader=lambda *_: topic.reader)
    topic = Written(log._topic)
    return log, topic


async def test_a_foreign_record_does_not_stop_an_assembler(caplog):
    """Each is skipped, and they are logged once with their number."""
    log, topic = written_log()
    marks = ((b"a", b"3"), (None, b"1"), (b"b", b"x"), (POSITION, b"7"), (b"\xff", b"1"), (POSITION, None))
    for key, value in marks:
        topic.append(Record(log._topic, 0, 0, 0, 0, key, value, None, 0, 0, ()))

    state = await log.read()

    assert (state.position, state.published) == (7, {"a": 3})
    assert caplog.messages == [
        f"{log._topic}: foreign records skipped: 4, such as offset 1 (not a mark of an assembler)"
    ]


class ASession:
    """A session whose commits end as they are told."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.committed = []

    async def commit(self, records, positions):
        self.committed.append(([(record.key, record.value) for record in records], positions))
        return self.outcomes.pop(0)


STEP = AssemblyStep(published={"a": 3}, position=5, restart_offset=2)


async def test_a_step_is_committed_with_its_restart_offset_and_again_after_a_quota():
    session = ASession(Throttled("a quota"), Committed([0]))

    await AssemblyLog(Settings(), 1).publish(session, STEP)

    records = [(b"a", b"3"), (POSITION, b"5")]
    assert session.committed == 2 * [(records, {(Settings().assemble.spans, 1): Position(2)})]


@pytest.mark.parametrize(
    ("outcome", "error"), [(Rebalanced(), LostPartitionsError), (Refused(RefusedError()), RefusedError)]
)
async def test_a_step_that_is_not_committed_is_an_error(outcome, error):
    with pytest.raises(error):
        await AssemblyLog(Settings(), 1).publish(ASession(outcome), STEP)
