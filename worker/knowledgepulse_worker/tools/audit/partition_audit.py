"""Audit of one partition: each record against its outputs and ledger entries."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice

from knowledgepulse_kafka.errors import DeliveryError, TooLargeError, UnacceptableError
from knowledgepulse_kafka.records import NO_TIMESTAMP, RawRecord
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.embedding import Embedder
from knowledgepulse_worker.policy import Policy, are_of_one_policy
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.records.ledger_records import Entry
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.score_header import decode_score
from knowledgepulse_worker.scoring import Counts, Score, TraceText, bounded_id, count_trace, embedding_text
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.audit.audit_report import Difference, PartitionReport
from knowledgepulse_worker.tools.audit.novelty_audit import CachedRecord, NoveltyBasis, RebuiltCache
from knowledgepulse_worker.tools.audit.output_checks import (
    ROUNDING,
    check_dead_letter,
    check_score,
    mismatches,
    read_trace,
)
from knowledgepulse_worker.tools.audit.share_audit import ShareAudit
from knowledgepulse_worker.tools.audit.source_index import OffsetRecords, Output, SourceIndex
from knowledgepulse_worker.tools.audit.vectors import VectorSource

_END = OffsetRecords(sys.maxsize)
_CHUNK = 128
# The exceptions of dead letters whose records were scored, but whose outputs were refused.
_REFUSALS = {error.__name__ for error in (TooLargeError, UnacceptableError, DeliveryError)}


@dataclass(frozen=True)
class Bounds:
    """The offsets that limit the checks.

    Attributes:
        first: the first offset of the partition; above 0 if the partition has been trimmed.
        committed: the group's position; every record below it must have an output.
        outputs_from: the outputs of records below this offset may have been trimmed.
    """

    first: int
    committed: int
    outputs_from: float = 0


@dataclass(slots=True)
class _Case:
    """An offset with its outputs and, unless it was deleted, its record.

    Attributes:
        cached: None unless the record was scored.
        scored: what is known of the scored record: its entry, or else an output; None if nothing is.
        is_replacement: whether another record, which has outputs, had this offset before.
    """

    offset: int
    outputs: list[Output]
    cached: CachedRecord | None
    scored: Entry | None = None
    record: RawRecord | None = None
    trace: ReasoningTrace | None = None
    is_replacement: bool = False
    wrong: list[str] = field(default_factory=list)

    def text(self, text: TraceText) -> str | None:
        """Return the text that was embedded; None if the record is not a trace."""
        return None if self.trace is None else embedding_text(self.trace, text)

    def counts(self, policy: Policy | None) -> Counts | None:
        """Return the trace's counts if the policy needs them."""
        if policy is None or not policy.reading or self.trace is None:
            return None
        return count_trace(self.trace, policy.reading)


