"""Selecting, replaying and displaying dead letters."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta

import click
import pytest
from aiokafka.structs import ConsumerRecord
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from worker.commands.dead_letters import dead_letters
from worker.dead_letters import text
from worker.dead_letters.arguments import Moment, Position, Source
from worker.dead_letters.letter import DeadLetter, Selection
from worker.dead_letters.replay import skip_reason
from worker.errors import REASONS
from worker.kafka.topics import Topic
from worker.lane.ledger import Failure
from worker.lane.outputs import Outputs
from worker.lane.records import RawRecord
from worker.lane.scorer import failed_entry
from worker.settings import TopicSettings

TOPICS = TopicSettings()
RAW = Topic(TOPICS.raw, partitions=4, max_message_bytes=1_048_588)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def raw_record(**changes):
    values = {
        "topic": TOPICS.raw,
        "partition": 3,
        "offset": 17,
        "timestamp_ms": int(NOON.timestamp() * 1000),
        "key": b"key",
        "value": b"no trace",
        "headers": (),
    }
    return RawRecord(**values | changes)


def consumed(record, partition=3, offset=5):
    """Return an output record in the form that the reader receives."""
    return ConsumerRecord(
        record.topic,
        partition,
        offset,
        record.timestamp_ms,
        0,
        record.key,
        record.value,
        None,
        0,
        0,
        record.headers,
    )


def buried(record, reason="not_json", message="invalid character", *, cut=False):
    """Return the record's dead letter, as published by the worker."""
    outputs = Outputs(TOPICS, {name: 4 for _, name in TOPICS})
    build = outputs.build_cut if cut else outputs.build
    return consumed(build(record, failed_entry(record, Failure(reason, "RejectedRecord", message))))


OURS = [
    "kp-timestamp",
    *("__streams.errors.exception", "__streams.errors.message", "__streams.errors.topic"),
    *("__streams.errors.partition", "__streams.errors.offset"),
    *("kp-reason", "kp-value-length", "kp-value-sha256", "kp-attempt"),
]
headers = st.lists(st.tuples(st.text() | st.sampled_from(OURS), st.none() | st.binary())).map(tuple)
records = st.builds(
    raw_record,
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=headers,
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-(2**63), 2**63 - 1),
)


@given(records)
def test_a_dead_letter_round_trips_the_raw_record(record):
    """Including headers with the worker's names."""
    assert DeadLetter.read(buried(record)).record == record


@given(records)
def test_each_replay_only_increments_the_attempt(record):
    """Also after several failures, at other positions."""
    own = [header for header in record.headers if header[0] != "kp-attempt"]
    first = DeadLetter.read(buried(record)).attempts
    for attempt in range(first + 1, first + 4):
        replayed = DeadLetter.read(buried(record)).replay_headers()
        assert replayed == [*own, ("kp-attempt", str(attempt).encode())]
        record = dataclasses.replace(record, offset=record.offset // 2, headers=tuple(replayed))
        assert DeadLetter.read(buried(record)).attempts == attempt


@given(headers)
def test_a_record_not_written_by_a_worker_is_not_a_dead_letter(headers):
    own = tuple(header for header in headers if header[0] != "__streams.errors.exception")
    assert DeadLetter.read(consumed(raw_record(headers=own))) is None


@pytest.mark.parametrize(
    "other", [{"value": b"other"}, {"key": b"other"}, {"offset": 18}, {"partition": 2}, {"topic": "other"}]
)
def test_identity_is_that_of_the_raw_record(other):
    """A crash can publish a letter twice; a recreated topic can have another record at its position."""
    first = DeadLetter.read(buried(raw_record()))
    again = DeadLetter.read(dataclasses.replace(buried(raw_record()), offset=6))
    assert first.identity == again.identity
    assert first.identity != DeadLetter.read(buried(raw_record(**other))).identity


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        (Selection(), True),
        (Selection(reasons=("empty", "not_json")), True),
        (Selection(reasons=("empty",)), False),
        (Selection(since=NOON), True),
        (Selection(since=NOON + timedelta(milliseconds=1)), False),
        (Selection(until=NOON + timedelta(milliseconds=1)), True),
        (Selection(until=NOON), False),
        (Selection(source=(TOPICS.raw,)), True),
        (Selection(source=(TOPICS.raw, 3)), True),
        (Selection(source=(TOPICS.raw, 3, 17)), True),
        (Selection(source=(TOPICS.raw, 3, 1)), False),
        (Selection(source=(TOPICS.raw, 1)), False),
        (Selection(source=("raw",)), False),
        (Selection(reasons=("not_json",), since=NOON, source=("raw",)), False),
    ],
)
def test_a_selection_matches_all_criteria(selection, selected):
    assert (DeadLetter.read(buried(raw_record())) in selection) is selected


@pytest.mark.parametrize(
    ("letter", "reason"),
    [
        (buried(raw_record()), None),
        (buried(raw_record(headers=(("kp-attempt", b"2"),))), None),
        (buried(raw_record(headers=(("kp-attempt", b"3"),))), "too many attempts"),
        (buried(raw_record(headers=(("kp-attempt", b"4"),))), "too many attempts"),
        (buried(raw_record(value=b""), "empty"), "empty"),
        (buried(raw_record(value=None), "empty"), "empty"),
        (buried(raw_record(value=b"x" * 5000), cut=True), "truncated"),
        (buried(raw_record(headers=(("kp-value-length", b"5000"),))), None),
        (buried(raw_record(value=b"x" * 1_048_000)), None),
        (buried(raw_record(value=b"x" * 1_048_576)), "too large"),
    ],
)
def test_skips_letters_that_cannot_or_must_not_be_replayed(letter, reason):
    assert skip_reason(DeadLetter.read(letter), RAW, max_attempts=3) == reason


