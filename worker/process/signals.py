"""The signals that request an orderly stop."""

from __future__ import annotations

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGTERM, and SIGHUP, which is sent when a terminal closes.

    SIGHUP is left out if it is ignored, as under ``nohup``.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, signal.SIGHUP)
