"""The headers that the worker appends to the output of a scored trace, and the trace in such an output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.wrapping import Wrapping, read_wrapping, trace_in

HEADERS = ("kp-source", "kp-score", "kp-policy")
"""The headers that the worker appends to a scored record, in order."""

WRAPPING = "kp-wrapping"
"""The header that follows them if the trace was wrapped: how the value of the raw record was read."""

ORIGINAL_TIMESTAMP = "kp-timestamp"
"""The last header, with the record's timestamp in milliseconds, if the output could not carry it."""

MILLISECONDS = re.compile(rb"-?\d{1,19}")


class KafkaRecord(Protocol):
    """The attributes of a record that tell its trace, with the names that clients give them."""

    @property
    def value(self) -> bytes | None: ...  # noqa: D102 - as the client has them, like the next one
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...  # noqa: D102


class WorkerHeaders(NamedTuple):
    """The worker's headers of a scored record.

    Attributes:
        source: ``kp-source``.
        score: ``kp-score``.
        policy: ``kp-policy``.
        wrapping: ``kp-wrapping``; None if the trace was not wrapped.
        start: the index of the first of them.
    """

    source: bytes
    score: bytes
    policy: bytes
    wrapping: Wrapping | None
    start: int


def worker_headers(headers: Sequence[tuple[str, bytes | None]]) -> WorkerHeaders | None:
    """Return the worker's headers of a scored record, or None unless they are its last ones.

    Earlier headers with the same names are the producer's.
    """
    end = len(headers)
    if end and headers[-1][0] == ORIGINAL_TIMESTAMP:
        end -= 1
    wrapping = None
    if end and headers[end - 1][0] == WRAPPING:
        end -= 1
        wrapping = read_wrapping(headers[end][1])
    start = max(0, end - len(HEADERS))
    ours = headers[start:end]
    if tuple(name for name, _ in ours) != HEADERS:
        return None
    source, score, policy = (value for _, value in ours)
    if source is None or score is None or policy is None:
        return None
    return WorkerHeaders(source, score, policy, wrapping, start)


def trace_of(record: KafkaRecord) -> bytes:
    """Return the bytes of the trace that a record of scored traces holds, without what wraps it.

    The value of a record that no worker wrote, or whose value is not what its headers say, is returned as it
    is.
    """
    value, ours = record.value or b"", worker_headers(record.headers)
    if ours is None or ours.wrapping is None:
        return value
    try:
        return trace_in(value, ours.wrapping.around)
    except InvalidRecordError:
        return value


def unwrapped(record: RawRecord) -> RawRecord:
    """Return a record of scored traces with its trace as its value, and without ``kp-wrapping``."""
    ours = worker_headers(record.headers)
    if ours is None or ours.wrapping is None:
        return record
    place = ours.start + len(HEADERS)
    headers = (*record.headers[:place], *record.headers[place + 1 :])
    return replace(record, value=trace_of(record), headers=headers)
