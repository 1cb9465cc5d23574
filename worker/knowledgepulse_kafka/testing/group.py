"""A consumer group at its coordinator: generations, sessions and commits (Kafka's classic protocol)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from typing import TypeAlias

from aiokafka.errors import (
    GroupLoadInProgressError,
    IllegalGenerationError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.testing.network import Reply

Place: TypeAlias = tuple[str, int]
"""A partition: its topic and number."""


@dataclass
class _Member:
    id: str
    session: float
    rebalance: float
    has: tuple[Place, ...] = ()
    joining: Reply | None = None
    syncing: Reply | None = None
    expiry: asyncio.TimerHandle | None = None


@dataclass(frozen=True)
class Joined:
    """The answer to a join; for the leader, it includes the previous partitions of every member."""

    member: str
    generation: int
    members: Mapping[str, tuple[Place, ...]] | None


@dataclass
class Group:
    """The group.

    Attributes:
        coordinator: the broker that coordinates the group.
        loading_until: the time until which a new coordinator answers that it is loading.
        refusing: the error with which positions are rejected, if any.
        expired: the members whose sessions have expired.
        committed: the positions.
        former: the positions before the last commit of each.
        first_delay: seconds that the first rebalance of an empty group waits for more members.
        owners: the members of the last complete generation by partition, without members that have left.
        on_commit: called before each commit with the positions and the transactional id.
        is_pending: returns whether an unfinished transaction has positions in any of these partitions.
    """

    loop: asyncio.AbstractEventLoop
    coordinator: int = 0
    loading_until: float = 0.0
    refusing: Callable[[], Exception] | None = None
    generation: int = 0
    state: str = "empty"
    members: dict[str, _Member] = field(default_factory=dict)
    committed: dict[Place, OffsetAndMetadata] = field(default_factory=dict)
    former: dict[Place, OffsetAndMetadata] = field(default_factory=dict)
    owners: dict[Place, str] = field(default_factory=dict)
    expired: set[str] = field(default_factory=set)
    first_delay: float = 0.3
    on_commit: Callable[[Mapping[Place, OffsetAndMetadata], str], None] = lambda *_: None
    on_change: Callable[[str], None] = lambda _: None
    is_pending: Callable[[tuple[Place, ...]], bool] = lambda _: False
    _leader: str = ""
    _count: int = 0
    _is_patient: bool = False
    _assignment: dict[str, tuple[Place, ...]] = field(default_factory=dict)
    _deadline: asyncio.TimerHandle | None = None

    def move(self, coordinator: int, loading: float) -> None:
        """Move to another coordinator, which loads the group; requests still waiting are never answered."""
        self.coordinator = coordinator
        self.loading_until = self.loop.time() + loading
        for member in self.members.values():
            self._touch(member, loading)
            for reply in (member.joining, member.syncing):
                if reply is not None:
                    reply(NotCoordinatorForGroupError())
            member.joining = member.syncing = None
        if self.state == "preparing" and self.members:
            self._prepare()
        self.on_change(f"coordinator {coordinator}")

    def problem(self, broker: int) -> Exception | None:
        """Return the error with which a broker refuses to act as the coordinator, or None."""
        if broker != self.coordinator:
            return NotCoordinatorForGroupError()
        return GroupLoadInProgressError() if self.loop.time() < self.loading_until else None

    def join(
        self,
        broker: int,
        member: str,
        session: float,
        rebalance: float,
        has: tuple[Place, ...],
        reply: Reply,
    ) -> None:
        """Let a member join the next generation; reply once all have joined, with its number."""
        if problem := self.problem(broker):
            reply(problem)
            return
        if member and member not in self.members:
            reply(UnknownMemberIdError())
            return
        if not member:
            self._count += 1
            member = f"member-{self._count}"
            self.members[member] = _Member(member, session, rebalance)
        known = self.members[member]
        known.has, known.joining = has, reply
        self._touch(known)
        if self.state != "preparing":
            self._prepare()
        self._complete_join()

    def _prepare(self) -> None:
        was_empty = self._is_patient = self.state == "empty"
        self.state = "preparing"
        for member in self.members.values():
            if member.syncing is not None:
                member.syncing(RebalanceInProgressError())
                member.syncing = None
        if self._deadline is not None:
            self._deadline.cancel()
        limit = self.first_delay if was_empty else max(member.rebalance for member in self.members.values())
        self._deadline = self.loop.call_later(limit, self._join_over, context=Context())
        self.on_change("rebalance")

    def _join_over(self) -> None:
        for member in [member for member in self.members.values() if member.joining is None]:
            self.expired.add(member.id)
            self._remove(member)
        self._deadline = None
        self._is_patient = False
        self._complete_join()

    def _complete_join(self) -> None:
        if self.state != "preparing":
            return
        waiting = any(member.joining is None for member in self.members.values())
        if not self.members:
            self.state, self.owners = "empty", {}
            return
        if waiting or self._is_patient:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.generation += 1
        self.state = "completing"
        if self._leader not in self.members:
            self._leader = min(self.members)
        has = {member.id: member.has for member in self.members.values()}
        for member in self.members.values():
            answer = Joined(member.id, self.generation, has if member.id == self._leader else None)
            reply, member.joining = member.joining, None
            self._touch(member)
            if reply is not None:
                reply(answer)

    def sync(
        self,
        broker: int,
        member: str,
        generation: int,
        assignment: Mapping[str, tuple[Place, ...]] | None,
        reply: Reply,
    ) -> None:
        """Take the assignment of the group's leader, and reply to each member with its partitions."""
        if problem := self.problem(broker) or self.stranger(member, generation):
            reply(problem)
            return
        known = self.members[member]
        self._touch(known)
        if self.state == "preparing":
            reply(RebalanceInProgressError())
        elif self.state == "stable":
            reply(self._assignment.get(member, ()))
        else:
            known.syncing = reply
            if assignment is not None:
                self._assignment = dict(assignment)
                self.owners = {at: who for who, places in assignment.items() for at in places}
                self.state = "stable"
                self.on_change(f"generation {generation}: {sorted(self.owners.items())}")
                for other in self.members.values():
                    if other.syncing is not None:
                        other.syncing(self._assignment.get(other.id, ()))
                        other.syncing = None

    def stranger(self, member: str, generation: int) -> Exception | None:
        """Return the error with which a member is rejected in a generation, or None."""
        if member not in self.members:
            return UnknownMemberIdError()
        return None if generation == self.generation else IllegalGenerationError()

    def heartbeat(self, broker: int, member: str, generation: int, reply: Reply) -> None:
        """Keep a member's session; reply whether a rebalance has begun."""
        problem = self.problem(broker) or self.stranger(member, generation)
        if problem is None:
            self._touch(self.members[member])
            problem = RebalanceInProgressError() if self.state == "preparing" else None
        reply(problem)

    def leave(self, broker: int, member: str, reply: Reply) -> None:
        """Let a member leave, which begins a rebalance."""
        if self.problem(broker) is None and member in self.members:
            self._remove(self.members[member])
            self._rebalance_without()
        reply(None)

    def fetch_offsets(self, broker: int, places: tuple[Place, ...], reply: Reply) -> None:
        """Answer with the positions that no unfinished transaction may replace."""
        stable = {at: self.committed.get(at) for at in places if not self.is_pending((at,))}
        reply(self.problem(broker) or stable)

    def commit(self, positions: Mapping[Place, OffsetAndMetadata]) -> None:
        """Commit positions; those before are what a coordinator has that lacks the last commit of each."""
        self.former.update({at: self.committed[at] for at in positions if at in self.committed})
        self.committed.update(positions)

    def forget(self, positions: Mapping[Place, OffsetAndMetadata]) -> None:
        """Drop the positions in a deleted topic unless newer ones were committed since."""
        for at, position in positions.items():
            if self.committed.get(at) == position:
                del self.committed[at]

    def _touch(self, member: _Member, extra: float = 0.0) -> None:
        if member.expiry is not None:
            member.expiry.cancel()
        member.expiry = self.loop.call_later(member.session + extra, self._expire, member, context=Context())

    def _expire(self, member: _Member) -> None:
        if self.members.get(member.id) is not member:
            return
        if member.joining is not None:  # the member is waiting for the others
            self._touch(member)
            return
        self.expired.add(member.id)
        self.on_change(f"session of {member.id} expired")
        self._remove(member)
        self._rebalance_without()

    def _remove(self, member: _Member) -> None:
        if member.expiry is not None:
            member.expiry.cancel()
        if self.members.pop(member.id, None) is not None:
            self.owners = {at: who for at, who in self.owners.items() if who != member.id}
        if member.syncing is not None:
            member.syncing(UnknownMemberIdError())

    def _rebalance_without(self) -> None:
        if not self.members:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            self.state = "empty"
            self.generation += 1
        elif self.state == "preparing":
            self._complete_join()
        else:
            self._prepare()
