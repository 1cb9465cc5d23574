"""A redaction function that harms the process that calls it, in each way that its trace names."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
import time
from typing import Any

LONG = 3600

HOSTILE = {
    "fork": None,
    "fork again": None,
    "fork ignore": None,
    "fork session": None,
    "fork session again ignore": None,
    "start": None,
    "thread": None,
    "at the end": None,
    "fork raise": "raised",
    "start raise": "raised",
    "fork exit": "crashed",
    "fork session exit": "crashed",
    "start exit": "crashed",
    "thread exit": "crashed",
    "fork close": "crashed",
    "close exit": "crashed",
    "wait": "timeout",
    "fork wait": "timeout",
    "fork session wait": "timeout",
    "start wait": "timeout",
    "mask wait": "timeout",
    "fork stop": "timeout",
}
"""What a function does, and how its call ends; None if with a trace."""


def hostile(trace: dict[str, Any]) -> dict[str, Any]:
    """Do what the trace's `how` names, or its objective's last words."""
    how = trace["how"] if "how" in trace else trace["task"]["objective"].partition(": ")[2]
    if "fork" in how and os.fork() == 0:
        _live_on(how)
    if "start" in how:
        subprocess.Popen(["sleep", "20"])
    if "thread" in how:
        threading.Thread(target=time.sleep, args=(LONG,)).start()
    if "mask" in how:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    if "end" in how:
        atexit.register(time.sleep, LONG)
    if "close" in how:
        os.closerange(1, 100)
    if "stop" in how:
        os.kill(os.getpid(), signal.SIGSTOP)
    if "wait" in how:
        time.sleep(LONG)
    if "exit" in how:
        os._exit(3)
    if "raise" in how:
        raise ValueError
    return trace


def _live_on(how: str) -> None:
    """Be a process that outlives the call; with a session of its own, nothing ends it before its time."""
    if "session" in how:
        os.setsid()
    if "ignore" in how:
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    if "again" in how:
        os.fork()
    time.sleep(20)
    os._exit(0)
