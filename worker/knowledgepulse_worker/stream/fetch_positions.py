"""The client's positions in the raw topic, by the tasks of its partitions."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from knowledgepulse_kafka.client_types import NotAssignedError, Place
from knowledgepulse_worker.lane.partition_task import PartitionTask
from knowledgepulse_worker.stream.kafka_interfaces import Client


class FetchPositions:
    """Has the client fetch what the tasks take next.

    Args:
        client: the group member.
        topic: the raw topic.
    """

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self.topic = topic

    def at(self, task: PartitionTask) -> Place:
        """Return a task's partition."""
        return Place(self.topic, task.partition)

    def pause(self, task: PartitionTask) -> None:
        """Fetch nothing for a task until :meth:`resume`."""
        self._client.pause(self.at(task))

    def resume(self, task: PartitionTask) -> None:
        """Fetch for a task."""
        self._client.resume(self.at(task))

    async def seek_to_next(self, task: PartitionTask) -> None:
        """Fetch a task's next record; do nothing if its partition was revoked, as the next owner reads it."""
        with suppress(NotAssignedError):
            if task.next is None:
                await self.seek_to_beginning([task])
            else:
                self._client.seek(self.at(task), task.next)

    async def seek_to_beginning(self, tasks: Iterable[PartitionTask]) -> None:
        """Fetch from the beginning of the tasks' partitions."""
        await self._client.seek_to_beginning(*map(self.at, tasks))
