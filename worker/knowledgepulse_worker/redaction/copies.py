"""Make a redacted copy of every contributed trace, for a separate topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

from knowledgepulse_kafka.records import OutputRecord, RawRecord
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.errors import InvalidRecordError, RedactionError
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.records.ledger_records import Entry
from knowledgepulse_worker.records.output_headers import trace_of
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.scoring import bounded_id

logger = logging.getLogger(__name__)

RedactFunction = Callable[[bytes], Awaitable[bytes]]
"""Redacts the JSON of a scored trace; raises :class:`~knowledgepulse_worker.errors.RedactionError`."""


async def redacted_trace(redact: RedactFunction, value: bytes) -> tuple[bytes, ReasoningTrace]:
    """Redact a scored trace; return the JSON of the copy, and the copy.

    Raises:
        RedactionError: the function failed, or returned something else than a scored trace (``invalid``).
    """
    redacted = await redact(value)
    try:
        trace = decode_trace(redacted, max_bytes=len(redacted))
    except InvalidRecordError as error:
        # Only the reason: the message may quote the trace.
        raise RedactionError("invalid", error.reason) from None
    if trace.metadata.quality_score is None:
        raise RedactionError("invalid", "metadata.quality_score is missing")
    return redacted, trace


class Redaction:
    """Makes redacted copies; a copy that cannot be made is replaced by a record with only the reason.

    Args:
        redact: redacts a trace.
        topic: the topic of the copies.
        outputs: builds the records.
        metrics: counts and times every copy.
    """

    def __init__(self, redact: RedactFunction, topic: str, outputs: Outputs, metrics: Metrics) -> None:
        self._redact = redact
        self._topic = topic
        self._outputs = outputs
        self._metrics = metrics

    async def copy(self, record: RawRecord, entry: Entry, output: OutputRecord) -> OutputRecord:
        """Return the copy of a contributed trace.

        Args:
            record: the raw record.
            entry: its outcome.
            output: the record that is contributed.
        """
        started = time.monotonic()
        try:
            value, trace = await redacted_trace(self._redact, trace_of(output))
        except RedactionError as error:
            return self._without(record, entry, error, time.monotonic() - started)
        self._metrics.traces.redacted("ok", time.monotonic() - started)
        return self._outputs.build_redacted(record, entry, self._topic, bounded_id(trace.id), value)

    def too_large(self, record: RawRecord, entry: Entry) -> OutputRecord:
        """Return the record that replaces a copy that is too large for the topic."""
        return self._without(record, entry, RedactionError("too_large", "the topic refuses the copy"), 0.0)

    def _without(
        self, record: RawRecord, entry: Entry, error: RedactionError, seconds: float
    ) -> OutputRecord:
        logger.error("%s: not redacted: %s", record.source, error)
        self._metrics.traces.redacted(error.reason, seconds)
        return self._outputs.build_unredacted(record, entry, self._topic, error.reason)
