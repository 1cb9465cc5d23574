"""The diagnosis: the verdict that follows from what a worker sees of its stream, brokers and policy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from knowledgepulse_kafka.wait import CONNECTION, Wait
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.verdict import Finding, State, Verdict

logger = logging.getLogger(__name__)

SILENCE_LIMIT = 5.0
"""Seconds without an answer after which Kafka counts as silent; it answers every fetch within a second.

Likewise, seconds after which records that wait count as stalled if none was finished.
"""

CATCH_UP_LIMIT = 60.0
"""Seconds that the backlog takes at the current rate, beyond which a worker is behind."""

RECOVERY_PATIENCE_LIMIT = 30.0
"""Seconds for which partitions may wait for brokers before they are read.

Brokers abort what a former owner has left open 10 s after its death, and look for it every 10 s.
"""

MANY_RESTARTS, RESTARTS_WINDOW = 3, 1800.0
"""The restarts within this many seconds from which on the state says so."""

PATIENCE_LIMIT = 10.0
"""Seconds for which a backlog, a rebalance or an open transaction must last before it counts."""

MANY_LETTERS, LETTER_SHARE = 10, 0.05
"""The dead letters, and their share of all outcomes, that are more than stray ones, as in the alert."""

JUST_STARTED = "the process has just started"
"""The first reason why a worker is starting."""

_FOREIGN_MEMBER = (
    "a client with group.protocol=consumer is in the workers' group, and no worker scores the partitions "
    "that the brokers give it"
)

_ORDINARY = {State.HEALTHY, State.STARTING, State.RECOVERING}
"""States that every worker passes through."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The facts about a worker from which its verdict follows.

    Attributes:
        pending: the reasons why the worker has not been ready yet.
        partitions: the number of owned partitions.
        recovering: the number of owned partitions whose position or ledger is still awaited.
        publishing_throttled: the latest throttle time in seconds that a quota on producers caused; 0 if there
            was none lately.
        reading_throttled: likewise, of a quota on consumers.
        requests_throttled: whether such times were caused by a quota on requests, whatever their bytes.
        coordinator_silence: seconds for which an answer from the group's coordinator is overdue.
        leader_silence: the longest time in seconds that a fetch has waited for a partition leader's answer.
        producer_silence: seconds for which the producer has waited to start at its coordinator.
        transaction_age: seconds for which a transaction has been in progress.
        is_rebalancing: whether a rebalance is in progress.
        has_foreign_member: whether a client that is no worker is in the group.
        member_waits: what the group member waits for at its coordinator.
        reading_waits: what it waits for at the partitions' leaders.
        recovery_waits: what the recovery of ledgers waits for at the leaders of the changelog.
        producer_waits: what the producer waits for.
        held_back: the last stable offset of each partition where an open transaction holds back records, with
            their number.
        suspect_partitions: the owned partitions with a record that was in progress alone at a death.
        dead_letters: the number of dead letters in the last quarter of an hour.
        outcomes: the number of all outcomes in that time.
        lag: the total lag in offsets.
        rate: outputs per second in the last minute.
        has_unfinished: whether records wait to be finished.
        last_output: the time of the last output.
        policy_refused: why an edit of the policy is not in force, and which policy is; empty if none is.
        ends: when the last processes before this one ended, in seconds since the epoch.
        last_end: how the last one ended.
        keys_elsewhere: how many keys producers put elsewhere, if many; else empty.
        unknown_script: which texts are in a script that the model does not know, if many are; else empty.
        over_budget: how long a text takes to embed, if that exceeds the budget; else empty.
    """

    pending: tuple[str, ...] = ()
    partitions: int = 0
    recovering: int = 0
    publishing_throttled: float = 0.0
    reading_throttled: float = 0.0
    requests_throttled: bool = False
    coordinator_silence: float = 0.0
    leader_silence: float = 0.0
    producer_silence: float = 0.0
    transaction_age: float = 0.0
    is_rebalancing: bool = False
    has_foreign_member: bool = False
    member_waits: tuple[Wait, ...] = ()
    reading_waits: tuple[Wait, ...] = ()
    recovery_waits: tuple[Wait, ...] = ()
    producer_waits: tuple[Wait, ...] = ()
    held_back: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    suspect_partitions: tuple[int, ...] = ()
    dead_letters: int = 0
    outcomes: int = 0
    lag: int = 0
    rate: float = 0.0
    has_unfinished: bool = False
    last_output: float | None = None
    policy_refused: str = ""
    ends: tuple[float, ...] = ()
    last_end: str = ""
    keys_elsewhere: str = ""
    unknown_script: str = ""
    over_budget: str = ""

    @property
    def starting_waits(self) -> tuple[Wait, ...]:
        """What partitions that are not read yet wait for."""
        return (*self.member_waits, *self.recovery_waits)

    @property
    def readable(self) -> int:
        """The part of the lag that no open transaction holds back."""
        return max(0, self.lag - sum(records for _, records in self.held_back.values()))


@dataclass
class Diagnosis:
    """Turns observations into verdicts, and logs when each state begins and ends.

    Args:
        clock: returns seconds for durations, which a change of the wall clock must not affect.
        wall_clock: returns the seconds since the epoch.
        former: the findings of the process before, which hold until this one is ready and can know better.
        first: what is known when the process starts.

    Attributes:
        verdict: the latest verdict.
    """

    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    former: Sequence[Finding] = ()
    first: Observation = Observation(pending=(JUST_STARTED,))
    verdict: Verdict = field(init=False)
    _began: dict[State, float] = field(init=False)
    _advanced: float = field(init=False)
    _last_output: float | None = None
    _lag_seen: list[tuple[float, int]] = field(default_factory=list)
    _least_lag: tuple[float, int] | None = None
    _rebalancing_since: float | None = None
    _unread_since: float | None = None
    _held_since: dict[int, tuple[int, float]] = field(default_factory=dict)
    _told: set[tuple[str, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._advanced, now = self.clock(), self.wall_clock()
        found = [replace(finding, since=now) for finding in self._findings(self._advanced, self.first)]
        since = {finding.state: finding.since for finding in self.former}
        self.verdict = Verdict.of(
            (replace(finding, since=since.get(finding.state, now)) for finding in found), self.former
        )
        self._began = {
            finding.state: self._advanced - max(0.0, now - finding.since) for finding in self.verdict.findings
        }

    def observe(self, seen: Observation) -> Verdict:
        """Return the verdict on an observation."""
        now = self.clock()
        # While a transaction lasts, records are finished, and its own age counts.
        if not seen.has_unfinished or seen.transaction_age or seen.last_output != self._last_output:
            self._advanced, self._last_output = now, seen.last_output
        self._note_lag(now, seen)
        self._note_waits(now, seen)
        if not seen.pending:
            self.former = ()
        verdict = Verdict.of(self._findings(now, seen), self.former)
        self._log_ends(now, verdict)
        begun = self.wall_clock()
        since = {finding.state: finding.since for finding in self.verdict.findings}
        self.verdict = Verdict(
            tuple(replace(finding, since=since.get(finding.state, begun)) for finding in verdict.findings)
        )
        self._log_begins(now)
        return self.verdict

    def waits(self) -> dict[Wait, float]:
        """Return what the worker waits for, with the seconds since the state began in which it does."""
        now = self.clock()
        return {
            wait: now - self._began[finding.state]
            for finding in self.verdict.findings
            for wait in finding.waits
        }

    def _log_ends(self, now: float, verdict: Verdict) -> None:
        for finding in self.verdict.findings:
            if (state := finding.state) in verdict.states:
                continue
            seconds = now - self._began.pop(state)
            self._told = {told for told in self._told if told[0] != state}
            if state is not State.HEALTHY:  # whose end is another one's beginning
                logger.info("%s: over after %.0f s", state.heading, seconds)

    def _log_begins(self, now: float) -> None:
        """Log the states that have begun, and the waits that have become known."""
        for finding in self.verdict.findings:
            told = {  # the waits, without the time for which they last
                (
                    finding.state,
                    wait.request,
                    wait.place,
                    wait.problem if wait.request == CONNECTION else wait.error,
                )
                for wait in finding.waits
            }
            if finding.state not in self._began or told - self._told:
                logger.log(logging.INFO if finding.state in _ORDINARY else logging.WARNING, "%s", finding)
            self._began.setdefault(finding.state, now)
            self._told |= told

    def _findings(self, now: float, seen: Observation) -> Iterator[Finding]:
        """Yield the states that apply, with their reasons; of equally serious ones, the most urgent first."""
        yield from _waits_for_brokers(seen)
        yield from self._lasting_waits(now, seen)
        if seen.has_foreign_member:
            yield Finding(State.FOREIGN_MEMBER, _FOREIGN_MEMBER)
        if seen.recovering:
            yield Finding(State.RECOVERING, _unrecovered(seen), waits=seen.starting_waits)
        if seen.pending:
            reasons = (*seen.pending, *([seen.last_end] if seen.last_end else ()))
            yield Finding(State.STARTING, "; ".join(reasons), waits=seen.member_waits)
        if seen.suspect_partitions:
            numbers = ", ".join(map(str, seen.suspect_partitions))
            yield Finding(State.POISON, f"a suspect record in partition {numbers} is processed alone")
        if held_back := self._held_back(now, seen):
            yield Finding(State.HELD_BACK, held_back)
        if seen.dead_letters >= MANY_LETTERS and seen.dead_letters > LETTER_SHARE * seen.outcomes:
            records = counted(seen.outcomes, "record")
            yield Finding(State.DEAD_LETTERS, f"{seen.dead_letters:,} of the last {records}")
        if delay := self._delay(now, seen):
            yield Finding(State.BEHIND, f"{counted(seen.readable, 'record')}, {delay}")
        since = self.wall_clock() - RESTARTS_WINDOW if seen.ends else 0.0
        if (restarts := sum(at > since for at in seen.ends)) >= MANY_RESTARTS:
            window = f"{RESTARTS_WINDOW / 60:.0f} minutes"
            reason = f"{restarts} restarts in the last {window}; the last one: {seen.last_end}"
            yield Finding(State.RESTARTING, reason)
        yield from _against_expectations(seen)

    def _lasting_waits(self, now: float, seen: Observation) -> Iterator[Finding]:
        """Yield the waits for brokers that count once they have lasted."""
        rebalancing = now - (now if self._rebalancing_since is None else self._rebalancing_since)
        if rebalancing > PATIENCE_LIMIT:
            reason = f"the group has been rebalancing for {rebalancing:.0f} s"
            yield Finding(State.WAITING_FOR_KAFKA, reason, waits=seen.member_waits)
        elif self._unread_since is not None and now - self._unread_since > RECOVERY_PATIENCE_LIMIT:
            reason = f"{_unrecovered(seen)} not recovered" if seen.recovering else "; ".join(seen.pending)
            yield Finding(State.WAITING_FOR_KAFKA, reason, waits=seen.starting_waits)

    def _held_back(self, now: float, seen: Observation) -> str:
        """Describe the open transactions that have held back records for long; empty if there are none."""
        since = {number: at for number, (_, at) in self._held_since.items() if now - at > PATIENCE_LIMIT}
        if not since:
            return ""
        records = counted(sum(seen.held_back[number][1] for number in since), "record")
        partitions = "partition" if len(since) == 1 else "partitions"
        numbers = ", ".join(map(str, sorted(since)))
        return (
            f"another producer's open transaction has held back {records} of {partitions} {numbers} for "
            f"{now - min(since.values()):.0f} s"
        )

    def _note_waits(self, now: float, seen: Observation) -> None:
        if not seen.is_rebalancing:
            self._rebalancing_since = None
        elif self._rebalancing_since is None:
            self._rebalancing_since = now
        if not (seen.pending or seen.recovering) or not seen.starting_waits:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        before = self._held_since
        self._held_since = {
            number: before[number] if before.get(number, (-1,))[0] == stable else (stable, now)
            for number, (stable, _) in seen.held_back.items()
        }

    # --- the backlog

    def _note_lag(self, now: float, seen: Observation) -> None:
        if not _is_backlog(seen):
            self._lag_seen.clear()
            self._least_lag = None
        self._lag_seen = [(at, lag) for at, lag in self._lag_seen if now - at <= CATCH_UP_LIMIT]
        self._lag_seen.append((now, seen.readable))
        if self._least_lag is None or seen.readable <= self._least_lag[1]:
            self._least_lag = now, seen.readable

    def _delay(self, now: float, seen: Observation) -> str:
        """Describe how the waiting records advance; empty if they do not wait too long."""
        if (stalled := now - self._advanced) > SILENCE_LIMIT:
            return f"none finished for {stalled:.0f} s"
        if _is_backlog(seen) and now - self._lag_seen[0][0] >= PATIENCE_LIMIT:
            return self._trend(seen)
        return ""

    def _trend(self, seen: Observation) -> str:
        (began, before), (now, _) = self._lag_seen[0], self._lag_seen[-1]
        shrinking = (before - seen.readable) / max(now - began, 1.0)
        if shrinking > 0:
            minutes = seen.readable / shrinking / 60
            return f"done in about {minutes:.0f} min" if minutes >= 1 else "done within a minute"
        if seen.readable <= before:
            return "not shrinking"
        since, least = self._least_lag or self._lag_seen[0]
        minutes = (self.clock() - since) / 60
        return f"growing for {minutes:.0f} min, from {least:,}" if minutes >= 1 else "growing"


def _unrecovered(seen: Observation) -> str:
    return f"{seen.recovering} of {seen.partitions} partitions"


def _waits_for_brokers(seen: Observation) -> Iterator[Finding]:
    """Yield the states in which the brokers keep the worker waiting.

    A quota explains why fetches, or transactions, take long.
    """
    silences = [
        ("the group's coordinator", seen.coordinator_silence, seen.member_waits),
        ("the transaction coordinator", seen.producer_silence, seen.producer_waits),
    ]
    if seen.reading_throttled:
        reason = _throttled(seen, "fetches", "consumer", seen.reading_throttled)
        yield Finding(State.THROTTLED, reason)
    else:
        silences.insert(0, ("partition leaders", seen.leader_silence, seen.reading_waits))
    for who, silence, waits in silences:
        if silence > SILENCE_LIMIT:
            reason = f"no answer from {who} for {silence:.0f} s"
            yield Finding(State.WAITING_FOR_KAFKA, reason, waits=waits)
    if seen.publishing_throttled:
        reason = _throttled(seen, "transactions", "producer", seen.publishing_throttled)
        yield Finding(State.THROTTLED, reason)
    elif seen.transaction_age > SILENCE_LIMIT:
        reason = f"a transaction has not been committed for {seen.transaction_age:.0f} s"
        yield Finding(State.WAITING_FOR_KAFKA, reason, waits=seen.producer_waits)


def _against_expectations(seen: Observation) -> Iterator[Finding]:
    """Yield the states in which the worker works, but not as its users expect."""
    if seen.policy_refused:
        yield Finding(State.POLICY_EDIT_REFUSED, seen.policy_refused)
    if seen.keys_elsewhere:
        yield Finding(State.KEYS_ELSEWHERE, seen.keys_elsewhere)
    if seen.unknown_script:
        yield Finding(State.OTHER_LANGUAGES, seen.unknown_script)
    if seen.over_budget:
        yield Finding(State.OVER_BUDGET, seen.over_budget)


def _throttled(seen: Observation, requests: str, client: str, seconds: float) -> str:
    quota = "request_percentage" if seen.requests_throttled else f"{client}_byte_rate"
    return f"a quota of the brokers ({quota}) delays {requests}, most recently by {seconds:,.0f} s"


def _is_backlog(seen: Observation) -> bool:
    return seen.readable > CATCH_UP_LIMIT * seen.rate
