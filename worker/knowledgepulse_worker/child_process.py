"""Calls in a process of their own, off the event loop and within a time limit."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Literal, Self

from knowledgepulse_worker.child import FAILED, LENGTH_BYTES
from knowledgepulse_worker.errors import SettingsError, WorkerError

START_LIMIT = 30.0
"""Seconds for the function's module to be imported."""

END_LIMIT = 1.0
"""Seconds for a process to end after its last answer, or once it is killed."""

OVERTIME = 1.0
"""Seconds after its time limit until a call that ignores the kernel's signal is killed."""

_LOOK_INTERVAL = 0.05
"""Seconds between two looks whether a process has ended, whose pipe another one may hold open."""


class CallError(WorkerError):
    """A call failed in its process.

    Attributes:
        reason: the function raised an error, took too long or ended its process.
        details: the class of the error that was raised; otherwise empty.
    """

    def __init__(self, reason: Literal["raised", "timeout", "crashed"], details: str = "") -> None:
        super().__init__(f"{reason}: {details}" if details else reason)
        self.reason: Literal["raised", "timeout", "crashed"] = reason
        self.details = details


class ChildProcess:
    """A process that answers one call at a time and is replaced when it ends.

    This is an asynchronous context manager, which starts the process on entry.

    Args:
        factory: ``module:function``; returns the function of the calls, from bytes to bytes.
        argument: the factory's argument.
        timeout: time limit of a call in seconds.
        name: what errors call it.
    """

    def __init__(self, factory: str, argument: bytes, timeout: float, name: str) -> None:
        self._argument = argument
        self._timeout = timeout
        self._name = name
        self._command = (sys.executable, "-m", "knowledgepulse_worker.child", factory, str(timeout))
        self._process: Process | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Start the process.

        Raises:
            SettingsError: the factory failed.
        """
        self._process = await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            await _kill(self._process)

    async def call(self, content: bytes) -> bytes:
        """Return the function's result.

        Raises:
            CallError: the call failed.
            SettingsError: the process had ended, and another cannot be started.
        """
        async with self._lock:
            process = self._process = self._process or await self._start()
            try:
                async with asyncio.timeout(self._timeout + OVERTIME):
                    answer = await _asked(process, content)
            except TimeoutError:
                self._process = None
                await _kill(process)
                raise CallError("timeout") from None
            except (ConnectionError, asyncio.IncompleteReadError):
                self._process = None
                await _wait(process)
                timed_out = await _kill(process) == -signal.SIGALRM
                raise CallError("timeout" if timed_out else "crashed") from None
            except BaseException:
                self._process = None  # its late answer would be mistaken for the next call's
                await _kill(process)
                raise
        if answer.startswith(FAILED):
            raise CallError("raised", answer[len(FAILED) :].decode())
        return answer[len(FAILED) :]

    async def _start(self) -> Process:
        # A new session keeps Ctrl-C in the terminal from ending it before the worker is done.
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        try:
            async with asyncio.timeout(START_LIMIT):
                problem = (await _asked(process, self._argument))[len(FAILED) :].decode()
        except TimeoutError:
            problem = f"{self._name}: was not imported within {START_LIMIT:g} s"
        except (ConnectionError, asyncio.IncompleteReadError):
            problem = f"{self._name}: the process ended while importing it"
        except BaseException:
            await _kill(process)
            raise
        if problem:
            await _kill(process)
            raise SettingsError(problem)
        return process


async def _asked(process: Process, value: bytes) -> bytes:
    """Return the answer of a process.

    Raises:
        ConnectionError: it has ended. Processes that it started may hold its pipe, which then has no end.
        asyncio.IncompleteReadError: likewise.
    """
    assert process.stdin is not None  # noqa: S101 - they are pipes
    assert process.stdout is not None  # noqa: S101
    stdin, stdout = process.stdin, process.stdout

    async def ask() -> bytes:
        stdin.write(len(value).to_bytes(LENGTH_BYTES, "big") + value)
        await stdin.drain()
        length = await stdout.readexactly(LENGTH_BYTES)
        return await stdout.readexactly(int.from_bytes(length, "big"))

    asking = asyncio.create_task(ask())
    try:
        while process.returncode is None and not asking.done():
            await asyncio.wait({asking}, timeout=_LOOK_INTERVAL)
        await asyncio.wait({asking}, timeout=_LOOK_INTERVAL)  # what it wrote before its end
        if not asking.done():
            raise ConnectionResetError
        return asking.result()
    finally:
        asking.cancel()


async def _kill(process: Process) -> int | None:
    """Kill a process with those that it started; return its exit status."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own
    await _wait(process)
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - others may hold the pipes, and asyncio closes them at their ends
    return process.returncode


async def _wait(process: Process) -> None:
    """Wait for a moment until a process has ended; its own `wait` awaits the ends of the pipes, too."""
    for _ in range(int(END_LIMIT / _LOOK_INTERVAL)):
        if process.returncode is not None:
            break
        await asyncio.sleep(_LOOK_INTERVAL)
