"""Connections from the parent process to its child, which no other process can make.

The child listens nowhere. A socket that listens has a name, and an abstract name has neither an owner nor
rights, so that every user of the machine may connect. Instead, the parent makes a pair of connected sockets
for each connection, keeps one, and hands the other to the child over a socket that the child has inherited
(``SCM_RIGHTS``, unix(7)).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable

import aiohttp
from aiohttp import ClientRequest, ClientTimeout, web
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace

_HANDED_OVER = b"\0"
"""The byte that accompanies a socket, since a stream carries no descriptor without content."""


class ChildConnector(aiohttp.BaseConnector):
    """The parent's end: connects a client to the present child."""

    def __init__(self) -> None:
        super().__init__()
        self._child = socket.socket(socket.AF_UNIX)  # connected to nobody until there is a child

    def socket_of_next_child(self) -> socket.socket:
        """Return the socket that the next child inherits; the caller closes it once the child has it."""
        self._child.close()
        self._child, inherited = socket.socketpair()
        self._child.setblocking(False)
        return inherited

    async def _create_connection(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - aiohttp's
    ) -> ResponseHandler:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._child, [_HANDED_OVER], [theirs.fileno()])
        except OSError as error:  # the child has ended, or takes none
            ours.close()
            raise aiohttp.ClientConnectionError(f"the child process: {error}") from error
        _, protocol = await self._loop.create_connection(self._factory, sock=ours)
        return protocol

    def close(self, *, abort_ssl: bool = False) -> Awaitable[None]:
        """Close all connections, and make no more."""
        self._child.close()
        return super().close(abort_ssl=abort_ssl)


class HandedOverSite(web.BaseSite):
    """The child's end: serves the connections that it is handed.

    Args:
        runner: the runner of the application.
        inherited: the descriptor of the socket from :meth:`ChildConnector.socket_of_next_child`.
    """

    def __init__(self, runner: web.BaseRunner, inherited: int) -> None:
        super().__init__(runner)
        self._parent = socket.socket(fileno=inherited)
        self._parent.setblocking(False)
        self._serving: set[asyncio.Task[object]] = set()

    @property
    def name(self) -> str:
        """What aiohttp calls the site."""
        return "connections from the parent process"

    async def start(self) -> None:
        """Serve what is handed over from now on."""
        await super().start()
        asyncio.get_running_loop().add_reader(self._parent, self._take)

    async def stop(self) -> None:
        """Take no more connections."""
        asyncio.get_running_loop().remove_reader(self._parent)
        self._parent.close()
        await super().stop()

    def _take(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            content, descriptors, _, _ = socket.recv_fds(self._parent, len(_HANDED_OVER), 1)
        except BlockingIOError:
            return
        if not content:  # the parent is gone, as the heartbeat will tell
            loop.remove_reader(self._parent)
        server = self._runner.server
        assert server is not None  # noqa: S101 - the runner has been set up
        for descriptor in descriptors:
            task = loop.create_task(loop.connect_accepted_socket(server, socket.socket(fileno=descriptor)))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
