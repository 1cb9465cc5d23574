"""The transactions of a partition, which write outputs, published runs and the position together.

The compacted topic ``<kafka.group>-assembled`` stores for each partition of the spans topic the published
runs (trace id → offset of the last span) and, under :data:`POSITION`, the position of the last transaction.
The consumer group's offset, which the same transactions commit, is the restart offset.

The group's generation fences off a partition's former owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from knowledgepulse_kafka.client_types import Place
from knowledgepulse_kafka.errors import LostPartitionsError
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord, Position
from knowledgepulse_kafka.session import Session, commit_repeatedly
from knowledgepulse_kafka.topic_reader import Record, TopicReader
from knowledgepulse_schemas.dead_letter import Reason
from knowledgepulse_worker.kafka.foreign_records import skipping_foreign_records
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.assemble.assembly_topics import assembled_topic_name
from knowledgepulse_worker.tools.assemble.run_outputs import RunDeadLetter

STEP_RECORDS = 100
"""Number of records after which a transaction is committed; larger transactions might time out."""
STEP_BYTES = 1_048_576
"""Bytes after which a transaction is committed."""
POSITION = b"position"
"""The key of the position; trace ids are hexadecimal."""


@dataclass(frozen=True, slots=True)
class AssemblyState:
    """The state after the last transaction.

    Attributes:
        position: the offset up to which the outputs of all records are published.
        published: the last offset of each published run, by trace id, oldest first.
    """

    position: int
    published: Mapping[str, int]


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
        restart_offset: the offset to read from after a crash.
    """

    outputs: list[OutputRecord] = field(default_factory=list)
    published: dict[str, int] = field(default_factory=dict)
    traces: int = 0
    reasons: list[Reason] = field(default_factory=list)
    forgotten: Sequence[str] = ()
    position: int = 0
    restart_offset: int = 0
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
        new_reader: Callable[..., TopicReader] = TopicReader,
    ) -> None:
        self._config = settings.kafka.client_config()
        self._decoded_bytes = settings.limits.batch_bytes
        self._topic = assembled_topic_name(settings.kafka.group)
        self._place = Place(settings.assemble.spans, partition)
        self._new_reader = new_reader

    async def read(self) -> AssemblyState:
        """Return the state that the last transaction left, once no transaction is open.

        Raises:
            TopicError: the log cannot be read.
        """
        position = 0
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
                        position = last or 0
                    elif last is None:
                        published.pop(trace_id, None)
                    else:
                        published[trace_id] = last
        return AssemblyState(position, published)

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
        position = self._mark(POSITION, b"%d" % step.position)
        records = [*step.outputs, *(self._mark(key, value) for key, value in marks.items()), position]
        restart_offset = {self._place: Position(step.restart_offset)}
        if not await commit_repeatedly(session, records, restart_offset):
            raise LostPartitionsError("the group has rebalanced")

    def _mark(self, key: bytes, value: bytes | None) -> OutputRecord:
        return OutputRecord(self._topic, self._place.partition, NO_TIMESTAMP, key, value, ())


def _read_mark(record: Record) -> tuple[str, int | None]:
    """Return the key of a record and its offset; raise a ValueError if no assembler wrote it."""
    if record.key is None or (record.key == POSITION and record.value is None):
        raise ValueError("not a mark of an assembler")
    return record.key.decode(), None if record.value is None else int(record.value)
