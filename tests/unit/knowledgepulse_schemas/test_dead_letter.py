"""Dead-letter headers round-trip through Kafka, whatever headers the record had before."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from knowledgepulse_schemas import DeadLetterHeaders
from knowledgepulse_schemas.dead_letter import REASONS

FOREIGN = [("traceparent", b"00-1-2-01"), ("binary", b"\xff\xfe"), ("nothing", None)]


def headers(**changes: Any) -> DeadLetterHeaders:
    values: dict[str, Any] = {
        "exception": "InvalidRecordError",
        "message": "the record has no value",
        "topic": "raw-traces",
        "partition": 3,
        "offset": 42,
        "reason": "empty",
    }
    return DeadLetterHeaders(**values | changes)


def test_names_are_kafka_streams_and_values_utf_8():
    assert headers(message="größer", attempt=2).to_kafka() == [
        ("__streams.errors.exception", b"InvalidRecordError"),
        ("__streams.errors.message", "größer".encode()),
        ("__streams.errors.topic", b"raw-traces"),
        ("__streams.errors.partition", b"3"),
        ("__streams.errors.offset", b"42"),
        ("kp-reason", b"empty"),
        ("kp-attempt", b"2"),
    ]


any_headers = st.builds(
    DeadLetterHeaders,
    exception=st.text(),
    message=st.text(),
    topic=st.text(),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    reason=st.sampled_from(REASONS),
    attempt=st.none() | st.integers(1, 100),
)


@given(any_headers, any_headers.map(lambda ours: ours.model_copy(update={"attempt": 1})))
def test_the_later_of_two_dead_letters_in_one_record_wins(earlier, later):
    """A letter that failed again after a replay has both."""
    assert DeadLetterHeaders.from_kafka([*earlier.to_kafka(), *FOREIGN, *later.to_kafka()]) == later


record_headers = st.lists(
    st.tuples(
        st.text() | st.sampled_from([field.alias for field in DeadLetterHeaders.model_fields.values()]),
        st.none() | st.binary(),
    )
)


@given(record_headers, any_headers)
def test_ours_and_the_records_own_headers_are_told_apart(own, ours):
    """No producer header may make a dead letter unreadable, whatever its name."""
    written = [*own, *ours.to_kafka()]

    assert list(DeadLetterHeaders.original(written)) == own
    read = DeadLetterHeaders.from_kafka(written)
    assert read.model_copy(update={"attempt": ours.attempt}) == ours
    assert ours.attempt in (None, read.attempt)


def test_a_lone_surrogate_in_the_message_is_replaced():
    """JSON escapes can produce such text, which UTF-8 cannot encode."""
    written = headers(message="bad \ud800 text").to_kafka()

    read = DeadLetterHeaders.from_kafka(written)
    assert read.message.startswith("bad ")
    assert read.message.endswith(" text")


def test_a_reason_outside_the_closed_set_is_rejected():
    with pytest.raises(ValidationError):
        headers(reason="because")


@pytest.mark.parametrize("missing", [name for name, _ in headers().to_kafka()])
def test_every_header_is_required(missing):
    remaining = [(name, value) for name, value in headers().to_kafka() if name != missing]

    with pytest.raises(ValidationError, match=missing):
        DeadLetterHeaders.from_kafka(remaining)
