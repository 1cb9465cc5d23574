"""Check the invariants that must hold during a history and after it."""

from __future__ import annotations

import json
from collections import defaultdict

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.kafka.topic_reader import raw_record
from knowledgepulse_worker.kafka.topics import changelog_topic_name
from knowledgepulse_worker.records.entry import decode_entry, decode_vector
from knowledgepulse_worker.records.outputs import Outputs, with_original_timestamp
from knowledgepulse_worker.records.record import fingerprint
from knowledgepulse_worker.records.score_header import encode_score
from knowledgepulse_worker.scoring import Nearest, score_trace
from knowledgepulse_worker.stream.partition import _MAX_OUTSTANDING
from knowledgepulse_worker.tools.audit.partition_audit import Bounds, PartitionAudit
from knowledgepulse_worker.tools.audit.source_index import SourceIndex
from simulation import clients

_LATE = {"too_large", "poison"}
"""Reasons for which a record may become a dead letter after it was scored."""


class Oracles:
    """Watch a history.

    Attributes:
        policies: all policies that were ever in force, by digest.
    """

    def __init__(self, history, world, violated):
        self.policies = {world.policy.digest: world.policy}
        self._setting = history.setting
        self._world = world
        self._cluster = world.cluster
        self._violated = violated
        topics = world.settings.topics
        self._raw = topics.raw
        self._outputs = (topics.contribute, topics.rejected, topics.dead_letter)
        self._copies = topics.redacted
        self._changelog = changelog_topic_name(world.settings.kafka.group)
        self._entries = defaultdict(list)
        self._writes = defaultdict(list)
        self._published = defaultdict(list)
        self._copied = set()
        self._tainted = set()
        self._deleted = set()
        self._was_recreated = False
        self._taken_as = {}

    # --- as it happens

    def taken(self, pod, record):
        """Check *one owner*: a client takes no records of a partition that belongs to another member."""
        if record.topic == self._changelog or record.topic in self._outputs:
            self._check_owner(pod, record)
        if record.topic == self._changelog and pod.member is not None:
            self._taken_as[pod.process.name, record.partition, record.key] = pod.member.id
        if pod.app is not None:
            self._check_bounds(pod)

    def _check_owner(self, pod, record):
        owner = self._cluster.group.owners.get((self._raw, record.partition))
        if owner is not None and (pod.member is None or owner not in pod.member.ids):
            self._violated(
                f"one owner: {pod.name} sent to {record.topic}/{record.partition}, owned by {owner}"
            )

    def _check_bounds(self, pod):
        setting = self._setting
        outstanding = [one.outstanding for one in pod.source._partitions.values()]
        if max(outstanding, default=0) > _MAX_OUTSTANDING:
            self._violated(f"bounded: {max(outstanding)} batches handed over")
        for lane in pod.app.lanes._assignment.lanes.values():
            if not 0 <= lane._in_flight <= setting.in_flight:
                self._violated(f"bounded: {lane._in_flight} records in flight")
            if len(lane._ledger) > setting.max_elements + setting.window:
                self._violated(f"bounded: {len(lane._ledger)} entries in a ring")
            if lane.next_offset - lane._committed > setting.window:
                self._violated(f"bounded: {lane.next_offset - lane._committed} offsets ahead of the commit")
            if lane._cache.size > setting.max_elements:
                self._violated(f"bounded: {lane._cache.size} vectors")

    def appended(self, topic, partition, records, writer):
        """Check and index the written records."""
        for record in records:
            if topic == self._changelog:
                self._note_write(partition, record, writer)
            elif topic in self._outputs:
                self._note_output(partition, with_original_timestamp(record))
            elif topic == self._copies:
                self._copied.add(dict(record.headers)["kp-source"])

    def _note_write(self, partition, record, writer):
        """Note an entry or a tombstone; excuse the partition if a late one replaces another process's entry.

        A client may still send the records that it had taken before its process was expelled. Such a late
        entry may differ from another entry of the same record or replace the entry of a dead letter. It may
        belong to a record that retention deleted before the next owner read it. After the topic was
        recreated, it may replace an entry of the new topic.
        """
        entry = None if record.value is None else decode_entry(record.value)
        if entry is not None:
            self._entries[partition, entry.offset].append(entry)
        member = self._taken_as.get((writer, partition, record.key), "")
        is_late = member in self._cluster.group.expired
        known = self._writes[partition, record.key]
        for other, other_writer, was_late in known:
            if other_writer != writer and (
                ((is_late or was_late) and _are_two(other, entry)) or (is_late and _digs_up(other, entry))
            ):
                self._tainted.add(partition)
        topic_id, log = self._cluster.topics[self._raw].id, self._cluster.topics[self._raw].logs[partition]
        if is_late and entry is not None and entry.offset < log.begin:
            self._tainted.add(partition)
        is_old = self._was_recreated and (entry is None or entry.topic_id != topic_id)
        if is_late and is_old and known and known[-1][0] is not None and known[-1][1] != writer:
            self._tainted.add(partition)
        known.append((entry, writer, is_late))

    def _note_output(self, partition, record):
        number = _number(record)
        self._published[number].append(record)
        offset = _offset(record)
        says = dict(record.headers)
        entries = self._entries[partition, offset]
        if not any(_agrees(entry, says, record.topic) for entry in entries):
            self._violated(f"order: an output of {partition}/{offset} was written before its entry")

    def committing(self, positions):
        """Check that commits move forward and never pass a record without an output."""
        if self._was_recreated:
            return
        for at, (offset, _) in positions.items():
            before = self._committed(at[1])
            if offset < before:
                self._violated(f"monotonic commits: {at[1]} from {before} back to {offset}")
            for one in self._records(at[1]):
                if before <= one.offset < offset and not self._published[one.key]:
                    self._violated(f"conservation: {at[1]}/{one.offset} committed without an output")
                if self._copies and before <= one.offset < offset:
                    self._check_copy(at[1], one)

    def _check_copy(self, partition, record):
        source = f"{self._raw}/{partition}/{record.offset}".encode()
        contributed = any(one.topic == self._outputs[0] for one in self._published[record.key])
        if contributed and source not in self._copied and partition not in self._tainted:
            self._violated(f"conservation: {partition}/{record.offset} committed without its redacted copy")

    def deleting(self, partition, before):
        """Note that retention deletes records; unread ones need no output."""
        self._deleted |= {one.key for one in self._records(partition) if one.offset < before}

    def recreating(self):
        """Note that the raw topic is recreated; unread records of the old topic need no output."""
        self._was_recreated = True

    # --- afterwards

    def _records(self, partition):
        log = self._cluster.topics[self._raw].logs[partition]
        return log.read(log.begin, 10**9)

    def _committed(self, partition):
        position = self._cluster.group.committed.get((self._raw, partition))
        return 0 if position is None else position.offset

    def unfinished(self):
        """Name the partitions that are not committed to the end."""
        return ", ".join(self._unfinished())

    def _unfinished(self):
        for number in range(self._setting.partitions):
            records, committed = self._records(number), self._committed(number)
            if records and committed <= records[-1].offset:
                yield f"partition {number} at {committed} of {records[-1].offset + 1}"
            if self._was_recreated and not self._are_published(records):
                yield f"partition {number} without outputs"

    def all_finished(self):
        return not any(self._unfinished())

    def all_published(self):
        return all(self._are_published(self._records(one)) for one in range(self._setting.partitions))

    def _are_published(self, records):
        return all(self._published[one.key] for one in reversed(records))

    def check(self):
        """Check the topics after the last worker has ended."""
        topic_id = self._cluster.topics[self._raw].id
        if not self._was_recreated:
            self._audit()
        for partition in range(self._setting.partitions):
            self._check_partition(partition, topic_id)

    def _check_partition(self, partition, topic_id):
        log = self._cluster.topics[self._raw].logs[partition]
        written = [one for one in log.written if one.is_data and one.offset < log.stable_end]
        seen = []
        offsets = []
        for record in written:
            outputs = self._published[record.key]
            entries = [
                one
                for one in self._entries[partition, record.offset]
                if one.topic_id == topic_id and one.fingerprint == fingerprint(record.key, record.value)
            ]
            if not outputs:
                if record.key not in self._deleted:
                    self._violated(f"conservation: {partition}/{record.offset} has no output")
                seen += [one for one in entries[:1] if one.vector is not None]
                continue
            if not entries:
                self._violated(f"ledger: {partition}/{record.offset} has outputs and no entry")
                continue
            self._check_outputs(partition, record, outputs)
            if partition not in self._tainted:
                self._check_score(partition, record, entries, outputs, seen)
                if entries[0].vector is not None or (entries[0].score and not self._setting.embeds):
                    seen.append(entries[0])
                offsets.append(record.offset)
        if partition not in self._tainted and offsets:
            self._check_ring(partition, offsets, seen)

    def _audit(self):
        """Check that the worker's own audit finds no defects."""
        topics, partitions = self._world.settings.topics, self._setting.partitions
        with SourceIndex(topics, partitions, self._setting.window) as index:
            for number, log in enumerate(self._cluster.topics[self._changelog].logs):
                index.add_entries(number, [(one.key, one.value) for one in log.records])
                if len(log.records) == len(log.written):
                    index.add_whole(number)
            index.add_outputs(one for records in self._published.values() for one in records)
            index.complete()
            for number in set(range(partitions)) - self._tainted:
                report = self._audit_partition(number, index)
                wrong = [*report.missing, *report.without_entry, *report.differing]
                if wrong:
                    self._violated(f"audit: {number}: {wrong}")

    def _audit_partition(self, number, index):
        log, settings = self._cluster.topics[self._raw].logs[number], self._world.settings
        committed = self._committed(number)
        builder = Outputs(settings.topics, dict.fromkeys(self._cluster.topics, self._setting.partitions))
        audit = PartitionAudit(
            number, Bounds(log.begin, committed), settings, self.policies, index, builder, lambda: None
        )
        audit.add([raw_record(clients.record(self._raw, number, one)) for one in self._records(number)])
        return audit.finish()

    def _check_outputs(self, partition, record, outputs):
        """Check conservation and pass-through: a single outcome, and a record changed only in its score."""
        where, first = f"{partition}/{record.offset}", outputs[0]
        if partition not in self._tainted:
            for one in outputs[1:]:
                if one != first and "poison" not in str(one.headers) + str(first.headers):
                    self._violated(f"conservation: {where} has different outputs")
        if first.key != record.key or first.headers[: len(record.headers)] != record.headers:
            self._violated(f"pass-through: {where}: key or headers differ")
        if first.timestamp_ms != record.timestamp_ms:
            self._violated(f"pass-through: {where}: timestamp {record.timestamp_ms} is {first.timestamp_ms}")
        if first.topic == self._outputs[2]:
            if first.value != record.value:
                self._violated(f"pass-through: {where}: a dead letter's value differs")
            return
        scored, raw = json.loads(first.value), json.loads(record.value)
        del scored["metadata"]["quality_score"]
        if scored != raw:
            self._violated(f"pass-through: {where}: the trace differs")

    def _check_score(self, partition, record, entries, outputs, seen):
        """Check *replay-exact*: a single pass over the log with the entries' vectors gives the same score."""
        where, entry, setting = f"{partition}/{record.offset}", entries[0], self._setting
        for other in entries[1:]:
            if not _is_same(entry, other):
                self._violated(f"replay-exact: {where} has two entries")
        if entry.score is None:
            return
        nearest = _nearest(seen[-setting.max_elements :], entry, setting.ttl) if setting.embeds else None
        trace = ReasoningTrace.model_validate_json(record.value)
        score = score_trace(trace, nearest, self.policies[entry.policy])
        if entry.score != encode_score(score):
            self._violated(f"replay-exact: {where}: {entry.score!r}, one pass says {score}")
        for one in outputs:
            if one.topic != self._outputs[2] and dict(one.headers)["kp-score"] != entry.score:
                self._violated(f"replay-exact: {where}: the output's score is not its entry's")

    def _check_ring(self, partition, offsets, seen):
        """Check that the changelog holds the ring and no entry that has left it."""
        setting = self._setting
        window = range(offsets[-1] + 1 - setting.window, offsets[-1] + 1)
        older = [one.offset for one in seen if one.offset < window.start and one.vector is not None]
        ring = {*older[-setting.max_elements :], *(offset for offset in offsets if offset in window)}
        held = dict[bytes, bytes | None]()
        for one in self._cluster.topics[self._changelog].logs[partition].records:
            held[one.key] = one.value
        found = {int(key) for key, value in held.items() if value is not None}
        # A tombstone that was rejected with its batch is sent again at the next start.
        may_hold_more = any(name == "changelog" for name, _ in setting.small)
        if not (found >= ring if may_hold_more else found == ring):
            self._violated(f"ledger: {partition} holds {sorted(found)}, not {sorted(ring)}")