class PartitionAudit:
    """Audit a partition of the raw topic.

    Args:
        partition: the partition's number.
        bounds: the offsets that limit the checks.
        settings: the worker's settings.
        policies: the policies that were ever in force, by digest.
        index: the complete index.
        builder: builds outputs as the worker does.
        embedder: returns the embedder for records without a vector in the changelog; None embeds nothing.
    """

    def __init__(
        self,
        partition: int,
        bounds: Bounds,
        settings: Settings,
        policies: Mapping[str, Policy],
        index: SourceIndex,
        builder: Outputs,
        embedder: Callable[[], Embedder | None],
    ) -> None:
        self._report = PartitionReport(partition)
        self._bounds = bounds
        self._policies = policies
        self._text = settings.embedding.trace_text
        self._unwrap = settings.records.unwrap
        self._accounted: int | None = None
        self._known = index.known(partition)
        self._next = next(self._known, _END)
        self._rewinds = index.rewinds(partition)
        self._rewinds_ahead = deque(self._rewinds)
        self._replacing_epoch: int | None = None
        self._builder = builder
        self._entries_from = index.entries_from(partition, settings.cache.max_elements)
        self._vectors = VectorSource(settings, index.first_scored(partition), embedder)
        self._memory = RebuiltCache(settings.cache, self._vectors.oldest_model)
        self._shares = ShareAudit(is_whole=bounds.first == 0)
        if bounds.first > 0:
            self._memory.doubt("trimmed")

    def add(self, records: Sequence[RawRecord]) -> None:
        """Check records, in offset order."""
        cases = (case for record in records for case in self._up_to(record))
        # In chunks, because there may be many deleted offsets before the first record.
        while chunk := list(islice(cases, _CHUNK)):
            self._vectors.complete(
                [
                    (case.cached, case.text(self._text))
                    for case in chunk
                    if case.cached is not None and case.cached.origin == "no_vector"
                ]
            )
            for case in chunk:
                self._check(case)

    def finish(self) -> PartitionReport:
        """Return the report; call after all records were added."""
        while self._next is not _END:
            self._report.unknown += len(self._take().outputs)
        self._account(self._bounds.first)
        return self._report

    def _take(self) -> OffsetRecords:
        known, self._next = self._next, next(self._known, _END)
        self._account(known.offset)
        return known

    def _account(self, offset: int) -> None:
        """Report the deleted offsets before this one that have neither outputs nor entries.

        Offsets before the first known one, or before the group's first position, were never the group's.
        """
        if self._accounted is None:
            self._accounted = offset if offset < self._bounds.first else self._bounds.committed or offset
        first = max(self._accounted, self._bounds.outputs_from)
        last = min(offset, self._bounds.first) - 1
        if first <= last:
            self._report.deleted.append((int(first), last))
        self._accounted = max(self._accounted, offset + 1)

    def _up_to(self, record: RawRecord) -> Iterator[_Case]:
        """Yield the cases of the deleted offsets before a record, and the record's own."""
        while self._next.offset < record.offset:  # deleted; later records were still compared with it
            known = self._take()
            self._report.unknown += len(known.outputs)
            entry, cached = _scored_entry(known.entries, known.outputs), None
            if entry is not None:
                cached = self._vectors.recall(entry, entry.trace_id, entry.timestamp_ms)
            elif _was_scored(known.outputs):
                cached = self._vectors.recall(None, None, known.outputs[0].timestamp_ms)
            yield _Case(known.offset, known.outputs, cached, _says(entry, known.outputs))
        known = self._take() if self._next.offset == record.offset else OffsetRecords(record.offset)
        yield self._case(record, known)

    def _case(self, record: RawRecord, known: OffsetRecords) -> _Case:
        read = cache(partial(read_trace, record))
        scored = (output.unwrap for output in known.outputs if _was_scored([output]))
        trace = read(next(scored, self._unwrap)).trace
        case = _Case(record.offset, [], None, None, record, trace)
        for output in known.outputs:
            under_its_own = read(output.unwrap)
            wrong = mismatches(record, under_its_own, output, self._builder)
            other_content = "key" in wrong or "value" in wrong or self._in_rewind(record.offset)
            if "timestamp" in wrong and other_content:  # of a record with this offset in an earlier topic
                self._report.unknown += 1
                case.is_replacement = True
            else:
                case.outputs.append(output)
                case.wrong += [f"{part} does not match the record" for part in wrong]
                case.wrong += check_dead_letter(under_its_own.rejection, output)
        entries = [entry for entry in known.entries if _is_of(entry, record)]
        if entries and not self._in_rewind(record.offset):
            case.wrong += [
                "it does not match its ledger entry"
                for output in case.outputs
                if not any(_agree(entry, output.says) for entry in entries)
            ]
        in_ledger = self._entries_from <= record.offset < self._bounds.committed
        if in_ledger and not entries and _was_scored(case.outputs):
            self._report.without_entry.append(record.offset)
        entry = _scored_entry(entries, case.outputs)
        # A finished record without outputs and entries was scored if it is a trace.
        finished = not case.outputs and not entries and record.offset < self._bounds.committed
        if entry is not None or _was_scored(case.outputs) or (finished and trace is not None):
            trace_id = None if trace is None else bounded_id(trace.id)
            case.cached = self._vectors.recall(entry, trace_id, record.timestamp_ms)
            case.scored = _says(entry, case.outputs)
        return case

    def _in_rewind(self, offset: int) -> bool:
        return any(offset in rewind for rewind in self._rewinds)

    def _check(self, case: _Case) -> None:
        if case.is_replacement and case.record is not None:
            self._note_replacement(case.record.leader_epoch)
        if case.cached is not None:
            self._memory.use(case.cached.model)
            if self._rewinds_ahead and case.offset >= self._rewinds_ahead[0].start:
                self._rewinds_ahead.popleft()
                if self._memory:
                    self._memory.doubt("rewind")
            self._check_share(case)
        if case.record is not None:
            self._report.records += 1
            self._check_outputs(case)
        if case.cached is not None:
            self._memory.add(case.cached)

    def _note_replacement(self, leader_epoch: int) -> None:
        """Doubt the cache where another leader begins to replace records.

        The worker went back to there, and did not get back the vectors from before. A leader that only goes
        on with what the former one began cannot be told from one that replaced records again.
        """
        if leader_epoch != self._replacing_epoch and self._memory:
            self._memory.doubt("rewind")
        self._replacing_epoch = leader_epoch

    def _check_outputs(self, case: _Case) -> None:
        report, outputs = self._report, case.outputs
        report.outputs += len(outputs)
        report.repeated += max(0, len(outputs) - 1)
        if not outputs:
            if case.offset >= self._bounds.committed:
                report.waiting += 1
            elif case.offset < self._bounds.outputs_from:
                report.outputs_trimmed += 1
            else:
                report.missing.append(case.offset)
            return
        has_time = case.record is not None and case.record.timestamp_ms != NO_TIMESTAMP
        unequal = dict.fromkeys(
            name for output in outputs for name in output.differences(outputs[0], has_time=has_time)
        )
        if len(outputs) > 1 and (unequal or any(output.in_transaction for output in outputs[1:])):
            report.repeats.append(case.offset)
        rescored = bool(unequal) and self._in_rewind(case.offset)
        if rescored:
            report.rescored += 1
        elif unequal:
            case.wrong.append(f"repeats differ in {', '.join(unequal)}")
        self._check_scores(
            case, [scored for scored in outputs if scored.says.failure is None], rescored=rescored
        )
        if case.wrong:
            report.differing.append(Difference(case.offset, "; ".join(dict.fromkeys(case.wrong))))

    def _check_share(self, case: _Case) -> None:
        """Check what a share decided on a scored record, and add its score to the last ones.

        Of several scores of a record that was read again, the order is not known.
        """
        known = None if case.scored is None else self._policies.get(case.scored.policy)
        scores = {output.says.score for output in case.outputs if output.says.score is not None}
        if case.scored is None or known is None or len(scores) > 1:
            self._shares.doubt()
            return
        try:
            score = decode_score(case.scored.score or b"")
        except DECODE_ERRORS:
            self._shares.doubt()
            return
        profile = known.profiles.get(score.domain)
        if profile is None or (case.trace is None and profile.agent_cap < 1):
            self._shares.doubt()
            return
        agent_id = None if case.trace is None else case.trace.metadata.agent_id
        verdict, wrong = self._shares.add(score, profile, agent_id)
        case.wrong += wrong
        self._report.shares_begun += verdict == "begun"
        self._report.shares_unaudited += verdict == "unaudited"

    def _check_scores(self, case: _Case, outputs: Sequence[Output], *, rescored: bool) -> None:
        if case.trace is None or case.cached is None:
            return
        self._report.unknown_policy += any(output.says.policy not in self._policies for output in outputs)
        scores = []
        for output in outputs:
            try:
                scores.append(decode_score(output.says.score or b""))
            except DECODE_ERRORS:
                case.wrong.append("kp-score is invalid")
                continue
            policy = self._policies.get(output.says.policy)
            case.wrong += check_score(case.trace, case.counts(policy), output, scores[-1], policy)
        if scores:
            basis = "rewind" if rescored else self._memory.basis(case.cached)
            self._check_novelty(case, case.cached, scores, basis)

    def _check_novelty(
        self, case: _Case, cached: CachedRecord, scores: Sequence[Score], basis: NoveltyBasis
    ) -> None:
        report = self._report
        match basis:
            case "ledger":
                report.novelty_exact += 1
                tolerance = ROUNDING
            case "text":
                report.novelty_embedded += 1
                tolerance = self._vectors.tolerance
                if any(abs(score.quality_score - score.threshold) <= tolerance for score in scores):
                    report.near_threshold.append(case.offset)
            case reason:
                report.novelty_unaudited[reason] = report.novelty_unaudited.get(reason, 0) + 1
                return
        for score in scores:
            case.wrong += self._memory.check(cached, score, tolerance)


