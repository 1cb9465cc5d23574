"""Pulled traces on the raw topic: what is recorded and published, in which order, and what is too large."""

from __future__ import annotations

import pytest

from knowledgepulse_kafka.commit_outcome import Committed, Throttled
from knowledgepulse_kafka.errors import DeliveryError
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord
from knowledgepulse_kafka.topic_limits import TopicLimits
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.tools.backends.topic_output import TopicOutput
from support.traces import made


class APublisher:
    """Keeps the records of committed transactions; fails as it is told to."""

    def __init__(self, *failures):
        self.committed = []
        self._failures = list(failures)

    async def commit(self, records, _positions):
        match self._failures.pop(0) if self._failures else None:
            case Throttled() as throttled:
                return throttled
            case DeliveryError() as error:
                raise error
        self.committed.append(records)
        return Committed([])


def trace(words=1):
    return made(steps=[{"type": "thought", "content": "one " * words}])


@pytest.fixture
def refused():
    return []


@pytest.fixture
def output(refused):
    def make(publisher, mark=7):
        raw = Topic("raw", 2, 2000)
        return TopicOutput(
            publisher,
            TopicLimits({"raw": raw}),
            "raw",
            lambda mark: OutputRecord("pulls", 0, NO_TIMESTAMP, b"state", b"%d" % mark, ()),
            mark,
            "id",
            lambda trace_id, problem: refused.append((trace_id, problem)),
        )

    return make


async def test_a_page_is_recorded_before_it_is_published_with_its_number(output):
    publisher, marks = APublisher(), []
    first, other = trace(), trace()
    pulled = output(publisher)

    def take(mark):
        assert publisher.committed == []
        marks.append(mark)

    await pulled.write([first, other], take)

    (records,) = publisher.committed
    assert [(record.topic, record.key) for record in records] == [
        ("raw", first.id.encode()),
        ("raw", other.id.encode()),
        ("pulls", b"state"),
    ]
    assert (marks, pulled.mark, records[-1].value) == ([8], 8, b"8")


async def test_a_trace_that_is_too_large_is_named_and_the_others_are_published(output, refused):
    publisher, large, small = APublisher(), trace(1000), trace()

    await output(publisher).write([large, small], lambda mark: None)

    ((name, problem),) = refused
    assert (name, problem.startswith("raw: ")) == (large.id, True)
    assert problem.endswith(" bytes exceed max.message.bytes=2000")
    assert [record.key for record in publisher.committed[0]] == [small.id.encode(), b"state"]


async def test_a_transaction_that_a_quota_holds_back_is_repeated(output):
    publisher = APublisher(Throttled("a quota"), Throttled("a quota"))
    pulled = output(publisher)

    await pulled.write([trace()], lambda mark: None)

    assert (len(publisher.committed), pulled.mark) == (1, 8)


async def test_a_transaction_that_was_not_confirmed_ends_the_pull_with_the_page_recorded(output):
    publisher, marks = APublisher(DeliveryError("not confirmed")), []
    pulled = output(publisher)

    with pytest.raises(DeliveryError):
        await pulled.write([trace()], marks.append)

    assert (marks, pulled.mark) == ([8], 7)
