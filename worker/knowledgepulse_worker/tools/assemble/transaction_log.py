"""The transactions of a partition, which write outputs, published runs and the position together.

Each partition has a transactional id. With it, a new owner of the partition fences off its predecessor and
completes or aborts the predecessor's last transaction before it reads the position of that transaction.

The compacted topic ``<kafka.group>-assembled`` stores for each partition of the spans topic the published
runs (trace id → offset of the last span) and, under :data:`POSITION`, the position of the last transaction.
The consumer group's offset, which the same transactions commit, is the watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord, Position
from knowledgepulse_kafka.topic_reader import Record, TopicReader
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher
from knowledgepulse_schemas.dead_letter import Reason
from knowledgepulse_worker.kafka.foreign_records import skipping_foreign_records
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.assemble.assembly_topics import assembled_topic_name, assembly_group
from knowledgepulse_worker.tools.assemble.run_outputs import Refused

STEP_RECORDS = 100
"""Number of records after which a transaction is committed; larger transactions might time out."""
STEP_BYTES = 1_048_576
"""Bytes after which a transaction is committed."""
POSITION = b"position"
"""The key of the position; trace ids are hexadecimal."""


@dataclass(frozen=True, slots=True)
class State:
    """The state after the last transaction.

    Attributes:
        position: the offset up to which the outputs of all records are published.
        published: the last offset of each published run, by trace id, oldest first.
    """

    position: int
    published: Mapping[str, int]


@dataclass(slots=True)
class Step:
    """The content of a transaction.

    Attributes:
        outputs: the records to publish.
        published: the last offset of each run that the outputs complete, by trace id.
        traces: the number of traces among the outputs.
        reasons: the reasons of the dead letters among the outputs.
        forgotten: the ids of the runs to forget.
        position: the offset up to which the outputs of all records are published after the transaction.
        watermark: the offset to read from after a crash.
    """

    outputs: list[OutputRecord] = field(default_factory=list)
    published: dict[str, int] = field(default_factory=dict)
    traces: int = 0
    reasons: list[Reason] = field(default_factory=list)
    forgotten: Sequence[str] = ()
    position: int = 0
    watermark: int = 0
    _size: int = 0

    def add(self, output: OutputRecord | Refused) -> None:
        """Add a record, or a dead letter."""
        if isinstance(output, Refused):
            self.reasons.append(output.reason)
            output = output.letter
        self.outputs.append(output)
        self._size += len(output.key or b"") + len(output.value or b"")

    @property
    def is_full(self) -> bool:
        """Whether the transaction must be committed before more is added."""
        return len(self.outputs) + len(self.published) >= STEP_RECORDS or self._size >= STEP_BYTES


class AssemblyLog:
    """The transactions of one partition.

    An asynchronous context manager; on entry, earlier owners of the partition are fenced off.
    """

    def __init__(
        self,
        settings: Settings,
        batch_bytes: int,
        partition: int,
        new_publisher: Callable[..., TransactionalPublisher] = TransactionalPublisher,
        new_reader: Callable[..., TopicReader] = TopicReader,
    ) -> None:
        self._settings = settings
        self._topic = assembled_topic_name(settings.kafka.group)
        self._group = assembly_group(settings.kafka.group)
        self._spans = settings.assemble.spans
        self._partition = partition
        self._new_reader = new_reader
        self._publisher = new_publisher(
            settings.kafka.client_config(), f"{self._group}-{partition}", batch_bytes
        )

    async def __aenter__(self) -> Self:
        await self._publisher.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._publisher.__aexit__(*error)

    async def read(self) -> State:
        """Return the state that the last transaction left; raise a TopicError if it cannot be read."""
        position = 0
        published: dict[str, int] = {}
        async with self._new_reader(
            self._settings.kafka.client_config(), self._settings.limits.batch_bytes
        ) as reader:
            offsets = await reader.bounds(self._topic, self._partition)
            with skipping_foreign_records(self._topic) as foreign:
                async for record in reader.read(self._topic, self._partition, offsets):
                    if (mark := foreign.decoded(record, _read_mark)) is None:
                        continue
                    trace_id, last = mark
                    if record.key == POSITION:
                        position = last or 0
                    elif last is None:
                        published.pop(trace_id, None)
                    else:
                        published[trace_id] = last
        return State(position, published)

    async def publish(self, step: Step) -> None:
        """Publish in one transaction; after a DeliveryError nothing more may be published here."""
        marks: dict[bytes, bytes | None] = {
            trace_id.encode(): b"%d" % last for trace_id, last in step.published.items()
        }
        marks |= {trace_id.encode(): None for trace_id in step.forgotten}
        marks[POSITION] = b"%d" % step.position
        # The transactional id fences off former owners, whether or not they are members of the group.
        watermark = {(self._spans, self._partition): Position(step.watermark)}
        async with self._publisher.transaction(GroupMetadata(self._group), watermark) as write:
            await write([*step.outputs, *(self._mark(key, value) for key, value in marks.items())])

    def _mark(self, key: bytes, value: bytes | None) -> OutputRecord:
        return OutputRecord(self._topic, self._partition, NO_TIMESTAMP, key, value, ())


def _read_mark(record: Record) -> tuple[str, int | None]:
    """Return the key of a record and its offset; raise a ValueError if no assembler wrote it."""
    if record.key is None or (record.key == POSITION and record.value is None):
        raise ValueError("not a mark of an assembler")
    return record.key.decode(), None if record.value is None else int(record.value)
