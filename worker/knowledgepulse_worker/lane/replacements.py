"""Build outputs, and replace those that their topics do not accept.

An output that its topic does not accept becomes a dead letter, and a dead letter that is too large is
truncated. An output whose timestamp is not accepted gets the current time, and its record's timestamp in a
header.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from knowledgepulse_kafka.errors import DeliveryError, TimestampError, TooLargeError, UnacceptableError
from knowledgepulse_kafka.records import NO_TIMESTAMP, UNTIMED, OutputRecord
from knowledgepulse_schemas.dead_letter import Reason
from knowledgepulse_worker.lane.size_log import SizeLog
from knowledgepulse_worker.lane.stages import Completed, Scored
from knowledgepulse_worker.policy import ROUTES
from knowledgepulse_worker.records.ledger_records import Failure
from knowledgepulse_worker.records.outputs import Outputs, with_current_timestamp
from knowledgepulse_worker.records.wrapping import ValueRead
from knowledgepulse_worker.redaction.copies import Redaction


@dataclass
class Replacements:
    """Builds outputs that their topics accept, as far as the topics' settings tell.

    Args:
        outputs: builds the outputs.
        problem_of: returns why a topic does not accept a record; None if it does.
        redaction: makes redacted copies of contributed traces; None if there are none.
        size_log: logs outputs that are too large for their topic.

    Attributes:
        count: the number of records that brokers refused and that were replaced.
    """

    outputs: Outputs
    problem_of: Callable[[OutputRecord], DeliveryError | None]
    redaction: Redaction | None = None
    size_log: SizeLog = field(default_factory=SizeLog)
    count: int = field(default=0, init=False)

    def complete(self, scored: Scored, read: ValueRead, ledger_record: OutputRecord | None) -> Completed:
        """Build the output of a record.

        Args:
            scored: the record.
            read: what reading its value found.
            ledger_record: its record for the changelog.
        """
        built = self.outputs.build(scored.record, scored.entry, read)
        completed = Completed(scored, scored.entry, built, ledger_record)
        while (output := completed.output) is not None and (problem := self.problem_of(output)):
            completed = self._with_other_output(completed, output, problem)
        return completed

    def copying(self, completed: Completed) -> Coroutine[Any, Any, Completed] | None:
        """Return what adds the redacted copy of a trace worth keeping; None if there is to be none."""
        decision, output = completed.entry.decision, completed.output
        if self.redaction is None or output is None or decision is None or not ROUTES[decision].kept:
            return None
        return self._with_copy(completed, self.redaction, output)

    async def _with_copy(self, completed: Completed, redaction: Redaction, output: OutputRecord) -> Completed:
        made = await redaction.copy(completed.scored.record, completed.entry, output)
        completed = replace(completed, redacted_copy=made)
        while (copy := completed.redacted_copy) is not None and (problem := self.problem_of(copy)):
            completed = self._with_other_copy(completed, copy, problem)
        return completed

    def replace(self, completed: Completed, refused: OutputRecord, problem: DeliveryError) -> Completed:
        """Replace a record that the broker has refused although it was sent alone.

        Raises:
            DeliveryError: there is nothing to replace it with.
        """
        self.count += 1
        if refused is completed.output:
            return self._with_other_output(completed, refused, problem)
        if refused is completed.redacted_copy:
            return self._with_other_copy(completed, refused, problem)
        if refused is completed.ledger_record:
            return replace(completed, ledger_record=_with_other_time(refused, problem))
        return completed

    def _with_other_output(
        self, completed: Completed, refused: OutputRecord, problem: DeliveryError
    ) -> Completed:
        if isinstance(problem, TimestampError):
            return replace(completed, output=_with_other_time(refused, problem))
        scored, entry = completed.scored, completed.entry
        if entry.failure is None:
            if isinstance(problem, TooLargeError):
                self.size_log.note(refused, scored.record.source)
            failure = Failure(_reason(problem), type(problem).__name__, str(problem))
            entry = replace(entry, decision=None, failure=failure)
            replacement = self.outputs.build(scored.record, entry)
        else:
            replacement = self.outputs.build_truncated(scored.record, entry, ValueRead(form=scored.form))
        if replacement == refused:
            raise problem
        return replace(completed, entry=entry, output=replacement, redacted_copy=None)

    def _with_other_copy(
        self, completed: Completed, refused: OutputRecord, problem: DeliveryError
    ) -> Completed:
        if isinstance(problem, TimestampError):
            return replace(completed, redacted_copy=_with_other_time(refused, problem))
        if self.redaction is None or completed.output is None:
            raise problem
        if refused.value is None:  # the topic takes not even the reason why there is no copy
            return self._with_other_output(completed, completed.output, problem)
        copy = self.redaction.too_large(completed.scored.record, completed.entry)
        return replace(completed, redacted_copy=copy)


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