def _are_two(one, other):
    """Return whether two writes are different entries of the same record."""
    if one is None or other is None or one.topic_id != other.topic_id:
        return False
    return not _is_same(one, other)


def _digs_up(one, other):
    """Return whether an entry with a score replaces the entry of a dead letter."""
    return one is not None and other is not None and _is_buried(one) and not _is_buried(other)


def _is_buried(entry):
    return entry.failure is not None and entry.failure.reason in _LATE


def _is_same(one, other):
    """Return whether two entries have the same outcome, or one is a dead letter and the other has a score."""
    if one.fingerprint != other.fingerprint:
        return False
    if _is_buried(one) or _is_buried(other):
        return one.vector == other.vector or None in (one.vector, other.vector)
    return (one.vector, one.score, one.policy, one.decision, one.failure) == (
        other.vector,
        other.score,
        other.policy,
        other.decision,
        other.failure,
    )


def _agrees(entry, says, topic):
    if entry.failure is not None:
        return says.get("kp-reason") == entry.failure.reason.encode()
    return says.get("kp-score") == entry.score


def _number(record):
    return dict(record.headers)["number"]


def _offset(record):
    headers = dict(record.headers)
    source = headers.get("kp-source")
    return int(source.rpartition(b"/")[2] if source else headers["__streams.errors.offset"])


def _nearest(recent, entry, ttl):
    fresh = [
        one for one in recent if ttl is None or one.timestamp_ms / 1000 >= entry.timestamp_ms / 1000 - ttl
    ]
    if not fresh:
        return None
    vector = decode_vector(entry.vector).tolist()
    similarities = [
        sum(a * b for a, b in zip(decode_vector(one.vector).tolist(), vector, strict=True)) for one in fresh
    ]
    best = similarities.index(max(similarities))
    return Nearest(similarities[best], fresh[best].trace_id)
