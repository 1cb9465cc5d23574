"""Read a record: what a score takes of its value, and the text to embed; or why it cannot be read."""

from __future__ import annotations

import logging
import time
from functools import partial

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.lane.stages import DecodedRecord, TakenRecord, UndecodableRecord, bounded_failure
from knowledgepulse_worker.observe.trace_metrics import TraceMetrics
from knowledgepulse_worker.process.quarantine import Quarantine
from knowledgepulse_worker.records.decode import check_readable, decode_scorable
from knowledgepulse_worker.records.ledger_records import Failure
from knowledgepulse_worker.records.scanned_traces import scan_words
from knowledgepulse_worker.records.wrapping import ValueRead
from knowledgepulse_worker.scoring import TraceText, embedding_text, words_text
from knowledgepulse_worker.settings import Settings

logger = logging.getLogger(__name__)


class RecordReader:
    """Reads the records of all lanes.

    Args:
        settings: the limits, how values are read, and which text of a trace is embedded.
        quarantine: the records that may kill the process.
        metrics: times the decoding.
    """

    def __init__(self, settings: Settings, quarantine: Quarantine, metrics: TraceMetrics) -> None:
        self._limits = settings.limits
        self._unwrap = settings.records.unwrap
        text = settings.embedding.trace_text
        reads_words = settings.embedding.backend == "lexical" and text == "parts"
        self._text_of = _words_of if reads_words else partial(_text_of, text=text)
        self._quarantine = quarantine
        self._condemns = quarantine.condemns  # which never changes
        self._metrics = metrics

    def skipped(self, record: RawRecord) -> Failure | None:
        """Return the failure of a record that is to be skipped without an output; None for others."""
        if not self._condemns or not self._quarantine.is_skipped(record.location):
            return None
        logger.critical(
            "%s: SKIPPED without an output: every attempt killed the worker (limits.skip_poison)",
            record.source,
        )
        self._metrics.skipped_poison()
        return self._poison_failure()

    def read(self, record: RawRecord, taken_at: float) -> TakenRecord:
        """Decode a record, unless it can only become a dead letter."""
        if self._condemns and self._quarantine.is_dead_letter(record.location):
            logger.error(
                "%s: dead-lettered as poison: it killed %d workers in a row",
                *(record.source, self._limits.poison_attempts),
            )
            return UndecodableRecord(record, taken_at, self._poison_failure())
        try:
            check_readable(record)
        except InvalidRecordError as error:
            return UndecodableRecord(record, taken_at, bounded_failure(error.reason, error))
        started = time.monotonic()
        try:
            decoded = decode_scorable(record.value, self._limits.trace_bytes, self._unwrap)
        except InvalidRecordError as error:
            failure = bounded_failure(error.reason, error)
            return UndecodableRecord(record, taken_at, failure, ValueRead(form=error.form))
        finally:
            self._metrics.stage("decode", time.monotonic() - started)
        return DecodedRecord(record, taken_at, decoded, embedding=None)

    def text(self, taken: DecodedRecord) -> str:
        """Return the text of a trace that is embedded."""
        return self._text_of(taken)

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
