"""A topic of labels."""

from __future__ import annotations

from collections.abc import AsyncIterable
from functools import partial

from knowledgepulse_curator.labels.labels import Label, Labels, read_label
from knowledgepulse_kafka.topic_reader import Record, TopicReader, read_topic
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.kafka.foreign_records import ForeignRecords, skipping_foreign_records
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.policies.scored_topics import require_topics
from knowledgepulse_worker.tools.terminal.console import topic_progress


async def labels_of_topic(settings: Settings, name: str) -> Labels:
    """Read a topic's labels up to its current end.

    Raises:
        InputError: there is no label; see also
            :func:`~knowledgepulse_worker.tools.policies.scored_topics.require_topics`.
    """
    (topic,) = await require_topics(settings, [name], remedy="create it first")
    async with TopicReader(settings.kafka.client_config(), settings.limits.batch_bytes) as reader:
        with topic_progress() as progress, skipping_foreign_records(name) as foreign:
            labels = await labels_of_records(
                read_topic(reader, topic, None, partial(progress, name)), foreign
            )
    if not labels:
        raise InputError(f"{name} contains no labels")
    return labels


async def labels_of_records(records: AsyncIterable[Record], foreign: ForeignRecords) -> Labels:
    """Read labels from record values; a trace's last label wins, and a tombstone removes that of its key.

    Records that are no labels are counted as foreign.
    """
    labels: Labels = {}
    async for record in records:
        if record.value is None:
            labels.pop((record.key or b"").decode(errors="replace"), None)
        elif label := foreign.decoded(record, _label):
            labels[label.id] = label
    return labels


def _label(record: Record) -> Label:
    return read_label(f"partition {record.partition}", record.value or b"")
