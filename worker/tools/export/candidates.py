"""A record of a source as a candidate for the dataset, or why it is none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from knowledgepulse_schemas.headers import last_header
from knowledgepulse_schemas.trace import parse_date_time
from knowledgepulse_worker.errors import RejectedRecord
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.decode import decode_members, with_quality_score
from knowledgepulse_worker.records.entry import ScoreHeader
from knowledgepulse_worker.records.record import RawRecord
from knowledgepulse_worker.records.scored import worker_headers
from knowledgepulse_worker.records.summary import MetadataSummary, OutcomeSummary
from knowledgepulse_worker.redaction.departure import private
from knowledgepulse_worker.scoring import Score, rescore
from knowledgepulse_worker.tools.export.options import Choices

Dropped = Literal[
    "repeat",
    "foreign",
    "not_redacted",
    "visibility",
    "privacy_level",
    "not_clean",
    "other_domain",
    "before_since",
    "policy",
    "min_score",
    "not_selected",
    "both_sides",
]
"""Why a record is not in the dataset."""

REASONS: dict[str, str] = {
    "repeat": "repeats of earlier records",
    "foreign": "no scored traces of a worker",
    "not_redacted": "no redacted copy could be made",
    "visibility": "their visibility may not leave",
    "privacy_level": "their privacy level may not leave",
    "not_clean": "with secrets, or what identifies a person",
    "other_domain": "of another domain",
    "before_since": "from before `--since`",
    "policy": "below the threshold of `--policy`",
    "min_score": "below `--min-score`",
    "not_selected": "not among the best or most diverse",
    "both_sides": "alike to traces of two splits",
}

HELD: dict[Dropped, str] = {
    "visibility": "its visibility may not leave",
    "privacy_level": "its privacy_level may not leave",
    "not_clean": "the SDK's cleaning finds something in it",
}
"""Why a trace may not leave, as the log says it."""


class _Metadata(MetadataSummary, frozen=True):
    created_at: str = ""
    quality_score: float | None = None
    native_id: Any = None
    parent_id: Any = None


class _Task(msgspec.Struct, frozen=True):
    objective: str


class _Outcome(OutcomeSummary, frozen=True):
    result_summary: str = ""


class Members(msgspec.Struct, frozen=True):
    """The members of a trace that a candidate needs."""

    id: str
    metadata: _Metadata
    task: _Task
    outcome: _Outcome


@dataclass(frozen=True, slots=True)
class Candidate:
    """A scored trace that may leave.

    Attributes:
        source: ``kp-source``, or ``file:line``.
        timestamp_ms: the record's, or else when the trace was created; None if that is no time.
        score: under the policy of the export, if it has one.
        parts: the score's parts; None in a redacted copy or a file, which have no ``kp-score``.
        policy: digest of the policy of the score; None if it was not recorded.
        profile: the domain of the policy that the score has been made with.
        members: of the trace.
    """

    source: str
    timestamp_ms: int | None
    score: float
    parts: Score | None
    policy: str | None
    profile: str
    members: Members

    @property
    def day(self) -> str:
        """The date in UTC, or ``unknown``."""
        if self.timestamp_ms is None:
            return "unknown"
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC).date().isoformat()

    @property
    def groups(self) -> list[str]:
        """What ties the trace to others: the run that a subagent belongs to, and the objective."""
        metadata, objective = self.members.metadata, " ".join(self.members.task.objective.split())
        run = metadata.parent_id if isinstance(metadata.parent_id, str) else self.members.id
        return [f"run:{_digest(run)}", f"objective:{_digest(objective)}"]

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield what the card counts, by name."""
        metadata = self.members.metadata
        yield "day", self.day
        yield "domain", self.profile
        yield "decision", self.parts.decision if self.parts else "contribute"
        yield "framework", metadata.framework or "not stated"
        yield "agent", metadata.agent_id or "not stated"
        yield "visibility", metadata.visibility
        yield "policy", self.policy or "not recorded"
        if self.parts is not None:
            yield "threshold", f"{self.profile} {self.parts.threshold:g}"
        yield "score from", f"{int(self.score * 20 + 1e-9) / 20:.2f}"


