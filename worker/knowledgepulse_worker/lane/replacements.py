"""Build outputs, and replace those that their topics do not accept.

An output that its topic does not accept becomes a dead letter, and a dead letter that is too large is
truncated. An output whose timestamp is not accepted gets the current time, and its record's timestamp in a
header.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from knowledgepulse_kafka.errors import DeliveryError, TimestampError, TooLargeError, UnacceptableError
from knowledgepulse_kafka.records import NO_TIMESTAMP, UNTIMED, OutputRecord
from knowledgepulse_schemas.dead_letter import Reason
from knowledgepulse_worker.lane.size_log import SizeLog
from knowledgepulse_worker.lane.stages import RecordOutcome
from knowledgepulse_worker.policy import ROUTES
from knowledgepulse_worker.records.ledger_records import Failure
from knowledgepulse_worker.records.outputs import Outputs, with_current_timestamp
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

    def build(self, outcome: RecordOutcome) -> OutputRecord:
        """Build the output of a record, and return it."""
        outcome.output = output = self.outputs.build(outcome.record, outcome.entry, outcome.read)
        while problem := self.problem_of(output):
            output = self._replace_output(outcome, output, problem)
        return output

    def copy(self, outcome: RecordOutcome, copied: Callable[[BaseException | None], None]) -> None:
        """Request the redacted copy of a trace worth keeping, if there is to be one.

        Args:
            outcome: the trace's outcome, whose output is built.
            copied: called once the copy is there, or with the error that prevents it.
        """
        decision = outcome.entry.decision
        if self.redaction is None or outcome.output is None or decision is None or not ROUTES[decision].kept:
            return
        copying = self.redaction.copy(outcome.record, outcome.entry, outcome.output)
        outcome.redacting = asyncio.create_task(copying)
        outcome.redacting.add_done_callback(partial(self._copied, outcome, copied))

    def _copied(
        self,
        outcome: RecordOutcome,
        copied: Callable[[BaseException | None], None],
        copying: asyncio.Task[OutputRecord],
    ) -> None:
        if copying.cancelled():
            return
        if (error := copying.exception()) is None:
            outcome.redacted_copy = copying.result()
            while outcome.redacted_copy is not None and (problem := self.problem_of(outcome.redacted_copy)):
                self._replace_copy(outcome, outcome.redacted_copy, problem)
        copied(error)

    def replace(self, outcome: RecordOutcome, refused: OutputRecord, problem: DeliveryError) -> None:
        """Replace a record that the broker has refused although it was sent alone.

        Raises:
            DeliveryError: there is nothing to replace it with.
        """
        self.count += 1
        if refused is outcome.output:
            self._replace_output(outcome, refused, problem)
        elif refused is outcome.redacted_copy:
            self._replace_copy(outcome, refused, problem)
        elif refused is outcome.ledger_record:
            outcome.ledger_record = _with_other_time(refused, problem)

    def _replace_output(
        self, outcome: RecordOutcome, refused: OutputRecord, problem: DeliveryError
    ) -> OutputRecord:
        if isinstance(problem, TimestampError):
            outcome.output = _with_other_time(refused, problem)
            return outcome.output
        if outcome.entry.failure is None:
            if isinstance(problem, TooLargeError):
                self.size_log.note(refused, outcome.record.source)
            failure = Failure(_reason(problem), type(problem).__name__, str(problem))
            outcome.entry = replace(outcome.entry, decision=None, failure=failure)
            outcome.redacting = outcome.redacted_copy = None  # it is a dead letter
            replacement = self.outputs.build(outcome.record, outcome.entry)
        else:
            replacement = self.outputs.build_truncated(outcome.record, outcome.entry, outcome.read)
        if replacement == refused:
            raise problem
        outcome.output = replacement
        return replacement

    def _replace_copy(self, outcome: RecordOutcome, refused: OutputRecord, problem: DeliveryError) -> None:
        if isinstance(problem, TimestampError):
            outcome.redacted_copy = _with_other_time(refused, problem)
            return
        if self.redaction is None or outcome.output is None:
            raise problem
        if refused.value is None:  # the topic takes not even the reason why there is no copy
            self._replace_output(outcome, outcome.output, problem)
        else:
            outcome.redacted_copy = self.redaction.too_large(outcome.record, outcome.entry)


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
