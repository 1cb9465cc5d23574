"""What a backend of traces does: list runs, return their content, and take scores.

Every backend is a subclass of :class:`Backend` in a module of its own, which alone knows its interface and
what the command line and the pages say of it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, ClassVar, NamedTuple, Self, TypeVar
from uuid import NAMESPACE_URL, uuid5

from knowledgepulse_convert import RunOutcome
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.tools.backends.backend_client import BackendClient, BackendRefusal, bearer_header

SCORE = "knowledgepulse.quality_score"
"""The name of the score in every backend."""

SCORES_TOGETHER = 50
"""Number of scores that are sent together."""

PULLED_FROM = "pulled_from"
"""The member of a trace's metadata that names the backend and the run it was pulled from."""

OUTCOMES = ("success", "confidence")
"""The names of the judgements in a backend that state how a run ended."""

LATEST_MS = 253_402_214_400_000
"""The latest time, in milliseconds since the epoch: the end of 9999-12-30, which is a date in all zones."""

_SHOWN = 50
"""Number of characters of an odd text in a message."""

_RUN_ID = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,256}")


FAULTS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a fault of this program raises on data that it did not expect; one run's do not end a command."""


def fault_text(fault: Exception) -> str:
    """Return what a fault was, for a message."""
    return printable(f"{type(fault).__name__}: {fault}")


Item = TypeVar("Item")


class RunListing(NamedTuple):
    """A run in a backend's list.

    Attributes:
        id: the run's id in the backend; empty if it has none.
        started_ms: its start, in milliseconds since the epoch.
        problem: why the run cannot be read, if its place in the list tells.
    """

    id: str
    started_ms: int
    problem: str | None = None

    @classmethod
    def of(cls, run: str, started: str) -> Self:
        """Return the listing of a run with the start as the backend writes it, which is ISO 8601.

        A run without a start counts as one that started last, so that a pull remembers it for good.
        """
        if not _RUN_ID.fullmatch(run):
            return cls("", LATEST_MS, f"{printable(run[:_SHOWN])} is no id of a run")
        try:
            return cls(run, milliseconds_at(started))
        except ValueError:
            return cls(run, LATEST_MS, f"its start is no time: {printable(started[:_SHOWN])}")


class RunError(Exception):
    """The content of a run has a form that cannot be read, or is too large."""


@dataclass(frozen=True)
class RunContent:
    """A run's content, in a format that the converters read.

    Attributes:
        listing: the run.
        document: plain JSON.
        format_name: the input format of the document.
        has_ended: whether the run's root has ended; the runs of an agent that was killed never do.
        last_ms: the time of the last thing in it, in milliseconds since the epoch.
        outcome: how the run ended, according to judgements in the backend.
    """

    listing: RunListing
    document: Any
    format_name: str
    has_ended: bool
    last_ms: int
    outcome: RunOutcome | None = None


@dataclass(frozen=True)
class RunScore:
    """A run's score, as a backend gets it.

    Attributes:
        run: the run's id in the backend.
        trace_id: the trace's id.
        value: the score, 0 to 1.
        label: the decision.
        explanation: the dimensions, the overrides and the threshold, in words.
        time_ms: the time of the trace, in milliseconds since the epoch.
        details: further facts: source, policy, nearest trace.
    """

    run: str
    trace_id: str
    value: float
    label: str
    explanation: str
    time_ms: int
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        """The id of the score. It does not depend on the value, so a new score replaces the old one."""
        return str(uuid5(NAMESPACE_URL, f"{SCORE} {self.trace_id}"))


class ScoreRefusal(NamedTuple):
    """A score that is not in a backend, and why.

    Attributes:
        score: the score.
        reason: why the backend refused it, or what went wrong.
        is_fault: whether it is a fault of this program's that it could not be sent.
    """

    score: RunScore
    reason: str
    is_fault: bool = False


class BackendWords(NamedTuple):
    """What `--help` and the pages say of a backend.

    Attributes:
        title: its name in a sentence.
        page: the address of its documentation.
        score: what a score becomes in it.
        url: the address of its own service; None if people run their own.
        project: what `--project` is to it, if not the name of a project.
        project_note: what else the page says about `--project`.
        key: what a file with its key contains, if it may be more than one word.
    """

    title: str
    page: str
    score: str
    url: str | None = None
    project: str | None = None
    project_note: str | None = None
    key: str | None = None


