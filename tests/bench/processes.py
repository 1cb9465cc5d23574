"""The processes that are measured: on which cores they run, and that only one side runs at a time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress

import psutil

CPUS = "BENCH_CPUS"
"""The environment variable that names the cores that a process may use, with commas."""


def pin() -> None:
    """Keep to the cores that the environment names, if it does; before anything counts them."""
    if names := os.environ.get(CPUS):
        os.sched_setaffinity(0, {int(name) for name in names.split(",")})


def on_cores(cores: Iterable[int]) -> dict[str, str]:
    """The environment that keeps a process to these cores."""
    return {CPUS: ",".join(map(str, cores))}


def suspend(pid: int) -> None:
    """Stop a process and its children, so that they take nothing from the side that is measured."""
    _signal(pid, signal.SIGSTOP)


def wake(pid: int) -> None:
    """Let them go on."""
    _signal(pid, signal.SIGCONT)


def resident(pid: int) -> float:
    """The resident memory of a process' children, in MiB."""
    return sum(one.memory_info().rss for one in psutil.Process(pid).children(recursive=True)) / 2**20


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            process.send_signal(number)
