"""What the commands read: settings and policies, scored traces, and labels."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import Settings, load_policy, load_settings, override
from knowledgepulse_worker.terminal.progress import errors, topic_progress

if TYPE_CHECKING:
    from knowledgepulse_worker.scoring import ScoredRecord, Scorer
    from knowledgepulse_worker.tools.policies.labels import Label, Labels
    from knowledgepulse_worker.tools.policies.scored_topics import ScoredTopics

JUDGE = "judge:"
"""What the source of a model's labels begins with."""

Source = dict[str, Any]
"""The values of the options that select scored traces and labels, by parameter."""


def settings_and_policy_of(source: Source, file: Path | None) -> tuple[Settings, Policy]:
    """Return the settings, and the policy of the file, or else theirs; read nothing else."""
    settings = settings_of(source)
    return settings, load_policy(file) if file else settings.policy


def settings_of(source: Source) -> Settings:
    """Return the settings, with the embedder for raw traces."""
    settings = load_settings(source["config"])
    if source["embedder"] is None:
        return settings
    return override(settings, "embedding", {"backend": source["embedder"]})


def read_records(settings: Settings, source: Source, *, content: bool = True) -> list[ScoredRecord]:
    """Return the scored traces of the given files, or else of the topics.

    Args:
        settings: the brokers, and how to score raw traces.
        source: the options.
        content: from topics, read also what a person needs to judge a trace.
    """
    if not source["files"]:
        return asyncio.run(_records_of_topics(settings, source["since"], source["until"], content=content))
    if source["since"] or source["until"]:
        raise click.UsageError("--since and --until apply only to topics: lines of files have no timestamp")
    from knowledgepulse_worker.embedding import load_embedder  # noqa: PLC0415 - reading topics needs no numpy
    from knowledgepulse_worker.tools.policies.scored_files import read_files  # noqa: PLC0415
    from knowledgepulse_worker.tools.score.offline import embedder_name, make_scorer  # noqa: PLC0415

    def scorer() -> Scorer:
        return make_scorer(settings, load_embedder(settings.embedding, settings.cache))

    name = embedder_name(settings.embedding)
    return list(read_files(source["files"], scorer, name, settings.limits.trace_bytes))


def read_comparable(settings: Settings, source: Source, *, content: bool = False) -> list[ScoredRecord]:
    """Return the scored traces, and warn if the settings' embedder would score them otherwise."""
    records = read_records(settings, source, content=content)
    from knowledgepulse_worker.tools.policies.embedders import embedder_warnings, embedders_of  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_worker.tools.score.offline import embedder_name  # noqa: PLC0415

    for warning in embedder_warnings(embedders_of(records), embedder_name(settings.embedding)):
        errors.print(f"warning: {warning}")
    return records


async def _records_of_topics(
    settings: Settings, since: datetime | None, until: datetime | None, *, content: bool
) -> list[ScoredRecord]:
    from knowledgepulse_worker.records.content import content_of  # noqa: PLC0415
    from knowledgepulse_worker.tools.policies.scored_topics import Period, open_scored_topics  # noqa: PLC0415 - files need no Kafka

    with topic_progress() as progress:
        async with open_scored_topics(settings, progress) as topics:
            records = [
                replace(scored, content=content_of(record.value or b"")) if content else scored
                async for record, scored in topics.read(Period(since, until))
            ]
            _print_skipped(topics)
    if not records:
        names = f"{settings.topics.contribute} and {settings.topics.rejected}"
        raise InputError(f"{names} contain no scored traces{' of that period' if since or until else ''}")
    return records


def _print_skipped(topics: ScoredTopics) -> None:
    if topics.repeats:
        errors.print(f"skipped {topics.repeats} records that repeat earlier ones")
    if topics.foreign:
        errors.print(f"skipped {topics.foreign} records that were not written by a worker")


def read_labels(settings: Settings, source: Source, *, required: bool) -> Labels:
    """Return the labels of the given files and topic, people's rather than judges'; the last one wins."""
    return labels_to_use(read_all_labels(settings, source, required=required))


def read_all_labels(settings: Settings, source: Source, *, required: bool) -> list[Label]:
    """Return all labels of the given files and then of the topic."""
    from knowledgepulse_worker.tools.policies.labels import all_labels_of_files, labels_of_topic  # noqa: PLC0415

    files, topic = source["label_files"], source["labels_topic"]
    if required and not files and topic is None:
        raise click.UsageError("no labels: give --labels FILE or --labels-topic TOPIC")
    labels = list(all_labels_of_files(files))
    if topic is not None:
        with topic_progress() as progress:
            labels += asyncio.run(labels_of_topic(settings, topic, progress)).values()
    return labels


def labels_to_use(labels: Sequence[Label]) -> Labels:
    """Return the last label of each trace: of people if any are theirs, and else of judges."""
    people = [label for label in labels if not (label.source or "").startswith(JUDGE)]
    if people and len(people) < len(labels):
        errors.print(f"left out {len(labels) - len(people)} labels of judges, as there are people's")
    return {label.id: label for label in people or labels}
