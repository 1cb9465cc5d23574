"""``kp-worker topics``."""

from __future__ import annotations

import asyncio
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
@click.pass_context
def topics(ctx: click.Context, config: Path | None, partitions: int, replication_factor: int) -> None:
    """Create missing topics, and report existing ones with other settings.

    New output, dead-letter and changelog topics get the raw topic's partition count; the topic of policies
    gets one partition. If partitions are added to the raw topic, an existing changelog gets as many. The
    size limit of the output and dead-letter topics is 1 MiB above the raw topic's, so that a record fits with
    its score and headers. Their retention is unlimited, because outputs have the timestamps of their records
    and the outputs of old records would otherwise be deleted at once.
    """
    settings = load_settings(config)
    grow = ctx.get_parameter_source("partitions") is ParameterSource.COMMANDLINE
    existing = asyncio.run(_topics(settings, partitions, replication_factor, grow=grow))
    raw = existing[settings.topics.raw]
    if grow and raw.partitions > partitions:
        has = counted(raw.partitions, "partition")
        errors.print(f"differs: {raw.name} has {has}, not {partitions}; Kafka cannot remove partitions")
    for topic in existing.values():
        if topic.replicas < replication_factor:
            has = counted(topic.replicas, "replica")
            errors.print(
                f"differs: {topic.name} has {has}, not {replication_factor}; "
                "kafka-reassign-partitions.sh adds them"
            )


async def _topics(
    settings: Settings, partitions: int, replication_factor: int, *, grow: bool
) -> dict[str, Topic]:
    """Create and report the topics; return them by name.

    Args:
        settings: the names of the topics, and the connection.
        partitions: the partition count of a missing raw topic.
        replication_factor: the replication factor of new topics.
        grow: whether a raw topic with fewer partitions gets as many.
    """
    async with permitted_admin(settings, creation_rights(settings)) as admin:
        created = await admin.create_missing(partitions, replication_factor)
        before = await admin.existing() | created
        existing = dict(before)
        if grow and existing[settings.topics.raw].partitions < partitions:
            existing[settings.topics.raw] = await admin.add_partitions(settings.topics.raw, partitions)
        changelog = await admin.grow_changelog(existing)
        existing[changelog.name] = changelog
    for name, topic in sorted(existing.items()):
        grown = topic.partitions > before[name].partitions
        state = "created" if name in created else "extended" if grown else "exists"
        limit = f"max.message.bytes={topic.max_message_bytes}"
        click.echo(f"{name}: {state}, {counted(topic.partitions, 'partition')}, {limit}")
    for difference in differences(existing, settings.topics):
        errors.print(f"differs: {difference}")
    return existing
