"""The verdict on the worker's state, shared by the status page, the readiness probe, a metric and the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from knowledgepulse_kafka.wait import Wait

Waits: TypeAlias = tuple[Wait, ...]


class State(StrEnum):
    """The states of a worker."""

    STARTING = "starting"
    STOPPING = "stopping"
    WAITING_FOR_KAFKA = "waiting_for_kafka"
    THROTTLED = "throttled"
    FOREIGN_MEMBER = "foreign_member"
    HELD_BACK = "held_back"
    RECOVERING = "recovering"
    POISON = "poison"
    DEAD_LETTERS = "dead_letters"
    BEHIND = "behind"
    POLICY_EDIT_REFUSED = "policy_edit_refused"
    HEALTHY = "healthy"


RUNBOOK = {
    State.STARTING: "KpPartitionsUnowned",
    State.WAITING_FOR_KAFKA: "KpWaiting",
    State.THROTTLED: "KpThrottled",
    State.FOREIGN_MEMBER: "KpForeignMember",
    State.HELD_BACK: "KpHeldBack",
    State.RECOVERING: "KpRecoveryLong",
    State.POISON: "KpPoison",
    State.DEAD_LETTERS: "KpDeadLetters",
    State.BEHIND: "KpLagGrowing",
    State.POLICY_EDIT_REFUSED: "KpPolicyReloadFailed",
}
"""The runbook's section on each state that may require action."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The worker's state, with the reason and the time at which it began.

    Attributes:
        state: the state.
        reason: the reason, in a few words; empty if there is none.
        since: when the state began, in seconds since the epoch.
        waits: what the worker waits for, if it waits.
    """

    state: State
    reason: str
    since: float
    waits: Waits = ()

    @property
    def runbook(self) -> str | None:
        """The runbook's section on the state."""
        return RUNBOOK.get(self.state)

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as plain JSON."""
        return {"state": self.state, "text": str(self), "since": self.since, "runbook": self.runbook}

    def __str__(self) -> str:
        name = self.state.replace("_", " ").capitalize().replace("kafka", "Kafka")
        return "; ".join((f"{name}: {self.reason}" if self.reason else name, *map(str, self.waits)))
