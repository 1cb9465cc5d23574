"""The registry's latest answers to ``kp-worker contributions send``, for the status page."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Annotated

import msgspec

from knowledgepulse_kafka.topic_reader import TopicReader
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.worker_topics import contributions_topic_name
from knowledgepulse_worker.observe.recent import Recent
from knowledgepulse_worker.settings import Settings

logger = logging.getLogger(__name__)

MAX_OFFSETS = 1000
"""The number of offsets read from the end of the topic; some have no record."""

POLL_INTERVAL_S = 15.0
"""Seconds between two reads of the topic."""


class _Answer(msgspec.Struct):
    result: Annotated[str, msgspec.Meta(max_length=20)]


_decode = msgspec.json.Decoder(_Answer).decode


async def watch_answers(settings: Settings, recent: Recent) -> None:
    """Keep ``recent.answers`` current, and reconnect after an error."""
    logged = ""
    while True:
        try:
            await _follow(settings, recent)
        except Exception as error:  # noqa: BLE001 - scoring does not depend on the answers
            if str(error) != logged:
                logged = str(error)
                logger.warning("the status page cannot show the registry's answers: %s", error)
        await asyncio.sleep(POLL_INTERVAL_S)


async def _follow(settings: Settings, recent: Recent) -> None:
    name = contributions_topic_name(settings.kafka.group)
    admin = TopicAdmin(settings.kafka, settings.topics)
    async with admin, TopicReader(settings.kafka.client_config(), settings.limits.batch_bytes) as reader:
        while True:
            is_there = name in await admin.describe([name])  # reading a missing topic might create it
            held = await reader.bounds(name, 0) if is_there else range(0)
            latest = range(max(held.start, held.stop - MAX_OFFSETS), held.stop)
            recent.answers = Counter(
                [_decode(record.value or b"").result async for record in reader.read(name, 0, latest)]
            )
            await asyncio.sleep(POLL_INTERVAL_S)
