"""The records to publish for complete runs, late spans and unreadable records, without input or output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord, RawRecord
from knowledgepulse_kafka.topic_limits import record_bytes
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_schemas.dead_letter import Reason
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.ledger_records import Entry, Failure
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.assemble.collector_exports import SpanExport, join
from knowledgepulse_worker.tools.assemble.open_runs import SpanRun
from knowledgepulse_worker.tools.assemble.run_conversion import ConvertedRun
from knowledgepulse_worker.tools.common.record_key import key_of

COMPLETED_BY_HEADER = "kp-completed-by"
"""The header of an assembled trace that says why its run was complete."""

_MAX_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class RunDeadLetter:
    """A dead letter and its reason."""

    reason: Reason
    letter: OutputRecord


class RunOutputs:
    """Builds the records to publish; ``topics``: the raw, dead-letter, late and spans topics by name."""

    def __init__(self, settings: Settings, topics: Mapping[str, Topic]) -> None:
        names = settings.topics.model_copy(update={"raw": settings.assemble.spans})
        self._letters = Outputs(
            names, {name: topics[name].partitions for name in (names.raw, names.dead_letter)}
        )
        self._limits = {name: topic.max_message_bytes for name, topic in topics.items()}
        self._spans = settings.assemble.spans
        self._late = settings.assemble.late
        self._raw = settings.topics.raw
        self._key = settings.assemble.key

    def of_run(
        self, run: SpanRun, converted: ConvertedRun, partition: int
    ) -> list[OutputRecord | RunDeadLetter]:
        """Return a run's traces, one for each agent that is a run, and dead letters for failed conversions.

        Returns nothing if the run has no agent, like a run of any other service. A dead letter has the run's
        id as key, its spans as value, and the location of its first span in the spans topic.
        """
        headers = ((COMPLETED_BY_HEADER, run.completed_by.encode()),)
        key, origin = run.trace_id.encode(), (self._spans, partition, run.first_offset, run.first_time)
        outputs: list[OutputRecord | RunDeadLetter] = []
        for value in converted.traces:
            trace = OutputRecord(self._raw, None, NO_TIMESTAMP, key_of(value, self._key), value, headers)
            if self._fits(trace):
                outputs.append(trace)
                continue
            error = InvalidRecordError("too_large", f"the trace exceeds max.message.bytes of {self._raw}")
            outputs.append(self.of_unreadable(RawRecord(*origin, key, value, ()), error))
        if converted.errors:
            failure = converted.errors[0][0], "; ".join(message for _, message in converted.errors)
            sources = (RawRecord(*origin, key, value, ()) for value in join(run.spans.values()))
            outputs += [self._refused(source, "invalid_trace", *failure) for source in sources]
        return outputs

    def of_late_span(self, span: SpanExport, record: RawRecord) -> OutputRecord | RunDeadLetter:
        """Return the record for a late span, or a dead letter if it does not fit the topic."""
        key = span.trace_id.encode()
        late = OutputRecord(self._late, None, NO_TIMESTAMP, key, span.value, ())
        if self._fits(late):
            return late
        return self.of_unreadable(
            record, InvalidRecordError("too_large", f"a late span exceeds max.message.bytes of {self._late}")
        )

    def of_unreadable(self, record: RawRecord, error: InvalidRecordError) -> RunDeadLetter:
        """Return the dead letter of a record that is not an export of spans."""
        return self._refused(record, error.reason, type(error).__name__, str(error))

    def _refused(self, record: RawRecord, reason: Reason, error: str, message: str) -> RunDeadLetter:
        failure = Failure(reason, error, message[:_MAX_MESSAGE])
        entry = Entry(record.offset, record.timestamp_ms, failure=failure)
        letter = self._letters.build(record, entry)
        if not self._fits(letter):
            letter = self._letters.build_truncated(record, entry)
        # A topic may refuse the timestamp of an old record.
        return RunDeadLetter(reason, replace(letter, timestamp_ms=NO_TIMESTAMP))

    def _fits(self, record: OutputRecord) -> bool:
        return record_bytes(record.key, record.value, record.headers) <= self._limits[record.topic]
