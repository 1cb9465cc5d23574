"""Control of measured processes: their cores, and suspension of all sides but one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress

import psutil

CPUS = "BENCH_CPUS"
"""Environment variable with the cores that a process may use, separated by commas."""


def pin() -> None:
    """Pin this process to the cores in the environment; call before anything counts cores."""
    if names := os.environ.get(CPUS):
        os.sched_setaffinity(0, {int(name) for name in names.split(",")})


def on_cores(cores: Iterable[int]) -> dict[str, str]:
    """Return the environment that pins a process to these cores."""
    return {CPUS: ",".join(map(str, cores))}


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
