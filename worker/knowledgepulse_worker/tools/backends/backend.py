"""What a backend of traces does: list runs, return their content, and take scores.

Every backend is a subclass of :class:`Backend` in a module of its own, which alone knows its interface and
what the command line and the pages say of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from knowledgepulse_schemas.convert import RunOutcome
from knowledgepulse_worker.tools.backends.backend_client import BackendClient, bearer_header

SCORE = "knowledgepulse.quality_score"
"""The name of the score in every backend."""

PULLED_FROM = "pulled_from"
"""The member of a trace's metadata that names the backend and the run it was pulled from."""

OUTCOMES = ("success", "confidence")
"""The names of the judgements in a backend that state how a run ended."""


class RunListing(NamedTuple):
    """A run in a backend's list.

    Attributes:
        id: the run's id in the backend.
        started_ms: its start, in milliseconds since the epoch.
    """

    id: str
    started_ms: int


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
    """A score that a backend refused, and why."""

    score: RunScore
    reason: str


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
    """

    name: ClassVar[str]
    words: ClassVar[BackendWords]
    variables: ClassVar[tuple[tuple[str, ...], ...]]

    def __init__(self, client: BackendClient, project: str) -> None:
        self._client = client
        self._project = project

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
            InputError: the backend refuses, or there is no such project.
            SecurityError: it refuses the key.
        """

    @abstractmethod
    def contents(self, listings: Sequence[RunListing]) -> AsyncIterator[RunContent]:
        """Yield the content of runs; raises as :meth:`runs`."""

    @abstractmethod
    async def send(self, scores: Sequence[RunScore]) -> list[ScoreRefusal]:
        """Write scores, each of which replaces the earlier one of its trace; return those it refused.

        Raises:
            SecurityError: it refuses the key.
            InputError: it cannot be reached.
        """

    def link(self, run: str) -> str | None:
        """Return the address of a run's page; None if it is not known."""
        return None

    def run_of(self, trace: Mapping[str, Any]) -> str | None:
        """Return the id of a trace's run in this backend; None if the trace does not tell.

        ``trace``: the JSON of a trace that may come from elsewhere.
        """
        return None


def run_in(backend: Backend, trace: Mapping[str, Any]) -> str | None:
    """Return the id of a trace's run in a backend: of the run it was pulled from, or else of its span."""
    match trace["metadata"].get(PULLED_FROM):
        case {"backend": backend.name, "run": str(run)}:
            return run
    return backend.run_of(trace)


def milliseconds_of(text: str) -> int:
    """Return a time in ISO 8601 as milliseconds since the epoch; it is in UTC unless it names a zone."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def outcome_of(judgements: Mapping[str, Any]) -> RunOutcome | None:
    """Return the outcome that judgements state, by name; None if they state none."""
    success, confidence = (_number(judgements.get(name)) for name in OUTCOMES)
    if success not in (0, 1):
        success = None
    if confidence is not None and not 0 <= confidence <= 1:
        confidence = None
    if success is None and confidence is None:
        return None
    return RunOutcome(None if success is None else bool(success), confidence)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
