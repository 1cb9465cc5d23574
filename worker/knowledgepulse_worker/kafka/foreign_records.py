"""Skip foreign records, which no worker or tool of this release wrote, so that they cannot stop a reader."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from knowledgepulse_worker.kafka.topic_reader import Record

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

    def skip(self, record: Record, problem: object) -> None:
        """Count a record."""
        self.count += 1
        self.example = self.example or f"offset {record.offset} ({problem})"


@contextmanager
def skipping_foreign_records(topic: str) -> Iterator[ForeignRecords]:
    """Count the records that a reader skips, and log their number once at the end."""
    foreign = ForeignRecords()
    yield foreign
    if foreign.count:
        logger.warning("%s: foreign records skipped: %d, such as %s", topic, foreign.count, foreign.example)
