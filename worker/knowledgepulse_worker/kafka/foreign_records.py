"""Records in a topic of ours that no worker or tool of this release wrote: they must not stop a reader."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from knowledgepulse_worker.kafka.topic_reader import Record

logger = logging.getLogger(__name__)


class ForeignRecords:
    """The foreign records that a reader has skipped.

    Attributes:
        count: their number.
        example: the offset of the first, and why it is foreign.
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
    """Count the records that a reader skips; log once, at the end, how many there were."""
    foreign = ForeignRecords()
    yield foreign
    if foreign.count:
        logger.warning("%s: foreign records skipped: %d, such as %s", topic, foreign.count, foreign.example)
