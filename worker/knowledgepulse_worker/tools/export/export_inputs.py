"""The export inputs: topics or files of scored traces. Each export starts where the last one ended."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from knowledgepulse_worker.kafka.topic_reader import Reader, TopicReader, raw_record
from knowledgepulse_worker.kafka.wire.topic_id import TopicIds
from knowledgepulse_worker.records.outputs import with_original_timestamp
from knowledgepulse_worker.records.record import NO_TIMESTAMP, RawRecord
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.terminal.console import TopicProgressCallback
from knowledgepulse_worker.terminal.lines import file_errors, without_mark
from knowledgepulse_worker.tools.policies.scored_topics import require_topics

_EVERY = 1000


@dataclass
class TopicInputs:
    """Topics up to their current ends; their parts are partitions.

    Attributes:
        identity: distinguishes each topic from another one of the same name.
        ranges: the offsets that each part holds.
    """

    reader: Reader
    progress: TopicProgressCallback
    identity: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, range] = field(default_factory=dict)

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
            yield with_original_timestamp(raw_record(record))
        self.progress(part, len(offsets), len(offsets))


@asynccontextmanager
async def open_topics(
    settings: Settings, names: Sequence[str], progress: TopicProgressCallback
) -> AsyncIterator[TopicInputs]:
    """Connect and open topics of scored traces; see :func:`require_topics`."""
    topics = await require_topics(settings, names)
    async with TopicReader(settings.kafka, settings.limits.batch_bytes) as reader:
        inputs = TopicInputs(reader, progress)
        for topic in topics:
            partitions, ids = range(topic.partitions), TopicIds(settings.kafka, topic.name)
            await ids.start()
            try:
                inputs.identity[topic.name] = (await ids.current(partitions)).hex()
            finally:
                await ids.stop()
            for one in partitions:
                inputs.ranges[f"{topic.name}/{one}"] = await reader.bounds(topic.name, one)
        yield inputs


class FileInputs:
    """Files with a trace on each line; offsets are line numbers from 0, and lines may be appended.

    Raises:
        InputError: a file cannot be read.
    """

    def __init__(self, paths: Sequence[Path], progress: TopicProgressCallback) -> None:
        self.identity: dict[str, str] = {}
        self.ranges: dict[str, range] = {}
        self._progress = progress
        for path in paths:
            with _reading(path) as lines:
                first = lines.readline()
                self.ranges[str(path)] = range(sum(1 for _ in lines) + bool(first))
            # The first line is enough to distinguish files.
            self.identity[str(path)] = hashlib.sha256(first).hexdigest()[:16]

    async def start(self, part: str, since_ms: int) -> int:
        """Return 0."""
        return 0

    async def read(self, part: str, offsets: range) -> AsyncIterator[RawRecord]:
        """Yield a file's lines as records whose source is the line's location."""
        with _reading(Path(part)) as lines:
            for number, line in enumerate(without_mark(lines)):
                if number in offsets and line.strip():
                    location = f"{part}:{number + 1}".encode("utf-8", "replace")
                    headers = (("kp-source", location),)
                    yield RawRecord(part, 0, number, NO_TIMESTAMP, None, line.strip(), headers)
                if number % _EVERY == 0:
                    self._progress(part, number, offsets.stop)


ExportInputs = TopicInputs | FileInputs


@contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    with file_errors(path, "read"), path.open("rb") as lines:
        yield lines
