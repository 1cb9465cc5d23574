"""Brokers that are no Apache Kafka, as a proxy before a real one that changes its answers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress

API_VERSIONS = 18
DESCRIBE_CONFIGS = 32
TRANSACTIONAL = frozenset({22, 24, 25, 26, 28})
INIT_PRODUCER_ID = 22
_UNKNOWN_SERVER_ERROR = struct.pack(">h", -1)
_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhi")


class OtherBroker:
    """Answers as the broker behind it, with these differences.

    Args:
        servers: the broker's address.
        hides: the API keys that it does not announce.
        closes_at: the API keys of requests at which it closes the connection.
        fails_at: the API keys of requests that it answers with UNKNOWN_SERVER_ERROR.

    Attributes:
        address: its own address; brokers' addresses in answers become it.
    """

    def __init__(
        self,
        servers: str,
        hides: Collection[int] = (),
        closes_at: Collection[int] = (),
        fails_at: Collection[int] = (),
    ) -> None:
        host, _, port = servers.partition(":")
        self._behind = host, int(port)
        self._hides, self._closes_at, self._fails_at = hides, closes_at, fails_at
        self._tasks = set[asyncio.Task[None]]()
        self.address = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[OtherBroker]:
        server = await asyncio.start_server(self._serve, self._behind[0], 0)
        host, port = server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        asked: dict[int, int] = {}
        try:
            broker_reader, broker_writer = await asyncio.open_connection(*self._behind)
            with suppress(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._requests(reader, broker_writer, asked))
                    group.create_task(self._answers(broker_reader, writer, asked))
            broker_writer.close()
        except asyncio.CancelledError:
            pass  # the server would report it
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _requests(
        self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter, asked: dict[int, int]
    ) -> None:
        while True:
            frame = await _frame(reader)
            key, _, correlation = _HEADER.unpack_from(frame)
            if key in self._closes_at:
                raise ConnectionAbortedError
            asked[correlation] = key
            broker.write(_LENGTH.pack(len(frame)) + frame)

    async def _answers(
        self, broker: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, int]
    ) -> None:
        while True:
            frame = await _frame(broker)
            frame = self._changed(asked.pop(_LENGTH.unpack_from(frame)[0]), frame)
            writer.write(_LENGTH.pack(len(frame)) + frame)

    def _changed(self, key: int, frame: bytes) -> bytes:
        if key == API_VERSIONS:
            return _without(frame, self._hides)
        if key in self._fails_at:  # the throttle time comes first
            return frame[:8] + _UNKNOWN_SERVER_ERROR + frame[10:]
        host, port = self._behind
        own = int(self.address.rpartition(":")[2])
        return frame.replace(host.encode() + _LENGTH.pack(port), host.encode() + _LENGTH.pack(own))


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(_LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0])


def _without(frame: bytes, keys: Collection[int]) -> bytes:
    """Return an answer of ApiVersions without some of the requests."""
    end = 10 + 6 * _LENGTH.unpack_from(frame, 6)[0]
    rows = (frame[at : at + 6] for at in range(10, end, 6))
    kept = [row for row in rows if _key(row) not in keys]
    return frame[:6] + _LENGTH.pack(len(kept)) + b"".join(kept) + frame[end:]


def _key(row: bytes) -> int:
    return int(struct.unpack_from(">h", row)[0])
