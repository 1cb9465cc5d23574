"""The records to publish for complete runs, late spans and unreadable records, without input or output."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from knowledgepulse_schemas.convert import Conversion, ConversionError, NoRunError, Options, convert
from knowledgepulse_schemas.convert.spans import OTLP, has_agent
from knowledgepulse_schemas.dead_letter import Reason
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.kafka.topic_limits import record_bytes
from knowledgepulse_worker.kafka.topics import Topic
from knowledgepulse_worker.records.entry import Entry, Failure
from knowledgepulse_worker.records.key import key_of
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.record import NO_TIMESTAMP, OutputRecord, RawRecord
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.assemble.collector_exports import SpanExport, join, read
from knowledgepulse_worker.tools.assemble.open_runs import SpanRun

logger = logging.getLogger(__name__)

COMPLETED_BY = "kp-completed-by"
"""The header of an assembled trace that says why its run was complete."""

_MAX_MESSAGE = 1000
_NO_ROOT = (
    "neither a root span nor an agent's span arrived, so its messages cannot be told from those of other runs"
)


@dataclass(frozen=True, slots=True)
class Refused:
    """A dead letter and its reason."""

    reason: Reason
    letter: OutputRecord


class RunOutputs:
    """Builds the records to publish; ``topics``: the raw, dead-letter, late and spans topics by name."""

    def __init__(self, settings: Settings, options: Options, topics: Mapping[str, Topic]) -> None:
        names = settings.topics.model_copy(update={"raw": settings.assemble.spans})
        self._letters = Outputs(
            names, {name: topics[name].partitions for name in (names.raw, names.dead_letter)}
        )
        self._limits = {name: topic.max_message_bytes for name, topic in topics.items()}
        self._spans = settings.assemble.spans
        self._late = settings.assemble.late
        self._raw = settings.topics.raw
        self._dead_letter = settings.topics.dead_letter
        self._key = settings.assemble.key
        self._options = options

    def of_run(self, run: SpanRun, partition: int) -> list[OutputRecord | Refused]:
        """Return a run's traces, one for each outermost agent, and dead letters for failed conversions.

        Returns nothing if the run has no agent, like a run of any other service. A dead letter has the run's
        id as key, its spans as value, and the location of its first span in the spans topic.
        """
        exports = join(run.spans.values())
        traces, errors = self._converted(run, exports)
        key, origin = run.trace_id.encode(), (self._spans, partition, run.first_offset, run.first_time)
        outputs: list[OutputRecord | Refused] = []
        for trace in traces:
            if self._fits(trace):
                outputs.append(trace)
                continue
            error = InvalidRecordError("too_large", f"the trace exceeds max.message.bytes of {self._raw}")
            source = RawRecord(*origin, key, trace.value or b"", ())
            outputs.append(self._refused(source, error.reason, error))
        if errors:
            message = "; ".join(map(str, errors))
            sources = (RawRecord(*origin, key, one, ()) for one in exports)
            outputs += [self._refused(one, "invalid_trace", errors[0], message) for one in sources]
        return outputs

    def of_late_span(self, span: SpanExport, record: RawRecord) -> OutputRecord | Refused:
        """Return the record for a late span, or a dead letter if it does not fit the topic."""
        key = span.trace_id.encode()
        late = OutputRecord(self._late, None, NO_TIMESTAMP, key, span.value, ())
        if self._fits(late):
            return late
        return self.of_unreadable(
            record, InvalidRecordError("too_large", f"a late span exceeds max.message.bytes of {self._late}")
        )

    def of_unreadable(self, record: RawRecord, error: InvalidRecordError) -> Refused:
        """Return the dead letter of a record that is not an export of spans."""
        return self._refused(record, error.reason, error)

    def _converted(self, run: SpanRun, exports: list[bytes]) -> tuple[list[OutputRecord], list[Exception]]:
        headers = ((COMPLETED_BY, run.completed_by.encode()),)
        traces: list[OutputRecord] = []
        errors: list[Exception] = []
        try:
            documents = [document for export in exports for document in read(export)]
            outcomes = list(convert(documents, OTLP, self._options))
            if any(isinstance(one, NoRunError) for one in outcomes):
                return [], []
            if run.root_time is None and not any(map(has_agent, documents)):
                return [], [ConversionError(f"trace {run.trace_id}: {_NO_ROOT}")]
        except Exception as error:  # one run must not stop the others, whatever is wrong with it
            logger.warning("a run cannot be converted", exc_info=error)
            return [], [error]
        for outcome in outcomes:
            if isinstance(outcome, Conversion):
                value = outcome.trace.to_json()
                key = key_of(value, self._key)
                traces.append(OutputRecord(self._raw, None, NO_TIMESTAMP, key, value, headers))
            else:
                errors.append(outcome)
        return traces, errors

    def _refused(
        self, record: RawRecord, reason: Reason, error: Exception, message: str | None = None
    ) -> Refused:
        failure = Failure(reason, type(error).__name__, (message or str(error))[:_MAX_MESSAGE])
        entry = Entry(record.offset, record.timestamp_ms, failure=failure)
        letter = self._letters.build(record, entry)
        if not self._fits(letter):
            letter = self._letters.build_truncated(record, entry)
        # A topic may refuse the timestamp of an old record.
        return Refused(reason, replace(letter, timestamp_ms=NO_TIMESTAMP))

    def _fits(self, record: OutputRecord) -> bool:
        return record_bytes(record.key, record.value, record.headers) <= self._limits[record.topic]
