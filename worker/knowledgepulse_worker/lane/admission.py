"""The way of a record into its lane, until the batcher accepts its text.

Records that are taken and not committed are in flight. A lane has room for as many of them, and for as many
bytes, as the limits allow.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from functools import partial

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.embedding.batcher import Batcher
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.lane.record_scorer import bounded_failure
from knowledgepulse_worker.lane.stages import DecodedRecord, RecordOutcome, TakenRecord, UndecodableRecord
from knowledgepulse_worker.observe.trace_metrics import TraceMetrics
from knowledgepulse_worker.process.suspects import Suspects
from knowledgepulse_worker.records.decode import check_readable, decode_scorable
from knowledgepulse_worker.records.ledger_records import Failure
from knowledgepulse_worker.records.scanned_traces import scan_words
from knowledgepulse_worker.records.wrapping import ValueRead
from knowledgepulse_worker.scoring import TraceText, embedding_text, words_text
from knowledgepulse_worker.settings import Settings

logger = logging.getLogger(__name__)


class Admission:
    """Admits a lane's records, one after another.

    Args:
        settings: the limits, how values are read, and which text of a trace is embedded.
        batcher: embeds the texts; None without an embedder.
        suspects: the records that may kill the process.
        metrics: times the decoding.

    Attributes:
        records: the number of records in flight.
        size: their bytes.
    """

    def __init__(
        self, settings: Settings, batcher: Batcher | None, suspects: Suspects, metrics: TraceMetrics
    ) -> None:
        self._limits = settings.limits
        self._unwrap = settings.records.unwrap
        text = settings.embedding.trace_text
        reads_words = settings.embedding.backend == "lexical" and text == "parts"
        self._text_of = _words_of if reads_words else partial(_text_of, text=text)
        self._batcher = batcher
        self._suspects = suspects
        self._condemns = suspects.condemns  # which never changes
        self._metrics = metrics
        self.records = 0
        self.size = 0

    def has_room(self, record: RawRecord) -> bool:
        """Return whether the lane has room for a record; an empty one has, for any."""
        return self.records == 0 or (
            self.records < self._limits.in_flight_records
            and self.size + record.size <= self._limits.in_flight_bytes
        )

    def is_half_full(self, scored: int) -> bool:
        """Return whether a commit of the scored records now makes room before the lane has to wait for it."""
        limits = self._limits
        return 2 * scored >= self.records and (
            2 * self.records >= limits.in_flight_records or 2 * self.size >= limits.in_flight_bytes
        )

    def admit(self, record: RawRecord) -> Failure | None:
        """Take a record and announce it; return the failure of one to be skipped without an output."""
        self.records += 1
        self.size += record.size
        if self._condemns and self._suspects.is_skipped(record.location):
            logger.critical(
                "%s: SKIPPED without an output: every attempt killed the worker (limits.skip_poison)",
                record.source,
            )
            self._metrics.skipped_poison()
            return self._poison_failure()
        self._suspects.announce(record.location)
        return None

    def release(self, outcomes: Collection[RecordOutcome]) -> None:
        """Make room: the outcomes are committed."""
        self.records -= len(outcomes)
        self.size -= sum(outcome.record.size for outcome in outcomes)

    def clear(self) -> None:
        """Forget all records: the partition's next owner reads those that are not committed."""
        self.records = self.size = 0

    def decode(self, record: RawRecord, taken_at: float) -> TakenRecord:
        """Decode a record, unless it can only become a dead letter."""
        if failure := self._obstacle(record):
            return UndecodableRecord(record, taken_at, failure)
        started = time.monotonic()
        try:
            decoded = decode_scorable(record.value, self._limits.trace_bytes, self._unwrap)
        except InvalidRecordError as error:
            failure = bounded_failure(error.reason, error)
            return UndecodableRecord(record, taken_at, failure, ValueRead(form=error.form))
        finally:
            self._metrics.stage("decode", time.monotonic() - started)
        return DecodedRecord(record, taken_at, decoded, embedding=None)

    async def request_embedding(self, taken: TakenRecord) -> TakenRecord:
        """Return a record with its embedding, once the batcher accepts its text; others as they are."""
        if not isinstance(taken, DecodedRecord) or self._batcher is None:
            return taken
        embedding = await self._batcher.submit(self._text_of(taken))
        return DecodedRecord(taken.record, taken.taken_at, taken.decoded, embedding)

    def _obstacle(self, record: RawRecord) -> Failure | None:
        """Return why a record can only become a dead letter, whatever its value."""
        if self._condemns and self._suspects.is_dead_letter(record.location):
            logger.error(
                "%s: dead-lettered as poison: it killed %d workers in a row",
                record.source,
                self._limits.poison_attempts,
            )
            return self._poison_failure()
        try:
            check_readable(record)
        except InvalidRecordError as error:
            return bounded_failure(error.reason, error)
        return None

    def _poison_failure(self) -> Failure:
        attempts = self._limits.poison_attempts
        return Failure(
            "poison",
            InvalidRecordError.__name__,
            f"{attempts} processes in a row died at this record (limits.poison_attempts)",
        )


def _text_of(taken: DecodedRecord, text: TraceText) -> str:
    return embedding_text(taken.trace, text)


def _words_of(taken: DecodedRecord) -> str:
    """Return a text with the words of the text ``parts``, without decoding a trace that was only checked."""
    if taken.decoded.trace is None:
        text = scan_words(taken.record.value or b"", taken.decoded.scorable.objective)
        if text is not None:
            return text
    return words_text(taken.trace)
