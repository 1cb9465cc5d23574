"""What one transaction commits of all lanes, and what follows from how it ends (KIP-98, KIP-447).

A broker that refuses a batch does not say which of its records is at fault, and the transaction is aborted.
Its outcomes are still here, so they are sent again, the refused records in batches of their own. A record
that is refused alone is replaced. The refusals of all partitions are mended at once. The scores of later
records do not change, since the vector of the replaced record stays in the ledger.

While a quota throttles the producer, a transaction is so small that each partition's records are one batch.
A broker answers the first request that exceeds a quota at once, but would read the next one after the
transaction has timed out. So records that were refused together are not sent in batches of their own either,
but half of them follow, until a single record is refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Self

from knowledgepulse_kafka.commit_outcome import CommitOutcome, Committed, Rebalanced, Refused, Throttled
from knowledgepulse_kafka.errors import Refusal
from knowledgepulse_kafka.records import OutputRecord, Position
from knowledgepulse_worker.lane.lane import Lane
from knowledgepulse_worker.lane.replacements import Replacements
from knowledgepulse_worker.lane.stages import Completed
from knowledgepulse_worker.observe.metrics import Metrics

THROTTLED_BYTES = 131_072
"""The size of a transaction while a quota throttles the producer, unless a single record is larger."""


@dataclass(frozen=True)
class _Share:
    """A lane's share of a transaction."""

    lane: Lane
    complete: Sequence[Completed]
    tombstones: list[OutputRecord]
    scores: list[OutputRecord]
    position: Position
    position_record: OutputRecord

    @classmethod
    def of(cls, lane: Lane, complete: Sequence[Completed]) -> Self:
        ledger, record = lane.ledger, complete[-1].scored.record
        position = Position(record.offset + 1, record.topic_id, record.leader_epoch)
        scores = ledger.scores_records(complete)
        return cls(lane, complete, ledger.tombstones(), scores, position, ledger.position_record(position))

    @cached_property
    def records(self) -> list[OutputRecord]:
        outcomes = (record for completed in self.complete for record in completed.records())
        return [*self.tombstones, *outcomes, *self.scores, self.position_record]


@dataclass(frozen=True)
class Prepared:
    """What one transaction is to commit.

    Attributes:
        shares: the lanes' shares of it.
        is_throttled: whether a quota throttles the producer.
        began: when the first attempt was prepared (``time.monotonic``).
        alone: the records that are sent in batches of their own.
        leaves_out: whether lanes with complete records are left for another transaction.
    """

    shares: Sequence[_Share]
    is_throttled: bool
    began: float
    alone: Sequence[OutputRecord] = ()
    leaves_out: bool = False

    @property
    def positions(self) -> Mapping[int, Position]:
        """The next position in each partition of the raw topic."""
        return {share.lane.partition: share.position for share in self.shares}

    @cached_property
    def records(self) -> list[OutputRecord]:
        """The records to publish, in order within each topic and partition."""
        return [record for share in self.shares for record in share.records]

    def mended(self, refusals: Sequence[Refusal], replacements: Replacements) -> Prepared:
        """Return the next attempt, after brokers have refused records of this one.

        Raises:
            DeliveryError: nothing can replace a record.
        """
        shares, together = _replace(self.shares, refusals, replacements)
        if together and self.is_throttled and sum(len(share.complete) for share in shares) > 1:
            share = next(share for share in shares if any(record is together[0] for record in share.records))
            half = _Share.of(share.lane, share.complete[: (len(share.complete) + 1) // 2])
            return replace(self, shares=[half])
        return replace(self, shares=shares, alone=[*self.alone, *together])

    def committed(self, offsets: Sequence[int]) -> None:
        """Tell the lanes what is committed, and where the changelog has it, given the records' offsets."""
        written = iter([*zip(self.records, offsets, strict=True)])
        for share in self.shares:
            changelog, own = share.lane.ledger.topic, islice(written, len(share.records))
            kept = [(offset, record) for record, offset in own if record.topic == changelog]
            share.lane.committed(share.complete, kept)


def prepare(lanes: Sequence[Lane], *, most: int | None = None, is_throttled: bool = False) -> Prepared | None:
    """Return the complete records of lanes, for one transaction; None if there are none.

    Args:
        lanes: the lanes.
        most: the largest number of lanes, of which those whose records are scored longest come first.
        is_throttled: whether to commit only the records that are scored longest.
    """
    ready = [(lane, complete) for lane in lanes if (complete := lane.uncommitted.complete())]
    if not ready:
        return None
    leaves_out = most is not None and len(ready) > most
    if leaves_out:
        ready = sorted(ready, key=_scored_at)[:most]
    chosen = _longest(ready) if is_throttled else ready
    shares = [_Share.of(lane, complete) for lane, complete in chosen]
    return Prepared(shares, is_throttled, time.monotonic(), leaves_out=leaves_out)


def settle(
    prepared: Prepared, outcome: CommitOutcome, replacements: Replacements, metrics: Metrics
) -> Prepared | None:
    """Take note of how a transaction has ended; return what is to be committed in its place, if anything.

    Args:
        prepared: what was to be committed.
        outcome: how the transaction has ended.
        replacements: replaces the records that the broker refused.
        metrics: counts and times the transactions.

    Raises:
        DeliveryError: nothing can replace a refused record, and the process must end.
    """
    match outcome:
        case Committed(offsets):
            metrics.traces.stage("commit", time.monotonic() - prepared.began)
            prepared.committed(offsets)
        case Throttled():
            metrics.lanes.aborted("throttled")
        case Rebalanced():
            metrics.lanes.aborted("rebalance")
        case Refused(error):
            metrics.lanes.aborted("refused")
            return prepared.mended(error.refusals, replacements)
    return None


def _scored_at(share: tuple[Lane, list[Completed]]) -> float:
    return share[1][0].scored.scored_at


def _longest(ready: Sequence[tuple[Lane, list[Completed]]]) -> list[tuple[Lane, list[Completed]]]:
    """Return the records of the lanes that have waited longest, up to :data:`THROTTLED_BYTES`."""
    chosen, size = list[tuple[Lane, list[Completed]]](), 0
    for lane, complete in sorted(ready, key=_scored_at):
        count = 0
        for completed in complete:
            size += sum(record.size for record in completed.records())
            if size > THROTTLED_BYTES and (chosen or count):
                break
            count += 1
        if count:
            chosen.append((lane, complete[:count]))
        if size > THROTTLED_BYTES:
            break
    return chosen


def _replace(
    shares: Sequence[_Share], refusals: Sequence[Refusal], replacements: Replacements
) -> tuple[list[_Share], list[OutputRecord]]:
    """Replace the records that were refused alone; return the shares, and what was refused together.

    The lanes keep the replacements, too, for a later transaction if this one is not repeated.

    Raises:
        DeliveryError: nothing can replace a record.
    """
    batches = [[*share.complete] for share in shares]
    places = {
        id(record): (share.lane, batch, number)
        for share, batch in zip(shares, batches, strict=True)
        for number, completed in enumerate(batch)
        for record in completed.records()
    }
    together: list[OutputRecord] = []
    for refusal in refusals:
        first, *others = refusal.records
        if others:
            together += refusal.records
        elif (place := places.get(id(first))) is not None:
            lane, batch, number = place
            batch[number] = replacements.replace(batch[number], first, refusal.cause)
            lane.uncommitted.replace(number, batch[number])
        else:
            raise refusal.cause  # a tombstone, last scores or a position
    mended = [
        share if batch == share.complete else replace(share, complete=batch)
        for share, batch in zip(shares, batches, strict=True)
    ]
    return mended, together
