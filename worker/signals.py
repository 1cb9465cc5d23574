"""The signals that ask for an orderly end."""

from __future__ import annotations

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGTERM, and SIGHUP, which comes when a terminal closes.

    SIGHUP is left alone where it is ignored, as by ``nohup``.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, signal.SIGHUP)
