"""A TCP proxy between workers and broker that can cut, reset, slow and black-hole connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress

from chaos.packets import lost_packets

_CHUNK = 65_536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of 0 seconds


class Proxy:
    """Forwards bytes; every fault lasts until :meth:`mend`.

    Args:
        listen: `host:port` that workers connect to.
        target: `host:port` of the broker.

    Attributes:
        connections: both ends of all open connections.
    """

    def __init__(self, listen: str, target: str) -> None:
        self._faults = ExitStack()
        self._address = listen
        self._listen = _address(listen)
        self._target = _address(target)
        self._server: asyncio.Server | None = None
        self.connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delay = 0.0
        self._requests, self._answers = asyncio.Event(), asyncio.Event()  # set while they flow
        self._requests.set()
        self._answers.set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, *self._listen)

    async def stop(self) -> None:
        self._faults.close()
        await self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cut(self) -> None:
        """Close all connections, and accept no new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self.connections:
            writer.transport.abort()

    async def reset(self) -> None:
        """Reset all connections (RST), but accept new ones."""
        for writer in self.connections:
            reset_connection(writer)

    async def slow(self, seconds: float = 0.5) -> None:
        """Delay all data."""
        self._delay = seconds

    async def swallow(self) -> None:
        """Accept everything and forward nothing, like a firewall that drops packets."""
        self._requests.clear()
        self._answers.clear()

    async def hold_answers(self) -> None:
        """Forward what workers send, but nothing of what the broker answers."""
        self._answers.clear()

    async def lose(self) -> None:
        """Lose a tenth of the packets, which TCP then sends again."""
        self._faults.enter_context(lost_packets(0.1, [self._address]))

    async def mend(self) -> None:
        """Undo all faults."""
        self._faults.close()
        self._delay = 0.0
        self._requests.set()
        self._answers.set()
        if self._server is None:
            await self.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError):
                target_reader, target_writer = await asyncio.open_connection(*self._target)
                # When one side closes, close the other.
                with suppress(ExceptionGroup):
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._forward(reader, target_writer, self._requests))
                        group.create_task(self._forward(target_reader, writer, self._answers))
        except asyncio.CancelledError:
            pass  # the server would report it to the event loop's exception handler
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event
    ) -> None:
        self.connections.add(writer)
        try:
            while data := await reader.read(_CHUNK):
                await asyncio.sleep(self._delay)
                await flows.wait()
                writer.write(data)
                await writer.drain()
            raise ConnectionAbortedError
        finally:
            self.connections.discard(writer)
            writer.transport.abort()


def reset_connection(writer: asyncio.StreamWriter) -> None:
    """Close a connection with an RST, discarding unsent data."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()


@asynccontextmanager
async def running_proxy(listen: str, target: str) -> AsyncIterator[Proxy]:
    """Yield a running proxy."""
    proxy = Proxy(listen, target)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


def _address(text: str) -> tuple[str, int]:
    host, port = text.rsplit(":", 1)
    return host, int(port)
