"""The verdict on the worker's state, shared by the status page, the readiness probe, a metric and the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, cast

import msgspec

from knowledgepulse_kafka.wait import Wait


class Severity(StrEnum):
    """How serious a state is, which gives its colour on the status page."""

    ORDINARY = "ordinary"
    NOTABLE = "notable"
    SERIOUS = "serious"


class State(StrEnum):
    """The states of a worker.

    Attributes:
        severity: how serious the state is.
        runbook: the runbook's section on the state, unless it waits for brokers; None if it never requires
            action.
        meaning: what the worker in this state does or has, as a table's row in Markdown; links are relative
            to docs/operators.
    """

    severity: Severity
    runbook: str | None
    meaning: str

    def __new__(cls, value: str, severity: Severity, runbook: str | None, meaning: str) -> Self:
        """Return the member with its attributes."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.severity, member.runbook, member.meaning = severity, runbook, meaning
        return member

    HEALTHY = ("healthy", Severity.ORDINARY, None, "works, and keeps up")
    STARTING = (
        "starting",
        Severity.NOTABLE,
        "KpNotRunning",
        "starts, and waits for nothing that another state names",
    )
    SILENT = (
        "silent",
        Severity.NOTABLE,
        "KpNotRunning",
        (
            "has sent its supervisor no heartbeat for more than 5 s, as a process that is suspended or "
            "hangs; it is restarted after `limits.heartbeat`"
        ),
    )
    STOPPING = ("stopping", Severity.NOTABLE, None, "is shutting down")
    WAITING_FOR_KAFKA = (
        "waiting_for_kafka",
        Severity.SERIOUS,
        "KpWaiting",
        (
            "has had no answer from a leader, the group's coordinator or, at its start, the transaction "
            "coordinator for more than 5 s, or a transaction that the brokers have not committed for as "
            "long, or a group that has been rebalancing for more than 10 s; [what it waits "
            "for](failures.md#what-a-worker-waits-for) is named"
        ),
    )
    FOREIGN_MEMBER = (
        "foreign_member",
        Severity.SERIOUS,
        "KpForeignMember",
        (
            "is in a group that the brokers have upgraded, because a client that is no worker joined it "
            "first ([KIP-848](failures.md#clients-in-the-workers-group))"
        ),
    )
    HELD_BACK = (
        "held_back",
        Severity.SERIOUS,
        "KpHeldBack",
        (
            "has read up to an open transaction of another producer in a partition of the raw topic, "
            "which has stayed open for more than 10 s"
        ),
    )
    THROTTLED = (
        "throttled",
        Severity.NOTABLE,
        "KpThrottled",
        "exceeds a quota of the brokers, which have answered late within the last minute",
    )
    RECOVERING = (
        "recovering",
        Severity.NOTABLE,
        "KpRecoveryLong",
        (
            "is reading the ledger of one or more of its partitions, or waiting for a transaction in "
            "which their former owner died"
        ),
    )
    POISON = (
        "poison",
        Severity.SERIOUS,
        "KpPoison",
        (
            "has a partition with a record that alone was in progress when a process died, and that is "
            "not committed"
        ),
    )
    DEAD_LETTERS = (
        "dead_letters",
        Severity.NOTABLE,
        "KpDeadLetters",
        (
            "has written 10 or more dead letters in the last quarter of an hour, which are more than 5% "
            "of the records, as in the alert `KpDeadLetters`"
        ),
    )
    BEHIND = (
        "behind",
        Severity.NOTABLE,
        "KpLagGrowing",
        (
            "has finished none of the records that wait for more than 5 s, as with a slow model, or has "
            "had, for 10 s, a backlog of more than a minute's work"
        ),
    )
    RESTARTING = (
        "restarting",
        Severity.NOTABLE,
        "KpRestarting",
        "works, but its process has ended and been started again two or more times in a quarter of an hour",
    )
    POLICY_EDIT_REFUSED = (
        "policy_edit_refused",
        Severity.NOTABLE,
        "KpPolicyReloadFailed",
        "works by the former policy, whose digest is named, until the settings file has a valid one again",
    )

    KEYS_ELSEWHERE = (
        "keys_elsewhere",
        Severity.NOTABLE,
        "KpKeysElsewhere",
        (
            "reads keys of which a fifth or more are in another partition than Kafka's default partitioner "
            "chooses"
        ),
    )
    OTHER_LANGUAGES = (
        "other_languages",
        Severity.NOTABLE,
        "KpOtherLanguages",
        (
            "works, but a fifth or more of the letters that it embeds are not Latin, while the default model "
            "knows English ([Languages](../curators/languages.md))"
        ),
    )
    OVER_BUDGET = (
        "over_budget",
        Severity.NOTABLE,
        "KpBudgetBurnSlow",
        "works, but takes longer than `limits.budget` to embed a text that fills the model's window",
    )

    @property
    def words(self) -> str:
        """The state's name in words."""
        return self.replace("_", " ").replace("kafka", "Kafka")


class ShownVerdict(msgspec.Struct, frozen=True):
    """A verdict as pages and probes show it.

    Attributes:
        state: the state.
        severity: its severity.
        text: the state, the reason and the waits in words.
        since: when the state began, in seconds since the epoch.
        runbook: the runbook's section; None if the state never requires action.
        runbook_url: the section's address; None if the runbook's is not known.
    """

    state: State
    severity: Severity
    text: str
    since: float
    runbook: str | None
    runbook_url: str | None


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
    waits: tuple[Wait, ...] = ()

    @property
    def runbook(self) -> str | None:
        """The runbook's section: whoever waits gets that of the alert on waits, in any state."""
        return State.WAITING_FOR_KAFKA.runbook if self.waits else self.state.runbook

    def shown(self, runbook: str | None) -> ShownVerdict:
        """Return the verdict as pages and probes show it.

        Args:
            runbook: the address of the runbook, if it is known.
        """
        section = self.runbook
        url = f"{runbook}#{section.lower()}" if runbook and section else None
        return ShownVerdict(self.state, self.state.severity, str(self), self.since, section, url)

    def as_dict(self, runbook: str | None) -> dict[str, Any]:
        """Return :meth:`shown` as plain JSON."""
        return cast("dict[str, Any]", msgspec.to_builtins(self.shown(runbook)))

    def __str__(self) -> str:
        name = self.state.words[0].upper() + self.state.words[1:]
        return "; ".join((f"{name}: {self.reason}" if self.reason else name, *map(str, self.waits)))
