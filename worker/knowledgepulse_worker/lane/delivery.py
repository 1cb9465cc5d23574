"""Deliver entries and outputs, including those that the broker rejects.

A rejected batch does not tell which of its records was at fault, so its records are sent again individually.
An output that is rejected alone becomes a dead letter, and a rejected dead letter is cut down to fit.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from msgspec.structs import replace as replace_fields

from knowledgepulse_worker.errors import TimestampError, TooLargeError
from knowledgepulse_worker.lane.ring import Changelog, Ledger
from knowledgepulse_worker.lane.stages import Confirmed, Published, Remembered, Scored
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.records.entry import Entry, Failure
from knowledgepulse_worker.records.outputs import Outputs, with_current_timestamp
from knowledgepulse_worker.records.publisher import Publisher, retrieve_exception
from knowledgepulse_worker.records.record import NO_TIMESTAMP, OutputRecord, RawRecord


class Delivery:
    """Sends a partition's entries and outputs.

    Args:
        partition: the partition's number.
        changelog: receives every entry and tombstone that the broker confirms.
        changelog_topic: the name of the changelog topic.
        ledger: updated when an outcome changes to a dead letter.
        outputs: builds dead letters.
        publisher: sends everything.
        metrics: counts retries.
    """

    def __init__(
        self,
        partition: int,
        changelog: Changelog,
        changelog_topic: str,
        ledger: Ledger,
        outputs: Outputs,
        publisher: Publisher,
        metrics: Metrics,
    ) -> None:
        self._partition = partition
        self._changelog = changelog
        self._changelog_topic = changelog_topic
        self._ledger = ledger
        self._outputs = outputs
        self._publisher = publisher
        self._metrics = metrics

    async def send(self, record: OutputRecord) -> asyncio.Future[int]:
        """Send a record; the future resolves to its offset once the broker has confirmed it."""
        delivery = await self._publisher.send(record)
        delivery.add_done_callback(retrieve_exception)
        return delivery

    async def send_entry(self, scored: Scored) -> asyncio.Future[int] | None:
        """Send a record's entry, unless it is already in the changelog."""
        if scored.entry_value is None:
            return None
        return await self._send_to_changelog(scored.entry.offset, scored.entry_value)

    async def send_tombstones(self, offsets: list[int]) -> None:
        """Delete entries from the changelog; a failed deletion is repeated at the next start."""
        for offset in offsets:
            await self._send_to_changelog(offset, None)

    async def confirm_entry(self, remembered: Remembered) -> Scored:
        """Wait for the confirmation of a record's entry.

        Returns:
            the record; a dead letter if the changelog rejected its entry.

        Raises:
            DeliveryError: the broker did not confirm the entry.
        """
        scored = remembered.scored
        if remembered.delivery is None or scored.entry_value is None:
            return scored
        try:
            await remembered.delivery
        except (TooLargeError, TimestampError):
            self._metrics.retried()
            try:
                await self._write_entry(scored.entry.offset, scored.entry_value)
            except TooLargeError as error:
                # The new entry leaves out the parts of variable size.
                small = await self._bury(scored.entry, error, trace_id=None, score=None)
                return replace(scored, entry=small)
        return scored

    async def confirm_output(self, published: Published) -> Confirmed:
        """Wait for the confirmation of a record's output.

        Raises:
            DeliveryError: the broker did not confirm the output.
        """
        scored = published.scored
        entry, output = await self._confirm(scored.record, scored.entry, published)
        return Confirmed(scored, entry, output, published.sent_at)

    async def _confirm(
        self, record: RawRecord, entry: Entry, published: Published
    ) -> tuple[Entry, OutputRecord]:
        output = published.output
        try:
            await published.delivery
        except (TooLargeError, TimestampError):
            self._metrics.retried()
        else:
            return entry, output
        try:
            return entry, await self.send_alone(output)
        except TooLargeError as error:
            if entry.failure is None:
                entry = await self._bury(entry, error)
                with suppress(TooLargeError):
                    return entry, await self.send_alone(self._outputs.build(record, entry))
        return entry, await self.send_alone(self._outputs.build_cut(record, entry))

    async def send_alone(self, output: OutputRecord) -> OutputRecord:
        """Send an output alone, with the current time if its own is rejected, and return the sent record.

        Raises:
            TooLargeError: the output is too large for its topic.
            DeliveryError: the broker did not confirm it.
        """
        try:
            await self._publisher.send_alone(output)
        except TimestampError:
            output = with_current_timestamp(output)
            await self._publisher.send_alone(output)
        return output

    async def _bury(self, entry: Entry, error: TooLargeError, **left_out: None) -> Entry:
        """Turn an entry into a dead letter's, which keeps the vector, and write it before the dead letter."""
        failure = Failure("too_large", type(error).__name__, str(error))
        dead = replace_fields(entry, decision=None, failure=failure, **left_out)
        value, _ = self._ledger.put(dead)
        await self._write_entry(dead.offset, value)
        return dead

    async def _write_entry(self, offset: int, value: bytes) -> None:
        changelog_offset = await self._publisher.send_alone(self._entry_record(offset, value))
        self._changelog.confirmed(changelog_offset, offset, value)

    async def _send_to_changelog(self, offset: int, value: bytes | None) -> asyncio.Future[int]:
        """Send an entry or a tombstone, and pass it to the changelog once the broker confirms it."""

        def confirmed(delivery: asyncio.Future[int]) -> None:
            if not delivery.cancelled() and delivery.exception() is None:
                self._changelog.confirmed(delivery.result(), offset, value)

        delivery = await self.send(self._entry_record(offset, value))
        delivery.add_done_callback(confirmed)
        return delivery

    def _entry_record(self, offset: int, value: bytes | None) -> OutputRecord:
        return OutputRecord(
            topic=self._changelog_topic,
            partition=self._partition,
            timestamp_ms=NO_TIMESTAMP,
            key=b"%d" % offset,
            value=value,
            headers=(),
        )
