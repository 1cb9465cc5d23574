"""Check the invariants that must hold during a history and after it."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from functools import lru_cache

from msgspec.structs import replace

from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.testing import clients
from knowledgepulse_kafka.topic_reader import raw_record
from knowledgepulse_kafka.transactional_publisher import TOPIC_ID
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.lane.partition_task import MAX_BATCHES
from knowledgepulse_worker.records.ledger_records import (
    POSITION_KEY,
    decode_entry,
    decode_position,
    decode_vector,
)
from knowledgepulse_worker.records.outputs import Outputs, with_original_timestamp
from knowledgepulse_worker.records.score_header import decode_score, encode_score
from knowledgepulse_worker.scoring import Nearest, score_trace
from knowledgepulse_worker.tools.audit.partition_audit import Bounds, PartitionAudit
from knowledgepulse_worker.tools.audit.source_index import SourceIndex
from simulation.worker_pods import METRICS

REFUSALS = {b"TooLargeError", b"UnacceptableError", b"DeliveryError"}
"""Exceptions of dead letters whose records were scored, but whose outputs were refused."""


_entry = lru_cache(1000)(decode_entry)
"""Decodes an entry of a ledger, which the oracles read at each commit that follows."""


class Oracles:
    """Watch a history as a consumer of committed records.

    Raw records of a recreated topic's former incarnations need no outcome, and their positions and ledger
    entries count for nothing. A score follows the policy that its record names.

    Attributes:
        policies: all policies that were ever in force, by digest.
        lost: the group's positions that its coordinator has lost; the workers must continue from there.
    """

    def __init__(self, history, world, violated):
        self.policies = {world.policy.digest: world.policy}
        self.lost = {}
        self._truncated = set()
        self._passed_over = []
        self._setting = history.setting
        self._world = world
        self._cluster = world.cluster
        self._violated = violated
        topics = world.settings.topics
        self._raw = topics.raw
        self._outputs = (topics.contribute, topics.rejected, topics.dead_letter)
        self._copies = topics.redacted
        self._changelog = changelog_topic_name(world.settings.kafka.group)
        self._first_id = self._topic.id
        METRICS.recent.skips.clear()

    @property
    def _topic(self):
        return self._cluster.topics[self._raw]

    def truncate(self, partition):
        """Note that the raw records of a partition are about to be lost.

        They keep their outcomes. A position behind them counts as the offset at which the log differs, and
        the ledger is no longer that of a single pass.
        """
        self._truncated.add(partition)

    def pass_over(self, partition, offsets):
        """Note that someone else is about to set the group's position behind these offsets.

        Their records need no outcome, but a worker must tell that it did not read them.
        """
        self._passed_over.append((self._topic.id, partition, offsets))

    def _is_passed_over(self, partition, offset):
        return any(
            (topic, number) == (self._topic.id, partition) and offset in offsets
            for topic, number, offsets in self._passed_over
        )

    # --- as it happens

    def check_bounds(self, pod):
        """Check that a worker holds no more than its limits allow."""
        if pod.app is None:
            return
        setting = self._setting
        assignment = pod.app.source.assignment
        untaken = max((task.untaken for task in assignment.tasks.values()), default=0)
        if untaken > MAX_BATCHES:
            self._violated(f"bounded: {untaken} batches handed over")
        for lane in assignment.lanes:
            if not 0 <= lane.in_flight.records <= setting.in_flight:
                self._violated(f"bounded: {lane.in_flight.records} records in flight")
            if lane.ledger.state.cache.size > setting.max_elements:
                self._violated(f"bounded: {lane.ledger.state.cache.size} vectors")

    def check_commits(self):
        """Check that committed outcomes, positions and ledger agree, while no transaction is ending."""
        outcomes = self._outcomes()
        for partition in range(len(self._topic.logs)):
            self._check_partition(partition, outcomes)

    def _outcomes(self):
        """Return the committed outcome of each raw record, by the record's number."""
        found = {}
        for topic in self._outputs:
            for number, log in enumerate(self._cluster.topics[topic].logs):
                newest = defaultdict(lambda: -1)
                for stored in log.committed():
                    output = OutputRecord(
                        topic, number, stored.timestamp_ms, stored.key, stored.value, stored.headers
                    )
                    partition = _partition(output)
                    record = _number(stored)
                    if record in found:
                        self._violated(f"exactly once: record {record} has two outcomes")
                    if record <= newest[partition]:
                        self._violated(f"order: record {record} follows {newest[partition]} in {topic}")
                    newest[partition] = record
                    found[record] = with_original_timestamp(output)
        return found

    def _check_partition(self, partition, outcomes):
        log, position = self._topic.logs[partition], self.position(partition)
        scored = []
        for record in log.committed():
            where, outcome = f"{partition}/{record.offset}", outcomes.get(_number(record))
            is_due = record.offset >= log.begin and not self._is_passed_over(partition, record.offset)
            if record.offset < position and outcome is None and is_due:
                self._violated(f"position: {where} has no outcome, and the position is {position}")
            if record.offset >= position and outcome is not None:
                self._violated(f"position: {where} has an outcome, and the position is {position}")
            if outcome is not None and "kp-score" in dict(outcome.headers):
                scored.append(record.offset)
        if partition in self._truncated:
            return
        entries = self._entries(partition)
        offsets = [entry.offset for entry in entries]
        if offsets != sorted(set(offsets)) or any(offset >= position for offset in offsets):
            self._violated(f"ledger: {partition} got {offsets}, and the position is {position}")
        if self._setting.embeds and not set(scored) <= set(offsets):
            self._violated(f"ledger: {partition} got {offsets}, and scored are {scored}")
        kept = self._kept(partition)
        if (
            position
            and (kept is None or kept.offset != position)
            and not self._is_passed_over(partition, position - 1)
        ):
            self._violated(f"ledger: {partition} is at {kept}, the group at {position}")
        if kept is None:
            return  # until a worker commits in a recreated topic, the ledger is the former topic's
        if position and (held := self._held(partition)) != offsets[-self._setting.max_elements :]:
            self._violated(f"ledger: {partition} holds {held} of {offsets}")

    def _entries(self, partition):
        """Return all committed entries of the raw topic in their order."""
        values = (record.value for record in self._ledger(partition) if record.key.isdigit())
        entries = [_entry(value) for value in values if value is not None]
        return [entry for entry in entries if entry.topic_id == self._topic.id]

    def _held(self, partition):
        """Return the source offsets of the entries that the changelog holds."""
        held = {record.key: record.value for record in self._ledger(partition) if record.key.isdigit()}
        entries = [_entry(value) for value in held.values() if value is not None]
        return sorted(entry.offset if entry.topic_id == self._topic.id else -1 for entry in entries)

    def _ledger(self, partition):
        """Return all committed records of a changelog partition; none before it exists."""
        logs = self._cluster.topics[self._changelog].logs
        return logs[partition].committed() if partition < len(logs) else []

    def _kept(self, partition):
        """Return the position that the changelog holds; None if it is of another topic."""
        held = [record.value for record in self._ledger(partition) if record.key == POSITION_KEY]
        position = decode_position(held[-1]) if held else None
        return position if position is not None and position.topic_id == self._topic.id else None

    def position(self, partition):
        position = self._committed(partition)
        if (
            position is not None
            and not position.metadata
            and self._is_passed_over(partition, position.offset - 1)
        ):
            return position.offset
        if position is None or position.metadata != TOPIC_ID + self._topic.id.hex():
            return 0
        if partition not in self._truncated or (kept := self._kept(partition)) is None:
            return position.offset
        return min(position.offset, self._topic.logs[partition].epoch_end(kept.leader_epoch))

    def _committed(self, partition):
        at = (self._raw, partition)
        committed, lost = self._cluster.group.committed.get(at), self.lost.get(at)
        if committed is None or lost is None:
            return committed or lost
        is_former = committed.metadata == lost.metadata and committed.offset < lost.offset
        return lost if is_former else committed

    # --- afterwards

    def unfinished(self):
        """Name the partitions that are not committed to the end."""
        return ", ".join(self._unfinished())

    def _unfinished(self):
        for number, log in enumerate(self._topic.logs):
            records, position = log.read(log.begin, 10**9), self.position(number)
            if records and position <= records[-1].offset:
                yield f"partition {number} at {position} of {records[-1].offset + 1}"

    def all_finished(self):
        return not any(self._unfinished())

    def check(self):
        """Check the topics after the last worker has ended."""
        self.check_commits()
        outcomes = self._outcomes()
        self._check_told(outcomes)
        for partition in range(len(self._topic.logs)):
            self._check_scores(partition, outcomes)
        for number, outcome in outcomes.items():
            if outcome.key not in {b"%d" % number, None}:
                self._violated(f"pass-through: {number}: key differs")
        if self._copies:
            self._check_copies(outcomes)
        if self._topic.id == self._first_id and not self._truncated:
            self._audit(outcomes)

    def _check_told(self, outcomes):
        """Check that the workers have counted what they did not read because of someone else."""
        skips = [skip for skip in METRICS.recent.skips if skip.reason == "passed_over"]
        for number, log in enumerate(self._topic.logs):
            for record in log.committed():
                is_told = any(skip.partition == number and record.offset in skip.offsets for skip in skips)
                is_unread = _number(record) not in outcomes and record.offset >= log.begin
                if is_unread and not is_told and self._is_passed_over(number, record.offset):
                    self._violated(f"told: {number}/{record.offset} was not read, and {skips} were told")

    def _check_scores(self, partition, outcomes):
        """Check *replay-exact*: one pass over the log with the committed vectors gives the same scores."""
        if partition in self._truncated:
            return
        entries, seen = {entry.offset: entry for entry in self._entries(partition)}, []
        ranked, knows_ranks = {}, True
        for record in self._topic.logs[partition].committed():
            where, entry = f"{partition}/{record.offset}", entries.get(record.offset)
            if (outcome := outcomes.get(_number(record))) is None:
                continue
            self._check_output(where, record, outcome)
            said = dict(outcome.headers)
            if (score := said.get("kp-score") if entry is None else entry.score) is None:
                if said["__streams.errors.exception"] in REFUSALS:
                    knows_ranks = False  # the record has a score, which nothing tells
                continue
            policy = self.policies[said["kp-policy"].decode() if entry is None else entry.policy]
            nearest = None
            if entry is not None:
                nearest = _nearest(seen[-self._setting.max_elements :], entry, self._setting.ttl)
                seen.append(entry)
            trace = ReasoningTrace.model_validate_json(record.value)
            agent_id = trace.metadata.agent_id
            expected = _shared(score_trace(trace, nearest, policy), policy, ranked, agent_id)
            if not knows_ranks:
                told = decode_score(score)
                expected = replace(expected, threshold=told.threshold, rank=told.rank, of=told.of)
            if score != encode_score(expected) or said.get("kp-score", score) != score:
                self._violated(f"replay-exact: {where}: {score!r}, one pass says {expected}")

    def _check_output(self, where, record, outcome):
        """Check *pass-through*: the record is changed only in its score."""
        if outcome.key != record.key or outcome.headers[: len(record.headers)] != record.headers:
            self._violated(f"pass-through: {where}: key or headers differ")
        if outcome.timestamp_ms != record.timestamp_ms:
            self._violated(f"pass-through: {where}: {record.timestamp_ms} is {outcome.timestamp_ms}")
        if outcome.topic == self._outputs[2]:
            if outcome.value != record.value:
                self._violated(f"pass-through: {where}: a dead letter's value differs")
            return
        scored, raw = json.loads(outcome.value), json.loads(record.value)
        del scored["metadata"]["quality_score"]
        if scored != raw:
            self._violated(f"pass-through: {where}: the trace differs")

    def _check_copies(self, outcomes):
        """Check that each contributed trace has one redacted copy, and no other trace has any."""
        contributed = sorted(
            dict(outcome.headers)["kp-source"]
            for outcome in outcomes.values()
            if outcome.topic == self._outputs[0]
        )
        logs = self._cluster.topics[self._copies].logs
        copied = sorted(dict(record.headers)["kp-source"] for log in logs for record in log.committed())
        if copied != contributed:
            self._violated(f"exactly once: copies of {copied}, and contributed are {contributed}")

    def _audit(self, outcomes):
        """Check that the worker's own audit finds no defects."""
        topics, partitions = self._world.settings.topics, len(self._topic.logs)
        with SourceIndex(topics, partitions) as index:
            for number, log in enumerate(self._cluster.topics[self._changelog].logs):
                held = log.read(log.begin, 10**9)
                values = [
                    record.value for record in held if record.key.isdigit() and record.value is not None
                ]
                index.add_entries(number, ((_entry(value), value) for value in values))
            index.add_outputs(outcomes.values())
            index.complete()
            for number in range(partitions):
                report = self._audit_partition(number, index)
                if wrong := [
                    *(offset for offset in report.missing if not self._is_passed_over(number, offset)),
                    *report.without_entry,
                    *report.differing,
                ]:
                    self._violated(f"audit: {number}: {wrong}")

    def _audit_partition(self, number, index):
        log, settings = self._topic.logs[number], self._world.settings
        counts = {name: len(topic.logs) for name, topic in self._cluster.topics.items()}
        builder = Outputs(settings.topics, counts)
        bounds = Bounds(log.begin, self.position(number))
        audit = PartitionAudit(number, bounds, settings, self.policies, index, builder, lambda: None)
        records = log.read(log.begin, 10**9)
        audit.add(
            [raw_record(clients.record(self._raw, number, record), self._topic.id) for record in records]
        )
        return audit.finish()


