"""Start processes that end with this one."""

import errno
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

LOOPBACK = "127.0.0.1"
STOP_LIMIT = 10.0
"""Seconds between SIGTERM and SIGKILL."""

_LOG_LINES = 15

# Systems take the ports of outgoing connections from those above: Linux from 32768, others from 49152.
_SERVER_PORTS = range(20_000, 32_768)

# Run by a fresh interpreter, which then executes the command. Linux is asked to kill the command if its
# parent dies without cleaning up; other systems have no equivalent. Popen's preexec_fn could do the same, but
# is unsafe in a process with threads, such as the worker.
_BECOME_TIED_TO_PARENT = """\
import ctypes, os, signal, sys
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # the parent died before the call
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def tied_to_us(command: Sequence[str]) -> list[str]:
    """Wrap a command so that it is killed when this process dies."""
    return [sys.executable, "-I", "-S", "-c", _BECOME_TIED_TO_PARENT, str(os.getpid()), *command]


def start(
    stack: ExitStack, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that writes to a log file, and stop it with the stack."""
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            tied_to_us(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            # A terminal sends Ctrl-C to the whole process group; this process stops its children in order.
            start_new_session=True,
        )
    stack.callback(stop, process)
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process, and kill it if it does not exit in time."""
    try:
        process.terminate()
        process.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        pass
    finally:  # including a second Ctrl-C while waiting
        process.kill()
        process.wait()


def free_ports(count: int) -> list[int]:
    """Return distinct free ports on loopback.

    They are none of those that an outgoing connection, or a server that names no port, may take before they
    are used.

    Raises:
        OSError: no server can be opened, for another reason than that a port is in use.
    """
    ports: list[int] = []
    with ExitStack() as stack:  # all open at once, so that they differ
        while len(ports) < count:
            port = _SERVER_PORTS.start + secrets.randbelow(len(_SERVER_PORTS))
            try:
                stack.enter_context(socket.create_server((LOOPBACK, port)))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                ports.append(port)
    return ports


def last_lines(log: str | bytes) -> list[str]:
    """Return the end of a log, without colours."""
    text = log.decode(errors="replace") if isinstance(log, bytes) else log
    return re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip().splitlines()[-_LOG_LINES:]
