"""Skip foreign records, which no worker or tool of this release wrote, so that they cannot stop a reader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


class ForeignRecords:
    """The foreign records that a reader has skipped.

    Attributes:
        count: the number of skipped records.
        example: the offset of the first skipped record and why it is foreign; empty if none was skipped.
    """

    def __init__(self) -> None:
        self.count = 0
        self.example = ""

    def decoded(self, record: Record, decode: Callable[[Record], Value]) -> Value | None:
        """Decode a record; count it and return None if it is foreign."""
        try:
            return decode(record)
        except (InputError, ValueError, *DECODE_ERRORS) as error:
            self.count += 1
            self.example = self.example or f"offset {record.offset} ({error})"
            return None


@contextmanager
def skipping_foreign_records(topic: str, remedy: str = "") -> Iterator[ForeignRecords]:
    """Count the records that a reader skips, and log their number once at the end, with a remedy if any."""
    foreign = ForeignRecords()
    yield foreign
    if foreign.count:
        logger.warning(
            "%s: foreign records skipped: %d, such as %s%s", topic, foreign.count, foreign.example, remedy
        )
