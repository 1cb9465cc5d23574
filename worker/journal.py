"""The records that a worker's process is working on, in memory that outlives the process.

The parent creates the memory and hands it to each child in turn. The child notes a record's place before it
decodes, embeds, scores or sends it, and deletes the note afterwards. So when the child dies, however
suddenly, the parent reads what it was working on, and tells the next child which records are suspects.
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
from typing import NamedTuple

ROWS = 16_384
"""Notes that a table holds; what is worked on beyond that goes without one."""

_ROW = struct.Struct("<iiqq")  # mark (0: a free row), deaths, partition, offset
_TABLE_BYTES = ROWS * _ROW.size


class Place(NamedTuple):
    """A record's place in the raw topic."""

    partition: int
    offset: int


class Treatment(IntEnum):
    """How a suspect is treated, each step more careful than the one before."""

    WATCHED = 1
    """Like any record."""
    ALONE = 2
    """While nothing else is in flight in the process, so that a death at it is its own."""
    BURIED = 3
    """As a dead letter, neither decoded nor embedded."""
    SKIPPED = 4
    """Not at all."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A record that a process died at.

    Attributes:
        deaths: how many processes in a row died at it under this treatment.
        treatment: by the next process.
    """

    deaths: int = 0
    treatment: Treatment = Treatment.WATCHED


class Phase(IntEnum):
    """What is being done to a record."""

    COMPUTING = 1
    SENDING = 2
    """To the client, which may wait for the broker."""


class Journal:
    """The shared memory, as one process sees it.

    Args:
        descriptor: of the memory, see :func:`shared_memory`; by default memory of this process's own.
    """

    def __init__(self, descriptor: int = -1) -> None:
        memory = memoryview(mmap(descriptor, 2 * _TABLE_BYTES))
        self._in_progress = _Table(memory[:_TABLE_BYTES])
        self._suspects = _Table(memory[_TABLE_BYTES:])
        self._treatments = {place: Treatment(mark) for place, mark, _ in self._suspects}
        self._closed = False

    # --- the child's side

    @property
    def has_suspects(self) -> bool:
        """Whether any record is to be treated with care."""
        return bool(self._treatments)

    def treatment(self, place: Place) -> Treatment | None:
        """Return how to treat a record; None when it is no suspect."""
        return self._treatments.get(place)

    def begin(self, place: Place, phase: Phase = Phase.COMPUTING) -> None:
        """Note that work on a record begins."""
        if not self._closed:
            self._in_progress.put(place, phase)

    def end(self, place: Place) -> None:
        """Note that it has ended well."""
        if not self._closed:
            self._in_progress.discard(place)

    def end_partition(self, partition: int) -> None:
        """Note that a partition is no longer worked on."""
        for place in [place for place, *_ in self._in_progress if place.partition == partition]:
            self.end(place)

    def forget(self, partition: int, below: int) -> None:
        """Clear the suspects of a partition below a committed offset."""
        for place in [one for one in self._treatments if one.partition == partition and one.offset < below]:
            del self._treatments[place]
            self._suspects.discard(place)

    def close(self, blamed: frozenset[Phase] = frozenset()) -> None:
        """Take no more notes: the process is about to end by itself.

        Args:
            blamed: what happened to records in these phases is why; all other notes are deleted.
        """
        if not self._closed:
            self._closed = True
            for place, mark, _ in list(self._in_progress):
                if mark not in blamed:
                    self._in_progress.discard(place)

    # --- the parent's side

    def in_progress(self) -> frozenset[Place]:
        """Return what was being worked on."""
        return frozenset(place for place, *_ in self._in_progress)

    def suspects(self) -> dict[Place, Suspect]:
        """Return the suspects that are not cleared."""
        return {place: Suspect(deaths, Treatment(mark)) for place, mark, deaths in self._suspects}

    def prepare(self, suspects: Mapping[Place, Suspect]) -> None:
        """Make ready for the next child, with these suspects; the gravest if there are too many."""
        self._in_progress.clear()
        self._suspects.clear()
        for place, suspect in sorted(suspects.items(), key=lambda item: -item[1].treatment):
            self._suspects.put(place, suspect.treatment, suspect.deaths)


class _Table:
    """Rows of places in a stretch of memory."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._row_of: dict[Place, int] = {}
        self._free: list[int] = []
        for row, (mark, _, *place) in enumerate(_ROW.iter_unpack(memory)):
            if mark:
                self._row_of[Place(*place)] = row
            else:
                self._free.append(row)

    def __iter__(self) -> Iterator[tuple[Place, int, int]]:
        """Yield each place with its mark and its deaths."""
        for place, row in self._row_of.items():
            mark, deaths, _, _ = _ROW.unpack_from(self._memory, row * _ROW.size)
            yield place, mark, deaths

    def put(self, place: Place, mark: int, deaths: int = 0) -> None:
        row = self._row_of.get(place)
        if row is None:
            if not self._free:
                return
            row = self._row_of[place] = self._free.pop()
        _ROW.pack_into(self._memory, row * _ROW.size, mark, deaths, *place)

    def discard(self, place: Place) -> None:
        row = self._row_of.pop(place, None)
        if row is not None:
            _ROW.pack_into(self._memory, row * _ROW.size, 0, 0, 0, 0)
            self._free.append(row)

    def clear(self) -> None:
        for place in list(self._row_of):
            self.discard(place)


def shared_memory() -> int:
    """Return the descriptor of new memory for a :class:`Journal`, to be passed on to a child."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("kp-worker")
    else:
        with tempfile.TemporaryFile() as file:  # without a name, so that nothing is left behind
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, 2 * _TABLE_BYTES)
    return descriptor
