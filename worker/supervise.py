"""The parent of a worker's process, which rides out what ends it.

Faust ends its process at any error of Kafka's, and a lane that cannot go on ends it too: nothing is lost by
that, and a fresh process goes on where the ledger says. So an outage is waited for out here: before each
start the broker is asked whether it is there, and a process whose event loop gives no sign of life is
killed. The web port is served out here too, so that it answers whatever becomes of the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from worker.descriptors import raise_descriptor_limit
from worker.errors import NoBrokerError, SecurityError, SettingsError, StartError
from worker.heartbeat import INTERVAL, heard
from worker.journal import Journal, Treatment, shared_memory
from worker.kafka.topics import TopicAdmin
from worker.memory_limit import memory_limit
from worker.poison import after_death
from worker.settings import Settings
from worker.signals import stop_signals
from worker.web import serving, socket_name

logger = logging.getLogger(__name__)

START_LIMIT = 600.0
"""Seconds until the first sign of life: a model may have to be fetched."""
PROBE_LIMIT = 15.0
"""Seconds for the broker to answer."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two attempts; each pause is twice as long as the one before."""
SETTLED = 10.0
"""Seconds after which a process that ends is started again without much of a pause."""
FIRST_STARTS = 5
"""Failed starts before the worker was ever ready, after which the orchestrator has to see it."""
STOP_MARGIN = 30.0
"""Seconds beyond ``limits.drain`` until a process that is to end is killed."""
_ENDED_AS_TOLD = (
    0,
    *(status for number in (signal.SIGTERM, signal.SIGHUP) for status in (-number, 128 + number)),
)
"""Statuses of a process that was told to end; all but the first, when it had only begun to start."""


