"""The states of a worker, their alerts, and the verdict: which states apply, the most serious first.

Status page, readiness probe, the metric ``kp_state``, log and alerts share it. No finding hides another one:
only what another finding explains, such as a start that waits for brokers, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self, cast

import msgspec

from knowledgepulse_kafka.wait import Wait


class Severity(StrEnum):
    """How serious a state is, the least first, which gives its colour on the status page."""

    ORDINARY = "ordinary"
    NOTABLE = "notable"
    SERIOUS = "serious"


STATE_HELP = "1 for each state that applies to the worker and that no other one explains"
"""The help text of the metric ``kp_state``, which the supervisor serves while no process does."""


class StateAlert(NamedTuple):
    """The alert on a state of a worker.

    Attributes:
        severity: ``page`` wakes somebody, since partitions are not scored; a ``ticket`` can wait for working
            hours.
        minutes: how long the state must last. One that has a time in its meaning needs no other.
        summary: what is wrong.
    """

    severity: Literal["page", "ticket"]
    minutes: int
    summary: str


class State(StrEnum):
    """The states of a worker. Several may apply at once.

    Attributes:
        severity: how serious the state is.
        meaning: what the worker in this state does or has, as a table's row in Markdown; links are relative
            to docs/operators.
        alert: the alert on the state; None if it needs none, or if an alert on more than one worker, or on
            another window of time, tells of the same.
        runbook: the runbook's section on the state; None if it never requires action.
    """

    severity: Severity
    meaning: str
    alert: StateAlert | None
    runbook: str | None

    def __new__(
        cls, value: str, severity: Severity, meaning: str, alert: StateAlert | str | None = None
    ) -> Self:
        """Return the member with its attributes; in place of its own alert, another one may be named."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.severity, member.meaning = severity, meaning
        member.alert = alert if isinstance(alert, StateAlert) else None
        member.runbook = value if isinstance(alert, StateAlert) else alert
        return member

    HEALTHY = ("healthy", Severity.ORDINARY, "works, keeps up, and is in none of the other states")
    STARTING = (
        "starting",
        Severity.NOTABLE,
        "starts, and waits for nothing that another state names",
        # A model may be downloaded for ten minutes, and an orchestrator pauses for five between its restarts.
        # While other workers own all partitions, nothing else tells.
        StateAlert("ticket", 20, "the worker starts again and again, or its start does not end"),
    )
    SILENT = (
        "silent",
        Severity.NOTABLE,
        (
            "has sent its supervisor no heartbeat for more than 5 s, as a process that is suspended or "
            "hangs; it is restarted after `limits.heartbeat`"
        ),
        # A restart ends it; so it lasts where the machine has no time for any process.
        StateAlert("ticket", 20, "the worker does not respond to its supervisor"),
    )
    STOPPING = ("stopping", Severity.NOTABLE, "is shutting down")
    WAITING_FOR_KAFKA = (
        "waiting_for_kafka",
        Severity.SERIOUS,
        (
            "has had no answer from a leader, the group's coordinator or, at its start, the transaction "
            "coordinator for more than 5 s, or a transaction that the brokers have not committed for as "
            "long, or a group that has been rebalancing for more than 10 s, or has waited for brokers with "
            "the ledgers of its partitions for more than 30 s; [what it waits "
            "for](../reference/waits.md) is named"
        ),
        "KpWaiting",  # which names the request, and is of other commands, too
    )
    REFUSED = (
        "refused",
        Severity.SERIOUS,
        (
            "cannot start again, since the brokers refuse its login or a right, or since a setting, a topic "
            "or the model is wrong: it needs you, and tries again until then"
        ),
        # A password changes on one side first, and a topic that is created again is missing for a moment.
        StateAlert("page", 5, "cannot start again: a login, a right, a setting or a topic is wrong"),
    )
    FOREIGN_MEMBER = (
        "foreign_member",
        Severity.SERIOUS,
        (
            "is in a group that the brokers have upgraded, because a client that is no worker joined it "
            "first ([KIP-848](failures.md#clients-in-the-workers-group))"
        ),
        # It may commit past records at any moment.
        StateAlert("page", 0, "a client that is no worker is in the workers' group"),
    )
    HELD_BACK = (
        "held_back",
        Severity.SERIOUS,
        (
            "has read up to an open transaction of another producer in a partition of the raw topic, "
            "which has stayed open for more than 10 s"
        ),
        # A producer's transactions last for seconds, and brokers abort them after one minute by default.
        StateAlert("page", 1, "another producer's open transaction holds back records of the raw topic"),
    )
    THROTTLED = (
        "throttled",
        Severity.NOTABLE,
        "exceeds a quota of the brokers, which have answered late within the last minute",
        "KpThrottled",  # for more than half of the time: a short burst is no reason to act
    )
    RECOVERING = (
        "recovering",
        Severity.NOTABLE,
        (
            "is reading the ledger of one or more of its partitions, or waiting for a transaction in "
            "which their former owner died"
        ),
        # It takes seconds, and the partitions are not scored meanwhile.
        StateAlert("page", 5, "the ledgers of partitions are not recovered, and their traces not scored"),
    )
    POISON = (
        "poison",
        Severity.SERIOUS,
        (
            "has a partition with a record that alone was in progress when a process died, and that is "
            "not committed"
        ),
        "KpPoison",  # that one was buried, whichever worker it was, within an hour
    )
    DEAD_LETTERS = (
        "dead_letters",
        Severity.NOTABLE,
        (
            "has written 10 or more dead letters in the last quarter of an hour, which are more than 5% "
            "of the records, as in the alert `KpDeadLetters` of all workers"
        ),
        "KpDeadLetters",
    )
    BEHIND = (
        "behind",
        Severity.NOTABLE,
        (
            "has finished none of the records that wait for more than 5 s, as with a slow model, or has "
            "had, for 10 s, a backlog of more than a minute's work"
        ),
        "KpLagGrowing",  # of the group, for a quarter of an hour: a backlog that shrinks is no reason to act
    )
    RESTARTING = (
        "restarting",
        Severity.NOTABLE,
        "has a process that ended and was started again three or more times in half an hour",
        # Its time is in its meaning. Each process may work for minutes, so that nothing else tells.
        StateAlert("ticket", 0, "the worker's process ends again and again"),
    )
    POLICY_EDIT_REFUSED = (
        "policy_edit_refused",
        Severity.NOTABLE,
        "works by the former policy, whose digest is named, until the settings file has a valid one again",
        # Whoever edits the file believes that it was taken.
        StateAlert("ticket", 0, "could not load a new policy, and works by the former one"),
    )

    KEYS_ELSEWHERE = (
        "keys_elsewhere",
        Severity.NOTABLE,
        (
            "reads keys of which a fifth or more are in another partition than Kafka's default partitioner "
            "chooses"
        ),
        "KpKeysElsewhere",  # of all partitions, in an hour
    )
    OTHER_LANGUAGES = (
        "other_languages",
        Severity.NOTABLE,
        (
            "works, but a fifth or more of the letters that it embeds are not Latin, while the default model "
            "knows English ([Languages](../curators/languages.md))"
        ),
        # One producer's burst is over sooner.
        StateAlert("ticket", 30, "a model that knows English embeds texts in other languages"),
    )
    OVER_BUDGET = (
        "over_budget",
        Severity.NOTABLE,
        "works, but takes longer than `limits.budget` to embed a text that fills the model's window",
        "KpBudgetBurnSlow",  # that traces have been late for hours
    )

    @property
    def words(self) -> str:
        """The state's name in words."""
        return self.replace("_", " ").replace("kafka", "Kafka")

    @property
    def heading(self) -> str:
        """The state's name in words, as a line begins with it."""
        return self.words[0].upper() + self.words[1:]


