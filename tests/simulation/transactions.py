"""The coordinator of transactions (KIP-98); brokers accept batches only for open transactions (KIP-890)."""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiokafka.errors import (
    ConcurrentTransactions,
    GroupLoadInProgressError,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    NotCoordinatorForGroupError,
)
from aiokafka.structs import OffsetAndMetadata

from simulation.group import Place

if TYPE_CHECKING:
    from simulation.brokers import Cluster

GROUP: Place = ("__consumer_offsets", 0)
"""Where a transaction's offsets are written."""
_PAUSE = 0.05


@dataclass
class Transaction:
    """The coordinator's state of a transactional id.

    Attributes:
        epoch: the epoch of the current producer; earlier producers are fenced off.
        state: "empty", "open", "ending" until all markers are written, or "ended".
        commits: whether the current or last transaction is committed.
        places: the partitions to which the transaction has written or may soon write.
        offsets: the positions that the transaction commits for the group.
    """

    id: str
    timeout: float
    epoch: int = -1
    state: str = "empty"
    commits: bool = False
    places: set[Place] = field(default_factory=set)
    offsets: dict[Place, OffsetAndMetadata] = field(default_factory=dict)
    expiry: asyncio.TimerHandle | None = None


class Transactions:
    """The coordinator of all transactional ids.

    Attributes:
        is_slow: whether some markers are written seconds later.
        on_rest: called whenever all markers of the transactions that have ended are written.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._coordinator = 0
        self._cluster = cluster
        self._loading_until = 0.0
        self._known = {}
        self.is_slow = False
        self.on_rest = lambda: None

    @property
    def coordinator(self):
        """The broker that is the coordinator; if it is down, the next one takes over."""
        if self._coordinator in self._cluster.network.down:
            self.move(0.5)
        return self._coordinator

    def move(self, loading):
        """Move to the next broker, which loads the state."""
        self._coordinator = (self._coordinator + 1) % self._cluster.count
        self._loading_until = self._cluster.loop.time() + loading

    def require(self, name, epoch, place):
        """Return the open transaction that writes to a partition.

        Raises:
            KafkaError: there is none.
        """
        one = self._known[name]
        if epoch != one.epoch:
            raise InvalidProducerEpoch
        if one.state != "open" or place not in one.places:
            raise InvalidTxnState
        return one

    def _problem(self, broker, name="", epoch=0):
        if broker != self.coordinator:
            return NotCoordinatorForGroupError()
        if self._cluster.loop.time() < self._loading_until:
            return GroupLoadInProgressError()
        return InvalidProducerEpoch() if name and self._known[name].epoch != epoch else None

    @property
    def have_ended(self):
        """Whether all markers are written."""
        return not any(one.state in {"open", "ending"} for one in self._known.values())

    def has_pending(self, places):
        """Whether an unfinished transaction has positions in any of these partitions."""
        return any(place in one.offsets for one in self._known.values() for place in places)

    # --- requests

    def begin(self, broker, name, timeout, reply):
        """Fence off an id's former producer and end its transaction; reply with the new producer's epoch."""
        problem = self._problem(broker)
        one = self._known.setdefault(name, Transaction(name, timeout))
        if problem is None and one.state == "open":
            self._abort(one)
        if problem is None and one.state == "ending":
            problem = ConcurrentTransactions()
        if problem is None:
            one.epoch += 1
            one.state = "empty"
        reply(problem or one.epoch)

    def add(self, broker, name, epoch, places, reply):
        """Add partitions to a transaction, which the first of them opens."""
        problem = self._problem(broker, name, epoch)
        one = self._known[name]
        if problem is None and one.state == "ending":
            problem = ConcurrentTransactions()
        if problem is None:
            if one.state != "open":
                one.state = "open"
                one.expiry = self._cluster.loop.call_later(one.timeout, self._abort, one, context=Context())
            one.places.update(places)
        reply(problem)

    def add_offsets(self, broker, name, epoch, offsets, metadata, reply):
        """Add a member's positions to its transaction; the group's coordinator rejects a former member."""
        group = self._cluster.group
        problem = group.problem(broker)
        if problem is None and metadata.generation >= 0:
            problem = group.stranger(metadata.member, metadata.generation)
        if problem is None and group.refusing is not None:
            problem = group.refusing()
        if problem is None:
            try:
                self.require(name, epoch, GROUP).offsets.update(offsets)
            except KafkaError as error:
                problem = error
        reply(problem)

    def end(self, broker, name, epoch, commits, reply):
        """Commit or abort a transaction, which is decided when this replies and becomes visible later."""
        problem = self._problem(broker, name, epoch)
        one = self._known[name]
        if problem is None and one.state == "open":
            self._end(one, commits=commits)
        elif problem is None and (one.state == "empty" or one.commits != commits):
            problem = InvalidTxnState()
        elif problem is None and one.state == "ending":
            problem = ConcurrentTransactions()
        reply(problem)

    # --- ends

    def _abort(self, one):
        """Abort the transaction that a dead or fenced process has left open."""
        if one.state == "open":
            one.epoch += 1
            self._end(one, commits=False)

    def _end(self, one, *, commits):
        one.expiry.cancel()
        one.state, one.commits = "ending", commits
        for place in sorted(one.places):
            self._mark_later(one, place)

    def _mark_later(self, one, place):
        delay = self._cluster.random.choice(
            (0.001, 0.001, 0.01, 0.01, 0.1, 0.1, 2.0 if self.is_slow else 0.1)
        )
        self._cluster.loop.call_later(delay, self._mark, one, place, context=Context())

    def _mark(self, one, place):
        """Write a marker, and try again while the broker is away."""
        cluster = self._cluster
        group = cluster.group
        broker = group.coordinator if place == GROUP else cluster.leaders[place]
        is_loading = cluster.loop.time() < self._loading_until or group.problem(group.coordinator) is not None
        if {broker, self.coordinator} & cluster.network.down or is_loading:
            cluster.loop.call_later(_PAUSE, self._mark, one, place, context=Context())
            return
        if place != GROUP:
            cluster.topics[place[0]].logs[place[1]].end_transaction(one.id, commits=one.commits)
        else:
            if one.commits:
                group.on_commit(one.offsets, one.id)
                group.committed.update(one.offsets)
            one.offsets = {}
        one.places.discard(place)
        if not one.places:
            one.state = "ended"
            if not any(other.state == "ending" for other in self._known.values()):
                self.on_rest()
