"""A program around a source that replaces Faust; a queue replaces its channel."""

import asyncio


class Program:
    """The host of a source.

    Attributes:
        error: the error that ended the program.
    """

    def __init__(self, worker, on_crash=lambda _: None):
        self.error = None
        self.source = worker.source
        self.source.host = self
        self._on_crash = on_crash
        self._batches = asyncio.Queue()
        self._tasks = []

    async def start(self):
        self._tasks = [asyncio.create_task(work()) for work in (self._fetch, self._score, self._commit)]

    async def stop(self):
        await self.source.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _fetch(self):
        try:
            await self.source.hand_over(lambda: self.error is None)
        except Exception as error:
            await self.crash(error)

    async def _score(self):
        while True:
            batch = await self._batches.get()
            batch.task.feed(batch.records)

    async def _commit(self):
        await self.source.group_commit.run(lambda: self.error is None)

    async def take(self, batch):
        await self._batches.put(batch)

    async def crash(self, error):
        self.error = self.error or error
        self._on_crash(error)
