"""Pace a consumer's questions by itself, whatever its brokers answer.

A broker that has no records keeps a fetch for ``fetch_max_wait_ms``, and names a leader for each partition.
aiokafka trusts it to: it asks again as soon as it has the answer, and a broker that answers at once keeps
client and broker busy with nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.fetch import FetchRequest

from knowledgepulse_kafka.private_parts import (
    CONSUMER_CLIENT,
    FETCHER,
    FETCHER_BACKOFF,
    FETCHES_BY_NODE,
    MAX_WAIT_MS,
)

SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.05
"""Seconds before the same fetch is sent again; they double with each empty answer."""


def pace_fetches(consumer: AIOKafkaConsumer) -> None:
    """Let a consumer that has started, and fetches nothing yet, pause after answers that tell nothing.

    Args:
        consumer: the consumer.
    """
    client, fetcher = CONSUMER_CLIENT.of(consumer), FETCHER.of(consumer)
    pacing = FetchPacing(client.send, FETCHES_BY_NODE.of(fetcher), FETCHER_BACKOFF.of(fetcher))
    client.send = pacing.send
    FETCHES_BY_NODE.replace(fetcher, pacing.actions)


@dataclass(frozen=True, slots=True)
class _Pause:
    positions: frozenset[tuple[str, int, int]]
    seconds: float
    end: float


class FetchPacing:
    """The pauses between a consumer's questions.

    A node is asked for the same positions again after a pause if its answer was empty, without an error, and
    sooner than requested. The pauses double up to :data:`LONGEST_PAUSE`, until the node waits as requested,
    or returns records. After a seek or a rebalance, or with another partition, the question is new, and
    does not wait. Leaders are asked for again after ``retry_backoff``.

    Args:
        send: the client's method that sends a request to a node.
        actions: the fetcher's method that returns what to ask each node for, given the assignment.
        retry_backoff: seconds before the leaders of partitions without one are asked for again.
        clock: returns seconds.
    """

    def __init__(
        self,
        send: Callable[..., Awaitable[Any]],
        actions: Callable[[Any], tuple[Any, ...]],
        retry_backoff: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._actions = actions
        self._retry_backoff = retry_backoff
        self._clock = clock
        self._assignment: Any = None
        self._pauses: dict[int, _Pause] = {}
        self._leaders_due = float("-inf")

    async def send(self, node: int, request: Any, **options: Any) -> Any:
        """Send a request, and note an empty answer to a fetch."""
        began = self._clock()
        response = await self._send(node, request, **options)
        if isinstance(request, FetchRequest):
            waited_ms = (self._clock() - began) * 1000
            is_early = waited_ms < MAX_WAIT_MS.of(request) and _is_empty(response)
            last = self._pauses.pop(node, None)
            if is_early:
                seconds = SHORTEST_PAUSE if last is None else min(LONGEST_PAUSE, 2 * last.seconds)
                self._pauses[node] = _Pause(_positions(request), seconds, self._clock() + seconds)
        return response

    def actions(self, assignment: Any) -> tuple[Any, ...]:
        """Return what to ask each node for now, and after how many seconds to look again."""
        if assignment is not self._assignment:
            self._assignment = assignment
            self._pauses.clear()
        fetches, resets, timeout, lacks_leaders, resumed = self._actions(assignment)
        due = []
        for node, request in fetches:
            if (wait := self._seconds_left(node, request)) > 0:
                timeout = min(timeout, wait)
            else:
                due.append((node, request))
        if lacks_leaders and (wait := self._leaders_due - self._clock()) > 0:
            lacks_leaders, timeout = False, min(timeout, wait)
        elif lacks_leaders:
            self._leaders_due = self._clock() + self._retry_backoff
        return due, resets, timeout, lacks_leaders, resumed

    def _seconds_left(self, node: int, request: FetchRequest) -> float:
        pause = self._pauses.get(node)
        if pause is None or not _positions(request) <= pause.positions:
            return 0.0
        return pause.end - self._clock()


def _positions(request: FetchRequest) -> frozenset[tuple[str, int, int]]:
    return frozenset(
        (topic, partition, offset)
        for topic, partitions in request.topics
        for partition, offset, *_ in partitions
    )


def _is_empty(response: Any) -> bool:
    """Return whether a response to a fetch has neither an error nor bytes; control batches are bytes."""
    return not any(
        error_code or batches
        for _, partitions in response.topics
        for _, error_code, *_, batches in partitions
    )
