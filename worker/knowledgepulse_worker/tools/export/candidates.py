"""A record of a source as a candidate for the dataset, or why it is none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from knowledgepulse_schemas.headers import last_header
from knowledgepulse_schemas.trace import parse_date_time
from knowledgepulse_worker.embedding import Embedder
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.content import counts_of
from knowledgepulse_worker.records.decode import decode_members, with_quality_score
from knowledgepulse_worker.records.record import RawRecord
from knowledgepulse_worker.records.score_header import decode_score, without_content
from knowledgepulse_worker.records.scored import worker_headers
from knowledgepulse_worker.records.summary import MetadataSummary, OutcomeSummary
from knowledgepulse_worker.scoring import Score, TraceText, rescore
from knowledgepulse_worker.tools.export.manifest import Choices

REASONS = {
    "repeat": "repeat of an earlier record",
    "foreign": "not a scored trace written by a worker",
    "not_redacted": "no redacted copy could be made",
    "visibility": "visibility not permitted to leave",
    "privacy_level": "privacy level not permitted to leave",
    "not_clean": "the SDK's cleaner finds something",
    "secret": "`--scan-secrets` finds a key",
    "unscanned": "`--scan-secrets` did not finish in time",
    "not_convertible": "a number that `--also` cannot convert",
    "other_domain": "another domain",
    "before_since": "before `--since`",
    "policy": "below the threshold of `--policy`",
    "min_score": "below `--min-score`",
    "not_selected": "not among the best or most diverse",
    "both_sides": "matches traces in two splits",
}
"""Why a record is not in the dataset, in words."""


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
    """A scored trace that may leave."""

    source: str  # `kp-source`, or `file:line`
    timestamp_ms: int | None  # the record's, or else when the trace was created; None if that is no time
    score: float  # under the policy of the export, if it has one
    parts: Score | None  # None in a redacted copy or a file, which have no `kp-score`
    policy: str | None  # digest of the policy of the score; None if it was not recorded
    domain: str  # the domain whose profile gave the score
    members: Members

    @property
    def agent(self) -> str | None:
        """The name of the agent, as far as it is known."""
        return self.members.metadata.agent_id or self.members.metadata.framework

    @property
    def day(self) -> str:
        """The date in UTC, or ``unknown``."""
        if self.timestamp_ms is None:
            return "unknown"
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC).date().isoformat()

    def groups(self, tasks: Mapping[str, str]) -> list[str]:
        """Return what ties the trace to others: its task, its run or its parent's, and the objective.

        ``tasks``: the groups of labels, by the trace's id or by its run's native id.
        """
        one, metadata = self.members, self.members.metadata
        names = [name for name in (one.id, metadata.native_id) if isinstance(name, str) and name in tasks]
        run = metadata.parent_id if isinstance(metadata.parent_id, str) else one.id
        objective = " ".join(one.task.objective.split())
        found = [f"run:{_hash(run)}", f"objective:{_hash(objective)}"]
        return [f"task:{tasks[names[0]]}", *found] if names else found

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield what the card counts, by name."""
        metadata = self.members.metadata
        yield "day", self.day
        yield "domain", self.domain
        yield "decision", self.parts.decision if self.parts else "contribute"
        yield "framework", metadata.framework or "not stated"
        yield "agent", metadata.agent_id or "not stated"
        yield "visibility", metadata.visibility
        yield "policy", self.policy or "not recorded"
        if self.parts is not None:
            yield "threshold", f"{self.domain} {self.parts.threshold:g}"
        yield "score from", f"{int(self.score * 20 + 1e-9) / 20:.2f}"


class LeftOut(NamedTuple):
    """A record that is no candidate."""

    reason: str  # one of REASONS
    trace_id: str = ""  # empty if the record is no scored trace


@dataclass(frozen=True, slots=True)
class Rules:
    """How records become rows."""

    choices: Choices
    # to rescore under, if the choices have one; else the settings', which gives the domain of a copy
    # without `kp-score`
    policy: Policy
    tasks: Mapping[str, str]  # group of a label, by trace id or native id
    since_ms: int | None  # the time of the first record of a first export
    embedder: Embedder | None  # None makes no vectors
    text: TraceText
    scan: Callable[[bytes], bool | None] | None  # looks for secrets; None if that takes too long
    has_score: bool  # whether records have `kp-score`: those of files and redacted copies do not

    @property
    def dimensions(self) -> int:
        """Of the vectors; 0 without an embedder."""
        return 0 if self.embedder is None else self.embedder.dimensions

    def candidate(self, record: RawRecord) -> Candidate | LeftOut:
        """Return a record's candidate, or what there is against it."""
        if last_header(record.headers, "kp-redaction-error") is not None:
            return LeftOut("not_redacted")
        one = self._read(record)
        if one is None or (self.has_score and one.parts is None):
            return LeftOut("foreign")
        reason = self._against(one)
        return one if reason is None else LeftOut(reason, one.members.id)

    def _against(self, one: Candidate) -> str | None:
        choices, metadata = self.choices, one.members.metadata
        if held := choices.departure.withholding_guard(metadata.visibility, metadata.privacy_level):
            return held
        if choices.domain and not {metadata.task_domain, one.domain} & {*choices.domain}:
            return "other_domain"
        if choices.policy is not None and (one.parts is None or one.parts.decision != "contribute"):
            return "policy"
        return "min_score" if one.score < choices.min_score else None

    def trace(self, record: RawRecord, candidate: Candidate) -> bytes:
        """Return the bytes of a record's trace, with its score under the policy of the export, if any."""
        value = record.value or b""
        return value if self.choices.policy is None else with_quality_score(value, candidate.score)

    def _read(self, record: RawRecord) -> Candidate | None:
        headers = worker_headers(record.headers)
        try:
            members = decode_members(record.value or b"", Members)
            parts = None if headers is None else without_content(decode_score(headers[1]))
            source, policy_digest = (
                (last_header(record.headers, name) or b"").decode() for name in ("kp-source", "kp-policy")
            )
        except (msgspec.MsgspecError, UnicodeDecodeError, InvalidRecordError):
            return None
        metadata, score = members.metadata, members.metadata.quality_score
        if not source or score is None or not 0 <= score <= 1:
            return None
        domain = parts.domain if parts else self.policy.profile(metadata.task_domain).domain
        time = _time(record.timestamp_ms, metadata.created_at)
        one = Candidate(source, time, score, parts, policy_digest or None, domain, members)
        if self.choices.policy is None or parts is None:
            return one
        counts = counts_of(record.value or b"") if self.policy.learns else None
        new = rescore(parts, metadata, self.policy, counts)
        return replace(one, score=new.quality_score, parts=new, policy=self.policy.digest, domain=new.domain)


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


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