hostile = st.text() | st.sampled_from(["\x1b[31mred", "\x9b2J", "a\r\nkp-reason: empty", "\u202eabc", "\x07"])


@given(records, hostile, hostile)
def test_output_contains_no_terminal_control_characters(record, message, value):
    """Only the value may have several lines, after everything else."""
    record = dataclasses.replace(record, value=value.encode())
    letter = buried(record, message=message)
    read = DeadLetter.read(letter)
    shown = text.details(letter)
    for line in [text.row(read, None), text.as_json(read, None)]:
        assert line.isprintable()
    assert shown.replace("\n", "").replace("\t", "").isprintable()
    value_at = 4 + len(letter.headers)
    assert shown.splitlines()[value_at].startswith("value: ")


@given(st.text(min_size=1), st.none() | st.binary())
def test_shows_text_unchanged_and_escapes_binary_values(value, key):
    shown = text.details(buried(raw_record(value=value.encode(), key=key)))
    if value.isprintable():
        assert shown.endswith(f"\n{value}")
    assert text.details(buried(raw_record(value=b"\xff\x00a"))).endswith(r"\xff\x00a")
    assert "\nkey: null\n" in text.details(buried(raw_record(key=None)))


def test_the_list_does_not_reveal_content():
    secret = b"SECRET"
    letter = DeadLetter.read(
        buried(raw_record(key=secret, value=secret, headers=(("SECRET", secret), ("kp-reason", secret))))
    )
    assert "SECRET" not in text.row(letter, None) + text.as_json(letter, None)


def test_a_json_line_has_all_columns_of_the_table():
    whole = DeadLetter.read(buried(raw_record(headers=(("kp-attempt", b"1"),)), message="größer"))
    cut = DeadLetter.read(buried(raw_record(value=b"x" * 5000), "too_large", cut=True))
    assert json.loads(text.as_json(whole, "raw-traces/3/40")) == {
        "partition": 3,
        "offset": 5,
        "timestamp_ms": 1769860800000,
        "reason": "not_json",
        "source": "raw-traces/3/17",
        "attempts": 1,
        "bytes": 8,
        "cut": False,
        "replayed_to": "raw-traces/3/40",
        "exception": "RejectedRecord",
        "message": "größer",
    }
    assert (json.loads(text.as_json(cut, None))["bytes"], json.loads(text.as_json(cut, None))["cut"]) == (
        5000,
        True,
    )


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [(1769860800001, "2026-01-31T12:00:00.001Z"), (0, "1970-01-01T00:00:00.000Z"), (-1, "none")],
)
def test_the_time_is_the_raw_records_in_utc(timestamp_ms, shown):
    assert shown in text.row(DeadLetter.read(buried(raw_record(timestamp_ms=timestamp_ms))), None)


@given(st.integers(-(2**63), 2**63 - 1))
def test_lists_letters_with_any_kafka_timestamp(timestamp_ms):
    assert text.row(DeadLetter.read(buried(raw_record(timestamp_ms=timestamp_ms))), None)


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2026-01-31", NOON.replace(hour=0)),
        ("2026-01-31T12:00", NOON),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T13:00+01:00", NOON),
    ],
)
def test_a_date_time_without_an_offset_is_utc(written, moment):
    assert Moment().convert(written, None, None) == moment


@pytest.mark.parametrize(
    ("written", "age"),
    [
        ("90s", {"seconds": 90}),
        ("5m", {"minutes": 5}),
        ("2h", {"hours": 2}),
        ("1w", {"weeks": 1}),
    ],
)
def test_an_age_is_relative_to_now(written, age):
    before = datetime.now(UTC)
    moment = Moment().convert(written, None, None)
    assert before <= moment + timedelta(**age) <= datetime.now(UTC)


@pytest.mark.parametrize("written", ["", "2", "h", "-2h", "2y", "1.5h", "yesterday", "2026-13-01", "999999w"])
def test_rejects_an_invalid_time(written):
    with pytest.raises(click.BadParameter, match="neither a date-time"):
        Moment().convert(written, None, None)


def test_parses_sources_and_positions():
    assert Source().convert("raw-traces", None, None) == ("raw-traces",)
    assert Source().convert("raw-traces/3", None, None) == ("raw-traces", 3)
    assert Source().convert("raw-traces/3/17", None, None) == ("raw-traces", 3, 17)
    assert Position().convert("3/17", None, None) == (3, 17)


@pytest.mark.parametrize("written", ["", "/1", "a/b", "a/1/", "a/1/2/3", "a/-1", "a b"])
def test_rejects_an_invalid_source(written):
    with pytest.raises(click.BadParameter, match="raw-traces/0/17"):
        Source().convert(written, None, None)


@pytest.mark.parametrize("written", ["", "1", "a/1/2", "1/", "1/-1", "dead-letter/0/1"])
def test_rejects_an_invalid_position(written):
    with pytest.raises(click.BadParameter, match="0/17"):
        Position().convert(written, None, None)


@pytest.mark.parametrize("command", ["list", "show", "replay"])
def test_help_describes_each_command(command):
    result = CliRunner().invoke(dead_letters, [command, "--help"])
    assert result.exit_code == 0
    summary = dead_letters.commands[command].get_short_help_str(100).rstrip(".")
    assert summary in " ".join(result.output.split())


def test_the_error_for_an_unknown_reason_lists_the_known_ones():
    result = CliRunner().invoke(dead_letters, ["list", "--reason", "because"])
    assert result.exit_code == 2
    assert all(f"'{reason}'" in result.stderr for reason in REASONS)
