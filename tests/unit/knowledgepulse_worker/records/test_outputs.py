"""Output records: the input with its own headers first, and equal outputs for equal records."""

import json
from base64 import b64decode

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_schemas import DeadLetterHeaders
from knowledgepulse_worker.errors import LedgerError
from knowledgepulse_worker.records.ledger_records import Entry, Failure
from knowledgepulse_worker.records.outputs import Outputs, with_current_timestamp, with_original_timestamp
from knowledgepulse_worker.settings import TopicSettings

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
    return Entry(41, 1, b"f" * 8, failure=Failure("not_json", "InvalidRecordError", "bad \N{SNOWMAN} \ud800"))


def outputs(**partitions):
    return Outputs(TOPICS, {"raw": 3, "contribute": 3, "rejected": 3, "dead": 3} | partitions)


@pytest.mark.parametrize("decision", ["contribute", "rejected"])
def test_a_scored_trace_is_routed_by_its_entry_with_its_score_set(decision, record, scored):
    output = outputs().build(record, msgspec.structs.replace(scored, decision=decision))

    assert output.topic == decision
    assert (output.key, output.timestamp_ms) == (b"key", 1_700_000_000_123)
    assert output.value == record.value.replace(
        b'"metadata": {', b'"metadata": {"quality_score":0.30000000000000004,'
    )


def test_a_scored_trace_s_headers_are_its_own_then_source_score_and_policy(record, scored):
    ours = (("kp-source", b"raw/2/41"), ("kp-score", SCORE), ("kp-policy", b"abc"))

    assert outputs().build(record, scored).headers == HEADERS + ours


def test_a_dead_letter_is_the_original_with_the_failure_in_appended_headers(record, failed):
    output = outputs().build(record, failed)

    assert output.topic == "dead"
    assert (output.key, output.value, output.timestamp_ms) == (record.key, record.value, record.timestamp_ms)
    assert output.headers[: len(HEADERS)] == HEADERS
    added = output.headers[len(HEADERS) :]
    assert dict(added) == {
        "__streams.errors.exception": b"InvalidRecordError",
        "__streams.errors.message": b"bad \xe2\x98\x83 ?",
        "__streams.errors.topic": b"raw",
        "__streams.errors.partition": b"2",
        "__streams.errors.offset": b"41",
        "kp-reason": b"not_json",
    }
    assert DeadLetterHeaders.from_kafka(output.headers).offset == 41


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_partition_is_kept_only_if_the_output_topic_has_as_many_as_raw(count, record, scored, failed):
    """Otherwise it may not exist, or break the order of a key: then the key decides."""
    some_differ = outputs(rejected=count)

    assert some_differ.build(record, scored).partition is None
    assert some_differ.build(record, failed).partition == 2
    assert outputs(dead=count).build(record, failed).partition is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(timestamp_ms=st.integers(-(2**63), 2**63 - 1), is_cut=st.booleans())
def test_a_timestamp_that_an_output_cannot_carry_is_restored_from_its_last_header(
    record, failed, timestamp_ms, is_cut
):
    record = replace(record, timestamp_ms=timestamp_ms)
    build = outputs().build_truncated if is_cut else outputs().build

    output = build(record, failed)

    assert output.timestamp_ms == max(timestamp_ms, -1)
    if timestamp_ms < -1:
        assert output.headers[-1] == ("kp-timestamp", str(timestamp_ms).encode())
    refused = with_current_timestamp(output)
    assert (with_original_timestamp(refused).timestamp_ms, with_current_timestamp(refused)) == (
        timestamp_ms,
        refused,
    )
    assert with_original_timestamp(refused).headers == with_original_timestamp(output).headers


def test_a_producer_s_timestamp_header_is_not_the_output_s_timestamp(record, scored):
    record = replace(record, headers=(("kp-timestamp", b"5"),))

    assert with_original_timestamp(outputs().build(record, scored)).timestamp_ms == record.timestamp_ms


@pytest.mark.parametrize("value", [None, b"", b"now", b"1.5", b"1" * 20])
def test_an_invalid_timestamp_header_is_ignored(value, record, scored):
    output = replace(outputs().build(record, scored), headers=(("kp-timestamp", value),))

    assert with_original_timestamp(output) == output


def test_an_entry_without_an_outcome_is_an_error(record):
    with pytest.raises(LedgerError, match="raw/2/41"):
        outputs().build(record, Entry(41, 1, b""))


# --- unpublishable headers

INVALID_HEADERS = (("a", b"1"), ("caf\udce9", b"\xff"), ("b", None), ("\udcff", None))


def original_headers(output):
    """Return the headers kept in `kp-headers`, with names as bytes."""
    pairs = json.loads(dict(output.headers)["kp-headers"])
    return [tuple(None if part is None else b64decode(part) for part in pair) for pair in pairs]


def test_header_names_that_are_not_utf_8_are_kept_byte_for_byte(record, failed):
    record = replace(record, headers=INVALID_HEADERS)

    output = outputs().build(record, failed)

    assert (output.key, output.value) == (record.key, record.value)
    assert output.headers[:2] == (("a", b"1"), ("b", None))
    assert original_headers(output) == [(b"a", b"1"), (b"caf\xe9", b"\xff"), (b"b", None), (b"\xff", None)]
    assert DeadLetterHeaders.original(output.headers) == (("a", b"1"), ("b", None))
    assert DeadLetterHeaders.from_kafka(output.headers).headers


def test_a_cut_dead_letter_keeps_unpublishable_headers_unless_they_are_large(record, failed):
    small = replace(record, headers=INVALID_HEADERS)
    large = replace(record, headers=(*INVALID_HEADERS, ("c", bytes(2000))))

    assert len(original_headers(outputs().build_truncated(small, failed))) == 4
    headers = dict(outputs().build_truncated(large, failed).headers)
    assert headers["kp-headers-count"] == b"5"
    assert "kp-headers" not in headers
