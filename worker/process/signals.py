"""The signals that request an orderly stop."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGTERM, and SIGHUP, which is sent when a terminal closes.

    SIGHUP is left out if it is ignored, as under ``nohup``.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, signal.SIGHUP)


def set_when_stopped(event: asyncio.Event) -> None:
    """Let the running loop set an event when SIGTERM, SIGHUP or SIGINT, as of Ctrl-C, requests a stop."""
    import asyncio  # noqa: PLC0415 - keeps `--help` fast

    for number in (*stop_signals(), signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, event.set)
