"""Export inputs whose traces are redacted as they are read, as if from a topic of redacted copies."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec.structs import asdict, replace

from knowledgepulse_curator.export.export_inputs import ExportInputs
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.errors import RedactionError
from knowledgepulse_worker.redaction.copies import RedactFunction, redacted_trace


class RedactedRecord(RawRecord, frozen=True):
    """A record with a redacted trace.

    Attributes:
        original: the trace before the redaction; a policy decides about this one, as the worker does.
    """

    original: bytes = b""


class RedactedInputs:
    """Export inputs with redacted traces.

    A function that fails is told by the header ``kp-redaction-error``, as on a topic of redacted copies.
    """

    def __init__(self, inputs: ExportInputs, redact: RedactFunction) -> None:
        self.identity, self.ranges, self.changed_ms = inputs.identity, inputs.ranges, inputs.changed_ms
        self._inputs, self._redact = inputs, redact

    async def start(self, part: str, since_ms: int) -> int:
        """Return a part's first offset whose record has this time or a later one."""
        return await self._inputs.start(part, since_ms)

    async def read(self, part: str, offsets: range) -> AsyncIterator[RawRecord]:
        """Yield the records in a range of a part's offsets, with redacted traces."""
        async for record in self._inputs.read(part, offsets):
            original = record.value or b""
            try:
                value, _ = await redacted_trace(self._redact, original)
            except RedactionError as error:
                failed = (("kp-redaction-error", error.reason.encode()),)
                yield replace(record, value=None, headers=failed)
            else:
                yield RedactedRecord(**asdict(record) | {"value": value, "original": original})
