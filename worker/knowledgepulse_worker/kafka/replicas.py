"""Find the topics whose brokers take no records of a transaction, since too few replicas are in sync.

The brokers tell a client so only of the records that it sends. That a former transaction cannot be completed,
or that a coordinator cannot write its own log, has other names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from knowledgepulse_kafka.errors import ClientError
from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.settings import Settings

ASK_INTERVAL = 5.0
"""Seconds between two questions."""

_ANSWER_LIMIT = 10.0
_OF_COORDINATORS = ("__transaction_state", "__consumer_offsets")


class Replicas:
    """Asks for the replicas while a transaction waits.

    Args:
        settings: the settings.
        is_waiting: returns whether a transaction, or the start of the producer, takes long.

    Attributes:
        waits: the topics that are short of replicas.
    """

    def __init__(self, settings: Settings, is_waiting: Callable[[], bool]) -> None:
        self.waits: tuple[Wait, ...] = ()
        self._settings = settings
        self._is_waiting = is_waiting

    async def check(self) -> None:
        """Ask, if a transaction waits; to be called every :data:`ASK_INTERVAL`."""
        if not self._is_waiting():
            self.waits = ()
            return
        with suppress(ClientError, TimeoutError):
            # The worker's other clients tell of quotas.
            topics = TopicAdmin(self._settings.kafka, self._settings.topics, Throttle())
            async with asyncio.timeout(_ANSWER_LIMIT), topics as admin:
                short = await admin.short_of_replicas(admin.written)
                with suppress(ClientError):  # without a right to the coordinators' own topics
                    short += await admin.short_of_replicas(_OF_COORDINATORS)
                self.waits = tuple(short)
