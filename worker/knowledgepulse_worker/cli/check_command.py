"""``kp-worker check``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import click

from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.embedding.load import warm_embedder
from knowledgepulse_worker.errors import EXPECTED, StartError, exit_status_of
from knowledgepulse_worker.extras import require_worker
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin, permitted_admin
from knowledgepulse_worker.kafka.worker_rights import worker_rights
from knowledgepulse_worker.kafka.worker_topics import differences
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.settings import RegistrySettings, Settings, doubts_about, load_settings
from knowledgepulse_worker.terminal.config_option import config_option, settings_file
from knowledgepulse_worker.terminal.lazy_command import imported
from knowledgepulse_worker.terminal.printable import printable_lines
from knowledgepulse_worker.tools.backends import backend_access
from knowledgepulse_worker.tools.backends.backend_options import backend_options, to_option
from knowledgepulse_worker.tools.common.trial_transaction import try_transaction


@click.command()
@config_option
@to_option("Check also the backend that `kp-worker evaluations` is to write scores into")
@backend_options
@click.option(
    "--try",
    "tries",
    is_flag=True,
    help="Also begin an empty transaction, and abort it: brokers note the transactional id GROUP-run-check",
)
def check(
    config: Path | None, to: tuple[str, str] | None, project: str, key_file: Path | None, *, tries: bool
) -> None:
    """Check that a worker could start, without starting one or, but for `--try`, changing anything.

    Checks what `kp-worker run` does when it starts: the settings, the brokers, the login and its rights, the
    requests that the brokers know, the topics and their settings, and the model. If they are set, has
    `redaction.function` redact a harmless trace, and asks the registry whether it knows the key. With
    `--to`, reads a page of a backend's runs.

    Each check is a line. One that fails says why, and the others go on. The exit status is 0 if all pass, 78
    if a setting, a right or a topic is to be changed, and else 1.
    """
    require_worker()
    config = settings_file(config, connects=True)
    settings = load_settings(config)
    _say("settings", str(config) if config else "those of the environment", doubts_about(settings))
    status, looks = _passed("kafka", _kafka, settings), dict[str, Callable[[Settings], None]]()
    if status == 0:
        looks["topics"] = _topics
        if tries:
            looks["transactions"] = _transactions
    looks |= {"model": _model, "redaction": _redaction, "registry": _registry}
    if to is not None:
        looks["backend"] = partial(_backend, *to, project, key_file)
    sys.exit(max(status, *(_passed(name, look, settings) for name, look in looks.items())))


def _passed(name: str, look: Callable[[Settings], None], settings: Settings) -> int:
    """Look at a part; return 0, or print what is wrong and return its exit status."""
    try:
        look(settings)
    except EXPECTED as error:
        click.echo(f"{name}: FAILED: {printable_lines(str(error))}")
        return exit_status_of(error)
    return 0


def _say(name: str, what: str, doubts: Iterable[str] = ()) -> None:
    click.echo(f"{name}: ok: {what}")
    for doubt in doubts:
        click.echo(f"  differs: {doubt}")


def _kafka(settings: Settings) -> None:
    asyncio.run(_require_brokers(settings))
    _say("kafka", f"{settings.kafka.bootstrap_servers} answers, and grants what a worker needs")


async def _require_brokers(settings: Settings) -> None:
    async with permitted_admin(settings, worker_rights(settings)) as admin:
        await admin.require_requests()


def _topics(settings: Settings) -> None:
    existing = asyncio.run(_usable_topics(settings))
    topics = [topic for _, topic in sorted(existing.items())]
    told = ", ".join(f"{topic.name} ({counted(topic.partitions, 'partition')})" for topic in topics)
    _say("topics", told, differences(existing, settings.topics))


async def _usable_topics(settings: Settings) -> dict[str, Topic]:
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        await admin.existing()  # that one cannot be read is none of the settings' faults
        try:
            existing = await admin.usable()
            await admin.require_own_group(existing[settings.topics.raw])
        except TopicError as error:
            raise StartError(str(error)) from error
        return existing


def _transactions(settings: Settings) -> None:
    transactional_id = asyncio.run(try_transaction(settings.kafka))
    _say("transactions", f"one was begun as {transactional_id}, and aborted")


def _model(settings: Settings) -> None:
    embedder, speed = warm_embedder(settings)
    _say("model", "none" if embedder is None else f"{embedder.description} in {embedder.precision}; {speed}")


def _redaction(settings: Settings) -> None:
    function, timeout = settings.redaction.function, settings.redaction.timeout
    if function is not None:
        from knowledgepulse_worker.tools.common.redaction_trial import try_redaction  # noqa: PLC0415 - takes an extra

        asyncio.run(try_redaction(function, timeout))
    _say("redaction", "none" if function is None else f"{function} returns a trace")


def _registry(settings: Settings) -> None:
    registry = settings.registry
    if registry == RegistrySettings():
        _say("registry", "none")
        return
    require_access = imported("knowledgepulse_curator.contributions.registry_client:require_access")
    asyncio.run(require_access(registry))
    _say("registry", f"{registry.url} knows the key as that of {registry.agent_id}")


def _backend(name: str, url: str, project: str, key_file: Path | None, _: Settings) -> None:
    address = asyncio.run(backend_access.require_access(name, url, project, key_file))
    _say("backend", f"{name} at {address} answers, and lets the project {project} be read")
