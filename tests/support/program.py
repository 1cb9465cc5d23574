"""A program around a source that replaces Faust; a task for each partition takes its batches."""

import asyncio
from contextlib import suppress

from aiokafka.errors import KafkaError


class Program:
    """The host of a source.

    Attributes:
        error: the error that ended the program.
        may_resume: an event; while it is clear, the program stays suspended after an assignment.
    """

    def __init__(self, worker, commit_interval=0.05, on_crash=lambda _: None):
        self.error = None
        self.may_resume = asyncio.Event()
        self.may_resume.set()
        self._worker = worker
        self._commit_interval = commit_interval
        self._on_crash = on_crash
        self._active = asyncio.Event()
        self._suspended = asyncio.Event()
        self._queues = {}
        self._actors = []
        self._tasks = []

    async def start(self):
        self.source = self._worker.connect(self)
        await self.source.start()
        self.source.subscribe()
        self._tasks = [asyncio.create_task(self._fetch()), asyncio.create_task(self._commit())]

    async def stop(self):
        await self.source.stop()
        for task in (*self._tasks, *self._actors):
            task.cancel()
        await asyncio.wait([*self._tasks, *self._actors])

    async def _fetch(self):
        try:
            await self.source.hand_over(lambda: self.error is None)
        except KafkaError as error:
            await self.crash(error)

    async def _commit(self):
        requested = self._worker.lanes.commit_requested
        while self.error is None:
            await self._wait_for_commit(requested)
            requested.clear()
            await self.source.commit()

    async def _wait_for_commit(self, requested):
        with suppress(TimeoutError):
            async with asyncio.timeout(self._commit_interval):
                await requested.wait()

    async def rebalance_started(self):
        self._active.clear()
        self._suspended.set()

    async def partitions_revoked(self, partitions):
        for actor in self._actors:
            actor.cancel()
        self._queues.clear()

    async def partitions_assigned(self, partitions):
        self._queues = {number: asyncio.Queue() for number in partitions}
        self._actors = [asyncio.create_task(self._act(queue)) for queue in self._queues.values()]
        self._tasks.append(asyncio.create_task(self._resume()))

    async def _resume(self):
        await self.may_resume.wait()
        self._suspended.clear()
        self._active.set()

    async def _act(self, queue):
        while True:
            await (await queue.get()).give(self._worker.lanes.take)

    async def resumed(self):
        await self._active.wait()

    async def take(self, batch):
        if self._active.is_set():
            self._queues[batch.records[0].partition].put_nowait(batch)

    async def unless_suspended(self, work):
        waiting = {asyncio.ensure_future(work), asyncio.ensure_future(self._suspended.wait())}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def crash(self, error):
        self.error = self.error or error
        self._on_crash(error)
