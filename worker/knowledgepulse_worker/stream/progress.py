"""The source's progress, for the checks, the diagnosis and the gauges."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Hashable
from contextlib import suppress

from knowledgepulse_kafka.client_types import NotAssignedError
from knowledgepulse_kafka.request_waits import MEMBERSHIP, READING
from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.stream.diagnosis import Observation
from knowledgepulse_worker.stream.source import Source

# Milliseconds without a response to a fetch after which the broker counts as silent.
_SILENCE_MS = 10_000


class Progress:
    """The progress in every owned partition.

    Args:
        topic: the raw topic's name.
        source: has the tasks.
    """

    def __init__(self, topic: str, source: Source) -> None:
        self._topic = topic
        self._client = source.session.member
        self._source = source

    def observe(self, heartbeats: float) -> Observation:
        """Return what of the worker's state can be seen here; this sends no requests.

        Args:
            heartbeats: the seconds between two heartbeats, each of which the group's coordinator answers.
        """
        source, client, tasks = self._source, self._client, self._source.tasks.values()
        # During a rebalance the coordinator answers once all other members have joined.
        is_answerable = client.is_member and not source.is_rebalancing
        now, began = time.monotonic(), source.committer.transaction_began
        return Observation(
            recovering=sum(not task.is_recovered for task in tasks),
            coordinator_silence=max(0.0, now - client.answered_at - heartbeats) if is_answerable else 0.0,
            leader_silence=self._silence(),
            transaction_age=0.0 if began is None else now - began,
            is_rebalancing=source.is_rebalancing,
            has_foreign_member=client.group.is_assigned_by_brokers,
            member_waits=self.waits(MEMBERSHIP),
            reading_waits=self.waits(READING),
            held_back={number: held for number, held in self.open_transactions().items() if held[1]},
            lag=sum(self.lag().values()),
            has_unfinished=any(task.has_unfinished for task in tasks),
        )

    async def refresh_positions(self) -> None:
        """Refresh the client's position in every partition that is being consumed."""
        for task in list(self._source.tasks.values()):
            with suppress(NotAssignedError, TimeoutError):
                async with asyncio.timeout(0.1):  # a position that is being reset is not worth waiting for
                    task.position = await self._client.position(task.place)

    def waiting(self) -> dict[int, Hashable]:
        """Return the progress of each partition where records wait."""
        progress = dict[int, Hashable]()
        generation = self._client.group.generation  # each assignment begins anew, wherever the former one was
        for number, task in self._source.tasks.items():
            waiting = task.waiting(self._client.last_stable_offset(task.place), self._source.replaced)
            if waiting is not None:
                progress[number] = (generation, *waiting)
        return progress

    def silent(self) -> dict[int, Hashable]:
        """Return the time of the last answer in each partition where none waits and the leader is silent."""
        answers, waiting = dict[int, Hashable](), self.waiting()
        generation = self._client.group.generation
        for number, task in self._source.tasks.items():
            answered = self._client.last_poll_timestamp(task.place) or 0
            if task.awaits_records and number not in waiting and time.time() * 1000 - answered > _SILENCE_MS:
                answers[number] = (generation, answered)
        return answers

    def remaining(self) -> dict[int, int]:
        """Return the number of ledger offsets still to be read, by partition in recovery."""
        return {
            number: task.remaining
            for number, task in self._source.tasks.items()
            if task.remaining is not None
        }

    @property
    def group(self) -> str:
        """The group's name."""
        return self._client.group.group

    @property
    def coordinator_answered(self) -> float:
        """When the group's coordinator last answered (``time.monotonic``)."""
        return self._client.answered_at

    def _silence(self) -> float:
        """Return the longest time in seconds that a fetch has waited for a partition leader's answer.

        Nothing is fetched from a partition whose lane still holds unfinished records.
        """
        asked = [
            self._client.last_poll_timestamp(task.place)
            for task in self._source.tasks.values()
            if task.awaits_records
        ]
        return max((time.time() - answered / 1000 for answered in asked if answered), default=0.0)

    def lag(self) -> dict[int, int]:
        """Return each partition's lag in offsets, including offsets held back by open transactions."""
        lags = {
            number: task.lag(self._client.highwater(task.place))
            for number, task in self._source.tasks.items()
        }
        return {number: lag for number, lag in lags.items() if lag is not None}

    def open_transactions(self) -> dict[int, tuple[int, int]]:
        """Return the last stable offset of each partition, with the number of offsets held back behind it."""
        held = {}
        for number, task in self._source.tasks.items():
            end = self._client.highwater(task.place)
            stable = self._client.last_stable_offset(task.place)
            if end is not None and stable is not None:
                held[number] = stable, max(0, end - stable)
        return held

    def waits(self, requests: Collection[str]) -> tuple[Wait, ...]:
        """Return what the client waits for by these requests."""
        return tuple(self._client.waits.current(requests))

    def partition_count(self) -> int:
        """Return the raw topic's partition count in the client's latest metadata; 0 if it is not in them."""
        return len(self._client.partitions_for_topic(self._topic) or ())

    async def is_topic_gone(self) -> bool:
        """Return whether a broker says that the raw topic does not exist."""
        return bool(await self._client.gone([self._topic]))
