"""A TCP proxy on loopback between workers and broker, whose line can be cut, reset, slowed and stopped."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_CHUNK = 65_536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of 0 seconds


class Proxy:
    """Forwards bytes; each fault lasts until :meth:`mend`.

    Args:
        listen: `host:port` that workers connect to.
        target: `host:port` of the broker.

    Attributes:
        connections: the ends of those that are open.
    """

    def __init__(self, listen: str, target: str) -> None:
        self._listen = _address(listen)
        self._target = _address(target)
        self._server: asyncio.Server | None = None
        self.connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delay = 0.0
        self._flows = asyncio.Event()
        self._flows.set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, *self._listen)

    async def stop(self) -> None:
        await self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cut(self) -> None:
        """Close every connection, and accept none."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self.connections:
            writer.transport.abort()

    async def reset(self) -> None:
        """Reset every connection (RST); new ones are welcome."""
        for writer in self.connections:
            reset_connection(writer)

    async def slow(self, seconds: float = 0.5) -> None:
        """Hold what is sent for so long."""
        self._delay = seconds

    async def swallow(self) -> None:
        """Accept everything and forward nothing, as a firewall does that drops packets."""
        self._flows.clear()

    async def mend(self) -> None:
        """Undo any of the faults."""
        self._delay = 0.0
        self._flows.set()
        if self._server is None:
            await self.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError):
                target_reader, target_writer = await asyncio.open_connection(*self._target)
                # One side's end is the other's.
                with suppress(ExceptionGroup):
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._forward(reader, target_writer))
                        group.create_task(self._forward(target_reader, writer))
        except asyncio.CancelledError:
            pass  # the server would tell the event loop's handler of it
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        try:
            while data := await reader.read(_CHUNK):
                await asyncio.sleep(self._delay)
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
            raise ConnectionAbortedError
        finally:
            self.connections.discard(writer)
            writer.transport.abort()


def reset_connection(writer: asyncio.StreamWriter) -> None:
    """Close a connection with an RST, whatever is still to be sent."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()


@asynccontextmanager
async def running_proxy(listen: str, target: str) -> AsyncIterator[Proxy]:
    """Yield a proxy that forwards."""
    proxy = Proxy(listen, target)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


def _address(text: str) -> tuple[str, int]:
    host, port = text.rsplit(":", 1)
    return host, int(port)
