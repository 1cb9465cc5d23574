"""Wait while a broker throttles a client, since it exceeds a quota (KIP-219).

The broker answers the request that exceeds the quota at once, tells a throttle time, and reads nothing more
from the connection until that time is over. aiokafka ignores the time, so its next request would time out,
and it would connect again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from aiokafka.errors import KafkaError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest

from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_kafka.request_hook import RequestSender, changing
from knowledgepulse_kafka.throttle import LONG_THROTTLE, Throttle

logger = logging.getLogger(__name__)

PRODUCER_QUOTA, CONSUMER_QUOTA = "producer_byte_rate", "consumer_byte_rate"
MUTATION_QUOTA = "controller_mutation_rate"
"""The quota on creating topics and partitions (KIP-599)."""

_Client = TypeVar("_Client")


class HeldBackError(KafkaError):  # type: ignore[misc]  # aiokafka is untyped
    """A broker would not read records before the transaction's deadline."""

    retriable = False


def logged_throttle(quota: str, clock: Callable[[], float] = time.monotonic) -> Throttle:
    """Return a throttle that logs for how long the brokers delay a client, at most once a minute.

    Args:
        quota: the name of the quota that such a client exceeds.
        clock: returns seconds.
    """
    interval = LogInterval(clock)

    def log(seconds: float) -> None:
        if seconds >= LONG_THROTTLE and interval.let_pass(quota):
            logger.warning(
                "the brokers delay requests by %s s, since they exceed a quota (%s); waiting",
                *(f"{seconds:,.0f}", quota),
            )

    return Throttle(log, clock)


def waiting_out(client: _Client, throttle: Throttle) -> _Client:
    """Return a client that sends nothing over a connection while its broker does not read from it.

    Args:
        client: the client.
        throttle: notes the throttle times. Records that could only be sent after its deadline are not sent.
    """
    return changing(client, lambda send: _Sending(send, throttle).send)


class _Sending:
    """The way in which a connection sends.

    Args:
        send: the connection's own.
        throttle: notes the throttle times.
    """

    def __init__(self, send: RequestSender, throttle: Throttle) -> None:
        self._send = send
        self._throttle = throttle
        self._until = float("-inf")

    async def send(self, request: Any, expect_response: bool = True) -> Any:
        if isinstance(request, ProduceRequest) and self._until > self._throttle.deadline:
            raise HeldBackError
        if (seconds := self._throttle.seconds_until(self._until)) > 0:
            await asyncio.sleep(seconds)
        response = await self._send(request, expect_response=expect_response)
        if (milliseconds := getattr(response, "throttle_time_ms", 0)) > 0:
            has_records = request.API_KEY in (ProduceRequest.API_KEY, FetchRequest.API_KEY)
            self._until = self._throttle.note(milliseconds / 1000, has_records=has_records)
        return response
