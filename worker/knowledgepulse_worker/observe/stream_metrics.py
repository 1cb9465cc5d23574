"""What the stream counts: the worker's state, its partitions, and what it reads of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.observe.metric_registry import Makers, make_waiting, set_waiting, start_at_zero
from knowledgepulse_worker.verdict import STATE_HELP, State

QUOTAS = ("producer", "consumer")
PARTITIONERS = ("murmur2", "other")


class StreamMetrics:
    """The metrics of the stream.

    Args:
        make: makes the metrics.
    """

    def __init__(self, make: Makers) -> None:
        self._create_state(make)
        self._create_partitions(make)
        self._create_offsets(make)
        self.set_states({State.STARTING})

    def _create_state(self, make: Makers) -> None:
        self._build = make.gauge(
            "kp_build_info",
            "Version, model, precision and device of this worker",
            ["version", "model", "precision", "device"],
        )
        self._restarts = make.counter("kp_restarts", "Starts of the worker's process after it had ended")
        self._state = make.gauge("kp_state", STATE_HELP, ["state"])
        self._waiting = make_waiting(make)
        self._throttled = make.counter(
            "kp_throttled_seconds", "Seconds for which brokers throttled a client by a quota", ["quota"]
        )
        start_at_zero(self._throttled, QUOTAS)

    def _create_partitions(self, make: Makers) -> None:
        partitions = make.gauge("kp_partitions", "Partitions of the raw topic", ["state"])
        self._partitions_of = start_at_zero(partitions, ("owned", "topic"))
        self._rebalances = make.counter("kp_rebalances", "Rebalances of the group")
        self._lag = make.gauge(
            "kp_consumer_lag_records",
            "Offsets up to the end of the partition that are neither committed nor passed over",
            ["partition"],
        )
        self._held_back = make.gauge(
            "kp_open_transaction_records", "Offsets held back by open transactions", ["partition"]
        )
        self._recovery = make.gauge(
            "kp_recovery_remaining_records", "Ledger records still to be read", ["partition"]
        )

    def _create_offsets(self, make: Makers) -> None:
        self._skipped = make.counter(
            "kp_skipped_offsets",
            "Offsets of the raw topic that no worker read, because they were deleted or passed over",
        )
        self._read_again = make.counter(
            "kp_truncated_offsets", "Offsets scored again because a leader election replaced their records"
        )
        keys = make.counter(
            "kp_sampled_keys",
            "Keys of one record in eight, by whether Kafka's default partitioner chooses their partition",
            ["partitioner"],
        )
        self._sampled_keys_of = start_at_zero(keys, PARTITIONERS)

    def set_build_info(self, version: str, model: str, precision: str, device: str) -> None:
        """Set the labels of ``kp_build_info``."""
        self._build.labels(version, model, precision, device).set(1)

    def restarted(self, times: int) -> None:
        """Count the restarts before this process."""
        self._restarts.inc(times)

    def set_states(self, states: Collection[State]) -> None:
        """Set the states that the worker's verdict names."""
        for possible in State:
            self._state.labels(possible).set(possible in states)

    def waiting(self, waits: Mapping[Wait, float]) -> None:
        """Set what the worker waits for, and for how many seconds it has been in the state of each wait."""
        set_waiting(self._waiting, waits)

    def throttled(self, quota: str, seconds: float) -> None:
        """Count the seconds for which a broker throttles a client of the quota's kind."""
        self._throttled.labels(quota).inc(seconds)

    def set_partitions(self, count: int) -> None:
        """Set the number of the raw topic's partitions."""
        self._partitions_of["topic"].set(count)

    def assigned(self, count: int) -> None:
        """Count a rebalance, and set the number of partitions that are owned after it."""
        self._rebalances.inc()
        self._partitions_of["owned"].set(count)

    def lag(self, partition: int, records: int) -> None:
        """Set the number of offsets between a partition's position and its end."""
        self._lag.labels(partition).set(records)

    def held_back(self, partition: int, records: int) -> None:
        """Set the number of a partition's offsets that open transactions hold back."""
        self._held_back.labels(partition).set(records)

    def recovering(self, partition: int, remaining: int) -> None:
        """Set the number of a partition's ledger records still to be read."""
        self._recovery.labels(partition).set(remaining)

    def partition_left(self, partition: int) -> None:
        """Remove the series of a partition that is no longer owned."""
        for gauge in (self._lag, self._held_back, self._recovery):
            gauge.remove_by_labels({"partition": str(partition)})

    def skipped(self, offsets: int) -> None:
        """Count offsets that no worker reads."""
        self._skipped.inc(offsets)

    def truncated(self, offsets: int) -> None:
        """Count offsets that are read again because a leader election replaced their records."""
        self._read_again.inc(offsets)

    def placed(self, *, elsewhere: bool) -> None:
        """Count a key by whether it is in another partition than Kafka's default partitioner chooses."""
        self._sampled_keys_of["other" if elsewhere else "murmur2"].inc()
