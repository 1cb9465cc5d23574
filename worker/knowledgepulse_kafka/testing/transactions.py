"""The coordinator of transactions (KIP-98); brokers accept batches only for open transactions (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from random import Random

from aiokafka.errors import (
    ConcurrentTransactions,
    GroupLoadInProgressError,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    NotCoordinatorForGroupError,
)
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.testing.group import Group, Place
from knowledgepulse_kafka.testing.network import Network, Reply

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
        loading_until: the time until which a new coordinator answers that it is loading.
        is_slow: whether some markers are written seconds later.
        on_rest: called whenever all markers of the transactions that have ended are written.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        network: Network,
        group: Group,
        brokers: int,
        leader: Callable[[Place], int],
        mark: Callable[[Place, str, bool], None],
    ) -> None:
        """Coordinate transactions for a number of brokers.

        Args:
            loop: the loop of the simulation.
            random: draws how late markers are written.
            network: says which brokers are down.
            group: the coordinator of the group whose positions transactions commit.
            brokers: the number of brokers, of which one is the coordinator.
            leader: returns the broker that leads a partition.
            mark: writes the marker that commits or aborts a transaction into a partition.
        """
        self._loop, self._random, self._network, self._group = loop, random, network, group
        self._brokers, self._leader, self._write_marker = brokers, leader, mark
        self._coordinator = 0
        self.loading_until = 0.0
        self._known: dict[str, Transaction] = {}
        self.is_slow = False
        self.on_rest: Callable[[], None] = lambda: None

    @property
    def coordinator(self) -> int:
        """The broker that is the coordinator; if it is down, the next one takes over."""
        if self._coordinator in self._network.down:
            self.move(0.5)
        return self._coordinator

    def move(self, loading: float) -> None:
        """Move to the next broker, which loads the state."""
        self._coordinator = (self._coordinator + 1) % self._brokers
        self.loading_until = self._loop.time() + loading

    def require(self, name: str, epoch: int, place: Place) -> Transaction:
        """Return the open transaction that writes to a partition.

        Raises:
            KafkaError: there is none.
        """
        transaction = self._known[name]
        if epoch != transaction.epoch:
            raise InvalidProducerEpoch
        if transaction.state != "open" or place not in transaction.places:
            raise InvalidTxnState
        return transaction

    def _problem(self, broker: int, name: str = "", epoch: int = 0) -> Exception | None:
        if broker != self.coordinator:
            return NotCoordinatorForGroupError()
        if self._loop.time() < self.loading_until:
            return GroupLoadInProgressError()
        return InvalidProducerEpoch() if name and self._known[name].epoch != epoch else None

    @property
    def have_ended(self) -> bool:
        """Whether all markers are written."""
        return not any(transaction.state in {"open", "ending"} for transaction in self._known.values())

    def has_pending(self, places: Iterable[Place]) -> bool:
        """Whether an unfinished transaction has positions in any of these partitions."""
        return any(place in transaction.offsets for transaction in self._known.values() for place in places)

    # --- requests

    def begin(self, broker: int, name: str, timeout: float, reply: Reply) -> None:
        """Fence off an id's former producer and end its transaction; reply with the new producer's epoch."""
        problem = self._problem(broker)
        transaction = self._known.setdefault(name, Transaction(name, timeout))
        if problem is None and transaction.state == "open":
            self._abort(transaction)
        if problem is None and transaction.state == "ending":
            problem = ConcurrentTransactions()
        if problem is None:
            transaction.epoch += 1
            transaction.state = "empty"
        reply(problem or transaction.epoch)

    def add(self, broker: int, name: str, epoch: int, places: set[Place], reply: Reply) -> None:
        """Add partitions to a transaction, which the first of them opens."""
        problem = self._problem(broker, name, epoch)
        transaction = self._known[name]
        if problem is None and transaction.state == "ending":
            problem = ConcurrentTransactions()
        if problem is None:
            if transaction.state != "open":
                transaction.state = "open"
                transaction.expiry = self._loop.call_later(
                    transaction.timeout, self._abort, transaction, context=Context()
                )
            transaction.places.update(places)
        reply(problem)

    def add_offsets(
        self,
        broker: int,
        name: str,
        epoch: int,
        offsets: Mapping[Place, OffsetAndMetadata],
        metadata: GroupMetadata,
        reply: Reply,
    ) -> None:
        """Add a member's positions to its transaction; the group's coordinator rejects a former member."""
        group = self._group
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

    def end(self, broker: int, name: str, epoch: int, commits: bool, reply: Reply) -> None:
        """Commit or abort a transaction, which is decided when this replies and becomes visible later."""
        problem = self._problem(broker, name, epoch)
        transaction = self._known[name]
        if problem is None and transaction.state == "open":
            self._end(transaction, commits=commits)
        elif problem is None and (transaction.state == "empty" or transaction.commits != commits):
            problem = InvalidTxnState()
        elif problem is None and transaction.state == "ending":
            problem = ConcurrentTransactions()
        reply(problem)

    # --- ends

    def _abort(self, transaction: Transaction) -> None:
        """Abort the transaction that a dead or fenced process has left open."""
        if transaction.state == "open":
            transaction.epoch += 1
            self._end(transaction, commits=False)

    def _end(self, transaction: Transaction, *, commits: bool) -> None:
        if transaction.expiry is not None:
            transaction.expiry.cancel()
        transaction.state, transaction.commits = "ending", commits
        for place in sorted(transaction.places):
            self._mark_later(transaction, place)

    def _mark_later(self, transaction: Transaction, place: Place) -> None:
        delay = self._random.choice((0.001, 0.001, 0.01, 0.01, 0.1, 0.1, 2.0 if self.is_slow else 0.1))
        self._loop.call_later(delay, self._mark, transaction, place, context=Context())

    def _mark(self, transaction: Transaction, place: Place) -> None:
        """Write a marker, and try again while the broker is away."""
        group = self._group
        broker = group.coordinator if place == GROUP else self._leader(place)
        is_loading = self._loop.time() < self.loading_until or group.problem(group.coordinator) is not None
        if {broker, self.coordinator} & self._network.down or is_loading:
            self._loop.call_later(_PAUSE, self._mark, transaction, place, context=Context())
            return
        if place != GROUP:
            self._write_marker(place, transaction.id, transaction.commits)
        else:
            if transaction.commits:
                group.on_commit(transaction.offsets, transaction.id)
                group.commit(transaction.offsets)
            transaction.offsets = {}
        transaction.places.discard(place)
        if not transaction.places:
            transaction.state = "ended"
            if not any(other.state == "ending" for other in self._known.values()):
                self.on_rest()
