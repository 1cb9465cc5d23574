"""The interface that lanes publish through."""

from __future__ import annotations

import asyncio
from typing import Protocol

from worker.lane.records import OutputRecord


class Publisher(Protocol):
    """Publishes records in order, for each topic and partition."""

    async def send(self, record: OutputRecord) -> asyncio.Future[int]:
        """Hand a record over; the future is its offset once the broker has confirmed it.

        The future raises :class:`~worker.errors.DeliveryError` or one of its subclasses.
        """
        ...

    async def send_alone(self, record: OutputRecord) -> int:
        """Send a record in a batch of its own, and wait; return its offset.

        A record without a timestamp gets the current time, or none where the topic refuses that.

        Raises:
            TooLargeError: the record itself is too large.
            TimestampError: the topic does not take its timestamp.
            DeliveryError: the broker refused it otherwise, or did not confirm it.
        """
        ...
