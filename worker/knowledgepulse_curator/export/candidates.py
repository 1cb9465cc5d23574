"""A record as a candidate for the dataset, or the reason for leaving it out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from knowledgepulse_curator.export.manifest import Choices
from knowledgepulse_curator.export.redacted_inputs import RedactedRecord
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_schemas.headers import last_header
from knowledgepulse_schemas.trace import parse_date_time
from knowledgepulse_worker.embedding import Embedder
from knowledgepulse_worker.errors import REDACTION_REASONS, InvalidRecordError
from knowledgepulse_worker.policy import CONTRIBUTE, Policy
from knowledgepulse_worker.records.decode import decode_members, with_quality_score
from knowledgepulse_worker.records.decode_content import counts_of
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.records.output_headers import worker_headers
from knowledgepulse_worker.records.score_header import decode_score, without_content
from knowledgepulse_worker.scoring import Score, TraceText, decide, rescore
from knowledgepulse_worker.tools.common.base64_headers import warn_if_base64_headers
from knowledgepulse_worker.tools.common.trace_summary import MetadataSummary, OutcomeSummary

REASONS = {
    "repeat": "repeat of an earlier record",
    "foreign": "not a scored trace written by a worker or by `kp-worker score --traces`",
    "not_redacted": "no redacted copy could be made",
    "rejected": "rejected when it was scored",
    "visibility": "its visibility does not permit export",
    "privacy_level": "its privacy level does not permit export",
    "not_clean": "the SDK's cleaner finds something",
    "secret": "`--scan-secrets` finds a key",
    "unscanned": "`--scan-secrets` did not finish in time",
    "not_convertible": "a number that `--also` cannot convert",
    "other_domain": "not in a domain of `--domain`",
    "before_since": "before `--since`",
    "policy": "below the threshold of `--policy`",
    "min_score": "below `--min-score`",
    "not_selected": "not among the best",
    "both_sides": "matches traces in two splits",
}
"""The reasons for leaving out a record, in words."""

REMEDIES = {
    "not_redacted": "`--unredacted` reads the traces on `contribute`",
    "rejected": "`--policy` decides again",
    "visibility": "without `--for network`, the dataset is for use inside and has all",
    "privacy_level": "without `--for network`, the dataset is for use inside and has all",
    "not_clean": "`--redact` redacts them",
    "not_convertible": "without `--also`, the table has them",
}
"""What the user can do to have such records exported."""


def reason_text(key: str) -> str:
    """Return a reason in words, with the value that caused it, if any; see :attr:`LeftOutRecord.key`."""
    reason, _, value = key.partition(":")
    return f"{REASONS.get(reason, reason)}: {value}" if value else REASONS.get(reason, reason)


class _Metadata(MetadataSummary, frozen=True):
    created_at: str = ""
    quality_score: float | None = None
    native_id: Any = None
    parent_id: Any = None


class _Task(msgspec.Struct, frozen=True):
    objective: str


class _Outcome(OutcomeSummary, frozen=True):
    result_summary: str = ""


class CandidateMembers(msgspec.Struct, frozen=True):
    """The members of a trace that a candidate needs."""

    id: str
    metadata: _Metadata
    task: _Task
    outcome: _Outcome


@dataclass(frozen=True, slots=True)
class Candidate:
    """A scored trace that may leave.

    Attributes:
        source: the header `kp-source`, or `file:line`.
        timestamp_ms: the record's timestamp, or else the trace's `created_at`, or else the file's last
            change; None if none is a time.
        score: the score under the policy of the export if it has one, otherwise the recorded score.
        parts: None for a redacted copy or a file, which have no `kp-score`.
        policy: the digest of the policy that gave the score; None if it was not recorded.
        domain: the domain whose profile gave the score.
        members: the members of the trace.
    """

    source: str
    timestamp_ms: int | None
    score: float
    parts: Score | None
    policy: str | None
    domain: str
    members: CandidateMembers

    @property
    def agent(self) -> str | None:
        """The agent's id, or else its framework; None if neither is known."""
        return self.members.metadata.agent_id or self.members.metadata.framework

    @property
    def day(self) -> str:
        """The date in UTC, or ``unknown``."""
        if self.timestamp_ms is None:
            return "unknown"
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC).date().isoformat()

    def groups(self, tasks: Mapping[str, str]) -> list[str]:
        """Return the groups of the trace: its task, its run or the parent run, and its objective.

        ``tasks``: the groups of labels, by the trace's id or by its run's native id.
        """
        members, metadata = self.members, self.members.metadata
        names = [name for name in (members.id, metadata.native_id) if isinstance(name, str) and name in tasks]
        run = metadata.parent_id if isinstance(metadata.parent_id, str) else members.id
        objective = " ".join(members.task.objective.split())
        groups = [f"run:{_hash(run)}", f"objective:{_hash(objective)}"]
        return [f"task:{tasks[names[0]]}", *groups] if names else groups

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield the facts that the dataset card counts, by name."""
        metadata = self.members.metadata
        yield "day", self.day
        yield "domain", self.domain
        yield "decision", self.parts.decision if self.parts else CONTRIBUTE.name
        yield "framework", metadata.framework or "not stated"
        yield "agent", metadata.agent_id or "not stated"
        yield "visibility", metadata.visibility
        yield "privacy level", metadata.privacy_level
        yield "policy", self.policy or "not recorded"
        if self.parts is not None:
            share = self.parts.share
            rule = f"{self.parts.threshold:g}" if share is None else f"the best {share:.1%}"
            yield "threshold", f"{self.domain} {rule}"
        yield "score from", f"{int(self.score * 20 + 1e-9) / 20:.2f}"


class LeftOutRecord(NamedTuple):
    """A record that is not a candidate.

    Attributes:
        reason: a key of :data:`REASONS`.
        value: the value that caused it, from a closed set; empty if the reason says it all.
    """

    reason: str
    value: str = ""

    @property
    def key(self) -> str:
        """The reason and the value, by which records are counted."""
        return f"{self.reason}:{self.value}" if self.value else self.reason


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which records become rows.

    Attributes:
        choices: the options of the export.
        policy: the policy of the choices, or else of the settings, by which a copy without `kp-score` gets
            its domain.
        tasks: the group of each label, by trace id or native id.
        since_ms: the time from which a first export reads.
        embedder: None makes no vectors.
        text: the text that is embedded.
        scan: returns whether a trace has a secret, or None if that takes too long; None scans nothing.
        has_score: whether the records must have `kp-score`, which redacted copies of former releases and
            traces in files do not have.
    """

    choices: Choices
    policy: Policy
    tasks: Mapping[str, str]
    since_ms: int | None
    embedder: Embedder | None
    text: TraceText
    scan: Callable[[bytes], bool | None] | None
    has_score: bool

    @property
    def dimensions(self) -> int:
        """The number of dimensions of the vectors; 0 without an embedder."""
        return 0 if self.embedder is None else self.embedder.dimensions

    def candidate(self, record: RawRecord, changed_ms: int | None = None) -> Candidate | LeftOutRecord:
        """Return a record's candidate, or the reason for leaving it out.

        Args:
            record: the record.
            changed_ms: the last change of the file that holds the record, in milliseconds since the epoch.
        """
        if (failure := last_header(record.headers, "kp-redaction-error")) is not None:
            return LeftOutRecord(
                "not_redacted",
                next((reason for reason in REDACTION_REASONS if reason.encode() == failure), ""),
            )
        candidate = self._read(record, changed_ms)
        if candidate is None or (self.has_score and candidate.parts is None):
            warn_if_base64_headers(record.topic, record.headers)
            return LeftOutRecord("foreign")
        choices, metadata = self.choices, candidate.members.metadata
        if choices.egress_rule is not None:
            held = choices.egress_rule.withholding_guard(metadata.visibility, metadata.privacy_level)
            if held is not None:
                return LeftOutRecord(held, getattr(metadata, held))
        if choices.domain and not {metadata.task_domain, candidate.domain} & {*choices.domain}:
            return LeftOutRecord("other_domain")
        if candidate.parts is not None and not decide(candidate.parts).kept:
            return LeftOutRecord("rejected" if choices.policy is None else "policy")
        return LeftOutRecord("min_score") if candidate.score < choices.min_score else candidate

    def trace(self, record: RawRecord, candidate: Candidate) -> bytes:
        """Return the bytes of a record's trace, with its score under the policy of the export, if any."""
        value = record.value or b""
        return value if self.choices.policy is None else with_quality_score(value, candidate.score)

    def _read(self, record: RawRecord, changed_ms: int | None) -> Candidate | None:
        headers = worker_headers(record.headers)
        try:
            members = decode_members(record.value or b"", CandidateMembers)
            parts = None if headers is None else without_content(decode_score(headers.score))
            source, policy_digest = (
                (last_header(record.headers, name) or b"").decode() for name in ("kp-source", "kp-policy")
            )
        except (*DECODE_ERRORS, InvalidRecordError):
            return None
        metadata, score = members.metadata, members.metadata.quality_score
        if not source or score is None or not 0 <= score <= 1:
            return None
        domain = parts.domain if parts else self.policy.profile(metadata.task_domain).domain
        time = _time(record.timestamp_ms, metadata.created_at, changed_ms)
        candidate = Candidate(source, time, score, parts, policy_digest or None, domain, members)
        if self.choices.policy is None or parts is None:
            return candidate
        original = record.original if isinstance(record, RedactedRecord) else record.value
        reading = self.policy.reading
        counts = counts_of(original or b"", reading) if reading else None
        new = rescore(parts, metadata, self.policy, counts)
        return replace(
            candidate, score=new.quality_score, parts=new, policy=self.policy.digest, domain=new.domain
        )


def _time(timestamp_ms: int, created_at: str, changed_ms: int | None) -> int | None:
    """Return the first known time of a record, its trace and its file; None if it is none."""
    time_ms = timestamp_ms if timestamp_ms >= 0 else _created_ms(created_at) or changed_ms
    try:
        if time_ms is not None:
            datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return time_ms


def _created_ms(created_at: str) -> int | None:
    """Return a trace's time; 0, the epoch, is what converters write that know none."""
    try:
        moment = parse_date_time(created_at)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
