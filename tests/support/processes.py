"""Processes and their children."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and its children, or an empty list if it has ended."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to the processes that have not ended."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def suspend(pid: int) -> None:
    """Suspend a process and its children."""
    send(tree(pid), signal.SIGSTOP)


def wake(pid: int) -> None:
    """Resume a process and its children."""
    send(tree(pid), signal.SIGCONT)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process and its children have used, in seconds."""
    return sum(sum(process.cpu_times()[:2]) for process in tree(pid))


def resident_bytes(pid: int) -> int:
    """Return the memory of a process and its children in bytes; what several of them share counts once."""
    return sum(process.memory_full_info().pss for process in tree(pid))


def peak_rss(pid: int) -> int:
    """Return the peak memory of a process in bytes (Linux); 0 for a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")), 0)
