"""In-memory streams: a worker's outputs and ledger, for tests to tamper with and to audit."""

import itertools
import zlib
from unittest.mock import patch

import msgspec
import numpy as np
import pytest

from knowledgepulse_kafka.records import OutputRecord, RawRecord
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.embedding import Embeddings, LexicalEmbedder
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.policy import Reading
from knowledgepulse_worker.records.decode import decode_whole
from knowledgepulse_worker.records.decode_content import counts_of
from knowledgepulse_worker.records.ledger_records import (
    Entry,
    Failure,
    decode_entry,
    decode_vector,
    encode_vector,
)
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.score_header import encode_score
from knowledgepulse_worker.records.wrapping import UNREAD, ValueRead
from knowledgepulse_worker.scoring import PartitionState, Scorer, VectorCache, bounded_id, embedding_text
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.audit.partition_audit import Bounds, PartitionAudit
from knowledgepulse_worker.tools.audit.source_index import SourceIndex
from knowledgepulse_worker.tools.audit.vectors import REPEATABILITY

MAX_ELEMENTS = 4
WORDS = (
    "build",
    "lock",
    "file",
    "cache",
    "stale",
    "test",
    "green",
    "branch",
    "merge",
    "deploy",
    "log",
    "error",
)


class NoisyEmbedder:
    """A lexical embedder that adds fresh noise of a given length to every vector."""

    dimensions = 32
    description = "noisy"
    _seeds = itertools.count()

    def __init__(self, noise, identity="noisy", precision="float32"):
        self.noise, self.identity, self.precision = noise, identity, precision
        self.texts = []
        self._lexical = LexicalEmbedder(self.dimensions)
        self._random = np.random.default_rng(next(self._seeds))

    def embed(self, texts):
        self.texts += texts
        vectors = self._lexical.embed(texts).vectors
        noise = self._random.normal(size=vectors.shape)
        vectors = vectors + self.noise * noise / np.linalg.norm(noise, axis=1, keepdims=True)
        return Embeddings((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), 0)


