"""The verdict on the worker's state, shared by the status page, the readiness probe, a metric and the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from knowledgepulse_worker.texts import counted

logger = logging.getLogger(__name__)

SILENCE = 5.0
"""Seconds without an answer after which Kafka counts as silent; it answers every fetch within a second.

Likewise, seconds after which records that wait count as stalled if none was finished.
"""

CATCHING_UP = 60.0
"""Seconds that the backlog takes at the current rate, beyond which a worker is behind."""

PATIENCE = 10.0
"""Seconds for which a backlog must last before it counts, since a burst is no fault."""


MANY_LETTERS, LETTER_SHARE = 10, 0.05
"""The dead letters, and their share of all outcomes, that are more than stray ones, as in the alert."""


class State(StrEnum):
    """The states of a worker."""

    STARTING = "starting"
    STOPPING = "stopping"
    WAITING_FOR_KAFKA = "waiting_for_kafka"
    THROTTLED = "throttled"
    RECOVERING = "recovering"
    POISON = "poison"
    DEAD_LETTERS = "dead_letters"
    BEHIND = "behind"
    POLICY_EDIT_REFUSED = "policy_edit_refused"
    HEALTHY = "healthy"


RUNBOOK = {
    State.STARTING: "KpPartitionsUnowned",
    State.WAITING_FOR_KAFKA: "KpNoCommit",
    State.THROTTLED: "KpThrottled",
    State.RECOVERING: "KpRecoveryLong",
    State.POISON: "KpPoison",
    State.DEAD_LETTERS: "KpDeadLetters",
    State.BEHIND: "KpLagGrowing",
    State.POLICY_EDIT_REFUSED: "KpPolicyReloadFailed",
}
"""The runbook's section on each state that may require action."""

_ORDINARY = {State.HEALTHY, State.STARTING, State.RECOVERING}
"""States that every worker passes through."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The worker's state, with the reason and the time at which it began.

    Attributes:
        state: the state.
        reason: the reason, in a few words; empty if there is none.
        since: when the state began, in seconds since the epoch.
    """

    state: State
    reason: str
    since: float

    @property
    def runbook(self) -> str | None:
        """The runbook's section on the state."""
        return RUNBOOK.get(self.state)

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as plain JSON."""
        return {"state": self.state, "text": str(self), "since": self.since, "runbook": self.runbook}

    def __str__(self) -> str:
        name = self.state.replace("_", " ").capitalize().replace("kafka", "Kafka")
        return f"{name}: {self.reason}" if self.reason else name


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
        coordinator_silence: seconds for which an answer from the group's coordinator is overdue.
        leader_silence: the longest time in seconds that a fetch has waited for a partition leader's answer.
        producer_silence: seconds for which the producer has waited to start at its coordinator.
        transaction_age: seconds for which a transaction has been in progress.
        suspect_partitions: the owned partitions with a record that was in progress alone at a death.
        dead_letters: the number of dead letters in the last quarter of an hour.
        outcomes: the number of all outcomes in that time.
        lag: the total lag in offsets.
        rate: outputs per second in the last minute.
        has_unfinished: whether records wait to be finished.
        last_output: the time of the last output.
        policy_refused: why an edit of the policy is not in force, and which policy is; empty if none is.
    """

    pending: tuple[str, ...] = ()
    partitions: int = 0
    recovering: int = 0
    publishing_throttled: float = 0.0
    reading_throttled: float = 0.0
    coordinator_silence: float = 0.0
    leader_silence: float = 0.0
    producer_silence: float = 0.0
    transaction_age: float = 0.0
    suspect_partitions: tuple[int, ...] = ()
    dead_letters: int = 0
    outcomes: int = 0
    lag: int = 0
    rate: float = 0.0
    has_unfinished: bool = False
    last_output: float | None = None
    policy_refused: str = ""


