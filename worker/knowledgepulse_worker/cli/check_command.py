"""``kp-worker check``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.errors import EXPECTED, exit_status_of
from knowledgepulse_worker.extras import require_worker
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.kafka.worker_rights import worker_rights
from knowledgepulse_worker.kafka.worker_topics import differences
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.settings import Settings, doubts_about, load_settings
from knowledgepulse_worker.stream.warm_embedder import warm_embedder
from knowledgepulse_worker.terminal.config_option import config_option
from knowledgepulse_worker.terminal.printable import printable_lines


@click.command()
@config_option
def check(config: Path | None) -> None:
    """Check that a worker could start, without starting one or changing anything.

    Checks what `kp-worker run` does when it starts: the settings, the brokers, the login and its rights, the
    topics and their settings, and the model. Each check is a line, and the exit status is not 0 if one fails.
    """
    require_worker()
    settings = load_settings(config)
    _say("settings", str(config) if config else "those of the environment", doubts_about(settings))
    statuses = [_passed(name, look, settings) for name, look in (("kafka", _kafka), ("model", _model))]
    sys.exit(max(statuses))


def _passed(name: str, look: Callable[[Settings], None], settings: Settings) -> int:
    """Look at a part; return 0, or print what is wrong and return its exit status."""
    try:
        look(settings)
    except EXPECTED as error:
        click.echo(f"{name}: FAILED: {printable_lines(str(error))}")
        return exit_status_of(error)
    return 0


def _say(name: str, what: str, doubts: Iterator[str]) -> None:
    click.echo(f"{name}: ok: {what}")
    for doubt in doubts:
        click.echo(f"  differs: {doubt}")


def _kafka(settings: Settings) -> None:
    existing = asyncio.run(_topics(settings))
    _say(
        "topics",
        ", ".join(_told(topic) for _, topic in sorted(existing.items())),
        differences(existing, settings.topics),
    )


async def _topics(settings: Settings) -> dict[str, Topic]:
    async with permitted_admin(settings, worker_rights(settings)) as admin:
        servers = settings.kafka.bootstrap_servers
        _say("kafka", f"{servers} answers, and grants what a worker needs", iter(()))
        return await admin.usable()


def _told(topic: Topic) -> str:
    return f"{topic.name} ({counted(topic.partitions, 'partition')})"


def _model(settings: Settings) -> None:
    embedder, speed = warm_embedder(settings)
    told = "none" if embedder is None else f"{embedder.description} in {embedder.precision}; {speed}"
    _say("model", told, iter(()))
