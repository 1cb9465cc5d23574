"""A journal of the records that a worker process is working on, in memory that outlives the process.

The parent creates the memory and passes it to each child in turn. The child notes a record's location before
it decodes, embeds and scores it, and deletes the note afterwards. When the child dies, however
suddenly, the parent reads which records were in progress, and marks them as suspects for the next child.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from mmap import mmap

from knowledgepulse_worker.records.record import Location

ROWS = 16_384
"""Capacity of a table; records beyond it are not noted."""

_ROW = struct.Struct("<iiqq")  # mark (0: a free row), deaths, partition, offset
_TABLE_BYTES = ROWS * _ROW.size
_IN_PROGRESS = 1


class Treatment(IntEnum):
    """The treatment of a suspect, in order of caution."""

    WATCHED = 1
    """Process it like any record."""
    ISOLATED = 2
    """Process it while nothing else is in flight, so that a death can only be due to this record."""
    DEAD_LETTER = 3
    """Publish it as a dead letter without decoding or embedding it."""
    SKIPPED = 4
    """Do not process it."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A record that was in progress when a process died.

    Attributes:
        deaths: the number of processes that died while they gave the record this treatment.
        treatment: how the next process treats the record.
    """

    deaths: int = 0
    treatment: Treatment = Treatment.WATCHED


class Journal:
    """One process's view of the shared memory.

    Args:
        descriptor: the memory's descriptor (see :func:`shared_memory`); by default, the memory is private to
            this process.
    """

    def __init__(self, descriptor: int = -1) -> None:
        memory = memoryview(mmap(descriptor, 2 * _TABLE_BYTES))
        self._in_progress = _Table(memory[:_TABLE_BYTES])
        self._suspects = _Table(memory[_TABLE_BYTES:])
        self._treatments = {location: Treatment(mark) for location, mark, _ in self._suspects}
        self._closed = False

    # --- the child's side

    @property
    def has_suspects(self) -> bool:
        """Whether there is any suspect."""
        return bool(self._treatments)

    @property
    def isolated(self) -> tuple[int, ...]:
        """The partitions with a suspect that is processed while nothing else is in flight."""
        isolated = {one.partition for one, how in self._treatments.items() if how >= Treatment.ISOLATED}
        return tuple(sorted(isolated))

    def treatment(self, location: Location) -> Treatment | None:
        """Return the treatment of a record; None if it is not a suspect."""
        return self._treatments.get(location)

    def begin(self, location: Location) -> None:
        """Mark a record as in progress."""
        if not self._closed:
            self._in_progress.put(location, _IN_PROGRESS)

    def end(self, location: Location) -> None:
        """Mark a record as no longer in progress."""
        if not self._closed:
            self._in_progress.discard(location)

    def end_partition(self, partition: int) -> None:
        """Mark all records of a partition as no longer in progress."""
        for location in [location for location, *_ in self._in_progress if location.partition == partition]:
            self.end(location)

    def forget(self, partition: int, below: int) -> None:
        """Clear the suspects of a partition below a committed offset."""
        for location in [
            one for one in self._treatments if one.partition == partition and one.offset < below
        ]:
            del self._treatments[location]
            self._suspects.discard(location)

    def close(self, *, blames_records: bool = False) -> None:
        """Stop taking notes, since the process is about to exit by itself.

        Args:
            blames_records: whether a record in progress may be the cause; otherwise the notes are deleted.
        """
        if not self._closed:
            self._closed = True
            if not blames_records:
                self._in_progress.clear()

    # --- the parent's side

    def in_progress(self) -> frozenset[Location]:
        """Return the records that were in progress."""
        return frozenset(location for location, *_ in self._in_progress)

    def suspects(self) -> dict[Location, Suspect]:
        """Return the suspects not yet cleared."""
        return {location: Suspect(deaths, Treatment(mark)) for location, mark, deaths in self._suspects}

    def prepare(self, suspects: Mapping[Location, Suspect]) -> None:
        """Prepare the journal for the next child; keep the gravest suspects if they do not all fit."""
        self._in_progress.clear()
        self._suspects.clear()
        for location, suspect in sorted(suspects.items(), key=lambda item: -item[1].treatment):
            self._suspects.put(location, suspect.treatment, suspect.deaths)


class _Table:
    """A table of locations in a region of memory."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._row_of: dict[Location, int] = {}
        self._free: list[int] = []
        for row, (mark, _, *location) in enumerate(_ROW.iter_unpack(memory)):
            if mark:
                self._row_of[Location(*location)] = row
            else:
                self._free.append(row)

    def __iter__(self) -> Iterator[tuple[Location, int, int]]:
        """Yield each location with its mark and death count."""
        for location, row in self._row_of.items():
            mark, deaths, _, _ = _ROW.unpack_from(self._memory, row * _ROW.size)
            yield location, mark, deaths

    def put(self, location: Location, mark: int, deaths: int = 0) -> None:
        row = self._row_of.get(location)
        if row is None:
            if not self._free:
                return
            row = self._row_of[location] = self._free.pop()
        _ROW.pack_into(self._memory, row * _ROW.size, mark, deaths, *location)

    def discard(self, location: Location) -> None:
        row = self._row_of.pop(location, None)
        if row is not None:
            _ROW.pack_into(self._memory, row * _ROW.size, 0, 0, 0, 0)
            self._free.append(row)

    def clear(self) -> None:
        for location in list(self._row_of):
            self.discard(location)


def shared_memory() -> int:
    """Allocate memory for a :class:`Journal`; return its descriptor, which a child can inherit."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("kp-worker")
    else:
        with tempfile.TemporaryFile() as file:  # unnamed, so it leaves nothing behind
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, 2 * _TABLE_BYTES)
    return descriptor
