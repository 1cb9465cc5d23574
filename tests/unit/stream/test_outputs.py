"""What is published for a record: the input, its own headers first, and the same again for a repeat."""

import json

import msgspec
import pytest

from schemas import DeadLetterHeaders
from worker.errors import LedgerError
from worker.settings import TopicSettings
from worker.stream.ledger import Entry, Failure
from worker.stream.outputs import Outputs
from worker.stream.records import RawRecord

TOPICS = TopicSettings(raw="raw", contribute="contribute", rejected="rejected", dead_letter="dead")
SCORE = (
    b'{"score":0.30000000000000004,"complexity":0.5,"novelty":0.25,"tool_diversity":0.0,'
    b'"outcome_confidence":1.0,"overrides":["single_tool"],"domain":"default","threshold":0.75,"nearest":null}'
)
HEADERS = (
    ("traceparent", b"00-1"),
    ("a", None),
    ("b", b"\xff"),
    ("a", b"2"),
    ("kp-source", b"theirs"),
    ("a", None),
)


@pytest.fixture
def record(document):
    return RawRecord("raw", 2, 41, 1_700_000_000_123, b"key", json.dumps(document()).encode(), HEADERS)


@pytest.fixture
def scored():
    return Entry(41, 1, b"f" * 8, trace_id="kp:trace:1", decision="rejected", score=SCORE, policy="abc")


@pytest.fixture
def failed():
    return Entry(41, 1, b"f" * 8, failure=Failure("not_json", "RejectedRecord", "bad \N{SNOWMAN} \ud800"))


def outputs(**partitions):
    return Outputs(TOPICS, {"raw": 3, "contribute": 3, "rejected": 3, "dead": 3} | partitions)


@pytest.mark.parametrize("decision", ["contribute", "rejected"])
def test_a_scored_trace_goes_where_its_entry_says_with_the_score_in_it(decision, record, scored):
    output = outputs().build(record, msgspec.structs.replace(scored, decision=decision))

    assert output.topic == decision
    assert (output.key, output.timestamp_ms) == (b"key", 1_700_000_000_123)
    assert output.value == record.value.replace(
        b'"metadata": {', b'"metadata": {"quality_score":0.30000000000000004,'
    )


def test_the_headers_of_a_scored_trace_are_its_own_then_source_score_and_policy(record, scored):
    ours = (("kp-source", b"raw/2/41"), ("kp-score", SCORE), ("kp-policy", b"abc"))

    assert outputs().build(record, scored).headers == HEADERS + ours


def test_a_dead_letter_is_the_original_with_what_was_wrong_appended(record, failed):
    output = outputs().build(record, failed)

    assert output.topic == "dead"
    assert (output.key, output.value, output.timestamp_ms) == (record.key, record.value, record.timestamp_ms)
    assert output.headers[: len(HEADERS)] == HEADERS
    added = output.headers[len(HEADERS) :]
    assert dict(added) == {
        "__streams.errors.exception": b"RejectedRecord",
        "__streams.errors.message": b"bad \xe2\x98\x83 ?",
        "__streams.errors.topic": b"raw",
        "__streams.errors.partition": b"2",
        "__streams.errors.offset": b"41",
        "kp-reason": b"not_json",
    }
    assert DeadLetterHeaders.from_kafka(output.headers).offset == 41


@pytest.mark.parametrize("value", [None, b"", b"\xff\x00 no JSON"])
@pytest.mark.parametrize("key", [None, b""])
def test_a_dead_letter_keeps_any_bytes_and_their_absence(key, value, failed):
    output = outputs().build(RawRecord("raw", 0, 0, -1, key, value, ()), failed)

    assert (output.key, output.value, output.timestamp_ms) == (key, value, -1)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_partition_is_kept_only_where_the_output_has_as_many_as_raw(count, record, scored, failed):
    """Else the number could not exist there, or would break the order of a key: the key then decides."""
    some_differ = outputs(rejected=count)

    assert some_differ.build(record, scored).partition is None
    assert some_differ.build(record, failed).partition == 2
    assert outputs(dead=count).build(record, failed).partition is None


def test_a_record_refused_as_too_large_is_a_dead_letter_although_its_entry_holds_a_score(record, scored):
    entry = msgspec.structs.replace(
        scored, decision=None, failure=Failure("too_large", "TooLargeError", "no")
    )

    output = outputs().build(record, entry)

    assert (output.topic, output.value) == ("dead", record.value)
    assert dict(output.headers)["kp-reason"] == b"too_large"


def test_a_repeat_from_the_stored_entry_is_equal_to_the_first(record, scored, failed):
    failed = msgspec.structs.replace(
        failed, failure=Failure("invalid_trace", "RejectedRecord", "\N{SNOWMAN}")
    )
    for entry in (scored, failed):
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=Entry)
        assert outputs().build(record, stored) == outputs().build(record, entry)


def test_an_entry_without_outcome_is_an_error_and_not_an_output(record):
    with pytest.raises(LedgerError, match="raw/2/41"):
        outputs().build(record, Entry(41, 1, b""))
