"""Records that may kill their process: how this process treats them, and what it tells its parent.

A process may die at a record, without a word: in native code, or because memory runs out. The parent outlives
it and knows what it was told through the heartbeat's pipe, whose content survives the writer:

- ``{"below": [partition, offset]}``: from now on, records below this offset may be in progress.
- ``{"alone": [partition, offset]}``: only this record is in progress, until ``{"alone": null}``.
- ``{"committed": [partition, offset]}``: the records below this offset are committed.
- ``{"blameless": true}``: this process is about to exit by itself, and no record is the cause.

After a death, the next process works on the records that may have been in progress one at a time, so that
another death can only be due to one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from knowledgepulse_kafka.records import Location
from knowledgepulse_worker.verdict import Finding

ANNOUNCED_RECORDS = 64
"""The number of records that are announced at once as possibly in progress."""

FULL_PIPE_PAUSE = 0.05
"""Seconds between two attempts to write to a full pipe."""


class Caution(msgspec.Struct, frozen=True):
    """What a process is told about the deaths of those before it.

    Attributes:
        below: by partition, the offset below which records may have been in progress at a death.
        suspects: records that were in progress alone at a death, and are not committed.
        dead_letters: those of them that become dead letters unread.
        skipped: those of them that have no output at all.
        restarts: how often a process has been started again.
        ends: when the last processes ended, in seconds since the epoch, the latest last.
        last_end: how the last process ended; empty for the first one.
        findings: what it had found of itself and may still be true.
    """

    below: dict[int, int] = {}
    suspects: frozenset[Location] = frozenset()
    dead_letters: frozenset[Location] = frozenset()
    skipped: frozenset[Location] = frozenset()
    restarts: int = 0
    ends: tuple[float, ...] = ()
    last_end: str = ""
    findings: tuple[Finding, ...] = ()


class Quarantine:
    """The records that this process works on alone, and its reports to the parent about those in progress.

    Args:
        caution: what is known from earlier deaths.
        send: writes a message to the parent; returns False if the pipe is full.
        most: the largest number of a partition's records that are in flight, ``limits.in_flight_records``.
    """

    def __init__(
        self,
        caution: Caution | None = None,
        send: Callable[[Mapping[str, Any]], bool] = lambda _message: True,
        most: int = 0,
    ) -> None:
        self._caution = caution or Caution()
        self._send = send
        self._below = dict(self._caution.below)
        # An offset means nothing any more if the topic was recreated or the group was reset, so only this
        # many records are alone. One that comes again, after a rebalance, counts once.
        self._most_alone = most + ANNOUNCED_RECORDS
        self._offsets_alone: dict[int, set[int]] = {partition: set() for partition in self._below}
        self._suspects = set(self._caution.suspects)
        self._announced: dict[int, int] = {}
        self._is_closed = False
        self._is_silent = False

    @property
    def any(self) -> bool:
        """Whether there may be a record that is to be processed alone."""
        return bool(self._below or self._suspects)

    @property
    def condemns(self) -> bool:
        """Whether any record becomes a dead letter without being read, or has no output."""
        return bool(self._caution.dead_letters or self._caution.skipped)

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions with a record that was alone in progress at a death."""
        return tuple(sorted({suspect.partition for suspect in self._suspects}))

    def is_alone(self, location: Location) -> bool:
        """Return whether a record is to be processed while no other is."""
        if location in self._suspects:
            return True
        below = self._below.get(location.partition)
        return below is not None and location.offset < below

    def is_dead_letter(self, location: Location) -> bool:
        """Return whether a record becomes a dead letter without being read."""
        return location in self._caution.dead_letters

    def is_skipped(self, location: Location) -> bool:
        """Return whether a record is not processed."""
        return location in self._caution.skipped

    def announce(self, location: Location) -> None:
        """Tell the parent, before a record is read, that it may be in progress."""
        partition, offset = location
        stop = offset + ANNOUNCED_RECORDS
        if offset >= self._announced.get(partition, 0) and self._tell(below=(partition, stop)):
            self._announced[partition] = stop
        if partition in self._below and offset >= self._below[partition]:
            self._pass(partition)

    @asynccontextmanager
    async def alone(self, location: Location) -> AsyncIterator[None]:
        """Tell the parent, before a record is read, that no other is in progress, and when it is scored.

        A record whose processing raised stays in progress; one that was cancelled does not.
        """
        offsets = self._offsets_alone.get(location.partition)
        if offsets is not None:
            offsets.add(location.offset)
            if len(offsets) == self._most_alone:
                self._pass(location.partition)
        await self._told(alone=location)
        try:
            yield
        except asyncio.CancelledError:
            self._tell(alone=None)
            raise
        await self._told(alone=None)

    def committed(self, partition: int, offset: int) -> None:
        """Clear the suspects of a partition below a committed offset."""
        cleared = {
            suspect
            for suspect in self._suspects
            if suspect.partition == partition and suspect.offset < offset
        }
        if cleared and self._tell(committed=(partition, offset)):
            self._suspects -= cleared

    def close(self, *, blames_records: bool = False) -> None:
        """Tell the parent that the process is about to exit by itself; only the first reason counts.

        Args:
            blames_records: whether a record in progress may be the cause; what was told about those stays
                true, so nothing more is told. Otherwise, a record may still kill the process before it exits.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if blames_records:
            self._is_silent = True
        else:
            self._tell(blameless=True)

    def _pass(self, partition: int) -> None:
        """Treat a partition's records as always from now on."""
        del self._below[partition], self._offsets_alone[partition]

    async def _told(self, **message: Any) -> None:
        while not self._tell(**message):  # noqa: ASYNC110 - only the parent makes room
            await asyncio.sleep(FULL_PIPE_PAUSE)

    def _tell(self, **message: Any) -> bool:
        return self._is_silent or self._send(message)
