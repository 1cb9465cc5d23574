"""Listing, showing and replaying dead letters on real Kafka."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from aiokafka import AIOKafkaProducer

from knowledgepulse_kafka.errors import DeliveryError, TopicError
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_kafka.topics import COMPACTED
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.lane.record_scorer import failed_entry
from knowledgepulse_worker.records.ledger_records import Failure
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.tools.dead_letters.letter import DeadLetter
from knowledgepulse_worker.tools.dead_letters.replay import RawTopic
from support.commands import invoked
from support.streams import Message, headers_of

pytestmark = pytest.mark.integration

HEADERS = [("traceparent", b"00-1-2-01"), ("a", None), ("a", b"\x1b[31m"), ("kp-reason", b"mine"), ("a", b"")]


@pytest.fixture
def dead_letters(config):
    """Run a command of `kp-worker dead-letters` and return its result."""

    return lambda stream, *arguments: invoked("dead-letters", *arguments, "--config", config(stream.settings))


def lines(result):
    """Return the output of a successful command."""
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


async def bury(stream, count):
    """Publish dead letters of unpublished records, in the worker's form."""
    topics = stream.settings.topics
    outputs = Outputs(topics, dict.fromkeys(topics.model_dump().values(), 2))
    failure = Failure("not_json", "InvalidRecordError", "invalid character")
    async with AIOKafkaProducer(bootstrap_servers=stream.settings.kafka.bootstrap_servers) as producer:
        sent = []
        for number in range(count):
            raw = RawRecord(topics.raw, number % 2, 1000 + number, 1, b"%d" % number, b"no trace", ())
            letter = outputs.build(raw, failed_entry(raw, failure))
            sent.append(
                await producer.send(
                    letter.topic,
                    letter.value,
                    key=letter.key,
                    partition=letter.partition,
                    headers=list(letter.headers),
                )
            )
        await asyncio.gather(*sent)
    return [DeadLetter.read(record) for record in await stream.read(topics.dead_letter)]


async def test_a_letter_that_keeps_failing_is_replayed_up_to_max_attempts(make_stream, dead_letters):
    """Every replay keeps key, value, partition and headers, sets the time and counts the attempt."""
    stream = await make_stream(2)
    topics = stream.settings.topics
    now = time.time_ns() // 10**6
    bad = {"timestamp_ms": now - 3_600_000, "headers": HEADERS}
    await stream.publish(
        [
            Message(b"no trace", b"k", partition=1, **bad),
            Message(None, b"empty", partition=0),
            Message(b"\xff\x00", None, partition=1, **bad),
        ]
    )
    async with stream.worker() as worker:
        await worker.published(3)
        for attempt in (1, 2, 3):
            result = await dead_letters(stream, "replay")
            assert "\n".join(lines(result)).count(f", attempt {attempt}") == 2
            assert f"2 replayed to {topics.raw}\n" in result.stderr
            await worker.published(3 + 2 * attempt)
        result = await dead_letters(stream, "replay")
        assert await worker.stop() == 0

    assert [line.partition(" skipped: ")[2] for line in lines(result)] == [
        "it has no value and would become a dead letter again",
        "already replayed --max-attempts times",
        "already replayed --max-attempts times",
    ]
    assert f"0 replayed to {topics.raw}\n" in result.stderr
    assert "9 skipped: 6 replayed before, 2 too many attempts, 1 empty\n" in result.stderr
    raw = [record for record in await stream.read(topics.raw) if record.key != b"empty"]
    assert [record.partition for record in raw] == [1] * 8
    assert [record.timestamp < now for record in raw] == [True] * 2 + [False] * 6
    assert [(record.key, record.value) for record in raw] == [(b"k", b"no trace"), (None, b"\xff\x00")] * 4
    attempts = [[], *[[("kp-attempt", number)] for number in (b"1", b"2", b"3")]]
    assert [list(record.headers) for record in raw] == [
        [*HEADERS, *own] for own in attempts for _ in range(2)
    ]


async def test_a_replayed_record_is_scored_once_the_cause_is_fixed(make_stream, dead_letters, real_traces):
    """The main use of replays: a limit was too low and has been raised."""
    stream = await make_stream(1, limits={"trace_bytes": 1024})
    topics = stream.settings.topics
    await stream.publish([Message(real_traces[0], b"k", headers=HEADERS), Message(b"no trace")])
    async with stream.worker() as worker:
        await worker.published(2)
        assert await worker.stop() == 0

    result = await dead_letters(stream, "replay", "--reason", "too_large")
    assert lines(result) == [f"0/0 replayed to {topics.raw}/0/2, attempt 1"]
    async with stream.worker(stream.configured(limits={"trace_bytes": 1_048_576})) as worker:
        await worker.published(1)
        assert await worker.stop() == 0

    (scored,) = await stream.read(topics.rejected)
    assert scored.headers[: len(HEADERS) + 1] == (*HEADERS, ("kp-attempt", b"1"))
    assert headers_of(scored)["kp-source"] == f"{topics.raw}/0/2"
    listed = [json.loads(line) for line in lines(await dead_letters(stream, "list", "--json"))]
    assert [letter["replayed_to"] for letter in listed] == [f"{topics.raw}/0/2", None]


async def test_lists_dead_letters(make_stream, dead_letters):
    stream = await make_stream(2)
    letters = await bury(stream, 4)
    topic = stream.settings.topics.dead_letter
    await stream.write(topic, b"not ours")

    result = await dead_letters(stream, "list")
    head, *rows = lines(result)
    assert head.split()[:3] == ["LOCATION", "TIME", "REASON"]
    assert [row.split()[0] for row in rows] == ["0/0", "0/1", "1/0", "1/1"]
    assert "4 dead letters: 4 not_json\n" in result.stderr
    assert f"skipped 1 record of {topic}, which no worker wrote\n" in result.stderr

    chosen = ("--source", letters[3].record.source, "--since", "1h", "--until", "2100-01-01")
    (letter,) = map(json.loads, lines(await dead_letters(stream, "list", "--json", *chosen)))
    assert (letter["partition"], letter["offset"]) == (1, 1)
    assert lines(await dead_letters(stream, "list", "--json", "--until", "1h")) == []
    assert lines(await dead_letters(stream, "list", "--json", "--since", "2100-01-01")) == []


