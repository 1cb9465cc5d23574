"""Labels: judgements of which traces are worth keeping."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from worker.errors import InputError, TopicError
from worker.kafka.reader import Record, TopicReader, read_topic
from worker.kafka.rights import label_rights, require_rights
from worker.kafka.topics import TopicAdmin
from worker.policies.files import lines_of
from worker.policies.topics import Progress
from worker.settings import Settings


class Label(msgspec.Struct, frozen=True):
    """Whether a trace is worth keeping.

    Attributes:
        id: the trace's.
        keep: whether it is; None where ``reward`` tells.
        reward: how good it is; None where ``keep`` tells.
        source: who or what says so.
        group: what traces share that are not independent, such as the trials of one task.
    """

    id: Annotated[str, Meta(min_length=1)]
    keep: bool | None = None
    reward: float | None = None
    source: str | None = None
    group: str | int | None = None

    def is_kept(self, min_reward: float) -> bool:
        """Return whether the trace is worth keeping: a reward must reach the least."""
        return self.keep if self.keep is not None else (self.reward or 0) >= min_reward


Labels = dict[str, Label]
"""Labels by the trace's id."""

_decode = msgspec.json.Decoder(Label).decode


def read_label(source: str, text: bytes) -> Label:
    """Read a label: JSON with ``id``, and ``keep`` or ``reward``.

    Raises:
        InputError: it is none.
    """
    try:
        label = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{source}: is no label: {error}") from None
    if (label.keep is None) == (label.reward is None):
        raise InputError(f"{source}: is no label: it has one of keep (true or false) and reward (a number)")
    return label


def labels_of_files(paths: Iterable[Path]) -> Labels:
    """Read labels, one JSON document a line; the last of a trace counts.

    Raises:
        InputError: a file is empty, or a line is no label.
    """
    labels = (read_label(source, line) for path in paths for source, line in lines_of(path))
    return {label.id: label for label in labels}


async def labels_of_topic(settings: Settings, name: str, progress: Progress) -> Labels:
    """Read the labels that a topic holds now; see :func:`labels_of_records`.

    Raises:
        NoBrokerError: the brokers cannot be reached.
        SecurityError: they refuse the login, the certificate or a right.
        TopicError: there is no such topic.
        InputError: a record is no label, or there is none.
    """
    await require_rights(settings.kafka, label_rights(name))
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        topics = await admin.describe([name])
    if name not in topics:
        raise TopicError(f"missing: {name}")
    async with TopicReader(settings.kafka, settings.limits.batch_bytes) as reader:
        records = read_topic(reader, topics[name], None, lambda read, of: progress(name, read, of))
        labels = await labels_of_records(records)
    if not labels:
        raise InputError(f"{name} holds no labels")
    return labels


async def labels_of_records(records: AsyncIterable[Record]) -> Labels:
    """Read labels from records' values; the last of a trace counts.

    A record without a value withdraws the label of the trace whose id is its key, as in a compacted topic.

    Raises:
        InputError: a record is no label.
    """
    labels: Labels = {}
    async for record in records:
        if record.value is None:
            labels.pop((record.key or b"").decode(errors="replace"), None)
        else:
            label = read_label(f"{record.topic}/{record.partition}/{record.offset}", record.value)
            labels[label.id] = label
    return labels
