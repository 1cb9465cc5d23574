"""Processes that do not outlive us."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

LOOPBACK = "127.0.0.1"
STOP_LIMIT = 10.0
"""Seconds that a process gets between being asked to end and being killed."""

_LOG_LINES = 15

# Run by a fresh interpreter that then becomes the command. A process must not outlive one that was killed so
# hard that it could not clean up, so Linux is asked to kill it then; elsewhere only orderly ways end it.
# Popen's preexec_fn could ask too, but is not safe in a process with threads; the worker has some.
_BECOME_TIED_TO_PARENT = """\
import ctypes, os, signal, sys
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it died before we could ask
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def tied_to_us(command: Sequence[str]) -> list[str]:
    """Return a command that becomes the given one, and is killed when we end."""
    return [sys.executable, "-I", "-S", "-c", _BECOME_TIED_TO_PARENT, str(os.getpid()), *command]


def start(
    stack: ExitStack, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that writes to a log file; its end is left on the stack."""
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            tied_to_us(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            # A terminal's Ctrl-C goes to its whole process group; we end it ourselves, in order.
            start_new_session=True,
        )
    stack.callback(stop, process)
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and kill it when it does not."""
    try:
        process.terminate()
        process.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        pass
    finally:  # also on a second Ctrl-C while waiting
        process.kill()
        process.wait()


def free_ports(count: int) -> list[int]:
    """Return so many different ports on loopback that nobody listens on."""
    with ExitStack() as stack:  # held together, so that they differ
        servers = [stack.enter_context(socket.create_server((LOOPBACK, 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]


def last_lines(log: str | bytes) -> list[str]:
    """Return the end of a log, without colours."""
    text = log.decode(errors="replace") if isinstance(log, bytes) else log
    return re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip().splitlines()[-_LOG_LINES:]
