"""Recent events for the status page, in bounded ring buffers.

Lanes report every record, so recording takes only microseconds and keeps only excerpts of producers' texts.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, overload

import msgspec

from knowledgepulse_schemas.dead_letter import Reason
from knowledgepulse_worker.policy import ROUTES, Decision, Policy
from knowledgepulse_worker.records.ledger_records import Failure
from knowledgepulse_worker.scoring import Explanation, Score, ScoredRecord, explain_score, shortened
from knowledgepulse_worker.verdict import Finding

LAST_SCORES = 1000
"""Number of traces whose scores and times are kept."""

LAST_RECORDS = 20
"""Number of traces of each route, and of dead letters, that are kept with their details."""

LAST_TEXTS = 256
"""Number of texts of each domain whose letters are kept."""

RATE_SECONDS = 60
"""Number of whole seconds over which rates are computed."""

LETTER_MINUTES = 15
"""Number of minutes whose dead letters are counted by reason."""

MAX_TEXT = 200
"""Maximum length of an excerpt of an id, an objective or a message."""


UnreadOffsetReason = Literal["deleted", "passed_over"]
"""Why no worker reads an offset: it was deleted, or the group's position was set behind it."""


class PublishedTrace(NamedTuple):
    """A trace whose output is committed.

    Attributes:
        score: its score.
        decision: its route.
        agent_id: the agent's id; None if the trace names none.
        framework: the agent's framework; None if the trace names none.
        task_domain: the trace's own domain.
    """

    score: Score
    decision: Decision
    agent_id: str | None
    framework: str | None
    task_domain: str

    @property
    def has_profile(self) -> bool:
        """Whether the policy has a profile of the trace's domain; otherwise, ``default`` applies."""
        return self.task_domain == self.score.domain


class TraceOrigin(NamedTuple):
    """A published trace's agent, framework and decision."""

    agent_id: str | None
    framework: str | None
    decision: Decision


class TruncatedOffsets(NamedTuple):
    """Offsets whose scored records a leader election replaced, and when that was found."""

    partition: int
    offsets: range
    at: float


class Skip(NamedTuple):
    """Offsets that no worker reads, and when that was found."""

    partition: int
    offsets: range
    reason: UnreadOffsetReason
    at: float


@dataclass(frozen=True)
class RecentTrace:
    """A published trace, with excerpts of its producer's texts.

    Attributes:
        record: the trace and its score, whose domain names the applied profile.
        policy: the policy of the score; None if it is not among the latest policies in force.
        task_domain: the trace's own domain.
        objective: the trace's objective.
        at: the time of the commit, in seconds since the epoch.
    """

    record: ScoredRecord
    policy: Policy | None
    task_domain: str
    objective: str | None
    at: float

    @cached_property
    def explanation(self) -> Explanation | None:
        """The explanation of the score, computed on first use; None without the policy."""
        return None if self.policy is None else explain_score(self.record, self.policy)


class RecentDeadLetter(NamedTuple):
    """A dead letter, with excerpts of its producer's texts; :meth:`Recent.dead_lettered` says the rest."""

    source: str
    at: float
    trace_id: str | None
    objective: str | None
    score: Score | None
    reason: Reason
    exception: str
    message: str


class History(msgspec.Struct, frozen=True):
    """What a process hands over to the next one; see :class:`Recent`.

    Attributes:
        at: when it was written, in seconds since the epoch.
    """

    at: float
    began: float
    totals: dict[str, int]
    last_output: float | None
    scores: list[tuple[str, float, bool]]
    scoring_seconds: list[float]
    end_to_end_seconds: list[float]
    origins: list[TraceOrigin]
    letters: dict[str, list[tuple[int, int]]]
    unprofiled: list[str]
    traces: dict[Decision, list[RecentTrace]]
    dead_letters: list[RecentDeadLetter]
    truncations: list[TruncatedOffsets]
    skips: list[Skip]
    seconds: list[tuple[int, dict[str, int]]]
    minutes: list[tuple[int, dict[str, int]]]
    letter_minutes: list[tuple[int, dict[str, int]]]


_KEPT = (
    *("scores", "scoring_seconds", "end_to_end_seconds", "origins", "unprofiled", "dead_letters"),
    *("truncations", "skips"),
)
"""The lists of a history that :class:`Recent` has under the same names."""


