"""Control of measured processes: suspension of all sides but one."""

from __future__ import annotations

import signal
from contextlib import suppress

import psutil


def suspend(pid: int) -> None:
    """Suspend a process and its children, so that they do not disturb the measured side."""
    _signal(pid, signal.SIGSTOP)


def wake(pid: int) -> None:
    """Resume a process and its children."""
    _signal(pid, signal.SIGCONT)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its children so far."""
    parent = psutil.Process(pid)
    return sum(sum(one.cpu_times()[:2]) for one in (parent, *parent.children(recursive=True)))


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            process.send_signal(number)