async def test_shows_a_whole_dead_letter_with_control_characters_escaped(make_stream, dead_letters):
    stream = await make_stream(1)
    await bury(stream, 1)
    topic = stream.settings.topics.dead_letter
    hostile = b"\x1b[2J\r\n\xff"
    await stream.write(topic, hostile)

    shown = lines(await dead_letters(stream, "show", "0/0"))
    assert shown[0] == f"location: {topic}/0/0"
    assert "  kp-reason: not_json" in shown
    assert shown[-2:] == ["value: 8 bytes", "no trace"]
    assert lines(await dead_letters(stream, "show", "0/1"))[-2:] == [r"\x1b[2J\r", r"\xff"]
    assert (await dead_letters(stream, "show", "0/1", "--raw")).stdout_bytes == hostile
    for location, message in {
        "0/2": f"{topic} has no record 0/2; offsets in this partition: 0 to 1",
        "1/0": f"{topic} has no partition 1, only 0 to 0",
    }.items():
        error = (await dead_letters(stream, "show", location)).exception
        assert isinstance(error, TopicError)
        assert str(error) == message


async def test_a_dry_run_reports_and_publishes_nothing(make_stream, dead_letters):
    stream = await make_stream(2)
    await bury(stream, 3)

    result = await dead_letters(stream, "replay", "--dry-run")

    raw = stream.settings.topics.raw
    assert lines(result) == [
        f"0/0 would be replayed to {raw}/0, attempt 1",
        f"0/1 would be replayed to {raw}/0, attempt 1",
        f"1/0 would be replayed to {raw}/1, attempt 1",
    ]
    assert result.stderr == f"3 would be replayed to {raw}\n"
    assert await stream.read(raw) == []
    async with TopicAdmin(stream.settings.kafka, stream.settings.topics) as admin:
        assert admin.replays not in await admin.existing()


async def test_a_killed_and_restarted_replay_publishes_each_letter_once(make_stream, dead_letters):
    stream = await make_stream(2)
    letters = await bury(stream, 3000)
    await stream.killed(lambda replay: replay.logged(" replayed to "), command="dead-letters replay")

    again = lines(await dead_letters(stream, "replay"))

    assert 0 < len(again) < len(letters), "the first was killed half-way"
    replayed = await stream.read(stream.settings.topics.raw)
    assert sorted(record.key for record in replayed) == sorted(letter.record.key for letter in letters)
    assert lines(await dead_letters(stream, "replay")) == []


async def test_the_first_of_two_concurrent_replays_is_fenced_off(make_stream):
    stream = await make_stream(2)
    letters = await bury(stream, 200)
    async with TopicAdmin(stream.settings.kafka, stream.settings.topics) as admin:
        await admin.create_if_missing(admin.replays, 1, COMPACTED)
        raw = (await admin.existing())[stream.settings.topics.raw]
    async with RawTopic(stream.settings.kafka, raw, admin.replays) as first:
        await first.publish(letters[:1])
        async with RawTopic(stream.settings.kafka, raw, admin.replays) as second:
            with pytest.raises(DeliveryError, match="another process"):
                await first.publish(letters)
            await second.publish(letters[1:2])
    assert [record.key for record in await stream.read(raw.name)] == [b"0", b"2"]


async def test_the_key_decides_if_the_partition_no_longer_exists(make_stream, dead_letters):
    """As after the raw topic was recreated with fewer partitions."""
    stream = await make_stream(2)
    raw = stream.settings.topics.raw
    await bury(stream, 4)
    await stream.recreate_topic(raw, 1)
    result = await dead_letters(stream, "replay")
    assert [line.split(" replayed to ")[1] for line in lines(result)] == [
        f"{raw}/0/{offset}, attempt 1" for offset in range(4)
    ]


async def test_a_missing_topic_error_names_the_command_that_creates_it(make_stream, dead_letters):
    stream = await make_stream(1)
    await stream.delete_topic(stream.settings.topics.dead_letter)
    error = (await dead_letters(stream, "list")).exception
    assert isinstance(error, TopicError)
    # Other tests' topics have similar names, which it may name.
    assert str(error).startswith(f"missing: {stream.settings.topics.dead_letter}; ")
    assert str(error).endswith("`kp-worker topics` creates them")


async def test_a_limit_that_was_lowered_is_named_once_with_the_remedy(make_stream, real_traces):
    """Hundreds of dead letters came without a line in the log."""
    stream = await make_stream(1)
    topics = stream.settings.topics
    async with stream.worker() as worker:
        await worker.owns(1)
        for topic in (topics.contribute, topics.rejected):
            await stream.configure_topic(topic, {"max.message.bytes": "1000"})
        raw = await stream.publish([Message(value) for value in real_traces[:20]])
        outputs = await stream.outputs(worker, raw)
        assert await worker.stop() == 0

    assert {headers_of(output)["kp-reason"] for output in outputs} == {"too_large"}
    for topic in (topics.contribute, topics.rejected):
        assert worker.log().count(f"{topic}: outputs exceed its max.message.bytes and become") <= 1
    assert f"{topics.rejected}: outputs exceed its max.message.bytes and become" in worker.log()
    assert "dead-letters replay --reason too_large" in worker.log()
    assert "starting it again in" not in worker.log()