class Recent:
    """The latest scores, times, origins, traces and dead letters.

    Attributes:
        scores: ``(domain, score, passes)`` of published traces; a trace that is withheld may pass.
        scoring_seconds: times from admission to score.
        end_to_end_seconds: times from a record's timestamp to the commit of its output.
        origins: origins of published traces.
        letters: for each domain, the numbers of Latin and of other letters of the last embedded texts.
        unprofiled: task domains of published traces that have no profile in the policy.
        traces: published traces with their details, by decision.
        dead_letters: dead letters with their details.
        truncations: the latest truncations that were found, for as long as the worker runs.
        skips: likewise, the latest offsets that no worker reads.
        ends: when the last processes before this one ended, in seconds since the epoch, the latest last.
        last_end: how the last one ended; empty for the first.
        former_findings: what it had found of itself and may still be true.
        over_budget: how long a text takes to embed, if that exceeds the budget; else empty.
        last_output: the time of the last committed output, in seconds since the epoch; None before it.
        totals: the numbers of all outcomes since the worker's start.
        began: when the worker started (``time.monotonic``, which all processes of a machine share).
        before_restart: when the process before wrote what is here, until this one has finished a record; else
            None.
        answers: the registry's latest answers to contributions, counted by result.
    """

    def __init__(self) -> None:
        self.scores: deque[tuple[str, float, bool]] = deque(maxlen=LAST_SCORES)
        self.scoring_seconds: deque[float] = deque(maxlen=LAST_SCORES)
        self.end_to_end_seconds: deque[float] = deque(maxlen=LAST_SCORES)
        self.origins: deque[TraceOrigin] = deque(maxlen=LAST_SCORES)
        self.letters: defaultdict[str, deque[tuple[int, int]]] = defaultdict(lambda: deque(maxlen=LAST_TEXTS))
        self.unprofiled: deque[str] = deque(maxlen=LAST_SCORES)
        self.traces: dict[Decision, deque[RecentTrace]] = {
            decision: deque(maxlen=LAST_RECORDS) for decision in ROUTES
        }
        self.dead_letters: deque[RecentDeadLetter] = deque(maxlen=LAST_RECORDS)
        self.truncations: deque[TruncatedOffsets] = deque(maxlen=LAST_RECORDS)
        self.skips: deque[Skip] = deque(maxlen=LAST_RECORDS)
        self.answers: Counter[str] = Counter()
        self.over_budget = ""
        self.ends: tuple[float, ...] = ()
        self.last_end = ""
        self.former_findings: tuple[Finding, ...] = ()
        self.last_output: float | None = None
        self.totals: Counter[str] = Counter()
        self.began = time.monotonic()
        self.before_restart: float | None = None
        self._seconds: deque[tuple[int, Counter[str]]] = deque(maxlen=RATE_SECONDS + 1)
        self._transactions: deque[tuple[int, Counter[str]]] = deque(maxlen=RATE_SECONDS + 1)
        self._minutes: deque[tuple[int, Counter[str]]] = deque(maxlen=LETTER_MINUTES + 1)
        self._letters: deque[tuple[int, Counter[str]]] = deque(maxlen=LETTER_MINUTES + 1)

    def history(self) -> History:
        """Return what the next process of this worker begins with."""
        return History(
            at=time.time(),
            began=self.began,
            totals=self.totals,
            last_output=self.last_output,
            letters={domain: list(letters) for domain, letters in self.letters.items()},
            traces={decision: list(traces) for decision, traces in self.traces.items()},
            **{name: list(getattr(self, name)) for name in _KEPT},
            seconds=list(self._seconds),
            minutes=list(self._minutes),
            letter_minutes=list(self._letters),
        )

    def continue_from(self, history: History) -> None:
        """Begin with the events of the process before."""
        self.began, self.last_output = history.began, history.last_output
        self.before_restart = None if history.last_output is None else history.at
        self.totals.update(history.totals)
        for name in _KEPT:
            getattr(self, name).extend(getattr(history, name))
        for domain, letters in history.letters.items():
            self.letters[domain].extend(letters)
        for decision, traces in history.traces.items():
            self.traces[decision].extend(traces)
        for counts, kept in (
            (self._seconds, history.seconds),
            (self._minutes, history.minutes),
            (self._letters, history.letter_minutes),
        ):
            counts.extend((at, Counter(count)) for at, count in kept)

    def scored(self, seconds: float) -> None:
        """Record the time from a record's admission to its score."""
        self.scoring_seconds.append(seconds)

    def finished(self, outcomes: Mapping[str, int], end_to_end: Iterable[float]) -> None:
        """Record committed outputs.

        Args:
            outcomes: their numbers, by route or as dead_letter.
            end_to_end: the seconds from the records' timestamps.
        """
        now = time.monotonic()
        _count(self._seconds, int(now), outcomes)
        _count(self._minutes, int(now / 60), outcomes)
        self.totals.update(outcomes)
        self.last_output, self.before_restart = time.time(), None
        self.end_to_end_seconds.extend(end_to_end)

    def committed(self, waited_for: str) -> None:
        """Record a transaction, and what its begin waited for."""
        _count(self._transactions, int(time.monotonic()), {waited_for: 1})

    def published(self, traces: Sequence[PublishedTrace]) -> None:
        """Record the scores and the origins of published traces, and their domains without a profile."""
        for score, decision, agent_id, framework, task_domain in traces[-LAST_SCORES:]:
            self.scores.append((score.domain, score.quality_score, score.passes))
            self.origins.append(TraceOrigin(excerpt(agent_id), excerpt(framework), decision))
            if task_domain != score.domain:
                self.unprofiled.append(excerpt(task_domain))

    def passed(self) -> dict[str, list[str | None]]:
        """Return the agents of the latest traces that were contributed, by domain."""
        agents: defaultdict[str, list[str | None]] = defaultdict(list)
        for (domain, *_), origin in zip(self.scores, self.origins, strict=True):
            if ROUTES[origin.decision].kept:
                agents[domain].append(origin.agent_id)
        return agents

    def detailed(self, record: ScoredRecord, policy: Policy | None, objective: str | None) -> None:
        """Record the details of a published trace, and the policy of its score, if it is known."""
        trace = RecentTrace(
            _bounded(record), policy, excerpt(record.task_domain), excerpt(objective), time.time()
        )
        self.traces[record.score.decision].append(trace)

    def truncated(self, partition: int, offsets: range) -> None:
        """Record that the scored records at these offsets were replaced."""
        self.truncations.append(TruncatedOffsets(partition, offsets, time.time()))

    def skipped(self, partition: int, offsets: range, reason: UnreadOffsetReason) -> None:
        """Record that no worker reads these offsets."""
        self.skips.append(Skip(partition, offsets, reason, time.time()))

    def dead_lettered(
        self,
        source: str,
        *,
        score: Score | None,
        failure: Failure,
        trace_id: str | None,
        objective: str | None,
    ) -> None:
        """Record a dead letter.

        Args:
            source: ``topic/partition/offset`` of the raw record.
            score: the record's score; None if it was not scored.
            failure: why it is a dead letter.
            trace_id: the trace's id; None if the record could not be decoded.
            objective: the trace's objective; None if the record could not be decoded.
        """
        _count(self._letters, int(time.monotonic() / 60), {failure.reason: 1})
        letter = RecentDeadLetter(
            source,
            time.time(),
            excerpt(trace_id),
            excerpt(objective),
            None if score is None else _bounded_score(score),
            failure.reason,
            failure.exception,
            excerpt(failure.message),
        )
        self.dead_letters.append(letter)

    def per_second(self) -> list[Counter[str]]:
        """Return the outcome counts of the last whole seconds, oldest first."""
        counts = dict(self._seconds)
        now = int(time.monotonic())
        return [counts.get(second, Counter()) for second in range(now - RATE_SECONDS, now)]

    def transactions(self) -> Counter[str]:
        """Count the transactions of the last whole seconds, by what their begin waited for."""
        now = int(time.monotonic())
        seconds = (count for second, count in self._transactions if now - RATE_SECONDS <= second < now)
        return sum(seconds, Counter())

    def letters_by_reason(self) -> Counter[str]:
        """Count the dead letters of the last :data:`LETTER_MINUTES` and of the current minute."""
        return _sum_of_minutes(self._letters)

    def outcomes(self) -> Counter[str]:
        """Count the outcomes of the same time."""
        return _sum_of_minutes(self._minutes)


