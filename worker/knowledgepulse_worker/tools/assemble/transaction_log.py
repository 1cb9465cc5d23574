"""The transactions of a partition, which write outputs, published runs and the position together.

The compacted topic ``<kafka.group>-assembled`` stores for each partition of the spans topic the published
runs (trace id → offset of the last span) and, under :data:`POSITION`, the position of the last transaction.
The consumer group's offset, which the same transactions commit, is the watermark.

The group's generation fences off a partition's former owner. Assemblers of 0.3.0 and before committed as no
member of the group, and had a transactional id for each partition; a partition's first new owner fences it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from knowledgepulse_kafka.client_types import Place
from knowledgepulse_kafka.errors import LostPartitionsError
from knowledgepulse_kafka.records import NO_TIMESTAMP, Headers, OutputRecord, Position
from knowledgepulse_kafka.session import Session, commit_repeatedly
from knowledgepulse_kafka.topic_reader import Record, TopicReader
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher
from knowledgepulse_schemas.dead_letter import Reason
from knowledgepulse_worker.kafka.foreign_records import skipping_foreign_records
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.assemble.assembly_topics import assembled_topic_name, assembly_group
from knowledgepulse_worker.tools.assemble.run_outputs import RunDeadLetter

STEP_RECORDS = 100
"""Number of records after which a transaction is committed; larger transactions might time out."""
STEP_BYTES = 1_048_576
"""Bytes after which a transaction is committed."""
POSITION = b"position"
"""The key of the position; trace ids are hexadecimal."""
MEMBER = ("kp-member", b"1")
"""The header of a position that was committed as a member of the group, which 0.3.0 did not."""


@dataclass(frozen=True, slots=True)
class AssemblyState:
    """The state after the last transaction.

    Attributes:
        position: the offset up to which the outputs of all records are published.
        published: the last offset of each published run, by trace id, oldest first.
        by_member: whether a member of the group committed it.
    """

    position: int
    published: Mapping[str, int]
    by_member: bool = True


@dataclass(slots=True)
class AssemblyStep:
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

    def add(self, output: OutputRecord | RunDeadLetter) -> None:
        """Add a record, or a dead letter."""
        if isinstance(output, RunDeadLetter):
            self.reasons.append(output.reason)
            output = output.letter
        self.outputs.append(output)
        self._size += len(output.key or b"") + len(output.value or b"")

    @property
    def is_full(self) -> bool:
        """Whether the transaction must be committed before more is added."""
        return len(self.outputs) + len(self.published) >= STEP_RECORDS or self._size >= STEP_BYTES


class AssemblyLog:
    """The transactions of one partition."""

    def __init__(
        self,
        settings: Settings,
        partition: int,
        new_publisher: Callable[..., TransactionalPublisher] = TransactionalPublisher,
        new_reader: Callable[..., TopicReader] = TopicReader,
    ) -> None:
        self._config = settings.kafka.client_config()
        self._decoded_bytes = settings.limits.batch_bytes
        self._topic = assembled_topic_name(settings.kafka.group)
        self._former_id = f"{assembly_group(settings.kafka.group)}-{partition}"
        self._place = Place(settings.assemble.spans, partition)
        self._new_publisher = new_publisher
        self._new_reader = new_reader

    async def fence(self) -> None:
        """Fence off an assembler of 0.3.0 or before, and complete or abort its open transaction."""
        async with self._new_publisher(self._config, self._former_id):
            pass

    async def read(self) -> AssemblyState:
        """Return the state that the last transaction left, once no transaction is open.

        Raises:
            TopicError: the log cannot be read.
        """
        position, by_member = 0, False
        published: dict[str, int] = {}
        partition = self._place.partition
        async with self._new_reader(self._config, self._decoded_bytes) as reader:
            offsets = (await reader.appended(self._topic, [partition]))[partition]
            with skipping_foreign_records(self._topic) as foreign:
                async for record in reader.read(self._topic, partition, offsets):
                    if (mark := foreign.decoded(record, _read_mark)) is None:
                        continue
                    trace_id, last = mark
                    if record.key == POSITION:
                        position, by_member = last or 0, MEMBER in record.headers
                    elif last is None:
                        published.pop(trace_id, None)
                    else:
                        published[trace_id] = last
        return AssemblyState(position, published, by_member)

    async def publish(self, session: Session, step: AssemblyStep) -> None:
        """Publish in one transaction; repeat it while a quota delays it.

        Raises:
            LostPartitionsError: the group has rebalanced, so the partition may have another owner.
            RefusedError: a broker rejected a record.
            DeliveryError: the transaction was not confirmed.
        """
        marks: dict[bytes, bytes | None] = {
            trace_id.encode(): b"%d" % last for trace_id, last in step.published.items()
        }
        marks |= {trace_id.encode(): None for trace_id in step.forgotten}
        position = self._mark(POSITION, b"%d" % step.position, (MEMBER,))
        records = [*step.outputs, *(self._mark(key, value) for key, value in marks.items()), position]
        watermark = {self._place: Position(step.watermark)}
        if not await commit_repeatedly(session, records, watermark):
            raise LostPartitionsError("the group has rebalanced")

    def _mark(self, key: bytes, value: bytes | None, headers: Headers = ()) -> OutputRecord:
        return OutputRecord(self._topic, self._place.partition, NO_TIMESTAMP, key, value, headers)


def _read_mark(record: Record) -> tuple[str, int | None]:
    """Return the key of a record and its offset; raise a ValueError if no assembler wrote it."""
    if record.key is None or (record.key == POSITION and record.value is None):
        raise ValueError("not a mark of an assembler")
    return record.key.decode(), None if record.value is None else int(record.value)
