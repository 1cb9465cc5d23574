"""The supervisor: the parent of the worker process, which restarts it after every failure.

Faust ends its process at any Kafka error, as does a lane at a fatal error. Nothing is lost, and a new process
resumes from the ledger. The supervisor bridges outages: it waits for the broker before every start, and kills
a process whose event loop sends no heartbeats. It also serves the web port, which therefore answers whatever
happens to the process.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from secrets import token_hex
from typing import Any

import msgspec
from msgspec.structs import replace

from knowledgepulse_kafka.connection_diagnosis import MAY_BE_FULL
from knowledgepulse_kafka.errors import NoBrokerError, SecurityError
from knowledgepulse_worker.errors import SettingsError, StartError
from knowledgepulse_worker.http.server import serving
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.process.descriptors import anonymous_file, raise_descriptor_limit
from knowledgepulse_worker.process.heartbeat import HEARTBEAT_INTERVAL, PipeReader
from knowledgepulse_worker.process.poison import PoisonSearch
from knowledgepulse_worker.process.quarantine import Caution
from knowledgepulse_worker.process.signals import set_when_stopped
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.verdict import State

logger = logging.getLogger(__name__)

START_LIMIT = 600.0
"""Seconds until the first heartbeat, since a model may have to be downloaded."""

PROBE_LIMIT = 15.0
"""Seconds for the broker to answer."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""The shortest and the longest pause in seconds between two attempts; every pause doubles the last."""
SILENCE_LIMIT = 5.0
"""Seconds without a heartbeat after which the pages say so, instead of what the process said last."""
SETTLED_LIMIT = 10.0
"""Seconds of running after which the pause before a restart is reset."""
FIRST_STARTS = 5
"""The number of failed starts after which a worker that was never ready exits, to alert the orchestrator."""
LAST_ENDS = 10
"""The number of ends that a process is told of."""

STOP_MARGIN = 30.0
"""Seconds beyond ``limits.drain`` after which a process that is stopping is killed."""
_ORDERLY_STATUSES = (
    0,
    *(status for number in (signal.SIGTERM, signal.SIGHUP) for status in (-number, 128 + number)),
)
"""Exit statuses of a process after a stop signal; a process that is still starting ends by the signal."""


