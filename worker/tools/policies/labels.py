"""Labels: judgements whether traces are worth keeping."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.kafka.preflight.rights import topic_rights
from knowledgepulse_worker.kafka.topic_reader import Record, TopicReader, read_topic
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.terminal.progress import topic_progress
from knowledgepulse_worker.tools.policies.rights import require_topics
from knowledgepulse_worker.tools.policies.scored_files import lines_of


class Label(msgspec.Struct, frozen=True):
    """A judgement whether a trace is worth keeping; it has either ``keep`` or ``reward``."""

    # the trace's id, or that of its run in the system it comes from (`metadata.native_id`)
    id: Annotated[str, Meta(min_length=1)]
    keep: bool | None = None
    reward: float | None = None
    source: str | None = None  # the person or the tool that gave the label
    # shared by traces that are not independent, such as the trials of one task
    group: str | int | None = None

    def is_kept(self, min_reward: float) -> bool:
        """Return ``keep``, or whether the reward is at least ``min_reward``."""
        return self.keep if self.keep is not None else (self.reward or 0) >= min_reward


Labels = dict[str, Label]
"""Labels by the id that they give."""

_decode = msgspec.json.Decoder(Label).decode


def read_label(source: str, text: bytes) -> Label:
    """Parse a label: JSON with ``id``, and ``keep`` or ``reward``.

    Raises:
        InputError: the text is not a label.
    """
    try:
        label = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{source}: not a label: {error}") from None
    if (label.keep is None) == (label.reward is None):
        raise InputError(f"{source}: not a label: give either keep (true or false) or reward (a number)")
    return label


def labels_of_files(paths: Iterable[Path]) -> Labels:
    """Read labels, one JSON document per line; a trace's last label wins.

    Raises:
        InputError: a file is empty or a line is not a label.
    """
    return {label.id: label for label in all_labels_of_files(paths)}


def all_labels_of_files(paths: Iterable[Path]) -> Iterator[Label]:
    """Yield the labels of :func:`labels_of_files`, also those that a later one replaces."""
    yield from (read_label(source, line) for path in paths for source, line in lines_of(path))


async def labels_of_topic(settings: Settings, name: str) -> Labels:
    """Read a topic's labels up to its current end.

    Raises:
        InputError: a record is not a label, or the topic has no labels; see also :func:`require_topics`.
    """
    (topic,) = await require_topics(settings, [name], topic_rights(name, "Read", "DescribeConfigs"))
    async with TopicReader(settings.kafka, settings.limits.batch_bytes) as reader:
        with topic_progress() as progress:
            labels = await labels_of_records(read_topic(reader, topic, None, partial(progress, name)))
    if not labels:
        raise InputError(f"{name} contains no labels")
    return labels


async def labels_of_records(records: AsyncIterable[Record]) -> Labels:
    """Read labels from record values; a trace's last label wins.

    A tombstone removes the label of the trace id in its key, as in a compacted topic.

    Raises:
        InputError: a record is not a label.
    """
    labels: Labels = {}
    async for record in records:
        if record.value is None:
            labels.pop((record.key or b"").decode(errors="replace"), None)
        else:
            label = read_label(f"{record.topic}/{record.partition}/{record.offset}", record.value)
            labels[label.id] = label
    return labels


def native_id_of(record: ScoredRecord) -> str | None:
    """Return the id of a trace's run in the system it comes from, if the trace names it."""
    return record.content.native_id if record.content else None


def label_of(record: ScoredRecord, labels: Labels) -> Label | None:
    """Return a trace's label, by its id or else by its run's native id."""
    native_id = native_id_of(record)
    return labels.get(record.id) or (labels.get(native_id) if native_id else None)
