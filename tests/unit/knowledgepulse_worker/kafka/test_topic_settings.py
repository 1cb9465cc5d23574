"""What topics accept is followed while a worker runs, and what is wrong with them is said when it appears."""

import pytest

from knowledgepulse_kafka.errors import TooLargeError, TopicError
from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.topic_limits import TopicLimits
from knowledgepulse_worker.kafka.topic_settings import follow_topics
from knowledgepulse_worker.settings import Settings
from support.topics import CHANGELOG, NAMES


@pytest.fixture
async def topics(admin, fit):
    """The topics as they were at the start, with a limit that is too low."""
    fit(NAMES.contribute, **{"max.message.bytes": "1000"})
    return await admin.require()


async def test_a_limit_that_was_raised_holds_for_the_next_output(brokers, topics):
    """Outputs were dead letters until a restart, although the log had said to raise the limit."""
    limits, output = TopicLimits(topics), OutputRecord("contribute", 0, -1, b"key", b"x" * 2000, ())
    assert isinstance(limits.problem_of(output), TooLargeError)

    brokers.configs[NAMES.contribute]["max.message.bytes"] = "5000000"
    await follow_topics(Settings(), topics)

    assert limits.problem_of(output) is None


async def test_what_is_wrong_with_a_topic_is_logged_once_when_it_appears(brokers, topics, caplog):
    """The changelog lost entries for hours, until the next start refused it."""
    brokers.configs[CHANGELOG]["cleanup.policy"] = "delete"
    for _ in range(2):
        await follow_topics(Settings(), topics)

    (message,) = caplog.messages
    assert message.startswith(f"{CHANGELOG} has cleanup.policy=delete, must have compact: ")


async def test_nothing_changes_while_no_broker_answers_or_a_topic_is_gone(brokers, topics):
    before = dict(topics)
    del brokers.partitions[NAMES.contribute]
    for known in brokers._known:
        known.discard(NAMES.contribute)

    await follow_topics(Settings(), topics)

    assert topics == before


async def test_a_changelog_that_had_too_few_partitions_and_has_grown_ends_the_worker(brokers, topics):
    brokers.partitions[CHANGELOG] = 5
    await follow_topics(Settings(), topics)  # it had enough

    brokers.partitions[NAMES.raw] = 6
    await follow_topics(Settings(), topics)
    brokers.partitions[CHANGELOG] = 6
    with pytest.raises(TopicError, match="now has 6 partitions instead of 5"):
        await follow_topics(Settings(), topics)