class Supervisor:
    """Keeps a worker process running until a stop signal.

    Args:
        settings: the effective settings.
        command: starts the process. Its appended options are ``--history`` with the descriptor of the file of
            recent events, ``--instance`` with what only this supervisor's
            processes are called, ``--caution`` with what is known from the deaths of earlier ones,
            ``--heartbeat`` with the descriptor of a pipe, and ``--socket`` with the descriptor of the socket
            over which the process is handed the connections to its pages.
    """

    def __init__(self, settings: Settings, command: Sequence[str]) -> None:
        self._settings = settings
        self._command = command
        self._instance = token_hex(16)
        self._history = anonymous_file()
        self._stop = asyncio.Event()
        self._was_ready = False
        self._first = True
        self._failed_starts = 0
        self._was_silent = False
        self._error: str | None = None
        self._restarts = 0
        self._ends: deque[float] = deque(maxlen=LAST_ENDS)
        self._last_end = ""
        self._poison = PoisonSearch(settings.limits.poison_attempts, skip=settings.limits.skip_poison)
        self._loop = asyncio.get_running_loop()

    async def run(self) -> int:
        """Work until SIGTERM, SIGHUP or SIGINT.

        Returns:
            the process's exit status if its first start failed with an error that a retry cannot fix, or
            after :data:`FIRST_STARTS` failures; 1 if the process failed or had to be killed while stopping;
            otherwise 0.

        Raises:
            StartError: the web port is unavailable.
        """
        raise_descriptor_limit()
        _warn_of_limits(self._settings)
        set_when_stopped(self._stop)
        async with serving(self._settings.web, self._settings.kafka.group) as self._port:
            return await self._run()

    async def _run(self) -> int:
        pauses = _pauses()
        while await self._unless_stopped(self._wait_for_broker()):
            started = self._loop.time()
            status = await self._run_process()
            took_records = self._poison.end(was_killed=status < 0)
            if self._stop.is_set():
                return 0 if status in _ORDERLY_STATUSES else 1
            if self._first and not self._was_ready and status == StartError.exit_status:
                return status
            self._first = False
            ending = self._ending(status)
            self._restarts += 1
            self._ends.append(time.time())
            self._last_end = self._with_error(f"the worker {ending}")
            # Records that kill processes are searched for, and the search ends.
            self._failed_starts += not (self._was_ready or took_records)
            if self._failed_starts == FIRST_STARTS:
                logger.critical(
                    "the worker %s; it failed at %d starts and was never ready", ending, FIRST_STARTS
                )
                return status if status >= 0 else 128 - status
            if self._loop.time() - started > SETTLED_LIMIT:
                pauses = _pauses()
            pause = next(pauses)
            logger.error("the worker %s; starting it again in %g s", ending, pause)
            if status == StartError.exit_status:  # the reason comes first where only a person can remove it
                self._port.without_child(State.REFUSED, _needs_you(self._error or self._last_end, pause))
            self._port.without_child(State.STARTING, self._last_end)
            if not await self._unless_stopped(asyncio.sleep(pause)):
                break
        return 0

    async def _wait_for_broker(self) -> None:
        # A worker that was ready stays ready: while the broker is down, no other worker could do more.
        answer = partial(self._port.without_child, ready=self._was_ready)
        answer(State.STARTING, self._starting())
        for pause in _pauses():
            try:
                async with (
                    asyncio.timeout(PROBE_LIMIT),
                    TopicAdmin(self._settings.kafka, self._settings.topics),
                ):
                    return
            except (SecurityError, SettingsError) as error:
                # Settings that worked once may work again, since a password changes on one side first.
                if self._first:
                    raise
                problem = str(error)
                answer(State.REFUSED, _needs_you(problem, pause))
            except (NoBrokerError, TimeoutError) as error:
                problem = str(error) or (
                    f"kafka.bootstrap_servers: {self._settings.kafka.bootstrap_servers}: no answer in "
                    f"{PROBE_LIMIT:g} s"
                )
                answer(State.WAITING_FOR_KAFKA, f"cannot connect to Kafka: {problem}{self._hint(problem)}")
            logger.warning("%s; trying again in %g s", problem, pause)
            await asyncio.sleep(pause)

    async def _run_process(self) -> int:
        """Start the process and watch it; return its exit status, negative for a signal."""
        self._port.without_child(State.STARTING, self._starting())
        self._error = None
        with _pipe() as (reader, writer), self._port.socket_of_next_child() as inherited:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                "--history",
                str(self._history),
                "--instance",
                self._instance,
                "--caution",
                msgspec.json.encode(self._caution()).decode(),
                "--heartbeat",
                str(writer),
                "--socket",
                str(inherited.fileno()),
                stdin=subprocess.DEVNULL,
                pass_fds=[self._history, writer, inherited.fileno()],
            )
            # Only the process holds these ends now, so its exit closes the pipe, and the socket.
            os.close(writer)
            inherited.close()
            ended = asyncio.create_task(process.wait())
            pipe = PipeReader(reader)
            silent = asyncio.create_task(self._silence(pipe))
            stopping = asyncio.create_task(self._stop.wait())
            await asyncio.wait({ended, silent, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self._was_silent = silent.done()
            silent.cancel()
            if stopping.done():
                self._port.without_child(State.STOPPING, "the worker is stopping")
            else:
                self._port.without_child(State.STARTING, "the worker is restarting")
            # The process may end by itself just before the signal.
            with suppress(ProcessLookupError):
                if stopping.done() and not ended.done():
                    process.terminate()
                    await asyncio.wait({ended}, timeout=self._settings.limits.drain + STOP_MARGIN)
                if not ended.done():
                    process.kill()
            stopping.cancel()
            status = await ended
            self._read(pipe)  # its last words, but what it says about itself is over
            return status

    def _caution(self) -> Caution:
        return replace(
            self._poison.caution(),
            restarts=self._restarts,
            ends=tuple(self._ends),
            last_end=self._last_end,
            findings=self._port.lasting_findings,
        )

    def _with_error(self, what: str) -> str:
        return what if self._error is None else f"{what}; the last error: {self._error}"

    def _hint(self, problem: str) -> str:
        """Say what a refused connection means where there was one before."""
        return f": {MAY_BE_FULL}" if self._was_ready and os.strerror(errno.ECONNREFUSED) in problem else ""

    def _starting(self) -> str:
        """Say that the process is starting, and what ended the one before."""
        end = self._last_end if self._error is None else ""
        return self._with_error(f"the worker is starting; {end}" if end else "the worker is starting")

    def _ending(self, status: int) -> str:
        """Describe how the process ended; a SIGKILL from elsewhere is probably the kernel's, for memory."""
        if status != -signal.SIGKILL or self._was_silent:
            return f"ended with status {status}"
        return "was killed, perhaps for memory"

    async def _silence(self, pipe: PipeReader) -> None:
        """Return once the process has sent no heartbeat for too long.

        Time is measured in iterations and not by the clock, so that the child does not count as silent while
        this process is suspended.
        """
        silent, limit, is_ready = 0.0, START_LIMIT, None
        while silent < limit:
            await asyncio.sleep(HEARTBEAT_INTERVAL)
            report = self._read(pipe)
            if report is None:
                silent += HEARTBEAT_INTERVAL
                if is_ready is not None and silent > SILENCE_LIMIT:
                    restart = f"a restart follows at {limit:g} s (limits.heartbeat)"
                    why = f"no heartbeat for {silent:.0f} s; {restart}"
                    self._port.without_child(State.SILENT, why, ready=is_ready)
                continue
            silent, limit = 0.0, self._settings.limits.heartbeat
            is_ready = not report["reasons"]
            self._was_ready = self._was_ready or is_ready
            self._port.with_child(**report)
        logger.error("no heartbeat from the worker for %g s (limits.heartbeat): killing it", limit)

    def _read(self, pipe: PipeReader) -> dict[str, Any] | None:
        """Read the process's messages; return the last report on itself, if there was one."""
        report = None
        for message in pipe.messages():
            match message:
                case {"findings": _}:
                    report = message
                case {"error": str(error)}:
                    self._error = error
                case _:
                    self._poison.read(message)
        return report

    async def _unless_stopped(self, step: Coroutine[Any, Any, None]) -> bool:
        """Run a step; return False if a stop signal interrupted it."""
        doing = asyncio.create_task(step)
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._stop.is_set():
            doing.cancel()
            with suppress(asyncio.CancelledError):
                await doing
            return False
        await doing
        return True


def _warn_of_limits(settings: Settings) -> None:
    """Log limits that are not in order, so that what waits for more gives up before its reason is known."""
    limits = {
        "the probe of a broker": PROBE_LIMIT,
        "kafka.request_timeout": settings.kafka.request_timeout,
        "limits.stall": settings.limits.stall,
    }
    for (name, limit), (longer, more) in pairwise(limits.items()):
        if limit >= more:
            logger.warning(
                "%s, %g s, should be more than %s, %g s: a wait for a broker may end without its reason",
                *(longer, more, name, limit),
            )


def _needs_you(problem: str, pause: float) -> str:
    return f"{problem}; it needs you, and tries again in {pause:g} s"


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Yield a pipe's non-blocking read end and its write end, which the caller closes."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        yield reader, writer
    finally:
        os.close(reader)
