"""``kp-worker topics``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from click.core import ParameterSource

from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.kafka.worker_rights import creation_rights
from knowledgepulse_worker.kafka.worker_topics import differences
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.settings import Settings, load_settings
from knowledgepulse_worker.terminal.config_option import config_option
from knowledgepulse_worker.tools.terminal.console import errors
from knowledgepulse_worker.tools.terminal.options import json_lines_option


@click.command()
@config_option
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=4,
    help="Partition count of a new raw topic; if given, an existing one with fewer gets as many.",
)
@click.option(
    "--replication-factor",
    type=int,
    default=-1,
    show_default="the broker's",
    help="Replication factor of new topics; existing ones with fewer replicas are reported.",
)
@click.option("--yes", is_flag=True, help="Add partitions to an existing raw topic without asking.")
@click.option("--dry-run", is_flag=True, help="Only print what would be created and extended.")
@json_lines_option
@click.pass_context
def topics(
    ctx: click.Context,
    config: Path | None,
    partitions: int,
    replication_factor: int,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Create missing topics, and report existing ones with other settings.

    New output, dead-letter and changelog topics get the raw topic's partition count; the topic of policies
    gets one partition. If partitions are added to the raw topic, an existing changelog gets as many. The
    size limit of the output and dead-letter topics is 1 MiB above the raw topic's, so that a record fits with
    its score and headers. Their retention is unlimited, because outputs have the timestamps of their records
    and the outputs of old records would otherwise be deleted at once.

    Partitions cannot be removed again, and change scores. So the command asks before it adds some to an
    existing raw topic. Without a terminal it needs `--yes`; otherwise it adds none and ends with status 1.
    """
    settings = load_settings(config)
    grow = ctx.get_parameter_source("partitions") is ParameterSource.COMMANDLINE
    wanted = _Wanted(partitions, replication_factor, grow=grow, yes=yes)
    changes = asyncio.run((_preview if dry_run else _change)(settings, wanted))
    for change in changes.topics:
        click.echo(json.dumps(asdict(change)) if as_json else change)
    for difference in changes.differences:
        errors.print(f"differs: {difference}")
    sys.exit(1 if changes.refused else 0)


@dataclass(frozen=True)
class _Wanted:
    """What the options ask for.

    Attributes:
        partitions: the partition count of a missing raw topic.
        replication_factor: the replication factor of new topics.
        grow: whether an existing raw topic with fewer partitions gets as many.
        yes: whether it gets them without a question.
    """

    partitions: int
    replication_factor: int
    grow: bool
    yes: bool

    def widens(self, raw: Topic | None) -> bool:
        """Return whether partitions would be added to the raw topic."""
        return self.grow and raw is not None and raw.partitions < self.partitions


@dataclass(frozen=True)
class _Change:
    """A topic after what has happened to it, its ``state``, or before what would happen."""

    name: str
    state: str
    partitions: int
    max_message_bytes: int | None = None

    def __str__(self) -> str:
        limit = "" if self.max_message_bytes is None else f", max.message.bytes={self.max_message_bytes}"
        return f"{self.name}: {self.state}, {counted(self.partitions, 'partition')}{limit}"


@dataclass(frozen=True)
class _Changes:
    topics: list[_Change]
    differences: list[str]
    refused: bool = False


async def _preview(settings: Settings, wanted: _Wanted) -> _Changes:
    """Return what :func:`_change` would do if the user agreed."""
    async with permitted_admin(settings, creation_rights(settings)) as admin:
        existing = await admin.existing()
        raw = existing.get(settings.topics.raw)
        count = wanted.partitions if raw is None or wanted.widens(raw) else raw.partitions
        missing = admin.missing(existing, count)
    changes = [_Change(name, "would be created", number) for name, number in missing.items()]
    for name, topic in existing.items():
        extended = name in {settings.topics.raw, admin.changelog} and topic.partitions < count
        state, partitions = ("would be extended", count) if extended else ("exists", topic.partitions)
        changes.append(_Change(name, state, partitions, topic.max_message_bytes))
    consequence = [_consequence(raw, count)] if raw is not None and wanted.widens(raw) else []
    return _Changes(sorted(changes, key=lambda change: change.name), consequence)


async def _change(settings: Settings, wanted: _Wanted) -> _Changes:
    """Create the missing topics, and add partitions to the raw topic if the user agrees."""
    refused, grown = False, dict[str, Topic]()
    async with permitted_admin(settings, creation_rights(settings)) as admin:
        before = await admin.existing()
        raw = before.get(settings.topics.raw)
        if raw is not None and wanted.widens(raw):
            refused = not _agreed(raw, wanted)
            if not refused:
                grown[raw.name] = await admin.add_partitions(raw.name, wanted.partitions)
        created = await admin.create_missing(wanted.partitions, wanted.replication_factor)
        existing = await admin.existing() | created | grown
        existing[admin.changelog] = await admin.grow_changelog(existing)
    changes = []
    for name, topic in sorted(existing.items()):
        extended = name in before and topic.partitions > before[name].partitions
        state = "created" if name in created else "extended" if extended else "exists"
        changes.append(_Change(name, state, topic.partitions, topic.max_message_bytes))
    return _Changes(changes, [*_differences(settings, existing, wanted)], refused)


def _agreed(raw: Topic, wanted: _Wanted) -> bool:
    """Return whether partitions may be added, which is asked on a terminal."""
    if wanted.yes:
        return True
    errors.print(_consequence(raw, wanted.partitions))
    if sys.stdin.isatty():
        return click.confirm("Add them?", err=True)
    errors.print("nothing was added; --yes adds them without a terminal")
    return False


def _consequence(raw: Topic, partitions: int) -> str:
    return (
        f"{raw.name} has {counted(raw.partitions, 'partition')} and would have {partitions}, which cannot be "
        "undone: most keys move to another partition, each trace is compared with fewer, and scores rise"
    )


def _differences(settings: Settings, existing: Mapping[str, Topic], wanted: _Wanted) -> Iterator[str]:
    yield from differences(existing, settings.topics)
    raw = existing[settings.topics.raw]
    if wanted.grow and raw.partitions > wanted.partitions:
        has = counted(raw.partitions, "partition")
        yield f"{raw.name} has {has}, not {wanted.partitions}; Kafka cannot remove partitions"
    for topic in existing.values():
        if topic.replicas < wanted.replication_factor:
            has = counted(topic.replicas, "replica")
            yield (
                f"{topic.name} has {has}, not {wanted.replication_factor}; "
                "kafka-reassign-partitions.sh adds them"
            )
