"""The ledgers of the owned partitions, as a Faust table whose changelog they live in.

Faust brings them back after a rebalance (:meth:`LedgerStore.apply_changelog_batch`); the lanes write the
changelog themselves, since only so does each entry have its own confirmation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import faust
from faust.stores.base import Store
from faust.types import TP, AppT, EventT, StoreT, TopicT

from worker.errors import LedgerError
from worker.stream.ledger import Changelog
from worker.stream.topics import LEDGER, changelog_topic_name


def raw_bytes_topic(app: AppT, name: str, partitions: int) -> TopicT:
    """Return a topic whose keys and values Faust leaves alone; what it cannot decode it drops."""
    return app.topic(
        name,
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
        partitions=partitions,
        acks=False,  # Faust would keep the offset of every record that it was told of, for good
    )


class LedgerStore(Store[bytes, bytes]):
    """Keeps each partition's changelog apart, with the place up to which it was read.

    Faust's own memory store keeps the keys of partitions that moved away, and no place.

    Args:
        on_failure: told when the changelog cannot be read; Faust itself would log that and wait for ever.
    """

    def __init__(self, *args: Any, on_failure: Callable[[BaseException], None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._on_failure = on_failure
        self._changelogs: dict[int, Changelog] = {}

    def changelog(self, partition: int) -> Changelog:
        """Return a partition's changelog, empty when nothing was read."""
        return self._changelogs.setdefault(partition, Changelog())

    def apply_changelog_batch(
        self,
        batch: Iterable[EventT[Any]],
        to_key: Callable[[Any], Any],
        to_value: Callable[[Any], Any],
    ) -> None:
        """Take over what Faust read."""
        try:
            for event in batch:
                message = event.message
                self.changelog(message.partition).apply(message.offset, message.key, message.value)
        except LedgerError as error:
            self._on_failure(error)

    def persisted_offset(self, tp: TP) -> int | None:
        """Return the place up to which a changelog partition is known: Faust reads on from there."""
        return self.changelog(tp.partition).position

    async def on_rebalance(
        self,
        assigned: set[TP],
        revoked: set[TP],
        newly_assigned: set[TP],
        generation_id: int = 0,
    ) -> None:
        """Forget what others will write to from now on."""
        for tp in revoked | newly_assigned:
            self._changelogs.pop(tp.partition, None)

    def reset_state(self) -> None:
        """Forget everything."""
        self._changelogs.clear()

    async def backup_partition(
        self, tp: TP | int, flush: bool = True, purge: bool = False, keep: int = 1
    ) -> None:
        """Do nothing: the changelog is the backup."""

    def restore_backup(self, tp: TP | int, latest: bool = True, backup_id: int = 0) -> None:
        """Do nothing: the changelog is the backup."""


class LedgerTable(faust.Table[bytes, bytes]):
    """The Faust table that owns the changelog topic."""

    def __init__(self, app: AppT, partitions: int, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        super().__init__(
            app,
            name=LEDGER,
            key_type=bytes,
            value_type=bytes,
            partitions=partitions,
            # The topic is made by `kp-worker topics` with settings of its own, so Faust need not declare it.
            changelog_topic=raw_bytes_topic(app, changelog_topic_name(app.conf.id), partitions),
        )

    def _new_store(self) -> StoreT[bytes, bytes]:
        return LedgerStore("ledger://", self.app, self, loop=self.loop, on_failure=self._on_failure)

    def changelog(self, partition: int, recovered_to: int) -> Changelog:
        """Return a partition's changelog.

        Args:
            partition: its number.
            recovered_to: the last offset that recovery had to reach; -1 for an empty changelog.

        Raises:
            LedgerError: recovery stopped short of it. Faust logs errors of recovery and goes on.
        """
        changelog = cast("LedgerStore", self.data).changelog(partition)
        if recovered_to > (-1 if changelog.position is None else changelog.position):
            raise LedgerError(
                f"partition {partition}: the ledger was read up to {changelog.position}, "
                f"its changelog ends at {recovered_to}"
            )
        return changelog
