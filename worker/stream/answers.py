"""What a registry answered of late to ``kp-worker contributions send``, for the status page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Annotated

import msgspec

from knowledgepulse_worker.errors import WorkerError
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.topic_reader import TopicReader
from knowledgepulse_worker.kafka.topics import contributions_topic_name
from knowledgepulse_worker.observe.recent import LAST_ANSWERS
from knowledgepulse_worker.settings import Settings

logger = logging.getLogger(__name__)

EVERY = 15.0
"""Seconds between two looks at the topic."""


class _Answer(msgspec.Struct):
    result: Annotated[str, msgspec.Meta(max_length=20)]


_decode = msgspec.json.Decoder(_Answer).decode


async def watch_answers(settings: Settings, answered: Callable[[str], None]) -> None:
    """Report the latest results in the topic of contributions, and new ones as they come.

    Scoring does without: what goes wrong is tried again.

    Args:
        settings: the brokers and the group.
        answered: called with each result, oldest first.
    """
    position = 0
    while True:
        try:
            position = await _read(settings, position, answered)
        except WorkerError as error:
            logger.debug("the registry's answers: %s", error)
        await asyncio.sleep(EVERY)


async def _read(settings: Settings, position: int, answered: Callable[[str], None]) -> int:
    """Report what stands from an offset on; return the next offset."""
    name = contributions_topic_name(settings.kafka.group)
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        if name not in await admin.describe([name]):  # a reader might create it
            return 0
    async with TopicReader(settings.kafka, settings.limits.batch_bytes) as reader:
        held = await reader.bounds(name, 0)
        if held.stop < position:  # the topic was made anew
            position = 0
        begin = max(position, held.start, held.stop - LAST_ANSWERS)
        async for record in reader.read(name, 0, range(begin, held.stop)):
            try:
                answered(_decode(record.value or b"").result)
            except msgspec.MsgspecError:
                continue
    return held.stop