class Finding(msgspec.Struct, frozen=True):
    """A state that applies, and why.

    Attributes:
        state: the state.
        reason: the reason, in a few words; empty if there is none.
        since: when the state began, in seconds since the epoch.
        waits: what the worker waits for, if it waits.
    """

    state: State
    reason: str = ""
    since: float = 0.0
    waits: tuple[Wait, ...] = ()

    @property
    def runbook(self) -> str | None:
        """The runbook's section: whoever waits gets that of the alert on waits, in any state."""
        return State.WAITING_FOR_KAFKA.runbook if self.waits else self.state.runbook

    def __str__(self) -> str:
        name = self.state.heading
        return "; ".join((f"{name}: {self.reason}" if self.reason else name, *map(str, self.waits)))


class ShownFinding(msgspec.Struct, frozen=True):
    """A finding as pages and probes show it.

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


class ShownVerdict(ShownFinding, frozen=True):
    """A verdict as pages and probes show it: the most serious finding.

    Attributes:
        others: the other findings, the most serious first.
    """

    others: tuple[ShownFinding, ...]


class Verdict(msgspec.Struct, frozen=True):
    """All that is found about a worker.

    Attributes:
        findings: one for each state that applies, the most serious first; at least one.
    """

    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, findings: Iterable[Finding], former: Iterable[Finding] = ()) -> Self:
        """Return the verdict that follows from findings.

        The most serious finding is the first; of equally serious ones, the first that was found. A worker is
        healthy if nothing else is found.

        Args:
            findings: what an observer has found. What another of these findings explains is left out.
            former: what a process before has found and this observer cannot know.
        """
        found = dict[State, Finding]()
        for finding in findings:
            found[finding.state] = _joined(found.get(finding.state), finding)
        explained = {state for cause in found for state in _EXPLAINS.get(cause, ())}
        kept = [finding for finding in found.values() if finding.state not in explained]
        kept += [finding for finding in former if finding.state not in found]
        by_severity = sorted(kept, key=lambda finding: _RANK[finding.state.severity])
        return cls(tuple(by_severity) or (Finding(State.HEALTHY),))

    @property
    def state(self) -> State:
        """The most serious state."""
        return self.findings[0].state

    @property
    def states(self) -> frozenset[State]:
        """The states that apply."""
        return frozenset(finding.state for finding in self.findings)

    @property
    def lasting(self) -> tuple[Finding, ...]:
        """The findings that may still be true when the process that made them is gone."""
        return tuple(finding for finding in self.findings if finding.state not in _OF_ONE_PROCESS)

    def since(self, state: State) -> float | None:
        """Return when a state began; None if it does not apply."""
        return next((finding.since for finding in self.findings if finding.state is state), None)

    def shown(self, runbook: str | None) -> ShownVerdict:
        """Return the verdict as pages and probes show it.

        Args:
            runbook: the address of the runbook, if it is known.
        """
        first, *others = (_shown(finding, runbook) for finding in self.findings)
        return ShownVerdict(**msgspec.structs.asdict(first), others=tuple(others))

    def as_dict(self, runbook: str | None) -> dict[str, Any]:
        """Return :meth:`shown` as plain JSON."""
        return cast("dict[str, Any]", msgspec.to_builtins(self.shown(runbook)))

    def __str__(self) -> str:
        return str(self.findings[0])


def _joined(first: Finding | None, second: Finding) -> Finding:
    """Return one finding for two reasons of the same state."""
    if first is None:
        return second
    waits = tuple(dict.fromkeys((*first.waits, *second.waits)))
    return msgspec.structs.replace(first, reason=f"{first.reason}; {second.reason}", waits=waits)


def _shown(finding: Finding, runbook: str | None) -> ShownFinding:
    state, section = finding.state, finding.runbook
    url = f"{runbook}#{section.lower()}" if runbook and section else None
    return ShownFinding(state, state.severity, str(finding), finding.since, section, url)


_RANK = {severity: -rank for rank, severity in enumerate(Severity)}

_EXPLAINS = {
    State.WAITING_FOR_KAFKA: {State.STARTING, State.RECOVERING},
    State.THROTTLED: {State.STARTING},
    State.RECOVERING: {State.STARTING},
}
"""The states that are nothing but a consequence of another one."""

_OF_ONE_PROCESS = {State.HEALTHY, State.STARTING, State.SILENT, State.STOPPING, State.RECOVERING}
"""The states that end with the process."""
