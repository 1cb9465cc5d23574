"""Play histories of processes that publish records and commit positions in the same transaction."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from simulation.player import LIVENESS, Player


class TransactionalPlayer(Player):
    """Plays a history whose records are finished when the group's positions have passed them."""

    SOURCES: ClassVar[tuple[str, ...]]
    """The topics that are read."""

    def __init__(self, history, keep_log=False):
        super().__init__(history, keep_log)
        self.oracles = self

    @abstractmethod
    def check(self):
        """Check the result."""

    async def _finish(self):
        await self._stop_all()
        if not await self._until(lambda: self.cluster.transactions.have_ended, LIVENESS):
            self.violated("liveness: a transaction did not end")

    def _committing(self, positions, member):
        super()._committing(positions, member)
        for at, (offset, _) in positions.items():
            if offset < self._position(*at):
                self.violated(f"monotonic commits: {at[0]}/{at[1]} back to {offset}")

    def _position(self, topic, partition):
        position = self.cluster.group.committed.get((topic, partition))
        return 0 if position is None else position.offset

    def _unfinished(self):
        for topic in self.SOURCES:
            for partition, records in self.cluster.committed_records(topic).items():
                if records and self._position(topic, partition) <= records[-1].offset:
                    yield f"{topic}/{partition}"

    def unfinished(self):
        """Name the partitions with records that the group's position has not passed."""
        return ", ".join(self._unfinished())

    def all_finished(self):
        return not any(self._unfinished())