def groups_of(candidate: Candidate, tasks: Mapping[str, str]) -> list[str]:
    """Return what ties a trace to others, its task first.

    Args:
        candidate: the trace.
        tasks: the group of its label, by the trace's id or by its run's native id.
    """
    names = (candidate.members.id, candidate.members.metadata.native_id)
    task = next((tasks[name] for name in names if isinstance(name, str) and name in tasks), None)
    return ([] if task is None else [f"task:{task}"]) + candidate.groups


def read_candidate(
    record: RawRecord, choices: Choices, policy: Policy, since_ms: int | None, *, has_score: bool
) -> Candidate | Dropped:
    """Return a record's candidate, or why there is none.

    Args:
        record: a record of a source.
        choices: of the dataset; if they have a policy, the trace is rescored.
        policy: that policy, or else the settings', whose profiles name the domain of a copy without
            ``kp-score``.
        since_ms: the time of the first record to export.
        has_score: whether records have ``kp-score``: those of files and redacted copies do not.
    """
    if last_header(record.headers, "kp-redaction-error") is not None:
        return "not_redacted"
    candidate = _read(record, policy)
    if candidate is None or (has_score and candidate.parts is None):
        return "foreign"
    if choices.policy is not None and candidate.parts is not None:
        candidate = _rescored(candidate, candidate.parts, policy)
    metadata, parts = candidate.members.metadata, candidate.parts
    held = private(metadata.visibility, metadata.privacy_level, choices.visibilities, choices.privacy_levels)
    if held is not None:
        return held
    checks: tuple[tuple[Dropped, bool], ...] = (
        (
            "other_domain",
            bool(choices.domains) and not {metadata.task_domain, candidate.profile} & {*choices.domains},
        ),
        ("before_since", since_ms is not None and (candidate.timestamp_ms or 0) < since_ms),
        ("policy", choices.policy is not None and (parts is None or parts.decision != "contribute")),
        ("min_score", candidate.score < choices.min_score),
    )
    return next((reason for reason, applies in checks if applies), candidate)


def _rescored(candidate: Candidate, parts: Score, policy: Policy) -> Candidate:
    score = rescore(parts, candidate.members.metadata, policy)
    return replace(
        candidate, score=score.quality_score, parts=score, policy=policy.digest, profile=score.domain
    )


def trace_of(record: RawRecord, candidate: Candidate, choices: Choices) -> bytes:
    """Return the bytes of a record's trace, with the score under the policy of the export, if it has one."""
    value = record.value or b""
    return value if choices.policy is None else with_quality_score(value, candidate.score)


def _read(record: RawRecord, policy: Policy) -> Candidate | None:
    try:
        members = decode_members(record.value or b"", Members)
        parts = _parts(record)
        source, digest = (
            (last_header(record.headers, name) or b"").decode() for name in ("kp-source", "kp-policy")
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RejectedRecord):
        return None
    metadata = members.metadata
    recorded = metadata.quality_score
    if not source or recorded is None or not 0 <= recorded <= 1:
        return None
    return Candidate(
        source=source,
        timestamp_ms=_time(record.timestamp_ms, metadata.created_at),
        score=recorded,
        parts=parts,
        policy=digest or None,
        profile=parts.domain if parts else policy.profile(metadata.task_domain).domain,
        members=members,
    )


def _parts(record: RawRecord) -> Score | None:
    headers = worker_headers(record.headers)
    return None if headers is None else ScoreHeader.decode(headers[1]).discreet().as_score()


def _time(timestamp_ms: int, created_at: str) -> int | None:
    """Return the time of a record that people can have meant; producers may set any."""
    try:
        moment = parse_date_time(created_at)
        created = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
        found = timestamp_ms if timestamp_ms >= 0 else round(created)
        datetime.fromtimestamp(found / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
