"""The signals that request an orderly stop."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGTERM and SIGHUP, which is sent when a terminal closes.

    SIGHUP is left out if it is ignored, as it is under ``nohup``.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, signal.SIGHUP)


def set_when_stopped(event: asyncio.Event) -> None:
    """Let the running loop set an event when SIGTERM, SIGHUP or SIGINT (Ctrl-C) requests a stop."""
    import asyncio  # noqa: PLC0415 - keeps `--help` fast

    for number in (*stop_signals(), signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, event.set)


async def until_stopped(work: Callable[[asyncio.Event], Awaitable[T]]) -> T:
    """Run work with an event that is set when a stop is requested."""
    import asyncio  # noqa: PLC0415 - as above

    stop = asyncio.Event()
    set_when_stopped(stop)
    return await work(stop)