@dataclass
class Diagnosis:
    """Turns observations into verdicts and logs every change of state once.

    Args:
        clock: returns seconds for durations, which a change of the wall clock must not affect.
        wall_clock: returns the seconds since the epoch.

    Attributes:
        verdict: the latest verdict.
    """

    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    verdict: Verdict = field(init=False)
    _began: float = field(init=False)
    _advanced: float = field(init=False)
    _last_output: float | None = None
    _lag_seen: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = self._advanced = self.clock()
        self.verdict = Verdict(State.STARTING, "the process has just started", self.wall_clock())

    def observe(self, seen: Observation) -> Verdict:
        """Return the verdict on an observation."""
        now = self.clock()
        self._note_lag(now, seen)
        self._note_progress(now, seen)
        state, reason = next(self._findings(now, seen))
        former = self.verdict
        if former.state is state:
            self.verdict = Verdict(state, reason, former.since)
        else:
            self.verdict = Verdict(state, reason, self.wall_clock())
            level = logging.INFO if state in _ORDINARY else logging.WARNING
            logger.log(level, "%s (was %s for %.0f s)", self.verdict, former.state, now - self._began)
            self._began = now
        return self.verdict

    def _findings(self, now: float, seen: Observation) -> Iterator[tuple[State, str]]:
        """Yield the states that apply, with their reasons, starting with the most serious state."""
        yield from _waits_for_brokers(seen)
        if seen.recovering:
            yield State.RECOVERING, f"{seen.recovering} of {seen.partitions} partitions"
        if seen.pending:
            yield State.STARTING, "; ".join(seen.pending)
        if seen.suspect_partitions:
            numbers = ", ".join(map(str, seen.suspect_partitions))
            yield State.POISON, f"a suspect record in partition {numbers} is processed alone"
        if seen.dead_letters >= MANY_LETTERS and seen.dead_letters > LETTER_SHARE * seen.outcomes:
            yield State.DEAD_LETTERS, f"{seen.dead_letters:,} of the last {counted(seen.outcomes, 'record')}"
        if delay := self._delay(now, seen):
            yield State.BEHIND, f"{counted(seen.lag, 'record')}, {delay}"
        if seen.policy_refused:
            yield State.POLICY_EDIT_REFUSED, seen.policy_refused
        yield State.HEALTHY, ""

    # --- the backlog

    def _note_progress(self, now: float, seen: Observation) -> None:
        # While a transaction lasts, records are finished, and its own age counts.
        if not seen.has_unfinished or seen.transaction_age or seen.last_output != self._last_output:
            self._advanced, self._last_output = now, seen.last_output

    def _note_lag(self, now: float, seen: Observation) -> None:
        if not _is_backlog(seen):
            self._lag_seen.clear()
        self._lag_seen = [one for one in self._lag_seen if now - one[0] <= CATCHING_UP]
        self._lag_seen.append((now, seen.lag))

    def _delay(self, now: float, seen: Observation) -> str:
        """Describe how the waiting records advance; empty if they do not wait too long."""
        if (stalled := now - self._advanced) > SILENCE:
            return f"none finished for {stalled:.0f} s"
        if _is_backlog(seen) and now - self._lag_seen[0][0] >= PATIENCE:
            return self._trend(seen)
        return ""

    def _trend(self, seen: Observation) -> str:
        (began, before), (now, _) = self._lag_seen[0], self._lag_seen[-1]
        shrinking = (before - seen.lag) / max(now - began, 1.0)
        if shrinking <= 0:
            return "growing" if seen.lag > before else "not shrinking"
        minutes = seen.lag / shrinking / 60
        return f"done in about {minutes:.0f} min" if minutes >= 1 else "done within a minute"


def _waits_for_brokers(seen: Observation) -> Iterator[tuple[State, str]]:
    """Yield the states in which the brokers keep the worker waiting."""
    if seen.reading_throttled:
        yield State.THROTTLED, _throttled("fetches", "consumer", seen.reading_throttled)
    if seen.leader_silence > SILENCE:
        yield State.WAITING_FOR_KAFKA, f"no answer from partition leaders for {seen.leader_silence:.0f} s"
    if seen.coordinator_silence > SILENCE:
        silence = seen.coordinator_silence
        yield State.WAITING_FOR_KAFKA, f"no answer from the group's coordinator for {silence:.0f} s"
    if seen.producer_silence > SILENCE:
        silence = seen.producer_silence
        yield State.WAITING_FOR_KAFKA, f"no answer from the transaction coordinator for {silence:.0f} s"
    if seen.publishing_throttled:
        yield State.THROTTLED, _throttled("transactions", "producer", seen.publishing_throttled)
    if seen.transaction_age > SILENCE:
        age = seen.transaction_age
        yield State.WAITING_FOR_KAFKA, f"a transaction has not been committed for {age:.0f} s"


def _throttled(requests: str, client: str, seconds: float) -> str:
    return f"a quota of the brokers ({client}_byte_rate) delays {requests}, most recently by {seconds:,.0f} s"


def _is_backlog(seen: Observation) -> bool:
    return seen.lag > CATCHING_UP * seen.rate
