"""Raw records, and the dead letters that a worker publishes for them."""

from __future__ import annotations

from datetime import UTC, datetime

from aiokafka.structs import ConsumerRecord
from hypothesis import strategies as st

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.lane.record_scorer import failed_entry
from knowledgepulse_worker.records.ledger_records import Failure
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.wrapping import ValueRead
from knowledgepulse_worker.settings import TopicSettings

TOPICS = TopicSettings()
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


def buried(record, reason="not_json", message="invalid character", *, cut=False, form=None):
    """Return the record's dead letter, as published by the worker."""
    outputs = Outputs(TOPICS, {name: 4 for _, name in TOPICS})
    build = outputs.build_truncated if cut else outputs.build
    entry = failed_entry(record, Failure(reason, "InvalidRecordError", message))
    return consumed(build(record, entry, ValueRead(form=form)))


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
