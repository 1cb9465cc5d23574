"""Build outputs, and replace those that their topics do not accept.

An output that its topic does not accept becomes a dead letter, and a dead letter that is too large is
truncated. An output whose timestamp is not accepted gets the current time, and its record's timestamp in a
header.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as replace_fields

from knowledgepulse_kafka.errors import DeliveryError, TimestampError, TooLargeError, UnacceptableError
from knowledgepulse_kafka.records import NO_TIMESTAMP, UNTIMED, OutputRecord
from knowledgepulse_schemas.dead_letter import Reason
from knowledgepulse_worker.lane.size_log import SizeLog
from knowledgepulse_worker.lane.stages import Scored
from knowledgepulse_worker.records.entry import Failure
from knowledgepulse_worker.records.outputs import Outputs, with_current_timestamp
from knowledgepulse_worker.redaction.copies import Redaction


@dataclass(frozen=True)
class Replacements:
    """Builds outputs that their topics accept, as far as the topics' settings tell.

    Args:
        outputs: builds the outputs.
        problem_of: returns why a topic does not accept a record; None if it does.
        redaction: makes redacted copies of contributed traces; None if there are none.
        size_log: logs outputs that are too large for their topic.
    """

    outputs: Outputs
    problem_of: Callable[[OutputRecord], DeliveryError | None]
    redaction: Redaction | None = None
    size_log: SizeLog = field(default_factory=SizeLog)

    def build(self, scored: Scored) -> OutputRecord:
        """Build the output of a record, and return it."""
        scored.output = output = self.outputs.build(scored.record, scored.entry)
        while problem := self.problem_of(output):
            output = self._replace_output(scored, output, problem)
        return output

    def fit_copy(self, scored: Scored) -> None:
        """Replace a redacted copy that its topic does not accept."""
        while scored.copy is not None and (problem := self.problem_of(scored.copy)):
            self._replace_copy(scored, scored.copy, problem)

    def replace(self, scored: Scored, refused: OutputRecord, problem: DeliveryError) -> None:
        """Replace a record that the broker has refused although it was sent alone.

        Raises:
            DeliveryError: there is nothing to replace it with.
        """
        if refused is scored.output:
            self._replace_output(scored, refused, problem)
        elif refused is scored.copy:
            self._replace_copy(scored, refused, problem)
        elif refused is scored.ledger:
            scored.ledger = _with_other_time(refused, problem)

    def _replace_output(self, scored: Scored, refused: OutputRecord, problem: DeliveryError) -> OutputRecord:
        if isinstance(problem, TimestampError):
            scored.output = _with_other_time(refused, problem)
            return scored.output
        if scored.entry.failure is None:
            if isinstance(problem, TooLargeError):
                self.size_log.note(refused, scored.record.source)
            failure = Failure(_reason(problem), type(problem).__name__, str(problem))
            scored.entry = replace_fields(scored.entry, decision=None, failure=failure)
            scored.copying = scored.copy = None  # it is not contributed
            replacement = self.outputs.build(scored.record, scored.entry)
        else:
            replacement = self.outputs.build_truncated(scored.record, scored.entry)
        if replacement == refused:
            raise problem
        scored.output = replacement
        return replacement

    def _replace_copy(self, scored: Scored, refused: OutputRecord, problem: DeliveryError) -> None:
        if isinstance(problem, TimestampError):
            scored.copy = _with_other_time(refused, problem)
            return
        if self.redaction is None or scored.output is None:
            raise problem
        if refused.value is None:  # the topic takes not even the reason why there is no copy
            self._replace_output(scored, scored.output, problem)
        else:
            scored.copy = self.redaction.too_large(scored.record, scored.entry)


def _reason(problem: DeliveryError) -> Reason:
    if isinstance(problem, TooLargeError):
        return "too_large"
    return "refused" if isinstance(problem, UnacceptableError) else "scoring_failed"


def _with_other_time(refused: OutputRecord, problem: DeliveryError) -> OutputRecord:
    """Return a record with the current time, or without any if that is what was refused."""
    if not isinstance(problem, TimestampError) or refused.timestamp_ms == UNTIMED:
        raise problem
    if refused.timestamp_ms == NO_TIMESTAMP:
        return replace(refused, timestamp_ms=UNTIMED)
    return with_current_timestamp(refused)
