"""An address that drops connections, as that of a machine that is gone."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from knowledgepulse_worker.tools.demo.processes import LOOPBACK


@contextmanager
def dead_address() -> Iterator[tuple[str, int]]:
    """Yield host and port of a socket whose queue is full."""
    with ExitStack() as stack:
        hole = stack.enter_context(socket.socket())
        hole.bind((LOOPBACK, 0))
        hole.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(hole.getsockname())
        yield hole.getsockname()