def _number(record):
    """Return the number with which a raw record was published."""
    return int(dict(record.headers)["number"])


def _partition(output):
    """Return the raw partition of an output's record."""
    headers = dict(output.headers)
    source = headers.get("kp-source")
    return int(source.rsplit(b"/", 2)[1] if source else headers["__streams.errors.partition"])


def _shared(score, policy, ranked, agent_id):
    """Return a score after the decision of a share, from the last scores before with their turns."""
    profile = policy.profiles[score.domain]
    if profile.share is None:
        return score
    agent = None if profile.agent_cap == 1 else agent_id or ""
    count, before = ranked.get(score.domain, (0, []))
    if score.withheld:
        return replace(score, share=profile.share, threshold=_cut(score, profile, before, agent))
    count += 1
    own = (score.quality_score, count * 2654435769 % 2**32, agent)
    window = min(profile.share_window, max(math.ceil(1 / profile.share), count // 2))
    last = [*before, own][-window:]
    ranked[score.domain] = count, last
    if not _places(profile, last):
        return replace(score, share=profile.share, of=len(last))
    rank, cut = 1 + _counting(profile, last, agent).index(own), _cut(score, profile, last, agent)
    return replace(score, threshold=cut, share=profile.share, rank=rank, of=len(last))


def _places(profile, last):
    return int(profile.share * len(last) + 0.5)


def _cut(score, profile, last, agent):
    """Return the lowest score with which an agent passes now."""
    if not (passing := _places(profile, last)):
        return score.threshold
    best = _counting(profile, last, agent)[:passing]
    return best[-1][0] if len(best) == passing else 0


def _counting(profile, last, agent):
    """Return the scores that count for an agent, the best first; those from before a cap name no agent."""
    best = sorted(last, key=lambda ranked: ranked[:2], reverse=True)
    if profile.agent_cap == 1:
        return best
    limit = max(1, int(profile.agent_cap * _places(profile, last) + 0.5))
    return [
        ranked
        for number, ranked in enumerate(best)
        if ranked[2] in (agent, None) or [other[2] for other in best[:number]].count(ranked[2]) < limit
    ]


def _nearest(recent, entry, ttl):
    fresh = [
        record
        for record in recent
        if ttl is None or record.timestamp_ms / 1000 >= entry.timestamp_ms / 1000 - ttl
    ]
    if not fresh:
        return None
    vector = decode_vector(entry.vector).tolist()
    similarities = [
        sum(a * b for a, b in zip(decode_vector(record.vector).tolist(), vector, strict=True))
        for record in fresh
    ]
    best = similarities.index(max(similarities))
    return Nearest(similarities[best], fresh[best].trace_id)