def _is_of(entry: Entry, record: RawRecord) -> bool:
    """Return whether an entry is that of a record, and not of another one at the same offset."""
    if entry.topic_id and record.topic_id:
        return entry.topic_id == record.topic_id
    return entry.timestamp_ms == record.timestamp_ms


def _was_scored(outputs: Sequence[Output]) -> bool:
    """Return whether outputs show that their record was scored, even if the result was refused."""
    return any(output.says.failure is None or _is_refused(output.says) for output in outputs)


def _is_refused(says: Entry) -> bool:
    return says.failure is not None and says.failure.exception in _REFUSALS


def _says(entry: Entry | None, outputs: Sequence[Output]) -> Entry | None:
    """Return what an entry, or else the last scored output says."""
    says = [output.says for output in outputs if output.says.score is not None]
    return entry or next(reversed(says), None)


def _agree(entry: Entry, says: Entry) -> bool:
    """Return whether an output may have been published from an entry.

    If the output was refused, the entry keeps the score. A release up to 0.3.0 wrote fewer digits of a
    policy's digest, and this one publishes again what it had not committed.
    """
    if says.failure is not None:
        is_same = entry.failure is not None and entry.failure.reason == says.failure.reason
        return is_same or (entry.failure is None and _is_refused(says))
    if entry.failure is not None or (entry.decision, entry.score) != (says.decision, says.score):
        return False
    return are_of_one_policy(entry.policy, says.policy)


def _scored_entry(entries: Sequence[Entry], outputs: Sequence[Output]) -> Entry | None:
    """Return the last scored entry that an output was published from, or else the last scored entry."""
    scored = [entry for entry in entries if entry.score is not None]
    published = [entry for entry in scored if any(_agree(entry, output.says) for output in outputs)]
    return next(reversed(published or scored), None)
