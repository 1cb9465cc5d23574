"""The source's progress, for the checks, the verdict and the gauges."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Hashable
from contextlib import suppress

from knowledgepulse_kafka.aiokafka_types import IllegalStateError, TopicPartition
from knowledgepulse_kafka.request_waits import MEMBERSHIP
from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.lane.partition_task import PartitionTask
from knowledgepulse_worker.stream.kafka_interfaces import Client
from knowledgepulse_worker.stream.refusal import explained
from knowledgepulse_worker.stream.source import Source

# Milliseconds without a response to a fetch after which the broker counts as silent.
_SILENCE_MS = 10_000


class Progress:
    """The progress in every owned partition.

    Args:
        topic: the raw topic's name.
        client: the group member.
        source: has the tasks.
    """

    def __init__(self, topic: str, client: Client, source: Source) -> None:
        self._topic = topic
        self._client = client
        self._source = source

    async def refresh_positions(self) -> None:
        """Refresh the client's position in every partition that is being consumed."""
        for task in list(self._source.tasks.values()):
            with suppress(IllegalStateError, TimeoutError):
                async with asyncio.timeout(0.1):  # a position that is being reset is not worth waiting for
                    task.position = await self._client.position(self._at(task))

    def check_membership(self) -> None:
        """Raise the error that ended the group membership, even before the first fetch.

        Raises:
            WorkerError: the group rejected this member, or the client failed permanently.
        """
        try:
            self._client.check_membership()
        except Exception as error:
            raise explained(error, self._client.group.group, self.waits(MEMBERSHIP)) from error

    def waiting(self) -> dict[int, Hashable]:
        """Return the progress of each partition where records wait."""
        progress = dict[int, Hashable]()
        generation = self._client.group.generation  # each assignment begins anew, wherever the former one was
        for number, task in self._source.tasks.items():
            if not task.is_recovered:
                continue
            stable = self._client.last_stable_offset(self._at(task))
            if task.has_unfinished:
                progress[number] = (generation, "finished", task.committed)
            elif stable is not None and task.position < stable:
                progress[number] = (generation, "fetched", task.position)
        return progress

    def silent(self) -> dict[int, Hashable]:
        """Return the time of the last answer in each partition where none waits and the leader is silent."""
        answers, waiting = dict[int, Hashable](), self.waiting()
        generation = self._client.group.generation
        for number, task in self._source.tasks.items():
            answered = self._client.last_poll_timestamp(self._at(task)) or 0
            if task.is_recovered and number not in waiting and time.time() * 1000 - answered > _SILENCE_MS:
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
    def is_member(self) -> bool:
        """Whether the client is a member of the group, as far as it knows."""
        return self._client.is_member

    @property
    def recovering(self) -> int:
        """The number of owned partitions that are not consumed yet; a position or a ledger is awaited."""
        return sum(not task.is_recovered for task in self._source.tasks.values())

    @property
    def group(self) -> str:
        """The group's name."""
        return self._client.group.group

    @property
    def has_foreign_member(self) -> bool:
        """Whether a client that is no worker is in the group: for workers alone, brokers assign nothing."""
        return self._client.group.is_assigned_by_brokers

    @property
    def coordinator_answered(self) -> float:
        """When the group's coordinator last answered (``time.monotonic``)."""
        return self._client.answered_at

    @property
    def coordinator_age(self) -> float:
        """Seconds since the group's coordinator last answered."""
        return time.monotonic() - self._client.answered_at

    def silence(self) -> float:
        """Return the longest time in seconds that a fetch has waited for a partition leader's answer.

        Nothing is fetched from a partition whose lane still holds unfinished records.
        """
        asked = [
            self._client.last_poll_timestamp(self._at(task))
            for task in self._source.tasks.values()
            if task.is_recovered and not task.has_unfinished
        ]
        return max((time.time() - answered / 1000 for answered in asked if answered), default=0.0)

    @property
    def transaction_age(self) -> float:
        """Seconds for which a transaction has been in progress; 0 without one."""
        began = self._source.transaction_began
        return 0.0 if began is None else time.monotonic() - began

    @property
    def has_unfinished(self) -> bool:
        """Whether a lane holds records that are not finished."""
        return any(task.has_unfinished for task in self._source.tasks.values())

    def lag(self) -> dict[int, int]:
        """Return each partition's lag in offsets, including offsets held back by open transactions."""
        lags = dict[int, int]()
        for number, task in self._source.tasks.items():
            end = self._client.highwater(self._at(task)) if task.is_recovered else None
            if end is not None:
                done = task.committed if task.has_unfinished else None
                lags[number] = max(0, end - (max(task.position, task.next or 0) if done is None else done))
        return lags

    def held_back(self) -> dict[int, int]:
        """Return the number of offsets held back by open transactions, by partition."""
        return {number: held for number, (_, held) in self.open_transactions().items()}

    def open_transactions(self) -> dict[int, tuple[int, int]]:
        """Return the last stable offset of each partition, with the number of offsets held back behind it."""
        held = {}
        for number, task in self._source.tasks.items():
            end = self._client.highwater(self._at(task))
            stable = self._client.last_stable_offset(self._at(task))
            if end is not None and stable is not None:
                held[number] = stable, max(0, end - stable)
        return held

    def waits(self, requests: Collection[str]) -> tuple[Wait, ...]:
        """Return what the client waits for by these requests."""
        return tuple(self._client.waits.current(requests))

    def partition_count(self) -> int:
        """Return the raw topic's partition count in the client's latest metadata; 0 if there is no topic."""
        return len(self._client.partitions_for_topic(self._topic) or ())

    def _at(self, task: PartitionTask) -> TopicPartition:
        return TopicPartition(self._topic, task.partition)
