"""The interface through which lanes publish, and a callback for the futures of deliveries."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from knowledgepulse_worker.records.record import OutputRecord


class Publisher(Protocol):
    """Publishes records, in order within each topic and partition."""

    async def send(self, record: OutputRecord) -> asyncio.Future[int]:
        """Hand a record to the client; the future resolves to its offset when the broker confirms it.

        The future raises :class:`~knowledgepulse_worker.errors.DeliveryError` or one of its subclasses.
        """
        ...

    async def send_alone(self, record: OutputRecord) -> int:
        """Send a record in its own batch, wait for the confirmation, and return the record's offset.

        A record without a timestamp gets the current time, or none if the topic rejects the current time.

        Raises:
            TooLargeError: the record itself is too large.
            TimestampError: the topic rejects its timestamp.
            DeliveryError: the broker rejected it for another reason, or did not confirm it.
        """
        ...

    async def flush(self) -> None:
        """Wait until every record that was handed over is confirmed or given up."""
        ...


def retrieve_exception(delivery: asyncio.Future[Any]) -> None:
    """Mark an exception as retrieved, since failures after the first are never awaited."""
    if not delivery.cancelled():
        delivery.exception()
