"""Scored traces from topics, in memory."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from knowledgepulse_kafka.topics import Topic
from knowledgepulse_schemas.trace import trace_id_of
from knowledgepulse_worker.tools.policies import scored_topics
from knowledgepulse_worker.tools.policies.scored_topics import ScoredTopics
from knowledgepulse_worker.tools.terminal.arguments import Period
from support.scored import dead_letter
from support.written import Written


@pytest.fixture
async def topics(published_traces):
    """Return the real traces in `contribute` and `rejected`, with their offset in seconds as timestamp."""
    names = ("contribute", "rejected")
    written = Written(*names, records=published_traces)
    return written, ScoredTopics(written.reader, [Topic(name, 1, 10**6) for name in names], lambda *_: None)


async def sources(scored_topics, period=None):
    return [scored.source async for _, scored in scored_topics.read(period or Period())]


def at(second):
    return datetime.fromtimestamp(second, UTC)


async def test_reads_every_scored_record_once_and_counts_the_others(topics, published_traces):
    written, scored_topics = topics
    for record in (*published_traces[:3], replace(dead_letter(200), topic="rejected")):
        written.append(record)

    assert len(await sources(scored_topics)) == len(published_traces)
    assert (scored_topics.repeats, scored_topics.foreign) == (3, 1)


@pytest.mark.parametrize(
    ("period", "seconds"),
    [
        (Period(since=at(150)), range(150, 154)),
        (Period(until=at(3)), range(3)),
        (Period(since=at(10), until=at(12)), range(10, 12)),
        (Period(since=at(1000)), range(0)),
    ],
)
async def test_selects_a_period_by_record_timestamp(topics, period, seconds):
    assert sorted(await sources(topics[1], period)) == sorted(f"raw-traces/0/{second}" for second in seconds)


async def test_skips_a_late_record_with_an_earlier_timestamp(topics, published_traces):
    """Producers set timestamps, so records after the first match may be older."""
    written, scored_topics = topics
    written.append(late := published_traces[2])
    assert late.timestamp < 152_000

    assert sorted(await sources(scored_topics, Period(since=at(152)))) == [
        "raw-traces/0/152",
        "raw-traces/0/153",
    ]


async def test_finds_a_trace_by_the_id_that_its_redacted_copy_has_in_a_registry(topics):
    (expected,) = await topics[1].find("raw-traces/0/0")

    assert await topics[1].find(trace_id_of(expected.id)) == [expected]


@pytest.mark.slow
async def test_finds_a_trace_by_id_source_or_position(topics, published_traces):
    """Including the position of an identical copy, as of a release before 0.3.0."""
    written, scored_topics = topics
    repeat = written.append(published_traces[0])
    (expected,) = await scored_topics.find("raw-traces/0/0")

    for name in (expected.id, "rejected/0/0", f"rejected/0/{repeat}"):
        assert await scored_topics.find(name) == [expected]
    assert await scored_topics.find("rejected/0/1000") == []


async def test_what_arrives_is_followed_after_what_is_there(topics, published_traces, monkeypatch):
    monkeypatch.setattr(scored_topics, "FOLLOW_PAUSE", 0)
    written, followed = topics
    async with aclosing(followed.follow(Period(since=at(152)))) as following:
        first = [(await anext(following)).source for _ in range(2)]
        waiting = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0)
        assert not waiting.done()
        written.append(replace(dead_letter(200), topic="rejected"))
        written.append(published_traces[153])  # a repeat
        written.append(replace(published_traces[150], timestamp=200_000))

        assert (await waiting).source == "raw-traces/0/150"
    assert sorted(first) == ["raw-traces/0/152", "raw-traces/0/153"]


async def test_a_repeat_is_known_among_the_last_traces_alone(published_traces, monkeypatch):
    """Each trace was remembered for as long as the command ran, which may be weeks."""
    monkeypatch.setattr(scored_topics, "REMEMBERED", 2)
    first, second, third, last = [record for record in published_traces if record.topic == "rejected"][:4]
    records = [first, first, second, third, first, last]
    reader = Written("rejected", records=records).reader
    followed = ScoredTopics(reader, [Topic("rejected", 1, 10**6)], lambda *_: None).follow(Period())

    async with aclosing(followed) as following:
        shown = [(await anext(following)).source for _ in range(5)]

    assert shown == [f"raw-traces/0/{record.offset}" for record in (first, second, third, first, last)]