class Stream:
    """A partition of the raw topic, and a worker's outputs and ledger entries."""

    def __init__(self, **sections):
        self.settings = Settings(
            cache={"max_elements": MAX_ELEMENTS, "dimensions": 32, **sections.pop("cache", {})},
            policy=sections.pop("policy", {"threshold": 0.45}),
            **sections,
        )
        topics = self.settings.topics
        self.counts = dict.fromkeys((topics.raw, topics.contribute, topics.rejected, topics.dead_letter), 2)
        self.raw: list[RawRecord] = []
        self.entries: dict[int, Entry] = {}
        self.read: dict[int, ValueRead] = {}
        self.changelog: list[bytes | None] = []
        self.outputs: list[OutputRecord] = []
        self.committed = 0
        self.kept_policies = []
        self.embedder = NoisyEmbedder(0)
        self._scorer = None

    def publish(self, count=1, *, value=None, offset=None, seed="", epoch=0):
        """Add records to the raw topic: distinct traces unless a value is given."""
        for _ in range(count):
            number = (self.raw[-1].offset + 1 if self.raw else 0) if offset is None else offset
            text = trace(f"{seed}{number}") if value is None else value
            at = 1_700_000_000_000 + number * 1000 + len(seed)
            headers = (("h", b"1"), ("h", None))
            self.raw.append(RawRecord("raw-traces", 1, number, at, b"key", text, headers, leader_epoch=epoch))

    def bury(self, offset, reason, exception, *, cut=False):
        """Make the record a dead letter."""
        old = self.entries[offset]
        self.entries[offset] = msgspec.structs.replace(
            old, decision=None, failure=Failure(reason, exception, "")
        )
        if old.vector is not None:
            self.changelog.append(msgspec.msgpack.encode(self.entries[offset]))
        builder = Outputs(self.settings.topics, self.counts)
        build = builder.build_truncated if cut else builder.build
        self.outputs[offset] = build(self.raw[offset], self.entries[offset])

    def fail(self, offset):
        """Make the scoring of the record fail."""
        record = self.raw[offset]
        failure = Failure("scoring_failed", "ValueError", "")
        self.entries[offset] = Entry(offset, record.timestamp_ms, failure=failure)

    def restart(self, embedder=None, cut=False):
        """Start a worker on the ledger, which is cut for another model or after a rewind."""
        embedder = embedder or self.embedder
        scores = None if self._scorer is None else self._scorer.state.scores
        if embedder.identity != self.embedder.identity or cut:
            self.entries.clear()
            scores = None
        self.embedder = embedder
        cache = self.settings.cache
        self._scorer = Scorer(
            policy=self.settings.policy,
            cache=VectorCache(cache.max_elements, cache.dimensions, cache.ttl),
        )
        self._scorer.state = PartitionState(self._scorer.state.cache, scores)
        for entry in self.entries.values():
            if entry.vector is not None:
                at = entry.timestamp_ms / 1000
                self._scorer.state.cache.add(decode_vector(entry.vector), id=entry.trace_id, at=at)

    def work(self, since=None, policy=None):
        """Score and publish the raw records from an offset on; known ones are republished."""
        if self._scorer is None:
            self.restart()
        self._scorer.policy = policy or self.settings.policy
        builder = Outputs(self.settings.topics, self.counts, self.settings.records)
        for record in self.raw:
            if record.offset < (self.committed if since is None else since):
                continue
            if record.offset not in self.entries:
                self.entries[record.offset] = entry = self._score(record)
                if entry.vector is not None:
                    self.changelog.append(msgspec.msgpack.encode(entry))
            read = self.read.get(record.offset, UNREAD)
            self.outputs.append(builder.build(record, self.entries[record.offset], read))
            self.committed = max(self.committed, record.offset + 1)

    def audit(
        self,
        *,
        first=0,
        outputs_from=0,
        embedder=None,
        tolerance=None,
        committed=None,
        in_transactions=False,
    ):
        """Audit the partition, with or without an embedder, as a former release's or as this one's."""
        committed = self.committed if committed is None else committed
        tolerances = {} if tolerance is None else dict.fromkeys(REPEATABILITY, tolerance)
        with SourceIndex(self.settings.topics, 2) as index, patch.dict(REPEATABILITY, tolerances):
            index.add_outputs(self.outputs, itertools.repeat(in_transactions))
            index.add_entries(1, ((decode_entry(value), value) for value in self.changelog))
            index.complete()
            audit = PartitionAudit(
                1,
                Bounds(first, committed, outputs_from),
                self.settings,
                {policy.digest: policy for policy in (self.settings.policy, *self.kept_policies)},
                index,
                Outputs(self.settings.topics, self.counts),
                lambda: embedder,
            )
            for start in range(0, len(self.raw), 5):
                audit.add(self.raw[start : start + 5])
            report = audit.finish()
        assert index.foreign == 0
        return report

    def _score(self, record):
        entry = Entry(record.offset, record.timestamp_ms)
        try:
            read, _, steps, value = decode_whole(record.value, 2**20, self.settings.records.unwrap)
            self.read[record.offset] = ValueRead(steps=steps)
        except InvalidRecordError as error:
            self.read[record.offset] = ValueRead(form=error.form)
            return msgspec.structs.replace(
                entry, failure=Failure(error.reason, type(error).__name__, str(error))
            )
        vector = None
        if self.settings.embedding.backend != "none":
            text = embedding_text(read, self.settings.embedding.trace_text)
            vector = self.embedder.embed([text]).vectors[0]
        counts = counts_of(value, Reading.WORDS)
        score = self._scorer.evaluate_embedded(read, vector, at=record.timestamp_ms / 1000, counts=counts)
        entry = msgspec.structs.replace(
            entry,
            trace_id=bounded_id(read.id),
            decision=score.decision,
            score=encode_score(score),
            policy=self._scorer.policy.digest,
        )
        if vector is None:
            return entry
        return msgspec.structs.replace(
            entry,
            vector=encode_vector(vector),
            model=self.embedder.identity,
            precision=self.embedder.precision,
        )


def trace(seed):
    """Return a distinct trace as bytes."""
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    kinds = random.choice(
        ["thought", "tool_call", "observation", "error_recovery"], size=random.integers(1, 6)
    )
    steps = [
        {"type": str(kind), "content": " ".join(random.choice(WORDS, size=6))}
        | ({"tool": {"name": str(random.choice(["grep", "sed"]))}} if kind == "tool_call" else {})
        for kind in kinds
    ]
    new = ReasoningTrace.new(
        objective=" ".join(random.choice(WORDS, size=4)),
        steps=steps,
        result_summary="done",
        confidence=float(random.uniform()),
        success=bool(random.integers(2)),
        task_domain=str(random.choice(["code", "general"])),
    )
    new.id = f"kp:trace:{seed}"
    new.metadata.agent_id = str(random.choice(["a", "b", "c"]))
    return new.to_json()


@pytest.fixture(scope="session")
def stream():
    """Return a factory of streams; its arguments are sections of the settings."""
    return Stream


@pytest.fixture(scope="session")
def worked():
    """Return a factory of streams of so many traces, all of which a worker has scored and published."""

    def make(count, *, embedder=None, **sections):
        made = Stream(**sections)
        made.embedder = embedder or made.embedder
        made.publish(count)
        made.work()
        return made

    return make


@pytest.fixture(scope="session")
def noisy():
    """Return a factory of noisy embedders."""
    return NoisyEmbedder
