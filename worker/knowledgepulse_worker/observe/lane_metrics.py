"""What lanes count of themselves: records in flight, transactions and ledgers."""

from __future__ import annotations

from typing import Literal, get_args

from knowledgepulse_worker.observe.metric_registry import Makers, start_at_zero

WaitedFor = Literal["output", "interval", "transaction", "backlog", "brokers", "room"]
"""What the begin of a transaction waited for.

- ``output``: for an output, and for nothing else.
- ``interval``: for ``kafka.commit_min_interval``.
- ``transaction``: for four times the duration of the last one.
- ``backlog``: for ``kafka.commit_interval``, since records waited to be scored.
- ``brokers``: likewise, since a quota throttled the producer, or nothing could be committed.
- ``room``: until a lane had no room left.
"""
WAITED_FOR: tuple[WaitedFor, ...] = get_args(WaitedFor)
AbortReason = Literal["refused", "rebalance", "throttled"]
ABORT_REASONS: tuple[AbortReason, ...] = get_args(AbortReason)
RESET_REASONS = ("model", "rewind", "recreated", "lost")


class LaneMetrics:
    """The metrics of lanes.

    Args:
        make: makes the metrics.
    """

    def __init__(self, make: Makers) -> None:
        self._in_flight = make.gauge(
            "kp_in_flight_records", "Fetched records whose output is not committed yet"
        )
        self._in_flight_bytes = make.gauge(
            "kp_in_flight_bytes", "Bytes of fetched records whose output is not committed yet"
        )
        self._in_flight_limit = make.gauge(
            "kp_in_flight_records_limit", "Maximum number of records in flight, over all owned partitions"
        )
        self._in_flight_bytes_limit = make.gauge(
            "kp_in_flight_bytes_limit", "Maximum number of bytes in flight, over all owned partitions"
        )
        self._aborted = make.counter(
            "kp_aborted_transactions", "Transactions of outputs that were aborted, by reason", ["reason"]
        )
        transactions = make.counter(
            "kp_transactions",
            "Transactions of outputs that were committed, by what their begin waited for",
            ["waited_for"],
        )
        self._transactions_after = start_at_zero(transactions, WAITED_FOR)
        self._last_commit = make.gauge(
            "kp_last_commit_timestamp_seconds", "Time of the partition's last commit", ["partition"]
        )
        self._cache_entries = make.gauge(
            "kp_novelty_cache_entries", "Vectors in the novelty cache", ["partition"]
        )
        self._cache_resets = make.counter(
            "kp_cache_resets",
            "Ledgers from which invalid entries were cut, or that the changelog has lost",
            ["reason"],
        )
        start_at_zero(self._aborted, ABORT_REASONS)
        start_at_zero(self._cache_resets, RESET_REASONS)

    def limited(self, records: int, size: int) -> None:
        """Set the largest number of records and bytes in flight, over all owned partitions."""
        self._in_flight_limit.set(records)
        self._in_flight_bytes_limit.set(size)

    def in_flight(self, records: int, size: int) -> None:
        """Set the number of records and bytes in flight, over all owned partitions."""
        self._in_flight.set(records)
        self._in_flight_bytes.set(size)

    def aborted(self, reason: AbortReason) -> None:
        """Count a transaction that was aborted."""
        self._aborted.labels(reason).inc()

    def transaction(self, waited_for: WaitedFor) -> None:
        """Count a transaction that is committed."""
        self._transactions_after[waited_for].inc()

    def committed(self, partition: int, at: float) -> None:
        """Set the time of a partition's last commit, in seconds since the epoch."""
        self._last_commit.labels(partition).set(at)

    def cache_size(self, partition: int, size: int) -> None:
        """Set the number of vectors in a partition's cache."""
        self._cache_entries.labels(partition).set(size)

    def cache_reset(self, reason: str) -> None:
        """Count a ledger that was cut."""
        self._cache_resets.labels(reason).inc()

    def partition_left(self, partition: int) -> None:
        """Remove the series of a partition that is no longer owned."""
        for gauge in (self._cache_entries, self._last_commit):
            gauge.remove_by_labels({"partition": str(partition)})
