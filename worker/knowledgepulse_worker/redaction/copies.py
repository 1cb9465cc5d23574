"""Publish a redacted copy of every contributed trace to a separate topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.errors import InvalidRecordError, RedactionError, TooLargeError
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.records.entry import Entry
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.record import OutputRecord, RawRecord
from knowledgepulse_worker.scoring import bounded_id

logger = logging.getLogger(__name__)

Redact = Callable[[bytes], Awaitable[bytes]]
"""Redacts the JSON of a scored trace; raises :class:`~knowledgepulse_worker.errors.RedactionError`."""

Send = Callable[[OutputRecord], Awaitable[object]]
"""Sends a record and waits until the broker has confirmed it; raises DeliveryError."""


class Redaction:
    """Publishes redacted copies; a copy that cannot be made is replaced by a record with only the reason.

    Args:
        redact: redacts a trace.
        topic: the topic of the copies.
        outputs: builds the records.
        metrics: counts and times every copy.
    """

    def __init__(self, redact: Redact, topic: str, outputs: Outputs, metrics: Metrics) -> None:
        self._redact = redact
        self._topic = topic
        self._outputs = outputs
        self._metrics = metrics

    async def publish(self, record: RawRecord, entry: Entry, output: OutputRecord, send: Send) -> None:
        """Publish the copy of a contributed trace.

        Args:
            record: the raw record.
            entry: its ledger entry.
            output: the record that was contributed.
            send: sends the copy.

        Raises:
            DeliveryError: the broker did not confirm the copy.
        """
        started = time.monotonic()
        try:
            value, trace = await self._redacted(output.value or b"")
            copy = self._outputs.build_redacted(record, entry, self._topic, bounded_id(trace.id), value)
            await send(copy)
        except (RedactionError, TooLargeError) as error:
            reason = error.reason if isinstance(error, RedactionError) else "too_large"
            logger.error("%s: not redacted: %s", record.source, error)  # noqa: TRY400 - a traceback tells nothing
            await send(self._outputs.build_unredacted(record, entry, self._topic, reason))
            self._metrics.redacted(reason, time.monotonic() - started)
        else:
            self._metrics.redacted("ok", time.monotonic() - started)

    async def _redacted(self, value: bytes) -> tuple[bytes, ReasoningTrace]:
        redacted = await self._redact(value)
        try:
            trace = decode_trace(redacted, max_bytes=len(redacted))
        except InvalidRecordError as error:
            # Only the reason: the message may quote the trace.
            raise RedactionError("invalid", error.reason) from None
        if trace.metadata.quality_score is None:
            raise RedactionError("invalid", "metadata.quality_score is missing")
        return redacted, trace