def _sum_of_minutes(counts: Iterable[tuple[int, Counter[str]]]) -> Counter[str]:
    first = int(time.monotonic() / 60) - LETTER_MINUTES
    return sum((count for minute, count in counts if minute >= first), Counter())


def _count(counts: deque[tuple[int, Counter[str]]], now: int, events: Mapping[str, int]) -> None:
    """Count events in the current second or minute."""
    if not counts or counts[-1][0] != now:
        counts.append((now, Counter()))
    counts[-1][1].update(events)


def _bounded_score(score: Score) -> Score:
    return msgspec.structs.replace(score, nearest=excerpt(score.nearest))


def _bounded(record: ScoredRecord) -> ScoredRecord:
    """Return the record with excerpts of its producer's texts; the same object if nothing changes."""
    score, id_, nearest = record.score, excerpt(record.id), excerpt(record.score.nearest)
    if (id_, nearest, score.domain) == (record.id, score.nearest, record.task_domain):
        return record
    return replace(record, id=id_, task_domain=score.domain, score=_bounded_score(score))


@overload
def excerpt(text: str) -> str: ...
@overload
def excerpt(text: str | None) -> str | None: ...
def excerpt(text: str | None) -> str | None:
    """Return the beginning of a text on one line, without lone surrogates."""
    if text is None:
        return None
    if len(text) <= MAX_TEXT and text.isascii() and text.isprintable() and "  " not in text:
        return text.strip(" ")
    return shortened(text, MAX_TEXT).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