class Backend(ABC):
    """A backend of traces.

    Attributes:
        name: its name on the command line.
        words: what `--help` and the pages say of it.
        variables: the variables of the environment with its key, as its own client reads them: alternatives,
            of which two are a user and a password.
        together: the number of runs that are read together.
        writes_together: whether it takes several scores in one request.
        run_id: the form of the ids of its runs.
        url: its address, without user and password.
        project: the project, or what the backend calls it.
    """

    name: ClassVar[str]
    words: ClassVar[BackendWords]
    variables: ClassVar[tuple[tuple[str, ...], ...]]
    together: ClassVar[int] = 1
    writes_together: ClassVar[bool] = False
    run_id: ClassVar[re.Pattern[str]] = _RUN_ID

    def __init__(self, client: BackendClient, project: str) -> None:
        self._client = client
        self.url = client.url
        self.project = project

    @staticmethod
    def headers(key: str | None) -> dict[str, str]:
        """Return the headers that authorize requests; none without a key.

        Raises:
            InputError: the key has characters that HTTP headers do not allow.
        """
        return bearer_header(key)

    @abstractmethod
    def runs(self, since_ms: int | None) -> AsyncIterator[list[RunListing]]:
        """Yield pages of the runs that started at this time or later.

        Raises:
            BackendRefusal: the backend refuses.
            UnknownFormError: its answer has an unknown form, or the pages have no end.
            InputError: it does not answer, or has no such project.
            SecurityError: it refuses the key.
        """

    @abstractmethod
    async def read(self, listings: Sequence[RunListing]) -> list[RunContent]:
        """Return the content of runs, at most :attr:`together`.

        Raises:
            RunError: that of one of them cannot be read.
            BackendRefusal: the backend refuses.
            UnknownFormError: its answer has an unknown form, or is too large.
            InputError: it does not answer.
            SecurityError: it refuses the key.
        """

    @abstractmethod
    async def write(self, scores: Sequence[RunScore]) -> None:
        """Write scores, each of which replaces the earlier one of its trace; one at a time, as it says.

        Raises:
            BackendRefusal: it refuses any of them, with the status 404 if it has no such run.
            SecurityError: it refuses the key.
            InputError: it cannot be reached.
        """

    async def send(self, scores: Sequence[RunScore]) -> list[ScoreRefusal]:
        """Write scores, and one by one if the backend refuses them together; return those it refused.

        Raises:
            SecurityError: it refuses the key.
            InputError: it cannot be reached.
        """
        if self.writes_together:
            with suppress(BackendRefusal, *FAULTS):
                await self.write(scores)
                return []
        refusals = []
        for score in scores:
            try:
                await self.write([score])
            except BackendRefusal as refused:
                unknown = refused.status == HTTPStatus.NOT_FOUND
                refusals.append(ScoreRefusal(score, "no such run" if unknown else str(refused)))
            except FAULTS as fault:
                refusals.append(ScoreRefusal(score, fault_text(fault), is_fault=True))
        return refusals

    def link(self, run: str) -> str | None:
        """Return the address of a run's page; None if it is not known."""
        return None

    def run_of(self, trace_id: str) -> str | None:
        """Return the id of the run of an OpenTelemetry trace; None if the backend does not know these ids."""
        return None


def batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield items in order, at most so many at a time."""
    return (items[start : start + size] for start in range(0, len(items), size))


def milliseconds_of(moment: datetime) -> int:
    """Return a time as milliseconds since the epoch, :func:`clamped`; it is in UTC unless it has a zone."""
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return clamped(int(moment.timestamp() * 1000))


def milliseconds_at(text: str) -> int:
    """Return a time in ISO 8601 as :func:`milliseconds_of`; raise a ValueError if it is none."""
    return milliseconds_of(datetime.fromisoformat(text))


def clamped(milliseconds: int) -> int:
    """Return a time that all calendars and zones have: from the epoch to :data:`LATEST_MS`."""
    return min(max(milliseconds, 0), LATEST_MS)


def iso_of(milliseconds: int) -> str:
    """Return a time in ISO 8601."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def outcome_of(judgements: Mapping[str, Any]) -> RunOutcome | None:
    """Return the outcome that judgements state, by name; None if they state none."""
    outcome = RunOutcome.of_scores(judgements.items())
    return None if outcome == RunOutcome() else outcome
