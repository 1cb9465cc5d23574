"""The export inputs: topics or files of scored traces. Each export starts where the last one ended."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from knowledgepulse_kafka.records import NO_TIMESTAMP, Headers, RawRecord
from knowledgepulse_kafka.topic_id import TopicIds
from knowledgepulse_kafka.topic_reader import Reader, TopicReader, raw_record
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.records.decode import with_quality_score
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.records.output_headers import HEADERS, unwrapped
from knowledgepulse_worker.records.outputs import with_original_timestamp
from knowledgepulse_worker.records.score_header import encode_score
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.scored_records import read_line
from knowledgepulse_worker.tools.policies.scored_topics import require_topics
from knowledgepulse_worker.tools.terminal.console import TopicProgressCallback
from knowledgepulse_worker.tools.terminal.lines import file_errors, without_mark

_EVERY = 1000


class ExportInputs(Protocol):
    """Parts with scored traces at increasing offsets.

    Attributes:
        identity: distinguishes each topic or file from another one of the same name.
        ranges: the offsets that each part holds.
        changed_ms: the last change of each file, in milliseconds since the epoch; empty for topics.
    """

    identity: dict[str, str]
    ranges: dict[str, range]
    changed_ms: dict[str, int]

    async def start(self, part: str, since_ms: int) -> int:
        """Return a part's first offset whose record has this time or a later one."""

    def read(self, part: str, offsets: range) -> AsyncIterator[RawRecord]:
        """Yield the records in a range of a part's offsets."""


@dataclass
class TopicInputs:
    """Topics up to their current ends; their parts are partitions."""

    reader: Reader
    progress: TopicProgressCallback
    identity: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, range] = field(default_factory=dict)
    changed_ms: dict[str, int] = field(default_factory=dict)

    async def start(self, part: str, since_ms: int) -> int:
        """Return a partition's first offset whose record has this time or a later one."""
        topic, _, partition = part.rpartition("/")
        first = await self.reader.first_since(topic, int(partition), since_ms)
        return self.ranges[part].stop if first is None else first

    async def read(self, part: str, offsets: range) -> AsyncIterator[RawRecord]:
        """Yield the records in a range of a partition's offsets."""
        topic, _, partition = part.rpartition("/")
        async for record in self.reader.read(topic, int(partition), offsets):
            if record.offset % _EVERY == 0:
                self.progress(part, record.offset - offsets.start, len(offsets))
            yield unwrapped(with_original_timestamp(raw_record(record)))
        self.progress(part, len(offsets), len(offsets))


@asynccontextmanager
async def open_topics(
    settings: Settings, names: Sequence[str], progress: TopicProgressCallback
) -> AsyncIterator[TopicInputs]:
    """Connect and open topics of scored traces; see :func:`require_topics`."""
    topics = await require_topics(settings, names)
    async with TopicReader(settings.kafka.client_config(), settings.limits.batch_bytes) as reader:
        inputs = TopicInputs(reader, progress)
        for topic in topics:
            partitions, ids = range(topic.partitions), TopicIds(settings.kafka.client_config(), topic.name)
            await ids.start()
            try:
                inputs.identity[topic.name] = (await ids.current(partitions)).hex()
            finally:
                await ids.stop()
            for number in partitions:
                inputs.ranges[f"{topic.name}/{number}"] = await reader.bounds(topic.name, number)
        yield inputs


class FileInputs:
    """Files with a scored trace, or output of `kp-worker score --traces`, on each line.

    Offsets are line numbers from 0, and lines may be appended.

    Raises:
        InputError: a file cannot be read.
    """

    def __init__(self, paths: Sequence[Path], progress: TopicProgressCallback) -> None:
        self.identity: dict[str, str] = {}
        self.ranges: dict[str, range] = {}
        self.changed_ms: dict[str, int] = {}
        self._progress = progress
        for path in paths:
            with _reading(path) as lines:
                first = lines.readline()
                self.ranges[str(path)] = range(sum(1 for _ in lines) + bool(first))
                self.changed_ms[str(path)] = os.fstat(lines.fileno()).st_mtime_ns // 1_000_000
            # The first line is enough to distinguish files.
            self.identity[str(path)] = hashlib.sha256(first).hexdigest()[:16]

    async def start(self, part: str, since_ms: int) -> int:
        """Return 0."""
        return 0

    async def read(self, part: str, offsets: range) -> AsyncIterator[RawRecord]:
        """Yield a file's lines as records whose source is the line's location.

        Raises:
            InputError: a line is output of `kp-worker score` without its trace.
        """
        with _reading(Path(part)) as lines:
            for number, line in enumerate(without_mark(lines)):
                if number in offsets and line.strip():
                    value, headers = _scored(f"{part}:{number + 1}", line.strip())
                    yield RawRecord(part, 0, number, NO_TIMESTAMP, None, value, headers)
                if number % _EVERY == 0:
                    self._progress(part, number, offsets.stop)


_MISSING = msgspec.Raw()


class _Line(msgspec.Struct):
    """The members that only output of `kp-worker score` has."""

    quality_score: float | None = None
    policy: str = ""
    trace: msgspec.Raw = _MISSING


def _scored(location: str, line: bytes) -> tuple[bytes, Headers]:
    """Return a line's trace, and the headers that it would have on a topic."""
    source = location.encode("utf-8", "replace")
    try:
        members = msgspec.json.decode(line, type=_Line)
        score = None if members.quality_score is None else read_line(location, line).score
    except DECODE_ERRORS:
        score = None
    if score is None:
        return line, (("kp-source", source),)
    if members.trace == _MISSING:
        raise InputError(
            f"{printable(location)}: a score without its trace; `kp-worker score --traces` prints both"
        )
    headers = zip(HEADERS, (source, encode_score(score), members.policy.encode()), strict=True)
    return with_quality_score(bytes(members.trace), score.quality_score), tuple(headers)


@contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    with file_errors(path, "read"), path.open("rb") as lines:
        yield lines