class Supervisor:
    """Keeps a worker's process running until it is told to stop.

    Args:
        settings: the effective settings.
        command: starts the process; ``--journal`` and ``--heartbeat`` are added, each with a file descriptor,
            and ``--socket`` with the name of the Unix socket for its pages.
    """

    def __init__(self, settings: Settings, command: Sequence[str]) -> None:
        self._settings = settings
        self._command = command
        self._stop = asyncio.Event()
        self._was_ready = False
        self._first = True
        self._failed_starts = 0
        self._was_silent = False
        self._memory = shared_memory()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> int:
        """Work until SIGTERM, SIGHUP or SIGINT.

        Returns:
            the exit status: that of the process when it could not even start for the first time and said that
            trying again would not help, or after :data:`FIRST_STARTS` failures; 1 when it failed or had to
            be killed as it stopped; else 0.

        Raises:
            StartError: the web port cannot be had.
        """
        raise_descriptor_limit()
        for number in (*stop_signals(), signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop.set)
        with socket_name() as self._socket:
            async with serving(self._settings.web, self._socket) as self._port:
                return await self._run()

    async def _run(self) -> int:
        pauses = _pauses()
        while await self._unless_stopped(self._wait_for_broker()):
            started = self._loop.time()
            status = await self._run_process()
            was_working = self._suspect()
            if self._stop.is_set():
                return 0 if status in _ENDED_AS_TOLD else 1
            if self._first and status == StartError.exit_status:
                return status
            self._first = False
            ending = self._ending(status)
            # A record that is deadly is for the journal, which only the next start takes over.
            self._failed_starts += not (self._was_ready or was_working)
            if self._failed_starts == FIRST_STARTS:
                logger.critical(
                    "the worker %s; it failed at %d starts and was never ready", ending, FIRST_STARTS
                )
                return status if status >= 0 else 128 - status
            if self._loop.time() - started > SETTLED:
                pauses = _pauses()
            pause = next(pauses)
            logger.error("the worker %s; starting it again in %g s", ending, pause)
            if not await self._unless_stopped(asyncio.sleep(pause)):
                break
        return 0

    async def _wait_for_broker(self) -> None:
        # A worker that was ready stays so: while the broker is away, no other could do more.
        self._port.without_child("the worker waits for the broker", ready=self._was_ready)
        for pause in _pauses():
            try:
                async with (
                    asyncio.timeout(PROBE_LIMIT),
                    TopicAdmin(self._settings.kafka, self._settings.topics),
                ):
                    return
            except (NoBrokerError, SecurityError, SettingsError) as error:
                # What was in order once may be again: a password is changed on one side first.
                if self._first and not isinstance(error, NoBrokerError):
                    raise
                logger.warning("%s; trying again in %g s", error, pause)
            except TimeoutError:
                servers = self._settings.kafka.bootstrap_servers
                logger.warning(
                    "kafka.bootstrap_servers: %s: no answer in %g s; trying again in %g s",
                    servers,
                    PROBE_LIMIT,
                    pause,
                )
            await asyncio.sleep(pause)

    async def _run_process(self) -> int:
        """Start the process and watch it; returns its exit status, negative for a signal."""
        self._port.without_child("the worker is starting")
        with _pipe() as (reader, writer):
            process = await asyncio.create_subprocess_exec(
                *self._command,
                "--journal",
                str(self._memory),
                "--heartbeat",
                str(writer),
                "--socket",
                self._socket,
                stdin=subprocess.DEVNULL,
                pass_fds=[self._memory, writer],
            )
            os.close(writer)  # so that it is the process's alone, and its end is seen
            ended = asyncio.create_task(process.wait())
            silent = asyncio.create_task(self._silence(reader))
            stopping = asyncio.create_task(self._stop.wait())
            await asyncio.wait({ended, silent, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self._was_silent = silent.done()
            silent.cancel()
            self._port.without_child(f"the worker is {'stopping' if stopping.done() else 'restarting'}")
            # It may end by itself just before it is signalled.
            with suppress(ProcessLookupError):
                if stopping.done() and not ended.done():
                    process.terminate()
                    await asyncio.wait({ended}, timeout=self._settings.limits.drain + STOP_MARGIN)
                if not ended.done():
                    process.kill()
            stopping.cancel()
            return await ended

    def _suspect(self) -> bool:
        """Prepare the next process for the records that the last one died at.

        Returns:
            whether there are any.
        """
        journal, limits = Journal(self._memory), self._settings.limits
        in_progress = journal.in_progress()
        suspects = after_death(
            journal.suspects(), in_progress, limits.poison_attempts, skip=limits.skip_poison
        )
        journal.prepare(suspects)
        for location in sorted(in_progress):
            suspect, where = suspects[location], f"partition {location.partition}, offset {location.offset}"
            if suspect.treatment is Treatment.WATCHED:
                logger.warning("the worker died while this was in progress: %s", where)
            elif suspect.treatment is Treatment.ISOLATED:
                logger.warning("%s: %d workers died while this was in progress", where, suspect.deaths)
            elif suspect.treatment is Treatment.SKIPPED:
                logger.critical("%s: deadly even as a dead letter; it will be skipped", where)
            elif suspect.deaths:
                logger.critical(
                    "%s: deadly even as a dead letter; limits.skip_poison would skip it after %d such deaths",
                    where,
                    limits.poison_attempts,
                )
            else:
                logger.error("%s: %d workers died of it; it will be buried", where, limits.poison_attempts)
        return bool(in_progress)

    def _ending(self, status: int) -> str:
        """Return how the process ended; nobody but the kernel, for memory, is likely to kill it unasked."""
        if status != -signal.SIGKILL or self._was_silent:
            return f"ended with status {status}"
        limit = memory_limit()
        of_how_much = "" if limit is None else f" (limit {limit // 2**20} MiB)"
        return f"was killed, perhaps for memory{of_how_much}"

    async def _silence(self, reader: int) -> None:
        """Return once the process has given no sign of life for too long.

        Turns are counted, not the clock: while we are suspended ourselves, it is not the process that is
        silent.
        """
        silent, limit = 0.0, START_LIMIT
        while silent < limit:
            await asyncio.sleep(INTERVAL)
            reasons = heard(reader)
            if reasons is None:
                silent += INTERVAL
                continue
            silent, limit = 0.0, self._settings.limits.heartbeat
            self._was_ready = self._was_ready or not reasons
            self._port.with_child(reasons)
        logger.error("the worker gave no sign of life for %g s (limits.heartbeat): killing it", limit)

    async def _unless_stopped(self, step: Coroutine[Any, Any, None]) -> bool:
        """Do a step; returns False when we were told to stop before its end."""
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


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """A pipe's two ends, of which the first does not block; the second is closed by who has passed it on."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        yield reader, writer
    finally:
        os.close(reader)
