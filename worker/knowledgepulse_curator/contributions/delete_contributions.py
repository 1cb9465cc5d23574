"""Delete contributions from the registry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

from knowledgepulse_curator.contributions.contribution_metrics import ContributionMetrics
from knowledgepulse_curator.contributions.contributions_topic import contribution_rights, create_topic
from knowledgepulse_curator.contributions.registry_client import RegistryClient
from knowledgepulse_curator.contributions.send_contributions import RequestRetrier
from knowledgepulse_kafka.idempotent_publisher import IdempotentPublisher
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.kafka.worker_topics import contributions_topic_name
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.registry_results import RegistryResult


async def delete_contributions(
    settings: Settings, trace_ids: Sequence[str]
) -> AsyncIterator[tuple[str, bool]]:
    """Delete traces; yield each id, and whether the registry had it.

    Raises:
        SettingsError: the registry's settings are incomplete, or its address is wrong.
        AccessError: the registry refuses, for example to delete another agent's trace.
        SecurityError: the brokers refuse the login, the certificate or an operation.
        NoBrokerError: the brokers cannot be reached.
    """
    client = RegistryClient(settings.registry, asyncio.sleep)
    topic = contributions_topic_name(settings.kafka.group)
    async with permitted_admin(settings, contribution_rights(settings)) as admin:
        await create_topic(admin, topic)
    persistence = RequestRetrier(asyncio.sleep, ContributionMetrics())
    async with IdempotentPublisher(settings.kafka.client_config()) as publisher, client:
        for trace_id in trace_ids:
            was_there = await persistence.ask(partial(client.delete, trace_id))
            if was_there:
                done = RegistryResult(trace_id, "", "deleted", settings.registry.url or "", 200)
                await (await publisher.send(topic, done.encode(), done.key))
            yield trace_id, was_there
