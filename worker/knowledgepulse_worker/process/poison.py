"""Find the records that kill worker processes, from what the processes told before they died.

The first death tells only which records may have been in progress. The next process works on these one at a
time, so that every further death tells which record was in progress alone. A record that merely happens to be
in progress when a process is killed is cleared when the next process commits it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from knowledgepulse_kafka.records import Location
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.process.quarantine import Caution

logger = logging.getLogger(__name__)


class PoisonSearch:
    """Remembers the deaths of a supervisor's processes.

    Args:
        attempts: the number of deaths after which a record becomes a dead letter; after as many more, it is
            skipped.
        skip: whether a record may be skipped.
    """

    def __init__(self, attempts: int, *, skip: bool) -> None:
        self._attempts = attempts
        self._skip = skip
        self._below: dict[int, int] = {}
        self._deaths: Counter[Location] = Counter()
        self._dead_letters: set[Location] = set()
        self._skipped: set[Location] = set()
        self._begin()

    def _begin(self) -> None:
        """Forget what the last process told about itself."""
        self._announced: dict[int, int] = {}
        self._alone: Location | None = None
        self._took_records = False
        self._blames_records = True

    def caution(self) -> Caution:
        """Return what the next process is told."""
        return Caution(
            below=dict(self._below),
            suspects=frozenset(self._deaths),
            dead_letters=frozenset(self._dead_letters),
            skipped=frozenset(self._skipped),
        )

    def read(self, message: Mapping[str, Any]) -> None:
        """Read a message of the current process; see :mod:`knowledgepulse_worker.process.quarantine`."""
        match message:
            case {"below": [partition, offset]}:
                self._took_records = True
                self._announced[partition] = offset
            case {"alone": None}:
                self._alone = None
            case {"alone": [partition, offset]}:
                self._took_records = True
                self._alone = Location(partition, offset)
            case {"committed": [partition, offset]}:
                self._clear(partition, offset)
            case {"blameless": True}:
                self._blames_records = False

    def end(self, *, was_killed: bool) -> bool:
        """Draw the conclusions from the end of the current process.

        Args:
            was_killed: whether a signal ended it; then its word that no record is the cause does not count.

        Returns:
            whether it had begun to work on records.
        """
        took_records, alone = self._took_records, self._alone
        if self._blames_records or was_killed:
            for partition, offset in self._announced.items():
                # Another death may have been further ahead, at records that were not yet reached again.
                self._below[partition] = max(offset, self._below.get(partition, 0))
            if alone is not None:
                self._count(alone)
            elif took_records:
                logger.warning("the worker died; the next one works on what was in progress record by record")
        self._begin()
        return took_records

    def _clear(self, partition: int, below: int) -> None:
        for location in [
            death for death in self._deaths if death.partition == partition and death.offset < below
        ]:
            del self._deaths[location]
            self._dead_letters.discard(location)
            self._skipped.discard(location)

    def _count(self, location: Location) -> None:
        """Count a death at a record that was in progress alone."""
        self._deaths[location] += 1
        deaths = self._deaths[location]
        where = f"partition {location.partition}, offset {location.offset}"
        if location in self._dead_letters and self._skip and deaths >= self._attempts:
            logger.critical("%s: killed the worker even as a dead letter; it will be skipped", where)
            self._skipped.add(location)
        elif location in self._dead_letters:
            logger.critical(
                "%s: killed the worker even as a dead letter; limits.skip_poison would skip it "
                "after %d such deaths",
                *(where, self._attempts),
            )
        # It may have been in progress at the death before, too, since it was processed alone.
        elif deaths >= max(1, self._attempts - 1):
            logger.error("%s: killed %d workers; it will become a dead letter", where, deaths + 1)
            self._dead_letters.add(location)
            self._deaths[location] = 0
        else:
            logger.warning(
                "%s: %s died while this record was in progress alone", where, counted(deaths, "worker")
            )
