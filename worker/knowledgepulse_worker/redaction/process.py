"""Call the redaction function in its own process, off the event loop and within a time limit."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Self

from knowledgepulse_worker.errors import RedactionError, SettingsError
from knowledgepulse_worker.redaction.child import FAILED, LENGTH, SETTING

START_LIMIT = 30.0
"""Seconds for the function's module to be imported."""

END_LIMIT = 1.0
"""Seconds for a process to end after its last answer."""

OVERTIME = 5.0
"""Seconds after its time limit until a call that ignores the kernel's signal is killed."""


class RedactionProcess:
    """A process that redacts one trace at a time and is replaced when it ends.

    This is an asynchronous context manager, which starts the process on entry.

    Args:
        function: ``module:function``; takes a trace as a dict and returns the redacted one.
        timeout: time limit of a call in seconds.
    """

    def __init__(self, function: str, timeout: float) -> None:
        self._function = function
        self._timeout = timeout
        self._command = (
            sys.executable,
            "-m",
            "knowledgepulse_worker.redaction.child",
            function,
            str(timeout),
        )
        self._process: Process | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Start the process.

        Raises:
            SettingsError: the function cannot be imported.
        """
        self._process = await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            await _kill(self._process)

    async def redact(self, value: bytes) -> bytes:
        """Return the JSON that the function makes of a trace; it may not be a valid trace.

        Raises:
            RedactionError: the function raised (``raised``), took too long (``timeout``) or ended its process
                (``crashed``).
        """
        async with self._lock:
            process = self._process = self._process or await self._restart()
            try:
                async with asyncio.timeout(self._timeout + OVERTIME):
                    answer = await _ask(process, value)
            except TimeoutError:
                self._process = None
                await _kill(process)
                raise RedactionError("timeout") from None
            except (ConnectionError, asyncio.IncompleteReadError):
                self._process = None
                timed_out = await _ended(process) == -signal.SIGALRM
                raise RedactionError("timeout" if timed_out else "crashed") from None
            except BaseException:
                self._process = None  # its late answer would be mistaken for the next trace's
                await _kill(process)
                raise
        if answer.startswith(FAILED):
            raise RedactionError("raised", answer[len(FAILED) :].decode())
        return answer[len(FAILED) :]

    async def _restart(self) -> Process:
        try:
            return await self._start()
        except SettingsError as error:
            raise RedactionError("crashed", str(error)) from error

    async def _start(self) -> Process:
        # A new session keeps Ctrl-C in the terminal from ending it before the worker is done.
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        try:
            async with asyncio.timeout(START_LIMIT):
                problem = (await _answer(process))[len(FAILED) :].decode()
        except TimeoutError:
            problem = f"{SETTING}: {self._function}: was not imported within {START_LIMIT:g} s"
        except asyncio.IncompleteReadError:
            problem = f"{SETTING}: {self._function}: the process ended while importing it"
        except BaseException:
            await _kill(process)
            raise
        if problem:
            await _kill(process)
            raise SettingsError(problem)
        return process


async def _ask(process: Process, value: bytes) -> bytes:
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    process.stdin.write(len(value).to_bytes(LENGTH, "big") + value)
    await process.stdin.drain()
    return await _answer(process)


async def _answer(process: Process) -> bytes:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    length = await process.stdout.readexactly(LENGTH)
    return await process.stdout.readexactly(int.from_bytes(length, "big"))


async def _ended(process: Process) -> int:
    """Return the exit status of a process that has stopped answering; kill it if it is still running."""
    with suppress(TimeoutError):
        async with asyncio.timeout(END_LIMIT):
            return await process.wait()
    return await _kill(process)


async def _kill(process: Process) -> int:
    with suppress(ProcessLookupError):
        process.kill()
    return await process.wait()
